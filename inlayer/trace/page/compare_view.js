// The comparison: the same text with a second model or tokenizer, side by side.

let comparedHues = new Map(); // a word has the same color in both models, however they spell it

function comparedColor(token) {
  const word = nameOf(token).replace(/^(##|[^\p{L}\p{N}]+(?=[\p{L}\p{N}]))/u, "").toLowerCase();
  if (!comparedHues.has(word)) comparedHues.set(word, comparedHues.size);
  return numberedColor(comparedHues.get(word));
}

function compareView(trace) {
  const others = models.filter((model) => model.name !== state.model);
  const head = make("header", { class: "stage-head" },
    make("h1", { id: "stage-title" }, "Compare"),
    make("p", { class: "lead" }, "The same text in two models: how it is split into tokens, and the vectors they become.",
      trace.texts.length > 1 && " Only the first text is compared."));
  if (others.length === 0) {
    return [head, ...(source.exported ? [plainFact("An exported page has one model.")] : oneModelFacts())];
  }
  comparedHues = new Map();
  const chosen = others.some((model) => model.name === state.other) ? state.other : others[0].name;
  const select = make("select", { id: "other", on: { change: (event) => go({ other: event.target.value }) } });
  fillSelect(select, others.map((model) => model.name), chosen);
  const box = make("div", { class: "compare", id: "compare" }, compareColumn(trace, scene.data, state.model),
    make("section", { class: "compare-column", "aria-label": chosen }, note("Loading\u2026")));
  loadCompared(trace, chosen, box);
  return [head, make("p", {}, make("label", { class: "field" }, "Second model ", select)), box];
}

// How to serve a second model: the user's own, or a sample, which is not installed with inlayer.
function oneModelFacts() {
  const { name, install } = SECOND_MODEL;
  const commands = (...lines) => make("pre", { class: "commands" }, code(lines.join("\n")));
  return [
    make("p", {}, "Only one model is served. Start with two to compare them:"),
    commands("inlayer serve --model default --model path/to/model"),
    make("p", {}, "If you have no other model, install a sample first:"),
    commands(install, `inlayer serve --model default --model ${name}`),
  ];
}

async function loadCompared(trace, model, box) {
  const query = { ...queryOf(state, UNCHANGED), model };
  try {
    const [other, data] = await Promise.all([source.walk(query), source.scene(query)]);
    if (!box.isConnected) return;
    box.lastChild.replaceWith(compareColumn(other, data, model));
  } catch (error) {
    if (box.isConnected) box.lastChild.replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
  }
}

function compareColumn(trace, data, name) {
  const text = trace.texts[0];
  const chips = text.tokens.map((token) => styled(
    make("li", { class: "chip", data: { tokenText: nameOf(token) } },
      span("token-label mono", cut(nameOf(token), 18)), span("token-id number", String(token.id))),
    { "--token": comparedColor(token) }));
  const perToken = text.n_tokens ? (text.n_bytes / text.n_tokens).toFixed(2) : "\u2013";
  return make("section", { class: "compare-column", "aria-label": name },
    make("h2", {}, name),
    facts([
      ["Tokens", digits(grouped(text.n_tokens))], ["Bytes per token", digits(perToken)],
      ["Table", digits(`${grouped(trace.table.shape[0])} ${TIMES} ${grouped(trace.table.shape[1])}`)],
      ["Stored as", code(trace.table.dtype)], ["Positions", trace.positions.scheme],
    ]),
    make("ol", { class: "chip-row" }, chips),
    data && comparedStrips(data, text), data && comparedSimilarity(data, text, name));
}

// Each model has a separate scale: their values often differ so much that one of them would look blank.
function comparedStrips(data, text) {
  const { width, values, scale } = data.strips.hidden;
  const tokens = text.tokens.slice(0, data.tokens);
  const image = heatImage(bytesIn(values).subarray(0, tokens.length * width), width);
  image.className = "compare-strips";
  image.setAttribute("role", "img");
  image.setAttribute("aria-label", `Hidden states: ${counted(text.n_tokens, "token")} by ${grouped(width)} channels`);
  const hues = make("span", { class: "compare-hues", "aria-hidden": "true" },
    tokens.map((token) => styled(make("i"), { background: comparedColor(token) })));
  const holes = tokens.flatMap((token, t) => (image.nonFinite[t] < width ? [] : [styled(
    make("span", { class: "compare-hole mono", title: `All ${grouped(width)} values of ${nameOf(token)} are NaN or infinite` }, "NaN"),
    { top: `${(100 * t) / image.height}%`, height: `${100 / image.height}%` })]));
  return make("div", {},
    caption("Hidden states: one line per token, one column per channel. Each model has its own color scale."),
    styled(make("div", { class: "compare-lines" }, hues, image, holes), { height: `${Math.min(320, Math.max(1, image.height) * 18)}px` }),
    legend(scaleOf([scale]), HEAT_POWER));
}

function twoDecimals(value) {
  return (Math.round(value * 100) / 100 || 0).toFixed(2).replace("-", MINUS); // without "-0.00"
}

function comparedSimilarity({ similarity }, text, name) {
  if (similarity.tokens.length < 2) return null;
  const count = similarity.tokens.length, limit = 12;
  const head = make("tr", {}, make("td", {}), similarity.tokens.map((t) =>
    make("th", { scope: "col", title: nameOf(text.tokens[t]) }, cut(nameOf(text.tokens[t]), count > 9 ? 5 : 8)))); // so that all columns fit
  const cell = (cosine) => {
    if (cosine === null) return make("td", { class: "number", title: "no cosine similarity: a vector is zero, NaN, or infinite" }, "NaN");
    const color = heatColor(toNumber(cosine) * 0.6, 1);
    return styled(make("td", { class: "number" }, twoDecimals(toNumber(cosine))),
      { "background-color": `rgb(${color.join(" ")})`, color: inkOn(color) });
  };
  const shown = similarity.tokens.slice(0, limit);
  const lines = shown.map((t, i) => make("tr", {},
    make("th", { scope: "row" }, cut(nameOf(text.tokens[t]), 8)), similarity.hidden[i].slice(0, limit).map(cell)));
  const table = make("div", { class: "scroll", tabindex: 0, on: { scroll: () => markMore(table) }, role: "region", "aria-label": `Cosine similarity in ${name}` },
    make("table", { class: "similarity", "aria-label": `Cosine similarity of the tokens in ${name}` },
      make("thead", {}, make("tr", {}, Array.from(head.children).slice(0, limit + 1))),
      make("tbody", {}, lines)));
  new ResizeObserver(() => markMore(table)).observe(table);
  const part = count > limit || count < text.n_tokens;
  const which = part ? `the first ${Math.min(count, limit)} of ${counted(text.n_tokens, "token")}` : "every pair of tokens";
  return make("div", {}, caption(`Cosine similarity of ${which}: 1 for the same direction, 0 for unrelated.`), table);
}

// Step 6: positions. Learned and sinusoidal positions as strips that are added; rotary positions as rotation; relative
// positions as a table of biases or rows (steps/relative.js).

function stepPositions(trace) {
  const { positions } = trace;
  const index = trace.stages.findIndex((stage) => stage.name === "position");
  const origin = positions.from_model ? "from the model" : "chosen for this walk";
  const summary = facts([
    ["Scheme", `${positions.scheme}, ${origin}`],
    ["Block size", positions.block_size && counted(positions.block_size, "token")],
  ], "facts facts-wide");
  if (index >= 0) {
    return [summary, positions.scheme === "sinusoidal" && thetaSlider(trace),
      sumFigure(trace, [index], 6, ["before", "added", "output"]), relativeFigure(trace)];
  }
  if (positions.rotary.length === 0) {
    return [summary, relativeFigure(trace) ?? plainFact("No positions: the rows are unchanged, and the same tokens in another order give the "
      + "same vectors in another order.")];
  }
  return [
    plainFact("Each channel pair has an angle that grows with the position. Attention rotates queries and keys by it."),
    ropeFigure(trace), thetaSlider(trace), summary, positions.rotary.map((rotary, s) => rotaryFigure(trace, rotary, s))];
}

// ---- rotary: the dial and the clocks, filled when all channels of a head are known

function ropeFigure(trace) {
  const panel = make("section", { class: "rope", "aria-labelledby": "rope-title" });
  const title = make("h2", { id: "rope-title" }, "Rotation: only the distance matters");
  const channels = Math.min(512, 2 * Math.max(...trace.positions.rotary.map((rotary) => rotary.n_pairs)));
  const { texts, model } = current.query;
  const walk = JSON.stringify([texts, model]);
  panel.append(title);
  source.attentionHead(current.query, channels).then((head) => {
    if (!panel.isConnected) return;
    if (pairCount(head, head.rotary[0]) === 0) {
      panel.append(note("The rows have fewer channels than an attention head rotates."));
      return;
    }
    if (dialChoice.walk !== walk) dialChoice = startChoice(walk, head, 0);
    fillRope(panel, title, head, walk);
  }).catch((error) => panel.append(note(upper(error.message))));
  return panel;
}

function fillRope(panel, title, head, walk) {
  const rotary = head.rotary[dialChoice.s];
  const clocks = clocksFigure(rotary, walk, (pair) => dial.choosePair(pair), () => fillRope(panel, title, head, walk));
  const dial = dialFigure(head, clocks.choose);
  clocks.choose(dialChoice.pair);
  const layerButton = ({ layer_type: name }, s) => button(name, () => {
    dialChoice = { ...startChoice(walk, head, s), together: dialChoice.together };
    fillRope(panel, title, head, walk);
    byId(`rope-layer-${s}`).focus();
  }, { id: `rope-layer-${s}`, "aria-pressed": String(s === dialChoice.s) });
  panel.replaceChildren(title,
    note("q and k are the real hidden states of two tokens, in the two channels of a pair. (Attention would first ",
      "multiply them by its own matrices.) Drag the arrows or the sliders: each position rotates its vector."),
    ...(head.rotary.length > 1 ? [make("div", { class: "segments", role: "group", "aria-label": "Layer type" },
      head.rotary.map(layerButton))] : []),
    dial.element, clocks.element);
}

// ---- position embeddings: the vector before, the added vector, and the sum, one below another

function sumFigure(trace, stages, step, fields) {
  const tokens = trace.texts.flatMap((text) => text.tokens);
  const vectors = (token) => stages.map((s) => fields.map((field) => vectorOf(token, s, field) ?? []));
  const scale = scaleOf(tokens.map(vectors));
  const count = Math.max(0, ...tokens.flatMap((token) => stages.map((s) => token.stages[s].output.length)));
  const label = step === 6 ? "Row, position, and sum" : "All stages";
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "token"), make("th", { scope: "col", class: "sum-sign" }, "vector"),
    columnHeads(count));
  return [legend(scale), trace.texts.map((text, b) =>
    make("section", { class: "one-text", "aria-label": textName(trace, b) },
      trace.texts.length > 1 && make("h2", { class: "text-name" }, textName(trace, b)),
      gridTable(`${label} of ${textName(trace, b)}`, make("thead", {}, head.cloneNode(true)),
        text.tokens.map((token, t) => sumLines(trace, token, { b, t, step, stages, fields, scale })), "sums"),
      missingTokens(text)))];
}

function vectorOf(token, s, field) {
  return field === "before" ? beforeStage(token, s) : token.stages[s][field];
}

function sumLines(trace, token, { b, t, step, stages, fields, scale }) {
  const lines = stages.flatMap((s) => fields.map((field) => ({ s, field })))
    .filter(({ s, field }) => vectorOf(token, s, field));
  const head = make("th", { scope: "rowgroup", rowspan: lines.length, class: "row-head" }, rowHead(token, b, t, step));
  return make("tbody", { class: token.mask === 0 ? "padding-line" : null }, lines.map(({ s, field }, index) =>
    make("tr", { class: "sum-" + field },
      index === 0 && head,
      make("th", { scope: "row", class: "sum-sign" }, sumLabel(trace, token, s, field)),
      vectorOf(token, s, field).map((value, d) => numberCell(value, { step, field, s, b, t, d }, scale)))));
}

function sumLabel(trace, token, s, field) {
  const { name } = trace.stages[s];
  if (field === "before") return s === 0 ? "row" : `after ${trace.stages[s - 1].name}`;
  if (field === "added") return name === "position" ? `+ position ${token.position}` : `+ ${name}`;
  return token.stages[s].added ? "= sum" : name;
}

// ---- rotary: one dial per token and channel pair, collapsed because the clocks above show the same speeds

let areAnglesOpen = false; // kept while the page is redrawn

function rotaryFigure(trace, rotary, s) {
  const scaled = isScaled(rotary);
  const paired = rotary.pairing === "half" ? "channel i with channel i + half" : rotary.pairing;
  const lines = trace.texts[0].tokens.map((token, t) => rotationLine(token, t, s, scaled));
  return make("section", { class: "rotary", "aria-label": rotary.layer_type ?? "Rotary angles" },
    rotary.layer_type && make("h2", {}, rotary.layer_type),
    facts([
      ["Theta", digits(brief(rotary.theta))],
      ["Pairs", `${grouped(rotary.n_pairs)} from the ${grouped(rotary.head_dim)} channels per head, ${paired}`],
      ["Scaling", rotary.scaling ? code(rotary.scaling) : "none"],
      ["Attention factor", rotary.attention_factor === 1 ? null : digits(brief(rotary.attention_factor))],
    ], "facts facts-wide"),
    make("details", { class: "fold", open: areAnglesOpen || current.base !== null, on: { toggle: keepAngles } },
      make("summary", {}, `Angles of the first ${counted(rotary.frequencies.length, "channel pair")}, in radians, for each token`),
      scaled && caption("The thin hand shows the angle without scaling."),
      gridTable("Angles, tokens by channel pairs", rotaryHead(rotary, s, scaled), [make("tbody", {}, lines)], "dials"),
      trace.texts.length > 1 && note("Angles depend only on the position, so they are the same in every text.")));
}

function keepAngles({ target }) {
  if (current.base === null) areAnglesOpen = target.open; // a change opens the dials to show its effect
}

function rotaryHead(rotary, s, scaled) {
  return make("thead", {},
    make("tr", {}, make("th", { scope: "col", class: "corner" }, "token"),
      rotary.frequencies.map((_, d) => make("th", { scope: "col", class: "column" }, `pair ${d}`))),
    make("tr", { class: "frequencies" }, make("th", { scope: "row", class: "corner" }, "radians per position"),
      rotary.frequencies.map((value, d) => make("td", {
        class: "number", role: "gridcell", tabindex: -1,
        data: { nav: "", step: 6, field: "frequency", s, d, value: exact(value) },
      }, shortened(value),
        scaled && span("unscaled-frequency", shortened(rotary.unscaled_frequencies[d]))))));
}

function rotationLine(token, t, s, scaled) {
  const rotation = token.rotations[s];
  const part = (field, cell) => make("span", {
    class: "number dial-part", data: { value: exact(rotation[field][cell.d]), ...cell, field },
  }, `${field} ${fixed(rotation[field][cell.d], 3)}`);
  return make("tr", { class: token.mask === 0 ? "padding-line" : null },
    make("th", { scope: "row", class: "row-head" }, rowHead(token, 0, t, 6)),
    rotation.angles.map((angle, d) => {
      const cell = { step: 6, s, b: 0, t, d };
      return make("td", {
        class: "cell dial-cell " + markOf({ ...cell, field: "angles" }, angle), role: "gridcell", tabindex: -1,
        data: { nav: "", value: exact(angle), ...cell, field: "angles" },
      }, dial(angle, scaled ? rotation.unscaled_angles[d] : null), span("number angle", fixed(angle, 3)),
      part("cos", cell), part("sin", cell));
    }));
}

function dial(angle, unscaledAngle) {
  const hand = (value, name, length) => {
    const at = toNumber(value);
    if (!Number.isFinite(at)) return null;
    const [x2, y2] = [14 + length * Math.cos(at), 14 - length * Math.sin(at)];
    return draw("line", { x1: 14, y1: 14, x2, y2, class: name });
  };
  return draw("svg", { class: "dial", viewBox: "0 0 28 28", "aria-hidden": "true" },
    draw("circle", { cx: 14, cy: 14, r: 12.5, class: "dial-face" }),
    draw("line", { x1: 14, y1: 14, x2: 26.5, y2: 14, class: "dial-zero" }),
    unscaledAngle !== null && hand(unscaledAngle, "dial-unscaled", 12),
    hand(angle, "dial-hand", 11),
    draw("circle", { cx: 14, cy: 14, r: 1.5, class: "dial-pin" }));
}

// Initialization compared with the forward pass: the table is drawn once; afterwards rows are only looked up.

const INITIALIZATION_CHANNELS = 4; // per row, so that both columns fit side by side
const INITIALIZATION_TOKENS = 32;

let shownInitialization = null;

function isInitializationShown() {
  return shownInitialization?.model === state.model && shownInitialization?.requestedSeed === state.seed;
}

async function loadInitialization(signal) {
  if (isInitializationShown()) return shownInitialization;
  const { model, seed } = state;
  return { ...await source.initialization(model, seed, signal), model, requestedSeed: seed };
}

function initializationView(trace) {
  const initialization = shownInitialization;
  const size = `${grouped(initialization.vocab_size)} ${TIMES} ${grouped(initialization.width)}`;
  return [
    make("h1", { id: "stage-title" }, "Initialized once, looked up in every pass"),
    make("p", { class: "lead" }, "Initialization fills the table with random numbers before training. ",
      "A forward pass draws nothing; it only reads rows."),
    make("div", { class: "two-columns" },
      make("section", { class: "once", "aria-labelledby": "once" },
        make("h2", { id: "once" }, "Initialization"),
        note(`A table of ${size}, initialized with seed ${initialization.seed}.`),
        source.exported ? note("To initialize with another seed, use inlayer serve.")
          : button("Use the next seed", nextSeed, { id: "next-seed" }),
        make("ol", { class: "initialization-steps" }, initialization.steps.map((step, index) =>
          initializationStep(initialization, step, index)))),
      make("section", { class: "every-time", "aria-labelledby": "every-time" },
        make("h2", { id: "every-time" }, "Forward pass"),
        note(`The rows of your text from the trained table, ${shapeOf(trace.gather.shape)}. `,
          "The table does not change."),
        codeLine(trace.steps[4].code),
        lookups(trace))),
  ];
}

function nextSeed() {
  go({ seed: state.seed < MAX_SEED ? state.seed + 1 : 0 });
}

function initializationStep(initialization, step, index) {
  const count = Math.min(INITIALIZATION_CHANNELS, initialization.dims);
  const measure = (field) => make("span", {
    class: "number", data: { field: `initialization-${field}`, s: index, value: exact(step[field]) },
  }, fixed(step[field], 4));
  const rows = step.rows.map((row, line) => {
    const id = initialization.ids[line];
    const isPadding = id === initialization.padding_idx;
    return {
      head: span("mono", String(id), isPadding && span("muted", " padding")),
      values: row.slice(0, count),
      kind: isPadding ? "padding-line" : "",
      place: (d) => ({ field: "initialization", s: index, id, d }),
    };
  });
  return make("li", { class: "initialization-step" },
    make("h3", {}, `${index + 1}. ${upper(step.title)}`),
    step.note && note(upper(step.note) + "."),
    codeLine(step.code),
    make("div", { class: "initialization-figure" },
      histogram(step, initialization.steps[0]), facts([["Mean", measure("mean")], ["Std", measure("std")]])),
    matrix({
      label: `Rows: ${step.title}`, rows, count, corner: "row", more: initialization.width - count,
      scale: { ...scaleOf(initialization.steps[0].rows), decimals: 3 },
    }));
}

// Each histogram has its own axis; the bar below compares its range with that of the first.
function histogram(step, first) {
  const edge = (one) => Math.max(...one.edges.map((value) => Math.abs(toNumber(value))));
  const most = edge(step);
  const highest = Math.max(1, ...step.counts);
  const x = (value) => ((toNumber(value) + most) / (2 * most)) * 240;
  const bars = step.counts.map((count, index) => {
    const [from, to] = [x(step.edges[index]), x(step.edges[index + 1])];
    const height = (count / highest) * 60;
    return draw("rect", { x: from, y: 64 - height, width: to - from, height, class: "histogram-bar" });
  });
  const end = brief(Number(most.toPrecision(2)));
  const label = `Histogram: mean ${brief(step.mean)}, standard deviation ${brief(step.std)}`;
  return make("figure", { class: "histogram" },
    draw("svg", { viewBox: "0 0 240 64", preserveAspectRatio: "none", role: "img", "aria-label": label }, bars),
    make("figcaption", { class: "strip-ends number" },
      make("span", {}, MINUS + end), make("span", {}, "0"), make("span", {}, end)),
    styled(make("div", { class: "spread", "aria-hidden": "true" }, make("i", {})), {
      "--share": (most / edge(first)).toFixed(4),
    }));
}

function lookups(trace) {
  const scale = scaleOf(trace.texts.map((text) => text.tokens.map((token) => token.row)));
  const count = Math.min(INITIALIZATION_CHANNELS, trace.dims);
  return trace.texts.map((text, b) => matrix({
    label: `Rows looked up for ${textName(trace, b)}`, scale, count, corner: "token",
    more: trace.gather.shape[2] - count,
    rows: text.tokens.slice(0, INITIALIZATION_TOKENS).map((token, t) => ({
      head: rowHead(token, b, t, 5),
      values: token.row.slice(0, count),
      kind: token.mask === 0 ? "padding-line" : "",
      place: (d) => ({ step: 5, field: "row", b, t, d }),
    })),
  }));
}

function explainInitialization(field) {
  return ({ s }) => {
    const step = shownInitialization.steps[s];
    const size = `${grouped(shownInitialization.vocab_size)} ${TIMES} ${grouped(shownInitialization.width)}`;
    return {
      title: `${field} of the table`,
      formula: [`${field} = ${brief(step[field])}`],
      facts: [exactly(step[field]), ["Computed over", `all ${size} values`], ["Step", step.title]],
      code: `${step.code}; table.weight.${field}()`,
    };
  };
}

Object.assign(EXPLANATIONS, {
  initialization({ id, s, d }) {
    const { steps, ids, seed, vocab_size: rows, width, padding_idx: padding } = shownInitialization;
    const value = steps[s].rows[ids.indexOf(id)][d];
    return {
      title: indexed("E", id, d),
      formula: [`${indexed("E", id, d)} = ${brief(value)}`],
      facts: [
        exactly(value),
        ["Row", `${grouped(id)} of ${grouped(rows)}`],
        ["Channel", `${d} of ${grouped(width)}`],
        ["Step", steps[s].title],
        ["Source", `seed ${seed}, not stored in a file`],
      ],
      code: steps[s].code,
      words: id === padding ? "The padding row." : "Random; not trained yet.",
    };
  },

  "initialization-mean": explainInitialization("mean"),
  "initialization-std": explainInitialization("std"),
});

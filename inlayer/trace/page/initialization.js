// Initialization compared with the forward pass: the table is drawn once; afterward, rows are only looked up.

const INITIALIZATION_CHANNELS = 4; // per row, so both columns fit side by side
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
      "A forward pass samples nothing; it only reads rows."),
    initializationScene(initialization),
    make("div", { class: "two-columns" },
      make("section", { class: "once", "aria-labelledby": "once" },
        make("h2", { id: "once" }, "Initialization"),
        note(`A table of ${size}, initialized with seed ${initialization.seed}.`),
        source.exported ? note("To initialize with another seed:", make("br"), code("inlayer serve"))
          : button("Try another seed", nextSeed, { id: "next-seed" }),
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
      cell: (d) => ({ field: "initialization", s: index, id, d }),
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

// All histograms share the first one's axis, so a narrower distribution looks narrower.
function histogram(step, first) {
  const bars = histogramBars(step, histogramEdge(first), 64);
  const label = `Histogram: mean ${brief(step.mean)}, standard deviation ${brief(step.std)}`;
  return make("figure", { class: "histogram" },
    draw("svg", { viewBox: "0 0 240 64", preserveAspectRatio: "none", role: "img", "aria-label": label }, bars),
    axisEnds(histogramEdge(first)));
}

function histogramEdge(step) {
  return Math.max(...step.edges.map((value) => Math.abs(toNumber(value))));
}

function histogramBars(step, maxAbs, height) {
  const highest = Math.max(1, ...step.counts);
  const x = (value) => ((toNumber(value) + maxAbs) / (2 * maxAbs)) * 240;
  return step.counts.map((count, index) => {
    const [from, to] = [x(step.edges[index]), x(step.edges[index + 1])];
    const size = (count / highest) * (height - 4);
    return draw("rect", { x: from, y: height - size, width: to - from, height: size, class: "histogram-bar" });
  });
}

function axisEnds(maxAbs) {
  const end = brief(Number(maxAbs.toPrecision(2)));
  return make("figcaption", { class: "strip-ends number" }, span("", MINUS + end), span("", "0"), span("", end));
}

// ---- the steps in motion: the distribution narrows on one axis, and the padding row becomes zero

let initializationShown = 0; // the step that the figure shows

function initializationScene(initialization) {
  const { steps } = initialization;
  const maxAbs = histogramEdge(steps[0]);
  const outline = draw("g", { class: "histogram-first" }, histogramBars(steps[0], maxAbs, 140));
  const bars = histogramBars(steps[0], maxAbs, 140);
  const strips = initialization.ids.map((id) => initializationStrip(initialization, id));
  const words = make("p", { class: "scene-words" });
  const buttons = steps.map((step, index) => button(`${index + 1}. ${upper(step.title)}`, () => moveTo(index), {
    id: `initialization-${index}`,
  }));
  let stopMotion = () => {};

  function moveTo(index) {
    const from = steps[initializationShown], to = steps[index];
    initializationShown = index;
    stopMotion();
    stopMotion = motion.animate(900, (share) => show(from, to, share));
    buttons.forEach((tab, tabIndex) => tab.setAttribute("aria-pressed", String(tabIndex === index)));
    words.textContent = sceneWords(steps, index);
  }

  function show(from, to, share) {
    const mixed = (a, b) => toNumber(a) + (toNumber(b) - toNumber(a)) * share;
    const between = {
      counts: from.counts.map((count, index) => mixed(count, to.counts[index])),
      edges: from.edges.map((edge, index) => mixed(edge, to.edges[index])),
    };
    histogramBars(between, maxAbs, 140).forEach((bar, index) => {
      for (const name of ["x", "y", "width", "height"]) bars[index].setAttribute(name, bar.getAttribute(name));
    });
    strips.forEach((strip, line) => {
      const isZeroed = to.rows[line].every((value) => value === 0); // at the same time as the label, not gradually
      strip.show(isZeroed ? to.rows[line] : from.rows[line].map((value, d) => mixed(value, to.rows[line][d])),
        3 * mixed(from.std, to.std));
    });
  }

  show(steps[0], steps[0], 1);
  initializationShown = 0;
  moveTo(0);
  // Plays once, until a step is selected.
  const playFrom = (index) => setTimeout(() => {
    if (!words.isConnected || initializationShown !== index - 1) return;
    moveTo(index);
    if (index < steps.length - 1) playFrom(index + 1);
  }, index === 1 ? 700 : 2400);
  if (!motion.instant && steps.length > 1) playFrom(1);
  return make("section", { class: "initialization-scene", "aria-labelledby": "narrowing" },
    make("h2", { id: "narrowing" }, `From N(0, 1) to N(0, ${brief(initialization.init_std)})`),
    make("div", { class: "segments wrap", role: "group", "aria-label": "Steps of the initialization" }, buttons),
    words,
    make("div", { class: "initialization-pair" },
      make("figure", { class: "narrowing" },
        draw("svg", { viewBox: "0 0 240 140", preserveAspectRatio: "none", role: "img",
          "aria-label": "Values of the table, all steps on one axis" }, outline, draw("g", {}, bars)),
        axisEnds(maxAbs), make("p", { class: "caption" }, "Gray: values in step 1. Color: values in the selected step, drawn at the same height.")),
      make("div", { class: "initialization-strips" }, strips.map((strip) => strip.element),
        make("p", { class: "caption" }, "Rows of the table. Full color: three standard deviations of this step."))));
}

function sceneWords(steps, index) {
  const { std, title, note: remark } = steps[index];
  const ratio = toNumber(steps[0].std) / toNumber(std);
  const narrower = ratio > 1.5 ? ` The values are ${Math.round(ratio)} times smaller than in step 1.` : "";
  return `${upper(title)}: standard deviation ${shortened(std)}.${narrower}${remark ? ` ${upper(remark)}.` : ""}`;
}

function initializationStrip(initialization, id) {
  const isPadding = id === initialization.padding_idx;
  const cells = initialization.steps[0].rows[0].map(() => make("i", { class: "block" }));
  return {
    element: make("div", { class: "initialization-strip" + (isPadding ? " padding-strip" : ""), "aria-hidden": "true" },
      span("mono", String(id), isPadding && " padding"), make("span", { class: "strip-blocks" }, cells)),
    show(values, maxAbs) {
      values.forEach((value, d) => {
        cells[d].className = "block";
        heat(cells[d], value, { maxAbs });
      });
    },
  };
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
      cell: (d) => ({ step: 5, field: "row", b, t, d }),
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
        ["Row", indexIn(id, rows)],
        ["Channel", indexIn(d, width)],
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

// Initialization against forward pass: the table is made once, drawn and scaled; afterwards rows are only looked up.

const BIRTH_CHANNELS = 4; // of a row, so that once and every time stand side by side
const BIRTH_TOKENS = 32;

let shownBirth = null;

function isBirthShown() {
  return shownBirth?.model === state.model && shownBirth?.asked === state.seed;
}

async function loadBirth(signal) {
  if (isBirthShown()) return shownBirth;
  const { model, seed } = state;
  return { ...await source.birth(model, seed, signal), model, asked: seed };
}

function birthView(trace) {
  const birth = shownBirth;
  const size = `${grouped(birth.vocab_size)} ${TIMES} ${grouped(birth.width)}`;
  return [
    make("h1", { id: "stage-title" }, "Made once, looked up every time"),
    make("p", { class: "lead" }, "Initialization fills the table with random numbers before training begins. ",
      "A forward pass never draws anything: it only reads rows."),
    make("div", { class: "two-columns" },
      make("section", { class: "once", "aria-labelledby": "once" },
        make("h2", { id: "once" }, "Once"),
        note(`A table of ${size}, drawn from seed ${birth.seed}.`),
        source.exported ? note("Drawing again needs the library: inlayer serve.")
          : button("Draw with the next seed", drawAgain, { id: "draw-again" }),
        make("ol", { class: "birth-stages" }, birth.stages.map((stage, index) => birthStage(birth, stage, index)))),
      make("section", { class: "every-time", "aria-labelledby": "every-time" },
        make("h2", { id: "every-time" }, "Every time"),
        note(`Your text through the trained table, ${shapeOf(trace.gather.shape)}. `,
          "Nothing is drawn, and nothing in the table changes."),
        codeLine(trace.steps[4].code),
        lookups(trace))),
  ];
}

function drawAgain() {
  go({ seed: state.seed < MOST_SEED ? state.seed + 1 : 0 });
}

function birthStage(birth, stage, index) {
  const count = Math.min(BIRTH_CHANNELS, birth.dims);
  const measure = (field) => make("span", {
    class: "number", data: { field: `birth-${field}`, s: index, value: exact(stage[field]) },
  }, fixed(stage[field], 4));
  const rows = stage.rows.map((row, line) => {
    const id = birth.ids[line];
    const isPadding = id === birth.padding_idx;
    return {
      head: span("mono", String(id), isPadding && span("muted", " padding")),
      values: row.slice(0, count),
      kind: isPadding ? "padding-line" : "",
      place: (d) => ({ field: "birth", s: index, id, d }),
    };
  });
  return make("li", { class: "birth-stage" },
    make("h3", {}, `${index + 1}. ${upper(stage.title)}`),
    stage.note && note(upper(stage.note) + "."),
    codeLine(stage.code),
    make("div", { class: "birth-figure" },
      histogram(stage, birth.stages[0]), facts([["Mean", measure("mean")], ["Std", measure("std")]])),
    matrix({
      label: `Rows after: ${stage.title}`, rows, count, corner: "row", more: birth.width - count,
      scale: { ...scaleOf(birth.stages[0].rows), decimals: 3 },
    }));
}

// Its shape on an axis of its own; the bar below shows how much of the first drawing's axis that is.
function histogram(stage, first) {
  const edge = (one) => Math.max(...one.edges.map((value) => Math.abs(toNumber(value))));
  const most = edge(stage);
  const highest = Math.max(1, ...stage.counts);
  const x = (value) => ((toNumber(value) + most) / (2 * most)) * 240;
  const bars = stage.counts.map((count, index) => {
    const [from, to] = [x(stage.edges[index]), x(stage.edges[index + 1])];
    const height = (count / highest) * 60;
    return draw("rect", { x: from, y: 64 - height, width: to - from, height, class: "histogram-bar" });
  });
  const end = brief(Number(most.toPrecision(2)));
  const label = `Histogram: mean ${brief(stage.mean)}, standard deviation ${brief(stage.std)}`;
  return make("figure", { class: "histogram" },
    draw("svg", { viewBox: "0 0 240 64", preserveAspectRatio: "none", role: "img", "aria-label": label }, bars),
    make("figcaption", { class: "strip-ends number" },
      make("span", {}, MINUS + end), make("span", {}, "0"), make("span", {}, end)),
    styled(make("div", { class: "spread", "aria-hidden": "true" }, make("i", {})), {
      "--share": (most / edge(first)).toFixed(4),
    }));
}

function lookups(trace) {
  const scale = scaleOf(trace.texts.map((text) => text.cells.map((cell) => cell.row)));
  const count = Math.min(BIRTH_CHANNELS, trace.dims);
  return trace.texts.map((text, b) => matrix({
    label: `Rows looked up for ${textName(trace, b)}`, scale, count, corner: "token",
    more: trace.gather.shape[2] - count,
    rows: text.cells.slice(0, BIRTH_TOKENS).map((cell, t) => ({
      head: rowHead(cell, b, t, 5),
      values: cell.row.slice(0, count),
      kind: cell.mask === 0 ? "padding-line" : "",
      place: (d) => ({ step: 5, field: "row", b, t, d }),
    })),
  }));
}

function explainBirthMeasure(field) {
  return ({ s }) => {
    const stage = shownBirth.stages[s];
    const size = `${grouped(shownBirth.vocab_size)} ${TIMES} ${grouped(shownBirth.width)}`;
    return {
      title: `${field} of the table`,
      formula: [`${field} = ${brief(stage[field])}`],
      facts: [exactly(stage[field]), ["Over", `all ${size} values`], ["Moment", stage.title]],
      code: `${stage.code}; table.weight.${field}()`,
    };
  };
}

Object.assign(EXPLANATIONS, {
  birth({ id, s, d }) {
    const { stages, ids, seed, vocab_size: rows, width, padding_idx: padding } = shownBirth;
    const value = stages[s].rows[ids.indexOf(id)][d];
    return {
      title: indexed("E", id, d),
      formula: [`${indexed("E", id, d)} = ${brief(value)}`],
      facts: [
        exactly(value),
        ["Row", `${grouped(id)} of ${grouped(rows)}`],
        ["Channel", `${d} of ${grouped(width)}`],
        ["Moment", stages[s].title],
        ["From", `seed ${seed}: it lies in no file`],
      ],
      code: stages[s].code,
      words: id === padding ? "The padding row." : "Drawn at random; it means nothing yet.",
    };
  },

  "birth-mean": explainBirthMeasure("mean"),
  "birth-std": explainBirthMeasure("std"),
});

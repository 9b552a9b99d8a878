// Step 7: hidden states, the stages a row passed on its way, and a batch with its padding and mask.

function stepHidden(trace) {
  const width = trace.shape[2];
  const scale = scaleOf(trace.texts.map((text) => text.cells.map((cell) => cell.hidden)));
  return [
    passage(trace),
    figureHead(trace, width, scale),
    trace.texts.map((text, b) => vectorMatrix(trace, text, b, { step: 7, field: "hidden", scale, width })),
    everyStage(trace),
    maskFigure(trace),
    paddingFact(trace),
  ];
}

function passage(trace) {
  const names = ["row", ...trace.stages.map((stage) => stage.name), "hidden state"];
  const isEnd = (index) => index === 0 || index === names.length - 1;
  return [
    make("ol", { class: "passage", "aria-label": "What a row passes" }, names.map((name, index) =>
      make("li", { class: isEnd(index) ? "passage-end" : "passage-stage" }, name))),
    trace.stages.length === 0
      ? note("Nothing is done to a row on the way: the hidden state is the row.")
      : make("ul", { class: "note" }, trace.stages.map((stage) => make("li", {}, `${stage.name}: ${stage.note}`))),
  ];
}

function everyStage(trace) {
  const others = [...trace.stages.keys()].filter((s) => trace.stages[s].name !== "position");
  if (others.length === 0) return null;
  return make("details", { class: "fold" },
    make("summary", {}, "Every stage but the position, number by number"),
    writtenSum(trace, others, 7, ["added", "after"]));
}

// One square a token: what is real and what only fills up.
function maskFigure(trace) {
  if (!trace.texts.some((text) => text.n_padding)) return null;
  const square = (cell, b, t) => make("td", {
    class: "cell mask-cell number" + (cell.mask ? "" : " masked"), role: "gridcell", tabindex: -1,
    data: { nav: "", field: "mask", step: 7, b, t, value: exact(cell.mask) },
  }, String(cell.mask));
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "text"), columnHeads(trace.texts[0].cells.length));
  const lines = trace.texts.map((text, b) => make("tr", {},
    make("th", { scope: "row", class: "row-head" }, String(b)), text.cells.map((cell, t) => square(cell, b, t))));
  return make("section", { class: "mask", "aria-label": "Mask" },
    make("h2", {}, "Mask"),
    note("1 for a token of the text, 0 for padding: whoever reads the hidden states has to leave those out."),
    gridTable("Mask, texts by tokens", make("thead", {}, head), [make("tbody", {}, lines)], "masks"));
}

function paddingFact(trace) {
  const { padding } = trace;
  if (padding.id === null) return note("This model has no padding: a batch takes texts of one length.");
  const what = padding.is_row ? "It is the table\u2019s padding row" : "It is a token like others, from the tokenizer";
  const worth = padding.zero ? ", and all zero." : ", and it is not zero: without the mask it would count.";
  const row = {
    head: span("mono", String(padding.id)), values: padding.row, kind: "padding-line",
    place: (d) => ({ step: 7, field: "padding", d }),
  };
  return make("section", { class: "padding-fact", "aria-label": "Padding row" },
    make("h2", {}, `Row ${padding.id} fills up`),
    note(what + worth),
    matrix({
      label: "The padding row", rows: [row], scale: scaleOf(padding.row), count: padding.row.length, corner: "row",
      more: trace.table.shape[1] - padding.row.length,
    }));
}

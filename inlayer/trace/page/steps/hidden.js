// Step 7: hidden states, the stages of the layer, the mask, and the padding row.

function stepHidden(trace) {
  const width = trace.shape[2];
  const scale = scaleOf(trace.texts.map((text) => text.tokens.map((token) => token.hidden)));
  return [
    stageList(trace),
    figureHead(trace, width, scale),
    trace.texts.map((text, b) => vectorMatrix(trace, text, b, { step: 7, field: "hidden", scale, width })),
    everyStage(trace),
    maskFigure(trace),
    paddingFact(trace),
  ];
}

function stageList(trace) {
  const names = ["row", ...trace.stages.map((stage) => stage.name), "hidden state"];
  const isEnd = (index) => index === 0 || index === names.length - 1;
  return [
    make("ol", { class: "stage-list", "aria-label": "Stages of the layer" }, names.map((name, index) =>
      make("li", { class: isEnd(index) ? "stage-end" : "stage-name" }, name))),
    trace.stages.length === 0
      ? note("The layer has no further stages: the hidden state is the row.")
      : make("ul", { class: "note" }, trace.stages.map((stage) => make("li", {}, `${stage.name}: ${stage.note}`))),
  ];
}

function everyStage(trace) {
  const others = [...trace.stages.keys()].filter((s) => trace.stages[s].name !== "position");
  if (others.length === 0) return null;
  return make("details", { class: "fold" },
    make("summary", {}, "Values after each of the other stages"),
    sumFigure(trace, others, 7, ["added", "output"]));
}

// One square per token: 1 for the text, 0 for padding.
function maskFigure(trace) {
  if (!trace.texts.some((text) => text.n_padding)) return null;
  const square = (token, b, t) => make("td", {
    class: "cell mask-cell number" + (token.mask ? "" : " masked"), role: "gridcell", tabindex: -1,
    data: { nav: "", value: exact(token.mask), ...absolute({ field: "mask", step: 7, b, t }) },
  }, String(token.mask));
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "text"), columnHeads(trace.texts[0].tokens.length));
  const lines = trace.texts.map((text, b) => make("tr", {},
    make("th", { scope: "row", class: "row-head" }, String(b + 1)), text.tokens.map((token, t) => square(token, b, t))));
  return make("section", { class: "mask", "aria-label": "Mask" },
    make("h2", {}, "Mask"),
    note("1 for a token in the text, 0 for padding, which later layers must ignore."),
    gridTable("Mask, texts by tokens", make("thead", {}, head), [make("tbody", {}, lines)], "masks"));
}

function paddingFact(trace) {
  const { padding } = trace;
  if (padding.id === null) return note("This model has no padding token: all texts of a batch must have the same length.");
  const what = padding.is_padding_idx ? "It is the table\u2019s padding_idx" : "It is an ordinary token";
  const values = padding.is_zero ? ", and all its values are zero." : ", and its values are not zero.";
  const row = {
    head: span("mono", String(padding.id)), values: padding.row, kind: "padding-line",
    cell: (d) => ({ step: 7, field: "padding", d }),
  };
  return make("section", { class: "padding-fact", "aria-label": "Padding row" },
    make("h2", {}, `Padding row ${padding.id}`),
    note(what + values),
    matrix({
      label: "The padding row", rows: [row], scale: scaleOf(padding.row), count: padding.row.length, corner: "row",
      more: trace.table.shape[1] - padding.row.length,
    }));
}

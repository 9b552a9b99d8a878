// Steps 4 and 5: the location of each row, its raw values, and the rows gathered into a matrix.

function stepRow(trace) {
  if (trace.input === "inputs_embeds") return perText(trace, () => []);
  const { table } = trace;
  const [rows, width] = table.shape;
  return [
    facts([
      ["Tensor", code(table.name)],
      ["File", fileOf(table)],
      ["Shape", digits(`${grouped(rows)} ${TIMES} ${grouped(width)}`)],
      ["Stored as", [code(table.dtype), isPlainDtype(table) ? "" : [", returned as ", code(table.row_dtype)]]],
      ["Offset", digits(`byte ${grouped(table.offset)}`)],
      ["Row size", digits(counted(table.row_bytes, "byte"))],
    ], "facts facts-wide"),
    tableStrip(trace),
    perText(trace, (text, b) => storedTable(trace, text, b)),
    ngramMemories(trace),
    perLayerStrips(trace),
    valueRows(trace),
    routingRows(trace),
  ];
}

function fileOf(table) {
  return table.file === null ? "in memory" : code(table.file);
}

function isPlainDtype({ dtype, row_dtype: rowDtype }) {
  return dtype === rowDtype || { BF16: "bfloat16", F16: "float16", F32: "float32", F64: "float64" }[dtype] === rowDtype;
}

// The whole table as a strip, with a tick for each row in use.
function tableStrip(trace) {
  const used = new Set(trace.texts.flatMap((text) => text.tokens.map((token) => token.id)));
  const label = `The table: ${counted(used.size, "row")} of ${grouped(trace.table.shape[0])} in use`;
  return strip(trace.table.shape[0], [...used], { label, middle: `${counted(used.size, "row")} in use` });
}

function strip(rows, ids, { label, middle, kind = "strip-table", color = tokenColor }) {
  const ticks = ids.map((id) => {
    const x = rows > 1 ? (id / (rows - 1)) * 996 + 2 : 2;
    return styled(draw("line", { x1: x, x2: x, y1: 4, y2: 28, class: "tick" }), { stroke: color(id) });
  });
  return make("figure", { class: "strip" },
    draw("svg", { viewBox: "0 0 1000 32", preserveAspectRatio: "none", role: "img", "aria-label": label },
      draw("rect", { x: 0, y: 8, width: 1000, height: 16, class: kind }), ticks),
    make("figcaption", { class: "strip-ends number" },
      make("span", {}, "row 0"), make("span", {}, middle), make("span", {}, `row ${grouped(rows - 1)}`)));
}

function storedTable(trace, text, b) {
  const scale = scaleOf(text.tokens.map((token) => token.row));
  const perValue = trace.table.itemsize !== null;
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "token"),
    make("th", { scope: "col" }, "id"), make("th", { scope: "col" }, "byte offset"),
    columnHeads(text.tokens[0]?.row.length ?? 0));
  const storedCell = (token, value, t, d) => {
    const made = numberCell(value, { step: 4, field: "stored", b, t, d }, scale);
    if (perValue && token.stored_hex[d] !== undefined) made.append(span("stored-hex", token.stored_hex[d]));
    return made;
  };
  const lines = text.tokens.map((token, t) => make("tr", { class: token.mask === 0 ? "padding-line" : null },
    make("th", { scope: "row", class: "row-head" }, rowHead(token, b, t, 4)),
    factCell(token.id, { step: 3, field: "id", b, t }, String(token.id)),
    factCell(token.offset, { step: 4, field: "offset", b, t }, grouped(token.offset)),
    token.row.map((value, d) => storedCell(token, value, t, d))));
  const first = trace.first_channel ?? 0;
  return [
    caption(`Channels ${first} to ${first + trace.dims - 1} of ${grouped(trace.table.shape[1])}.${perValue ? " Below each value: its bits in the file, in hexadecimal." : ""}`),
    gridTable(`Rows of ${textName(trace, b)} as stored`, make("thead", {}, head), [make("tbody", {}, lines)], "stored"),
    missingTokens(text),
    !perValue && note(`Quantized in blocks: the ${grouped(trace.table.row_bytes)} bytes of a row are unpacked `,
      "together. Its first bytes are in the details of the offset."),
  ];
}

function factCell(value, cell, written) {
  return make("td", {
    class: "cell fact number " + markOf(cell, value), role: "gridcell", tabindex: -1,
    data: { nav: "", value: exact(value), ...absolute(cell) },
  }, written);
}

function stepLookup(trace) {
  const width = trace.gather.shape[2];
  const scale = scaleOf(trace.texts.map((text) => text.tokens.map((token) => token.row)));
  return [
    figureHead(trace, width, scale),
    trace.texts.map((text, b) => vectorMatrix(trace, text, b, { step: 5, field: "row", scale, width })),
    trace.input === "text" && oneHot(trace),
  ];
}

function vectorMatrix(trace, text, b, { step, field, scale, width }) {
  const count = text.tokens[0]?.[field].length ?? 0;
  const rows = text.tokens.map((token, t) => ({
    head: rowHead(token, b, t, step),
    values: token[field],
    kind: token.mask === 0 ? "padding-line" : "",
    cell: (d) => ({ step, field, b, t, d }),
  }));
  const label = `${field === "row" ? "Rows" : "Hidden states"} of ${textName(trace, b)}, tokens by channels`;
  return make("section", { class: "one-text", "aria-label": textName(trace, b) },
    trace.texts.length > 1 && make("h3", { class: "text-name" }, textName(trace, b)),
    count === 0 ? plainFact("No tokens.") : matrix({ label, rows, scale, count, corner: "token", more: width - count }),
    missingTokens(text));
}

// The lookup as a matrix product: each one-hot vector has a single 1, drawn at the position of its id. The lines after
// it show the product, in the channels whose digits are shown.
function oneHot(trace) {
  const { gather } = trace;
  const tokens = trace.texts.flatMap((text) => text.tokens).slice(0, 12);
  const rows = trace.table.shape[0];
  const vectors = tokens.map((token, line) => [
    draw("rect", { x: 0, y: line * 10 + 1, width: 300, height: 8, class: "strip-table" }),
    styled(draw("rect", { x: Math.min(297, (token.id / rows) * 300), y: line * 10 + 1, width: 3, height: 8, class: "one" }),
      { "--token": token.mask ? tokenColor(token.id) : "var(--line-strong)" }),
  ]);
  const label = `One-hot vectors with a 1 at ids ${tokens.map((token) => token.id).join(", ")}`;
  const against = counted(gather.compared_rows, "row") + (gather.whole_table ? ", the whole table" : " in use");
  const viewBox = `0 0 300 ${tokens.length * 10}`;
  const scale = scaleOf(tokens.map((token) => token.row)), { first_channel: first = 0 } = trace;
  const product = styled(make("div", { class: "product", role: "img",
    "aria-label": `The product: channels ${first} to ${first + trace.dims - 1} of the selected rows` },
  tokens.map((token) => token.row.map((value) => heat(make("i", { class: "block" }), value, scale)))),
  { "--columns": String(trace.dims) });
  return make("section", { class: "check", "aria-label": "The same as a matrix product" },
    make("h2", {}, "The same as a matrix product"),
    note("One line per token: a vector of zeros with a single 1 at the token\u2019s id. Multiplying it by the table selects that row."),
    make("div", { class: "check-line" },
      draw("svg", { class: "one-hot", viewBox, role: "img", "aria-label": label }, vectors),
      span("mono", "@ E ="), product,
      make("p", { class: "check-words" },
        span(gather.equal ? "verdict good" : "verdict bad", gather.equal ? "Equal" : "Not equal"),
        code("one_hot @ E == E[ids]"),
        span("note", `compared over ${against}${gather.note ? `; ${gather.note}` : ""}`))));
}

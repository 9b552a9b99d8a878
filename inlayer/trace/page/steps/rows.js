// Steps 4 and 5: where in the file a row lies, its raw bits, and the rows gathered into a matrix.

function stepRow(trace) {
  if (trace.entered === "inputs_embeds") return perText(trace, () => []);
  const { table } = trace;
  const [rows, width] = table.shape;
  return [
    facts([
      ["Tensor", code(table.name)],
      ["File", fileOf(table)],
      ["Shape", digits(`${grouped(rows)} ${TIMES} ${grouped(width)}`)],
      ["Stored as", [code(table.dtype), isPlainDtype(table) ? "" : [", looked up as ", code(table.row_dtype)]]],
      ["First byte", digits(grouped(table.offset))],
      ["One row", digits(counted(table.row_bytes, "byte"))],
    ], "facts facts-wide"),
    tableStrip(trace),
    perText(trace, (text, b) => storedTable(trace, text, b)),
  ];
}

function fileOf(table) {
  return table.file === null ? "in memory" : code(table.file);
}

function isPlainDtype({ dtype, row_dtype: rowDtype }) {
  return dtype === rowDtype || { BF16: "bfloat16", F16: "float16", F32: "float32", F64: "float64" }[dtype] === rowDtype;
}

// The table from its first row to its last, with a tick where a token's row lies.
function tableStrip(trace) {
  const used = new Set(trace.texts.flatMap((text) => text.cells.map((cell) => cell.id)));
  const label = `The table, all ${grouped(trace.table.shape[0])} rows; ${counted(used.size, "row")} of it used here`;
  return strip(trace.table.shape[0], [...used], { label, middle: `${counted(used.size, "row")} used` });
}

function strip(rows, ids, { label, middle, kind = "strip-table" }) {
  const ticks = ids.map((id) => {
    const x = rows > 1 ? (id / (rows - 1)) * 996 + 2 : 2;
    return draw("line", { x1: x, x2: x, y1: 4, y2: 28, class: "tick" });
  });
  return make("figure", { class: "strip" },
    draw("svg", { viewBox: "0 0 1000 32", preserveAspectRatio: "none", role: "img", "aria-label": label },
      draw("rect", { x: 0, y: 8, width: 1000, height: 16, class: kind }), ticks),
    make("figcaption", { class: "strip-ends number" },
      make("span", {}, "row 0"), make("span", {}, middle), make("span", {}, `row ${grouped(rows - 1)}`)));
}

function storedTable(trace, text, b) {
  const scale = scaleOf(text.cells.map((cell) => cell.row));
  const perValue = trace.table.itemsize !== null;
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "token"),
    make("th", { scope: "col" }, "id"), make("th", { scope: "col" }, "byte offset"),
    columnHeads(text.cells[0]?.row.length ?? 0));
  const storedCell = (cell, value, t, d) => {
    const made = numberCell(value, { step: 4, field: "stored", b, t, d }, scale);
    if (perValue && cell.bits[d] !== undefined) made.append(span("bits", cell.bits[d]));
    return made;
  };
  const lines = text.cells.map((cell, t) => make("tr", { class: cell.mask === 0 ? "padding-line" : null },
    make("th", { scope: "row", class: "row-head" }, rowHead(cell, b, t, 4)),
    factCell(cell.id, { step: 3, field: "id", b, t }, String(cell.id)),
    factCell(cell.offset, { step: 4, field: "offset", b, t }, grouped(cell.offset)),
    cell.row.map((value, d) => storedCell(cell, value, t, d))));
  return [
    gridTable(`Rows of ${textName(trace, b)} as stored`, make("thead", {}, head), [make("tbody", {}, lines)], "stored"),
    missingTokens(text),
    !perValue && note(`Quantized in blocks: the ${grouped(trace.table.row_bytes)} bytes of a row are unpacked `,
      "together. Its first bytes are in the details of the offset."),
  ];
}

function factCell(value, place, written) {
  return make("td", {
    class: "cell fact number " + markOf(place, value), role: "gridcell", tabindex: -1,
    data: { nav: "", value: exact(value), ...place },
  }, written);
}

function stepGather(trace) {
  const width = trace.gather.shape[2];
  const scale = scaleOf(trace.texts.map((text) => text.cells.map((cell) => cell.row)));
  return [
    figureHead(trace, width, scale),
    trace.texts.map((text, b) => vectorMatrix(trace, text, b, { step: 5, field: "row", scale, width })),
    trace.entered === "text" && oneHot(trace),
  ];
}

function vectorMatrix(trace, text, b, { step, field, scale, width }) {
  const count = text.cells[0]?.[field].length ?? 0;
  const rows = text.cells.map((cell, t) => ({
    head: rowHead(cell, b, t, step),
    values: cell[field],
    kind: cell.mask === 0 ? "padding-line" : "",
    place: (d) => ({ step, field, b, t, d }),
  }));
  const label = `${field === "row" ? "Rows" : "Hidden states"} of ${textName(trace, b)}, tokens by channels`;
  return make("section", { class: "one-text", "aria-label": textName(trace, b) },
    trace.texts.length > 1 && make("h3", { class: "text-name" }, textName(trace, b)),
    count === 0 ? plainFact("No tokens.") : matrix({ label, rows, scale, count, corner: "token", more: width - count }),
    missingTokens(text));
}

// The gather again, as a product: a one at the id, zeros elsewhere. Marks are at the ids' true places.
function oneHot(trace) {
  const { gather } = trace;
  const cells = trace.texts.flatMap((text) => text.cells).slice(0, 12);
  const rows = trace.table.shape[0];
  const vectors = cells.map((cell, line) => [
    draw("rect", { x: 0, y: line * 10 + 1, width: 300, height: 8, class: "strip-table" }),
    draw("rect", { x: Math.min(297, (cell.id / rows) * 300), y: line * 10 + 1, width: 3, height: 8, class: "one" }),
  ]);
  const label = `One-hot vectors: a single one at ids ${cells.map((cell) => cell.id).join(", ")}`;
  const against = counted(gather.checked_rows, "row") + (gather.whole ? ", the whole table" : " in use");
  const viewBox = `0 0 300 ${cells.length * 10}`;
  return make("section", { class: "check", "aria-label": "The same as a product" },
    make("h2", {}, "The same as a product"),
    make("div", { class: "check-line" },
      draw("svg", { class: "one-hot", viewBox, role: "img", "aria-label": label }, vectors),
      make("p", { class: "check-words" },
        span(gather.equal ? "verdict good" : "verdict bad", gather.equal ? "Equal" : "Not equal"),
        code("one_hot @ E == E[ids]"),
        span("note", `against ${against}${gather.note ? `; ${gather.note}` : ""}`))));
}

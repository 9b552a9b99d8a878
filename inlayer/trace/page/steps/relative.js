// Part of step 6: relative positions. ALiBi's slopes, or the row of a learned table for each distance.

const MAX_PAIRED = 24; // tokens in the matrix of queries and keys

function relativeFigure(trace) {
  const { relative } = trace.positions;
  if (isNothing(relative)) return null;
  const title = relative.kind === "alibi" ? "ALiBi: a bias on attention scores" : "Relative positions: a row for each distance";
  return make("section", { class: "check relative", "aria-label": title },
    make("h2", {}, title),
    facts([
      ["Heads", isNothing(relative.n_heads) ? null : digits(grouped(relative.n_heads))],
      ["Tensor", relative.tensor ? code(relative.tensor) : null],
      ["Columns", relative.column_label],
    ], "facts facts-wide"),
    relative.kind === "deberta" && note("A row is a vector. Attention multiplies it by queries and keys."),
    relativeTable(relative),
    relative.rows.length > 0 && pairTable(trace, relative));
}

// One column per position or distance: the row, and the bias of each head.
function relativeTable(relative) {
  const scale = scaleOf(relative.bias);
  const slopes = relative.slopes.length > 0;
  const head = make("tr", {}, make("th", { scope: "col", class: "corner" }, "head"),
    slopes && make("th", { scope: "col" }, "slope"),
    relative.columns.map((column) => make("th", { scope: "col", class: "column" }, signed(String(column)))));
  const rows = relative.rows.length > 0 && make("tr", {}, make("th", { scope: "row", class: "row-head" }, "row"),
    relative.rows.map((row, id) => factCell(row, { field: "bucket", id }, grouped(row))));
  const lines = relative.bias.map((values, s) => make("tr", {},
    make("th", { scope: "row", class: "row-head" }, String(s)),
    slopes && factCell(relative.slopes[s], { field: "slope", s }, shortened(relative.slopes[s])),
    values.map((value, id) => numberCell(value, { field: "bias", s, id }, scale))));
  return [legend(scale),
    gridTable("Heads by distances", make("thead", {}, head), [make("tbody", {}, rows || [], lines)]),
    (relative.n_heads ?? 0) > relative.bias.length && note(`${counted(relative.n_heads - relative.bias.length, "more head")}.`)];
}

// The row for every query (down) and key (across) of the first text.
function pairTable(trace, relative) {
  const tokens = trace.texts[0].tokens.filter((token) => token.mask).slice(0, MAX_PAIRED);
  const head = make("tr", {}, make("th", { scope: "col", class: "corner" }, "query, key"),
    tokens.map((token) => make("th", { scope: "col", class: "column" }, cut(nameOf(token), 8))));
  const lines = tokens.map((token, query) => make("tr", {},
    make("th", { scope: "row", class: "row-head" }, rowHead(token, 0, query, 6)),
    tokens.map((_, key) => {
      const id = relative.columns.indexOf(key - query);
      return factCell(relative.rows[id], { field: "bucket", id }, grouped(relative.rows[id]));
    })));
  return [caption("The row of the table for each query and key"),
    gridTable("Rows by query and key", make("thead", {}, head), [make("tbody", {}, lines)])];
}

// Step 8: the backward pass. Gradients of the table's rows, through the lookup and through a tied head.

function stepBackward(trace) {
  const { backward } = trace;
  if (backward === null) return plainFact(upper(trace.steps[7].note) + ".");
  const vectors = backward.rows.map((row) => [row.lookup, row.head ?? [], row.total]);
  const scale = scaleOf(vectors);
  return [
    backwardFacts(trace),
    learningFigure(trace),
    gradientStrip(trace),
    legend(scale),
    gradientTable(trace, scale),
    rest(backward.n_unique_ids - backward.rows.length, "row"),
    unmaskedPadding(trace),
  ];
}

function backwardFacts({ backward, table }) {
  const loss = make("span", { class: "number", data: { step: 8, field: "loss", value: exact(backward.loss) } },
    brief(backward.loss));
  const kind = backward.loss_kind === "next token" ? ", cross-entropy of the next token" : ", sum of all hidden states";
  const reached = `${grouped(backward.n_rows_with_gradient)} of ${grouped(table.shape[0])}`;
  return facts([
    ["Loss", [loss, kind]],
    ["Rows with a gradient", [digits(reached), ": ", reachOf(backward, table)]],
  ], "facts facts-wide");
}

function reachOf({ tied, n_rows_with_gradient: reached }, table) {
  if (!tied) return "only the rows that were looked up";
  return `a tied head reaches every row${reached < table.shape[0] ? " except the padding row" : ""}`;
}

function gradientStrip({ backward, table }) {
  const ids = backward.rows.filter((row) => toNumber(row.norm) !== 0).map((row) => row.id);
  return strip(table.shape[0], ids, {
    label: `${counted(backward.n_rows_with_gradient, "row")} of ${grouped(table.shape[0])} receive a gradient`,
    middle: backward.tied ? "shaded: tied head; ticks: also the lookup" : "ticks: rows that were looked up",
    kind: backward.tied ? "strip-gradient" : "strip-table",
  });
}

function gradientTable({ backward }, scale) {
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "row"), make("th", { scope: "col", class: "sum-sign" }, "through"),
    make("th", { scope: "col" }, "norm"), columnHeads(backward.rows[0]?.total.length ?? 0));
  const bodies = backward.rows.map((row) => gradientLines(row, scale));
  return gridTable("Gradients, rows of the table by channels", make("thead", {}, head), bodies, "sums");
}

function gradientLines(row, scale) {
  const lines = [["lookup", row.count > 1 ? `lookup, sum of ${row.count}` : "lookup"]];
  if (row.head !== null) lines.push(["head", "+ head"], ["total", "= total"]);
  return make("tbody", { class: row.is_padding ? "padding-line" : null }, lines.map(([field, label], index) =>
    make("tr", { class: field === "total" ? "sum-output" : "sum-" + field },
      index === 0 && make("th", { scope: "rowgroup", rowspan: lines.length, class: "row-head" }, gradientHead(row)),
      make("th", { scope: "row", class: "sum-sign" }, label),
      index < lines.length - 1 ? make("td", {}) : normCell(row),
      row[field].map((value, d) => numberCell(value, { step: 8, field, id: row.id, d }, scale)))));
}

function normCell(row) {
  return factCell(row.norm, { step: 8, field: "norm", id: row.id }, shortened(row.norm));
}

function gradientHead(row) {
  const name = nameOf(row);
  return make("button", {
    type: "button", class: "token token-head" + (row.is_padding ? " padding" : ""), tabindex: -1,
    "aria-label": `Row ${row.id}, ${name}, looked up ${counted(row.count, "time")}`,
    data: { nav: "", token: "", tokenId: row.id, step: 8, field: "gradient", id: row.id },
  }, span("token-label mono", cut(name, 14)), span("token-id number", String(row.id)),
  row.count > 1 && span("token-count", `${TIMES} ${row.count}`));
}

// On a separate scale, because it is often far smaller than the other gradients.
function unmaskedPadding({ padding, backward }) {
  const vector = backward.unmasked_padding_gradient;
  if (vector === null) {
    return padding.is_padding_idx && note(`Row ${padding.id} is the padding row. It was not looked up here; `
      + "add a padding token to see that it receives no gradient.");
  }
  const row = { head: span("mono", String(padding.id)), values: vector, cell: (d) => ({ field: "unmasked", d }) };
  const scale = scaleOf(vector);
  return make("section", { class: "padding-fact", "aria-label": "The padding row without padding_idx" },
    make("h2", {}, "The padding row receives no gradient"),
    note("Its gradient is zero because it is the padding_idx. Otherwise it would receive:"),
    legend(scale),
    matrix({
      label: "Gradient of the padding row without padding_idx", rows: [row], scale, count: vector.length, corner: "row",
    }));
}

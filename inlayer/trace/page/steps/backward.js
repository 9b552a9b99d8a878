// Step 8: backwards. Which rows of the table receive a gradient, by way of the lookup and by way of a tied head.

function stepBackward(trace) {
  const { backward } = trace;
  if (backward === null) return plainFact(upper(trace.steps[7].note) + ".");
  const vectors = backward.rows.map((row) => [row.lookup, row.head ?? [], row.total]);
  const scale = scaleOf(vectors);
  return [
    backwardFacts(trace),
    touchedStrip(trace),
    legend(scale),
    gradientTable(trace, scale),
    rest(backward.n_rows - backward.rows.length, "row"),
    unguarded(trace),
  ];
}

function backwardFacts({ backward, table }) {
  const loss = make("span", { class: "number", data: { step: 8, field: "loss", value: exact(backward.value) } },
    brief(backward.value));
  const of = backward.loss === "next token" ? ", guessing the next token" : ", the sum of all hidden states";
  const reached = `${grouped(backward.touched)} of ${grouped(table.shape[0])}`;
  return facts([
    ["Loss", [loss, of]],
    ["Rows that learn", [digits(reached), ": ", reachOf(backward, table)]],
  ], "facts facts-wide");
}

function reachOf({ tied, touched }, table) {
  if (!tied) return "only those that were looked up";
  return `a tied head reaches every row${touched < table.shape[0] ? " but the padding row" : ""}`;
}

function touchedStrip({ backward, table }) {
  const ids = backward.rows.filter((row) => toNumber(row.norm) !== 0).map((row) => row.id);
  return strip(table.shape[0], ids, {
    label: `${counted(backward.touched, "row")} of ${grouped(table.shape[0])} receive a gradient`,
    middle: backward.tied ? "tinted: by the tied head; ticks: by lookup too" : "ticks: rows that were looked up",
    kind: backward.tied ? "strip-touched" : "strip-table",
  });
}

function gradientTable({ backward }, scale) {
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "row"), make("th", { scope: "col" }, ""),
    make("th", { scope: "col" }, "length"), columnHeads(backward.rows[0]?.total.length ?? 0));
  const bodies = backward.rows.map((row) => gradientLines(row, scale));
  return gridTable("Gradients, rows of the table by channels", make("thead", {}, head), bodies, "sums");
}

function gradientLines(row, scale) {
  const lines = [["lookup", row.count > 1 ? `lookup, ${row.count} summed` : "lookup"]];
  if (row.head !== null) lines.push(["head", "+ head"], ["total", "= total"]);
  return make("tbody", { class: row.is_padding ? "padding-line" : null }, lines.map(([field, label], index) =>
    make("tr", { class: field === "total" ? "sum-after" : "sum-" + field },
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
  row.count > 1 && span("token-times", `${TIMES} ${row.count}`));
}

// On a scale of its own: it is often far smaller than what other rows receive.
function unguarded({ padding, backward }) {
  const vector = backward.padding_without_guard;
  if (vector === null) {
    return padding.is_row && note(`Row ${padding.id} is the padding row and was not looked up here. `
      + "Add a pad token to see that nothing reaches it.");
  }
  const row = { head: span("mono", String(padding.id)), values: vector, place: (d) => ({ field: "unguarded", d }) };
  const scale = scaleOf(vector);
  return make("section", { class: "padding-fact", "aria-label": "The padding row without its guard" },
    make("h2", {}, "The padding row stays as it is"),
    note("Its gradient is zero because it is guarded. Without the guard it would have received:"),
    legend(scale),
    matrix({
      label: "Gradient of the padding row without its guard", rows: [row], scale, count: vector.length, corner: "row",
    }));
}

// Part of step 4, other tables. Per-layer embeddings: one heat strip per token and block. Value embeddings: one row.
// Routing: the experts of each token.

function perLayerStrips(trace) {
  const extra = trace.per_layer;
  if (isNothing(extra)) return null;
  const title = "Per-layer embeddings: a vector for every block";
  return make("section", { class: "check per-layer", "aria-label": title },
    make("h2", {}, title),
    facts([
      ["Tensor", extra.rows ? [extra.tensor ? code(extra.tensor) : "in memory"] : null],
      ["Shape", extra.rows ? digits(`${grouped(extra.rows)} ${TIMES} ${grouped(extra.layers * extra.width)}`) : null],
      ["Blocks", digits(`${grouped(extra.layers)} of ${counted(extra.width, "channel")}`)],
      ["A token reads", isNothing(extra.row_bytes) ? null : digits(counted(extra.row_bytes, "byte"))],
    ], "facts facts-wide"),
    note(extra.rows
      ? "Each block gets the part of the row that belongs to it, scaled, plus a projection of the token's row. "
      : "Each block gets a projection of the token's row. ",
      `A strip shows the first ${counted(extra.vectors[0]?.[0]?.[0]?.length ?? 0, "channel")}.`),
    legend(scaleOf(extra.vectors)),
    perText(trace, (text, b) => perLayerTable(trace, text, b)));
}

function perLayerTable(trace, text, b) {
  const { layers, vectors, norms } = trace.per_layer;
  const scale = scaleOf(vectors);
  const head = make("tr", {}, make("th", { scope: "col", class: "corner" }, "token"),
    Array.from({ length: layers }, (_, s) => make("th", { scope: "col", class: "column" }, String(s))));
  const lines = text.tokens.map((token, t) => make("tr", { class: token.mask === 0 ? "padding-line" : null },
    make("th", { scope: "row", class: "row-head" }, rowHead(token, b, t, 4)),
    vectors[b][t].map((vector, s) => make("td", {
      class: "cell", role: "gridcell", tabindex: -1, "aria-label": `block ${s}, norm ${brief(norms[b][t][s])}`,
      data: { nav: "", value: exact(norms[b][t][s]), ...absolute({ field: "perLayer", b, t, s }) },
    }, make("span", { class: "strip-blocks" }, vector.map((value) => heat(make("i", { class: "block" }), value, scale)))))));
  return [gridTable(`Blocks of ${textName(trace, b)}`, make("thead", {}, head), [make("tbody", {}, lines)], "per-layer-strips"),
    missingTokens(text)];
}

function valueRows(trace) {
  const extra = trace.value_embeddings;
  if (isNothing(extra)) return null;
  const title = "Value embeddings: added to the values of attention";
  const scale = scaleOf(extra.vectors);
  const rows = (text, b) => text.tokens.map((token, t) => ({
    head: rowHead(token, b, t, 4), values: extra.vectors[b][t], kind: token.mask === 0 ? "padding-line" : "",
    cell: (d) => ({ field: "value", b, t, d }),
  }));
  return make("section", { class: "check values", "aria-label": title },
    make("h2", {}, title),
    facts([
      ["Tensor", extra.tensor ? code(extra.tensor) : "in memory"],
      ["Shape", digits(`${grouped(extra.rows)} ${TIMES} ${grouped(extra.width)}`)],
      ["Blocks", digits(extra.layers.join(", "))],
      ["A token reads", isNothing(extra.row_bytes) ? null : digits(counted(extra.row_bytes, "byte"))],
    ], "facts facts-wide"),
    legend(scale),
    perText(trace, (text, b) => [
      matrix({ label: `Values of ${textName(trace, b)}`, rows: rows(text, b), count: extra.vectors[b][0]?.length ?? 0, scale,
        corner: "token", more: extra.width - (extra.vectors[b][0]?.length ?? 0) }),
      missingTokens(text)]));
}

function routingRows(trace) {
  const tables = trace.routing ?? [];
  if (tables.length === 0) return null;
  const title = "Routing: the experts of each token";
  const names = tables.map((table) => table.tensor.split(".").find((part) => /^\d+$/.test(part)) ?? "");
  const head = make("tr", {}, make("th", { scope: "col" }, "token"), names.map((name) => make("th", { scope: "col" }, `block ${name}`)));
  const lines = (text, b) => text.tokens.map((token, t) => make("tr", { class: token.mask === 0 ? "padding-line" : null },
    make("th", { scope: "row", class: "row-head" }, rowHead(token, b, t, 4)),
    tables.map((table) => make("td", { class: "number" }, table.experts[b][t].join(", ")))));
  return make("section", { class: "check routing", "aria-label": title },
    make("h2", {}, title),
    facts([
      ["Tensors", tables.flatMap((table, index) => [index ? ", " : "", code(table.tensor)])],
      ["Rows", digits(grouped(tables[0].rows))],
      ["A token reads", digits(counted(tables[0].row_bytes, "byte"))],
    ], "facts facts-wide"),
    perText(trace, (text, b) => make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Experts of ${textName(trace, b)}` },
      make("table", { class: "reads" }, make("thead", {}, head.cloneNode(true)), make("tbody", {}, lines(text, b))))));
}

// Step 3: tokens with their ids; special tokens marked, merges to unfold. And a token wherever else it shows.

function stepIds(trace) {
  return perText(trace, (text, b) => [
    (trace.texts.length > 1 || text.n_padding > 0) && caption(counted(text.n_tokens, "token"),
      text.n_padding > 0 && ` and ${counted(text.n_padding, "padding token")}`),
    rove(make("div", { class: "tokens", role: "group", "aria-label": `Tokens of ${textName(trace, b)}` },
      text.cells.map((cell, t) => tokenCard(cell, b, t)))),
    missingTokens(text),
    merges(text),
  ]);
}

function tokenCard(cell, b, t) {
  const below = cell.mask === 0 ? "padding" : cell.special ? "special" : cut(hexPairs(cell.bytes), 23);
  return tokenButton(cell, b, t, "token-card", [
    span("token-place mono", String(t)),
    span("token-label mono", cut(nameOf(cell), 22)),
    span("token-id number", String(cell.id)),
    span("token-bytes mono", below),
  ], { step: 3, field: "id", value: exact(cell.id), b, t });
}

// Head of a token's row in a matrix.
function rowHead(cell, b, t, step) {
  const content = [span("token-place mono", String(t)), span("token-label mono", cut(nameOf(cell), 14))];
  return tokenButton(cell, b, t, "token-head", content, { step, field: "token", b, t });
}

// The same button everywhere: it opens the token's panel, or takes part in a swap.
function tokenButton(cell, b, t, kind, content, place) {
  const name = nameOf(cell);
  const mark = place.field === "id" ? markOf(place, cell.id) : "";
  const classes = ["token", kind, mark, cell.special && "special", cell.mask === 0 && "padding"];
  const refusal = picking ? pickRefusal(b, t, cell) : "";
  const spoken = [`Token ${t}`, name, cell.id !== null && `id ${cell.id}`, cell.special && "special",
    cell.mask === 0 && "padding"];
  return make("button", {
    type: "button",
    class: classes.filter(Boolean).join(" "),
    tabindex: -1,
    "aria-label": spoken.filter(Boolean).join(", "),
    "aria-pressed": picking ? String(b === 0 && picking.first === t) : null,
    "aria-disabled": refusal || cell.id === null ? "true" : null,
    title: refusal || (Array.from(name).length > 14 ? name : null),
    data: { nav: "", token: "", tokenId: cell.id, ...place },
  }, content);
}

function merges(text) {
  const known = (text.splits ?? []).filter((split) => split.merges?.length);
  if (known.length === 0) return null;
  const count = known.reduce((sum, split) => sum + split.merges.length, 0);
  return make("details", { class: "fold" },
    make("summary", {}, `How they came together: ${counted(count, "merge")}`),
    make("div", { class: "merges" }, known.map((split) =>
      make("section", { class: "merge-list", "aria-label": readable(split.bytes) },
        make("h3", { class: "mono" }, cut(readable(split.bytes), 30)),
        make("ol", {}, split.merges.map(mergeLine))))));
}

function mergeLine({ left, right, id, rank }) {
  return make("li", { class: "mono" },
    span("merge-part", readable(left)), span("sign", "+"), span("merge-part", readable(right)), span("sign", ARROW),
    span("merge-part", readable(left + right)), span("merge-id", String(id)),
    span("merge-rank", `rank ${grouped(rank)}`));
}

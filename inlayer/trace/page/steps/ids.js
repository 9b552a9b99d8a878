// Step 3: tokens with their ids, and the merges that produced them. Also the token buttons of the other steps.

function stepIds(trace) {
  const meaning = "Each card is a token with its index in the text, its id, and its bytes in hexadecimal.";
  return [mergePlayer(trace), trace.input === "text" && caption(meaning), perText(trace, (text, b) => [
    (trace.texts.length > 1 || text.n_padding > 0) && caption(counted(text.n_tokens, "token"),
      text.n_padding > 0 && ` and ${counted(text.n_padding, "padding token")}`),
    text.normalized !== null && caption("The tokenizer normalizes this text to: ", span("mono", visible(text.normalized))),
    rove(make("div", { class: "tokens", role: "group", "aria-label": `Tokens of ${textName(trace, b)}` },
      text.tokens.map((token, t) => tokenCard(token, b, t, text.normalized !== null)))),
    missingTokens(text),
    merges(text),
  ])];
}

function tokenCard(token, b, t, isNormalized) {
  const isRespelled = isNormalized && !token.special && token.bytes && !token.token.includes(token.label.trim());
  const below = token.mask === 0 ? "padding" : token.special ? "special" : cut(hexPairs(token.bytes), 23);
  const card = tokenButton(token, b, t, "token-card", [
    span("token-index mono", String(absolute({ t }).t)),
    span("token-label mono", cut(nameOf(token), 22)),
    span("token-id number", String(token.id)),
    span("token-bytes mono", below),
    isRespelled && span("token-bytes mono", `in vocabulary: ${cut(visible(token.token), 22)}`),
  ], { step: 3, field: "id", value: exact(token.id), b, t });
  return colored(card, token);
}

// The head of a token's row in a matrix.
function rowHead(token, b, t, step) {
  const shown = absolute({ t }).t;
  const content = [span("token-index mono", String(shown)), span("token-label mono", cut(nameOf(token), 14))];
  return tokenButton(token, b, t, "token-head", content, { step, field: "token", b, t });
}

// A token button opens the token's panel, or selects the token for a swap.
function tokenButton(token, b, t, kind, content, cell) {
  const name = nameOf(token);
  const mark = cell.field === "id" ? markOf(cell, token.id) : "";
  const classes = ["token", kind, mark, token.special && "special", token.mask === 0 && "padding"];
  const reason = picking ? cannotPick(b, t, token) : "";
  const more = [token.special && ", special", token.mask === 0 && ", padding"].filter(Boolean).join("");
  return make("button", {
    type: "button",
    class: classes.filter(Boolean).join(" "),
    tabindex: -1,
    "aria-pressed": picking ? String(b === 0 && picking.first === t) : null,
    "aria-disabled": reason || token.id === null ? "true" : null,
    title: reason || (Array.from(name).length > 14 ? name : null),
    data: { nav: "", token: "", tokenId: token.id, ...absolute(cell) },
  }, span("hidden-text", "token "), content, more && span("hidden-text", more));
}

function merges(text) {
  const known = (text.pre_tokens ?? []).filter((preToken) => preToken.merges?.length);
  if (known.length === 0) return null;
  const count = known.reduce((sum, preToken) => sum + preToken.merges.length, 0);
  return make("details", { class: "fold" },
    make("summary", {}, `How BPE built these tokens: ${counted(count, "merge")}`),
    make("div", { class: "merges" }, known.map((preToken) =>
      make("section", { class: "merge-list", "aria-label": readable(preToken.bytes) },
        make("h3", { class: "mono" }, cut(readable(preToken.bytes), 30)),
        make("ol", {}, preToken.merges.map(mergeLine))))));
}

function mergeLine({ left, right, id, rank }) {
  return make("li", { class: "mono" },
    span("merge-part", readable(left)), span("sign", "+"), span("merge-part", readable(right)), span("sign", ARROW),
    span("merge-part", readable(left + right)), span("merge-id", String(id)),
    span("merge-rank", `rank ${grouped(rank)}`));
}

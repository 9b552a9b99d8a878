// Steps 1 and 2: the text as characters and bytes, and its pre-tokens.

function stepBytes(trace) {
  return perText(trace, (text, b) => [
    trace.texts.length > 1 && caption(`${counted(text.n_characters, "character")}, ${counted(text.n_bytes, "byte")}`),
    tiles(`Characters and bytes of ${textName(trace, b)}`, text.characters.map((character, t) =>
      tile("tile", { step: 1, field: "character", b, t, value: character.bytes },
        span("tile-sign", visible(character.text)),
        span("tile-bytes mono", (character.bytes.match(/../g) ?? []).map((pair) => make("span", {}, pair)))))),
    rest(text.n_characters - text.characters.length, "character"),
  ]);
}

function stepPreTokens(trace) {
  return perText(trace, (text, b) => {
    if (text.pre_tokens === null) return plainFact("This tokenizer has no pre-tokens: it encodes the text as a whole.");
    return [
      trace.texts.length > 1 && caption(counted(text.n_pre_tokens, "pre-token")),
      tiles(`Pre-tokens of ${textName(trace, b)}`, text.pre_tokens.map((preToken, t) =>
        tile("pre-token", { step: 2, field: "preToken", b, t, value: preToken.bytes },
          span("pre-token-text mono", cut(readable(preToken.bytes), 40)),
          span("pre-token-span mono", `${preToken.span[0]}\u2013${preToken.span[1]}`)))),
      rest(text.n_pre_tokens - text.pre_tokens.length, "pre-token"),
    ];
  });
}

function tiles(label, content) {
  const grid = make("div", { class: "tiles", role: "grid", "aria-label": label },
    make("div", { role: "row", class: "tiles-row" }, content));
  return rove(grid);
}

function tile(kind, place, ...content) {
  return make("div", { class: kind, role: "gridcell", tabindex: -1, data: { nav: "", ...place } }, content);
}

// ---- shared by all steps

function perText(trace, drawn) {
  const vectors = () => plainFact("The walk starts from vectors, so it begins at step 5.");
  return trace.texts.map((text, b) => make("section", { class: "one-text", "aria-label": textName(trace, b) },
    trace.texts.length > 1 && make("h3", { class: "text-name" }, textName(trace, b)),
    text.text === null ? vectors() : drawn(text, b)));
}

function textName(trace, b) {
  return trace.texts.length > 1 ? `text ${b}` : "the text";
}

function caption(...content) {
  return make("p", { class: "caption" }, content);
}

function plainFact(...content) {
  return make("p", { class: "plain-fact" }, content);
}

function rest(number, thing) {
  if (number <= 0) return null;
  return note(`${DOTS} and ${grouped(number)} more ${number === 1 ? thing : thing + "s"}`);
}

function missingTokens(text) {
  return rest(text.n_tokens + text.n_padding - text.tokens.length, "token");
}

function figureHead(trace, width, scale) {
  return make("div", { class: "figure-head" },
    caption(`The first ${counted(trace.dims, "channel")} of ${grouped(width)}`), legend(scale));
}

// Steps 1 and 2: the text as characters and bytes, and the stretches the tokenizer cuts out before it makes tokens.

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

function stepPieces(trace) {
  return perText(trace, (text, b) => {
    if (text.splits === null) return plainFact("This tokenizer does not split first: the text is one stretch.");
    return [
      trace.texts.length > 1 && caption(counted(text.n_splits, "stretch", "stretches")),
      tiles(`Stretches of ${textName(trace, b)}`, text.splits.map((split, t) =>
        tile("stretch", { step: 2, field: "split", b, t, value: split.bytes },
          span("stretch-text mono", cut(readable(split.bytes), 40)),
          span("stretch-span mono", `${split.span[0]}\u2013${split.span[1]}`)))),
      rest(text.n_splits - text.splits.length, "stretch", "stretches"),
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
  const vectors = () => plainFact("Vectors came in here instead of text: the walk starts at step 5.");
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

function rest(number, thing, things = thing + "s") {
  if (number <= 0) return null;
  return note(`${DOTS} and ${grouped(number)} more ${number === 1 ? thing : things}, counted but not drawn`);
}

function missingTokens(text) {
  return rest(text.n_tokens + text.n_padding - text.cells.length, "token");
}

function figureHead(trace, width, scale) {
  return make("div", { class: "figure-head" },
    caption(`The first ${counted(trace.dims, "channel")} of ${grouped(width)}`), legend(scale));
}

// Steps 1 and 2: the text as characters and bytes, and its pre-tokens.

const LARGE_TILES = 80; // up to this many characters are drawn large

function stepBytes(trace) {
  const meaning = "Each box is a character with its Unicode code point and its UTF-8 bytes in hexadecimal. Bytes underlined in one color will form one token.";
  return [trace.input === "text" && caption(meaning), perText(trace, (text, b) => {
    const owners = byteOwners(trace, text);
    let at = 0;
    return [
      trace.texts.length > 1 && caption(`${counted(text.n_characters, "character")}, ${counted(text.n_bytes, "byte")}`),
      tiles(`Characters and bytes of ${textName(trace, b)}`, text.characters.length <= LARGE_TILES, text.characters.map((character, t) => {
        const start = at;
        at += character.bytes.length / 2;
        return tile("tile", { step: 1, field: "character", b, t, value: character.bytes },
          span("tile-sign", visible(character.text)),
          span("code-point mono", codePoint(character.text)),
          span("tile-bytes", byteTiles(character.bytes, b, start, owners)));
      })),
      rest(text.n_characters - text.characters.length, "character"),
    ];
  })];
}

function stepPreTokens(trace) {
  const meaning = "Each box is a pre-token with its bytes in hexadecimal, and the offsets where they start and end.";
  const hasAny = trace.texts.some((text) => text.pre_tokens?.length > 0);
  return [hasAny && caption(meaning), perText(trace, (text, b) => {
    if (text.pre_tokens === null) return plainFact("This tokenizer has no pre-tokens: it encodes the text as a whole.");
    const owners = byteOwners(trace, text);
    return [
      trace.texts.length > 1 && caption(counted(text.n_pre_tokens, "pre-token")),
      tiles(`Pre-tokens of ${textName(trace, b)}`, text.pre_tokens.length <= LARGE_TILES / 4, text.pre_tokens.map((preToken, t) =>
        tile("pre-token", { step: 2, field: "preToken", b, t, value: preToken.bytes },
          span("pre-token-text mono", cut(readable(preToken.bytes), 40)),
          span("tile-bytes", byteTiles(preToken.bytes, b, preToken.span[0], owners)),
          span("pre-token-span", `bytes ${preToken.span[0]} to ${preToken.span[1]}`)))),
      rest(text.n_pre_tokens - text.pre_tokens.length, "pre-token"),
    ];
  })];
}

function tiles(label, isLarge, content) {
  const grid = make("div", { class: isLarge ? "tiles large" : "tiles", role: "grid", "aria-label": label },
    make("div", { role: "row", class: "tiles-row" }, content));
  return rove(grid);
}

function tile(kind, cell, ...content) {
  return make("div", { class: kind, role: "gridcell", tabindex: -1, data: { nav: "", ...cell } }, content);
}

// ---- shared by all steps

function perText(trace, drawn) {
  const vectors = () => plainFact("The walk starts from vectors, so it begins at step 5.");
  return trace.texts.map((text, b) => make("section", { class: "one-text", "aria-label": textName(trace, b) },
    trace.texts.length > 1 && make("h2", { class: "text-name" }, textName(trace, b)),
    text.text === null ? vectors() : drawn(text, b)));
}

function textName(trace, b) {
  return trace.texts.length > 1 ? `text ${b + 1}` : "the text";
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

// Buttons that show other tokens of a long text.
function missingTokens(text) {
  const first = current.trace.first_token ?? 0, total = text.n_tokens + text.n_padding, shown = text.tokens.length;
  if (shown >= total) return null;
  const words = `Tokens ${grouped(first)} to ${grouped(first + shown - 1)} of ${grouped(total)}`;
  if (source.exported) return rest(total - shown, "token");
  return make("div", { class: "pager" }, span("note", words),
    button("Earlier tokens", () => go({ from: Math.max(0, first - shown) }), { disabled: first === 0 }),
    button("Later tokens", () => go({ from: first + shown }), { disabled: first + shown >= total }));
}

// States which channels have digits, with controls to show others.
function figureHead(trace, width, scale) {
  const first = trace.first_channel ?? 0, last = Math.min(width, first + trace.dims);
  return make("div", { class: "figure-head" },
    caption(`Channels ${first} to ${last - 1} of ${grouped(width)}`), channelControls(trace, width), legend(scale));
}

function channelControls(trace, width) {
  if (source.exported || width <= trace.dims) return null;
  const first = trace.first_channel ?? 0;
  const show = (channel) => go({ channel: Math.max(0, Math.min(channel, width - 1)) });
  return make("div", { class: "pager" },
    button("Previous channels", () => show(first - trace.dims), { disabled: first === 0 }),
    button("Next channels", () => show(first + trace.dims), { disabled: first + trace.dims >= width }),
    make("label", { class: "field" }, "Columns ", dimsSelect()));
}

function dimsSelect() {
  const select = make("select", { id: "dims", on: { change: (event) => go({ dims: Number(event.target.value) }) } });
  fillSelect(select, [...new Set([...DIMS, state.dims])].sort((a, b) => a - b), state.dims);
  return select;
}

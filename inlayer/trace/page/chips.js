// The tokens of the text at the top of the stage, with one hue per token, and the bytes in steps 1 to 3 in these hues.

function renderChips(trace, step) {
  const hidden = areTokensHidden(step) || trace.input !== "text";
  byId("chips").classList.toggle("goal", step < 3);
  byId("chips").replaceChildren(...(hidden ? [] : [chipRow(trace)]));
}

// ---- chips; before step 3, which makes the tokens, they show the goal

function chipRow(trace) {
  return make("div", { class: "chip-rows" }, trace.texts.map((text, b) =>
    rove(make("div", { class: "chip-row", role: "group", "aria-label": `Tokens of ${textName(trace, b)}` },
      span("chip-count", counted(text.n_tokens, "token")),
      text.tokens.filter((token) => token.mask).map((token, t) => chip(token, b, t)),
      text.n_padding > 0 && span("chip padding-chip", `${TIMES} ${text.n_padding} padding`),
      b === 0 && text.tokens.some((token) => nameOf(token).includes("\u2423")) && span("chip-count", "\u2423 is a space"))))); // explained once
}

function chip(token, b, t) {
  const made = tokenButton(token, b, t, "chip", [
    span("token-label mono", cut(nameOf(token), 14)), span("token-id number", String(token.id)),
  ], { field: "token", step: state.step, b, t });
  made.dataset.flip = `token ${b} ${t}`;
  return colored(made, token);
}

function colored(element, token) {
  return styled(element, { "--token": token.mask ? tokenColor(token.id) : "var(--line-strong)" });
}

// ---- bytes of steps 1 to 3

// The token that covers each byte of a text: index -> {token, t}.
function byteOwners(trace, text) {
  const owners = [];
  text.tokens.forEach((token, index) => {
    if (!token.span || !token.mask) return;
    for (let byte = token.span[0]; byte < token.span[1]; byte += 1) owners[byte] = { token, t: index };
  });
  return owners;
}

function byteTile(hex, b, at, owner) {
  const made = make("span", { class: "byte mono", data: { flip: `byte ${b} ${at}` } }, hex);
  return owner ? colored(made, owner.token) : made;
}

function byteTiles(hex, b, start, owners) {
  return (hex.match(/../g) ?? []).map((pair, index) => byteTile(pair, b, start + index, owners[start + index]));
}

// The token panel: a token's meaning (its nearest neighbors), then its row, then its bytes.

let shownToken = null;
let tokenOpener = null;
let tokenTicket = 0;

function openToken(id, opener) {
  tokenOpener = opener ?? tokenOpener;
  emptyInspector(); // the token panel shows more
  go({ token: id });
}

function closeToken() {
  const focused = byId("token").contains(document.activeElement);
  const opener = tokenOpener;
  tokenOpener = null;
  go({ token: null }, { replace: true });
  if (!focused) return;
  const again = opener?.isConnected ? opener : findAgain(byId("stage"), opener);
  (again ?? byId("stage")).focus();
}

async function showToken() {
  const panel = byId("token");
  const { token: id } = state;
  const { model } = current?.query ?? state; // the model of the walk shown, which may be older than the state if a request failed
  const ticket = ++tokenTicket;
  if (id === null) {
    shownToken = null;
    panel.hidden = true;
    panel.replaceChildren();
    showOnMap(-1);
    return;
  }
  if (shownToken?.id === id && shownToken.model === model && !panel.hidden) return;
  let content;
  try {
    const info = await source.token(model, id);
    if (ticket !== tokenTicket) return;
    shownToken = { ...info, model };
    content = tokenFacts(shownToken);
    showOnMap(id, info.neighbors.map((neighbor) => neighbor.id));
  } catch (error) {
    if (ticket !== tokenTicket) return;
    shownToken = null;
    content = [panelHead(`Token ${id}`), make("p", { class: "error", role: "alert" }, error.message)];
  }
  panel.replaceChildren(...content);
  panel.hidden = false;
  if (tokenOpener !== null) panel.focus({ preventScroll: true }); // opened by the user, not by a link
}

function panelHead(title, id = null) {
  const swatch = id !== null && styled(make("span", { class: "token-swatch", "aria-hidden": "true" }), { "--token": tokenColor(id) });
  return make("div", { class: "panel-head" },
    make("h2", { id: "token-title", class: "mono" }, swatch, title, id !== null && title !== `#${id}` && span("panel-id number", `#${id}`)),
    button("Close", closeToken, { class: "quiet", "aria-label": "Close the token panel" }));
}

function tokenFacts(info) {
  const left = info.width - info.row.length;
  return [
    panelHead(cut(nameOf(info), 40), info.id),
    make("h3", {}, "Nearest neighbors by cosine similarity"),
    info.note && note(`${upper(info.note)}.`),
    make("ol", { class: "neighbors" }, info.neighbors.map(neighborLine)),
    make("h3", {}, `Row: ${counted(info.width, "channel")}`),
    rowStrip(info),
    left > 0 && note(`${DOTS} and ${grouped(left)} more`),
    make("h3", {}, "Token"),
    facts([
      ["Id", digits(String(info.id))],
      ["In the vocabulary", info.token === info.label ? null : code(cut(visible(info.token ?? ""), 60))],
      ["Bytes", info.bytes ? code(cut(hexPairs(info.bytes), 90)) : isWithoutTokenizer() ? null : "none"],
      ["Kind", info.special && !isWithoutTokenizer() ? "special" : null],
      ["Byte offset", info.offset === null ? null : digits(grouped(info.offset))],
      ["Norm", digits(brief(info.norm))],
    ], "facts inspector-facts"),
  ].filter(Boolean);
}

function rowStrip(info) {
  const scale = scaleOf(info.row);
  const square = (value, d) => heat(make("span", {
    class: "strip-cell", role: "gridcell", tabindex: -1, "aria-label": `channel ${d}: ${brief(value)}`,
    data: { nav: "", field: "channel", id: info.id, d, value: exact(value) },
  }), value, scale);
  const grid = make("div", { class: "row-strip", role: "grid", "aria-label": `Row ${info.id}, all channels` },
    make("div", { role: "row", class: "row-strip-cells" }, info.row.map(square)));
  return rove(grid);
}

function neighborLine(neighbor) {
  const label = nameOf(neighbor);
  const name = [span("mono neighbor-name", cut(label, 16)), span("number muted", String(neighbor.id))];
  const share = Math.max(0, Math.min(1, toNumber(neighbor.cosine)));
  return make("li", { data: { field: "cosine", id: neighbor.id } },
    source.hasToken(neighbor.id)
      ? button(name, () => openToken(neighbor.id), { class: "neighbor", title: label, data: { tokenId: neighbor.id } })
      : span("neighbor", name),
    styled(make("span", { class: "cosine-bar", "aria-hidden": "true" }), { "--share": share.toFixed(3) }),
    make("span", { class: "number", data: { value: exact(neighbor.cosine) } }, fixed(neighbor.cosine, 3)));
}

Object.assign(EXPLANATIONS, {
  channel({ id, d }) {
    const title = indexed("E", id, d);
    return {
      title,
      formula: [`${title} = ${brief(shownToken.row[d])}`],
      facts: [exactly(shownToken.row[d]), ...(current ? rowFacts(current.trace.table, id, d, shownToken.offset) : [])],
      code: rowCode(id),
    };
  },

  cosine({ id }) {
    const { cosine, label } = shownToken.neighbors.find((neighbor) => neighbor.id === id);
    return {
      title: `cosine of rows ${shownToken.id} and ${id}`,
      formula: ["a \u00b7 b / (|a| |b|)", `= ${brief(cosine)}`],
      facts: [exactly(cosine), ["Token", code(cut(visible(label), 60))], ...(current ? rowOrigin(id, null) : [])],
      code: `F.cosine_similarity(E[${shownToken.id}], E[${id}], dim=0)`,
    };
  },
});

// The map next to the walk: every row of the table, with the tokens of the text in their colors, in text order.

const MAP_POLL = 3000; // milliseconds between requests for a better layout

let mapPane = null; // the map, once its data has been loaded
let mapModel = null; // the model whose map is shown or requested
let mapParts = null; // elements of the pane
let mapChosen = { id: -1, near: [] }; // the token of the token panel

function renderMapPane() {
  const { model } = current?.query ?? state;
  mapParts ??= buildMapPane();
  if (mapModel !== model) {
    mapModel = model;
    if (mapPane) showMap(true, "Loading the map…"); // do not show another model's points
    delete mapParts.canvas.dataset.drawn;
    loadMap(model);
  }
  markTokens();
}

function buildMapPane() {
  const canvas = make("canvas", {
    id: "map", class: "map-canvas", tabindex: 0, role: "application", "aria-roledescription": "map",
    "aria-label": "Map of all tokens. Arrow keys move, plus and minus zoom, 0 shows everything.",
  });
  const query = make("input", {
    id: "map-query", type: "search", list: "map-matches", placeholder: "Find a token", "aria-label": "Find a token",
    spellcheck: "false", required: true,
  });
  const matches = make("datalist", { id: "map-matches" });
  const form = make("form", { role: "search", class: "map-find", autocomplete: "off", "aria-label": "Find a token on the map" },
    query, matches);
  const tool = (label, name, act) => button(label, act, { "aria-label": name });
  const frame = make("div", { class: "map-frame" }, canvas,
    make("div", { class: "map-tools", role: "group", "aria-label": "Zoom" },
      tool("+", "Zoom in", () => shownMap()?.zoom(2)), tool(MINUS, "Zoom out", () => shownMap()?.zoom(0.5)),
      button("Show all", () => shownMap()?.fit())));
  const kinds = make("ul", { class: "map-legend", "aria-label": "Colors of the map" });
  const about = make("p", { class: "note map-about", role: "status" }, "Loading the map…");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const id = shownMap()?.find(query.value) ?? -1;
    query.setCustomValidity(id < 0 ? "no token contains this text" : "");
    if (query.reportValidity()) openToken(id, query);
  });
  query.addEventListener("input", () => {
    query.setCustomValidity("");
    matches.replaceChildren(...(shownMap()?.suggestions(query.value) ?? []).map((value) => make("option", { value })));
  });
  byId("map-pane").replaceChildren(make("div", { class: "map-head" }, make("h2", {}, "Map of all tokens"), form), kinds, frame, about);
  byId("map-pane").hidden = false;
  document.addEventListener("token-highlight", (event) => mapPane?.highlight(event.detail?.id));
  document.addEventListener("theme-change", () => markTokens());
  return { canvas, frame, form, kinds, about };
}

async function loadMap(model) {
  const { canvas, about } = mapParts;
  let data;
  try {
    data = await source.map(model);
  } catch (error) {
    if (model === mapModel) showMap(false, upper(error.message));
    return;
  }
  if (model !== mapModel) return;
  if (data.note) return showMap(false, data.note); // an exported page without a map
  if (data.is_improving) setTimeout(() => model === mapModel && loadMap(model), MAP_POLL);
  if (data.texts.length === 0) return showMap(true, "Computing the map…");
  const isBetter = mapPane?.data.model === model && mapPane.data.method !== data.method;
  if (mapPane?.data.model === model && !isBetter) return describeMap(data);
  if (mapPane) mapPane.setData({ ...data, model });
  else {
    mapPane = makeMap(canvas, { ...data, model }, {
      isStill: () => motion.instant,
      byKind: true,
      onHover: (id) => highlightToken(id === null ? null : { id }),
      onChoose: (id) => openToken(id, canvas),
    });
    window.inlayerMap = mapPane; // for tests
  }
  showMap(true);
  fillKindLegend(mapParts.kinds, mapPane.kinds);
  mapParts.kinds.append(make("li", { class: "marks-legend" }, make("i"), "large dots: your tokens, in green or purple; arcs: their order"));
  describeMap(data);
  if (isBetter) announce(`Better layout ready. ${about.textContent}`);
  markTokens();
  if (mapChosen.id >= 0) mapPane.choose(mapChosen.id, true, mapChosen.near);
}

// Returns the map if it shows the current model.
function shownMap() {
  return mapPane?.data.model === mapModel ? mapPane : null;
}

function showMap(isAvailable, message = "") {
  mapParts.frame.hidden = mapParts.form.hidden = !isAvailable;
  mapParts.kinds.hidden = !isAvailable || !shownMap();
  mapParts.frame.classList.toggle("waiting", !shownMap());
  mapParts.about.textContent = message;
}

function describeMap(map) {
  const { method, complete, is_improving, texts, mean_preservation, preservation_k, trustworthiness, n_omitted, omitted_ids } = map;
  const name = method === "tsne" ? "t-SNE" : "Principal components";
  const facts = [
    `${name} of ${counted(texts.length, "row")}${complete ? "" : ", interrupted"}.`,
    `On average, ${Math.round(toNumber(mean_preservation) * 100)}% of a token's ${preservation_k} nearest tokens are also its neighbors on this map; `
      + `trustworthiness ${fixed(trustworthiness, 2)}.`,
    is_improving && "Computing a better layout…",
    n_omitted > 0 && `Not shown (zero or non-finite rows): ${rowNames(omitted_ids.slice(0, 3), texts, n_omitted)}.`,
  ].filter(Boolean).join(" ");
  const meaning = "Each dot is a token. Tokens with similar rows tend to be close together: click one to see its neighbors. ";
  mapParts.about.replaceChildren(span("map-meaning", meaning), span("map-facts", facts));
}

function markTokens() {
  if (!shownMap()) return;
  const texts = current && !areTokensHidden(state.step) ? current.trace.texts : [];
  mapPane.setMarks(texts.flatMap((text, b) => text.tokens
    .filter((token) => token.id !== null && token.mask)
    .map((token) => ({ id: token.id, color: tokenColor(token.id), line: b }))));
  mapPane.setArrows(texts.length > 0 ? learningArrows() : []);
}

// Called when the token panel shows this token: the map moves there.
function showOnMap(id, near = []) {
  if (mapChosen.id === id) return;
  mapChosen = { id, near };
  shownMap()?.choose(id, true, near);
}

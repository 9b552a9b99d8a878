// The page of `inlayer map --html`: one map, a search, and a list of the chosen token's true neighbors.

const page = (id) => document.getElementById(id);
const mapData = readMapData(JSON.parse(page("data").textContent));
const map = makeMap(page("map"), mapData, { onChoose: (id) => show(id), byKind: true });
fillKindLegend(page("kinds"), map.kinds);

function show(id) {
  const share = mapData.neighborhood_preservation?.[id];
  page("token").textContent = tokenText(mapData.texts[id]);
  page("token").className = "mono";
  page("about").textContent = [
    mapData.texts[id] !== `#${id}` && `Token ${id}.`,
    !map.isPlaced(id) ? "This row is zero or not finite, so it is not on the map."
      : Number.isNaN(share) ? "Not measured: neighborhood preservation was computed for only a sample of the rows."
        : `${Math.round(share * 100)}% of its ${mapData.preservation_k} nearest tokens are also its neighbors on this map.`,
    map.isPlaced(id) && (mapData.near ? "Nearest tokens by cosine over all channels:" : `inlayer neighbors --id ${id} finds its nearest tokens.`),
  ].filter(Boolean).join(" ");
  page("near").replaceChildren(...map.neighborsOf(id).map(([other, cosine]) => neighborItem(other, cosine)));
  history.replaceState(null, "", `#token=${id}`);
}

function neighborItem(id, cosine) {
  const item = document.createElement("li"), button = document.createElement("button");
  const parts = [tokenText(mapData.texts[id]), "", cosineText(cosine)].map((text, i) => {
    const part = document.createElement("span");
    part.className = ["near-name", "near-bar", "near-cosine"][i];
    part.textContent = text;
    return part;
  });
  parts[1].style.setProperty("--share", Math.max(0, Math.min(1, cosine)).toFixed(3));
  button.type = "button";
  button.append(...parts);
  button.addEventListener("click", () => openToken(id));
  button.addEventListener("pointerenter", () => map.highlight(id));
  button.addEventListener("pointerleave", () => map.highlight(null));
  button.addEventListener("focus", () => map.highlight(id));
  button.addEventListener("blur", () => map.highlight(null));
  item.append(button);
  return item;
}

function openToken(id) {
  map.choose(id, true);
  show(id);
}

page("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = page("query"), id = map.find(query.value);
  query.setCustomValidity(id < 0 ? "no token contains this text" : "");
  if (query.reportValidity()) openToken(id);
});
page("query").addEventListener("input", (event) => {
  event.target.setCustomValidity("");
  page("matches").replaceChildren(...map.suggestions(event.target.value).map((text) => new Option(text, text)));
});
page("all").addEventListener("click", () => map.fit());
page("zoom-in").addEventListener("click", () => map.zoom(2));
page("zoom-out").addEventListener("click", () => map.zoom(0.5));

const linked = /token=(\d+)/.exec(location.hash);
if (linked && Number(linked[1]) < mapData.texts.length) openToken(Number(linked[1]));
window.inlayerMap = map;

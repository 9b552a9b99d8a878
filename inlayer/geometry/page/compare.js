// The page of `inlayer compare --html`: two maps; hovering and choosing a token affects both.

const page = (id) => document.getElementById(id);
const compared = JSON.parse(page("data").textContent);
const numbers = (text, kind) => new kind(readMapData({ points: text }).points.buffer);
const sides = compared.sides.map((side) => ({
  ...readMapData(side), groups: byteArray(side.groups), ids: numbers(side.ids, Int32Array),
}));
const [cosines, ...norms] = [compared.cosines, compared.norms_a, compared.norms_b].map((text) => numbers(text, Float32Array));
const indexes = sides.map((side) => new Map(Array.from(side.ids, (id, index) => [id, index]))); // id -> index of the shared token
const maps = sides.map((side, s) => makeMap(page(s === 0 ? "map-a" : "map-b"), side, {
  onHover: (id) => maps[1 - s].highlight(id === null ? null : partner(s, id)),
  onChoose: (id) => open(s, id, s),
}));

function byteArray(text) {
  return readMapData({ points: [], words: text }).words;
}

// The id of the same token in the other model, or null.
function partner(s, id) {
  const index = indexes[s].get(id);
  return index === undefined ? null : sides[1 - s].ids[index];
}

function recolor() {
  const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(name).trim();
  maps.forEach((map, s) => map.setColors(sides[s].groups, ["", read("--accent"), read("--hot")]));
}

function open(s, id, still = -1) {
  const other = partner(s, id), ids = s === 0 ? [id, other] : [other, id], index = indexes[s].get(id);
  maps.forEach((map, side) => (ids[side] === null ? map.choose(-1) : map.choose(ids[side], side !== still)));
  page("token").textContent = mapLabel(sides[s].texts[id]);
  page("token").className = "mono";
  page("about").textContent = other === null ? `Only in ${"AB"[s]}.`
    : `Cosine similarity of its rows in A and B: ${cosines[index].toFixed(3)}. Norms: ${norms[0][index].toPrecision(3)} in A, ${norms[1][index].toPrecision(3)} in B.`;
  const near = ids.map((one, side) => (one === null ? [] : maps[side].neighborsOf(one)));
  const names = near.map((list, side) => new Set(list.map(([one]) => mapLabel(sides[side].texts[one]))));
  page("lists").replaceChildren(...near.flatMap((list, side) => (list.length === 0 ? [] : [
    heading(`Nearest in ${"AB"[side]}`),
    listOf(list.map(([one, cosine]) => ({ side, id: one, value: cosine, both: names[1 - side].has(mapLabel(sides[side].texts[one])) }))),
  ])));
  if (!page("lists").hasChildNodes()) listMoved();
  history.replaceState(null, "", `#${"ab"[s]}=${id}`);
}

function heading(text) {
  const made = document.createElement("h3");
  made.textContent = text;
  return made;
}

function listOf(items) {
  const list = document.createElement("ol");
  list.className = "map-near";
  list.append(...items.map(({ side, id, value, both }) => {
    const item = document.createElement("li"), button = document.createElement("button");
    const parts = [mapLabel(sides[side].texts[id]), "", value.toFixed(3)].map((text, i) => {
      const part = document.createElement("span");
      part.className = ["near-name", "near-bar", "near-cosine"][i];
      part.textContent = text;
      return part;
    });
    parts[1].style.setProperty("--share", Math.max(0, Math.min(1, value)).toFixed(3));
    button.type = "button";
    if (both) { button.className = "in-both"; button.title = "near in both models"; }
    button.append(...parts);
    button.addEventListener("click", () => open(side, id));
    item.append(button);
    return item;
  }));
  return list;
}

function listMoved() {
  const items = compared.listed.map((index) => ({ side: 0, id: sides[0].ids[index], value: cosines[index] }));
  page("lists").replaceChildren(...(items.length ? [heading("Moved most, by cosine"), listOf(items)] : []));
}

page("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = page("query"), found = maps.map((map) => map.find(query.value));
  query.setCustomValidity(Math.max(...found) < 0 ? "no token contains this text" : "");
  if (query.reportValidity()) open(found[0] < 0 ? 1 : 0, found[0] < 0 ? found[1] : found[0]);
});
page("query").addEventListener("input", (event) => {
  event.target.setCustomValidity("");
  const found = new Set(maps.flatMap((map) => map.suggestions(event.target.value)));
  page("matches").replaceChildren(...[...found].slice(0, 12).map((text) => new Option(text, text)));
});
page("all").addEventListener("click", () => maps.forEach((map) => map.fit()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);

recolor();
listMoved();
const linked = /([ab])=(\d+)/.exec(location.hash);
if (linked && Number(linked[2]) < sides[linked[1] === "a" ? 0 : 1].texts.length) open(linked[1] === "a" ? 0 : 1, Number(linked[2]));
window.inlayerMaps = maps;

// The page of `inlayer compare --html`: two maps; hovering and choosing a token affects both.

const page = (id) => document.getElementById(id);
const compared = JSON.parse(page("data").textContent);
const numbers = (text, kind) => new kind(readMapData({ points: text }).points.buffer);
const MAX_MARKED = 20; // moved tokens with a large dot and, where there is room, a label
const MAX_ONLY = 200; // tokens listed that only one model has
const sides = compared.sides.map((side) => ({
  ...readMapData(side), groups: byteArray(side.groups), ids: numbers(side.ids, Int32Array),
}));
const cosines = numbers(compared.cosines, Float32Array);
const norms = [compared.norms_a, compared.norms_b].map((text) => numbers(text, Float64Array));
const indexes = sides.map((side) => new Map(Array.from(side.ids, (id, index) => [id, index]))); // id -> index of the shared token
const maps = sides.map((side, s) => makeMap(page(s === 0 ? "map-a" : "map-b"), side, {
  onHover: (id) => maps[1 - s].highlight(id === null ? null : partner(s, id)),
  onChoose: (id) => open(s, id, s), fitMost: true,
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
  maps.forEach((map, s) => {
    map.setColors(sides[s].groups, ["", read("--accent"), read("--hot")]);
    map.setMarks(compared.moved.slice(0, MAX_MARKED).map((index, line) => ({ id: sides[s].ids[index], color: read("--hot"), line })));
  });
}

function open(s, id, still = -1) {
  const other = partner(s, id), ids = s === 0 ? [id, other] : [other, id], index = indexes[s].get(id);
  maps.forEach((map, side) => (ids[side] === null ? map.choose(-1) : map.choose(ids[side], side !== still)));
  page("token").textContent = tokenText(sides[s].texts[id]);
  page("token").className = "mono";
  page("about").textContent = other === null ? `Only in ${"AB"[s]}.`
    : `Cosine similarity of its rows in A and B: ${cosineText(cosines[index])}. Norms: ${normText(norms[0][index])} in A, ${normText(norms[1][index])} in B.`;
  page("about").hidden = false;
  page("overview").hidden = true;
  const near = ids.map((own, side) => (own === null ? [] : maps[side].neighborsOf(own)));
  const names = near.map((list, side) => new Set(list.map(([near]) => tokenText(sides[side].texts[near]))));
  page("lists").replaceChildren(...near.flatMap((list, side) => (list.length === 0 ? [] : [
    heading(`Nearest in ${"AB"[side]}`),
    listOf(list.map(([near, cosine]) => ({ side, id: near, cosine, both: names[1 - side].has(tokenText(sides[side].texts[near])) })), "", nearCells),
  ])));
  history.replaceState(null, "", `#${"ab"[s]}=${id}`);
}

function heading(text) {
  const made = document.createElement("h3");
  made.textContent = text;
  return made;
}

// A list of tokens; `cells` makes the cells to the right of each.
function listOf(items, kind, cells) {
  const list = document.createElement("ol");
  list.className = "map-near";
  list.append(...items.map((entry) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.className = kind;
    if (entry.both) { button.classList.add("in-both"); button.title = "near in both models"; }
    button.append(cell("near-name", tokenText(sides[entry.side].texts[entry.id])), ...cells(entry));
    button.addEventListener("click", () => open(entry.side, entry.id));
    item.append(button);
    return item;
  }));
  return list;
}

function cell(kind, text) {
  const made = document.createElement("span");
  made.className = kind;
  made.textContent = text;
  return made;
}

function nearCells({ cosine }) {
  const bar = cell("near-bar", "");
  bar.style.setProperty("--share", Math.max(0, Math.min(1, cosine)).toFixed(3));
  return [bar, cell("near-cosine", cosineText(cosine))];
}

function rowCells({ index }) {
  const [before, after] = norms.map((all) => normText(all[index]));
  return [cell("near-cosine", Number.isNaN(cosines[index]) ? "" : cosineText(cosines[index])), cell("near-norms", `${before} \u2192 ${after}`)];
}

function normText(norm) {
  if (!Number.isFinite(norm)) return Number.isNaN(norm) ? "NaN" : "infinite";
  return norm === 0 ? "0" : norm >= 0.01 && norm < 100 ? norm.toFixed(2) : String(Number(norm.toPrecision(3)));
}

function movedTitle() {
  const { moved: { length }, n_moved: total, rotated } = compared, verb = rotated ? "differ" : "moved";
  const rows = `${total.toLocaleString("en")} row${total === 1 ? "" : "s"} ${rotated && total === 1 ? "differs" : verb}`;
  return total > length ? `${rows}; the ${length} that ${verb} most` : rows;
}

// The findings of the comparison: damaged and moved rows, and the tokens that only one model has.
function overview() {
  const rows = (indexes) => indexes.map((index) => ({ side: 0, id: sides[0].ids[index], index }));
  const count = (total, shown) => (total > shown ? `${total.toLocaleString("en")}, the first ${shown}` : total);
  const moved = rows(compared.moved);
  const only = sides.map((side, s) => Array.from(side.groups.keys()).filter((id) => side.groups[id] === 1).slice(0, MAX_ONLY).map((id) => ({ side: s, id })));
  const sections = [
    ["Zero or not finite", "norm in A \u2192 B", rows(compared.damaged), compared.n_damaged, "two-rows", rowCells],
    [movedTitle(), "cosine, norm in A \u2192 B", moved, compared.n_moved, "two-rows", rowCells],
    ...only.map((list, s) => [`Only in ${"AB"[s]}`, "", list, sides[s].only, "one-row", () => []]),
  ];
  page("token").textContent = "Compare";
  page("token").className = "";
  page("about").hidden = true;
  page("overview").hidden = false;
  page("lists").replaceChildren(...sections.flatMap(([title, columns, list, total, kind, cells]) => (list.length === 0 ? [] : [
    heading(`${title}${list === moved ? "" : ` (${count(total, list.length)})`}${columns && `: ${columns}`}`), listOf(list, kind, cells),
  ])));
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
page("all").addEventListener("click", () => {
  maps.forEach((map) => { map.choose(-1); map.fit(); });
  overview();
  history.replaceState(null, "", location.pathname + location.search);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);

recolor();
overview();
const linked = /([ab])=(\d+)/.exec(location.hash);
if (linked && Number(linked[2]) < sides[linked[1] === "a" ? 0 : 1].texts.length) open(linked[1] === "a" ? 0 : 1, Number(linked[2]));
window.inlayerMaps = maps;

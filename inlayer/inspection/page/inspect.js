// The inspection page, exported or served: facts, norms, findings, and the map colored by finding.

// Colors of the map: other rows, findings that need attention, and notes, which are neutral.
const FAULTS = ["#d55e00", "#0072b2", "#cc79a7", "#009e73", "#e69f00", "#56b4e9"], NOTES = ["#78706a", "#857a99", "#83875f"];
const PALETTE = ["#8da3b0", ...FAULTS, ...NOTES];
const MAX_SHOWN = 60; // tokens of a finding
const MAP_POLL = 3000; // milliseconds between requests for a better layout
const byId = (id) => document.getElementById(id);
let map = null;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
const counted = (amount, noun) => `${number(amount)} ${noun}${amount === 1 ? "" : "s"}`;
const number = (value) => (value === null ? "unknown" : Number.isInteger(value) ? value.toLocaleString("en-US") : value.toPrecision(4));

// The wording of facts and verdict comes from inspection/terminal.py.
function showFacts(report) {
  const unchecked = report.not_checked.length ? [["Not checked", report.not_checked]] : [];
  for (const [label, lines] of [...report.facts, ...unchecked]) {
    byId("facts").append(make("dt", {}, label), ...lines.map((line) => make("dd", {}, line)));
  }
}

function showNorms({ counts, edges }) {
  const largest = Math.max(...counts, 0);
  if (largest === 0) return byId("norms").append("No row has a finite norm.");
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
  const label = `Histogram of ${number(counts.reduce((a, b) => a + b))} norms from ${number(edges[0])} to ${number(edges.at(-1))}; the largest bin has ${counted(largest, "row")}`;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${counts.length} 100`, preserveAspectRatio: "none", class: "norms", role: "img", "aria-label": label })) svg.setAttribute(name, value);
  counts.forEach((count, i) => {
    const bar = document.createElementNS(space, "rect"), height = count ? Math.max(1, 100 * count / largest) : 0;
    for (const [name, value] of Object.entries({ x: i + 0.05, width: 0.9, y: 100 - height, height })) bar.setAttribute(name, value);
    const title = document.createElementNS(space, "title");
    title.textContent = `${number(edges[i])} to ${number(edges[i + 1])}: ${counted(count, "row")}`;
    bar.append(title);
    svg.append(bar);
  });
  byId("norms").append(svg, make("p", { class: "axis" }, make("span", {}, number(edges[0])), make("span", {}, number(edges.at(-1)))));
}

// The index in PALETTE of each finding with rows.
function findingColors({ ids, findings }) {
  const codes = Object.keys(ids).filter((code) => ids[code].length > 0);
  const isNote = (code) => findings.every((finding) => finding.code !== code || finding.severity === "note");
  const faults = codes.filter((code) => !isNote(code)).map((code, i) => [code, 1 + i % FAULTS.length]);
  const notes = codes.filter(isNote).map((code, i) => [code, 1 + FAULTS.length + i % NOTES.length]);
  return new Map([...faults, ...notes]);
}

function showFindings(report, texts) {
  const colors = findingColors(report);
  if (report.findings.length === 0) byId("findings").append("None.");
  for (const finding of report.findings) {
    const color = colors.get(finding.code), list = make("ul", { class: "tokens", "aria-label": `Tokens of ${finding.code}` });
    for (const id of finding.ids.slice(0, MAX_SHOWN)) {
      const button = make("button", { type: "button", title: `id ${id}` }, tokenText(texts?.[id] ?? `#${id}`));
      button.addEventListener("click", () => map?.choose(id));
      list.append(make("li", {}, button));
    }
    const heading = make("h3", {}, ...(color ? [make("span", { class: `swatch swatch-${color}`, "aria-hidden": "true" })] : []), `${finding.severity}: ${finding.code}`);
    const rest = finding.ids.length - MAX_SHOWN, more = rest > 0 ? [make("p", {}, `and ${number(rest)} more; inlayer inspect --ids ${finding.code} lists all`)] : [];
    byId("findings").append(make("div", { class: "finding" }, heading, make("p", {}, finding.message), ...(finding.ids.length ? [list] : []), ...more, make("p", { class: "advice" }, `\u2192 ${finding.advice}`)));
  }
  return colors;
}

function showMap(report, data, colors) {
  if (!data.points) {
    byId("map-note").textContent = data.note ?? "Computing the map…";
    return;
  }
  byId("frame").hidden = false;
  const groups = new Uint8Array(data.texts.length);
  for (const [code, color] of [...colors].reverse()) for (const id of report.ids[code]) groups[id] = color;
  if (map) map.setData(data);
  else map = makeMap(byId("map"), data, { isStill: () => motion.instant });
  map.setColors(groups, PALETTE);
  const entries = [...colors].map(([code, color]) => [color, `${code} (${number(report.ids[code].length)})`]);
  byId("legend").replaceChildren(...[...entries, [0, "other rows"]].flatMap(([color, text]) => [make("span", { class: `swatch swatch-${color}`, "aria-hidden": "true" }), ` ${text}  `]));
  const omitted = data.n_omitted ? ` Not shown (zero or non-finite rows): ${rowNames(data.omitted_ids, data.texts, data.n_omitted)}.` : "";
  byId("map-note").textContent = `${data.method === "tsne" ? "t-SNE" : "Principal components"}. On average, ${Math.round(100 * data.mean_preservation)}% of a token's ${data.preservation_k} nearest tokens are also its neighbors on this map.${omitted}`;
}

// A served page links to the other pages, passing on its access token.
function showTabs() {
  for (const view of ["walk", "compare", "initialization"]) {
    const state = new URLSearchParams(location.hash.slice(1));
    state.set("view", view);
    byId(view).href = `/${location.search}#${state}`;
  }
  byId("learn").href = `/learn${location.search}`;
  byId("here").href = location.href;
  byId("tabs").hidden = false;
}

// A served page shows one model; the page is reloaded to show another.
async function showModels() {
  const { models } = await fetchJson("/api/models"), select = byId("model");
  select.replaceChildren(...models.map(({ name }) => make("option", { value: name }, name)));
  select.value = new URLSearchParams(location.hash.slice(1)).get("model") ?? models[0].name;
  select.addEventListener("change", () => {
    const state = new URLSearchParams(location.hash.slice(1));
    state.set("model", select.value);
    location.hash = state;
  });
  addEventListener("hashchange", () => location.reload());
  byId("models").hidden = models.length === 1;
}

async function fetchJson(path) {
  const address = new URLSearchParams(location.search), model = new URLSearchParams(location.hash.slice(1)).get("model");
  const query = new URLSearchParams(model ? { model } : {});
  const response = await fetch(`${path}?${query}`, { headers: { Authorization: `Bearer ${address.get("token")}` } });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

// The map and the names of the tokens, requested again when a better layout is ready.
async function drawMap(report, known, colors = null) {
  const data = known ?? await fetchJson("/api/map").catch((error) => ({ note: error.message }));
  if (!map) byId("findings").replaceChildren();
  const used = map ? colors : showFindings(report, data.texts);
  showMap(report, data, used);
  if (!known && data.is_improving) setTimeout(() => drawMap(report, null, used), MAP_POLL);
}

// Theme, motion, and shortcuts, as on the other pages.
function listen() {
  setTheme(storedTheme());
  motion.off = stored(STORED_MOTION) === "off";
  renderMotion();
  byId("theme").addEventListener("click", nextTheme);
  byId("motion").addEventListener("click", toggleMotion);
  byId("help").addEventListener("click", () => byId("keys").showModal());
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || byId("keys").open || stored("inlayer-keys") === "off") return;
    if (event.key === "m") toggleMotion();
    if (event.key === "?") byId("keys").showModal();
  });
}

async function start() {
  listen();
  const embedded = JSON.parse(byId("data").textContent);
  if (embedded === null) showTabs();
  try {
    if (embedded === null) await showModels();
    const report = embedded?.report ?? await fetchJson("/api/inspect");
    byId("heading").textContent = document.title = `Inspect ${report.source}`;
    byId("verdict").replaceChildren(
      make("span", { class: report.exit_code ? "verdict-attention" : report.verdict.startsWith("healthy") ? "verdict-healthy" : "verdict-unsure" }, report.verdict),
      report.quick ? "(only a sample of the rows was read)" : "");
    showFacts(report);
    showNorms(report.norms);
    await drawMap(report, embedded?.map);
  } catch (error) {
    byId("verdict").textContent = error.message;
  }
}

start();

// Matrices: tables with the grid role and one number per cell on a heat map; one Tab stop, arrow keys inside.

// A table cell with a number. `cell` identifies the number; formulas and tests read it from the data attributes.
function numberCell(value, cell, scale) {
  const mark = markOf(cell, value);
  const element = make("td", {
    class: "cell number" + (mark ? " " + mark : ""),
    role: "gridcell",
    tabindex: -1,
    data: { value: exact(value), nav: "", ...absolute(cell) },
  }, fixed(value, scale.decimals));
  return heat(element, value, scale);
}

// The location of a number in the whole text and the whole vector; `cell` counts from the first token and channel shown.
function absolute(cell) {
  const { first_token: token = 0, first_channel: channel = 0 } = firstShown();
  const isPair = ["angles", "cos", "sin", "frequency"].includes(cell.field);
  return {
    ...cell,
    ...(cell.t === undefined ? {} : { t: cell.t + token }),
    ...(cell.d === undefined ? {} : { d: cell.d + (isPair ? 0 : channel) }),
  };
}

function heat(element, value, scale) {
  const number = toNumber(value);
  if (!Number.isFinite(number)) {
    element.classList.add("odd");
  } else if (number !== 0 && scale.maxAbs > 0) {
    element.classList.add(number > 0 ? "hot" : "cold");
    element.style.setProperty("--m", Math.min(1, Math.abs(number) / scale.maxAbs).toFixed(3));
  }
  return element;
}

function scaleOf(...vectors) {
  const values = vectors.flat(Infinity);
  const all = largest(values);
  const maxAbs = largest(values, HUGE) || all; // a single huge number must not hide the others
  return { maxAbs, decimals: decimalsFor(maxAbs), beyond: all > maxAbs };
}

// rows: [{head: element, values, cell: (d) => ({...}), kind}]; `more` is the number of channels not shown.
function matrix({ label, rows, count, scale, corner = "", more = 0 }) {
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, corner),
    columnHeads(count),
    more > 0 && make("th", { scope: "col", class: "column more" }, `+${grouped(more)}`));
  const body = rows.map((row) => make("tr", { class: row.kind || null },
    make("th", { scope: "row", class: "row-head" }, row.head),
    row.values.map((value, d) => numberCell(value, row.cell(d), scale)),
    more > 0 && make("td", { class: "more", "aria-hidden": "true" }, DOTS)));
  return gridTable(label, make("thead", {}, head), [make("tbody", {}, body)]);
}

function gridTable(label, head, bodies, kind = "") {
  const table = make("table", { class: "matrix " + kind, role: "grid", "aria-label": label }, head, bodies);
  foldPadding(table);
  const box = make("div", { class: "scroll", on: { scroll: () => markMore(box) } }, rove(table));
  const sizes = new ResizeObserver(() => { endAtRow(box, table); markMore(box); });
  for (const element of [table, box]) sizes.observe(element);
  return box;
}

// The right edge fades while columns are hidden there.
function markMore(box) {
  box.classList.toggle("has-more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
}

// A table that scrolls in its box is cut between two rows, or between two groups of rows.
function endAtRow(box, table) {
  box.style.maxHeight = "";
  const { maxHeight, paddingTop, paddingBottom } = getComputedStyle(box);
  const padding = parseFloat(paddingTop) + parseFloat(paddingBottom), room = parseFloat(maxHeight) - padding;
  if (!(table.offsetHeight > room)) return;
  const parts = table.tBodies.length > 1 ? table.tBodies : table.rows;
  const ends = Array.from(parts, (part) => part.offsetTop + part.offsetHeight).filter((end) => end <= room);
  const bar = box.offsetHeight - box.clientHeight; // height of the horizontal scroll bar
  if (ends.length > 0) box.style.maxHeight = `${Math.max(...ends) + padding + bar}px`;
}

// Padding is shown once per text; a button shows the other padding tokens.
function foldPadding(table) {
  const others = Array.from(table.querySelectorAll(".padding-line")).slice(1);
  if (others.length === 0) return;
  const words = (open) => `${open ? "Hide" : "Show"} ${counted(others.length, "more padding token")}`;
  const toggle = (event) => {
    const open = event.target.getAttribute("aria-expanded") === "false";
    for (const line of others) line.hidden = !open;
    event.target.setAttribute("aria-expanded", String(open));
    event.target.textContent = words(open);
  };
  for (const line of others) line.hidden = true;
  const fold = button(words(false), toggle, { class: "quiet fold-padding", "aria-expanded": "false" });
  const line = make("tr", {}, make("td", { colspan: 99, class: "fold-line" }, fold));
  others[0].before(others[0].tagName === "TBODY" ? make("tbody", {}, line) : line);
}

function columnHeads(count) {
  const { first_channel: first = 0 } = firstShown();
  const name = (_, index) => make("th", { scope: "col", class: "column" }, String(first + index));
  return Array.from({ length: count }, name);
}

// Roving focus: Tab stops once at a grid; arrow keys, Home, End, and the Page keys move inside it.
function rove(container) {
  const stops = () => Array.from(container.querySelectorAll("[data-nav]")).filter((stop) => stop.checkVisibility());
  const first = container.querySelector("[data-nav][data-token]") ?? container.querySelector("[data-nav]");
  if (first) first.tabIndex = 0;
  container.addEventListener("focusin", (event) => {
    const stop = event.target.closest("[data-nav]");
    if (!stop) return;
    for (const other of container.querySelectorAll('[data-nav][tabindex="0"]')) other.tabIndex = -1;
    stop.tabIndex = 0;
  });
  container.addEventListener("keydown", (event) => {
    const stop = event.target.closest("[data-nav]");
    if (!stop || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const next = neighborStop(stops(), stop, event.key);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (next) next.focus();
  });
  return container;
}

function neighborStop(stops, stop, key) {
  const start = stops.indexOf(stop);
  if (key === "ArrowRight") return stops[start + 1] ?? null;
  if (key === "ArrowLeft") return stops[start - 1] ?? null;
  if (key === "Home") return stops[0];
  if (key === "End") return stops[stops.length - 1];
  const far = key === "PageDown" || key === "PageUp";
  if (key === "ArrowDown" || key === "PageDown") return below(stops, start, 1, far ? 10 : 1);
  if (key === "ArrowUp" || key === "PageUp") return below(stops, start, -1, far ? 10 : 1);
  return undefined;
}

// The Tab stop `lines` lines above or below this one on the screen.
function below(stops, start, direction, lines) {
  const center = (element) => {
    const box = element.getBoundingClientRect();
    return { x: box.left + box.width / 2, y: box.top + box.height / 2, height: box.height };
  };
  const from = center(stops[start]);
  let line = null, crossed = 0, best = null, nearest = Infinity;
  for (let index = start + direction; index >= 0 && index < stops.length; index += direction) {
    const at = center(stops[index]);
    if ((at.y - from.y) * direction < Math.min(8, from.height / 2)) continue;
    if (line === null || Math.abs(at.y - line) > 6) {
      if (crossed === lines) break;
      line = at.y;
      crossed += 1;
      nearest = Infinity;
    }
    if (Math.abs(at.x - from.x) < nearest) {
      nearest = Math.abs(at.x - from.x);
      best = stops[index];
    }
  }
  return best;
}

function legend(scale, power = 1) {
  if (!(scale.maxAbs > 0)) return null;
  const blocks = [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1].map((value) =>
    heat(make("i", { class: "block" }), Math.sign(value) * Math.abs(value) ** power, { maxAbs: 1 }));
  return make("span", { class: power === 1 ? "legend" : "legend on-canvas", "aria-hidden": "true" },
    make("span", { class: "number" }, fixed(-scale.maxAbs, scale.decimals)), make("span", { class: "blocks" }, blocks),
    make("span", { class: "number" }, "+" + fixed(scale.maxAbs, scale.decimals)), power === 1 && span("", scale.beyond ? "and larger" : "largest number shown"));
}

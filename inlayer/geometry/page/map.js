"use strict";
// The map of a table: all rows as points on a canvas. Far away, points are pixels; close up, dots with labels.

const data = JSON.parse(document.getElementById("data").textContent);
const points = floats(data.points), kept = data.kept ? floats(data.kept) : null;
const near = data.near ? integers(data.near) : null, cosines = data.near ? floats(data.cosines) : null;
const count = data.texts.length, K = data.k;
const canvas = document.getElementById("map"), context = canvas.getContext("2d");
const tip = document.getElementById("tip"), list = document.getElementById("near");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const valid = index => !Number.isNaN(points[2 * index]);
let view = null, home = null, chosen = -1, hovered = -1, moving = 0, pending = false;

function bytes(text) { return Uint8Array.from(atob(text), character => character.charCodeAt(0)); }
function floats(text) { return new Float32Array(bytes(text).buffer); }
function integers(text) { return new Int32Array(bytes(text).buffer); }
function shown(index) { return data.texts[index].replace(/\n/g, "\\n").replace(/ /g, "·") || "(empty)"; }
function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// ---- a grid of cells finds the point under the pointer

const bounds = [Infinity, Infinity, -Infinity, -Infinity];
for (let i = 0; i < count; i++) if (valid(i)) {
  const x = points[2 * i], y = points[2 * i + 1];
  bounds[0] = Math.min(bounds[0], x); bounds[1] = Math.min(bounds[1], y);
  bounds[2] = Math.max(bounds[2], x); bounds[3] = Math.max(bounds[3], y);
}
const CELLS = Math.max(1, Math.ceil(Math.sqrt(count / 4)));
const span = Math.max(bounds[2] - bounds[0], bounds[3] - bounds[1]) || 1;
const cells = new Map();
const cellOf = (x, y) => Math.floor((x - bounds[0]) / span * CELLS) * (CELLS + 2) + Math.floor((y - bounds[1]) / span * CELLS);
for (let i = 0; i < count; i++) if (valid(i)) {
  const key = cellOf(points[2 * i], points[2 * i + 1]);
  if (cells.has(key)) cells.get(key).push(i); else cells.set(key, [i]);
}

function nearestPoint(px, py, reach) {
  const [x, y] = toMap(px, py), radius = reach / view.scale, step = span / CELLS;
  let best = -1, distance = radius * radius;
  for (let cx = x - radius - step; cx <= x + radius + step; cx += step)
    for (let cy = y - radius - step; cy <= y + radius + step; cy += step)
      for (const i of cells.get(cellOf(cx, cy)) || []) {
        const dx = points[2 * i] - x, dy = points[2 * i + 1] - y;
        if (dx * dx + dy * dy < distance) { distance = dx * dx + dy * dy; best = i; }
      }
  return best;
}

// ---- view: the point of the map in the middle, and pixels per unit

function fit() {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const scale = 0.92 * Math.min(width / ((bounds[2] - bounds[0]) || 1), height / ((bounds[3] - bounds[1]) || 1));
  return {x: (bounds[0] + bounds[2]) / 2, y: (bounds[1] + bounds[3]) / 2, scale};
}
function around(indices) {
  const xs = indices.map(i => points[2 * i]), ys = indices.map(i => points[2 * i + 1]);
  const width = Math.max(...xs) - Math.min(...xs), height = Math.max(...ys) - Math.min(...ys);
  const scale = 0.7 * Math.min(canvas.clientWidth / (width || 1e-9), canvas.clientHeight / (height || 1e-9));
  return {x: Math.min(...xs) + width / 2, y: Math.min(...ys) + height / 2,
          scale: Math.min(Math.max(scale, home.scale), home.scale * 40)};
}
function toScreen(i) {
  return [(points[2 * i] - view.x) * view.scale + canvas.clientWidth / 2,
          (view.y - points[2 * i + 1]) * view.scale + canvas.clientHeight / 2];
}
function toMap(px, py) {
  return [(px - canvas.clientWidth / 2) / view.scale + view.x, view.y - (py - canvas.clientHeight / 2) / view.scale];
}
function zoom(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
  const [x, y] = toMap(px, py);
  view.scale = Math.min(Math.max(view.scale * factor, home.scale / 2), home.scale * 4000);
  const [nx, ny] = toMap(px, py);
  view.x += x - nx; view.y += y - ny;
  draw();
}
function glide(target) {
  const from = {...view}, start = performance.now(), mine = ++moving;
  if (still.matches) { view = target; return draw(); }
  const frame = time => {
    if (mine !== moving) return;
    const share = Math.min(1, (time - start) / 400), ease = share * share * (3 - 2 * share);
    view = {x: from.x + (target.x - from.x) * ease, y: from.y + (target.y - from.y) * ease,
            scale: from.scale * (target.scale / from.scale) ** ease};
    draw();
    if (share < 1) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

// ---- drawing

function draw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; paint(); });
}
function paint() {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  }
  const closeUp = view.scale / home.scale > 6 || count < 500;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  const visible = closeUp ? dots(ratio, width, height) : pixels(ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (visible) labels(visible);
  const marks = chosen < 0 ? [] : [...neighborsOf(chosen).map(one => one[0]), chosen];
  for (const i of marks) mark(i, i === chosen);
}
function pixels(ratio) {
  const image = context.createImageData(canvas.width, canvas.height), target = new Uint32Array(image.data.buffer);
  const ink = tint(color("--muted"));
  const scale = view.scale * ratio, left = canvas.width / 2 - view.x * scale, top = canvas.height / 2 + view.y * scale;
  const size = ratio > 1.5 ? 2 : 1, w = canvas.width, h = canvas.height;
  for (let i = 0; i < count; i++) {
    const x = (points[2 * i] * scale + left) | 0, y = (top - points[2 * i + 1] * scale) | 0;
    if (!(x >= 0 && y >= 0 && x < w - 1 && y < h - 1) || !valid(i)) continue;
    target[y * w + x] = ink;
    target[y * w + x + 1] = ink;
    if (size > 1) { target[(y + 1) * w + x] = ink; target[(y + 1) * w + x + 1] = ink; }
  }
  context.putImageData(image, 0, 0);
  return null;
}
function tint(hex) {
  const value = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}
function dots(ratio, width, height) {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = color("--line-strong");
  const visible = [];
  for (let i = 0; i < count; i++) {
    if (!valid(i)) continue;
    const [x, y] = toScreen(i);
    if (x < 0 || y < 0 || x > width || y > height) continue;
    visible.push(i);
    context.fillRect(x - 1.5, y - 1.5, 3, 3);
  }
  return visible;
}
function labels(visible) {
  context.font = `12px ${color("--mono")}`;
  context.fillStyle = color("--ink");
  const taken = new Set();
  for (const i of visible.slice(0, 4000)) {
    const [x, y] = toScreen(i), row = Math.round(y / 14), column = Math.round(x / 72);
    if (taken.has(`${row},${column}`)) continue;
    taken.add(`${row},${column}`);
    context.fillText(shown(i).slice(0, 18), x + 4, y + 4);
  }
}
function mark(i, strong) {
  if (!valid(i)) return;
  const [x, y] = toScreen(i);
  context.beginPath();
  context.arc(x, y, strong ? 6 : 4, 0, 7);
  context.fillStyle = color(strong ? "--hot" : "--cold");
  context.fill();
  context.font = `${strong ? "bold " : ""}13px ${color("--mono")}`;
  context.lineWidth = 3;
  context.strokeStyle = color("--surface");
  context.strokeText(shown(i), x + 8, y + 4);
  context.fillStyle = color("--ink");
  context.fillText(shown(i), x + 8, y + 4);
}

// ---- one token: its true neighbors, and how many of them the map keeps

function neighborsOf(index) {
  if (!near) return [];
  return Array.from({length: K}, (_, j) => [near[index * K + j], cosines[index * K + j]]).filter(one => one[0] >= 0);
}
function choose(index, move) {
  chosen = index;
  document.getElementById("token").textContent = `${shown(index)}  #${index}`;
  const share = kept && !Number.isNaN(kept[index]) ? `${Math.round(kept[index] * 100)}% of its ${data.measured} true neighbors are also neighbors on the map. ` : "";
  const place = valid(index) ? "" : "This row has no direction, so it is not on the map. ";
  document.getElementById("about").textContent = place + share + (near ? "Its nearest tokens, by cosine over all channels:" : "");
  list.replaceChildren(...neighborsOf(index).map(([other, cosine]) => {
    const item = document.createElement("li"), button = document.createElement("button");
    const name = document.createElement("span"), score = document.createElement("span");
    name.textContent = shown(other); score.textContent = cosine.toFixed(3);
    button.type = "button"; button.append(name, score);
    button.addEventListener("click", () => choose(other, true));
    item.append(button);
    return item;
  }));
  history.replaceState(null, "", `#token=${index}`);
  if (move && valid(index)) glide(around([index, ...neighborsOf(index).map(one => one[0])].filter(valid)));
  else draw();
}
function find(text) {
  const exact = [data.texts.indexOf(` ${text}`), data.texts.indexOf(`\u2581${text}`), data.texts.indexOf(text)].find(i => i >= 0);
  const index = exact ?? data.texts.findIndex(one => one.toLowerCase().includes(text.toLowerCase()));
  const query = document.getElementById("query");
  query.setCustomValidity(index < 0 || index === undefined ? "no token contains this text" : "");
  if (query.reportValidity() && text) choose(index, true);
}

// ---- input

canvas.addEventListener("wheel", event => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY); }, {passive: false});
let drag = null;
canvas.addEventListener("pointerdown", event => { drag = {x: event.offsetX, y: event.offsetY, moved: false}; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointermove", event => {
  if (drag) {
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    if (drag.moved || Math.hypot(dx, dy) > 3) {
      view.x -= dx / view.scale; view.y += dy / view.scale;
      drag = {x: event.offsetX, y: event.offsetY, moved: true};
      moving++; draw();
    }
    return;
  }
  hovered = nearestPoint(event.offsetX, event.offsetY, 8);
  tip.hidden = hovered < 0;
  if (hovered >= 0) {
    tip.textContent = shown(hovered) + (kept && !Number.isNaN(kept[hovered]) ? `  ${Math.round(kept[hovered] * 100)}% kept` : "");
    tip.style.left = `${Math.min(event.offsetX + 12, canvas.clientWidth - 120)}px`;
    tip.style.top = `${event.offsetY + 12}px`;
  }
});
canvas.addEventListener("pointerup", event => {
  if (drag && !drag.moved) { const index = nearestPoint(event.offsetX, event.offsetY, 12); if (index >= 0) choose(index, false); }
  drag = null;
});
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
canvas.addEventListener("keydown", event => {
  const step = 60 / view.scale;
  const actions = {
    ArrowLeft: () => { view.x -= step; }, ArrowRight: () => { view.x += step; },
    ArrowUp: () => { view.y += step; }, ArrowDown: () => { view.y -= step; },
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": () => glide(fit()),
  };
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); draw(); }
});
document.getElementById("find").addEventListener("submit", event => { event.preventDefault(); find(document.getElementById("query").value.trim()); });
document.getElementById("query").addEventListener("input", event => {
  event.target.setCustomValidity("");
  const text = event.target.value.trim().toLowerCase(), options = [];
  if (text) for (let i = 0; i < count && options.length < 12; i++) if (data.texts[i].toLowerCase().trim().startsWith(text)) {
    const option = document.createElement("option");
    option.value = data.texts[i].trim();
    options.push(option);
  }
  document.getElementById("matches").replaceChildren(...options);
});
document.getElementById("all").addEventListener("click", () => glide(fit()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => { const atHome = !view || view.scale === home.scale; home = fit(); if (atHome) view = {...home}; draw(); }).observe(canvas);
home = fit(); view = {...home};
const start = /token=(\d+)/.exec(location.hash);
if (start && Number(start[1]) < count) choose(Number(start[1]), true); else draw();
window.inlayerMap = {points, near, cosines, kept, nearestPoint, choose, get view() { return view; }};

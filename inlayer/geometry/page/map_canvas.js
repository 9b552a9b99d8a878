// A map of a table on a canvas: every row is a point. Used by the map, comparison, and walk pages.
//
// makeMap(canvas, data, options) -> map
// data: {points, texts, neighborhood_preservation?, preservation_k?, near?, cosines?, k?}; a row with NaN is not on the map
// options: {onHover(id | null), onChoose(id), isStill(), byKind: color tokens by what they look like, fitMost: first show
// most points, so that maps have the same size}

const MOVE_TIME = 400; // milliseconds
const MAX_ZOOM = 4000;
const MOVING_PIXELS = 2 ** 21; // pixels in the picture of the points while the view moves; larger canvases scale it up
const MOVING_POINTS = 2 ** 17; // points drawn while the view moves; if there are more, an even sample is drawn
const REST_TIME = 100; // milliseconds without movement, after which every point and every pixel is drawn

function makeMap(canvas, data, options = {}) {
  const context = canvas.getContext("2d");
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  const density = makeDensity(), images = makeTextImages(), picture = document.createElement("canvas");
  const tip = document.createElement("p");
  const scene = { marks: [], chosen: -1, near: [], arrows: [], hovered: -1, lit: -1 };
  let facts, points, grid, picker, groups = null, palette = [], byKind = false;
  let size = null, view = null, home = null, framed = null, moves = new Map(), pending = 0, lastTime = 0, labels = [];
  let colors = null, image = null, painted = "", version = 0, lastPosition = "", movedAt = -Infinity;
  tip.className = "map-tip";
  tip.hidden = true;
  canvas.parentElement.append(tip);

  const isStill = () => reduced.matches || Boolean(options.isStill?.());
  const isPlaced = (id) => id >= 0 && id < facts.texts.length && Number.isFinite(points[2 * id]) && Number.isFinite(points[2 * id + 1]);
  const labelOf = (id) => tokenText(facts.texts[id] ?? `#${id}`);
  const shortLabel = (id) => {
    const word = facts.texts[id].replace(/^[ \u2581\u0120]/, "");
    return /^\p{L}/u.test(word) && word !== facts.texts[id] ? word : labelOf(id); // a whole word is shown without its space
  };

  // ---- the view: the point of the map in the middle, and pixels per unit

  const measured = () => [canvas.clientWidth || 1, canvas.clientHeight || 1]; // slow: the browser updates its layout
  const width = () => (size ?? measured())[0], height = () => (size ?? measured())[1];
  const toPixels = ([dx, dy]) => [dx * view.scale, -dy * view.scale];
  function toScreen(id) {
    return [(points[2 * id] - view.x) * view.scale + width() / 2, (view.y - points[2 * id + 1]) * view.scale + height() / 2];
  }
  function toMap(px, py) {
    return [(px - width() / 2) / view.scale + view.x, view.y - (py - height() / 2) / view.scale];
  }
  function viewOf({ left, right, bottom, top }, share) {
    const scale = share * Math.min(width() / (right - left || 1e-9), height() / (top - bottom || 1e-9));
    return { x: (left + right) / 2, y: (bottom + top) / 2, scale };
  }
  const wholeView = () => viewOf(options.fitMost && grid.count > 0 ? grid.middle ??= middleBox(grid) : grid.box, 0.92);
  function viewAround(ids) {
    const box = { left: Infinity, right: -Infinity, bottom: Infinity, top: -Infinity };
    for (const id of ids) {
      const x = points[2 * id], y = points[2 * id + 1];
      Object.assign(box, { left: Math.min(box.left, x), right: Math.max(box.right, x), bottom: Math.min(box.bottom, y), top: Math.max(box.top, y) });
    }
    const found = viewOf(box, 0.6);
    return { ...found, scale: Math.min(Math.max(found.scale, home.scale), home.scale * 14) };
  }
  const smallest = () => 0.5 * Math.min(home.scale, viewOf(grid.box, 0.92).scale);
  const limited = (scale) => Math.min(Math.max(scale, smallest()), home.scale * MAX_ZOOM);

  // ---- motion: named moves that run until their function returns false

  function start(name, frame) {
    moves.set(name, frame);
    redraw();
  }
  function over(name, duration, frame, done) {
    if (isStill()) { moves.delete(name); frame(1); done?.(); redraw(); return; }
    const begin = performance.now();
    start(name, (time) => {
      const share = Math.min(1, Math.max(0, (time - begin) / duration));
      frame(share * share * (3 - 2 * share));
      if (share === 1) done?.();
      return share < 1;
    });
  }
  function glide(target) {
    const from = { ...view }, far = Math.hypot(target.x - from.x, target.y - from.y);
    const between = Math.min(from.scale, target.scale, 0.8 * Math.min(width(), height()) / (far || 1e-9));
    const lift = Math.log(Math.min(from.scale, target.scale) / between); // both ends are visible halfway
    moves.delete("zoom");
    moves.delete("drift");
    over("glide", MOVE_TIME * (1 + Math.min(1, lift / 3)), (share) => {
      const scale = from.scale * (target.scale / from.scale) ** share * Math.exp(-lift * 4 * share * (1 - share));
      const part = target.scale === from.scale && lift === 0 ? share : panned(share, from.scale, target.scale);
      view = { x: from.x + (target.x - from.x) * part, y: from.y + (target.y - from.y) * part, scale };
    });
  }
  // Panning is paced so that it looks even on the screen while the scale changes.
  function panned(share, from, to) {
    const ratio = to / from;
    if (Math.abs(Math.log(ratio)) < 0.01) return share;
    return (1 - ratio ** -share) / (1 - 1 / ratio);
  }
  function zoom(factor, px = width() / 2, py = height() / 2) {
    const goal = limited((moves.get("zoom")?.goal ?? view.scale) * factor), [x, y] = toMap(px, py);
    const toward = (scale) => {
      view = { scale, x: x - (px - width() / 2) / scale, y: y + (py - height() / 2) / scale };
    };
    framed = null;
    moves.delete("glide");
    moves.delete("drift");
    if (isStill()) { toward(goal); redraw(); return; }
    let last = performance.now();
    const frame = (time) => {
      const rest = Math.exp(-Math.max(0, time - last) / 70);
      last = time;
      const next = goal * (view.scale / goal) ** rest;
      toward(Math.abs(next / goal - 1) < 0.002 ? goal : next);
      return view.scale !== goal;
    };
    frame.goal = goal;
    start("zoom", frame);
  }
  function pan(dx, dy) {
    framed = null;
    view = { ...view, x: view.x - dx / view.scale, y: view.y + dy / view.scale };
    redraw();
  }
  function slide(dx, dy) { // moves by keys: smoothly, and further with every key
    const goal = moves.get("slide")?.goal ?? [0, 0];
    const left = [goal[0] + dx, goal[1] + dy];
    moves.delete("glide");
    if (isStill()) return pan(dx, dy);
    let last = performance.now();
    const frame = (time) => {
      const part = 1 - Math.exp(-Math.max(0, time - last) / 70), [x, y] = left.map((one) => (Math.abs(one) < 1 ? one : one * part));
      last = time;
      [left[0], left[1]] = [left[0] - x, left[1] - y];
      pan(x, y);
      return left[0] !== 0 || left[1] !== 0;
    };
    frame.goal = left;
    start("slide", frame);
  }
  function drift(vx, vy) { // pixels per millisecond, after a drag is released
    if (isStill() || Math.hypot(vx, vy) < 0.1) return;
    let last = performance.now();
    start("drift", (time) => {
      const spent = Math.max(0, time - last), rest = Math.exp(-spent / 120);
      last = time;
      pan(vx * spent, vy * spent);
      vx *= rest;
      vy *= rest;
      return Math.hypot(vx, vy) > 0.02;
    });
  }

  // ---- drawing

  function redraw() {
    if (pending || !view) return;
    pending = requestAnimationFrame((time) => {
      [pending, size] = [0, measured()];
      for (const [name, frame] of moves) if (!frame(time) && moves.get(name) === frame) moves.delete(name);
      paint(time);
      size = null;
      if (moves.size > 0 || time - movedAt < REST_TIME) redraw();
    });
  }
  function readColors() {
    const style = getComputedStyle(canvas), read = (name) => style.getPropertyValue(name).trim();
    const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    if (byKind) palette = TOKEN_KINDS.map((_, kind) => read(`--kind-${kind}`));
    colors = { ink: read("--ink"), muted: read("--muted"), surface: read("--surface"), accent: read("--accent"), sans: read("--sans"), rgb };
    images.clear();
    painted = "";
  }
  const pointSize = () => {
    const base = Math.min(2.2, Math.max(0.6, 3.7 - 0.54 * Math.log10(grid.count + 10)));
    const room = Math.min(1, Math.max(0.55, Math.sqrt(width() * height() / 800000))); // smaller on a small canvas
    return Math.min(4.5, base * room * Math.max(1, view.scale / home.scale) ** 0.3);
  };
  function tones(ratio) {
    const { rgb } = colors, dark = rgb(colors.surface)[0] < 128;
    const size = pointSize(), area = (grid.box.right - grid.box.left) * (grid.box.top - grid.box.bottom) * view.scale ** 2 || 1;
    const overlap = 4 * grid.count * Math.PI * size ** 2 / area;
    const base = { low: rgb(colors.muted), high: rgb(dark ? "#b9dfe4" : "#0b3b44"), faint: palette.length > 1 ? 0.28 : dark ? 0.4 : 0.45, strong: palette.length > 1 ? 0.5 : 0.9 };
    const [faint, strong] = byKind ? [0.8, 0.95] : [0.9, 1];
    const rest = palette.slice(1).map((color) => ({ low: rgb(color), high: rgb(color), faint, strong }));
    return densityTones([base, ...rest], Math.max(1, overlap) * ratio ** 0.5);
  }
  function paintPoints(time) {
    const here = [view.x, view.y, view.scale, version].join();
    if (lastPosition !== "" && here !== lastPosition) [movedAt, tip.hidden] = [time, true]; // the point has moved
    lastPosition = here;
    const moving = time - movedAt < REST_TIME, most = moving ? MOVING_PIXELS : Infinity;
    const ratio = Math.min(canvas.width / width(), Math.sqrt(most / (width() * height())));
    const [w, h] = [Math.round(width() * ratio), Math.round(height() * ratio)];
    const frame = [...toMap(-8, height() + 8), ...toMap(width() + 8, -8)]; // left, bottom, right, top
    const every = moving ? Math.ceil(grid.countIn(...frame) / MOVING_POINTS) || 1 : 1;
    const key = [here, w, h, every].join();
    if (key !== painted) {
      const place = { scale: view.scale * ratio, left: w / 2 - view.x * view.scale * ratio, top: h / 2 + view.y * view.scale * ratio };
      image = density.draw(w, h, { grid, frame, every, place, radius: pointSize() * ratio, groups, tones: tones(ratio) });
      painted = key;
    }
    if (w === canvas.width && h === canvas.height) return context.putImageData(image, 0, 0);
    if (picture.width !== w || picture.height !== h) Object.assign(picture, { width: w, height: h });
    picture.getContext("2d").putImageData(image, 0, 0);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  }
  const fits = (box) => box.left >= 0 && box.top >= 0 && box.right <= width() && box.bottom <= height(); // true if the whole label is visible
  function paint(time) {
    const ratio = devicePixelRatio || 1, pixels = [Math.round(width() * ratio), Math.round(height() * ratio)];
    if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) { [canvas.width, canvas.height] = pixels; images.clear(); }
    if (colors === null) readColors();
    paintPoints(time);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const boxes = makeBoxes(), drawn = [];
    labels = [];
    const text = (label, at, style, away) => {
      const made = images.image(label, styleOf(style), ratio);
      const places = labelBoxes(...at, made.width, made.height, away), free = places.filter(boxes.isFree);
      if (free.length === 0 && style !== "chosen") return;
      const box = free.find(fits) ?? free[0] ?? places[0];
      boxes.add(box);
      labels.push(box);
      drawn.push([made, box]);
    };
    const skip = drawMapOverlay(context, scene, { toScreen, isPlaced, toPixels, colors, boxes, text, labelOf: shortLabel });
    paintLabels(boxes, skip, ratio, time);
    for (const [made, box] of drawn) stamp(made, box.left, box.top);
    lastTime = time;
    canvas.dataset.drawn = facts.method ?? "";
  }
  function stamp(made, left, top) {
    context.drawImage(made.canvas, left - made.pad, top - made.pad, made.width + 2 * made.pad, made.height + 2 * made.pad);
  }
  function styleOf(kind) {
    const size = kind === "plain" ? LABEL_FONT : kind === "near" ? 12 : 13;
    const weight = kind === "plain" ? 400 : kind === "near" ? 500 : 650;
    return { key: kind, size, font: `${weight} ${size}px ${colors.sans}`, ink: kind === "plain" ? colors.muted : colors.ink, halo: colors.surface };
  }
  function paintLabels(boxes, skip, ratio, time) {
    const [left, top] = toMap(0, 0), [right, bottom] = toMap(width(), height());
    const isInside = (id) => {
      const x = points[2 * id], y = points[2 * id + 1];
      return x > left && x < right && y > bottom && y < top;
    };
    const depth = Math.min(1, Math.max(0, Math.log2(view.scale / home.scale) / 4));
    const most = Math.max(8, width() * height() / 6000);
    if (!moves.has("layout")) picker.pick({ grid, frame: { left, right, bottom, top }, fits, toScreen, isInside, boxes, depth, most, skip });
    if (picker.fade(isStill() ? 1 : Math.min(0.5, Math.max(0.02, (time - lastTime) / 200)))) redraw();
    for (const [id, label] of picker.shown) {
      const made = images.image(picker.name(id), styleOf("plain"), ratio), [x, y] = toScreen(id);
      const box = labelBoxes(x, y, made.width, LABEL_FONT + 4, 5)[label.side];
      if (!label.wanted && !boxes.isFree(box)) { picker.shown.delete(id); continue; } // it was fading out
      context.globalAlpha = label.alpha;
      boxes.add(box);
      labels.push(box);
      stamp(made, box.left, box.top);
    }
    context.globalAlpha = 1;
  }

  // ---- data

  function place(newPoints) {
    points = newPoints;
    grid = makePointGrid(points);
    version += 1;
  }
  // With new coordinates, the same rows move there; different rows replace the map.
  function setData(newData) {
    const before = facts && { points, box: grid.box, texts: facts.texts }, next = readMapData(newData);
    const same = before && view && before.texts.length === next.texts.length && next.texts.every((text, id) => text === before.texts[id]);
    facts = next;
    if (!same) {
      place(facts.points);
      picker = makeLabelPicker(facts, shortLabel, (text) => images.measure(text, styleOf("plain")));
      Object.assign(scene, { marks: [], chosen: -1, near: [], arrows: [], hovered: -1, lit: -1 });
      byKind = Boolean(options.byKind) && picker.kinds.some(Boolean);
      [groups, palette, home, colors] = [byKind ? picker.kinds : null, [], null, null];
      fit(false);
      return;
    }
    const end = makePointGrid(facts.points).box, from = middleOf(before.box), to = middleOf(end), grow = to.size / from.size;
    const old = before.points.map((value, i) => (i % 2 ? (value - from.y) * grow + to.y : (value - from.x) * grow + to.x));
    view = { x: (view.x - from.x) * grow + to.x, y: (view.y - from.y) * grow + to.y, scale: view.scale / grow };
    const mixed = new Float32Array(old.length), wasHome = framed?.length === 0;
    over("layout", 2 * MOVE_TIME, (share) => {
      for (let i = 0; i < old.length; i += 1) mixed[i] = old[i] + (facts.points[i] - old[i]) * share;
      place(mixed);
    }, () => {
      place(facts.points);
      home = wholeView();
      if (wasHome) fit();
      else if (scene.chosen >= 0) glideTo(around(scene.chosen, scene.near));
    });
  }

  // ---- the interface for pages

  function fit(move = true) {
    home = wholeView();
    if (move && view) glide(home);
    else { view = { ...home }; redraw(); }
    framed = [];
  }
  function glideTo(ids) {
    const placed = ids.filter(isPlaced);
    if (placed.length === 0) return;
    glide(viewAround(placed));
    framed = placed;
  }
  function neighborsOf(id) {
    if (!facts.near || id < 0) return [];
    const from = id * facts.k;
    return Array.from(facts.near.subarray(from, from + facts.k), (other, i) => [other, facts.cosines?.[from + i]])
      .filter(([other]) => other >= 0);
  }
  function choose(id, move = true, near = neighborsOf(id).map(([other]) => other)) {
    [tip.hidden, scene.chosen, scene.near] = [true, id ?? -1, id === null || id < 0 ? [] : near];
    if (move && scene.chosen >= 0) glideTo(around(scene.chosen, scene.near));
    redraw();
  }
  // A token and most of its neighbors; a few distant ones would make the rest tiny.
  function around(id, near) {
    const far = (other) => Math.hypot(points[2 * other] - points[2 * id], points[2 * other + 1] - points[2 * id + 1]);
    const placed = near.filter(isPlaced).sort((a, b) => far(a) - far(b));
    return [id, ...placed.slice(0, Math.ceil(placed.length * 0.6))];
  }
  function find(text) {
    const wanted = text.trim(), { texts } = facts;
    if (wanted === "") return -1;
    for (const one of [` ${wanted}`, `\u2581${wanted}`, `\u0120${wanted}`, wanted, text]) {
      const id = texts.indexOf(one);
      if (id >= 0) return id;
    }
    return texts.findIndex((one) => one.toLowerCase().includes(wanted.toLowerCase()));
  }
  function suggestions(text, most = 12) {
    const wanted = text.trim().toLowerCase(), found = new Set();
    for (let id = 0; wanted && id < facts.texts.length && found.size < most; id += 1) {
      const one = facts.texts[id].replace(/^[ \u2581\u0120]/, "").trim();
      if (one.toLowerCase().startsWith(wanted)) found.add(one);
    }
    return [...found];
  }
  function describe(id) {
    const share = facts.neighborhood_preservation?.[id];
    const kept = share === undefined || Number.isNaN(share) ? "" : `\n${Math.round(share * 100)}% of its ${facts.preservation_k} nearest tokens are also its neighbors on this map`;
    return `${labelOf(id)}${facts.texts[id] === `#${id}` ? "" : `  #${id}`}${kept}`;
  }
  function hover(id, px, py) {
    const changed = id !== scene.hovered;
    scene.hovered = id;
    tip.hidden = id < 0 || px === undefined;
    if (!tip.hidden) {
      tip.textContent = describe(id);
      tip.style.left = `${Math.max(4, Math.min(px + 14, width() - tip.offsetWidth - 4))}px`;
      tip.style.top = `${py + 16 + tip.offsetHeight > height() ? py - tip.offsetHeight - 10 : py + 16}px`;
    }
    if (!changed) return;
    options.onHover?.(id < 0 ? null : id);
    redraw();
  }
  const nearestPoint = (px, py, reach = 10) => grid.nearest(...toMap(px, py), reach / view.scale);
  // A marked token is easier to hit than the points around it.
  function pointAt(px, py) {
    const close = (id) => { const [x, y] = isPlaced(id) ? toScreen(id) : [Infinity, 0]; return Math.hypot(x - px, y - py) < 9; };
    return [scene.chosen, ...scene.marks.map((mark) => mark.id), ...scene.near].find(close) ?? nearestPoint(px, py);
  }

  const map = {
    setData, choose, find, suggestions, fit, glideTo, redraw, nearestPoint, toScreen, neighborsOf, isPlaced,
    setMarks(marks) { scene.marks = marks; redraw(); },
    setArrows(arrows) { scene.arrows = arrows; redraw(); },
    setColors(indices, shades) { [groups, palette, byKind] = [indices, shades ?? [], false]; version += 1; redraw(); },
    highlight(id) { scene.lit = id ?? -1; redraw(); },
    zoom, pan,
    get view() { return view; },
    set view(next) { moves.clear(); framed = null; view = { ...next }; redraw(); },
    get data() { return facts; },
    get kinds() { return picker.kinds; },
    get scene() { return scene; },
    get labels() { return labels; }, // boxes on the screen
    get moving() { return moves.size > 0 || pending > 0; },
  };
  listenToMap(canvas, { map, zoom, pan, slide, drift, pointAt, hover, stop: () => moves.clear(),
    isSmallest: () => view.scale <= 1.02 * smallest(),
    chosen(id) { choose(id, false); options.onChoose?.(id); } });
  const recolor = () => { colors = null; redraw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  new MutationObserver(recolor).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  new ResizeObserver(() => {
    [home, tip.hidden] = [wholeView(), true];
    if (framed) { moves.delete("glide"); view = framed.length > 0 ? viewAround(framed) : { ...home }; }
    redraw();
  }).observe(canvas);
  setData(data);
  return map;
}

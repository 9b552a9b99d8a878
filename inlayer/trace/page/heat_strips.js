// Heat strips: the vectors of the tokens on the canvas of the scene, one strip per token with a color per channel.
// (The token panel has a strip of cells that can be selected: rowStrip in token.js.)

const PALE = 8; // times

// ---- images: one line of pixels per token, one pixel per channel

function sceneImages() {
  if (scene.images) return scene.images;
  const strips = {}, known = Object.entries(scene.data.strips).filter(([, strip]) => strip !== null);
  for (const [name, strip] of known) strips[name] = heatImage(bytesIn(strip.values), strip.width, strip.scale / sceneScale(name));
  const { table } = scene;
  scene.images = { strips, cosines: new Map(), table: table && heatImage(bytesIn(table.values), table.channels.length) };
  return scene.images;
}

// Rows, positions, and their sum have one scale, so a color means the same number in all of them. Hidden states that a
// norm or a factor makes larger have their own scale, as do rows or positions that would look pale next to the others.
function sceneScale(name) {
  const { row, position, hidden } = scene.data.strips;
  if (name === scene.pale) return scene.data.strips[name].scale;
  const before = Math.max(row.scale, position?.scale ?? 0);
  if (isOnlySum()) return Math.max(before, hidden.scale);
  return name === "hidden" ? hidden.scale : before;
}

// "row" or "position": the one whose values are many times smaller, if there is one.
function paleStrip({ row, position }) {
  if (!position) return null;
  const pale = row.scale < position.scale ? "row" : "position", [low, high] = [row.scale, position.scale].sort((a, b) => a - b);
  const isZero = (strip) => bytesIn(strip.values).every((value) => value === 0); // its scale is meaningless
  return high < PALE * low || isZero(row) || isZero(position) ? null : pale;
}

// Returns whether the hidden states are the rows plus the positions, without any other stage.
function isOnlySum() {
  return current.trace.stages.every((stage) => stage.name === "position");
}

function bytesIn(base64) {
  const text = atob(base64);
  const values = new Int8Array(text.length);
  for (let index = 0; index < text.length; index += 1) values[index] = text.charCodeAt(index);
  return values;
}

function heatImage(values, width, factor = 1) {
  const height = Math.max(1, Math.floor(values.length / Math.max(1, width)));
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(Math.max(1, width), height);
  const pixels = new Uint32Array(image.data.buffer), colors = heatPalette();
  const nonFinite = new Uint32Array(height); // number of non-finite values in each row
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    pixels[index] = colors[value === -128 ? 0 : Math.round(value * factor) + 128];
    if (value === -128) nonFinite[Math.floor(index / width)] += 1;
  }
  context.putImageData(image, 0, 0);
  canvas.nonFinite = nonFinite;
  return canvas;
}

// ---- painting

// A row with non-finite values is outlined, and labeled where nothing else is drawn.
function outlineNonFinite(context, { x, y, w, h }, isEmpty) {
  context.strokeStyle = cssColor("--muted");
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  context.setLineDash([]);
  if (isEmpty && h > 10) paintText(context, "not finite", x + 8, y + h / 2, { color: cssColor("--muted") });
}

// A wide image scaled to the pixels of a lane. It is kept, because narrowing strips in every frame is slow.
function narrowed(image, width) {
  if (image.width <= width) return image;
  if (image.narrow?.width !== width) {
    image.narrow = make("canvas", { width, height: image.height });
    image.narrow.getContext("2d").drawImage(image, 0, 0, width, image.height);
  }
  return image.narrow;
}

function paintHeatStrips(context, parts, lane, [from, to]) {
  const image = sceneImages().strips[lane.name] ?? sceneImages().strips.row;
  const strips = narrowed(image, Math.max(1, Math.round(lane.w * context.getTransform().a)));
  context.imageSmoothingEnabled = false;
  const perText = scene.data.tokens;
  for (let index = from; index < Math.min(to, parts.tokens.length); index += 1) {
    const { token, b, t } = parts.tokens[index];
    if (t >= perText) continue;
    const target = stripRect(parts, lane, index);
    const rect = lane.from ? mixedRect(stripRect(parts, lane.from, index), target, lane.share) : target;
    context.globalAlpha = lane.alpha * (isDimmed(token.id, b, t) ? 0.25 : 1);
    context.drawImage(strips, 0, b * perText + t, strips.width, 1, rect.x, rect.y, rect.w, rect.h);
    const nonFinite = image.nonFinite[b * perText + t];
    if (!lane.inTable && nonFinite > 0) outlineNonFinite(context, rect, nonFinite === image.width);
    if (isLit(token.id) || lane.inTable) {
      context.strokeStyle = tokenColor(token.id);
      context.lineWidth = 1.5;
      context.strokeRect(rect.x - 1, rect.y - 1, rect.w + 2, rect.h + 2);
    }
  }
  context.globalAlpha = 1;
  if (lane.sign) paintText(context, lane.sign, lane.x - GAP / 2, Math.min(parts.tokens.length, 14) * parts.line / 2, {
    size: 18, align: "center", color: cssColor("--muted"),
  });
}

function mixedRect(from, to, share) {
  const mix = (name) => from[name] + (to[name] - from[name]) * share;
  return { x: mix("x"), y: mix("y"), w: mix("w"), h: mix("h") };
}

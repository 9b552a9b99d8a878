// Everything drawn over a map's points: marked tokens in text order, the chosen token with its neighbors, arrows.

const MARK_SIZE = 5; // radius in pixels

// A curve from one point to the next, bent to one side, with a small arrowhead in the middle that shows the direction.
function drawPath(context, from, to, color, width) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]], length = Math.hypot(dx, dy);
  if (length < 2 * MARK_SIZE) return;
  const bend = Math.min(0.16 * length, 60) / length;
  const middle = [(from[0] + to[0]) / 2 - dy * bend, (from[1] + to[1]) / 2 + dx * bend];
  context.strokeStyle = color;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(...from);
  context.quadraticCurveTo(...middle, ...to);
  context.stroke();
  if (length < 48) return;
  const tip = [(from[0] + 2 * middle[0] + to[0]) / 4, (from[1] + 2 * middle[1] + to[1]) / 4];
  drawTip(context, tip, Math.atan2(dy, dx), 5, color);
}

function drawTip(context, [x, y], angle, size, color) {
  context.fillStyle = color;
  context.beginPath();
  for (const [offset, radius] of [[0, size], [2.5, size], [-2.5, size]]) {
    context.lineTo(x + radius * Math.cos(angle + offset), y + radius * Math.sin(angle + offset));
  }
  context.fill();
}

function drawDot(context, [x, y], radius, color, ring) {
  const circle = (size) => { context.beginPath(); context.arc(x, y, size, 0, 7); context.fill(); };
  context.fillStyle = ring;
  circle(radius + 2);
  context.fillStyle = color;
  context.globalAlpha *= 0.22;
  circle(radius + 6);
  context.globalAlpha /= 0.22;
  circle(radius);
}

function drawRing(context, [x, y], radius, color) {
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.stroke();
}

function drawArrow(context, from, to, color) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]], length = Math.hypot(dx, dy);
  if (length < 1) return;
  const size = Math.min(7, length / 2 + 2), angle = Math.atan2(dy, dx);
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(to[0] - size * Math.cos(angle), to[1] - size * Math.sin(angle));
  context.stroke();
  drawTip(context, [to[0] - size * Math.cos(angle), to[1] - size * Math.sin(angle)], angle, size, color);
}

// Draws marks, neighbors, and arrows; their labels take free areas in `boxes` before the background's labels.
// scene: {marks, chosen, near, arrows, hovered, lit}; text(label, point, style, distance) draws a label.
function drawMapOverlay(context, scene, { toScreen, isPlaced, toPixels, colors, boxes, text, labelOf }) {
  const { marks, chosen, near, arrows } = scene;
  const placed = marks.filter((mark) => isPlaced(mark.id));
  context.lineCap = "round";

  context.globalAlpha = arrows.length > 0 ? 0.12 : placed.length > 40 || isPlaced(chosen) ? 0.3 : 0.75;
  for (let i = 1; i < placed.length; i += 1) {
    if (placed[i].line !== placed[i - 1].line) continue; // this mark belongs to another text
    drawPath(context, toScreen(placed[i - 1].id), toScreen(placed[i].id), placed[i].color, placed.length > 40 ? 1 : 1.5);
  }
  context.globalAlpha = 1;

  const others = near.filter((id) => id !== chosen && isPlaced(id));
  if (isPlaced(chosen)) {
    context.globalAlpha = 0.6;
    context.strokeStyle = colors.accent;
    context.lineWidth = 1.25;
    context.beginPath();
    for (const id of others) { context.moveTo(...toScreen(chosen)); context.lineTo(...toScreen(id)); }
    context.stroke();
    context.globalAlpha = 1;
  }
  for (const { id, shift, color } of arrows) {
    if (!isPlaced(id)) continue;
    const [x, y] = toScreen(id), [dx, dy] = toPixels(shift);
    drawArrow(context, [x, y], [x + dx, y + dy], color ?? colors.ink);
  }

  const dots = new Map(); // id -> {radius, color, label, bold}; a later entry replaces an earlier one
  for (const id of others) dots.set(id, { radius: 3.5, color: colors.accent, label: labelOf(id), style: "near" });
  for (const { id, color, label } of placed) {
    dots.set(id, { radius: MARK_SIZE, color, label: label ?? labelOf(id), style: "mark" });
  }
  if (isPlaced(chosen)) {
    const mark = dots.get(chosen);
    dots.set(chosen, { radius: 6, color: mark?.color ?? colors.accent, label: mark?.label ?? labelOf(chosen), style: "chosen" });
  }
  const order = [...dots].sort(([, a], [, b]) => b.radius - a.radius);
  for (const [id] of order) {
    const [x, y] = toScreen(id);
    boxes.add({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 });
  }
  for (const [id, dot] of [...order].reverse()) drawDot(context, toScreen(id), dot.radius, dot.color, colors.surface);
  if (isPlaced(chosen)) drawRing(context, toScreen(chosen), 10, dots.get(chosen).color);
  for (const id of new Set([scene.hovered, scene.lit])) {
    if (isPlaced(id)) drawRing(context, toScreen(id), 9, dots.get(id)?.color ?? colors.ink);
  }
  for (const [id, dot] of order) text(dot.label, toScreen(id), dot.style, dot.radius + 4);
  return new Set(dots.keys());
}

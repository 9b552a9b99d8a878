// Draws the scene, and finds the element under the pointer.

const MIN_COSINE_CELL = 30; // smallest cell, in pixels, that fits a cosine with two decimals

function paintScene() {
  const canvas = byId("scene-canvas"), frame = byId("scene-scroll"), parts = scene.layout;
  if (!parts) return;
  const ratio = Math.min(3, devicePixelRatio || 1);
  const width = frame.clientWidth, height = frame.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    styled(canvas, { width: `${width}px`, height: `${height}px` });
  }
  const context = canvas.getContext("2d");
  const top = frame.scrollTop;
  context.setTransform(ratio, 0, 0, ratio, 0, -top * ratio);
  context.clearRect(0, top, width, height);
  const seen = [Math.max(0, Math.floor(top / parts.line)), Math.ceil((top + height) / parts.line)];
  paintTable(context, parts);
  if (parts.links > 0) paintLinks(context, parts, seen);
  for (const lane of parts.lanes) paintHeatStrips(context, parts, lane, seen);
  for (const square of parts.matrices) paintSimilarity(context, parts, square);
  paintLabels(context, parts, seen);
  paintCursor(context, parts);
}

function paintTable(context, parts) {
  const { table } = parts, image = sceneImages().table;
  if (!image || table.alpha <= 0) return;
  context.globalAlpha = table.alpha * 0.9;
  context.imageSmoothingEnabled = image.width > table.w;
  context.drawImage(image, table.x, table.y, table.w, table.h);
  context.globalAlpha = table.alpha;
  context.strokeStyle = cssColor("--line-strong");
  context.lineWidth = 1;
  context.strokeRect(table.x - 0.5, table.y + 0.5, table.w + 1, table.h - 1);
  context.globalAlpha = 1;
}

// Curves from a token to its row in the table, and from the row to its strip.
function paintLinks(context, parts, [from, to]) {
  const { table } = parts;
  const curve = (x, y, endX, endY) => {
    const middle = (x + endX) / 2;
    context.moveTo(x, y);
    context.bezierCurveTo(middle, y, middle, endY, endX, endY);
  };
  parts.tokens.slice(from, to).forEach(({ token, b, t }, offset) => {
    if (token.id === null) return;
    const index = from + offset, y = (index + 0.5) * parts.line, row = rowHeightInTable(parts, token.id);
    context.globalAlpha = parts.links * (isDimmed(token.id, b, t) ? 0.15 : 0.9);
    context.strokeStyle = context.fillStyle = tokenColor(token.id);
    context.lineWidth = isLit(token.id) ? 2.5 : 1.25;
    context.beginPath();
    curve(parts.left - 4, y, table.x - 2, row);
    for (const lane of parts.lanes) if (!lane.inTable) curve(table.x + table.w + 2, row, lane.x - 2, y);
    context.stroke();
    context.fillRect(table.x, row - 1, table.w, 2);
  });
  context.globalAlpha = 1;
}

// ---- similarity: one square per pair of tokens

function cosineColor(value) {
  const colors = sceneImages().cosines; // kept until the theme changes
  if (!colors.has(value)) colors.set(value, Number.isNaN(value) ? cssColor("--sunken") : `rgb(${heatColor(value, 1).join(" ")})`);
  return colors.get(value);
}

function paintSimilarity(context, parts, { name, x, y, size, alpha, isTitleBelow }) {
  const { tokens, [name]: cosines } = scene.data.similarity;
  const cell = size / tokens.length;
  context.globalAlpha = alpha;
  const titles = { row: ["before positions", "before"], hidden: ["after positions", "after"] };
  const [long, short] = parts.matrices.length > 1 ? titles[name] : ["cosine similarity", "cosines"];
  const which = current.trace.texts.length > 1 ? "text 1: " : "";
  paintText(context, which + (size < (which ? 200 : 136) ? short : long), x, isTitleBelow ? y + size + 16 : y - 10, { color: cssColor("--muted") });
  cosines.forEach((line, i) => line.forEach((cosine, j) => {
    const value = cosine === null ? NaN : toNumber(cosine);
    const dim = isSet(scene.highlighted) && ![tokens[i], tokens[j]].some((t) => isLit(current.trace.texts[0].tokens[t - (current.trace.first_token ?? 0)]?.id));
    context.fillStyle = cosineColor(value);
    context.globalAlpha = alpha * (dim ? 0.3 : 1);
    context.fillRect(x + j * cell, y + i * cell, Math.max(1, cell - (cell > 6 ? 1 : 0)), Math.max(1, cell - (cell > 6 ? 1 : 0)));
    if (cell >= MIN_COSINE_CELL && !Number.isNaN(value)) {
      const color = inkOn(heatColor(value, 1));
      paintText(context, signed(value.toFixed(2)), x + (j + 0.5) * cell, y + (i + 0.5) * cell, { size: Math.min(11, cell / 3.2), align: "center", color });
    }
  }));
  context.globalAlpha = alpha;
  tokens.forEach((t, i) => {
    const id = current.trace.texts[0].tokens[t - (current.trace.first_token ?? 0)]?.id;
    context.fillStyle = tokenColor(id);
    context.fillRect(x - 4, y + i * cell, 3, Math.max(1, cell - 1));
    context.fillRect(x + i * cell, y + size + 1, Math.max(1, cell - 1), 3);
  });
  context.globalAlpha = 1;
}

// ---- words on the canvas

function paintText(context, text, x, y, { size = 12, align = "left", color = cssColor("--ink"), bold = false } = {}) {
  context.font = `${bold ? "600 " : ""}${size}px ${cssColor("--mono")}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillStyle = color;
  context.fillText(text, x, y);
}

function paintLabels(context, parts, [from, to]) {
  const every = Math.max(1, Math.ceil(13 / parts.line)); // omits labels that would overlap
  for (let index = from; index < Math.min(to, parts.tokens.length); index += 1) {
    const { token, b, t } = parts.tokens[index];
    if (index % every && !isLit(token.id)) continue;
    const y = (index + 0.5) * parts.line - (parts.line > 8 ? 1.5 : 0);
    context.globalAlpha = isDimmed(token.id, b, t) ? 0.35 : 1;
    context.fillStyle = tokenColor(token.id);
    context.fillRect(0, y - Math.min(parts.line, 16) / 2 + 1, 4, Math.min(parts.line, 16) - 2);
    paintText(context, cut(nameOf(token), parts.left > 100 ? 11 : 6), 10, Math.max(y, 7), { bold: isLit(token.id) });
  }
  context.globalAlpha = 1;
}

function paintCursor(context, parts) {
  const { cursor } = scene;
  const lane = parts.lanes.find((candidate) => !candidate.inTable);
  if (!cursor || !lane) return;
  const rect = stripRect(parts, lane, cursor.index);
  const cell = lane.w / scene.data.width;
  context.strokeStyle = cssColor("--focus");
  context.lineWidth = 2;
  context.strokeRect(rect.x + cursor.channel * cell - 1, rect.y - 1, Math.max(3, cell) + 2, rect.h + 2);
}

// ---- highlighting: one token, everywhere

function highlightToken(token) {
  const id = token?.id ?? null;
  if (id === (scene.highlighted ?? null)) return;
  scene.highlighted = id;
  for (const element of document.querySelectorAll("[data-token-id].lit")) element.classList.remove("lit");
  if (id !== null) {
    for (const element of document.querySelectorAll(`[data-token-id="${id}"]`)) element.classList.add("lit");
  }
  document.dispatchEvent(new CustomEvent("token-highlight", { detail: token }));
}

// Hovering or focusing a token anywhere highlights it everywhere.
function listenForHighlights(container) {
  const find = (event) => event.target.closest?.("[data-token-id]");
  const light = (event) => {
    const { tokenId, b, t } = find(event)?.dataset ?? {};
    if (tokenId !== undefined) highlightToken({ id: Number(tokenId), b: Number(b), t: Number(t) });
  };
  const stop = (event) => find(event) && highlightToken(null);
  for (const [on, off] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
    container.addEventListener(on, light);
    container.addEventListener(off, stop);
  }
}

function isLit(id) {
  return isSet(scene.highlighted) && id === scene.highlighted;
}

function isDimmed(id) {
  return isSet(scene.highlighted) && hues.has(scene.highlighted) && id !== scene.highlighted;
}

function isSet(value) {
  return value !== null && value !== undefined;
}

// ---- pointer and keyboard

// The element at a point: {index, token, b, t, channel}, or {pair: [i, j], name, cosine}, or null.
function sceneHit(x, screenY) {
  const parts = scene.layout;
  const y = screenY + byId("scene-scroll").scrollTop;
  for (const square of parts.matrices) {
    const { tokens } = scene.data.similarity, cell = square.size / tokens.length;
    const i = Math.floor((y - square.y) / cell), j = Math.floor((x - square.x) / cell);
    if (i >= 0 && j >= 0 && i < tokens.length && j < tokens.length) {
      return { pair: [tokens[i], tokens[j]], cosine: scene.data.similarity[square.name][i][j], name: square.name };
    }
  }
  const { table } = parts;
  if (table.alpha > 0.5 && x >= table.x && x <= table.x + table.w && y >= 0 && y <= table.h) {
    const near = parts.tokens.map((entry, index) => [Math.abs(rowHeightInTable(parts, entry.token.id) - y), index]);
    const [distance, index] = near.sort((a, b) => a[0] - b[0])[0] ?? [Infinity];
    if (distance < 6) return { index, ...parts.tokens[index] };
    return { row: Math.min(current.trace.table.shape[0] - 1, Math.floor((y / table.h) * current.trace.table.shape[0])) };
  }
  const index = Math.floor(y / parts.line);
  if (index < 0 || index >= parts.tokens.length) return null;
  const lane = parts.lanes.find((candidate) => !candidate.inTable && x >= candidate.x && x < candidate.x + candidate.w);
  const width = scene.data.strips[lane?.name ?? "row"]?.width ?? scene.data.width;
  const channel = lane && Math.min(width - 1, Math.floor(((x - lane.x) / lane.w) * width));
  if (!lane && x > parts.left) return null;
  return { index, ...parts.tokens[index], lane: lane?.name, channel };
}

function pointAt(hit) {
  const tip = byId("scene-tip");
  highlightToken(hit?.token ? { id: hit.token.id, b: hit.b, t: hit.t } : null);
  tip.hidden = hit === null;
  scene.hovered = hit;
  if (hit === null) return;
  showTip(hit, hitWords(hit));
  if (hit.channel !== undefined) showExact(hit);
}

function showTip(hit, words) {
  const tip = byId("scene-tip"), [x, y] = hitPoint(hit);
  tip.textContent = words;
  styled(tip, { left: "0", top: `${y + 16}px` }); // measured where it has room
  styled(tip, { left: `${Math.max(0, Math.min(x + 12, byId("scene").clientWidth - tip.offsetWidth))}px` });
}

function hitPoint(hit) {
  const parts = scene.layout, top = byId("scene-scroll").scrollTop;
  if (hit.pair) {
    const { tokens } = scene.data.similarity, square = parts.matrices.find((matrix) => matrix.name === hit.name);
    const [i, j] = hit.pair.map((t) => (tokens.indexOf(t) + 1) * square.size / tokens.length);
    return [square.x + j, square.y + i - top];
  }
  if (hit.row !== undefined) return [parts.table.x, (hit.row / current.trace.table.shape[0]) * parts.table.h - top];
  const lane = parts.lanes.find((candidate) => candidate.name === hit.lane);
  const x = lane ? lane.x + (hit.channel / scene.data.width) * lane.w : parts.left;
  return [x, (hit.index + 0.5) * parts.line - top];
}

function hitWords(hit) {
  if (hit.pair) {
    const [first, second] = hit.pair.map((t) => cut(nameOf(current.trace.texts[0].tokens[t - (current.trace.first_token ?? 0)] ?? { label: String(t) }), 16));
    return `${first} and ${second}: ${hit.cosine === null ? "no cosine (zero or not finite)" : brief(hit.cosine)}`;
  }
  if (hit.row !== undefined) return `row ${grouped(hit.row)}`;
  const name = `${cut(nameOf(hit.token), 24)}  id ${hit.token.id ?? "none"}`;
  return hit.channel === undefined ? name : `${name}  channel ${hit.channel}`;
}

// The exact number comes from the trace, or from a request for the window that contains it.
let exactTimer = 0;

function showExact(hit) {
  clearTimeout(exactTimer);
  const field = hit.lane === "hidden" ? "hidden" : "row";
  const show = (trace) => {
    const token = trace?.texts[hit.b].tokens[hit.t - (trace.first_token ?? 0)];
    const d = hit.channel - (trace?.first_channel ?? 0);
    if (!token || scene.hovered !== hit || hit.lane === "position" || isNothing(token[field][d])) return false;
    showTip(hit, `${hitWords(hit)}  ${brief(token[field][d])}`);
    return true;
  };
  if (show(current.trace) || source.exported || hit.lane === "position") return;
  exactTimer = setTimeout(async () => {
    const { query } = current;
    const window = { dims: 16, channel: hit.channel - (hit.channel % 16), from: hit.t - (hit.t % 64) };
    show(await source.walk({ ...query, ...window }).catch(() => null));
  }, 90);
}

// A click shows the digits of a channel, or opens a token.
function chooseOnScene(hit) {
  if (!hit) return;
  if (hit.row !== undefined) return openToken(hit.row, byId("scene-canvas"));
  if (hit.channel !== undefined && !source.exported) {
    const start = Math.max(0, Math.min(hit.channel, scene.data.width - state.dims));
    return go({ channel: start - (start % state.dims) });
  }
  if (hit.token?.id !== null && hit.token) openToken(hit.token.id, byId("scene-canvas"));
}

function moveSceneCursor(event) {
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!by && event.key !== "Enter") return;
  event.preventDefault();
  event.stopPropagation();
  const parts = scene.layout, lane = parts.lanes.find((candidate) => !candidate.inTable);
  if (event.key === "Enter") return chooseOnScene(scene.hovered);
  const was = scene.cursor ?? { index: 0, channel: 0 };
  scene.cursor = {
    index: Math.max(0, Math.min(parts.tokens.length - 1, was.index + by[0])),
    channel: Math.max(0, Math.min(scene.data.width - 1, was.channel + by[1])),
  };
  const frame = byId("scene-scroll"), y = scene.cursor.index * parts.line;
  if (y < frame.scrollTop || y + parts.line > frame.scrollTop + frame.clientHeight) frame.scrollTop = y - parts.line;
  pointAt({ ...scene.cursor, ...parts.tokens[scene.cursor.index], lane: lane?.name, channel: lane && scene.cursor.channel });
  announce(byId("scene-tip").textContent);
  paintScene();
}

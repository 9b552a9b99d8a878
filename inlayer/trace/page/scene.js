// The scene of steps 4 to 8: one canvas on which the table, the rows of your tokens, positions, and similarities move.
//
// - every step has a layout: the position and visibility of each part. Changing the step moves parts to new positions
// - colors come from int8 values of the real vectors (/api/scene, /api/table-scene); exact numbers come from the trace
// - rows outside the window are drawn when they scroll into view

const SCENE_HEIGHT = 320;
const TRAINING_HEIGHT = 208; // in step 8, because the training step below is the main figure
const GAP = 28;
const MIN_LINE = 14; // height in pixels of a strip next to a line of the similarities

const scene = { data: null, table: null, images: null, layout: null, stop: () => {}, hovered: null, cursor: null };
window.inlayerScene = scene; // for tests

function setScene(data, table) {
  scene.data = data;
  scene.table = table;
  scene.pale = data && paleStrip(data.strips);
  scene.images = null;
  scene.cursor = null;
}

// ---- layouts

// The tokens on the scene in order, over all texts: {token, b, t, line}.
function sceneTokens(trace) {
  const first = trace.first_token ?? 0;
  return trace.texts.flatMap((text, b) => text.tokens.map((token, index) => ({ token, b, t: first + index })));
}

function lineHeight(count, limit, room) {
  return Math.max(6, Math.min(limit, Math.floor(room / Math.max(1, count))));
}

function sceneLayout(trace, step, width) {
  const tokens = sceneTokens(trace);
  const isRotation = step === 6 && !scene.data.strips.position;
  const room = step === 8 ? TRAINING_HEIGHT : SCENE_HEIGHT;
  const line = lineHeight(tokens.length, isRotation ? 14 : 36, room); // the dial below is the main figure of that step
  const left = width < 520 ? 64 : 112;
  const height = Math.max(step < 6 || step === 8 ? room : 0, tokens.length * line);
  const body = width - left;
  const parts = { tokens, line, left, height, width, table: hiddenPart(left, room), lanes: [], matrices: [] };
  const tableWidth = Math.min(200, body * 0.3);
  if (step === 4) {
    parts.table = { x: left + body * 0.18, y: 0, w: body * 0.82, h: SCENE_HEIGHT, alpha: 1 };
    parts.links = 1;
    parts.lanes.push({ name: "row", x: parts.table.x, w: parts.table.w, alpha: 1, inTable: true });
  } else if (step === 5 || step === 8) {
    parts.table = { x: left + GAP * 1.5, y: 0, w: tableWidth, h: room, alpha: 1 };
    parts.links = 1;
    const x = parts.table.x + tableWidth + GAP * 1.5;
    parts.lanes.push({ name: step === 5 ? "row" : "hidden", x, w: width - x, alpha: 1 });
  } else if (step === 6 && scene.data.strips.position) {
    const lane = (body - 2 * GAP) / 3;
    ["row", "position", "hidden"].forEach((name, index) => parts.lanes.push({
      name, x: left + index * (lane + GAP), w: lane, alpha: 1, sign: ["", "+", isOnlySum() ? "=" : ARROW][index],
    }));
  } else if (step === 6) {
    parts.lanes.push({ name: "row", x: left, w: body, alpha: 1 });
  } else {
    const names = scene.data.strips.position ? ["row", "hidden"] : ["hidden"];
    const columns = body > 560 ? names.length : 1; // on a narrow page, one below another
    const { length } = scene.data.similarity.tokens;
    let size = Math.min(body * (columns > 1 ? 0.27 : 0.4), 280, Math.max(144, length * 40));
    const isAligned = body > 560 && length > 1 && length === tokens.length && size / length >= MIN_LINE;
    if (isAligned) { // each line of the square is next to its strip
      parts.line = Math.min(line, Math.floor(size / length));
      size = parts.line * length;
      parts.height = size + 28;
    }
    const taken = length > 1 ? columns * (size + GAP) : 0;
    parts.lanes.push({ name: "hidden", x: left, w: body - taken, alpha: 1 });
    if (taken) {
      names.forEach((name, index) => parts.matrices.push({
        name, x: width - (columns - index % columns) * (size + GAP) + GAP,
        y: isAligned ? 0 : 24 + Math.floor(index / columns) * (size + 36), size, alpha: 1, isTitleBelow: isAligned,
      }));
      parts.height = Math.max(parts.height, Math.ceil(names.length / columns) * (size + 36));
    }
  }
  return parts;
}

function hiddenPart(x, h) {
  return { x: x - 60, y: 0, w: 60, h, alpha: 0 };
}

// The position of one token's strip in a lane. Inside the table, it is at the height of its row.
function stripRect(parts, lane, index) {
  if (!lane.inTable) return { x: lane.x, y: index * parts.line, w: lane.w, h: parts.line - (parts.line > 8 ? 3 : 1) };
  return { x: lane.x, y: rowHeightInTable(parts, parts.tokens[index].token.id) - 1.5, w: lane.w, h: 3 };
}

function rowHeightInTable(parts, id) {
  const rows = current.trace.table.shape[0];
  return parts.table.y + ((id ?? 0) + 0.5) / rows * parts.table.h;
}

// A layout between two others. Lanes and matrices are matched by name; others fade.
function between(from, to, share) {
  if (!from || share >= 1) return to;
  const mix = (a, b) => a + (b - a) * share;
  const part = (a, b) => {
    const mixed = { ...b };
    for (const key of Object.keys(b)) if (typeof b[key] === "number" && typeof a[key] === "number") mixed[key] = mix(a[key], b[key]);
    return mixed;
  };
  const matched = (olds, news) => [
    ...news.map((item) => {
      const old = olds.find((other) => other.name === item.name)
        ?? (item.name === "hidden" ? olds.find((other) => other.name === "row") : undefined);
      return old ? { ...item, alpha: mix(old.alpha, item.alpha), from: old, share } : { ...item, alpha: item.alpha * share };
    }),
    ...olds.filter((old) => !news.some((item) => item.name === old.name || (item.name === "hidden" && old.name === "row")))
      .map((old) => ({ ...old, alpha: old.alpha * (1 - share) })),
  ];
  return {
    ...to, height: to.height, links: mix(from.links ?? 0, to.links ?? 0), table: part(from.table, to.table),
    lanes: matched(from.lanes, to.lanes), matrices: matched(from.matrices, to.matrices),
  };
}

// ---- the figure

function renderScene(trace, step) {
  const figure = byId("scene");
  const usable = scene.data !== null && step >= 4 && trace.shape[1] > 0 && !isHidden(step);
  figure.hidden = !usable;
  scene.stop();
  if (!usable) {
    scene.layout = null;
    return;
  }
  if (!figure.firstChild) buildScene(figure);
  byId("scene-caption").replaceChildren(...sceneCaption(trace, step));
  byId("scene-canvas").setAttribute("aria-label", sceneLabel(trace, step));
  const frame = byId("scene-scroll");
  const target = sceneLayout(trace, step, frame.clientWidth);
  styled(byId("scene-spacer"), { height: `${target.height}px` });
  styled(frame, { height: `${Math.min(target.height, 480) + 8}px` });
  const from = scene.layout?.tokens.length === target.tokens.length ? scene.layout : null;
  scene.stop = motion.animate(DURATION, (share) => {
    scene.layout = between(from, target, share);
    paintScene();
  });
}

function buildScene(figure) {
  const canvas = make("canvas", { id: "scene-canvas", tabindex: 0, role: "img" });
  figure.append(
    make("div", { id: "scene-scroll", class: "scene-scroll", tabindex: -1 },
      canvas, make("div", { id: "scene-spacer" })),
    make("p", { id: "scene-tip", class: "map-tip", hidden: true }),
    make("figcaption", { id: "scene-caption", class: "note" }));
  byId("scene-scroll").addEventListener("scroll", paintScene);
  new ResizeObserver(() => {
    if (scene.layout && !figure.hidden) renderScene(current.trace, state.step);
  }).observe(figure);
  document.addEventListener("theme-change", () => {
    scene.images = null;
    if (scene.layout) paintScene();
  });
  document.addEventListener("token-highlight", () => scene.layout && paintScene());
  canvas.addEventListener("pointermove", (event) => pointAt(sceneHit(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", () => pointAt(null));
  canvas.addEventListener("click", (event) => chooseOnScene(sceneHit(event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", moveSceneCursor);
  canvas.addEventListener("blur", () => { scene.cursor = null; pointAt(null); });
}

function sceneLabel(trace, step) {
  const what = {
    4: "The table, with the rows of your tokens", 5: "Rows taken from the table and stacked",
    6: scene.data.strips.position ? "Rows plus positions" : "Rows; positions do not change them",
    7: "Hidden states and their similarities", 8: "Hidden states and the rows that receive gradients",
  }[step];
  return `${what}. Arrow keys move between tokens and channels.`;
}

function sceneCaption(trace, step) {
  const [rows, width] = trace.table.shape;
  const { table } = scene;
  const sampled = table && (table.rows.length < rows || table.channels.length < width)
    ? `, sampled at ${grouped(table.rows.length)} ${TIMES} ${grouped(table.channels.length)} values` : "";
  const whole = `The whole table: ${grouped(rows)} rows of ${grouped(width)} channels${sampled}.`;
  const { width: shownWidth } = scene.data;
  const shown = `${shownWidth === 1 ? "The only channel" : `All ${grouped(shownWidth)} channels`} of ${shownTokens(trace)}; click a cell to see its value below.`;
  const similarity = `Squares: cosine similarity of every pair of ${comparedTokens(trace)}`;
  const words = {
    4: `${whole} A token's id is the number of its row.`,
    5: `Each id picks one row of the table. ${shown}`,
    6: scene.data.strips.position ? `A vector for the position is added to each row. ${paleWords()}${shown}`
      : `Nothing is added to the rows. ${shown}`,
    7: scene.data.strips.position
      ? `${similarity}, before and after positions are added. ${shown}`
      : `${similarity}; without added positions, swapping two tokens only swaps the rows and columns of this matrix. ${shown}`,
    8: `The loss sends a gradient back through the hidden states to the rows. ${shown}`,
  };
  return [span("caption-words", words[step]), ...heatLegend(step)];
}

function paleWords() {
  const { pale, data: { strips: { row, position } } } = scene;
  if (!pale) return "";
  const [what, others] = pale === "row" ? ["The rows", "these vectors"] : ["These vectors", "the rows"];
  const ratio = Math.max(row.scale, position.scale) / Math.min(row.scale, position.scale);
  return `${what} are about ${grouped(Number(ratio.toPrecision(2)))} times smaller than ${others}, so they have their own color scale. `;
}

// The tokens that have a strip: one window of a long text.
function shownTokens(trace) {
  const counts = trace.texts.map((text) => text.tokens.length);
  const isPart = trace.texts.some((text, b) => counts[b] < text.n_tokens + text.n_padding);
  if (!isPart) return "every token";
  return `${partOf(trace, Math.max(...counts))}${counts.length > 1 ? " of each text" : ""}`;
}

// The tokens that the squares compare: the first ones of the recorded range, in the first text.
function comparedTokens(trace) {
  const count = scene.data.similarity.tokens.length, { n_tokens: tokens } = trace.texts[0];
  const text = trace.texts.length > 1 ? " of the first text" : "";
  return count < tokens ? `${partOf(trace, count)}${text}` : `tokens${text}`;
}

function partOf(trace, count) {
  const first = trace.first_token ?? 0, all = Math.max(...trace.texts.map((text) => text.n_tokens + text.n_padding));
  const total = trace.texts.length > 1 ? "" : ` of ${grouped(all)}`;
  return first === 0 ? `the first ${grouped(count)}${total} tokens` : `tokens ${grouped(first)} to ${grouped(first + count - 1)}${total}`;
}

// The scales of the colors on the canvas; with two of them, each has a name. They cover most values, not the largest, so
// they differ between the table, the rows of a text, and the matrix below.
function heatLegend(step) {
  const lanes = step < 6 ? { row: "rows" } : step > 6 ? { hidden: "hidden states" }
    : scene.data.strips.position ? { row: "rows", position: "positions", hidden: "hidden states" } : { row: "rows" };
  const names = new Map(); // scale -> the lanes that use it
  for (const [name, label] of Object.entries(lanes)) {
    const scale = step === 4 && scene.table ? scene.table.scale : sceneScale(name);
    names.set(scale, [...(names.get(scale) ?? []), label]);
  }
  const scales = Object.fromEntries(Array.from(names, ([scale, labels]) => [labels.join(", "), scale]));
  const hasCosines = step === 7 && scene.data.similarity.tokens.length > 1;
  const several = hasCosines || names.size > 1;
  const bar = (name, scale) =>
    make("span", { class: "legend-of" }, several && span("", name), legend(scaleOf([scale]), HEAT_POWER));
  return [make("span", { class: "legends" }, Object.entries(scales).map(([name, scale]) => bar(name, scale)),
    span("", `full color: 99.5th percentile of ${step === 4 ? "the table" : "these vectors"}`),
    step > 4 && span("", "full color in the matrix below: the largest value shown"), hasCosines && bar("cosine", 1))];
}

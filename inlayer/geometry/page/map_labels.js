// A map's labels: the choice of tokens to name, and where; labels stay in place while the view moves.

const LABEL_FONT = 12; // pixels
const MAX_LABEL = 22; // characters
const MAX_NAME = 40; // characters in the name of a row that is not on the map

const MIN_COMPLETE = 200; // with this many complete words, the whole map names no other tokens
const MIN_WORDS = 20; // with fewer, as in a vocabulary of single bytes, other tokens are named as well

// Ids of rows, with the names of those that have a token; `total` may be more than the ids given.
function rowNames(ids, texts, total) {
  const named = ids.map((id) => {
    const name = Array.from(tokenText(texts[id])), isLong = name.length > MAX_NAME;
    return texts[id] === `#${id}` ? String(id) : `${id} (${name.slice(0, isLong ? MAX_NAME - 1 : MAX_NAME).join("")}${isLong ? "\u2026" : ""})`;
  });
  return named.join(", ") + (total > ids.length ? ", ..." : "");
}

function cosineText(cosine) {
  return cosine.toFixed(3).replace("-", "\u2212");
}

const TOKEN_KINDS = ["bytes, special tokens, rows without token", "words", "capitalized words", "parts of words", "numbers and punctuation", "other scripts"];

// The order in which tokens are named: complete or long words, other words, then the rest, each by id (frequent tokens
// first). `whole` states which tokens are whole words (2: they look truncated, 3: certainly complete); without it,
// tokens that look like words with a space before them.
function labelOrder(texts, whole) {
  const spaced = texts.filter((text) => /^[ \u2581\u0120]\p{L}/u.test(text)).length > texts.length / 8;
  const rank = new Uint8Array(texts.length), kinds = new Uint8Array(texts.length);
  texts.forEach((text, id) => {
    const start = /^[ \u2581\u0120]/.test(text), word = text.replace(/^[ \u2581\u0120]/, "");
    const isWord = whole ? whole[id] > 0 : start === spaced;
    if (/^\p{L}[\p{L}\p{M}'\u2019-]*$/u.test(word)) rank[id] = !isWord || whole?.[id] === 2 ? 2 : whole?.[id] === 3 || (!whole && word.length > 3) ? 0 : 1;
    else rank[id] = /^[\p{N}\p{P}\p{S}]+$/u.test(word) ? 3 : 4;
    if (rank[id] < 3) kinds[id] = !/^\p{Script=Latin}/u.test(word) ? 5 : rank[id] === 2 ? 3 : /^\p{Lu}/u.test(word) ? 2 : 1;
    else kinds[id] = rank[id] === 3 && text !== `#${id}` ? 4 : 0;
  });
  const order = Int32Array.from(texts.keys());
  order.sort((a, b) => rank[a] - rank[b] || a - b);
  const priorities = new Int32Array(texts.length);
  order.forEach((id, index) => { priorities[id] = index; });
  return { order, priorities, words: rank, kinds };
}

// Boxes on the screen that do not overlap, indexed by rows of a fixed height.
function makeBoxes() {
  const rows = new Map(), step = 24;
  const each = (box, act) => {
    for (let row = Math.floor(box.top / step); row <= Math.floor(box.bottom / step); row += 1) {
      if (act(row) === false) return false;
    }
    return true;
  };
  return {
    isFree: (box) => each(box, (row) => !(rows.get(row) ?? []).some((other) =>
      box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)),
    add: (box) => each(box, (row) => { rows.has(row) ? rows.get(row).push(box) : rows.set(row, [box]); }),
  };
}

// Text with a soft outline, painted once and then copied, because drawing text in every frame is slow.
function makeTextImages(limit = 800) {
  const images = new Map();
  const pad = 3;

  function image(text, style, ratio) {
    const key = `${style.key}|${text}`;
    const known = images.get(key);
    if (known) return known;
    const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
    context.font = style.font;
    const width = context.measureText(text).width, height = style.size * 1.4;
    canvas.width = Math.ceil((width + 2 * pad) * ratio);
    canvas.height = Math.ceil((height + 2 * pad) * ratio);
    context.scale(ratio, ratio);
    context.font = style.font;
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 2 * pad - 1;
    context.strokeStyle = style.halo;
    context.fillStyle = style.ink;
    context.strokeText(text, pad, pad + height / 2);
    context.fillText(text, pad, pad + height / 2);
    if (images.size > limit) images.delete(images.keys().next().value);
    const made = { canvas, width, height, pad };
    images.set(key, made);
    return made;
  }
  const ruler = document.createElement("canvas").getContext("2d");
  function measure(text, style) {
    if (ruler.font !== style.font) ruler.font = style.font;
    return ruler.measureText(text).width;
  }
  return { image, measure, clear: () => images.clear() };
}

// Where a label can be next to its point; the first free position is used.
function labelBoxes(x, y, width, height, away) {
  const near = away * 0.6;
  const sides = [
    [away, -height / 2], [-away - width, -height / 2], [-width / 2, -away - height], [-width / 2, away],
    [near, -near - height], [near, near], [-near - width, -near - height], [-near - width, near],
  ];
  return sides.map(([dx, dy]) => ({ left: x + dx, top: y + dy, right: x + dx + width, bottom: y + dy + height }));
}

// Chooses labels for the background. Those already shown come first, so they stay while the view moves.
function makeLabelPicker({ texts, words: whole }, nameOf, measure) {
  const { order, priorities, words, kinds } = labelOrder(texts, whole);
  const names = new Map(), widths = new Map();
  const countOf = (limit) => words.filter((rank) => rank <= limit).length;
  const farRank = countOf(0) >= MIN_COMPLETE ? 0 : countOf(1) >= MIN_WORDS ? 1 : 4; // largest rank named on the whole map
  const shown = new Map(); // id -> {alpha, wanted, side}

  function name(id) {
    if (!names.has(id)) {
      const text = nameOf(id);
      names.set(id, text.length > MAX_LABEL ? text.slice(0, MAX_LABEL - 1) + "\u2026" : text);
    }
    return names.get(id);
  }

  function widthOf(id) {
    if (!widths.has(id)) widths.set(id, measure(name(id)));
    return widths.get(id);
  }

  function candidates(grid, frame, isInside) {
    const found = [];
    let visible = 0;
    grid.runs(frame.left, frame.bottom, frame.right, frame.top, (from, end) => { visible += end - from; });
    if (visible > 4000) {
      const most = order.length > 20000 ? 900 : 2400; // fewer for a large table: this runs in every frame
      for (let i = 0; i < order.length && i < 20000 && found.length < most; i += 1) {
        if (isInside(order[i])) found.push(order[i]);
      }
      return found;
    }
    grid.runs(frame.left, frame.bottom, frame.right, frame.top, (from, end) => {
      for (let i = from; i < end; i += 1) if (isInside(grid.ids[i])) found.push(grid.ids[i]);
    });
    return found.sort((a, b) => priorities[a] - priorities[b]);
  }

  // depth: 0 when the whole map is shown, 1 when close; boxes: areas already taken.
  function pick({ grid, frame, fits = () => true, toScreen, isInside, boxes, depth, most, skip }) {
    const gapX = 6 + 30 * (1 - depth), gapY = 2 + 14 * (1 - depth);
    const stay = depth > 0.02 ? [...shown.keys()].filter((id) => shown.get(id).wanted && isInside(id)) : [];
    stay.sort((a, b) => priorities[a] - priorities[b]);
    for (const label of shown.values()) label.wanted = false;
    let count = 0;
    for (const list of [stay, candidates(grid, frame, isInside)]) {
      for (const id of list) {
        if (count >= most) break;
        if (skip.has(id) || shown.get(id)?.wanted || (depth < 0.4 && words[id] > farRank)) continue;
        const [x, y] = toScreen(id), width = widthOf(id);
        const side = labelBoxes(x, y, width, LABEL_FONT + 4, 5).slice(0, 2).findIndex((box) => fits(box) && boxes.isFree(
          { left: box.left - gapX, right: box.right + gapX, top: box.top - gapY, bottom: box.bottom + gapY }));
        if (side < 0) continue;
        boxes.add(labelBoxes(x, y, width, LABEL_FONT + 4, 5)[side]);
        shown.set(id, { alpha: shown.get(id)?.alpha ?? 0, wanted: true, side });
        count += 1;
      }
    }
  }

  // Moves the strength of every label toward its goal. Returns whether labels are still changing.
  function fade(share) {
    let moving = false;
    for (const [id, label] of shown) {
      const goal = label.wanted ? 1 : 0, step = Math.sign(goal - label.alpha) * share;
      label.alpha = Math.max(0, Math.min(1, label.alpha + step));
      if (label.alpha === 0 && !label.wanted) shown.delete(id);
      else if (label.alpha !== goal) moving = true;
    }
    return moving;
  }

  return { pick, fade, shown, name, kinds };
}

// The meaning of a map's colors, for the kinds of tokens that occur; empty for a single kind, as without a tokenizer.
function fillKindLegend(list, kinds) {
  const counts = new Array(TOKEN_KINDS.length).fill(0);
  for (const kind of kinds) counts[kind] += 1;
  const present = [1, 2, 3, 4, 5, 0].filter((kind) => counts[kind] > 0);
  list.replaceChildren(...(present.length > 1 ? present : []).map((kind) => {
    const item = document.createElement("li"), swatch = document.createElement("i");
    swatch.className = `kind-${kind}`;
    item.append(swatch, TOKEN_KINDS[kind]);
    return item;
  }));
}

// A map's points: decoding, a grid of cells for finding points quickly, and a picture of their density.

// Points, neighbors, and shares arrive as base64 of little-endian numbers, or as typed arrays.
function readMapData(data) {
  const decode = (value, kind) => {
    if (typeof value !== "string") return value ?? null;
    const text = atob(value), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
    return new kind(bytes.buffer);
  };
  return {
    ...data, points: decode(data.points, Float32Array),
    neighborhood_preservation: decode(data.neighborhood_preservation, Float32Array),
    words: decode(data.words, Uint8Array), near: decode(data.near, Int32Array), cosines: decode(data.cosines, Float32Array),
  };
}

// Points sorted by cell, so the points in a rectangle are a few runs of memory. Points with NaN are skipped.
function makePointGrid(points) {
  const total = points.length / 2;
  const box = { left: Infinity, bottom: Infinity, right: -Infinity, top: -Infinity };
  let count = 0;
  for (let i = 0; i < total; i += 1) {
    const x = points[2 * i], y = points[2 * i + 1];
    if (!(Number.isFinite(x) && Number.isFinite(y))) continue;
    count += 1;
    if (x < box.left) box.left = x;
    if (x > box.right) box.right = x;
    if (y < box.bottom) box.bottom = y;
    if (y > box.top) box.top = y;
  }
  if (count === 0) Object.assign(box, { left: 0, bottom: 0, right: 1, top: 1 });
  const size = (Math.max(box.right - box.left, box.top - box.bottom) || 1)
    / Math.max(1, Math.min(512, Math.sqrt(count / 4)));
  const columns = Math.floor((box.right - box.left) / size) + 1, rows = Math.floor((box.top - box.bottom) / size) + 1;
  const column = (x) => Math.max(0, Math.min(columns - 1, Math.floor((x - box.left) / size)));
  const row = (y) => Math.max(0, Math.min(rows - 1, Math.floor((y - box.bottom) / size)));

  const starts = new Int32Array(columns * rows + 1), ids = new Int32Array(count);
  const xs = new Float32Array(count), ys = new Float32Array(count), cells = new Int32Array(total).fill(-1);
  for (let i = 0; i < total; i += 1) {
    const x = points[2 * i], y = points[2 * i + 1];
    if (!(Number.isFinite(x) && Number.isFinite(y))) continue;
    cells[i] = row(y) * columns + column(x);
    starts[cells[i] + 1] += 1;
  }
  for (let cell = 0; cell < columns * rows; cell += 1) starts[cell + 1] += starts[cell];
  const next = starts.slice(0, -1);
  for (let i = 0; i < total; i += 1) {
    if (cells[i] < 0) continue;
    const slot = next[cells[i]]++;
    ids[slot] = i;
    xs[slot] = points[2 * i];
    ys[slot] = points[2 * i + 1];
  }

  // Calls visit(first, end) for each run of points whose cells meet a rectangle.
  function runs(left, bottom, right, top, visit) {
    if (right < box.left || left > box.right || top < box.bottom || bottom > box.top) return;
    const first = column(left), last = column(right);
    for (let r = row(bottom); r <= row(top); r += 1) {
      const from = starts[r * columns + first], end = starts[r * columns + last + 1];
      if (end > from) visit(from, end);
    }
  }

  function countIn(...rectangle) {
    let count = 0;
    runs(...rectangle, (from, end) => { count += end - from; });
    return count;
  }

  function nearest(x, y, reach) {
    let best = -1, least = reach * reach;
    runs(x - reach, y - reach, x + reach, y + reach, (from, end) => {
      for (let i = from; i < end; i += 1) {
        const distance = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
        if (distance < least) { least = distance; best = ids[i]; }
      }
    });
    return best;
  }

  return { box, count, ids, xs, ys, runs, countIn, nearest };
}

const DENSITY_UNIT = 64; // what one point adds at its center
const DENSITY_LEVELS = 4096;
const DENSITY_EDGE = 24; // points just outside the picture still reach into it
const DENSITY_PHASES = 4; // number of distinct subpixel positions per axis

// A picture in which every point is a small soft disc, and dense areas have stronger colors.
function makeDensity() {
  let width = 0, height = 0, stride = 0, sums = null, owners = null, image = null, pixels = null;

  function resize(newWidth, newHeight) {
    if (newWidth === width && newHeight === height) return;
    [width, height, stride] = [newWidth, newHeight, newWidth + 2 * DENSITY_EDGE];
    sums = new Uint32Array(stride * (height + 2 * DENSITY_EDGE));
    owners = null;
    image = new ImageData(width, height);
    pixels = new Uint32Array(image.data.buffer);
  }

  // For each position within a pixel: which pixels around it a disc covers, and how much. A disc counts for `points` points.
  function kernels(radius, points) {
    const reach = Math.ceil(radius + 0.5);
    return Array.from({ length: DENSITY_PHASES ** 2 }, (_, phase) => {
      const x = (phase % DENSITY_PHASES + 0.5) / DENSITY_PHASES, y = (Math.floor(phase / DENSITY_PHASES) + 0.5) / DENSITY_PHASES;
      const offsets = [], weights = [];
      for (let dy = -reach; dy <= reach; dy += 1) {
        for (let dx = -reach; dx <= reach; dx += 1) {
          const cover = Math.min(1, radius + 0.5 - Math.hypot(dx + 0.5 - x, dy + 0.5 - y));
          if (cover * DENSITY_UNIT >= 1) { offsets.push(dy * stride + dx); weights.push(points * Math.round(cover * DENSITY_UNIT)); }
        }
      }
      return { offsets: Int32Array.from(offsets), weights: Int32Array.from(weights) };
    });
  }

  // Adds every n-th point of a run. place: {scale, left, top}, from map units to pixels. groups: a number per row, or null.
  function add({ xs, ys, ids }, from, end, every, place, shapes, groups) {
    const { scale } = place, left = place.left + DENSITY_EDGE, top = place.top + DENSITY_EDGE;
    const right = width + DENSITY_EDGE, bottom = height + DENSITY_EDGE, near = DENSITY_EDGE / 2;
    for (let i = Math.ceil(from / every) * every; i < end; i += every) { // the same points in every view
      const x = xs[i] * scale + left, y = top - ys[i] * scale;
      if (!(x >= near && y >= near && x < right + near && y < bottom + near)) continue;
      const px = x | 0, py = y | 0, at = py * stride + px;
      const phase = (((y - py) * DENSITY_PHASES) | 0) * DENSITY_PHASES + (((x - px) * DENSITY_PHASES) | 0);
      const { offsets, weights } = shapes[phase];
      const group = groups === null ? 0 : groups[ids[i]];
      for (let j = 0; j < offsets.length; j += 1) {
        sums[at + offsets[j]] += weights[j];
        if (group > 0) owners[at + offsets[j]] = group;
      }
    }
  }

  // tones: colors by group and level, from densityTones.
  function finish(tones, grouped) {
    for (let y = 0; y < height; y += 1) {
      let at = (y + DENSITY_EDGE) * stride + DENSITY_EDGE, to = y * width;
      for (const end = to + width; to < end; to += 1, at += 1) {
        const sum = sums[at];
        if (sum === 0) pixels[to] = 0;
        else {
          const level = sum < DENSITY_LEVELS ? sum : DENSITY_LEVELS - 1;
          pixels[to] = tones[grouped ? owners[at] * DENSITY_LEVELS + level : level];
        }
      }
    }
    return image;
  }

  // Every n-th point in a rectangle of the map, with discs of this radius.
  function draw(newWidth, newHeight, { grid, frame, every, place, radius, groups, tones }) {
    resize(newWidth, newHeight);
    sums.fill(0);
    if (groups !== null) owners = owners?.fill(0) ?? new Uint8Array(sums.length);
    const shapes = kernels(Math.min(radius, DENSITY_EDGE / 2 - 2), every);
    grid.runs(...frame, (from, end) => add(grid, from, end, every, place, shapes, groups));
    return finish(tones, groups !== null);
  }

  return { draw };
}

// The color of every level of each group: a single point is faint, many points are strong. `half` is the number of
// points on one pixel that reach half of the full strength. shades: [{low, high, faint, strong}], low and high as [r, g, b].
function densityTones(shades, half) {
  const tones = new Uint32Array(shades.length * DENSITY_LEVELS);
  for (let level = 1; level < DENSITY_LEVELS; level += 1) {
    const points = level / DENSITY_UNIT, share = points <= 1 ? 0 : 1 - 2 ** (-(points - 1) / half);
    for (let group = 0; group < shades.length; group += 1) {
      const { low, high, faint, strong } = shades[group];
      const mixed = (i) => Math.round(low[i] + (high[i] - low[i]) * share);
      const alpha = Math.round(255 * (Math.min(1, points) * faint + share * (strong - faint)));
      tones[group * DENSITY_LEVELS + level] = (alpha << 24 | mixed(2) << 16 | mixed(1) << 8 | mixed(0)) >>> 0;
    }
  }
  return tones;
}

// A square around the middle of the points that contains most of them. The few distant ones would make the rest tiny.
function middleBox({ xs, ys }) {
  const sortedAt = (values, share) => Float32Array.from(values).sort()[Math.floor(share * (values.length - 1))];
  const x = sortedAt(xs, 0.5), y = sortedAt(ys, 0.5);
  const reach = sortedAt(xs.map((value, i) => Math.hypot(value - x, ys[i] - y)), 0.98);
  return { left: x - reach, right: x + reach, bottom: y - reach, top: y + reach };
}

function middleOf(box) {
  const size = Math.max(box.right - box.left, box.top - box.bottom) || 1;
  return { x: (box.left + box.right) / 2, y: (box.bottom + box.top) / 2, size };
}

// The dial: q and k of a channel pair rotate with their positions; their dot product depends only on the distance.
// q and k are hidden states of two tokens; attention would first multiply them by its own matrices.

const LAST_POSITION = 63; // the last position on the dial and the clocks
const DIAL = { center: 200, radius: 136 };

let dialChoice = { walk: "" }; // {walk, s, pair, q, k, m, n, together}; kept while the page is redrawn

// ---- the rotation, as inlayer.apply_rotary computes it

function pairChannels({ pairing, n_pairs: pairs }, pair) {
  return pairing === "half" ? [pair, pair + pairs] : [2 * pair, 2 * pair + 1];
}

function pairVector(token, rotary, pair) {
  return pairChannels(rotary, pair).map((channel) => toNumber(token.hidden[channel]));
}

function rotatePair([x, y], position, rotary, pair) {
  const angle = position * toNumber(rotary.frequencies[pair]);
  const cos = rotary.attention_factor * Math.cos(angle), sin = rotary.attention_factor * Math.sin(angle);
  return [x * cos - y * sin, y * cos + x * sin];
}

function dotOf([a, b], [c, d]) {
  return a * c + b * d;
}

function pairDot(q, k, rotary, pair, [m, n]) {
  const [left, right] = [q, k].map((token) => pairVector(token, rotary, pair));
  return dotOf(rotatePair(left, m, rotary, pair), rotatePair(right, n, rotary, pair));
}

// The sum over pairs, before (positions null) or after the rotation.
function headDot(q, k, rotary, pairs, positions) {
  let sum = 0;
  for (let pair = 0; pair < pairs; pair += 1) {
    sum += positions ? pairDot(q, k, rotary, pair, positions)
      : dotOf(pairVector(q, rotary, pair), pairVector(k, rotary, pair));
  }
  return sum;
}

// Pairs with a known frequency and two known channels.
function pairCount(head, rotary) {
  const width = head.tokens[0]?.hidden.length ?? 0;
  const fits = (pair) => pairChannels(rotary, pair).every((channel) => channel < width);
  let pairs = Math.min(rotary.n_pairs, rotary.frequencies.length);
  while (pairs > 0 && !fits(pairs - 1)) pairs -= 1;
  return pairs;
}

// Starts with the last and the first token, in the longest pair that rotates slowly enough to follow.
function startChoice(walk, head, s) {
  const rotary = head.rotary[s], q = head.tokens.length - 1;
  const size = (pair) => {
    const frequency = toNumber(rotary.frequencies[pair]);
    const product = [q, 0].reduce((all, t) => all * Math.hypot(...pairVector(head.tokens[t], rotary, pair)), 1);
    return frequency > 0.1 && frequency < 0.7 ? product : 0;
  };
  const pairs = Array.from({ length: pairCount(head, rotary) }, (_, pair) => pair);
  const pair = pairs.reduce((best, candidate) => (size(candidate) > size(best) ? candidate : best), 0);
  return { walk, s, pair, q, k: 0, m: Math.max(q, 1), n: 0, together: false };
}

// ---- the figure

function dialFigure(head, onPair) {
  const rotary = rescaledRotary(head.rotary[dialChoice.s]);
  const pairs = pairCount(head, rotary);
  const drawing = dialDrawing();
  const plots = [distancePlot("this pair"), distancePlot(`all ${pairs} pairs`)];
  const readout = dialReadout(pairs);
  const position = (name, key) => slider({
    id: `dial-${key}`, label: `Position of ${name}`, max: LAST_POSITION, value: dialChoice[key],
    input: (value) => moveTo(key, value),
  });
  const [sliderM, sliderN] = [position("q", "m"), position("k", "n")];
  const sliderPair = slider({
    id: "dial-pair", label: "Channel pair", max: pairs - 1, value: dialChoice.pair, input: (pair) => choosePair(pair),
  });
  const together = make("input", {
    type: "checkbox", id: "dial-together", checked: dialChoice.together,
    on: { change: (event) => { dialChoice.together = event.target.checked; render(); } },
  });

  function moveTo(key, wanted) {
    const other = key === "m" ? "n" : "m";
    const fits = (value) => Math.min(LAST_POSITION, Math.max(0, value));
    let by = fits(Math.round(wanted)) - dialChoice[key];
    if (dialChoice.together) {
      by = fits(dialChoice[other] + by) - dialChoice[other];
      dialChoice[other] += by;
    }
    dialChoice[key] += by;
    render();
  }

  function choosePair(pair) {
    dialChoice.pair = pair;
    onPair(pair);
    replot();
  }

  function replot() {
    const { pair, q, k } = dialChoice;
    const [left, right] = [head.tokens[q], head.tokens[k]];
    plots[0].plot((distance) => pairDot(left, right, rotary, pair, [distance, 0]));
    plots[1].plot((distance) => headDot(left, right, rotary, pairs, [distance, 0]));
    render();
  }

  function render() {
    const { pair, q, k, m, n } = dialChoice;
    const [left, right] = [head.tokens[q], head.tokens[k]];
    drawing.show({ left, right, rotary, pair, m, n });
    const [before, after] = [null, [m, n]].map((positions) => [
      positions ? pairDot(left, right, rotary, pair, positions)
        : dotOf(pairVector(left, rotary, pair), pairVector(right, rotary, pair)),
      headDot(left, right, rotary, pairs, positions)]);
    readout.show({ before, after, pair, m, n, together: dialChoice.together });
    plots.forEach((plot, index) => plot.mark(m - n, after[index]));
    sliderM.set(m);
    sliderN.set(n);
    const channels = pairChannels(rotary, pair);
    sliderPair.set(pair, `${pair}: channels ${channels.join(" and ")}`);
  }

  const picked = (name, key) => tokenChoice(head.tokens, name, dialChoice[key], (t) => {
    dialChoice[key] = t;
    replot();
  });
  drawing.drag((key, by) => moveTo(key, by), () => rotary.frequencies[dialChoice.pair], () => dialChoice);
  replot();
  return {
    choosePair,
    element: make("div", { class: "dial-figure" },
      drawing.element,
      make("div", { class: "dial-side" },
        make("div", { class: "dial-controls" },
          picked("q", "q"), sliderM.element, picked("k", "k"), sliderN.element,
          make("label", { class: "check-field" }, together, "Move both together"), sliderPair.element),
        readout.element),
      make("section", { "aria-label": "Dot product against distance" },
        make("h3", {}, "q \u00b7 k against the distance"),
        make("div", { class: "dial-plots" }, plots.map((plot) => plot.element)))),
  };
}

function tokenChoice(tokens, name, chosen, choose) {
  const swatch = make("i", { class: "swatch", "aria-hidden": "true" });
  const show = (t) => styled(swatch, { "--token": tokenColor(tokens[t].id) });
  const select = make("select", {
    id: `dial-${name}`, class: "mono",
    on: { change: () => { choose(Number(select.value)); show(Number(select.value)); } },
  }, tokens.map((token, t) => make("option", { value: t, selected: t === chosen }, `${t} ${cut(nameOf(token), 14)}`)));
  show(chosen);
  return make("label", { class: "field dial-token" }, swatch, make("span", { class: "mono dial-name" }, name), select);
}

function slider({ id, label, min = 0, max, step = 1, value, input, change }) {
  const output = make("output", { for: id, class: "number" });
  const range = make("input", {
    type: "range", id, min, max, step, value,
    on: { input: () => input?.(Number(range.value)), change: () => change?.(Number(range.value)) },
  });
  const set = (now, words = String(now)) => {
    range.value = now;
    output.textContent = words;
    range.setAttribute("aria-valuetext", words);
  };
  set(value);
  return { set, element: make("label", { class: "slider", for: id }, span("slider-name", label, " ", output), range) };
}

// ---- the drawing

function setAll(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

function polar(angle, radius) {
  return [DIAL.center + radius * Math.cos(angle), DIAL.center - radius * Math.sin(angle)];
}

// A path along a circle, counterclockwise from one angle.
function arc(from, by, radius) {
  const [start, end] = [polar(from, radius), polar(from + by, radius)];
  return `M${start} A${radius} ${radius} 0 ${Math.abs(by) > Math.PI ? 1 : 0} ${by > 0 ? 0 : 1} ${end}`;
}

function dialDrawing() {
  const { center, radius } = DIAL;
  const axis = (x1, y1, x2, y2) => draw("line", { x1, y1, x2, y2, class: "rope-axis" });
  const [channelX, channelY] = ["end", "start"].map((anchor) =>
    draw("text", { class: "rope-channel", "text-anchor": anchor }));
  setAll(channelX, { x: 396, y: center + 16 });
  setAll(channelY, { x: center + 6, y: 14 });
  const wedge = draw("path", { class: "rope-wedge" }), degrees = draw("text", { class: "rope-degrees" });
  const hands = Object.fromEntries(["k", "q"].map((name) => [name, handDrawing(name)]));
  const svg = draw("svg", { class: "rope-dial", viewBox: "0 0 400 400", role: "img" },
    draw("circle", { cx: center, cy: center, r: radius, class: "rope-face" }),
    axis(center - 180, center, center + 180, center), axis(center, center - 180, center, center + 180),
    wedge, hands.k.parts, hands.q.parts, channelX, channelY, degrees);

  function show({ left, right, rotary, pair, m, n }) {
    const vectors = { q: pairVector(left, rotary, pair), k: pairVector(right, rotary, pair) };
    const longest = Math.max(...Object.values(vectors).map((vector) => Math.hypot(...vector))) || 1;
    const scale = radius / (longest * Math.max(1, rotary.attention_factor));
    const rotated = {
      q: hands.q.show(vectors.q, rotatePair(vectors.q, m, rotary, pair), { scale, token: left, position: m }),
      k: hands.k.show(vectors.k, rotatePair(vectors.k, n, rotary, pair), { scale, token: right, position: n }),
    };
    const between = Math.atan2(Math.sin(rotated.q - rotated.k), Math.cos(rotated.q - rotated.k));
    const isDrawn = Number.isFinite(between);
    const [x, y] = isDrawn ? polar(rotated.k + between / 2, 60) : [0, 0];
    setAll(wedge, { d: isDrawn ? `${arc(rotated.k, between, 42)} L${center} ${center} Z` : "" });
    setAll(degrees, { x, y: y + 4 });
    degrees.textContent = isDrawn ? `${Math.round(Math.abs(between) * 180 / Math.PI)}\u00b0` : "";
    const [first, second] = pairChannels(rotary, pair);
    channelX.textContent = `channel ${first}`;
    channelY.textContent = `channel ${second}`;
    const words = isDrawn ? `the angle between them is ${degrees.textContent}` : "their values are not finite";
    svg.setAttribute("aria-label", `q at position ${m} and k at position ${n}, rotated in pair ${pair}; ${words}`);
  }

  // Reports each drag of a hand as a position.
  function drag(move, frequency, choice) {
    let held = null;
    const angleAt = (event) => {
      const box = svg.getBoundingClientRect();
      return Math.atan2(box.top + box.height / 2 - event.clientY, event.clientX - box.left - box.width / 2);
    };
    svg.addEventListener("pointerdown", (event) => {
      const key = event.target.dataset.hand;
      if (!key) return;
      event.preventDefault();
      svg.setPointerCapture(event.pointerId);
      held = { key, angle: angleAt(event), position: choice()[key] };
    });
    svg.addEventListener("pointermove", (event) => {
      if (!held) return;
      const angle = angleAt(event);
      const by = Math.atan2(Math.sin(angle - held.angle), Math.cos(angle - held.angle));
      // A slow pair would need many rotations of the hand; half a rotation then covers all positions.
      held.position += by * Math.min(1 / toNumber(frequency()), (LAST_POSITION + 1) / Math.PI);
      held.position = Math.min(LAST_POSITION, Math.max(0, held.position));
      held.angle = angle;
      move(held.key, held.position);
    });
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, () => { held = null; });
  }

  return { element: svg, show, drag };
}

// One vector: a dashed line before the rotation, an arrow after it, an arc in between, and a handle to drag.
function handDrawing(name) {
  const hand = { q: "m", k: "n" }[name];
  const before = draw("line", { x1: DIAL.center, y1: DIAL.center, class: "rope-before" });
  const line = draw("line", { x1: DIAL.center, y1: DIAL.center, class: "rope-hand", data: { hand } });
  const path = draw("path", { class: "rope-arc" });
  const grip = draw("circle", { r: 18, class: "rope-grip", data: { hand } });
  const tip = draw("circle", { r: name === "q" ? 6 : 5, class: `rope-tip rope-tip-${name}` });
  const label = draw("text", { class: "rope-label" });

  function show(vector, rotated, { scale, token, position }) {
    const from = Math.atan2(vector[1], vector[0]), to = Math.atan2(rotated[1], rotated[0]);
    const by = ((to - from) % (2 * Math.PI) + 2 * Math.PI) % (2 * Math.PI);
    const size = Math.hypot(...rotated) * scale;
    const isDrawn = Number.isFinite(size + to);
    for (const part of [before, line, path, grip, tip, label]) {
      part.classList.toggle("rope-none", !isDrawn);
      styled(part, { "--token": tokenColor(token.id) });
    }
    if (!isDrawn) return to;
    const [bx, by2] = polar(from, Math.hypot(...vector) * scale), [x, y] = polar(to, size);
    setAll(before, { x2: bx, y2: by2 });
    setAll(line, { x2: x, y2: y });
    setAll(tip, { cx: x, cy: y });
    setAll(grip, { cx: x, cy: y });
    setAll(path, { d: by > 1e-6 ? arc(from, by, DIAL.radius + (name === "q" ? 8 : 16)) : "" });
    const [lx, ly] = polar(to, Math.max(44, size + 32));
    setAll(label, { x: Math.min(366, Math.max(34, lx)), y: Math.min(390, Math.max(16, ly + 5)) });
    label.textContent = `${name} at ${position}`;
    return to;
  }

  return { parts: [before, path, line, tip, label, grip], show };
}

// ---- numbers

function dialReadout(pairs) {
  const cell = (field) => make("td", { class: "number", id: `dot-${field}` });
  const names = ["pair-before", "pair-after", "all-before", "all-after"];
  const cells = Object.fromEntries(names.map((name) => [name, cell(name)]));
  const pairName = make("th", { scope: "row" }), after = make("th", { scope: "col" });
  const sentence = make("p", { class: "dial-words" });
  const table = make("table", { class: "dots", "aria-label": "Dot products of q and k" },
    make("thead", {}, make("tr", {},
      make("th", { scope: "col" }, "q \u00b7 k"), make("th", { scope: "col" }, "before"), after)),
    make("tbody", {},
      make("tr", {}, pairName, cells["pair-before"], cells["pair-after"]),
      make("tr", {}, make("th", { scope: "row" }, `all ${pairs} pairs`), cells["all-before"], cells["all-after"])));
  const write = (element, value) => {
    element.textContent = fixed(value, 4);
    element.dataset.exact = exact(value);
  };
  return {
    element: make("div", { class: "dial-readout" }, table, sentence),
    show({ before, after: rotated, pair, m, n, together }) {
      pairName.textContent = `pair ${pair}`;
      after.textContent = `rotated to ${m}, ${n}`;
      ["pair", "all"].forEach((name, index) => {
        write(cells[`${name}-before`], before[index]);
        write(cells[`${name}-after`], rotated[index]);
      });
      const same = "Both move, but the distance stays the same, and so do the dot products.";
      sentence.replaceChildren(make("strong", {}, `Distance ${signed(String(m - n))}.`),
        together ? ` ${same}` : " Only the distance matters: move both together to see it.");
    },
  };
}

// A small plot of the dot product against the distance, with a mark at the current one.
function distancePlot(name) {
  const limit = LAST_POSITION, width = 320, height = 88;
  const x = (distance) => ((distance + limit) / (2 * limit)) * width;
  const line = draw("path", { class: "plot-line" }), dot = draw("circle", { r: 4.5, class: "plot-dot" });
  const mark = draw("line", { y1: 0, y2: height, class: "plot-mark" });
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img" },
    draw("line", { x1: 0, x2: width, y1: height / 2, y2: height / 2, class: "plot-zero" }),
    draw("line", { x1: width / 2, x2: width / 2, y1: 0, y2: height, class: "plot-zero" }), mark, line, dot);
  let largestValue = 1;
  const y = (value) => height / 2 - (value / largestValue) * (height / 2 - 6);
  return {
    element: make("figure", {}, make("figcaption", { class: "caption" }, upper(name)), svg,
      make("p", { class: "strip-ends number", "aria-hidden": "true" },
        span("", signed(String(-limit))), span("", "0"), span("", `+${limit}`))),
    plot(valueAt) {
      const distances = Array.from({ length: 4 * limit + 1 }, (_, index) => index / 2 - limit);
      const values = distances.map(valueAt);
      largestValue = largest(values.filter(Number.isFinite)) || 1;
      const points = distances.map((distance, index) => `${x(distance).toFixed(1)},${y(values[index]).toFixed(1)}`);
      setAll(line, { d: values.every(Number.isFinite) ? `M${points.join("L")}` : "" });
    },
    mark(distance, value) {
      setAll(mark, { x1: x(distance), x2: x(distance) });
      setAll(dot, { cx: x(distance), cy: Number.isFinite(value) ? y(value) : height / 2 });
      const words = `q \u00b7 k of ${name} is ${fixed(value, 4)} at distance ${signed(String(distance))}`;
      svg.setAttribute("aria-label", words);
    },
  };
}

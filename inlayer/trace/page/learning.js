// One training step with a learning rate chosen by the reader: rows move, and the loss and the next token change.

const CHART_LEFT = 32; // width of the axis labels
const LABEL = [80, 10]; // width and height of "loss 4.461" on the chart
const LEARNING_RATES = [0, 0.03, 0.1, 0.3, 0.6, 1, 1.5, 2, 3];

let chosenRate = 0; // index into the steps; kept while the page is redrawn

let movedRowsShown = []; // how the rows move on the map

// Arrows for the map: only step 8 moves rows.
function learningArrows() {
  return state.view === "walk" && state.step === 8 ? movedRowsShown : [];
}

function learningFigure(trace) {
  if (trace.backward.loss_kind !== "next token") return null;
  const panel = make("section", { class: "learning", "aria-labelledby": "learning-title" },
    make("h2", { id: "learning-title" }, "Apply one training step"));
  const loss = toNumber(trace.backward.loss);
  if (!Number.isFinite(loss)) {
    panel.classList.add("without-figure");
    panel.append(note(`The loss is ${brief(loss)}, because some rows are not finite or too large. A step would move every row to NaN.`));
    return panel;
  }
  const title = panel.firstChild, waiting = panel.appendChild(note("Computing the step…"));
  const without = (why) => waiting.replaceWith(lossChart(lossOnly(trace)).element, note(`${upper(why)}.`));
  source.gradientStep(current.query, LEARNING_RATES).then((learned) => {
    if (!panel.isConnected) return;
    if (learned.steps.length > 0) fillLearning(panel, title, learned);
    else without(learned.note);
  }).catch((error) => without(error.message.replace(/\.$/, "")));
  return panel;
}

// Without the steps, the chart still compares the loss with a uniform guess.
function lossOnly({ backward, table }) {
  return { uniform_loss: Math.log(table.shape[0]), steps: [{ learning_rate: 0, loss: backward.loss }] };
}

function fillLearning(panel, title, learned) {
  const { steps } = learned;
  const chart = lossChart(learned), bars = nextBars(learned), moved = movedRows(steps);
  const words = make("p", { class: "learning-words" });
  const rate = slider({
    id: "learning-rate", label: "Learning rate", max: steps.length - 1, value: Math.min(chosenRate, steps.length - 1),
    input: show, change: (index) => announce(sentence(index)),
  });

  function sentence(index) {
    const [from, to] = [steps[0], steps[index]].map((step) => toNumber(step.loss));
    const { uniform_loss: uniform } = learned;
    const guess = shortened(to) === shortened(uniform) ? "the same as" : to < uniform ? "better than" : "worse than";
    const moves = `${to < from ? "falls" : "rises"} from ${shortened(from)} to ${shortened(to)}`;
    const loss = `The loss ${index === 0 ? `is ${shortened(to)}` : moves}`;
    return `${loss}, ${guess} a uniform guess (ln V = ${shortened(uniform)}).`;
  }

  function show(index) {
    chosenRate = index;
    rate.set(index, brief(steps[index].learning_rate));
    words.textContent = sentence(index);
    chart.mark(index);
    bars.show(index);
    moved.show(index);
    const shownStep = index || steps.length - 1; // before a step, show where the gradient would move the rows
    movedRowsShown = steps[shownStep].moved.filter((row) => row.shift !== null)
      .map(({ id, shift }) => ({ id, shift, color: tokenColor(id, index ? 1 : 0.5) }));
    shownMap()?.setArrows(learningArrows());
  }

  panel.replaceChildren(title,
    note("Each row moves against its gradient, scaled by the learning rate. The walk above is unchanged."),
    make("div", { class: "learning-grid" },
      make("div", {}, chart.element, rate.element, words), bars.element, moved.element));
  show(Math.min(chosenRate, steps.length - 1));
}

// The loss at each learning rate, with the loss of a uniform guess as a reference.
function lossChart({ uniform_loss: uniform, steps }) {
  const width = 320, height = 160, bottom = 136;
  const losses = steps.map((step) => toNumber(step.loss));
  const finite = [...losses.filter(Number.isFinite), uniform];
  const highest = Math.max(...finite) * 1.12;
  const x = (index) => CHART_LEFT + (steps.length > 1 ? index / (steps.length - 1) : 0) * (width - CHART_LEFT - 12);
  const y = (loss) => bottom - (Math.min(loss, highest) / highest) * (bottom - 16);
  const points = losses.flatMap((loss, index) => (Number.isFinite(loss) ? [[x(index), y(loss)]] : []));
  const dot = draw("circle", { r: 6, class: "plot-dot" }), value = draw("text", { class: "loss-value" });
  const stem = draw("line", { y2: bottom, class: "plot-mark" });
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot loss-plot", role: "img" },
    draw("line", { x1: 0, x2: width, y1: bottom, y2: bottom, class: "plot-zero" }),
    draw("line", { x1: CHART_LEFT - 8, x2: width, y1: y(uniform), y2: y(uniform), class: "loss-uniform" }),
    stem, draw("path", { d: `M${points.join("L")}`, class: "plot-line" }),
    ticksUpTo(highest).map((loss) => draw("text", { x: CHART_LEFT - 10, y: y(loss) + 3, "text-anchor": "end", class: "loss-tick" },
      brief(loss))),
    steps.map((step, index) => draw("text", { x: x(index), y: height - 6, "text-anchor": "middle", class: "loss-rate" },
      brief(step.learning_rate))),
    dot, value);
  const mark = (index) => {
    const loss = losses[index], at = Number.isFinite(loss) ? y(loss) : 16;
    setAll(dot, { cx: x(index), cy: at });
    setAll(stem, { x1: x(index), x2: x(index), y1: at });
    setAll(value, labelPosition(points, { x: x(index), y: at }, { width, bottom, line: y(uniform) }));
    value.textContent = `loss ${shortened(loss)}`;
    const words = `Loss ${shortened(loss)} at learning rate ${brief(steps[index].learning_rate)}`;
    svg.setAttribute("aria-label", `${words}; the loss of a uniform guess is ${shortened(uniform)}`);
  };
  mark(0);
  return {
    mark,
    element: make("figure", { class: "loss-chart" },
      make("figcaption", { class: "caption" },
        `Loss after the step, by learning rate. Dashed: uniform guess, ln V = ${shortened(uniform)}`), svg),
  };
}

// Round numbers from 0 to a maximum, for the labels of an axis.
function ticksUpTo(maximum) {
  const power = 10 ** Math.floor(Math.log10(maximum / 2));
  const size = power * ([5, 2].find((factor) => factor * power <= maximum / 2) ?? 1);
  return Array.from({ length: Math.floor(maximum / size) + 1 }, (_, index) => index * size);
}

// A position for a label next to a dot, where neither the curve nor the horizontal line crosses it.
function labelPosition(points, dot, { width, bottom, line }) {
  const [wide, high] = LABEL;
  const heightAt = (x) => {
    const next = points.findIndex((point) => point[0] >= x);
    const [[x0, y0], [x1, y1]] = next > 0 ? [points[next - 1], points[next]] : [points.at(-1), points.at(-1)];
    return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
  };
  const isFree = ({ x, y }) => {
    const isHit = (height) => height > y - high - 2 && height < y + 4;
    const curve = Array.from({ length: wide / 2 + 1 }, (_, index) => heightAt(x + 2 * index));
    return x >= CHART_LEFT && x + wide <= width && y - high >= 0 && y + 4 <= bottom && ![line, ...curve].some(isHit);
  };
  const places = [-8, 18, -28, 36, -48, 56, -68, -88, -108].flatMap((up) =>
    [10, -10 - wide, -wide / 2].map((right) => ({ x: dot.x + right, y: dot.y + up })));
  return places.find(isFree) ?? { x: Math.max(CHART_LEFT, Math.min(width - wide, dot.x - wide / 2)), y: Math.max(high, dot.y - 8) };
}

// The most probable tokens after the last token with a target, before the step and after it.
function nextBars({ steps, predicted_at: [b, t] }) {
  const list = make("ul", { class: "next-bars" });
  const { target } = steps[0];
  const token = current.trace.texts[b]?.tokens[t];
  const percent = (share) => (share < 0.001 ? "< 0.1%" : `${(100 * share).toPrecision(3)}%`);
  return {
    element: make("section", { class: "next", "aria-label": "Next token" },
      make("h3", {}, token ? `What follows ${quoted(token.label)}?` : "Next token"),
      make("p", { class: "caption" }, "Target: ", span("mono", nameOf(target)), ". Thin bars: before the step."), list),
    show(index) {
      const [before, after] = [steps[0], steps[index]].map((step) =>
        new Map([step.target, ...step.predicted_tokens].map((next) => [next.id, next])));
      const names = new Map([...before, ...after]);
      const share = (found, id) => toNumber(found.get(id)?.probability ?? 0);
      const ids = [target.id, ...[...names.keys()].filter((id) => id !== target.id)
        .sort((a, b) => share(after, b) - share(after, a)).slice(0, 6)];
      list.replaceChildren(...ids.map((id) => styled(make("li", { class: id === target.id ? "target" : "" },
        span("next-name mono", cut(nameOf(names.get(id)), 14)),
        make("span", { class: "next-bar", "aria-hidden": "true" }, make("i", { class: "next-before" }),
          make("i", { class: "next-after" })),
        span("number", percent(share(after, id)))), {
        "--before": share(before, id).toFixed(4), "--after": share(after, id).toFixed(4), "--token": tokenColor(id),
      })));
    },
  };
}

// How far each row moved: its cosine similarity with itself before the step.
function movedRows(steps) {
  const list = make("ul", { class: "moved" });
  const names = new Map(current.trace.backward.rows.map((row) => [row.id, nameOf(row)]));
  return {
    element: make("section", { class: "moved-rows", "aria-label": "Rows that move" },
      make("h3", {}, "Rows that move"),
      make("p", { class: "caption" }, "cosine similarity with the row before the step"), list),
    show(index) {
      list.replaceChildren(...steps[index].moved.slice(0, 8).map(({ id, cosine }) => styled(make("li", {},
        span("next-name mono", cut(names.get(id) ?? String(id), 14)),
        draw("svg", { viewBox: "0 0 28 28", class: "moved-dial", "aria-hidden": "true" },
          draw("line", { x1: 2, y1: 22, x2: 26, y2: 22, class: "dial-unscaled" }),
          draw("line", { x1: 2, y1: 22, class: "dial-hand", ...rotatedTip(toNumber(cosine ?? 1)) })),
        span("number", cosine === null ? "\u2013" : fixed(cosine, 3))), { "--token": tokenColor(id) })));
    },
  };
}

function rotatedTip(cosine) {
  const angle = Math.acos(Math.min(1, Math.max(-1, cosine)));
  return { x2: 2 + 22 * Math.cos(angle), y2: 22 - 22 * Math.sin(angle) };
}

// All channel pairs as clocks: each hand rotates at its pair's speed. Theta and RoPE scaling change the speeds.

const CLOCK_SPEED = 5; // positions per second
const clock = { position: 0, playing: false, started: "", scaling: "" }; // kept while the page is redrawn

// The rotary facts with the RoPE scaling that the reader compares with the model's own.
function rescaledRotary(rotary) {
  const rescaled = rotary.rescaled.find((scaling) => scaling.name === clock.scaling);
  return rescaled ? { ...rotary, ...rescaled, unscaled_frequencies: rotary.frequencies, scaling: clock.scaling } : rotary;
}

function scalingChoice(rotary, redraw) {
  const names = rotary.rescaled.map((scaling) => scaling.name);
  if (names.length === 0) return null;
  return make("div", { class: "control" }, span("note", "RoPE scaling"),
    make("div", { class: "segments", role: "group", "aria-label": "RoPE scaling" }, ["", ...names].map((name) =>
      button(name || "none", () => {
        clock.scaling = name;
        redraw();
        byId(`scaling-${names.indexOf(name)}`).focus();
      }, { id: `scaling-${names.indexOf(name)}`, "aria-pressed": String(clock.scaling === name) }))));
}

function clocksFigure(own, walk, onChoose, redraw) {
  const rotary = rescaledRotary(own), scaled = isScaled(rotary);
  const faces = rotary.frequencies.map((_, pair) => clockFace(rotary, pair, scaled, onChoose));
  const play = button("Play", () => (clock.playing ? stop() : start()), { id: "clocks-play" });
  const at = slider({
    id: "clocks-position", label: "Position", max: LAST_POSITION, value: clock.position,
    input: (position) => { stop(); show(position); },
  });
  const grid = rove(make("div", {
    class: "clocks" + (faces.length > 64 ? " dense" : ""), role: "group", "aria-label": "Channel pairs",
  }, faces.map((face) => face.element)));

  function show(position) {
    clock.position = position;
    at.set(position, String(Math.floor(position)));
    for (const face of faces) face.rotate(position);
  }

  function label() {
    play.textContent = clock.playing ? "Pause" : motion.instant ? "Next position" : "Play";
  }

  function stop() {
    clock.playing = false;
    label();
  }

  function start() {
    if (clock.position >= LAST_POSITION) show(0);
    if (motion.instant) {
      show(Math.floor(clock.position) + 1);
      return label();
    }
    clock.playing = true;
    label();
    let last = performance.now();
    const tick = (time) => {
      if (!clock.playing || !grid.isConnected) return;
      show(Math.min(LAST_POSITION, clock.position + (Math.max(0, time - last) / 1000) * CLOCK_SPEED));
      last = time;
      if (clock.position >= LAST_POSITION || motion.instant) stop();
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  show(clock.position);
  label();
  if (clock.playing) requestAnimationFrame(start);
  else if (clock.started !== walk && !motion.instant) requestAnimationFrame(start); // runs once
  clock.started = walk;
  return {
    choose: (pair) => faces.forEach((face, index) => face.element.setAttribute("aria-pressed", String(index === pair))),
    element: make("div", { class: "clocks-figure" },
      make("h3", {}, `All ${counted(faces.length, "pair")}, each at its own speed`),
      note("The number is how many positions one full rotation takes. Fast pairs distinguish adjacent positions; slow ",
        "pairs distinguish distant ones. Select a clock to see its pair on the dial.",
        scaled && ` RoPE scaling (${rotary.scaling}) makes slow pairs slower, so a longer text stays within the `
          + "angles the model was trained on: the thin hand shows the unscaled speed.",
        scaled && rotary.attention_factor !== 1 && ` It also multiplies cos and sin by ${brief(rotary.attention_factor)}.`),
      make("div", { class: "clocks-bar" }, play, at.element, scalingChoice(own, redraw)),
      grid),
  };
}

function isScaled(rotary) {
  return rotary.frequencies.some((value, pair) => value !== rotary.unscaled_frequencies[pair]);
}

function clockFace(rotary, pair, scaled, onChoose) {
  const [frequency, unscaled] = [rotary.frequencies[pair], rotary.unscaled_frequencies[pair]].map(toNumber);
  const hand = (name, length) => draw("line", { x1: 14, y1: 14, x2: 14 + length, y2: 14, class: name });
  const thick = hand("dial-hand", 10.5), thin = scaled ? hand("dial-unscaled", 12) : null;
  const ratio = unscaled / frequency;
  const element = button([
    span("hidden-text", "Pair "), span("clock-pair number", String(pair)),
    draw("svg", { viewBox: "0 0 28 28", "aria-hidden": "true" },
      draw("circle", { cx: 14, cy: 14, r: 12.5, class: "dial-face" }), thin, thick,
      draw("circle", { cx: 14, cy: 14, r: 1.5, class: "dial-pin" })),
    span("hidden-text", ", one full rotation takes "), span("clock-period number", periodOf(frequency)),
    scaled && span("clock-ratio number", `\u00f7${Number(ratio.toPrecision(3))}`),
  ], () => onChoose(pair), { class: "clock", "aria-pressed": "false", tabindex: -1, data: { nav: "", pair } });
  const angle = (speed, position) => `rotate(${(-position * speed * 180 / Math.PI).toFixed(2)} 14 14)`;
  return {
    element,
    rotate(position) {
      thick.setAttribute("transform", angle(frequency, position));
      thin?.setAttribute("transform", angle(unscaled, position));
    },
  };
}

// Positions of one full rotation, in at most four characters.
function periodOf(frequency) {
  const period = (2 * Math.PI) / frequency;
  const unit = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([size]) => period >= size);
  const number = period / (unit?.[0] ?? 1);
  if (!Number.isFinite(period)) return "\u221e";
  return (number < 10 ? number.toFixed(1) : Math.round(number)) + (unit?.[1] ?? "");
}

// Theta on a logarithmic scale. An exported page offers only a few values.
function thetaSlider(trace) {
  if (source.exported) return null;
  const own = (current.base ?? trace).positions.rotary[0]?.theta ?? null;
  const theta = toNumber(trace.positions.rotary[0]?.theta ?? trace.change.theta ?? 10000);
  const rounded = (power) => {
    const value = Number((10 ** power).toPrecision(2));
    return own !== null && Math.abs(value / own - 1) < 0.02 ? own : value;
  };
  const power = Math.log10(theta);
  const made = slider({
    id: "theta-slider", label: "theta", value: power, step: 0.05,
    min: Math.min(1, Math.floor(power)), max: Math.max(7, Math.ceil(power)),
    input: (value) => made.set(value, grouped(rounded(value))),
    change: (value) => go({ theta: rounded(value) === own ? null : rounded(value) }),
  });
  made.set(power, grouped(theta));
  return made.element;
}

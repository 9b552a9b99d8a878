// The state of the page. It is stored in the URL fragment, so a link reproduces the whole view.

const START = Object.freeze({
  texts: ["The king left London with seven friends on Monday"], model: null, step: 1, dims: innerWidth < 2200 ? 8 : 12, from: 0, channel: 0,
  positions: null, theta: null, swap: null, pad: 0, view: "walk", predict: false, token: null, seed: 0, other: null,
});
const STEPS = 8;
const VIEWS = ["walk", "compare", "initialization"];
const SCHEMES = ["none", "learned", "sinusoidal", "rotary"];
const DIMS = [4, 8, 16, 32, 64];
const MAX_PAD = 8;
const MAX_SEED = 0x7fffffff;

const MAX_THETA = 1e12;
const THETA_RANGE = `a number above 0, at most ${MAX_THETA.toExponential().replace("+", "")}`;

let state = { ...START };
let ignored = []; // settings in the link that the page cannot show

function readFragment(fragment) {
  const read = new URLSearchParams(fragment.replace(/^#/, ""));
  ignored = [];
  const valid = (name, isValid, expected) => {
    const text = read.get(name);
    if (text !== null && !isValid(text)) ignore(name, text, expected);
    return text !== null && isValid(text) ? text : null;
  };
  const integer = (name, min, max, fallback) => {
    const inRange = (text) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max;
    const text = valid(name, inRange, max < Number.MAX_SAFE_INTEGER ? `${min} to ${max}` : "a whole number");
    return text === null ? fallback : Number(text);
  };
  const oneOf = (name, values) => valid(name, (text) => values.includes(text), `one of ${values.join(", ")}`);
  const swap = valid("swap", (text) => /^\d+,\d+$/.test(text) && new Set(text.split(",").map(Number)).size === 2, "two different tokens, such as 0,1");
  const theta = valid("theta", isTheta, THETA_RANGE);
  return {
    texts: read.has("text") ? read.getAll("text") : [...START.texts],
    model: read.get("model"),
    step: integer("step", 1, STEPS, START.step),
    dims: integer("dims", 1, 512, START.dims),
    from: integer("from", 0, Number.MAX_SAFE_INTEGER, 0),
    channel: integer("channel", 0, Number.MAX_SAFE_INTEGER, 0),
    positions: oneOf("positions", SCHEMES),
    theta: theta === null ? null : Number(theta),
    swap: swap === null ? null : swap.split(",").map(Number),
    pad: integer("pad", 0, 64, 0),
    view: oneOf("view", VIEWS) ?? "walk",
    other: read.get("other"),
    predict: read.get("predict") === "1",
    token: integer("token", 0, Number.MAX_SAFE_INTEGER, null),
    seed: integer("seed", 0, MAX_SEED, 0),
  };
}

function ignore(name, text, expected) {
  ignored.push(`${name}=${cut(visible(text), 30)} (${expected})`);
}

function isTheta(text) {
  return Number(text) > 0 && Number(text) <= MAX_THETA;
}

function writeFragment(view) {
  const write = new URLSearchParams();
  for (const text of view.texts) write.append("text", text);
  if (view.model !== null) write.set("model", view.model);
  write.set("step", view.step);
  if (view.dims !== START.dims) write.set("dims", view.dims);
  if (view.from) write.set("from", view.from);
  if (view.channel) write.set("channel", view.channel);
  if (view.positions !== null) write.set("positions", view.positions);
  if (view.theta !== null) write.set("theta", view.theta);
  if (view.swap !== null) write.set("swap", view.swap.join(","));
  if (view.pad) write.set("pad", view.pad);
  if (view.view !== START.view) write.set("view", view.view);
  if (view.other !== null) write.set("other", view.other);
  if (view.predict) write.set("predict", "1");
  if (view.token !== null) write.set("token", view.token);
  if (view.seed) write.set("seed", view.seed);
  return "#" + write.toString();
}

// Every action adds a history entry, so "back" undoes it; typing adds one.
function go(patch, { replace = false } = {}) {
  commitTyping();
  isTyped = false;
  state = { ...state, ...patch };
  const fragment = writeFragment(state);
  if (fragment !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", fragment);
  if (models.length > 0) update(); // before that, the page is still opening and reads the fragment later
}

const UNCHANGED = Object.freeze({ positions: null, theta: null, swap: null, pad: 0 });

function changeOf(view) {
  return { positions: view.positions, theta: view.theta, swap: view.swap, pad: view.pad };
}

function isChanged(change) {
  return change.positions !== null || change.theta !== null || change.swap !== null || change.pad > 0;
}

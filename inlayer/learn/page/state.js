// The current view, stored in the URL fragment: #lesson=forward, #lesson=forward&task=gather,
// #lesson=forward&part=quiz, #misconception=index_select. #step=5 opens the lesson for that step of the walk.

const PARTS = ["exercises", "quiz"];
const NO_VIEW = Object.freeze({ lesson: null, task: null, part: null, misconception: null, step: null });

let view = { ...NO_VIEW };

function readView(fragment) {
  const read = new URLSearchParams(fragment.replace(/^#/, ""));
  const [lesson, task, part, misconception, step] = ["lesson", "task", "part", "misconception", "step"].map((name) => read.get(name));
  return { lesson, task, part, misconception, step }; // checked against the course later
}

function writeView(wanted) {
  const write = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) if (value !== null) write.set(name, value);
  return "#" + write.toString();
}

function linkTo(wanted, ...children) {
  return make("a", { href: writeView({ ...NO_VIEW, ...wanted }) }, children);
}

// Matrices on this page are not compared with earlier values.
function markOf() {
  return "";
}

// Matrices on this page start at the first token and channel.
function firstShown() {
  return {};
}

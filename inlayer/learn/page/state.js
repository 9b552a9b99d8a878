// What the page shows, and its writing in the URL fragment: #lesson=forward, #lesson=forward&task=gather,
// #lesson=forward&part=quiz, #misconception=index_select; #step=5 is the lesson about that step of the walk.

const PARTS = ["exercises", "quiz"];
const NOWHERE = Object.freeze({ lesson: null, task: null, part: null, misconception: null, step: null });

let view = { ...NOWHERE };

function readView(fragment) {
  const read = new URLSearchParams(fragment.replace(/^#/, ""));
  const [lesson, task, part, misconception, step] = ["lesson", "task", "part", "misconception", "step"].map((name) => read.get(name));
  return { lesson, task, part, misconception, step }; // whether there is such a thing, the course says
}

function writeView(wanted) {
  const write = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) if (value !== null) write.set(name, value);
  return "#" + write.toString();
}

function linkTo(wanted, ...children) {
  return make("a", { href: writeView({ ...NOWHERE, ...wanted }) }, children);
}

// In matrices nothing is compared with anything before.
function markOf() {
  return "";
}

// ---- a little that outlives the page, in this browser

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Without storage it lasts as long as the page.
  }
}

// From the address to the page: load the requested parts, ignore late responses, and render.

const LOADING_SHOWS = 150; // milliseconds; faster responses do not need an indicator
const KEYS = [
  [["Ctrl", "Enter"], "check the code"],
  [["Tab"], "in the editor: indent; Esc, then Tab leaves it"],
  [["Ctrl", "Z"], "in the editor: undo"],
  [["w"], "show or hide the walk"],
  [["n"], "go to the next part"],
  [["\u2190", "\u2192"], "on the divider: change the width of the walk"],
  [["?"], "show this list"],
];

let course = null;
let ticket = 0;
const lessons = new Map(); // lessons that were loaded; updated when the learner completes something

async function refreshCourse() {
  try {
    course = await server.course();
    renderLessons();
    renderTally();
  } catch {
    // Keep the old list; errors of an action are shown next to it.
  }
}

async function attempt(call, otherwise = null) {
  try {
    hideError();
    return await call();
  } catch (error) {
    showError(error.message);
    return otherwise;
  }
}

function showError(message) {
  byId("error").textContent = message;
  byId("error").hidden = false;
}

function hideError() {
  byId("error").hidden = true;
  byId("error").textContent = "";
}

function busy(on) {
  byId("progress").hidden = !on;
  byId("stage").setAttribute("aria-busy", String(on));
}

function isWide() {
  return window.matchMedia("(min-width: 1021px)").matches;
}

// Wide enough for the list, a full line of text, and the walk. Only then does the walk open by default.
function fitsWalkPane() {
  return window.matchMedia("(min-width: 1500px)").matches;
}

// The step of the walk that the current view is about.
function walkStep() {
  const lesson = lessons.get(view.lesson);
  return lesson?.tasks.find(({ id }) => id === view.task)?.step ?? lesson?.step ?? 1;
}

function go(place) {
  const fragment = writeView({ ...NO_VIEW, ...(place ? viewOf(place) : {}) });
  if (fragment !== location.hash) history.pushState(null, "", fragment);
  show({ moved: true });
}

async function show({ moved = false } = {}) {
  const request = ++ticket;
  leaveTask();
  view = readView(location.hash);
  const indicator = setTimeout(() => busy(true), LOADING_SHOWS);
  hideError();
  try {
    course ??= await server.course();
    resolveView();
    if (view.lesson !== null && !lessons.has(view.lesson)) lessons.set(view.lesson, await server.lesson(view.lesson));
    const task = lessons.get(view.lesson)?.tasks.find(({ id }) => id === view.task);
    if (task) task.file = await server.file(task.id);
    const [elements, then] = await pageOf(task);
    if (request !== ticket) return;
    byId("stage").replaceChildren(...elements.flat(Infinity).filter((element) => !isNothing(element)));
    renderLessons();
    fold(true);
    then();
    document.title = `${byId("stage-title").textContent}: inlayer learn`;
    if (isWalkOpen() && view.lesson !== null) openWalk(walkStep(), null, { quiet: true });
    if (moved) {
      if (!view.misconception) window.scrollTo(0, 0);
      byId("stage").focus({ preventScroll: true });
      announce(byId("stage-title").textContent);
    }
  } catch (error) {
    if (request !== ticket) return;
    if (!(error instanceof ServerError)) console.error(error);
    showError(error instanceof ServerError ? error.message : `This page failed: ${error.message}`);
  } finally {
    clearTimeout(indicator);
    if (request === ticket) busy(false);
  }
}

// Fills in missing parts of an address, and reports parts that do not exist.
function resolveView() {
  const { lesson, task, part, step } = view;
  const notFound = (kind, name) => {
    showError(`There is no ${kind} ${cut(visible(name), 60)}. Showing the course instead.`);
    view = { ...NO_VIEW };
  };
  if (task !== null) {
    view.lesson = lessonOf(task);
    if (view.lesson === null) notFound("task", task);
  } else if (lesson !== null) {
    if (!course.lessons.some(({ id }) => id === lesson)) notFound("lesson", lesson);
    else if (part !== null && !PARTS.includes(part)) notFound("part", part);
  } else if (step !== null) {
    const isStep = /^[1-8]$/.test(step);
    const about = isStep && course.lessons.find((lesson) => lesson.step >= Number(step)); // the first lesson covers three steps
    if (about) view = { ...NO_VIEW, lesson: about.id };
    else notFound("lesson for step", step);
  }
}

async function pageOf(task) {
  if (view.misconception !== null) return misconceptionsView();
  const lesson = lessons.get(view.lesson);
  if (!lesson) return overviewView();
  if (task) return taskView(lesson, task);
  if (view.part === "exercises") return exercisesView(lesson);
  if (view.part === "quiz") return quizView(lesson);
  return readingView(lesson);
}

// On a narrow screen, the lesson list folds behind its button.
function fold(folded) {
  byId("lessons").classList.toggle("unfolded", !folded);
  byId("lessons-toggle").setAttribute("aria-expanded", String(!folded));
}

function renderKeys() {
  byId("keys").replaceChildren(
    make("h2", { id: "keys-title" }, "Keyboard shortcuts"),
    make("dl", { class: "key-list" }, KEYS.map(([keys, effect]) => [
      make("dt", {}, keys.map((key) => make("kbd", {}, key))), make("dd", {}, effect)])),
    make("form", { method: "dialog" }, make("button", { class: "primary" }, "Close")));
}

function listen() {
  listenForWalk();
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment holds the view
    byId("stage").focus();
  });
  byId("lessons-toggle").addEventListener("click", () => fold(byId("lessons").classList.contains("unfolded")));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || byId("keys").open) return;
    if (event.target.closest?.("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]")) return;
    const action = { "?": () => byId("keys").showModal(), w: () => byId("walk-toggle").click(), n: () => go(nextStep()) }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']:not(.skip)");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    if (link.hash !== location.hash) history.pushState(null, "", link.getAttribute("href"));
    show({ moved: true });
  });
  window.addEventListener("popstate", () => show());
  window.addEventListener("focus", () => {
    reloadIfChanged();
    if (course) refreshCourse(); // a task may have passed in a terminal
  });
  window.addEventListener("pagehide", () => leaveTask({ keepalive: true }));
  byId("walk").href = `/${location.search}`;
  for (const view of ["compare", "initialization"]) byId(view).href = `/${location.search}#view=${view}`;
  byId("inspect").href = `/inspect${location.search}`;
}

async function start() {
  setTheme(storedTheme());
  renderKeys();
  listen();
  await show();
  if (stored(STORED_OPEN) === "1" && isWide() && course) openWalk(walkStep(), null, { quiet: true });
}

start();

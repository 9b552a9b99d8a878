// From the address to the page: read what is asked for, drop answers that come too late, draw.

const LOADING_SHOWS = 150; // milliseconds; faster answers need no sign
const KEYS = [
  [["Ctrl", "Enter"], "check the code"],
  [["Tab"], "in the editor: indent; Esc, then Tab leaves it"],
  [["Ctrl", "Z"], "in the editor: undo"],
  [["w"], "the walk beside the lesson, on or off"],
  [["n"], "on to the next part"],
  [["\u2190", "\u2192"], "on the divider: the width of the walk"],
  [["?"], "this list"],
];

let course = null;
let ticket = 0;
const lessons = new Map(); // as they were loaded; what is done here is done to them too

async function refreshCourse() {
  try {
    course = await server.course();
    renderLessons();
  } catch {
    // The list stays as it was; what failed for the learner's own doing is said where he did it.
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

// Wide enough for the list, a whole line of text and the walk: only there it opens without being asked to.
function isRoomy() {
  return window.matchMedia("(min-width: 1500px)").matches;
}

// The step of the walk that what is on show is about.
function walkStep() {
  const lesson = lessons.get(view.lesson);
  return lesson?.tasks.find((one) => one.id === view.task)?.step ?? lesson?.step ?? 1;
}

function go(place) {
  const fragment = writeView({ ...NOWHERE, ...(place ? placeOf(place) : {}) });
  if (fragment !== location.hash) history.pushState(null, "", fragment);
  show({ moved: true });
}

async function show({ moved = false } = {}) {
  const mine = ++ticket;
  leaveTask();
  view = readView(location.hash);
  const sign = setTimeout(() => busy(true), LOADING_SHOWS);
  hideError();
  try {
    course ??= await server.course();
    settleView();
    if (view.lesson !== null && !lessons.has(view.lesson)) lessons.set(view.lesson, await server.lesson(view.lesson));
    const task = lessons.get(view.lesson)?.tasks.find((one) => one.id === view.task);
    if (task) task.file = await server.file(task.id);
    const [elements, then] = await pageOf(task);
    if (mine !== ticket) return;
    byId("stage").replaceChildren(...elements.flat(Infinity).filter((one) => !isNothing(one)));
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
    if (mine !== ticket) return;
    if (!(error instanceof Refused)) console.error(error);
    showError(error instanceof Refused ? error.message : `This page failed: ${error.message}`);
  } finally {
    clearTimeout(sign);
    if (mine === ticket) busy(false);
  }
}

// What an address leaves open, or asks for in vain.
function settleView() {
  const { lesson, task, part, step } = view;
  const lost = (kind, name) => {
    showError(`There is no ${kind} ${cut(visible(name), 60)}; here is the course.`);
    view = { ...NOWHERE };
  };
  if (task !== null) {
    view.lesson = lessonOf(task);
    if (view.lesson === null) lost("task", task);
  } else if (lesson !== null) {
    if (!course.lessons.some(({ id }) => id === lesson)) lost("lesson", lesson);
    else if (part !== null && !PARTS.includes(part)) lost("part", part);
  } else if (step !== null) {
    const about = course.lessons.find((one) => String(one.step) === step);
    if (about) view = { ...NOWHERE, lesson: about.id };
    else lost("lesson about step", step);
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

// On a narrow screen the course folds away behind its button.
function fold(folded) {
  byId("lessons").classList.toggle("unfolded", !folded);
  byId("lessons-toggle").setAttribute("aria-expanded", String(!folded));
}

function renderKeys() {
  byId("keys").replaceChildren(
    make("h2", { id: "keys-title" }, "Keys"),
    make("dl", { class: "key-list" }, KEYS.map(([keys, what]) => [
      make("dt", {}, keys.map((key) => make("kbd", {}, key))), make("dd", {}, what)])),
    make("form", { method: "dialog" }, make("button", { class: "primary" }, "Close")));
}

function listen() {
  listenForWalk();
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment is the view's
    byId("stage").focus();
  });
  byId("lessons-toggle").addEventListener("click", () => fold(byId("lessons").classList.contains("unfolded")));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || byId("keys").open) return;
    if (event.target.closest?.("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]")) return;
    const action = { "?": () => byId("keys").showModal(), w: () => byId("beside").click(), n: () => go(following()) }[event.key];
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
    lookAgain();
    if (course) refreshCourse(); // a task may have passed in a terminal meanwhile
  });
  window.addEventListener("pagehide", () => leaveTask({ keepalive: true }));
  byId("walk").href = `/${location.search}`;
}

async function start() {
  setTheme(storedTheme());
  renderKeys();
  listen();
  await show();
  if (stored(KEPT_OPEN) === "1" && isWide() && course) openWalk(walkStep(), null, { quiet: true });
}

start();

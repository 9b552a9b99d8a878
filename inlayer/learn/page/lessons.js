// The lesson list, the page of a lesson, the overview, and the misconceptions.

const DONE = "\u2713";
const SKIPPED = "\u2013";

function lessonOf(task) {
  return course.lessons.find((lesson) => lesson.tasks.some(({ id }) => id === task))?.id ?? null;
}

// All steps of the course in order.
function allSteps() {
  return course.lessons.flatMap((lesson) => [
    { lesson: lesson.id, title: `${lesson.number}. ${lesson.title}` },
    ...lesson.tasks.map((task) => ({ lesson: lesson.id, task: task.id, title: task.title })),
    { lesson: lesson.id, part: "exercises", title: "Exercises" },
    { lesson: lesson.id, part: "quiz", title: "Quiz" },
  ]);
}

function isCurrent(entry) {
  return entry.lesson === view.lesson && (entry.task ?? null) === view.task && (entry.part ?? null) === view.part;
}

function nextStep() {
  const all = allSteps();
  return all[all.findIndex(isCurrent) + 1] ?? null;
}

function viewOf({ lesson, task = null, part = null }) {
  return { lesson, task, part };
}

// The element on the page for a step of the course.
function stepView({ kind, id, lesson }) {
  return { lesson, task: kind === "task" ? id : null, part: { exercise: "exercises", quiz: "quiz" }[kind] ?? null };
}

function nextStepLink(next) {
  if (!next) return make("p", { class: "next" }, linkTo({}, "You reached the end. Back to the course"));
  const link = linkTo(viewOf(next), span("muted", "Next "), next.title);
  link.className = "next-link";
  return make("p", { class: "next" }, link);
}

function stageHead(kind, title, step, lesson) {
  return make("div", { class: "lesson-head" },
    make("p", { class: "kind" }, `Lesson ${lesson.number}`, " \u00b7 ", kind),
    make("h1", { id: "stage-title" }, title),
    make("p", { class: "kind" }, walkLink(step, null, `Step ${step} of the walk`)));
}

function doneMark(state) {
  if (state === "passed" || state === true) return span("done-mark", DONE, span("hidden-text", " done"));
  if (state === "skipped") return span("done-mark muted", SKIPPED, span("hidden-text", " skipped"));
  return span("done-mark", "");
}

function renderLessons() {
  byId("lessons-list").replaceChildren(
    make("p", { class: "course-link" }, current(linkTo({}, "The course"), view.lesson === null && view.misconception === null)),
    make("ol", {}, course.lessons.map((lesson) => make("li", { class: lesson.id === view.lesson ? "open" : null },
      current(linkTo({ lesson: lesson.id }, span("step-number", String(lesson.number)), lesson.title,
        doneMark(isComplete(lesson))), lesson.id === view.lesson && !view.task && !view.part),
      lesson.id === view.lesson && lessonParts(lesson)))),
    make("p", { class: "course-link" }, current(linkTo({ misconception: "" }, "Common misconceptions"), view.misconception !== null)));
}

function isComplete({ counts }) {
  return Object.values(counts).every(({ done, total }) => done === total);
}

function lessonParts(lesson) {
  const here = { lesson: lesson.id };
  return make("ul", { class: "parts" },
    lesson.tasks.map((task) => make("li", {},
      current(linkTo({ ...here, task: task.id }, task.title, doneMark(task.state)), task.id === view.task))),
    make("li", {}, current(linkTo({ ...here, part: "exercises" }, "Exercises", countsTag(lesson.counts.exercise)),
      view.part === "exercises")),
    make("li", {}, current(linkTo({ ...here, part: "quiz" }, "Quiz", countsTag(lesson.counts.quiz)), view.part === "quiz")));
}

function countsTag({ done, total }) {
  return done === total && total > 0 ? doneMark(true) : span("done-mark muted", `${done}/${total}`);
}

function current(link, is) {
  if (is) link.setAttribute("aria-current", "page");
  return link;
}

// ---- pages

function readingView(lesson) {
  const elements = [
    stageHead("Read", lesson.title, lesson.step, lesson),
    make("div", { class: "prose" }, lesson.text.map(toElement).flatMap(withTryHere)),
    make("div", { id: "after" }, nextStepLink(nextStep())),
  ];
  return [elements, () => course.runs_code && server.read(lesson.id).then(refreshCourse, () => 0)];
}

function overviewView() {
  const tasks = course.lessons.flatMap((lesson) => lesson.tasks);
  const passed = tasks.filter(({ state }) => state === "passed").length;
  const { next } = course;
  const begun = course.lessons.some((lesson) => lesson.read);
  const elements = [
    make("div", { class: "lesson-head" },
      make("h1", { id: "stage-title" }, "The embedding layer, step by step"),
      make("p", { class: "lead" }, `${course.lessons.length} lessons; ${passed} of ${tasks.length} tasks passed.`)),
    course.notices.map((notice) => make("p", { class: "note" }, notice)),
    !course.runs_code && make("p", { class: "note read-only" }, course.read_only_message),
    next && make("p", { class: "next" }, Object.assign(
      linkTo(stepView(next), begun ? "Continue: " : "Start: ", next.title), { className: "next-link primary" })),
    make("ol", { class: "overview" }, course.lessons.map(overviewLine)),
  ];
  return [elements, () => 0];
}

function overviewLine(lesson) {
  const { read, task, exercise, quiz } = lesson.counts;
  const counts = [
    `${task.done} of ${counted(task.total, "task")}`,
    `${exercise.done} of ${counted(exercise.total, "exercise")}`,
    `quiz: ${quizCounts(lesson)}`,
  ];
  const parts = [read, task, exercise, quiz].flatMap(({ done, total }) =>
    Array.from({ length: total }, (_, index) => index < done));
  return make("li", {},
    span("step-number", String(lesson.number)),
    make("div", {},
      make("h2", {}, linkTo({ lesson: lesson.id }, lesson.title)),
      make("p", { class: "note" }, counts.join(" \u00b7 ")),
      make("div", { class: "tally", "aria-hidden": "true" }, parts.map((isDone) => make("i", { class: isDone ? "full" : null })))));
}

async function misconceptionsView(signal) {
  const { text } = await server.misconceptions(signal);
  const elements = [make("div", { class: "lesson-head" }, make("h1", { id: "stage-title" }, "Common misconceptions")), prose(text)];
  const there = () => {
    if (!view.misconception) return;
    const entry = byId("section-" + view.misconception);
    if (entry) entry.scrollIntoView({ block: "start" });
    else showError(`There is no misconception ${cut(visible(view.misconception), 60)}. Here are all of them.`);
  };
  return [elements, there];
}

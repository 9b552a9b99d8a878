// A task: the statement, the editor, and what can be done about it. The text in the editor is the learner's own file on
// the server's disk, the same that `inlayer learn check` reads; a change made elsewhere is never overwritten in silence.

const SAVE_AFTER = 1500; // milliseconds without a key

const desk = { task: null, editor: null, code: "", sum: null, timer: 0, torn: false, abort: null, verdicts: new Map() };

function taskView(lesson, task) {
  const runs = course.runs;
  const place = lesson.tasks.indexOf(task);
  const room = make("div", { class: "editor", id: "editor" });
  const actions = make("div", { class: "actions" },
    button("Check", check, { id: "check", class: "primary", disabled: !runs, "aria-keyshortcuts": "Control+Enter" }),
    make("span", { class: "muted keys-hint" }, make("kbd", {}, "Ctrl"), " ", make("kbd", {}, "Enter")),
    span("spacer"),
    button("Hint", hint, { id: "hint", class: "quiet" }),
    button("Solution", solution, { id: "solution", class: "quiet", data: { asked: "" } }),
    button("Reset", reset, { id: "reset", class: "quiet", disabled: !runs }),
    button("Skip", () => skip(`task/${task.id}`), { id: "skip-task", class: "quiet", disabled: !runs }));
  desk.task = task;
  const elements = [
    stageHead(`Task ${place + 1} of ${lesson.tasks.length}`, task.title, task.step, lesson),
    prose(task.text),
    !runs && make("p", { class: "note refusal" }, course.refusal),
    make("div", { class: "editor-head" }, code(`${task.id}.py`), make("span", { id: "file-note", class: "muted" })),
    room,
    make("p", { id: "editor-keys", class: "note" }, "Tab indents. To leave the editor with the keyboard: ",
      make("kbd", {}, "Esc"), ", then ", make("kbd", {}, "Tab"), "."),
    make("div", { id: "conflict", class: "stale-note", role: "alert", tabindex: -1, hidden: true }),
    actions,
    make("div", { id: "hints", class: "hints" }),
    make("div", { id: "results" }),
    make("div", { id: "shown-solution" }),
    make("div", { id: "after" }),
  ];
  return [elements, () => furnishTask(lesson, task, room)];
}

function furnishTask(lesson, task, room) {
  desk.code = task.file.code;
  desk.sum = task.file.sum;
  desk.torn = false;
  desk.editor = inlayerEditor.create({
    parent: room, text: desk.code, nonce: byId("style").nonce, label: `Your code, ${task.id}.py`,
    describedBy: "editor-keys", typed, submit: check,
  });
  fileNote(task.file.saved ? `your file, ${task.file.path}` : "as it comes; yours once you change it");
  renderHints();
  const verdict = desk.verdicts.get(task.id);
  if (verdict) showVerdict(verdict, { quiet: true });
  else renderAfter();
}

// Results are of the code that was checked: as soon as the editor holds another, they say so.
function markStale() {
  const verdict = desk.verdicts.get(desk.task.id);
  byId("results").classList.toggle("stale-results", Boolean(verdict) && verdict.code !== desk.editor.text());
}

function replaceCode(text) {
  desk.editor.replace(text);
  markStale();
}

// The page goes on to something else: what was typed and not yet saved is saved now.
function leaveTask({ keepalive = false } = {}) {
  clearTimeout(desk.timer);
  const { task, editor, sum, torn } = desk;
  if (editor === null) return;
  const text = editor.text();
  Object.assign(task.file, { code: text, sum });
  if (course.runs && !torn && text !== desk.code) {
    server.save(task.id, text, sum, keepalive).then((saved) => {
      Object.assign(task.file, { code: text, sum: saved.sum, saved: true });
    }, () => 0);
  }
  if (keepalive) return;
  if (desk.abort) {
    desk.abort.abort();
    announce("");
  }
  editor.destroy();
  desk.editor = desk.task = null;
}

function fileNote(text) {
  if (byId("file-note")) byId("file-note").textContent = text;
}

function typed() {
  desk.editor.blame(null);
  markStale();
  clearTimeout(desk.timer);
  if (!course.runs || desk.torn) return;
  fileNote("changed");
  desk.timer = setTimeout(save, SAVE_AFTER);
}

async function save() {
  const { task, editor, sum } = desk;
  const text = editor.text();
  try {
    const saved = await server.save(task.id, text, sum);
    kept(task, text, saved.sum);
  } catch (error) {
    if (task !== desk.task) return;
    if (error.status === 409) conflict({ save });
    else fileNote(`not saved: ${error.message}`);
  }
}

function kept(task, text, sum) {
  Object.assign(task.file, { code: text, sum, saved: true });
  if (task !== desk.task) return;
  desk.code = text;
  desk.sum = sum;
  if (desk.editor.text() === text) fileNote("saved");
}

// Somebody, in a terminal or another window, wrote the file meanwhile: the learner says which of the two it shall be.
// `save` is what was wanted, and is done where he keeps his; what he pressed a button for takes him to the question.
async function conflict({ save: again, pressed = false }) {
  const { task } = desk;
  desk.torn = true;
  fileNote("changed elsewhere");
  const theirs = await server.file(task.id).catch((error) => error);
  if (task !== desk.task) return;
  if (theirs instanceof Error) {
    desk.torn = false;
    return fileNote(`not saved: ${theirs.message}`);
  }
  const settle = (choose) => () => {
    desk.sum = theirs.sum;
    desk.torn = false;
    byId("conflict").hidden = true;
    choose();
    desk.editor.focus();
  };
  byId("conflict").replaceChildren(
    make("p", {}, make("strong", {}, `${task.id}.py was changed elsewhere. `),
      "Nothing was overwritten. Take the text of the file, or keep yours and write it over the file?"),
    button("Take the file's", settle(() => {
      desk.code = theirs.code;
      replaceCode(theirs.code);
      fileNote("your file");
    }), { id: "take-theirs" }),
    button("Keep mine", settle(again), { id: "keep-mine" }));
  byId("conflict").hidden = false;
  markStale();
  if (pressed) toConflict();
}

function toConflict() {
  byId("conflict").scrollIntoView({ block: "nearest" });
  byId("conflict").focus({ preventScroll: true });
}

// Back from a terminal: a file that was changed there, and not here, is shown as it is now.
async function lookAgain() {
  const { task, editor, sum } = desk;
  if (editor === null || !course.runs || desk.torn || editor.text() !== desk.code) return;
  const found = await server.file(task.id).catch(() => null);
  if (found === null || task !== desk.task || found.sum === sum || editor.text() !== desk.code) return;
  Object.assign(desk, { code: found.code, sum: found.sum });
  task.file = found;
  replaceCode(found.code);
  fileNote("your file, as changed elsewhere");
}

async function check() {
  const { task, editor } = desk;
  if (!course.runs || desk.abort) return;
  if (desk.torn) return byId("conflict").hidden ? undefined : toConflict();
  clearTimeout(desk.timer);
  const text = editor.text();
  desk.abort = new AbortController();
  byId("check").disabled = true;
  byId("check").textContent = "Checking\u2026";
  announce("Checking.");
  try {
    const verdict = await server.check(task.id, text, desk.sum, desk.abort.signal);
    desk.verdicts.set(task.id, Object.assign(verdict, { code: text }));
    kept(task, text, verdict.sum);
    Object.assign(task, { state: verdict.passed ? "passed" : task.state === "passed" ? "passed" : "tried" });
    if (task === desk.task) showVerdict(verdict);
    refreshCourse();
  } catch (error) {
    if (task !== desk.task || error.name === "AbortError") return;
    announce("Not checked.");
    if (error.status === 409) return conflict({ save: check, pressed: true });
    desk.verdicts.delete(task.id);
    byId("results").replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
    byId("results").scrollIntoView({ block: "nearest" });
  } finally {
    desk.abort = null;
    if (task === desk.task) {
      byId("check").disabled = false;
      byId("check").textContent = "Check";
    }
  }
}

function showVerdict(verdict, { quiet = false } = {}) {
  byId("results").replaceChildren(resultsView(verdict));
  markStale();
  desk.editor.blame(verdict.code === desk.editor.text() ? verdict.line : null);
  renderAfter();
  if (quiet) return;
  const failed = verdict.results.find(({ state }) => state === "failed");
  announce([verdict.passed ? "Passed." : "Not passed.", verdict.summary, failed?.message ?? ""].join(" "));
  if (verdict.passed && (isWalkOpen() || isRoomy())) openWalk(verdict.step, null, { quiet: true });
  byId("results").scrollIntoView({ block: "nearest" });
}

function renderHints() {
  const { task } = desk;
  byId("hints").replaceChildren(...task.hints.map((nodes, index) =>
    make("details", { class: "hint", open: index === task.hints.length - 1 },
      make("summary", {}, `Hint ${index + 1}`), prose(nodes))));
  const next = task.hints.length + 1;
  byId("hint").disabled = next > task.n_hints;
  byId("hint").textContent = next > task.n_hints ? `${task.n_hints} hints shown` : `Hint ${next} of ${task.n_hints}`;
}

async function hint() {
  const { task } = desk;
  const { hints } = await attempt(() => server.hint(task.id), { hints: task.hints });
  task.hints = hints;
  if (task !== desk.task) return;
  renderHints();
  announce(`Hint ${hints.length}: ${byId("hints").lastElementChild.querySelector(".prose").textContent}`);
}

// Before the task is passed it takes a second click: the first one only says so.
async function solution() {
  const { task } = desk;
  const pressed = byId("solution");
  if (task.state !== "passed" && !pressed.dataset.asked) {
    pressed.dataset.asked = "1";
    pressed.textContent = "Show it all the same";
    announce("You have not passed yet. Press again to see the solution.");
    return;
  }
  const answer = await attempt(() => server.solution(task.id));
  if (!answer || task !== desk.task) return;
  byId("shown-solution").replaceChildren(solutionView({ ...answer, given: task.state !== "passed" }));
  byId("solution-title").focus();
}

async function reset() {
  const { task } = desk;
  const pressed = byId("reset");
  if (!pressed.dataset.asked) {
    pressed.dataset.asked = "1";
    pressed.textContent = "Begin anew?";
    return;
  }
  delete pressed.dataset.asked;
  pressed.textContent = "Reset";
  try {
    const file = await server.reset(task.id, desk.sum);
    if (task !== desk.task) return;
    replaceCode(file.code);
    kept(task, file.code, file.sum);
    desk.verdicts.delete(task.id);
    byId("results").replaceChildren();
    desk.editor.focus();
    fileNote(file.kept ? `begun anew; what was here is kept as ${file.kept}` : "as it comes");
    announce("The file is as it was at first. Ctrl+Z brings back what was here.");
  } catch (error) {
    if (error.status === 409) conflict({ save, pressed: true });
    else showError(error.message);
  }
}

async function skip(step) {
  if (await attempt(() => server.skip(step))) {
    await refreshCourse();
    go(following());
  }
}

function renderAfter() {
  const done = desk.task.state === "passed";
  const next = following();
  byId("after").replaceChildren(...(done && next ? [nextLink(next)] : []));
}

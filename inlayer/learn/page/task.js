// A task: the statement, the editor, and the actions. The editor shows the learner's file on disk, the one that
// `inlayer learn check` reads; a change made elsewhere is never overwritten silently.

const SAVE_AFTER = 1500; // milliseconds without a keystroke

const workspace = { task: null, editor: null, code: "", digest: null, timer: 0, inConflict: false, abort: null, verdicts: new Map() };

function taskView(lesson, task) {
  const runsCode = course.runs_code;
  const index = lesson.tasks.indexOf(task);
  const editorParent = make("div", { class: "editor", id: "editor" });
  const actions = make("div", { class: "actions" },
    button("Check", check, { id: "check", class: "primary", disabled: !runsCode, "aria-keyshortcuts": "Control+Enter" }),
    make("span", { class: "muted keys-hint" }, make("kbd", {}, "Ctrl"), " ", make("kbd", {}, "Enter")),
    span("spacer"),
    button("Hint", hint, { id: "hint", class: "quiet" }),
    button("Solution", solution, { id: "solution", class: "quiet", data: { confirmed: "" } }),
    button("Reset", reset, { id: "reset", class: "quiet", disabled: !runsCode }),
    button("Skip", () => skip(`task/${task.id}`), { id: "skip-task", class: "quiet", disabled: !runsCode }));
  workspace.task = task;
  const elements = [
    stageHead(`Task ${index + 1} of ${lesson.tasks.length}`, task.title, task.step, lesson),
    prose(task.text),
    !runsCode && make("p", { class: "note read-only" }, course.read_only_message),
    make("div", { class: "editor-head" }, code(`${task.id}.py`), make("span", { id: "file-note", class: "muted" })),
    editorParent,
    make("p", { id: "editor-keys", class: "note" }, "Tab indents. To leave the editor with the keyboard: ",
      make("kbd", {}, "Esc"), ", then ", make("kbd", {}, "Tab"), "."),
    make("div", { id: "conflict", class: "stale-note", role: "alert", tabindex: -1, hidden: true }),
    actions,
    make("div", { id: "hints", class: "hints" }),
    make("div", { id: "results" }),
    make("div", { id: "shown-solution" }),
    make("div", { id: "after" }),
  ];
  return [elements, () => fillTask(lesson, task, editorParent)];
}

function fillTask(lesson, task, editorParent) {
  workspace.code = task.file.code;
  workspace.digest = task.file.digest;
  workspace.inConflict = false;
  workspace.editor = inlayerEditor.create({
    parent: editorParent, text: workspace.code, nonce: byId("style").nonce, label: `Your code, ${task.id}.py`,
    describedBy: "editor-keys", typed, submit: check,
  });
  fileNote(task.file.digest !== null ? `your file: ${task.file.path}` : "starter file; saved once you change it");
  renderHints();
  const verdict = workspace.verdicts.get(task.id);
  if (verdict) showVerdict(verdict, { quiet: true });
  else renderAfter();
}

// Results belong to the code that was checked; they are marked as outdated when the editor differs.
function markStale() {
  const verdict = workspace.verdicts.get(workspace.task.id);
  byId("results").classList.toggle("stale-results", Boolean(verdict) && verdict.code !== workspace.editor.text());
}

function replaceCode(text) {
  workspace.editor.replace(text);
  markStale();
}

// When leaving the task, unsaved changes are saved.
function leaveTask({ keepalive = false } = {}) {
  clearTimeout(workspace.timer);
  const { task, editor, digest, inConflict } = workspace;
  if (editor === null) return;
  const text = editor.text();
  Object.assign(task.file, { code: text, digest });
  if (course.runs_code && !inConflict && text !== workspace.code) {
    server.save(task.id, text, digest, keepalive).then((saved) => {
      Object.assign(task.file, { code: text, digest: saved.digest });
    }, () => 0);
  }
  if (keepalive) return;
  if (workspace.abort) {
    workspace.abort.abort();
    announce("");
  }
  editor.destroy();
  workspace.editor = workspace.task = null;
}

function fileNote(text) {
  if (byId("file-note")) byId("file-note").textContent = text;
}

function typed() {
  workspace.editor.markError(null);
  markStale();
  clearTimeout(workspace.timer);
  if (!course.runs_code || workspace.inConflict) return;
  fileNote("changed");
  workspace.timer = setTimeout(save, SAVE_AFTER);
}

async function save() {
  const { task, editor, digest } = workspace;
  const text = editor.text();
  try {
    const saved = await server.save(task.id, text, digest);
    kept(task, text, saved.digest);
  } catch (error) {
    if (task !== workspace.task) return;
    if (error.status === 409) conflict({ save });
    else fileNote(`not saved: ${error.message}`);
  }
}

function kept(task, text, digest) {
  Object.assign(task.file, { code: text, digest });
  if (task !== workspace.task) return;
  workspace.code = text;
  workspace.digest = digest;
  if (workspace.editor.text() === text) fileNote("saved");
}

// If the file was changed in a terminal or another window, the learner chooses a version. `save` runs again if they
// keep the editor's; after a button press, the focus moves to the question.
async function conflict({ save: retry, pressed = false }) {
  const { task } = workspace;
  workspace.inConflict = true;
  fileNote("changed elsewhere");
  const onDisk = await server.file(task.id).catch((error) => error);
  if (task !== workspace.task) return;
  if (onDisk instanceof Error) {
    workspace.inConflict = false;
    return fileNote(`not saved: ${onDisk.message}`);
  }
  const resolve = (choose) => () => {
    workspace.digest = onDisk.digest;
    workspace.inConflict = false;
    byId("conflict").hidden = true;
    choose();
    workspace.editor.focus();
  };
  byId("conflict").replaceChildren(
    make("p", {}, make("strong", {}, `${task.id}.py was changed elsewhere. `),
      "Nothing was overwritten. Load the file, or keep your version and overwrite the file?"),
    button("Load the file", resolve(() => {
      workspace.code = onDisk.code;
      replaceCode(onDisk.code);
      fileNote("your file");
    }), { id: "load-file" }),
    button("Keep my version", resolve(retry), { id: "keep-version" }));
  byId("conflict").hidden = false;
  markStale();
  if (pressed) toConflict();
}

function toConflict() {
  byId("conflict").scrollIntoView({ block: "nearest" });
  byId("conflict").focus({ preventScroll: true });
}

// When the learner returns from a terminal, a file that was changed there but not here is loaded again.
async function reloadIfChanged() {
  const { task, editor, digest } = workspace;
  if (editor === null || !course.runs_code || workspace.inConflict || editor.text() !== workspace.code) return;
  const found = await server.file(task.id).catch(() => null);
  if (found === null || task !== workspace.task || found.digest === digest || editor.text() !== workspace.code) return;
  Object.assign(workspace, { code: found.code, digest: found.digest });
  task.file = found;
  replaceCode(found.code);
  fileNote("your file, changed elsewhere");
}

async function check() {
  const { task, editor } = workspace;
  if (!course.runs_code || workspace.abort) return;
  if (workspace.inConflict) return byId("conflict").hidden ? undefined : toConflict();
  clearTimeout(workspace.timer);
  const text = editor.text();
  workspace.abort = new AbortController();
  byId("check").disabled = true;
  byId("check").textContent = "Checking\u2026";
  announce("Checking.");
  try {
    const verdict = await server.check(task.id, text, workspace.digest, workspace.abort.signal);
    workspace.verdicts.set(task.id, Object.assign(verdict, { code: text }));
    kept(task, text, verdict.digest);
    Object.assign(task, { state: verdict.passed ? "passed" : task.state === "passed" ? "passed" : "tried" });
    if (task === workspace.task) showVerdict(verdict);
    refreshCourse();
  } catch (error) {
    if (task !== workspace.task || error.name === "AbortError") return;
    announce("Not checked.");
    if (error.status === 409) return conflict({ save: check, pressed: true });
    workspace.verdicts.delete(task.id);
    byId("results").replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
    byId("results").scrollIntoView({ block: "nearest" });
  } finally {
    workspace.abort = null;
    if (task === workspace.task) {
      byId("check").disabled = false;
      byId("check").textContent = "Check";
    }
  }
}

function showVerdict(verdict, { quiet = false } = {}) {
  byId("results").replaceChildren(resultsView(verdict));
  markStale();
  workspace.editor.markError(verdict.code === workspace.editor.text() ? verdict.line : null);
  renderAfter();
  if (quiet) return;
  const failed = verdict.checks.find(({ state }) => state === "failed");
  announce([verdict.passed ? "Passed." : "Not passed.", verdict.summary, failed?.message ?? ""].join(" "));
  if (verdict.passed && (isWalkOpen() || fitsWalkPane())) openWalk(verdict.step, null, { quiet: true });
  byId("results").scrollIntoView({ block: "nearest" });
}

function renderHints() {
  const { task } = workspace;
  byId("hints").replaceChildren(...task.hints.map((nodes, index) =>
    make("details", { class: "hint", open: index === task.hints.length - 1 },
      make("summary", {}, `Hint ${index + 1}`), prose(nodes))));
  const next = task.hints.length + 1;
  byId("hint").disabled = next > task.n_hints;
  byId("hint").textContent = next > task.n_hints ? `${task.n_hints} hints shown` : `Hint ${next} of ${task.n_hints}`;
}

async function hint() {
  const { task } = workspace;
  const { hints } = await attempt(() => server.hint(task.id), { hints: task.hints });
  task.hints = hints;
  if (task !== workspace.task) return;
  renderHints();
  announce(`Hint ${hints.length}: ${byId("hints").lastElementChild.querySelector(".prose").textContent}`);
}

// Before the task has passed, the solution needs a second click.
async function solution() {
  const { task } = workspace;
  const pressed = byId("solution");
  if (task.state !== "passed" && !pressed.dataset.confirmed) {
    pressed.dataset.confirmed = "1";
    pressed.textContent = "Show it anyway";
    announce("You have not passed this task yet. Press again to see the solution.");
    return;
  }
  const answer = await attempt(() => server.solution(task.id));
  if (!answer || task !== workspace.task) return;
  byId("shown-solution").replaceChildren(solutionView({ ...answer, showWhy: task.state !== "passed" }));
  byId("solution-title").focus();
}

async function reset() {
  const { task } = workspace;
  const pressed = byId("reset");
  if (!pressed.dataset.confirmed) {
    pressed.dataset.confirmed = "1";
    pressed.textContent = "Start over?";
    return;
  }
  delete pressed.dataset.confirmed;
  pressed.textContent = "Reset";
  try {
    const file = await server.reset(task.id, workspace.digest);
    if (task !== workspace.task) return;
    replaceCode(file.code);
    kept(task, file.code, file.digest);
    workspace.verdicts.delete(task.id);
    byId("results").replaceChildren();
    workspace.editor.focus();
    fileNote(file.kept ? `starter file restored; your old file is kept as ${file.kept}` : "starter file");
    announce("The starter file is restored. Press Ctrl+Z to get your code back.");
  } catch (error) {
    if (error.status === 409) conflict({ save, pressed: true });
    else showError(error.message);
  }
}

async function skip(step) {
  if (await attempt(() => server.skip(step))) {
    await refreshCourse();
    go(nextStep());
  }
}

function renderAfter() {
  const done = workspace.task.state === "passed";
  const next = nextStep();
  byId("after").replaceChildren(...(done && next ? [nextStepLink(next)] : []));
}

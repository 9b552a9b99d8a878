// The eight steps: a bar to move through them, and the stage. Each step changes the picture that is already there.

const STEP_NAMES = ["bytes", "pre-tokens", "ids", "rows", "lookup", "positions", "hidden", "backward"];
// One or two sentences on what happens in each step and why.
const STEP_REASONS = [
  "A computer stores text as bytes. UTF-8 uses one byte for an English letter, two for \u041f, four for an emoji.",
  "Most tokenizers first split the text into words, numbers, and punctuation. Each part becomes one or more tokens.",
  "The tokenizer turns the text into tokens of its vocabulary. Each token has a number, its id.",
  "The embedding table has one row of numbers per token. Training gives similar rows to tokens used in similar ways.",
  "An id is a row number. A lookup copies the rows of your tokens; nothing is computed.",
  "A row identifies the token, not its position. Position encodings supply token order.",
  "These vectors are what the first block of the model receives: one per token.",
  "Training compares each prediction with the next token, and moves the rows so that the loss falls.",
];
const STEP_VIEWS = [stepBytes, stepPreTokens, stepIds, stepRow, stepLookup, stepPositions, stepHidden, stepBackward];

function renderSteps() {
  const list = byId("step-list");
  const item = (name, index) => make("li", {}, stepButton(name, index + 1));
  if (!list.firstChild) list.append(...STEP_NAMES.map(item));
  list.querySelectorAll(".step-button").forEach((element, index) => {
    if (index + 1 === state.step) element.setAttribute("aria-current", "step");
    else element.removeAttribute("aria-current");
    element.classList.toggle("done", index + 1 < state.step);
  });
  byId("back").disabled = state.step === 1;
  byId("next").disabled = state.step === STEPS;
}

function stepButton(name, step) {
  const content = [span("step-button-number", String(step)), span("step-button-name", name)];
  return button(content, () => goToStep(step), { class: "step-button", id: `step-${step}` });
}

function goToStep(step) {
  if (step < 1 || step > STEPS || isWithoutTokenizer() || (step === state.step && state.view === "walk")) return;
  const focused = byId("steps").contains(document.activeElement) ? document.activeElement : null;
  go({ step, view: "walk" });
  if (focused?.matches(".step-button")) byId(`step-${step}`).focus();
  else if (focused?.disabled) byId("stage").focus({ preventScroll: true });
}

function renderStage() {
  const stage = byId("stage");
  stage.classList.toggle("stale", failed && current !== null);
  const isReady = current && (state.view !== "initialization" || shownInitialization);
  if (!isReady) {
    if (failed || isWithoutTokenizer()) {
      showOnStage(failed ? nothingView() : rowsOnlyView(), []);
      byId("chips").replaceChildren();
      renderScene(null, 0);
    }
    return;
  }
  const { activeElement } = document;
  const held = stage.contains(activeElement) && activeElement !== stage ? activeElement : null;
  const rects = rectsBefore(stage);
  emptyInspector();
  const isWalk = state.view === "walk";
  stage.classList.toggle("asking", isWalk && isHidden(state.step));
  stage.classList.toggle("picking", picking !== null);
  const [top, numbers] = {
    walk: () => stepView(current.trace, state.step),
    compare: () => [[], compareView(current.trace)],
    initialization: () => [[], initializationView(current.trace)],
  }[state.view]();
  showOnStage([...(failed ? [staleNote()] : []), ...top], numbers);
  if (isWalk) renderChips(current.trace, state.step);
  else byId("chips").replaceChildren();
  renderScene(current.trace, isWalk ? state.step : 0);
  glideFrom(rects, stage);
  // Redrawing must not lose the keyboard focus.
  if (held) (findAgain(stage, held) ?? stage).focus({ preventScroll: true });
}

function showOnStage(top, numbers) {
  movedRowsShown = []; // they belong to the figure that is replaced
  byId("stage-top").replaceChildren(...top);
  byId("numbers").replaceChildren(...numbers);
}

function findAgain(stage, held) {
  if (held?.id) return stage.querySelector(`#${CSS.escape(held.id)}`);
  const names = ["field", "b", "t", "d", "s", "id"].filter((name) => held?.dataset[name] !== undefined);
  if (names.length === 0) return null;
  const selector = names.map((name) => `[data-${name}="${CSS.escape(held.dataset[name])}"]`).join("");
  return stage.querySelector(`[data-nav]${selector}`);
}

// The parts above the scene (title, summary, code) and below it (digits, facts).
function stepView(trace, number) {
  const step = trace.steps[number - 1];
  const hidden = isHidden(number), isEmpty = trace.texts.every((text) => text.text === "") && trace.shape[1] === 0;
  const title = make("h1", { id: "stage-title" },
    span("step-number", span("hidden-text", "Step "), String(number)), upper(arrows(step.title)));
  const lead = make("p", { class: "lead" }, STEP_REASONS[number - 1]);
  const fact = make("p", { class: "stage-fact" }, `${upper(arrows(step.note))}.`);
  const head = hidden ? [] : [lead, make("div", { class: "stage-links" }, fact, step.code && codeLine(step.code, number))];
  const top = [make("header", { class: "stage-head" },
    make("div", { class: "stage-title" }, title, !hidden && lessonLink(number)), head)];
  if (hidden) return [[...top, questionCard(number)], []];
  return [
    [...top, verdictBanner(number), changeBanner(number)].filter(Boolean),
    [make("div", { class: "figure", data: { step: number } },
      isEmpty ? plainFact(`${trace.texts.length > 1 ? "The texts are" : "The text is"} empty. Type a text above, or choose an example.`)
        : STEP_VIEWS[number - 1](trace))],
  ];
}

// The lesson about this step, except in an exported page or next to a lesson.
function lessonLink(step) {
  if (source.exported || window.top !== window) return null;
  return make("a", { class: "lesson-link", href: `/learn${location.search}#step=${step}` }, "Lesson", span("", " on this step"));
}

// The eight steps: a navigation bar, and the view of the current step.

const STEP_NAMES = ["bytes", "pre-tokens", "ids", "rows", "lookup", "positions", "hidden", "backward"];
const STEP_VIEWS = [stepBytes, stepPreTokens, stepIds, stepRow, stepLookup, stepPositions, stepHidden, stepBackward];

function renderSteps() {
  const bar = byId("steps");
  const item = (name, index) => make("li", {}, stepButton(name, index + 1));
  if (!bar.firstChild) bar.append(make("ol", {}, STEP_NAMES.map(item)));
  bar.querySelectorAll(".step-button").forEach((element, index) => {
    const at = state.view === "walk" ? state.step : 0;
    if (index + 1 === at) element.setAttribute("aria-current", "step");
    else element.removeAttribute("aria-current");
    element.classList.toggle("done", index + 1 < at);
  });
}

function stepButton(name, step) {
  const content = [span("step-button-number", String(step)), span("step-button-name", name)];
  return button(content, () => goToStep(step), { class: "step-button", id: `step-${step}` });
}

function goToStep(step) {
  if (step < 1 || step > STEPS || (step === state.step && state.view === "walk")) return;
  const hasFocus = byId("steps").contains(document.activeElement);
  go({ step, view: "walk" });
  if (hasFocus) byId(`step-${step}`).focus();
}

function renderStage() {
  const stage = byId("stage");
  stage.classList.toggle("stale", failed && current !== null);
  const isInitialization = state.view === "initialization";
  if (!current || (isInitialization && !shownInitialization)) {
    return failed && stage.replaceChildren(...nothingView());
  }
  const { activeElement } = document;
  const held = stage.contains(activeElement) && activeElement !== stage ? activeElement : null;
  emptyInspector();
  const view = isInitialization ? initializationView(current.trace) : stepView(current.trace, state.step);
  stage.replaceChildren(...(failed ? [staleNote()] : []), ...view);
  // Redrawing must not lose the keyboard focus.
  if (held) (findAgain(stage, held) ?? stage).focus({ preventScroll: true });
}

function findAgain(stage, held) {
  if (held?.id) return stage.querySelector(`#${CSS.escape(held.id)}`);
  const names = ["field", "b", "t", "d", "s", "id"].filter((name) => held?.dataset[name] !== undefined);
  if (names.length === 0) return null;
  const selector = names.map((name) => `[data-${name}="${CSS.escape(held.dataset[name])}"]`).join("");
  return stage.querySelector(`[data-nav]${selector}`);
}

function stepView(trace, number) {
  const step = trace.steps[number - 1];
  const hidden = isHidden(number);
  const title = make("h1", { id: "stage-title" },
    span("step-number", span("hidden-text", "Step "), String(number)), upper(arrows(step.title)));
  const lead = make("p", { class: "lead" }, `${upper(arrows(step.note))}.`);
  const head = hidden ? [] : [step.code && codeLine(step.code), lead];
  const body = hidden ? [questionCard(number)] : [
    verdictBanner(number),
    changeBanner(number),
    make("div", { class: "figure", data: { step: number } }, STEP_VIEWS[number - 1](trace)),
  ];
  return [
    make("header", { class: "stage-head" }, title, head),
    ...body.filter(Boolean),
    make("footer", { class: "stage-foot" },
      moveButton("Back", number - 1, ""), moveButton("Next step", number + 1, "primary")),
  ];
}

function moveButton(label, to, kind) {
  const move = () => {
    goToStep(to);
    byId("stage").focus({ preventScroll: true });
    byId("steps").scrollIntoView({ block: "nearest" });
  };
  return button(label, move, { class: kind, disabled: to < 1 || to > STEPS });
}

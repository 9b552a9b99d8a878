// The path: eight stops on one line. The stage below it shows the stop one stands at.

const STOPS = ["bytes", "pieces", "ids", "row", "gather", "positions", "hidden", "backwards"];
const DRAWN = [stepBytes, stepPieces, stepIds, stepRow, stepGather, stepPositions, stepHidden, stepBackward];

function renderPath() {
  const path = byId("path");
  if (!path.firstChild) path.append(make("ol", {}, STOPS.map((name, index) => make("li", {}, stop(name, index + 1)))));
  path.querySelectorAll(".stop").forEach((element, index) => {
    const at = state.view === "walk" ? state.step : 0;
    if (index + 1 === at) element.setAttribute("aria-current", "step");
    else element.removeAttribute("aria-current");
    element.classList.toggle("passed", index + 1 < at);
  });
}

function stop(name, step) {
  const content = [span("stop-number", String(step)), span("stop-name", name)];
  return button(content, () => goToStep(step), { class: "stop", id: `stop-${step}` });
}

function goToStep(step) {
  if (step < 1 || step > STEPS || (step === state.step && state.view === "walk")) return;
  const onPath = byId("path").contains(document.activeElement);
  go({ step, view: "walk" });
  if (onPath) byId(`stop-${step}`).focus();
}

function renderStage() {
  const stage = byId("stage");
  stage.classList.toggle("stale", refused && current !== null);
  if (!current || (state.view === "birth" && !shownBirth)) return refused && stage.replaceChildren(...nothingView());
  const { activeElement } = document;
  const held = stage.contains(activeElement) && activeElement !== stage ? activeElement : null;
  emptyInspector();
  const view = state.view === "birth" ? birthView(current.trace) : stepView(current.trace, state.step);
  stage.replaceChildren(...(refused ? [staleNote()] : []), ...view);
  // Drawing anew must not throw away the place of somebody who walks by keyboard.
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
  const covered = isCovered(number);
  const title = make("h1", { id: "stage-title" },
    span("step-number", span("hidden-text", "Step "), String(number)), upper(arrows(step.title)));
  const lead = make("p", { class: "lead" }, `${upper(arrows(step.note))}.`);
  const told = covered ? [] : [step.code && codeLine(step.code), lead];
  const body = covered ? [questionCard(number)] : [
    verdictBanner(number),
    changeBanner(number),
    make("div", { class: "figure", data: { step: number } }, DRAWN[number - 1](trace)),
  ];
  return [
    make("header", { class: "stage-head" }, title, told),
    ...body.filter(Boolean),
    make("footer", { class: "stage-foot" },
      walkButton("Back", number - 1, ""), walkButton("Next step", number + 1, "primary")),
  ];
}

function walkButton(label, to, kind) {
  const walk = () => {
    goToStep(to);
    byId("stage").focus({ preventScroll: true });
    byId("path").scrollIntoView({ block: "nearest" });
  };
  return button(label, walk, { class: kind, disabled: to < 1 || to > STEPS });
}

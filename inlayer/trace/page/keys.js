// The keyboard: arrows walk, Escape leaves, ? explains. Nothing here listens while somebody types.

const KEYS = [
  [["\u2190", "\u2192"], "the step before, the next step"],
  [["1", "8"], "go to the first step, to the last, or to one between"],
  [["Tab"], "from one part to the next; a matrix is one part"],
  [["\u2190", "\u2191", "\u2193", "\u2192"], "inside a matrix: from number to number; Home and End to its ends"],
  [["Enter"], "on a token: its row, its neighbors, its bytes"],
  [["s"], "swap two tokens"],
  [["r"], "reset every change"],
  [["p"], "predict first, on or off"],
  [["i"], "initialization against forward pass"],
  [["Esc"], "close a panel, or leave a swap"],
  [["?"], "this list"],
];

function renderKeys() {
  byId("keys").replaceChildren(
    make("h2", { id: "keys-title" }, "Keys"),
    make("dl", { class: "key-list" }, KEYS.map(([keys, what]) => [
      make("dt", {}, keys.map((key) => make("kbd", {}, key))), make("dd", {}, what)])),
    make("form", { method: "dialog" }, make("button", { class: "primary" }, "Close")));
}

function isTyping(element) {
  return element.matches?.("input, textarea, select, [contenteditable]") ?? false;
}

function listenForKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || byId("keys").open) return;
    if (event.key === "Escape") return leave(event);
    if (isTyping(event.target)) return;
    const action = ACTIONS[event.key] ?? (/^[1-8]$/.test(event.key) ? () => goToStep(Number(event.key)) : null);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

const ACTIONS = {
  ArrowLeft: () => goToStep(state.view === "walk" ? state.step - 1 : state.step),
  ArrowRight: () => goToStep(state.view === "walk" ? state.step + 1 : state.step),
  "?": () => byId("keys").showModal(),
  s: () => {
    if (byId("swap").disabled) return;
    toggleSwap();
    if (picking) document.querySelector("#stage [data-token][data-b='0']")?.focus();
  },
  r: () => !byId("reset").disabled && byId("reset").click(),
  p: () => togglePredict(),
  i: () => go({ view: state.view === "birth" ? "walk" : "birth" }),
};

function leave(event) {
  if (picking) {
    picking = null;
    renderControls();
    renderStage();
  } else if (state.token !== null) {
    closeToken();
  } else if (byId("inspector").classList.contains("filled") && !isTyping(event.target)) {
    closeInspector();
  } else {
    return;
  }
  event.preventDefault();
}

function togglePredict() {
  coverAgain();
  go({ predict: !state.predict });
  if (state.predict) focusQuestion();
}

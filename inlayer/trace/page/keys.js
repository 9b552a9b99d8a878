// Keyboard shortcuts, which are ignored while the user is typing.

const KEYS = [
  [["\u2190", "\u2192"], "previous or next step"],
  [["1\u20138"], "go to step 1 to 8"],
  [["Tab"], "next control (a matrix counts as one)"],
  [["\u2190", "\u2191", "\u2193", "\u2192"], "move inside a matrix; Home and End go to its first and last number"],
  [["Enter"], "open a token: its row, neighbors, and bytes"],
  [["s"], "swap two tokens"],
  [["r"], "reset the experiment"],
  [["p"], "toggle Predict first"],
  [["i"], "compare initialization and forward pass"],
  [["c"], "compare two models"],
  [["m"], "turn motion on or off"],
  [["Esc"], "close a panel, or cancel a swap"],
  [["?"], "this list"],
];

const STORED_KEYS = "inlayer-keys";
const TYPED = "textarea, select, [contenteditable], input:not([type='radio'], [type='checkbox'], [type='range'])";

let singleKeys = stored(STORED_KEYS) !== "off"; // true if letters, digits and ? are shortcuts

function renderKeys() {
  const set = (event) => {
    singleKeys = event.target.checked;
    store(STORED_KEYS, singleKeys ? "on" : "off");
  };
  const box = make("input", { type: "checkbox", id: "single-keys", checked: singleKeys, on: { change: set } });
  byId("keys").replaceChildren(
    make("h2", { id: "keys-title" }, "Keyboard shortcuts"),
    make("dl", { class: "key-list" }, KEYS.map(([keys, what]) => [
      make("dt", {}, keys.map((key) => make("kbd", {}, key))), make("dd", {}, what)])),
    make("label", { class: "check-field" }, box, "Enable single-key shortcuts"),
    make("form", { method: "dialog" }, make("button", { class: "primary" }, "Close")));
}

function isTyping(element) {
  return element.matches?.(TYPED) ?? false;
}

// Radio buttons and sliders need the arrow keys; other keys are also shortcuts there.
function isNeeded(event) {
  if (isTyping(event.target)) return true;
  return event.key.startsWith("Arrow") && (event.target.matches?.("[type='radio'], [type='range']") ?? false);
}

function listenForKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || byId("keys").open) return;
    if (event.key === "Escape") return cancel(event);
    if (isNeeded(event) || (event.key.length === 1 && !singleKeys)) return;
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
    if (byId("swap")?.disabled) return;
    toggleSwap();
    if (picking) document.querySelector("#stage [data-token][data-b='0']")?.focus();
  },
  r: () => byId("reset")?.disabled === false && byId("reset").click(),
  p: () => togglePredict(),
  i: () => go({ view: state.view === "initialization" ? "walk" : "initialization" }),
  c: () => go({ view: state.view === "compare" ? "walk" : "compare" }),
  m: () => toggleMotion(),
};

function cancel(event) {
  if (picking) {
    picking = null;
    renderControls();
    renderStage();
  } else if (state.token !== null) {
    closeToken();
  } else if (!byId("inspector").hidden && !isTyping(event.target)) {
    closeInspector();
  } else {
    return;
  }
  event.preventDefault();
}

function togglePredict() {
  if (byId("predict").hidden) return;
  hideSteps();
  go({ predict: !state.predict });
  if (state.predict) focusQuestion();
}

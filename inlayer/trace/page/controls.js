// The input (texts and model) and the controls for experiments.

const TYPING_PAUSE = 250; // milliseconds without a keystroke before a request is sent
const ENTRY_PAUSE = 1000; // milliseconds without a keystroke before more typing becomes another history entry
const MAX_TEXTS = 8;
const EXPORTED_THETAS = [100, 1000000];
const EXAMPLES = [
  START.texts[0], "I love dogs", "na\u00efve caf\u00e9 \ud83d\ude42", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
];
const FIRST_STEP = { swap: 3, pad: 3, positions: 6 }; // controls appear in the steps that they change

let picking = null; // {first: index or null} while two tokens are selected for a swap
let typingTimer = 0;
let typedAt = 0; // time of the last keystroke
let isTyped = false; // whether the last history entry is for typing, so more typing changes it
let models = [];

// ---- texts and model

function renderInput() {
  const box = byId("texts");
  const held = Array.from(box.children).findIndex((line) => line.contains(document.activeElement));
  const isRebuilt = box.children.length !== state.texts.length;
  fillSelect(byId("model"), models.map((model) => model.name), state.model); // first: its width sets where texts wrap
  if (isRebuilt) box.replaceChildren(...state.texts.map(textField));
  const fields = Array.from(box.querySelectorAll("textarea"));
  fields.forEach((field, index) => {
    const text = state.texts[index].replace(/\r\n?/g, "\n"); // as a textarea stores it
    if (field.value !== text) field.value = text;
    fitHeight(field);
  });
  if (isRebuilt && held >= 0) fields[Math.min(held, fields.length - 1)].focus();
  byId("add-text").disabled = source.exported || state.texts.length >= MAX_TEXTS;
  byId("texts").hidden = byId("add-text").hidden = isWithoutTokenizer(); // the stage gives the reason
  renderExamples();
  if (!source.exported) return;
  byId("model").disabled = true;
  byId("input-note").hidden = false;
  byId("input-note").replaceChildren("An exported page shows only the text it was created with. For other texts:",
    make("br"), code("inlayer serve"));
}

function renderExamples() {
  const box = byId("examples");
  box.hidden = source.exported || isWithoutTokenizer();
  if (box.firstChild || source.exported) return;
  const use = (text) => go({ texts: [text], from: 0, swap: null, token: null });
  box.append(span("note", "Try"), ...EXAMPLES.map((text) => button(text, () => use(text), { class: "example" })));
}

function fillSelect(select, values, chosen) {
  if (Array.from(select.options, (option) => option.value).join("\n") !== values.join("\n")) {
    select.replaceChildren(...values.map((value) => make("option", { value }, String(value))));
  }
  select.value = String(chosen);
}

function textField(text, index) {
  const several = state.texts.length > 1;
  const field = make("textarea", {
    rows: 1, spellcheck: "false", autocapitalize: "off", readonly: source.exported,
    "aria-label": several ? `Text ${index + 1}` : "Text", on: { input: typed },
  });
  field.value = text;
  return make("div", { class: "text-line" },
    several && make("span", { class: "text-number mono", "aria-hidden": "true" }, String(index + 1)),
    field,
    several && !source.exported
      && button("Remove", () => removeText(index), { class: "quiet", "aria-label": `Remove text ${index + 1}` }));
}

function removeText(index) {
  commitTyping();
  const swap = index === 0 ? null : state.swap; // a swap refers to the first text
  go({ texts: state.texts.filter((_, other) => other !== index), swap });
}

// Several texts form a batch. A new one starts with sample text, selected for replacement.
function addText() {
  commitTyping();
  go({ texts: [...state.texts, "Cats too"] });
  const fields = byId("texts").querySelectorAll("textarea");
  fields[fields.length - 1].select();
}

function fitHeight(field) {
  field.style.setProperty("height", "auto");
  field.style.setProperty("height", `${Math.min(160, field.scrollHeight + 2)}px`);
}

function typed(event) {
  fitHeight(event.target);
  clearTimeout(typingTimer);
  if (performance.now() - typedAt > ENTRY_PAUSE) isTyped = false; // "back" restores the text before the pause
  typedAt = performance.now();
  typingTimer = setTimeout(() => {
    const more = isTyped;
    go({}, { replace: more });
    isTyped = true;
  }, TYPING_PAUSE);
}

function discardTyping() {
  clearTimeout(typingTimer);
  typingTimer = 0;
}

// Applies typed text immediately when something else happens during the pause.
function commitTyping() {
  if (!typingTimer) return;
  discardTyping();
  picking = null;
  const texts = Array.from(byId("texts").querySelectorAll("textarea"), (field) => field.value);
  state = { ...state, texts, from: 0, swap: null, token: null };
}

// ---- experiments

function renderControls() {
  const bar = byId("controls");
  const focused = bar.contains(document.activeElement) ? document.activeElement.id : "";
  const change = changeOf(state);
  const useful = (control, changed) => state.step >= FIRST_STEP[control] || changed;
  const controls = [
    useful("swap", change.swap || picking) && swapControl(change),
    useful("pad", change.pad) && padControl(change),
    useful("positions", change.positions !== null || change.theta !== null) && positionControl(change),
  ].filter(Boolean);
  const last = controls.length > 0 ? [make("div", { class: "last-control" }, controls.pop(), resetControl(change))] : [];
  bar.replaceChildren(...controls, ...last);
  byId("changes").hidden = last.length === 0 || state.view !== "walk" || isWithoutTokenizer();
  if (focused) byId(focused)?.focus();
}

function modelFacts() {
  return models.find((model) => model.name === state.model);
}

function isWithoutTokenizer() {
  return !source.exported && modelFacts()?.tokenizer === false;
}

function unavailable(patch) {
  return source.unavailable({ ...changeOf(state), ...patch });
}

function swapControl(change) {
  const tokens = current?.trace.texts[0].n_tokens ?? 0;
  let why = tokens < 2 || current.trace.input !== "text" ? "needs at least two tokens" : "";
  if (failed && !change.swap) why = "needs a successful request first";
  const label = change.swap ? `Tokens ${change.swap[0]} and ${change.swap[1]} swapped` : "Swap two tokens";
  return make("div", { class: "control swap" }, button(label, toggleSwap, {
    id: "swap", "aria-pressed": String(Boolean(picking || change.swap)), disabled: why !== "", title: why || null,
  }), picking && span("note", `Select the ${picking.first === null ? "first" : "second"} token.`),
  picking && button("Cancel", toggleSwap, { id: "swap-cancel", class: "quiet" }));
}

function toggleSwap() {
  if (!picking && state.swap) return go({ swap: null });
  picking = picking ? null : { first: null };
  if (picking) announce("Select two tokens of the first text. Press Escape to cancel.");
  const showsTokens = state.view === "walk" && state.step > 2 && state.step < 8;
  if (picking && !showsTokens) return go({ step: 3, view: "walk" });
  renderControls();
  renderStage();
}

function cannotPick(b, t, token) {
  if (b !== 0) return "only tokens of the first text can be swapped";
  if (token.mask === 0) return "padding cannot be swapped";
  if (picking.first === null || picking.first === t) return "";
  return unavailable({ swap: [picking.first, t] });
}

function pick(b, t, token) {
  const why = cannotPick(b, t, token);
  if (why) return announce(upper(why) + ".");
  if (picking.first !== null && picking.first !== t) {
    const swap = [picking.first, t].sort((a, b) => a - b);
    picking = null;
    return go({ swap });
  }
  picking.first = picking.first === t ? null : t;
  announce(picking.first === null ? "No token selected." : `Token ${t} selected. Select the second.`);
  renderControls();
  renderStage();
}

function padControl(change) {
  const without = modelFacts()?.padding_id === null ? "this model has no padding token" : "";
  const padButton = (by, id, label, sign) => {
    const pad = change.pad + by;
    const bound = pad < 0 ? "no padding to remove" : pad > MAX_PAD ? `at most ${MAX_PAD}` : "";
    const why = without || bound || unavailable({ pad });
    return button(sign, () => go({ pad }), { id, "aria-label": label, disabled: why !== "", title: why || null });
  };
  return make("div", { class: "control pad", role: "group", "aria-label": "Padding" },
    padButton(-1, "pad-less", "Remove a padding token", MINUS),
    make("output", { id: "pad-count" }, counted(change.pad, "padding token")),
    padButton(1, "pad-more", "Add a padding token", "+"));
}

function positionControl(change) {
  const own = modelFacts()?.positions ?? "none";
  const chosen = change.positions ?? own;
  return make("fieldset", { class: "control positions" },
    make("legend", {}, "Positions"),
    make("div", { class: "options" }, SCHEMES.map((scheme) => schemeOption(scheme, own, chosen))),
    thetaControl(change, chosen === "rotary" || chosen === "sinusoidal"));
}

function schemeOption(scheme, own, chosen) {
  const patch = { positions: scheme === own ? null : scheme, theta: null };
  const why = scheme === chosen ? "" : unavailable(patch);
  return make("label", { class: "option", title: why || null },
    make("input", {
      type: "radio", name: "positions", id: `positions-${scheme}`, value: scheme, checked: scheme === chosen,
      disabled: why !== "", on: { change: () => go(patch) },
    }),
    make("span", {}, scheme, scheme === own && span("own", " (model)")));
}

function thetaControl(change, rotary) {
  if (!rotary) return null;
  if (source.exported) return thetaChoice(change);
  const field = make("input", {
    id: "theta", class: "mono", inputmode: "decimal", size: 9, autocomplete: "off",
    placeholder: "10000", "aria-describedby": "theta-error", on: { change: (event) => setTheta(event.target.value.trim()) },
  });
  const shown = current?.query.model === state.model ? current.trace.positions.rotary[0]?.theta : undefined;
  field.value = String(change.theta ?? shown ?? "");
  return make("label", { class: "field theta" }, "theta ", field, make("span", { id: "theta-error", class: "bad", role: "alert" }));
}

function thetaChoice(change) {
  const known = new Set([change.theta, source.change.theta, ...EXPORTED_THETAS].filter((theta) => theta !== null));
  const thetas = [null, ...[...known].sort((a, b) => a - b)].filter((theta) =>
    theta === change.theta || unavailable({ theta }) === "");
  if (thetas.length < 2) return null;
  const options = thetas.map((theta) =>
    make("option", { value: theta ?? "", selected: theta === change.theta }, String(theta ?? "model")));
  return make("label", { class: "field theta" }, "theta ",
    make("select", { id: "theta", on: { change: (event) => setTheta(event.target.value) } }, options));
}

function setTheta(written) {
  const theta = Number(written.replace(/[,_\s]/g, ""));
  if (written === "") go({ theta: null });
  else if (isTheta(theta)) go({ theta });
  else {
    byId("theta").setAttribute("aria-invalid", "true");
    byId("theta-error").textContent = `theta must be ${THETA_RANGE}, such as 10000.`;
  }
}

function resetControl(change) {
  const reset = () => {
    picking = null;
    go({ ...UNCHANGED });
  };
  return button("Reset", reset, { id: "reset", class: "quiet", disabled: !isChanged(change) && !picking });
}

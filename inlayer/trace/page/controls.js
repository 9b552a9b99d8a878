// What is walked and what is changed: the texts, the model, and the controls that change one thing on purpose.

const TYPING_PAUSE = 250; // milliseconds without a key before the walk is asked for
const MOST_TEXTS = 8;
const EXPORTED_THETAS = [100, 1000000];

let picking = null; // {first: place or null} while two tokens are chosen for a swap
let typingTimer = 0;
let models = [];

// ---- texts and model

function renderAsk() {
  const box = byId("texts");
  const held = Array.from(box.children).findIndex((line) => line.contains(document.activeElement));
  const isAnew = box.children.length !== state.texts.length;
  if (isAnew) box.replaceChildren(...state.texts.map(textField));
  const fields = Array.from(box.querySelectorAll("textarea"));
  fields.forEach((field, index) => {
    const text = state.texts[index].replace(/\r\n?/g, "\n"); // as a field holds it
    if (field.value !== text) field.value = text;
    fitHeight(field);
  });
  if (isAnew && held >= 0) fields[Math.min(held, fields.length - 1)].focus();
  fillSelect(byId("model"), models.map((one) => one.name), state.model);
  fillSelect(byId("dims"), [...new Set([...DIMS, state.dims])].sort((a, b) => a - b), state.dims);
  byId("add-text").disabled = source.exported || state.texts.length >= MOST_TEXTS;
  if (!source.exported) return;
  byId("model").disabled = byId("dims").disabled = true;
  byId("ask-note").hidden = false;
  byId("ask-note").textContent = "An exported page shows the text it was made with. To walk another: inlayer serve.";
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
    "aria-label": several ? `Text ${index}` : "Text", on: { input: typed },
  });
  field.value = text;
  return make("div", { class: "text-line" },
    several && make("span", { class: "text-number mono", "aria-hidden": "true" }, String(index)),
    field,
    several && !source.exported
      && button("Remove", () => removeText(index), { class: "quiet", "aria-label": `Remove text ${index}` }));
}

function removeText(index) {
  takeTyped();
  const swap = index === 0 ? null : state.swap; // a swap is one of the first text
  go({ texts: state.texts.filter((_, other) => other !== index), swap });
}

// Several texts make a batch. A new one starts with something to see, ready to be typed over.
function addText() {
  takeTyped();
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
  typingTimer = setTimeout(() => go({}, { replace: true }), TYPING_PAUSE);
}

function dropTyped() {
  clearTimeout(typingTimer);
  typingTimer = 0;
}

// Whatever else happens during the pause, what was typed is taken along.
function takeTyped() {
  if (!typingTimer) return;
  dropTyped();
  picking = null;
  const texts = Array.from(byId("texts").querySelectorAll("textarea"), (field) => field.value);
  state = { ...state, texts, swap: null, token: null };
}

// ---- change one thing

function renderControls() {
  const bar = byId("controls");
  const focused = bar.contains(document.activeElement) ? document.activeElement.id : "";
  const change = changeOf(state);
  bar.replaceChildren(swapControl(change), padControl(change), positionControl(change), resetControl(change));
  if (focused) byId(focused)?.focus();
}

function modelFacts() {
  return models.find((one) => one.name === state.model);
}

function refusalOf(patch) {
  return source.refusal({ ...changeOf(state), ...patch });
}

function swapControl(change) {
  const tokens = current?.trace.texts[0].n_tokens ?? 0;
  let why = tokens < 2 || current.trace.entered !== "text" ? "needs two tokens" : "";
  if (refused && !change.swap) why = "needs a walk that is not refused";
  let label = "Swap two tokens";
  if (change.swap) label = `Tokens ${change.swap[0]} and ${change.swap[1]} swapped`;
  if (picking) label = picking.first === null ? "Pick the first token" : "Pick the second token";
  return button(label, toggleSwap, {
    id: "swap", "aria-pressed": String(Boolean(picking || change.swap)), disabled: why !== "", title: why || null,
  });
}

function toggleSwap() {
  if (!picking && state.swap) return go({ swap: null });
  picking = picking ? null : { first: null };
  if (picking) announce("Pick two tokens of the first text: press one, then the other. Escape to leave it.");
  const showsTokens = state.view === "walk" && state.step > 2 && state.step < 8;
  if (picking && !showsTokens) return go({ step: 3, view: "walk" });
  renderControls();
  renderStage();
}

function pickRefusal(b, t, cell) {
  if (b !== 0) return "only tokens of the first text can be swapped";
  if (cell.mask === 0) return "padding cannot be swapped";
  if (picking.first === null || picking.first === t) return "";
  return refusalOf({ swap: [picking.first, t] });
}

function pick(b, t, cell) {
  const why = pickRefusal(b, t, cell);
  if (why) return announce(upper(why) + ".");
  if (picking.first !== null && picking.first !== t) {
    const swap = [picking.first, t].sort((a, b) => a - b);
    picking = null;
    return go({ swap });
  }
  picking.first = picking.first === t ? null : t;
  announce(picking.first === null ? "None picked." : `Token ${t} picked. Now the second.`);
  renderControls();
  renderStage();
}

function padControl(change) {
  const without = modelFacts()?.padding_id === null ? "this model has no padding" : "";
  const padButton = (by, id, label, sign) => {
    const pad = change.pad + by;
    const bound = pad < 0 ? "there is none to remove" : pad > MOST_PAD ? `at most ${MOST_PAD}` : "";
    const why = without || bound || refusalOf({ pad });
    return button(sign, () => go({ pad }), { id, "aria-label": label, disabled: why !== "", title: why || null });
  };
  return make("div", { class: "control pad", role: "group", "aria-label": "Padding" },
    padButton(-1, "pad-less", "Remove a pad token", MINUS),
    make("output", { id: "pad-count" }, counted(change.pad, "pad token")),
    padButton(1, "pad-more", "Add a pad token", "+"));
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
  const why = scheme === chosen ? "" : refusalOf(patch);
  return make("label", { class: "option", title: why || null },
    make("input", {
      type: "radio", name: "positions", id: `positions-${scheme}`, value: scheme, checked: scheme === chosen,
      disabled: why !== "", on: { change: () => go(patch) },
    }),
    make("span", {}, scheme, scheme === own && span("own", " (own)")));
}

function thetaControl(change, turning) {
  if (source.exported) return turning ? thetaChoice(change) : null;
  const field = make("input", {
    id: "theta", class: "mono", inputmode: "decimal", size: 9, disabled: !turning, autocomplete: "off",
    placeholder: turning ? "10000" : "\u2013", on: { change: (event) => setTheta(event.target.value.trim()) },
  });
  const shown = current?.asked.model === state.model ? current.trace.positions.turnings[0]?.theta : undefined;
  field.value = turning ? String(change.theta ?? shown ?? "") : "";
  return make("label", { class: "field theta" }, "theta ", field);
}

function thetaChoice(change) {
  const known = new Set([change.theta, source.change.theta, ...EXPORTED_THETAS].filter((theta) => theta !== null));
  const thetas = [null, ...[...known].sort((a, b) => a - b)].filter((theta) =>
    theta === change.theta || refusalOf({ theta }) === "");
  if (thetas.length < 2) return null;
  const options = thetas.map((theta) =>
    make("option", { value: theta ?? "", selected: theta === change.theta }, String(theta ?? "its own")));
  return make("label", { class: "field theta" }, "theta ",
    make("select", { id: "theta", on: { change: (event) => setTheta(event.target.value) } }, options));
}

function setTheta(written) {
  const theta = Number(written.replace(/[,_\s]/g, ""));
  if (written === "") go({ theta: null });
  else if (theta > 0 && Number.isFinite(theta)) go({ theta });
  else showError("theta is a number above 0, such as 10000.");
}

function resetControl(change) {
  const reset = () => {
    picking = null;
    go({ ...UNCHANGED });
  };
  return button("Reset", reset, { id: "reset", class: "quiet", disabled: !isChanged(change) && !picking });
}

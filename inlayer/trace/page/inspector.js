// The inspector: the selected number, its formula, where it is stored, and the line of PyTorch that computes it.

let inspected = null;

function inspect(element, { spoken = false } = {}) {
  const cell = cellOf(element);
  const explained = EXPLANATIONS[cell.field]?.(cell, element.dataset.value);
  if (!explained) return;
  inspected?.classList.remove("inspected");
  inspected = element;
  element.classList.add("inspected");
  const line = explained.code ?? current?.trace.steps[cell.step - 1]?.code;
  const lines = (explained.formula ?? []).flatMap((line, index) => (index > 0 ? [make("br"), line] : [line]));
  byId("inspector").replaceChildren(...[
    make("h2", { class: "inspector-title mono" }, explained.title),
    lines.length > 0 && make("p", { class: "formula mono", id: "formula" }, lines),
    explained.drawing,
    facts(explained.facts ?? [], "facts inspector-facts"),
    wasBefore(cell, element.dataset.value),
    explained.words && note(explained.words),
    line && codeLine(line, cell.step),
    button("Close", closeInspector, { class: "quiet close", "aria-label": "Close the inspector" }),
  ].filter(Boolean));
  byId("inspector").hidden = false;
  if (spoken) announce([explained.title, ...(explained.formula ?? [])].join(", "));
}

function cellOf(element) {
  const cell = { field: element.dataset.field };
  for (const name of ["step", "b", "t", "d", "s", "id"]) {
    if (element.dataset[name] !== undefined) cell[name] = Number(element.dataset[name]);
  }
  return cell;
}

function wasBefore(cell, value) {
  const isNumber = cell.step !== undefined && (cell.b !== undefined || cell.id !== undefined);
  if (!current?.known || !isNumber) return null;
  const { first_token: token = 0, first_channel: channel = 0 } = current.trace;
  const local = { ...cell, t: cell.t - token, d: cell.d === undefined ? undefined : cell.d - channel };
  const before = current.known.get(keyOf(local, current.trace, current.tokenKeys));
  if (before === undefined || exact(before) === value) return null;
  return make("p", { class: "was" }, `Before the change: ${brief(before)}`);
}

function emptyInspector() {
  inspected?.classList.remove("inspected");
  inspected = null;
  byId("inspector").hidden = true;
  byId("inspector").replaceChildren();
}

function closeInspector() {
  const back = inspected;
  emptyInspector();
  if (back?.isConnected) back.focus({ preventScroll: true });
}

function listenForInspection() {
  const workspace = document.querySelector(".workspace");
  const found = (event) => event.target.closest?.("[data-field]");
  const look = (event, settings) => {
    const element = found(event);
    if (!element || element === inspected) return;
    const isOpen = state.token !== null && element.dataset.tokenId === String(state.token);
    if (!isOpen) inspect(element, settings); // the token panel already shows more
  };
  workspace.addEventListener("pointerover", (event) => event.pointerType !== "touch" && look(event));
  workspace.addEventListener("click", (event) => look(event));
  workspace.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && look(event, { spoken: true }));
}

// From state to page: request the data, ignore responses that arrive too late, and draw.

const MAX_SHARED = 300; // characters of texts in a command
const LOADING_SHOWS = 150; // milliseconds; faster responses need no indicator

const source = openSource();
let ticket = 0;
let abort = null;
let shownQuery = "";
let failed = false; // true if the last request failed; the page then shows the previous walk
let switched = null; // the state to restore if the chosen model cannot be used
let drawn = ""; // the view drawn last, so opening a token does not redraw it
let lastAnnounced = "";

function queryOf(view, change) {
  return { texts: view.texts, model: view.model, dims: view.dims, from: view.from, channel: view.channel, ...change };
}

function update() {
  if (isWithoutTokenizer()) state.view = "walk"; // the other views need a text
  renderInput();
  renderSteps();
  renderControls();
  for (const view of VIEWS) {
    byId(`view-${view}`).setAttribute("aria-pressed", String(state.view === view));
    byId(`view-${view}`).disabled = isWithoutTokenizer() && view !== "walk";
    byId(`view-${view}`).title = byId(`view-${view}`).disabled ? "needs a model with a tokenizer" : "";
  }
  byId("predict").setAttribute("aria-pressed", String(state.predict));
  byId("predict").hidden = state.view !== "walk" || isWithoutTokenizer();
  const isHolding = byId("steps").contains(document.activeElement);
  byId("steps").hidden = state.view !== "walk" || isWithoutTokenizer();
  if (isHolding && byId("steps").hidden) byId("stage").focus({ preventScroll: true });
  const { classList } = document.querySelector(".workspace");
  classList.toggle("alone", state.view !== "walk" && !isWithoutTokenizer());
  classList.toggle("last", state.step === STEPS);
  renderLinks();
  refresh();
}

async function refresh() {
  const request = ++ticket;
  const back = switched;
  switched = null;
  if (isWithoutTokenizer()) return showRowsOnly();
  const change = changeOf(state);
  const walkQuery = queryOf(state, change);
  const query = JSON.stringify(walkQuery);
  if (query === shownQuery && (state.view === "walk" || isInitializationShown())) {
    accepted();
    return;
  }
  abort?.abort();
  abort = new AbortController();
  const { signal } = abort;
  const indicator = setTimeout(() => busy(true), LOADING_SHOWS);
  try {
    const [trace, drawing, table, base, initialization] = await Promise.all([
      source.walk(walkQuery, signal),
      source.scene(walkQuery, signal).catch(noDrawing),
      source.tableScene(state.model, signal).catch(noDrawing),
      isChanged(change) ? source.walk(queryOf(state, UNCHANGED), signal) : null,
      state.view === "initialization" ? loadInitialization(signal) : shownInitialization,
    ]);
    if (request !== ticket) return;
    shownInitialization = initialization;
    if (query !== shownQuery) hideSteps();
    shownQuery = query;
    setCurrent(trace, base, walkQuery);
    setScene(drawing, table);
    const reverted = ineffectiveChange();
    if (reverted) go(reverted, { replace: true });
    else accepted();
  } catch (error) {
    if (request !== ticket || error.name === "AbortError") return;
    if (!(error instanceof RequestError)) console.error(error);
    const message = error instanceof RequestError ? error.message : `Error on this page: ${error.message}`;
    if (back) goBack(back, message);
    else showFailure(message);
  } finally {
    clearTimeout(indicator);
    if (request === ticket) busy(false);
  }
}

// If drawing fails, the step still shows its numbers.
function noDrawing(error) {
  if (error.name === "AbortError") throw error;
  return null;
}

function accepted() {
  failed = false;
  hideError();
  renderControls();
  settled();
}

// The request failed: the previous walk is shown with a note.
function showFailure(message) {
  failed = true;
  picking = null;
  showError(message);
  renderControls();
  if (current) settled();
  else {
    renderStage();
    if (models.length > 0) renderMapPane();
  }
}

// A model without a tokenizer has no walk: its map, and the facts of the rows that are selected there.
function showRowsOnly() {
  abort?.abort();
  current = null;
  shownQuery = drawn = "";
  setScene(null, null);
  accepted();
}

// A model that cannot be used for this walk is not selected; the page keeps the previous one.
function goBack(back, message) {
  const { model } = state;
  go(back, { replace: true });
  showError(`${model} was not selected: ${message}`);
}

function settled() {
  busy(false);
  const wanted = [shownQuery, state.view, state.other, state.step, state.seed, state.predict, picking !== null, failed];
  if (wanted.join() !== drawn) renderStage();
  drawn = wanted.join();
  document.title = pageTitle();
  showToken();
  renderMapPane();
  const { source: name, note: remark } = current?.trace ?? modelFacts();
  const { shape, dtype } = current?.trace.table ?? modelFacts();
  const size = `${name}: ${grouped(shape[0])} ${TIMES} ${grouped(shape[1])} ${dtype}`;
  byId("source").textContent = [size, remark].filter(Boolean).join("; ");
  byId("share").hidden = failed || !current || state.view !== "walk" || source.exported || window.top !== window;
  if (!byId("share").hidden) byId("share-command").textContent = walkCommand(state);
  if (failed) return; // the error was announced already
  const text = summary();
  if (text !== lastAnnounced) announce((lastAnnounced = text));
}

// The command that writes this walk to one file. A served model's path is not known here.
function walkCommand({ texts, model, step, positions, theta, swap, pad }) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const isLong = texts.join("").length > MAX_SHARED;
  return [
    "inlayer walk", model !== "default" && "--model MODEL", positions && `--positions ${positions}`,
    theta !== null && `--theta ${theta}`, swap && `--swap ${swap.join(",")}`, pad > 0 && `--pad ${pad}`,
    `--step ${step} --html walk.html`, isLong ? "--file FILE" : `-- ${texts.map(quote).join(" ")}`,
  ].filter(Boolean).join(" ");
}

// Announced by screen readers when the step changes.
function summary() {
  if (!current) return "The rows of a model without a tokenizer";
  if (state.view === "initialization") return "Initialization and forward pass";
  if (state.view === "compare") return "Compare two models on the same text";
  const step = current.trace.steps[state.step - 1];
  const effect = byId("changed-note")?.textContent ?? "";
  const details = isHidden(state.step) ? "Answer a question first." : `${step.note}. ${effect}`;
  return `Step ${state.step} of ${STEPS}: ${step.title}. ${details}`;
}

function busy(on) {
  byId("progress").hidden = !on;
  byId("stage").setAttribute("aria-busy", String(on));
}

function showError(message) {
  byId("error").textContent = message;
  byId("error").hidden = false;
}

function hideError() {
  byId("error").hidden = true;
  byId("error").textContent = "";
}

function pageTitle() {
  const what = state.view === "walk" ? `${state.step} ${upper(STEP_NAMES[state.step - 1])}` : upper(state.view);
  return `${what}: ${cut(visible(state.texts[0]), 40)} \u2013 inlayer`;
}

// Links to the other pages, except in an exported page or next to a lesson.
function renderLinks() {
  const alone = source.exported || window.top !== window;
  byId("learn").hidden = byId("inspect-link").hidden = alone;
  byId("view-compare").hidden = source.exported; // an exported page has one model
  if (alone) return;
  byId("learn").href = `/learn${location.search}#step=${state.step}`;
  byId("inspect-link").href = `/inspect${location.search}${writeFragment(state)}`; // that page links back to this walk
}

function readLocation() {
  state = readFragment(location.hash);
  if (source.exported) {
    const hasStep = /[#&]step=/.test(location.hash); // otherwise it opens as it was exported
    if (!hasStep) state = { ...state, step: source.step, ...source.change };
    state = { ...state, texts: source.texts, dims: source.dims, from: 0, channel: 0, model: models[0].name, seed: 0 };
  } else {
    const isUnknown = (name) => name !== null && !models.some((model) => model.name === name);
    if (isUnknown(state.model)) ignore("model", state.model, `unknown; showing ${models[0].name}`);
    if (isUnknown(state.other)) ignore("other", state.other, "unknown model");
    if (state.model === null || isUnknown(state.model)) state.model = models[0].name;
    if (isUnknown(state.other)) state.other = null;
  }
  byId("ignored").hidden = ignored.length === 0;
  byId("ignored-words").textContent = `Ignored in this link: ${ignored.join(", ")}.`;
  if (state.positions === modelFacts().positions) state.positions = null; // the model's own positions are not a change
  const fragment = writeFragment(state);
  if (fragment !== location.hash) history.replaceState(null, "", fragment);
}

function listen() {
  listenForInspection();
  listenForKeys();
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment holds the state
    byId("stage").focus();
  });
  byId("input").addEventListener("submit", (event) => event.preventDefault());
  byId("model").addEventListener("change", (event) => {
    switched = current && !failed ? { model: state.model, token: state.token, ...changeOf(state) } : null;
    go({ model: event.target.value, token: null, ...UNCHANGED });
  });
  byId("add-text").addEventListener("click", addText);
  byId("ignored-close").addEventListener("click", () => { byId("ignored").hidden = true; });
  for (const view of VIEWS) byId(`view-${view}`).addEventListener("click", () => go({ view }));
  byId("back").addEventListener("click", () => goToStep(state.step - 1));
  byId("next").addEventListener("click", () => goToStep(state.step + 1));
  byId("motion").addEventListener("click", toggleMotion);
  byId("changes-toggle").addEventListener("click", (event) => {
    const open = byId("changes").classList.toggle("open");
    event.target.setAttribute("aria-expanded", String(open));
  });
  byId("predict").addEventListener("click", togglePredict);
  byId("theme").addEventListener("click", nextTheme);
  byId("help").addEventListener("click", () => byId("keys").showModal());
  document.querySelector(".workspace").addEventListener("click", (event) => {
    const token = event.target.closest("[data-token]");
    if (!token) return;
    const { b, t, tokenId } = token.dataset;
    if (picking && b !== undefined) pick(Number(b), Number(t), tokenAt({ b, t }));
    else if (tokenId !== undefined) openToken(Number(tokenId), token);
  });
  listenForHighlights(document.querySelector(".workspace"));
  window.addEventListener("resize", () => byId("texts").querySelectorAll("textarea").forEach(fitHeight));
  window.addEventListener("popstate", () => {
    if (models.length === 0) return; // the URL is read once the models are known
    isTyped = false;
    discardTyping(); // the typed text belongs to the previous history entry
    readLocation();
    picking = null;
    update();
  });
}

async function start() {
  document.body.classList.toggle("framed", window.top !== window); // next to a lesson
  setTheme(storedTheme());
  motion.off = stored(STORED_MOTION) === "off";
  renderMotion();
  renderKeys();
  emptyInspector();
  state = readFragment(location.hash); // so a click while the models load keeps the view in the link
  listen();
  try {
    models = await source.models();
  } catch (error) {
    busy(false);
    return showFailure(error.message);
  }
  readLocation();
  update();
}

start();

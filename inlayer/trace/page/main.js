// From state to page: ask for what the state needs, drop answers that come too late, draw.

const LOADING_SHOWS = 150; // milliseconds; faster answers need no sign

const source = openSource();
let ticket = 0;
let abort = null;
let shownQuery = "";
let refused = false; // the last request was: what is on show is of the one before
let switched = null; // what to go back to if the model just chosen is refused
let drawn = ""; // what the stage shows, so that opening a token does not draw it anew
let lastAnnounced = "";

function queryOf(view, change) {
  return { texts: view.texts, model: view.model, dims: view.dims, ...change };
}

function update() {
  renderAsk();
  renderPath();
  renderControls();
  byId("view-walk").setAttribute("aria-pressed", String(state.view === "walk"));
  byId("view-birth").setAttribute("aria-pressed", String(state.view === "birth"));
  byId("predict").setAttribute("aria-pressed", String(state.predict));
  byId("changes").hidden = state.view === "birth";
  renderLearn();
  refresh();
}

async function refresh() {
  const mine = ++ticket;
  const back = switched;
  switched = null;
  const change = changeOf(state);
  const asked = queryOf(state, change);
  const query = JSON.stringify(asked);
  if (query === shownQuery && (state.view === "walk" || isBirthShown())) {
    accepted();
    return;
  }
  abort?.abort();
  abort = new AbortController();
  const { signal } = abort;
  const sign = setTimeout(() => busy(true), LOADING_SHOWS);
  try {
    const [trace, base, birth] = await Promise.all([
      source.walk(asked, signal),
      isChanged(change) ? source.walk(queryOf(state, UNCHANGED), signal) : null,
      state.view === "birth" ? loadBirth(signal) : shownBirth,
    ]);
    if (mine !== ticket) return;
    shownBirth = birth;
    if (query !== shownQuery) coverAgain();
    shownQuery = query;
    setCurrent(trace, base, asked);
    const none = withoutEffect();
    if (none) go(none, { replace: true });
    else accepted();
  } catch (error) {
    if (mine !== ticket || error.name === "AbortError") return;
    if (!(error instanceof Refused)) console.error(error);
    const message = error instanceof Refused ? error.message : `This page failed: ${error.message}`;
    if (back) goBack(back, message);
    else refuse(message);
  } finally {
    clearTimeout(sign);
    if (mine === ticket) busy(false);
  }
}

function accepted() {
  refused = false;
  hideError();
  renderControls();
  settled();
}

// What was asked for cannot be had: the step is shown as it was before, and says so.
function refuse(message) {
  refused = true;
  picking = null;
  showError(message);
  renderControls();
  if (current) settled();
  else renderStage();
}

// A model that refuses this walk is not taken: the page stays with the one it shows.
function goBack(back, message) {
  const { model } = state;
  go(back, { replace: true });
  showError(`${model} was not taken: ${message}`);
}

function settled() {
  busy(false);
  const wanted = [shownQuery, state.view, state.step, state.seed, state.predict, picking !== null, refused].join();
  if (wanted !== drawn) renderStage();
  drawn = wanted;
  showToken();
  const { table, source: name, note: remark } = current.trace;
  const size = `${name}: ${grouped(table.shape[0])} ${TIMES} ${grouped(table.shape[1])} ${table.dtype}`;
  byId("source").textContent = [size, remark].filter(Boolean).join("; ");
  if (refused) return; // the reason is spoken already
  const said = summary();
  if (said !== lastAnnounced) announce((lastAnnounced = said));
}

// What a screen reader hears when a step is reached or something changed.
function summary() {
  if (state.view === "birth") return "Initialization against forward pass";
  const step = current.trace.steps[state.step - 1];
  const told = isCovered(state.step) ? "A question first." : `${step.note}. ${byId("changed-note")?.textContent ?? ""}`;
  return `Step ${state.step} of ${STEPS}: ${step.title}. ${told}`;
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

// The lesson about this step; none for an exported page, nor for one that stands beside a lesson already.
function renderLearn() {
  byId("learn").hidden = source.exported || window.top !== window;
  byId("learn").href = source.exported ? "#" : `/learn${location.search}#step=${state.step}`;
}

function readLocation() {
  state = readFragment(location.hash);
  if (source.exported) {
    const begun = /[#&]step=/.test(location.hash); // else it opens as it was exported
    if (!begun) state = { ...state, step: source.step, ...source.change };
    state = { ...state, texts: source.texts, dims: source.dims, model: models[0].name, seed: 0 };
  } else if (!models.some((one) => one.name === state.model)) {
    state.model = models[0].name;
  }
  if (state.positions === modelFacts().positions) state.positions = null; // its own: no change
  const fragment = writeFragment(state);
  if (fragment !== location.hash) history.replaceState(null, "", fragment);
}

function listen() {
  listenForInspection();
  listenForKeys();
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment is the state's
    byId("stage").focus();
  });
  byId("ask").addEventListener("submit", (event) => event.preventDefault());
  byId("model").addEventListener("change", (event) => {
    switched = current && !refused ? { model: state.model, token: state.token, ...changeOf(state) } : null;
    go({ model: event.target.value, token: null, ...UNCHANGED });
  });
  byId("add-text").addEventListener("click", addText);
  byId("dims").addEventListener("change", (event) => go({ dims: Number(event.target.value) }));
  byId("view-walk").addEventListener("click", () => go({ view: "walk" }));
  byId("view-birth").addEventListener("click", () => go({ view: "birth" }));
  byId("changes-toggle").addEventListener("click", (event) => {
    const open = byId("changes").classList.toggle("open");
    event.target.setAttribute("aria-expanded", String(open));
  });
  byId("predict").addEventListener("click", togglePredict);
  byId("theme").addEventListener("click", nextTheme);
  byId("help").addEventListener("click", () => byId("keys").showModal());
  document.querySelector(".floor").addEventListener("click", (event) => {
    const token = event.target.closest("[data-token]");
    if (!token) return;
    const { b, t, tokenId } = token.dataset;
    if (picking && b !== undefined) pick(Number(b), Number(t), current.trace.texts[b].cells[t]);
    else if (tokenId !== undefined) openToken(Number(tokenId), token);
  });
  window.addEventListener("popstate", () => {
    if (models.length === 0) return; // read when they are known
    dropTyped(); // it belongs to the entry that was left
    readLocation();
    picking = null;
    update();
  });
}

async function start() {
  setTheme(storedTheme());
  renderKeys();
  emptyInspector();
  listen();
  try {
    models = await source.models();
  } catch (error) {
    busy(false);
    return refuse(error.message);
  }
  readLocation();
  update();
}

start();

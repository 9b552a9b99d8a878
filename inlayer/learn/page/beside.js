// The walk beside the lesson: the real page of the walk in a frame of this very server, wide as the reader wants it.

const NARROWEST = 320;
const OWN_TEXT = "I love dogs";
const KEPT_WIDTH = "inlayer-walk-width";
const KEPT_OPEN = "inlayer-walk-beside";

let shownStep = null;

function walkAddress(step, texts) {
  const write = new URLSearchParams();
  for (const text of texts?.length ? texts : [OWN_TEXT]) write.append("text", text);
  write.set("step", step);
  return `/${location.search}#${write}`;
}

// A link to a step opens it beside the text; with Ctrl or a middle click it is a page of its own, as links are.
function walkLink(step, texts, inside) {
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    openWalk(step, texts);
  };
  return make("a", { href: walkAddress(step, texts), class: "walk-link", on: { click: open } }, inside);
}

function frame() {
  return byId("pane").querySelector("iframe");
}

function isWalkOpen() {
  return !byId("pane").hidden;
}

function openWalk(step, texts, { quiet = false } = {}) {
  const address = walkAddress(step, texts);
  if (frame() === null) {
    byId("pane").replaceChildren(
      make("div", { class: "panel-head pane-head" },
        make("h2", {}, "The walk"),
        make("div", { class: "pane-actions" },
          make("a", { id: "pane-whole", class: "bar-link", href: address }, "As a page"),
          button("Close", closeWalk, { class: "quiet", "aria-label": "Close the walk" }))),
      make("iframe", { src: address, title: "The walk", class: "pane-frame" }));
  } else if (address !== shownStep) {
    frame().contentWindow.location.replace(address); // no entry of the history: back leads to the page before
  }
  byId("pane-whole").href = address;
  shownStep = address;
  showPane(true);
  store(KEPT_OPEN, "1");
  if (!quiet) announce(`The walk is beside the lesson, at step ${step}.`);
  if (!quiet && getComputedStyle(byId("divider")).display === "none") byId("pane").scrollIntoView({ block: "start" });
}

function closeWalk() {
  showPane(false);
  store(KEPT_OPEN, "0");
  byId("beside").focus();
}

function showPane(open) {
  byId("pane").hidden = byId("divider").hidden = !open;
  byId("beside").setAttribute("aria-pressed", String(open));
  document.body.classList.toggle("with-walk", open);
  setWidth(Number(stored(KEPT_WIDTH)) || 480);
}

function widest() {
  return Math.max(NARROWEST, Math.round(window.innerWidth * 0.6));
}

function setWidth(width) {
  const set = Math.min(widest(), Math.max(NARROWEST, Math.round(width)));
  byId("course").style.setProperty("--pane", `${set}px`);
  for (const [name, value] of [["now", set], ["min", NARROWEST], ["max", widest()]]) {
    byId("divider").setAttribute("aria-value" + name, value);
  }
  return set;
}

function listenForWalk() {
  byId("beside").addEventListener("click", () => {
    if (isWalkOpen()) closeWalk();
    else openWalk(walkStep(), null);
  });
  const divider = byId("divider");
  divider.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: 32, ArrowRight: -32, Home: Infinity, End: -Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    store(KEPT_WIDTH, setWidth(byId("pane").offsetWidth + by));
  });
  divider.addEventListener("pointerdown", (event) => {
    divider.setPointerCapture(event.pointerId);
    document.body.classList.add("dragging"); // the frame would swallow what the pointer does
    const move = ({ clientX }) => setWidth(byId("pane").getBoundingClientRect().right - clientX);
    divider.addEventListener("pointermove", move);
    divider.addEventListener("lostpointercapture", () => {
      divider.removeEventListener("pointermove", move);
      document.body.classList.remove("dragging");
      store(KEPT_WIDTH, byId("pane").offsetWidth);
    }, { once: true });
  });
  byId("theme").addEventListener("click", () => {
    nextTheme();
    const framed = frame()?.contentDocument;
    if (!framed) return;
    const { theme } = document.documentElement.dataset;
    if (theme) framed.documentElement.dataset.theme = theme;
    else delete framed.documentElement.dataset.theme;
    framed.getElementById("theme").textContent = byId("theme").textContent;
  });
}

// The walk next to the lesson: the walk page in a frame with adjustable width.

const MIN_WIDTH = 320;
const EXAMPLE_TEXT = "I love dogs";
const STORED_WIDTH = "inlayer-walk-width";
const STORED_OPEN = "inlayer-walk-open";

let shownStep = null;

function walkAddress(step, texts) {
  const write = new URLSearchParams();
  for (const text of texts?.length ? texts : [EXAMPLE_TEXT]) write.append("text", text);
  write.set("step", step);
  return `/${location.search}#${write}`;
}

// A link to a step opens it next to the text or, with Ctrl or a middle click, as a page.
function walkLink(step, texts, inside) {
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    openWalk(step, texts);
  };
  return make("a", { href: walkAddress(step, texts), class: "walk-link", on: { click: open } }, inside);
}

// After a paragraph that links to the walk, embeds the walk in the text, at that step and with that text.
function withTryHere(element) {
  const link = element instanceof Element && element.matches("p") ? element.querySelector(".walk-link") : null;
  if (link === null) return [element];
  const show = (...content) => {
    box.replaceChildren(...content);
    content[0].focus();
  };
  const close = button("Close the walk", () => show(open));
  const open = button("Try it here", () =>
    show(close, make("iframe", { src: link.href, title: "The walk, in the lesson", class: "pane-frame" })));
  const box = make("section", { class: "try-here", "aria-label": "Try it here" }, open);
  return [element, box];
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
          make("a", { id: "pane-whole", class: "bar-link", href: address }, "Open as page"),
          button("Close", closeWalk, { class: "quiet", "aria-label": "Close the walk" }))),
      make("iframe", { src: address, title: "The walk", class: "pane-frame" }));
  } else if (address !== shownStep) {
    frame().contentWindow.location.replace(address); // no history entry: Back leads to the previous page
  }
  byId("pane-whole").href = address;
  shownStep = address;
  showPane(true);
  store(STORED_OPEN, "1");
  if (!quiet) announce(`The walk is open next to the lesson, at step ${step}.`);
  if (!quiet && getComputedStyle(byId("divider")).display === "none") byId("pane").scrollIntoView({ block: "start" });
}

function closeWalk() {
  showPane(false);
  store(STORED_OPEN, "0");
  byId("walk-toggle").focus();
}

function showPane(open) {
  byId("pane").hidden = byId("divider").hidden = !open;
  byId("walk-toggle").setAttribute("aria-pressed", String(open));
  document.body.classList.toggle("with-walk", open);
  setWidth(Number(stored(STORED_WIDTH)) || 480);
}

function widest() {
  return Math.max(MIN_WIDTH, Math.round(window.innerWidth * 0.6));
}

function setWidth(width) {
  const set = Math.min(widest(), Math.max(MIN_WIDTH, Math.round(width)));
  byId("course").style.setProperty("--pane", `${set}px`);
  for (const [name, value] of [["now", set], ["min", MIN_WIDTH], ["max", widest()]]) {
    byId("divider").setAttribute("aria-value" + name, value);
  }
  return set;
}

function listenForWalk() {
  byId("walk-toggle").addEventListener("click", () => {
    if (isWalkOpen()) closeWalk();
    else openWalk(walkStep(), null);
  });
  const divider = byId("divider");
  divider.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: 32, ArrowRight: -32, Home: Infinity, End: -Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    store(STORED_WIDTH, setWidth(byId("pane").offsetWidth + by));
  });
  divider.addEventListener("pointerdown", (event) => {
    divider.setPointerCapture(event.pointerId);
    document.body.classList.add("dragging"); // the frame would capture pointer events
    const move = ({ clientX }) => setWidth(byId("pane").getBoundingClientRect().right - clientX);
    divider.addEventListener("pointermove", move);
    divider.addEventListener("lostpointercapture", () => {
      divider.removeEventListener("pointermove", move);
      document.body.classList.remove("dragging");
      store(STORED_WIDTH, byId("pane").offsetWidth);
    }, { once: true });
  });
  byId("theme").addEventListener("click", () => {
    nextTheme();
    const { theme } = document.documentElement.dataset;
    for (const { contentDocument: framed } of document.querySelectorAll("iframe")) {
      if (theme) framed.documentElement.dataset.theme = theme;
      else delete framed.documentElement.dataset.theme;
      framed.getElementById("theme").textContent = byId("theme").textContent;
    }
  });
}

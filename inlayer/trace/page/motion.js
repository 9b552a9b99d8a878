// Motion: 400 ms, instant if the system asks for less motion or if it is switched off on the page.

const DURATION = 400;
const STORED_MOTION = "inlayer-motion";
const lessMotion = matchMedia("(prefers-reduced-motion: reduce)");

const motion = {
  off: false,

  get instant() {
    return this.off || lessMotion.matches || document.hidden;
  },

  // Calls frame(share) with a share that eases from 0 to 1, and done() at the end; returns a function that stops it.
  animate(duration, frame, done = () => {}) {
    if (this.instant) {
      frame(1);
      done();
      return () => {};
    }
    const start = performance.now();
    let stopped = false;
    const tick = (time) => {
      if (stopped) return;
      const share = this.instant ? 1 : Math.min(1, Math.max(0, (time - start) / duration));
      frame(share * share * (3 - 2 * share));
      if (share < 1) requestAnimationFrame(tick);
      else done();
    };
    requestAnimationFrame(tick);
    return () => { stopped = true; };
  },
};

function toggleMotion() {
  if (lessMotion.matches) return;
  motion.off = !motion.off;
  store(STORED_MOTION, motion.off ? "off" : "on");
  renderMotion();
  document.dispatchEvent(new Event("motion-change"));
}

// Shows what applies: the system's setting is stronger than the switch.
function renderMotion() {
  const isOff = motion.off || lessMotion.matches;
  byId("motion").setAttribute("aria-pressed", String(!isOff));
  byId("motion").disabled = lessMotion.matches;
  byId("motion").title = lessMotion.matches ? "Off, because your system asks for less motion" : "";
}

lessMotion.addEventListener("change", renderMotion);

// ---- elements that move: each element with data-flip glides from where its key was before the page was redrawn

const MAX_MOVED = 600;

function rectsBefore(container) {
  const rects = new Map();
  if (motion.instant) return rects;
  for (const element of Array.from(container.querySelectorAll("[data-flip]")).slice(0, MAX_MOVED)) {
    rects.set(element.dataset.flip, element.getBoundingClientRect());
  }
  return rects;
}

function glideFrom(rects, container) {
  if (motion.instant || rects.size === 0) return;
  for (const element of Array.from(container.querySelectorAll("[data-flip]")).slice(0, MAX_MOVED)) {
    const from = rects.get(element.dataset.flip), to = element.getBoundingClientRect();
    const options = { duration: DURATION, easing: "cubic-bezier(0.3, 0, 0.2, 1)" };
    if (!from) {
      element.animate([{ opacity: 0 }, { opacity: 1 }], options);
      continue;
    }
    const x = from.left - to.left, y = from.top - to.top;
    if (Math.abs(x) < 1 && Math.abs(y) < 1) continue;
    element.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }], options);
  }
}

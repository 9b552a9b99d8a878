// Motion takes 400 ms, or is instant if the system asks for less motion or it is switched off on the page.

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

// Shows the setting in effect: the system's setting overrides the switch.
function renderMotion() {
  const isOff = motion.off || lessMotion.matches;
  byId("motion").setAttribute("aria-pressed", String(!isOff));
  byId("motion").disabled = lessMotion.matches;
  byId("motion").title = lessMotion.matches ? "Off, because your system asks for less motion" : "";
}

lessMotion.addEventListener("change", renderMotion);

// Elements that move: each element with data-flip glides from where its key was before the page was redrawn

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

// A map's input: wheel, drag, pinch, and keys.

function listenToMap(canvas, { map, zoom, pan, slide, drift, pointAt, hover, stop, isSmallest, chosen }) {
  const pointers = new Map();
  let moved = false, speed = [0, 0], last = 0;
  const spread = () => { const [a, b] = [...pointers.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
  canvas.addEventListener("wheel", (event) => {
    if (event.deltaY > 0 && isSmallest()) return; // cannot zoom out further, so the page scrolls
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 30 : 1;
    zoom(Math.exp(-Math.max(-120, Math.min(120, event.deltaY * lines)) / (event.ctrlKey ? 100 : 320)), event.offsetX, event.offsetY);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    canvas.setPointerCapture?.(event.pointerId);
    [moved, speed, last] = [pointers.size > 1, [0, 0], event.timeStamp];
    stop();
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = [event.offsetX, event.offsetY], before = pointers.get(event.pointerId);
    if (!before) return hover(pointAt(...here), ...here);
    if (pointers.size === 2) {
      const wide = spread();
      pointers.set(event.pointerId, here);
      const [a, b] = [...pointers.values()];
      map.view = { ...map.view };
      pan((here[0] - before[0]) / 2, (here[1] - before[1]) / 2);
      zoomAt(map, spread() / (wide || 1), (a[0] + b[0]) / 2, (a[1] + b[1]) / 2, canvas);
      return;
    }
    const [dx, dy] = [here[0] - before[0], here[1] - before[1]];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    [moved, canvas.dataset.dragged] = [true, ""];
    const spent = Math.max(1, event.timeStamp - last), part = Math.min(1, spent / 40);
    speed = [speed[0] + (dx / spent - speed[0]) * part, speed[1] + (dy / spent - speed[1]) * part];
    last = event.timeStamp;
    pointers.set(event.pointerId, here);
    hover(-1);
    pan(dx, dy);
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    delete canvas.dataset.dragged;
    if (event.type === "pointercancel") return;
    if (!moved) {
      const id = pointAt(event.offsetX, event.offsetY);
      if (id >= 0) chosen(id);
    } else if (pointers.size === 0 && event.timeStamp - last < 60) drift(...speed);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("dblclick", (event) => zoom(event.shiftKey ? 0.5 : 2, event.offsetX, event.offsetY));
  const keys = {
    ArrowLeft: () => slide(60, 0), ArrowRight: () => slide(-60, 0), ArrowUp: () => slide(0, 60), ArrowDown: () => slide(0, -60),
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => map.fit(),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation(); // arrow keys would also change the step of a walk
    keys[event.key]();
  });
}

function zoomAt(map, factor, px, py, canvas) {
  const { x, y, scale } = map.view, next = scale * factor;
  const [dx, dy] = [px - canvas.clientWidth / 2, py - canvas.clientHeight / 2];
  map.view = { scale: next, x: x + dx / scale - dx / next, y: y - dy / scale + dy / next };
}

// Step 3: the merges of a text, played in the order of their ranks.

const MAX_MERGE_TIME = 2400; // milliseconds for all merges of a text
const MAX_ONE_MERGE = 320;

let merging = null; // {trace, at}: how many merges of the text are drawn

// The merges of a text in the order of their ranks: [{preToken, left, right, rank, id}].
function mergesOf(text) {
  const found = (text.pre_tokens ?? []).flatMap((preToken, preTokenIndex) =>
    (preToken.merges ?? []).map((merge, order) => ({ ...merge, preTokenIndex, order })));
  return found.sort((a, b) => a.rank - b.rank || a.preTokenIndex - b.preTokenIndex || a.order - b.order);
}

// The parts of each pre-token after some merges: [[hex, ...], ...]. Merges of one pre-token keep their own order.
function partsAfter(text, count) {
  const done = new Map();
  for (const { preTokenIndex } of mergesOf(text).slice(0, count)) {
    done.set(preTokenIndex, (done.get(preTokenIndex) ?? 0) + 1);
  }
  return (text.pre_tokens ?? []).map((preToken, preTokenIndex) => {
    let parts = preToken.bytes.match(/../g) ?? [];
    for (const { left, right } of (preToken.merges ?? []).slice(0, done.get(preTokenIndex) ?? 0)) {
      const joined = [];
      for (let index = 0; index < parts.length; index += 1) {
        const pair = parts[index] === left && parts[index + 1] === right;
        joined.push(pair ? left + right : parts[index]);
        if (pair) index += 1;
      }
      parts = joined;
    }
    return parts;
  });
}

function canPlay(text) {
  return text.pre_tokens?.length > 0 && mergesOf(text).length > 0
    && text.pre_tokens.every((preToken) => preToken.merges !== null);
}

function mergePlayer(trace) {
  const text = trace.texts[0];
  if (!canPlay(text)) return null;
  const total = mergesOf(text).length;
  if (merging?.trace !== trace) merging = { trace, at: motion.instant ? total : 0, running: false };
  const slider = make("input", {
    type: "range", id: "merge-slider", min: 0, max: total, value: merging.at, "aria-label": "Merges applied",
    on: { input: (event) => { merging.running = false; drawMerges(Number(event.target.value)); } },
  });
  const player = make("div", { class: "merge-player" },
    make("div", { id: "merge-parts", class: "merge-parts", "aria-hidden": "true" }, mergeParts(text, merging.at)),
    make("div", { class: "merge-controls" },
      button("Replay merges", () => playMerges(0), { id: "merge-play" }), slider,
      make("output", { id: "merge-count", class: "note", for: "merge-slider" }, mergeWords(text, merging.at))));
  if (merging.at === 0 && !motion.instant && !merging.running) setTimeout(() => playMerges(0), DURATION);
  return player;
}

function mergeParts(text, count) {
  const owners = byteOwners(current.trace, text);
  return text.pre_tokens.map((preToken, preTokenIndex) => {
    let at = preToken.span[0];
    return make("span", { class: "merge-pre" }, partsAfter(text, count)[preTokenIndex].map((hex) => {
      const start = at;
      at += hex.length / 2;
      const made = make("span", { class: "merge-tile mono", data: { flip: `byte 0 ${start}` } }, readable(hex));
      return owners[start] ? colored(made, owners[start].token) : made;
    }));
  });
}

function mergeWords(text, count) {
  const all = mergesOf(text);
  if (count === 0) return `${counted(all.length, "merge")} left, lowest rank first`;
  const { left, right, rank } = all[count - 1];
  return `merge ${count} of ${all.length}: ${readable(left)} + ${readable(right)}, rank ${grouped(rank)}`;
}

function drawMerges(count) {
  if (!byId("merge-parts") || !merging) return;
  const text = current.trace.texts[0];
  merging.at = count;
  const rects = rectsBefore(byId("merge-parts"));
  byId("merge-parts").replaceChildren(...mergeParts(text, count));
  glideFrom(rects, byId("merge-parts"));
  byId("merge-slider").value = count;
  byId("merge-count").textContent = mergeWords(text, count);
}

function playMerges(from) {
  const text = current?.trace.texts[0];
  if (!byId("merge-parts") || !text) return;
  const total = mergesOf(text).length;
  if (motion.instant) return drawMerges(total);
  const pause = Math.min(MAX_ONE_MERGE, MAX_MERGE_TIME / total);
  const mine = (merging = { trace: current.trace, at: from, running: true });
  const step = () => {
    if (merging !== mine || !mine.running || !byId("merge-parts")) return;
    if (mine.at < total) {
      drawMerges(mine.at + Math.max(1, Math.round(total / (MAX_MERGE_TIME / pause))));
      setTimeout(step, pause);
    } else {
      mine.running = false;
    }
  };
  drawMerges(from);
  setTimeout(step, pause);
}

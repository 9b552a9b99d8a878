// Step 3: the merges of a text, played in the order of their ranks.
//
// A tile is as wide as its bytes: tiles join in place, so nothing else moves.

const MAX_MERGE_TIME = 2400; // milliseconds for all merges of a text
const MAX_ONE_MERGE = 320; // milliseconds for the merges of one rank
const FLASH = [{ backgroundColor: "color-mix(in oklab, var(--token) 50%, var(--surface))" }, {}];

let merging = null; // {trace, all, at, stop}: all merges, how many are drawn, and what stops the player, or null

// The merges of a text in the order of their ranks: [{preToken, left, right, rank, id}].
function mergesOf(text) {
  const found = (text.pre_tokens ?? []).flatMap((preToken, preTokenIndex) =>
    (preToken.merges ?? []).map((merge, order) => ({ ...merge, preTokenIndex, order })));
  return found.sort((a, b) => a.rank - b.rank || a.preTokenIndex - b.preTokenIndex || a.order - b.order);
}

// The parts of each pre-token after some merges: [[hex, ...], ...]. Merges in one pre-token keep their order.
function partsAfter(text, merges) {
  const done = new Map();
  for (const { preTokenIndex } of merges) {
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
  if (merging?.trace !== trace) {
    stopMerges();
    const all = mergesOf(text);
    merging = { trace, all, at: motion.instant ? all.length : 0, stop: null };
    if (merging.at === 0) setTimeout(() => merging.trace === trace && merging.at === 0 && playMerges(), DURATION);
  }
  const slider = make("input", {
    type: "range", id: "merge-slider", min: 0, max: merging.all.length, "aria-label": "Merges applied",
    on: { input: (event) => { stopMerges(); drawMerges(Number(event.target.value)); } },
  });
  const boxes = text.pre_tokens.map(() => span("merge-pre"));
  const player = make("div", { class: "merge-player" },
    make("div", { class: "merge-controls" }, button("", toggleMerges, { id: "merge-play" }), slider,
      make("output", { id: "merge-count", class: "note", for: "merge-slider" })),
    make("div", { id: "merge-parts", class: "merge-parts", "aria-hidden": "true" }, boxes));
  fillPlayer(player);
  return player;
}

// Draws the merges up to merging.at. Boxes whose parts did not change are not redrawn.
function fillPlayer(player) {
  const { trace, all, at, stop } = merging;
  const text = trace.texts[0], owners = byteOwners(trace, text);
  const boxes = player.querySelector("#merge-parts").children;
  partsAfter(text, all.slice(0, at)).forEach((parts, index) => {
    const box = boxes[index], known = box.dataset.parts?.split(" ") ?? parts;
    if (box.dataset.parts === parts.join(" ")) return;
    box.dataset.parts = parts.join(" ");
    let start = text.pre_tokens[index].span[0];
    box.replaceChildren(...parts.map((hex) => {
      const tile = mergeTile(hex, owners[start]?.token);
      start += hex.length / 2;
      if (!known.includes(hex) && !motion.instant) tile.animate(FLASH, DURATION);
      return tile;
    }));
  });
  player.querySelector("#merge-slider").value = at;
  player.querySelector("#merge-count").textContent = mergeWords(all, at);
  player.querySelector("#merge-play").textContent = stop ? "Pause" : at > 0 && at < all.length ? "Continue" : "Replay merges";
}

function mergeTile(hex, token) {
  const text = readable(hex), isText = !text.includes("\\x");
  const tile = make("span", { class: "merge-tile mono" + (isText ? "" : " undecoded") }, isText ? text : hexPairs(hex));
  styled(tile, { "--bytes": hex.length / 2 });
  return token ? colored(tile, token) : tile;
}

function mergeWords(all, count) {
  if (count === 0) return `${counted(all.length, "merge")} left, lowest rank first`;
  const { left, right, rank } = all[count - 1];
  return `merge ${count} of ${all.length}: ${readable(left)} + ${readable(right)}, rank ${grouped(rank)}`;
}

function drawMerges(count) {
  const player = document.querySelector(".merge-player");
  if (!player) return stopMerges();
  merging.at = count;
  fillPlayer(player);
}

function stopMerges() {
  merging?.stop?.();
  if (merging) merging.stop = null;
}

function toggleMerges() {
  if (!merging.stop) return playMerges();
  stopMerges();
  drawMerges(merging.at);
}

// All merges of one rank are drawn together, as BPE applies them.
function playMerges() {
  const started = merging, { all } = started, start = started.at % all.length;
  const counts = all.flatMap(({ rank }, index) => (rank === all[index + 1]?.rank || index < start ? [] : [index + 1]));
  stopMerges();
  if (motion.instant) return drawMerges(all.length);
  started.stop = motion.animate(Math.min(MAX_MERGE_TIME, MAX_ONE_MERGE * counts.length), (share) => {
    const count = counts[Math.ceil(share * counts.length) - 1] ?? start;
    if (count !== started.at) drawMerges(count);
  }, () => {
    started.stop = null;
    drawMerges(all.length);
  });
  drawMerges(start);
}

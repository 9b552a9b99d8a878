// The text at the top of the stage: its bytes, which group into pre-tokens and merge into tokens, one hue per token.

const MAX_MERGE_TIME = 2400; // milliseconds for all merges of a text
const MAX_ONE_MERGE = 320;

let merging = null; // {trace, at}: how many merges of the text are drawn

function renderChips(trace, step) {
  const hidden = isHidden(step) || trace.input !== "text";
  const content = hidden ? [] : step < 3 ? [] : step === 3 ? [mergePlayer(trace)] : [chipRow(trace)];
  byId("chips").replaceChildren(...content.filter(Boolean));
}

// ---- chips of steps 4 to 8

function chipRow(trace) {
  return make("div", { class: "chip-rows" }, trace.texts.map((text, b) =>
    rove(make("div", { class: "chip-row", role: "group", "aria-label": `Tokens of ${textName(trace, b)}` },
      text.tokens.filter((token) => token.mask).map((token, t) => chip(token, b, t)),
      text.n_padding > 0 && span("chip padding-chip", `${TIMES} ${text.n_padding} padding`)))));
}

function chip(token, b, t) {
  const made = tokenButton(token, b, t, "chip", [
    span("token-label mono", cut(nameOf(token), 14)), span("token-id number", String(token.id)),
  ], { field: "token", step: state.step, b, t });
  made.dataset.flip = `token ${b} ${t}`;
  return colored(made, token);
}

function colored(element, token) {
  return styled(element, { "--token": token.mask ? tokenColor(token.id) : "var(--line-strong)" });
}

// ---- bytes of steps 1 to 3

// The token that covers each byte of a text: index -> {token, t}.
function byteOwners(trace, text) {
  const owners = [];
  text.tokens.forEach((token, index) => {
    if (!token.span || !token.mask) return;
    for (let byte = token.span[0]; byte < token.span[1]; byte += 1) owners[byte] = { token, t: index };
  });
  return owners;
}

function byteTile(hex, b, at, owner) {
  const made = make("span", { class: "byte mono", data: { flip: `byte ${b} ${at}` } }, hex);
  return owner ? colored(made, owner.token) : made;
}

function byteTiles(hex, b, start, owners) {
  return (hex.match(/../g) ?? []).map((pair, index) => byteTile(pair, b, start + index, owners[start + index]));
}

// ---- merges, played in the order of their ranks

// The merges of a text in the order of their ranks: [{preToken, left, right, rank, id}].
function mergesOf(text) {
  const found = (text.pre_tokens ?? []).flatMap((preToken, place) =>
    (preToken.merges ?? []).map((merge, order) => ({ ...merge, place, order })));
  return found.sort((a, b) => a.rank - b.rank || a.place - b.place || a.order - b.order);
}

// The parts of each pre-token after some merges: [[hex, ...], ...]. Merges of one pre-token keep their own order.
function partsAfter(text, count) {
  const done = new Map();
  for (const { place } of mergesOf(text).slice(0, count)) done.set(place, (done.get(place) ?? 0) + 1);
  return (text.pre_tokens ?? []).map((preToken, place) => {
    let parts = preToken.bytes.match(/../g) ?? [];
    for (const { left, right } of (preToken.merges ?? []).slice(0, done.get(place) ?? 0)) {
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
  return text.pre_tokens.map((preToken, place) => {
    let at = preToken.span[0];
    return make("span", { class: "merge-pre" }, partsAfter(text, count)[place].map((hex) => {
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
  const places = placesBefore(byId("merge-parts"));
  byId("merge-parts").replaceChildren(...mergeParts(text, count));
  glideFrom(places, byId("merge-parts"));
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

// Changed on purpose: every number of the changed walk is looked up in the unchanged one.
// Real tokens are compared with real tokens and padding with padding, so that a pad added in front moves nothing.

// {trace, base, known, slots, asked}: the walk on show, the unchanged one where something was changed, what was asked
let current = null;

function setCurrent(trace, base, asked) {
  current = { trace, base, asked, slots: slotsOf(trace), known: base ? knownNumbers(base) : null };
}

function slotsOf(trace) {
  return trace.texts.map((text) => {
    const counts = [0, 0];
    return text.cells.map((cell) => (cell.mask ? "token" : "padding") + counts[cell.mask]++);
  });
}

// Every number a step shows, with its place. The steps draw the same places; tests compare them with the library.
function* numbersOf(trace) {
  const cells = trace.texts.flatMap((text, b) => text.cells.map((cell, t) => [cell, b, t]));
  for (const [cell, b, t] of cells) {
    if (cell.id !== null) yield [{ step: 3, field: "id", b, t }, cell.id];
    if (cell.offset !== null) yield [{ step: 4, field: "offset", b, t }, cell.offset];
    for (const [d, value] of cell.row.entries()) yield [{ step: 4, field: "stored", b, t, d }, value];
    for (const [d, value] of cell.row.entries()) yield [{ step: 5, field: "row", b, t, d }, value];
    for (const [s, stage] of cell.stages.entries()) {
      const before = beforeStage(cell, s);
      const step = trace.stages[s].name === "position" ? 6 : 7;
      if (step === 6) for (const [d, value] of before.entries()) yield [{ step, field: "before", s, b, t, d }, value];
      for (const [d, value] of (stage.added ?? []).entries()) yield [{ step, field: "added", s, b, t, d }, value];
      for (const [d, value] of stage.after.entries()) yield [{ step, field: "after", s, b, t, d }, value];
    }
    for (const [s, turn] of (b === 0 ? cell.turns : []).entries()) { // of a place, so the same in every text
      for (const field of ["angles", "cos", "sin"]) {
        for (const [d, value] of turn[field].entries()) yield [{ step: 6, field, s, b, t, d }, value];
      }
    }
    for (const [d, value] of cell.hidden.entries()) yield [{ step: 7, field: "hidden", b, t, d }, value];
  }
  for (const row of trace.backward?.rows ?? []) {
    for (const field of ["lookup", "head", "total"]) {
      for (const [d, value] of (row[field] ?? []).entries()) yield [{ step: 8, field, id: row.id, d }, value];
    }
    yield [{ step: 8, field: "norm", id: row.id }, row.norm];
  }
}

function beforeStage(cell, s) {
  return s === 0 ? cell.row : cell.stages[s - 1].after;
}

function keyOf(place, trace, slots) {
  if (place.id !== undefined) return [place.step, place.field, place.id, place.d].join("|");
  const isTurn = ["angles", "cos", "sin"].includes(place.field);
  const stage = place.s === undefined ? "" : isTurn ? place.s : trace.stages[place.s].name;
  return [place.step, place.field, stage, place.b, slots[place.b][place.t], place.d].join("|");
}

function knownNumbers(base) {
  const slots = slotsOf(base);
  const known = new Map();
  for (const [place, value] of numbersOf(base)) known.set(keyOf(place, base, slots), value);
  return known;
}

// "", where nothing was changed on purpose; else "same", "changed" or "new".
function markOf(place, value) {
  if (!current?.known || place.step === undefined || place.field === "padding") return "";
  const before = current.known.get(keyOf(place, current.trace, current.slots));
  return before === undefined ? "new" : before === value ? "same" : "changed";
}

// How many numbers of a step stayed, at which tokens they changed, and at which there were none before.
function tally(step) {
  const count = { same: 0, changed: 0, new: 0, tokens: new Set(), fresh: new Set(), byField: {} };
  for (const [place, value] of numbersOf(current.trace)) {
    if (place.step !== step) continue;
    const mark = markOf(place, value);
    count[mark] += 1;
    const field = (count.byField[place.field] ??= { same: 0, changed: 0, new: 0 });
    field[mark] += 1;
    if (place.id !== undefined || mark === "same") continue;
    (mark === "changed" ? count.tokens : count.fresh).add(`${place.b},${place.t}`);
  }
  return count;
}

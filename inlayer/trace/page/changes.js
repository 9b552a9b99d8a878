// Comparison of a changed walk with the original one, number by number.
// Tokens are compared with tokens and padding with padding, so added padding does not shift anything.

// {trace, base, known, tokenKeys, query}: the walk shown, the original one if something was changed, and the query
let current = null;

function setCurrent(trace, base, query) {
  assignHues(...[base, trace].filter(Boolean));
  current = { trace, base, query, tokenKeys: tokenKeysOf(trace), known: base ? knownNumbers(base, trace) : null };
}

// The first token and channel that the walk shows, if not 0 and 0.
function firstShown() {
  return current?.trace ?? {};
}

function tokenKeysOf(trace) {
  return trace.texts.map((text) => {
    const counts = [0, 0];
    return text.tokens.map((token) => (token.mask ? "token" : "padding") + counts[token.mask]++);
  });
}

// Every number that a step shows, with its location. Tests compare them with the library.
function* numbersOf(trace) {
  const tokens = trace.texts.flatMap((text, b) => text.tokens.map((token, t) => [token, b, t]));
  for (const [token, b, t] of tokens) {
    if (token.id !== null) yield [{ step: 3, field: "id", b, t }, token.id];
    if (token.offset !== null) yield [{ step: 4, field: "offset", b, t }, token.offset];
    for (const [d, value] of token.row.entries()) yield [{ step: 4, field: "stored", b, t, d }, value];
    for (const [d, value] of token.row.entries()) yield [{ step: 5, field: "row", b, t, d }, value];
    for (const [s, stage] of token.stages.entries()) {
      const before = beforeStage(token, s);
      const step = trace.stages[s].name === "position" ? 6 : 7;
      if (step === 6) for (const [d, value] of before.entries()) yield [{ step, field: "before", s, b, t, d }, value];
      for (const [d, value] of (stage.added ?? []).entries()) yield [{ step, field: "added", s, b, t, d }, value];
      for (const [d, value] of stage.output.entries()) yield [{ step, field: "output", s, b, t, d }, value];
    }
    for (const [s, rotation] of (b === 0 ? token.rotations : []).entries()) { // rotations are the same in every text
      for (const field of ["angles", "cos", "sin"]) {
        for (const [d, value] of rotation[field].entries()) yield [{ step: 6, field, s, b, t, d }, value];
      }
    }
    for (const [d, value] of token.hidden.entries()) yield [{ step: 7, field: "hidden", b, t, d }, value];
  }
  for (const row of trace.backward?.rows ?? []) {
    for (const field of ["lookup", "head", "total"]) {
      for (const [d, value] of (row[field] ?? []).entries()) yield [{ step: 8, field, id: row.id, d }, value];
    }
    yield [{ step: 8, field: "norm", id: row.id }, row.norm];
  }
}

function beforeStage(token, s) {
  return s === 0 ? token.row : token.stages[s - 1].output;
}

function keyOf(cell, trace, tokenKeys) {
  if (cell.id !== undefined) return [cell.step, cell.field, cell.id, cell.d].join("|");
  const isRotation = ["angles", "cos", "sin"].includes(cell.field);
  const stage = cell.s === undefined ? "" : isRotation ? cell.s : trace.stages[cell.s].name;
  return [cell.step, cell.field, stage, cell.b, tokenKeys[cell.b][cell.t], cell.d].join("|");
}

function knownNumbers(base, trace) {
  const tokenKeys = tokenKeysOf(base);
  const known = new Map();
  for (const [cell, value] of numbersOf(base)) known.set(keyOf(cell, base, tokenKeys), value);
  const s = trace.stages.findIndex((stage) => stage.name === "position");
  if (s < 0 || base.stages.some((stage) => stage.name === "position")) return known;
  // The positions are new here, but not the vectors that they are added to.
  const before = s === 0 ? -1 : base.stages.findIndex((stage) => stage.name === trace.stages[s - 1].name);
  base.texts.forEach((text, b) => text.tokens.forEach((token, t) => {
    for (const [d, value] of (before < 0 ? token.row : token.stages[before].output).entries()) {
      known.set(keyOf({ step: 6, field: "before", s, b, t, d }, trace, tokenKeys), value);
    }
  }));
  return known;
}

// "same", "changed", or "new"; empty if nothing was changed.
function markOf(cell, value) {
  if (!current?.known || cell.step === undefined || cell.field === "padding") return "";
  const before = current.known.get(keyOf(cell, current.trace, current.tokenKeys));
  return before === undefined ? "new" : before === value ? "same" : "changed";
}

// Counts the numbers of a step that are the same, changed, or new, and the tokens they belong to.
function countChanges(step) {
  const count = { same: 0, changed: 0, new: 0, tokens: new Set(), fresh: new Set(), byField: {} };
  for (const [cell, value] of numbersOf(current.trace)) {
    if (cell.step !== step) continue;
    const mark = markOf(cell, value);
    count[mark] += 1;
    const field = (count.byField[cell.field] ??= { same: 0, changed: 0, new: 0 });
    field[mark] += 1;
    if (cell.id !== undefined || mark === "same") continue;
    (mark === "changed" ? count.tokens : count.fresh).add(`${cell.b},${cell.t}`);
  }
  return count;
}

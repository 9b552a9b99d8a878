// The numbers of steps 6 to 8 explain themselves: positions, stages, hidden states, gradients.

// What a stage adds, by name: a vector of the position, or one of the segment.
function addedName(cell, s, d) {
  const row = cell.stages[s].row;
  if (current.trace.stages[s].name === "position") return indexed("P", row ?? cell.position, d);
  return indexed("S", row ?? 0, d);
}

// A value's whole way from its row through the first `count` stages: a sum where each of them adds, else one by one.
function wayFormula(cell, d, { name, start, count }) {
  const passed = cell.stages.slice(0, count);
  if (count === 0) return { formula: [`${name} = ${start}`, `= ${brief(cell.row[d])}`] };
  if (passed.every((stage) => stage.added)) {
    const added = passed.map((stage, s) => [addedName(cell, s, d), stage.added[d]]);
    return sumFormula(name, [[start, cell.row[d]], ...added], passed[count - 1].after[d]);
  }
  let term = start;
  const lines = [`${term} = ${brief(cell.row[d])}`];
  for (const [s, { added, after }] of passed.entries()) {
    const stage = current.trace.stages[s].name;
    term = added ? `${term} + ${addedName(cell, s, d)}` : `${stage}(${term})`;
    lines.push(added ? `+ ${brief(added[d])} (${stage}) = ${brief(after[d])}` : `${stage}: ${brief(after[d])}`);
  }
  const others = current.trace.stages.filter((_, s) => passed[s] && !passed[s].added).map((stage) => stage.note);
  return { formula: [`${name} = ${term}`, ...lines], words: upper(listed(others)) + "." };
}

// Where the vector lies that a stage adds: a row of a table of its own, or nowhere.
function addedOrigin(cell, s, d) {
  const { table } = current.trace.stages[s];
  const { row, offset } = cell.stages[s];
  if (!isNothing(table) && !isNothing(row)) return rowFacts(table, row, d, offset);
  const made = current.trace.positions.scheme === "sinusoidal" ? "computed from the place" : "made for this walk";
  return [["Channel", String(d)], ["From", `${made}: it lies in no file`]];
}

function explainTurn(place) {
  const { d, s, t } = place;
  const turn = cellAt(place).turns[s];
  const turning = current.trace.positions.turnings[s];
  const factor = turning.factor === 1 ? "" : `${brief(turning.factor)} ${TIMES} `;
  const scaled = turn.angles[d] !== turn.plain_angles[d];
  const around = (2 * Math.PI) / toNumber(turning.frequencies[d]);
  return {
    title: `angle of token ${t}, pair ${d}`,
    formula: [
      `${t} ${TIMES} ${brief(turning.frequencies[d])} = ${brief(turn.angles[d])} rad`,
      `${factor}cos = ${brief(turn.cos[d])}`,
      `${factor}sin = ${brief(turn.sin[d])}`,
    ],
    facts: [
      ["Without scaling", scaled ? `${brief(turn.plain_angles[d])} rad` : null],
      ["A full turn", `every ${shortened(around)} tokens`],
      ["Speed", plainSpeed(turning, d)],
      ["From", "computed from the place: it lies in no file"],
    ],
    words: "Nothing is added to the row. Cos and sin are in the model\u2019s dtype, as the attention gets them.",
  };
}

function plainSpeed(turning, d) {
  return `theta^(${MINUS}2\u00b7${d}/${2 * turning.pairs}) = ${brief(turning.plain_frequencies[d])}`;
}

function gradientOf(place) {
  return current.trace.backward.rows.find((row) => row.id === place.id);
}

function explainGradient(place) {
  const { d, field } = place;
  const row = gradientOf(place);
  const title = indexed("grad E", row.id, d);
  const guarded = "The padding row is guarded: nothing reaches it.";
  const facts = [exactly(row[field][d]), ...rowOrigin(row.id, d)];
  if (field === "lookup") {
    const words = row.is_padding ? guarded : `The sum over ${counted(row.count, "lookup")} of this id.`;
    return { title, formula: [`by lookup: ${brief(row.lookup[d])}`], facts, words };
  }
  if (field === "head") {
    const learns = "The same row is the head\u2019s row for this token, so it learns from every guess.";
    const words = row.is_padding ? guarded : learns;
    return { title, formula: [`by the tied head: ${brief(row.head[d])}`], facts, words };
  }
  return { title, facts, ...sumFormula(title, [["lookup", row.lookup[d]], ["head", row.head[d]]], row.total[d]) };
}

Object.assign(EXPLANATIONS, {
  before(place) {
    const { b, t, d, s } = place;
    const cell = cellAt(place);
    const row = indexed("rows", b, t, d);
    const name = s === 0 ? row : `${indexed("x", b, t, d)} before the ${current.trace.stages[s].name}`;
    const told = wayFormula(cell, d, { name, start: s === 0 ? entry(cell, d) : row, count: s });
    return { title: name, ...told, facts: [exactly(beforeStage(cell, s)[d]), ...originFacts(cell, d)] };
  },

  added(place) {
    const { d, s } = place;
    const cell = cellAt(place);
    const stage = current.trace.stages[s];
    const value = cell.stages[s].added[d];
    const isPosition = stage.name === "position";
    const title = addedName(cell, s, d);
    return {
      title,
      formula: [`${title} = ${brief(value)}`],
      facts: [exactly(value), ["Position", isPosition ? String(cell.position) : null], ...addedOrigin(cell, s, d)],
      words: isPosition ? "It depends on the place alone: any token here gets this vector." : `${upper(stage.note)}.`,
    };
  },

  after(place) {
    const { b, t, d, s } = place;
    const cell = cellAt(place);
    const stage = current.trace.stages[s];
    const { added, after } = cell.stages[s];
    const before = beforeStage(cell, s)[d];
    const title = indexed("x", b, t, d);
    const from = s === 0 ? entry(cell, d) : `after ${current.trace.stages[s - 1].name}`;
    const told = added ? sumFormula(title, [[from, before], [addedName(cell, s, d), added[d]]], after[d]) : {
      formula: [`${title} = ${stage.name}(${from})`, `${brief(before)} ${ARROW} ${brief(after[d])}`],
      words: upper(stage.note) + ".",
    };
    return { title, ...told, facts: [exactly(after[d]), ...originFacts(cell, d)] };
  },

  hidden(place) {
    const cell = cellAt(place);
    const title = indexed("hidden", place.b, place.t, place.d);
    const count = cell.stages.length;
    return {
      title,
      words: count === 0 ? "Nothing was done to the row on the way." : null,
      ...wayFormula(cell, place.d, { name: title, start: entry(cell, place.d), count }),
      facts: [exactly(cell.hidden[place.d]), ["Token", code(cut(nameOf(cell), 60))], ...originFacts(cell, place.d)],
    };
  },

  angles: explainTurn,
  cos: explainTurn,
  sin: explainTurn,

  speed({ d, s }) {
    const turning = current.trace.positions.turnings[s];
    const speed = brief(turning.frequencies[d]);
    const scaled = turning.frequencies[d] !== turning.plain_frequencies[d];
    return {
      title: `speed of pair ${d}`,
      formula: [`${plainSpeed(turning, d)} rad a token`, ...(scaled ? [`scaled: ${speed} rad a token`] : [])],
      facts: [
        exactly(turning.frequencies[d]), ["Theta", digits(brief(turning.theta))],
        ["Scaling", turning.scaling && code(turning.scaling)],
        ["From", "computed from theta: it lies in no file"],
      ],
    };
  },

  mask(place) {
    const { mask } = cellAt(place);
    const title = indexed("mask", place.b, place.t);
    const words = mask ? "A token of the text." : "Padding: it only fills up to the length of the batch.";
    return { title, formula: [`${title} = ${mask}`], words };
  },

  padding(place) {
    const { padding } = current.trace;
    const title = indexed("E", padding.id, place.d);
    return {
      title,
      formula: [`${title} = ${brief(padding.row[place.d])}`],
      facts: [exactly(padding.row[place.d]), ...rowOrigin(padding.id, place.d)],
      code: rowCode(padding.id),
    };
  },

  lookup: explainGradient,
  head: explainGradient,
  total: explainGradient,

  norm(place) {
    const row = gradientOf(place);
    return {
      title: `length of the gradient of row ${row.id}`,
      formula: [`\u221a(sum of squares) = ${brief(row.norm)}`],
      facts: [exactly(row.norm), ...rowOrigin(row.id, null)],
      words: `Over all ${grouped(current.trace.table.shape[1])} channels, not only those shown.`,
    };
  },

  gradient(place) {
    const row = gradientOf(place);
    const places = row.places.slice(0, 12).map(([b, t]) => shapeOf([b, t])).join(" ");
    return {
      title: `row ${row.id}`,
      formula: [`looked up ${counted(row.count, "time")}`],
      facts: [["Text, token", places + (row.count > 12 ? " " + DOTS : "")], ...rowOrigin(row.id, null)],
    };
  },

  unguarded(place) {
    const { backward, padding } = current.trace;
    const value = backward.padding_without_guard[place.d];
    return {
      title: indexed("grad E", padding.id, place.d),
      formula: [`without the guard: ${brief(value)}`, "with it: 0"],
      facts: [exactly(value), ...rowOrigin(padding.id, place.d)],
      code: `E.grad[${padding.id}]  # of F.embedding(ids, E), without padding_idx=${padding.id}`,
    };
  },

  loss() {
    const { backward } = current.trace;
    return { title: "loss", formula: [`loss = ${brief(backward.value)}`], words: upper(backward.note) + "." };
  },
});

// The numbers of steps 6 to 8 explain themselves: positions, stages, hidden states, gradients.

// What a stage adds, by name: a vector of the position, or one of the segment.
function addedName(cell, s, d) {
  return current.trace.stages[s].name === "position" ? indexed("P", cell.position, d) : indexed("S", 0, d);
}

// A hidden value as its whole way from the row: a sum where every stage adds, else stage by stage.
function hiddenFormula(cell, d, name) {
  const { stages } = current.trace;
  const value = cell.hidden[d];
  if (stages.length === 0) {
    const words = "Nothing was done to the row on the way.";
    return { formula: [`${name} = ${entry(cell, d)}`, `= ${brief(value)}`], words };
  }
  if (cell.stages.every((stage) => stage.added)) {
    const added = cell.stages.map((stage, s) => [addedName(cell, s, d), stage.added[d]]);
    return sumFormula(name, [[entry(cell, d), cell.row[d]], ...added], value);
  }
  let term = entry(cell, d);
  const lines = [`${term} = ${brief(cell.row[d])}`];
  for (const [s, { added, after }] of cell.stages.entries()) {
    const stage = stages[s].name;
    term = added ? `${term} + ${addedName(cell, s, d)}` : `${stage}(${term})`;
    lines.push(added ? `+ ${brief(added[d])} (${stage}) = ${brief(after[d])}` : `${stage}: ${brief(after[d])}`);
  }
  const others = stages.filter((_, s) => !cell.stages[s].added).map((stage) => stage.note);
  return { formula: [`${name} = ${term}`, ...lines], words: upper(listed(others)) + "." };
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
      ["Speed", `theta^(${MINUS}2\u00b7${d}/${2 * turning.pairs}) = ${brief(turning.plain_frequencies[d])}`],
    ],
    words: "Nothing is added to the row. Cos and sin are in the model\u2019s dtype, as the attention gets them.",
  };
}

function gradientOf(place) {
  return current.trace.backward.rows.find((row) => row.id === place.id);
}

function explainGradient(place) {
  const { d, field } = place;
  const row = gradientOf(place);
  const title = indexed("grad E", row.id, d);
  const guarded = "The padding row is guarded: nothing reaches it.";
  if (field === "lookup") {
    const words = row.is_padding ? guarded : `The sum over ${counted(row.count, "lookup")} of this id.`;
    return { title, formula: [`by lookup: ${brief(row.lookup[d])}`], words };
  }
  if (field === "head") {
    const learns = "The same row is the head\u2019s row for this token, so it learns from every guess.";
    return { title, formula: [`by the tied head: ${brief(row.head[d])}`], words: row.is_padding ? guarded : learns };
  }
  return { title, ...sumFormula(title, [["lookup", row.lookup[d]], ["head", row.head[d]]], row.total[d]) };
}

Object.assign(EXPLANATIONS, {
  before(place) {
    const { b, t, d, s } = place;
    const cell = cellAt(place);
    const value = brief(beforeStage(cell, s)[d]);
    const title = indexed("rows", b, t, d);
    const formula = s === 0 ? [`${title} = ${entry(cell, d)}`, `= ${value}`]
      : [`after ${current.trace.stages[s - 1].name}: ${value}`];
    return { title, formula, facts: originFacts(cell, d) };
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
      facts: [exactly(value), ["Position", isPosition ? String(cell.position) : null], ["Channel", String(d)]],
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
    return {
      title,
      ...hiddenFormula(cell, place.d, title),
      facts: [exactly(cell.hidden[place.d]), ["Token", code(cut(nameOf(cell), 60))], ...originFacts(cell, place.d)],
    };
  },

  angles: explainTurn,
  cos: explainTurn,
  sin: explainTurn,

  mask(place) {
    const { mask } = cellAt(place);
    const title = indexed("mask", place.b, place.t);
    const words = mask ? "A token of the text." : "Padding: it only fills up to the length of the batch.";
    return { title, formula: [`${title} = ${mask}`], words };
  },

  padding(place) {
    const { padding } = current.trace;
    const title = indexed("E", padding.id, place.d);
    return { title, formula: [`${title} = ${brief(padding.row[place.d])}`] };
  },

  lookup: explainGradient,
  head: explainGradient,
  total: explainGradient,

  norm(place) {
    const row = gradientOf(place);
    return {
      title: `length of the gradient of row ${row.id}`,
      formula: [`\u221a(sum of squares) = ${brief(row.norm)}`],
      words: `Over all ${grouped(current.trace.table.shape[1])} channels, not only those shown.`,
    };
  },

  gradient(place) {
    const row = gradientOf(place);
    const places = row.places.slice(0, 12).map(([b, t]) => shapeOf([b, t])).join(" ");
    return {
      title: `row ${row.id}`,
      formula: [`looked up ${counted(row.count, "time")}`],
      facts: [["Text, token", places + (row.count > 12 ? " " + DOTS : "")]],
    };
  },

  unguarded(place) {
    const { backward, padding } = current.trace;
    return {
      title: indexed("grad E", padding.id, place.d),
      formula: [`without the guard: ${brief(backward.padding_without_guard[place.d])}`, "with it: 0"],
    };
  },

  loss() {
    const { backward } = current.trace;
    return { title: "loss", formula: [`loss = ${brief(backward.value)}`], words: upper(backward.note) + "." };
  },
});

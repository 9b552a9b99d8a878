// Explanations of the numbers in steps 6 to 8: positions, stages, hidden states, gradients.

// The name of the vector that a stage adds: P for positions, S for segments.
function addedName(token, s, d) {
  const row = token.stages[s].row;
  if (current.trace.stages[s].name === "position") return indexed("P", row ?? token.position, d);
  return indexed("S", row ?? 0, d);
}

// The formula of a value after the first `count` stages: one sum if every stage adds, otherwise stage by stage.
function stagesFormula(token, d, { name, start, count }) {
  const applied = token.stages.slice(0, count);
  if (count === 0) return { formula: [`${name} = ${start}`, `= ${brief(at(token.row, d))}`] };
  if (applied.every((stage) => stage.added)) {
    const added = applied.map((stage, s) => [addedName(token, s, d), at(stage.added, d)]);
    return sumFormula(name, [[start, at(token.row, d)], ...added], at(applied[count - 1].output, d));
  }
  let term = start;
  const lines = [`${term} = ${brief(at(token.row, d))}`];
  for (const [s, { added, output }] of applied.entries()) {
    const stage = current.trace.stages[s].name;
    term = added ? `${term} + ${addedName(token, s, d)}` : `${stage}(${term})`;
    lines.push(added ? `+ ${brief(at(added, d))} (${stage}) = ${brief(at(output, d))}` : `${stage}: ${brief(at(output, d))}`);
  }
  const others = current.trace.stages.filter((_, s) => applied[s] && !applied[s].added).map((stage) => stage.note);
  return { formula: [`${name} = ${term}`, ...lines], words: upper(listed(others)) + "." };
}

// Where the vector added by a stage is stored, if it is a table row.
function addedOrigin(token, s, d) {
  const { table } = current.trace.stages[s];
  const { row, offset } = token.stages[s];
  if (!isNothing(table) && !isNothing(row)) return rowFacts(table, row, d, offset);
  const isComputed = current.trace.positions.scheme === "sinusoidal";
  const made = isComputed ? "computed from the position" : "initialized for this walk";
  return [["Channel", String(d)], ["Source", `${made}, not stored in a file`]];
}

function explainRotation(cell) {
  const { d, s, t } = cell;
  const rotation = tokenAt(cell).rotations[s];
  const rotary = current.trace.positions.rotary[s];
  const factor = rotary.attention_factor === 1 ? "" : `${brief(rotary.attention_factor)} ${TIMES} `;
  const scaled = rotation.angles[d] !== rotation.unscaled_angles[d];
  const around = (2 * Math.PI) / toNumber(rotary.frequencies[d]);
  return {
    title: `angle of token ${t}, pair ${d}`,
    formula: [
      `${t} ${TIMES} ${brief(rotary.frequencies[d])} = ${brief(rotation.angles[d])} rad`,
      `${factor}cos = ${brief(rotation.cos[d])}`,
      `${factor}sin = ${brief(rotation.sin[d])}`,
    ],
    facts: [
      ["Without scaling", scaled ? `${brief(rotation.unscaled_angles[d])} rad` : null],
      ["Period", `${shortened(around)} positions`],
      ["Frequency", unscaledFrequency(rotary, d)],
      ["Source", "computed from the position, not stored in a file"],
    ],
    words: "RoPE adds nothing to the row. Attention receives cos and sin in the model\u2019s dtype.",
  };
}

function unscaledFrequency(rotary, d) {
  return `theta^(${MINUS}2\u00b7${d}/${2 * rotary.n_pairs}) = ${brief(rotary.unscaled_frequencies[d])}`;
}

function gradientOf(cell) {
  return current.trace.backward.rows.find((row) => row.id === cell.id);
}

function explainGradient(cell) {
  const { d, field } = cell;
  const row = gradientOf(cell);
  const title = indexed("grad E", row.id, d);
  const masked = "The padding row receives no gradient.";
  const facts = [exactly(at(row[field], d)), ...rowOrigin(row.id, d)];
  if (field === "lookup") {
    const words = row.is_padding ? masked : `Summed over ${counted(row.count, "lookup")} of this id.`;
    return { title, formula: [`through the lookup: ${brief(at(row.lookup, d))}`], facts, words };
  }
  if (field === "head") {
    const tied = "The head uses the same row for this token, so every prediction contributes.";
    const words = row.is_padding ? masked : tied;
    return { title, formula: [`through the tied head: ${brief(at(row.head, d))}`], facts, words };
  }
  return { title, facts, ...sumFormula(title, [["lookup", at(row.lookup, d)], ["head", at(row.head, d)]], at(row.total, d)) };
}

Object.assign(EXPLANATIONS, {
  before(cell) {
    const { b, t, d, s } = cell;
    const token = tokenAt(cell);
    const row = indexed("rows", b, t, d);
    const name = s === 0 ? row : `${indexed("x", b, t, d)} before the ${current.trace.stages[s].name}`;
    const formula = stagesFormula(token, d, { name, start: s === 0 ? entry(token, d) : row, count: s });
    return { title: name, ...formula, facts: [exactly(at(beforeStage(token, s), d)), ...originFacts(token, d)] };
  },

  added(cell) {
    const { d, s } = cell;
    const token = tokenAt(cell);
    const stage = current.trace.stages[s];
    const value = at(token.stages[s].added, d);
    const isPosition = stage.name === "position";
    const title = addedName(token, s, d);
    return {
      title,
      formula: [`${title} = ${brief(value)}`],
      facts: [exactly(value), ["Position", isPosition ? String(token.position) : null], ...addedOrigin(token, s, d)],
      words: isPosition ? "It depends only on the position: any token here gets this vector." : `${upper(stage.note)}.`,
    };
  },

  output(cell) {
    const { b, t, d, s } = cell;
    const token = tokenAt(cell);
    const stage = current.trace.stages[s];
    const { added, output } = token.stages[s];
    const before = at(beforeStage(token, s), d);
    const title = indexed("x", b, t, d);
    const from = s === 0 ? entry(token, d) : `after ${current.trace.stages[s - 1].name}`;
    const formula = added ? sumFormula(title, [[from, before], [addedName(token, s, d), at(added, d)]], at(output, d)) : {
      formula: [`${title} = ${stage.name}(${from})`, `${brief(before)} ${ARROW} ${brief(at(output, d))}`],
      words: upper(stage.note) + ".",
    };
    return { title, ...formula, facts: [exactly(at(output, d)), ...originFacts(token, d)] };
  },

  hidden(cell) {
    const token = tokenAt(cell);
    const title = indexed("hidden", cell.b, cell.t, cell.d);
    const count = token.stages.length;
    return {
      title,
      words: count === 0 ? "The layer has no further stages." : null,
      ...stagesFormula(token, cell.d, { name: title, start: entry(token, cell.d), count }),
      facts: [exactly(at(token.hidden, cell.d)), ["Token", code(cut(nameOf(token), 60))], ...originFacts(token, cell.d)],
    };
  },

  angles: explainRotation,
  cos: explainRotation,
  sin: explainRotation,

  frequency({ d, s }) {
    const rotary = current.trace.positions.rotary[s];
    const frequency = brief(rotary.frequencies[d]);
    const scaled = rotary.frequencies[d] !== rotary.unscaled_frequencies[d];
    return {
      title: `frequency of pair ${d}`,
      formula: [`${unscaledFrequency(rotary, d)} rad per position`,
        ...(scaled ? [`scaled: ${frequency} rad per position`] : [])],
      facts: [
        exactly(rotary.frequencies[d]), ["Theta", digits(brief(rotary.theta))],
        ["Scaling", rotary.scaling && code(rotary.scaling)],
        ["Source", "computed from theta, not stored in a file"],
      ],
    };
  },

  mask(cell) {
    const { mask } = tokenAt(cell);
    const title = indexed("mask", cell.b, cell.t);
    const words = mask ? "A token in the text." : "Padding: it fills the text up to the length of the batch.";
    return { title, formula: [`${title} = ${mask}`], words };
  },

  padding(cell) {
    const { padding } = current.trace;
    const title = indexed("E", padding.id, cell.d);
    return {
      title,
      formula: [`${title} = ${brief(at(padding.row, cell.d))}`],
      facts: [exactly(at(padding.row, cell.d)), ...rowOrigin(padding.id, cell.d)],
      code: rowCode(padding.id),
    };
  },

  lookup: explainGradient,
  head: explainGradient,
  total: explainGradient,

  norm(cell) {
    const row = gradientOf(cell);
    return {
      title: `norm of the gradient of row ${row.id}`,
      formula: [`\u221a(sum of squares) = ${brief(row.norm)}`],
      facts: [exactly(row.norm), ...rowOrigin(row.id, null)],
      words: `Computed over all ${grouped(current.trace.table.shape[1])} channels, not only those shown.`,
    };
  },

  gradient(cell) {
    const row = gradientOf(cell);
    const occurrences = row.occurrences.slice(0, 12).map(([b, t]) => shapeOf([b, t])).join(" ");
    return {
      title: `row ${row.id}`,
      formula: [`looked up ${counted(row.count, "time")}`],
      facts: [["Text, token", occurrences + (row.count > 12 ? " " + DOTS : "")], ...rowOrigin(row.id, null)],
    };
  },

  unmasked(cell) {
    const { backward, padding } = current.trace;
    const value = at(backward.unmasked_padding_gradient, cell.d);
    return {
      title: indexed("grad E", padding.id, cell.d),
      formula: [`without padding_idx: ${brief(value)}`, "with it: 0"],
      facts: [exactly(value), ...rowOrigin(padding.id, cell.d)],
      code: `E.grad[${padding.id}]  # for F.embedding(ids, E), without padding_idx=${padding.id}`,
    };
  },

  slope({ s }) {
    const slope = current.trace.positions.relative.slopes[s];
    return { title: `slope of head ${s}`, formula: [`= ${brief(slope)}`], facts: [exactly(slope)],
      words: "Computed from the number of heads, not stored in a file." };
  },

  bucket({ id }) {
    const { columns, rows, tensor, offsets } = current.trace.positions.relative;
    return {
      title: `distance ${signed(String(columns[id]))}`,
      formula: [`row ${grouped(rows[id])} of the table`],
      facts: [["Tensor", tensor ? code(tensor) : null], ["Row offset", offsets.length ? digits(grouped(offsets[id])) : null]],
    };
  },

  bias({ s, id }) {
    const { columns, rows, slopes, offsets, bias, tensor } = current.trace.positions.relative;
    const value = bias[s][id], column = signed(String(columns[id]));
    const isSlope = slopes.length > 0;
    return {
      title: `bias of head ${s} at ${column}`,
      formula: [isSlope ? `${brief(slopes[s])} ${TIMES} ${column}` : `row ${grouped(rows[id])}, head ${s}`, `= ${brief(value)}`],
      facts: [exactly(value), ["Tensor", tensor ? code(tensor) : null],
        ["Row offset", offsets.length ? digits(grouped(offsets[id])) : null]],
      words: "Attention adds it to its scores; the rows are unchanged.",
    };
  },

  perLayer(cell) {
    const { b, s } = cell, t = cell.t - (current.trace.first_token ?? 0);
    const { tensor, layers, width, offsets, row_bytes: size, norms, vectors } = current.trace.per_layer;
    const whole = !isNothing(size) && size % layers === 0;
    return {
      title: `token ${cell.t}, block ${s}`,
      formula: [`norm of ${counted(width, "channel")} = ${brief(norms[b][t][s])}`,
        `first channels: ${vectors[b][t][s].map(shortened).join(", ")}`],
      facts: [
        ["Tensor", tensor ? code(tensor) : null],
        ["Row", String(tokenAt(cell).id)],
        [whole ? "Byte offset" : "Row offset",
          isNothing(offsets) ? null : digits(grouped(offsets[b][t] + (whole ? (size / layers) * s : 0)))],
      ],
      code: "layer.per_layer(ids)",
    };
  },

  value(cell) {
    const { b, d } = cell, t = cell.t - (current.trace.first_token ?? 0);
    const { tensor, width, offsets, vectors } = current.trace.value_embeddings;
    const value = at(vectors[b][t], d);
    return {
      title: `value embedding of token ${cell.t}, channel ${d}`,
      formula: [`= ${brief(value)}`],
      facts: [exactly(value), ["Tensor", tensor ? code(tensor) : null], ["Row", String(tokenAt(cell).id)],
        ["Channel", indexIn(d, width)],
        ["Row offset", isNothing(offsets) ? null : digits(grouped(offsets[b][t]))]],
      code: "layer.value_embeddings(ids)",
    };
  },

  loss() {
    const { backward } = current.trace;
    return { title: "loss", formula: [`loss = ${brief(backward.loss)}`], words: upper(backward.note) + "." };
  },
});

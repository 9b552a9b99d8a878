// Every kind of number explains itself: {title, formula lines, facts, words, drawing}. Steps 1 to 5, and shared parts.

const EXPLANATIONS = {};

function cellAt(place) {
  return current.trace.texts[place.b].cells[place.t];
}

function indexed(name, ...places) {
  return `${name}[${places.join(",")}]`;
}

function entry(cell, d) {
  return cell.id === null ? `inputs_embeds[${DOTS},${d}]` : indexed("E", cell.id, d);
}

function exactly(value) {
  return ["Exactly", digits(exact(value))];
}

// Where in which file a value of a row lies.
function originFacts(cell, d) {
  if (cell.id === null) return [["From", "a vector that came in from outside"]];
  return rowFacts(current.trace.table, cell.id, d, cell.offset);
}

// Of any row of the table, looked up or not.
function rowOrigin(id, d) {
  const { table } = current.trace;
  return rowFacts(table, id, d, table.offset + id * table.row_bytes);
}

// `d` is null where the row is meant as a whole.
function rowFacts(table, id, d, offset) {
  return [
    ["Row", `${grouped(id)} of ${grouped(table.shape[0])}`],
    ["Channel", d === null ? null : `${d} of ${grouped(table.shape[1])}`],
    ["Tensor", code(table.name)],
    byteFact(table, offset, d),
    ["File", fileOf(table)],
  ];
}

function byteFact({ itemsize }, offset, d) {
  if (isNothing(offset)) return ["Byte offset", null];
  const label = itemsize === null || d === null ? "Row\u2019s first byte" : "Byte offset";
  return [label, make("span", { class: "number", id: "byte-offset" }, grouped(offset + (d ?? 0) * (itemsize ?? 0)))];
}

// The line that looks up one row by itself.
function rowCode(id) {
  return isNothing(id) ? undefined : `E[${id}]`;
}

// name = a + b, with the numbers below; says so where the sum was rounded to the table's dtype.
function sumFormula(name, terms, result) {
  const sum = terms.reduce((total, [, value]) => total + toNumber(value), 0);
  const rounded = Math.abs(sum - toNumber(result)) > 1e-6 * Math.max(1e-6, Math.abs(sum));
  return {
    formula: [
      `${name} = ${terms.map(([term]) => term).join(" + ")}`,
      `= ${terms.map(([, value]) => brief(value)).join(" + ")} = ${brief(result)}`,
    ],
    words: rounded ? `Rounded to ${current.trace.table.row_dtype} on the way.` : null,
  };
}

function explainRow(place) {
  const cell = cellAt(place);
  const title = indexed("rows", place.b, place.t, place.d);
  return {
    title,
    formula: [`${title} = ${entry(cell, place.d)}`, `= ${brief(cell.row[place.d])}`],
    facts: [exactly(cell.row[place.d]), ["Token", code(cut(nameOf(cell), 60))], ...originFacts(cell, place.d)],
  };
}

// The stored bits of one value, parted into sign, exponent and fraction.
const LAYOUTS = { bfloat16: [1, 8, 7], float16: [1, 5, 10], float32: [1, 8, 23], float64: [1, 11, 52] };
const PARTS = ["sign", "exponent", "fraction"];

function bitsDrawing(hex) {
  const { table } = current.trace;
  const layout = isPlainDtype(table) ? LAYOUTS[table.row_dtype] : undefined;
  if (!layout) return null;
  const bits = Array.from(hex, (digit) => parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
  const starts = [0, layout[0], layout[0] + layout[1], bits.length];
  const parts = PARTS.map((part, index) => span(`bit-part bit-${part}`, bits.slice(starts[index], starts[index + 1])));
  return make("figure", { class: "bit-figure" }, make("p", { class: "mono" }, parts),
    make("figcaption", {}, PARTS.map((part) => span(`bit-${part}`, part))));
}

Object.assign(EXPLANATIONS, {
  character(place) {
    const character = current.trace.texts[place.b].characters[place.t];
    return {
      title: `character ${place.t}`,
      formula: [`${visible(character.text)} = ${codePoint(character.text)}`, `${ARROW} ${hexPairs(character.bytes)}`],
      facts: [
        ["Bytes", counted(character.bytes.length / 2, "byte")],
        ["In decimal", Array.from(bytesOf(character.bytes)).join(" ")],
      ],
    };
  },

  split(place) {
    const split = current.trace.texts[place.b].splits[place.t];
    const [from, to] = split.span;
    return {
      title: `stretch ${place.t}`,
      formula: [`bytes ${from} to ${to}`, `${to} ${MINUS} ${from} = ${to - from}`],
      facts: [
        ["Text", code(cut(readable(split.bytes), 200))],
        ["Bytes", code(cut(hexPairs(split.bytes), 120))],
        ["Tokens", counted(split.cells[1] - split.cells[0], "token")],
        ["Merges", split.merges && String(split.merges.length)],
      ],
    };
  },

  id(place) {
    const cell = cellAt(place);
    return {
      title: indexed("ids", place.b, place.t),
      formula: [`${indexed("ids", place.b, place.t)} = ${cell.id}`],
      facts: [
        ["Token", code(cut(visible(cell.token ?? cell.label), 200))],
        ["Bytes", cell.bytes ? code(cut(hexPairs(cell.bytes), 120)) : "none of the text"],
        ["Span", cell.span && `bytes ${cell.span[0]} to ${cell.span[1]}`],
        ["Kind", cell.mask === 0 ? "padding" : cell.special ? "special" : null],
        ...originFacts(cell, null),
      ],
    };
  },

  token(place) {
    const cell = cellAt(place);
    return {
      title: `token ${place.t}`,
      formula: [cell.id === null ? nameOf(cell) : `${indexed("ids", place.b, place.t)} = ${cell.id}`],
      facts: [
        ["Text", code(cut(nameOf(cell), 200))],
        ["Position", String(cell.position)],
        ["Mask", String(cell.mask)],
      ],
      code: place.step === 4 ? rowCode(cell.id) : undefined,
      words: cell.id === null ? null : "Press it for its row, its neighbors and its bytes.",
    };
  },

  offset(place) {
    const cell = cellAt(place);
    const { table } = current.trace;
    const product = `${grouped(cell.id)} ${TIMES} ${grouped(table.row_bytes)}`;
    return {
      title: `row ${cell.id}`,
      formula: [
        `offset = first byte + id ${TIMES} bytes a row`,
        `= ${grouped(table.offset)} + ${product} = ${grouped(cell.offset)}`,
      ],
      code: rowCode(cell.id),
      facts: [
        ...originFacts(cell, null),
        ["First bytes", table.itemsize === null ? code(cell.bits.join(" ")) : null],
      ],
    };
  },

  stored(place) {
    const cell = cellAt(place);
    const told = { ...explainRow(place), code: rowCode(cell.id) };
    const bits = cell.bits[place.d];
    if (current.trace.table.itemsize === null || bits === undefined) return told;
    const title = entry(cell, place.d);
    const formula = [`${title} = ${current.trace.table.dtype} 0x${bits}`, `= ${brief(cell.row[place.d])}`];
    return { ...told, title, formula, drawing: bitsDrawing(bits) };
  },

  row: explainRow,
});

// Explanations of the numbers in steps 1 to 5, as {title, formula, facts, words, drawing}, and shared helpers.

const EXPLANATIONS = {};

function tokenAt(cell) {
  return current.trace.texts[cell.b].tokens[cell.t - (current.trace.first_token ?? 0)];
}

// The value of a channel in a vector that starts at the first channel shown.
function at(vector, d) {
  return vector[d - (current.trace.first_channel ?? 0)];
}

function indexed(name, ...indices) {
  return `${name}[${indices.join(",")}]`;
}

function entry(token, d) {
  return token.id === null ? `inputs_embeds[${DOTS},${d}]` : indexed("E", token.id, d);
}

function exactly(value) {
  return ["Exact", digits(signed(exact(value)))];
}

// Rows and channels are counted from 0.
function indexIn(index, count) {
  return `${grouped(index)} (of 0 to ${grouped(count - 1)})`;
}

// Where a value of a row is stored.
function originFacts(token, d) {
  if (token.id === null) return [["Source", "inputs_embeds"]];
  return rowFacts(current.trace.table, token.id, d, token.offset);
}

// Where a value of any table row is stored, looked up or not.
function rowOrigin(id, d) {
  const { table } = current.trace;
  return rowFacts(table, id, d, table.offset + id * table.row_bytes);
}

// `d` is null for the whole row.
function rowFacts(table, id, d, offset) {
  return [
    ["Row", indexIn(id, table.shape[0])],
    ["Channel", d === null ? null : indexIn(d, table.shape[1])],
    ["Tensor", code(table.name)],
    byteFact(table, offset, d),
    ["File", fileOf(table)],
  ];
}

function byteFact({ itemsize }, offset, d) {
  if (isNothing(offset)) return ["Byte offset", null];
  const label = itemsize === null || d === null ? "Row offset" : "Byte offset";
  return [label, make("span", { class: "number", id: "byte-offset" }, grouped(offset + (d ?? 0) * (itemsize ?? 0)))];
}

// The code that looks up a single row.
function rowCode(id) {
  return isNothing(id) ? undefined : `E[${id}]`;
}

// name = a + b, with the numbers below, and a note if the sum was rounded to the table's dtype.
function sumFormula(name, terms, result) {
  const sum = terms.reduce((total, [, value]) => total + toNumber(value), 0);
  const rounded = Math.abs(sum - toNumber(result)) > 1e-6 * Math.max(1e-6, Math.abs(sum));
  return {
    formula: [
      `${name} = ${terms.map(([term]) => term).join(" + ")}`,
      `= ${terms.map(([, value]) => brief(value)).join(" + ")} = ${brief(result)}`,
    ],
    words: rounded ? `Rounded to ${current.trace.table.row_dtype}.` : null,
  };
}

function explainRow(cell) {
  const token = tokenAt(cell);
  const title = indexed("rows", cell.b, cell.t, cell.d);
  return {
    title,
    formula: [`${title} = ${entry(token, cell.d)}`, `= ${brief(at(token.row, cell.d))}`],
    facts: [exactly(at(token.row, cell.d)), ["Token", code(cut(nameOf(token), 60))], ...originFacts(token, cell.d)],
  };
}

// The bits of a stored value, divided into sign, exponent, and fraction.
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
  character(cell) {
    const character = current.trace.texts[cell.b].characters[cell.t];
    return {
      title: `character ${cell.t}`,
      formula: [`${visible(character.text)} = ${codePoint(character.text)}`, `${ARROW} ${hexPairs(character.bytes)}`],
      facts: [
        ["Bytes", counted(character.bytes.length / 2, "byte")],
        ["In decimal", Array.from(bytesOf(character.bytes)).join(" ")],
      ],
    };
  },

  preToken(cell) {
    const preToken = current.trace.texts[cell.b].pre_tokens[cell.t];
    const [from, to] = preToken.span;
    return {
      title: `pre-token ${cell.t}`,
      formula: [`bytes ${from} to ${to}`, `${to} ${MINUS} ${from} = ${to - from}`],
      facts: [
        ["Text", code(cut(readable(preToken.bytes), 200))],
        ["Bytes", code(cut(hexPairs(preToken.bytes), 120))],
        ["Tokens", counted(preToken.tokens[1] - preToken.tokens[0], "token")],
        ["Merges", preToken.merges && String(preToken.merges.length)],
      ],
    };
  },

  id(cell) {
    const token = tokenAt(cell);
    return {
      title: indexed("ids", cell.b, cell.t),
      formula: [`${indexed("ids", cell.b, cell.t)} = ${token.id}`],
      facts: [
        ["Token", code(cut(visible(token.token ?? token.label), 200))],
        ["Bytes", token.bytes ? code(cut(hexPairs(token.bytes), 120)) : "none"],
        ["Span", token.span && `bytes ${token.span[0]} to ${token.span[1]}`],
        ["Kind", token.mask === 0 ? "padding" : token.special ? "special" : null],
        ...originFacts(token, null),
      ],
    };
  },

  token(cell) {
    const token = tokenAt(cell);
    return {
      title: `token ${cell.t}`,
      formula: [token.id === null ? nameOf(token) : `${indexed("ids", cell.b, cell.t)} = ${token.id}`],
      facts: [
        ["Text", code(cut(nameOf(token), 200))],
        ["Position", String(token.position)],
        ["Mask", String(token.mask)],
      ],
      code: cell.step === 4 ? rowCode(token.id) : undefined,
      words: token.id === null ? null : "Select it to see its row, its neighbors, and its bytes.",
    };
  },

  offset(cell) {
    const token = tokenAt(cell);
    const { table } = current.trace;
    const product = `${grouped(token.id)} ${TIMES} ${grouped(table.row_bytes)}`;
    return {
      title: `row ${token.id}`,
      formula: [
        `offset = table offset + id ${TIMES} row size`,
        `= ${grouped(table.offset)} + ${product} = ${grouped(token.offset)}`,
      ],
      code: rowCode(token.id),
      facts: [
        ...originFacts(token, null),
        ["First bytes", table.itemsize === null ? code(token.stored_hex.join(" ")) : null],
      ],
    };
  },

  stored(cell) {
    const token = tokenAt(cell);
    const explained = { ...explainRow(cell), code: rowCode(token.id) };
    const hex = at(token.stored_hex, cell.d);
    if (current.trace.table.itemsize === null || hex === undefined) return explained;
    const title = entry(token, cell.d);
    const formula = [`${title} = ${current.trace.table.dtype} 0x${hex}`, `= ${brief(at(token.row, cell.d))}`];
    return { ...explained, title, formula, drawing: bitsDrawing(hex) };
  },

  row: explainRow,
});

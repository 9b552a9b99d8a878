// Questions to answer before a step is shown, all made from the trace itself.
// kind: whole (exact), real (tolerant), shape, choice. Each tells afterwards why it is so.

function questionsFor(trace, step) {
  return QUESTIONS[step](trace).filter(Boolean);
}

function whole(ask, answer, explain) {
  return { kind: "whole", ask, answer, explain };
}

function real(ask, answer, explain) {
  return Number.isFinite(answer) && { kind: "real", ask, answer, explain };
}

function shape(ask, answer, explain) {
  return { kind: "shape", ask, answer, explain };
}

function choice(ask, options, answer, explain) {
  return { kind: "choice", ask, options, answer, explain };
}

function quoted(text) {
  return `\u201c${cut(visible(text), 24)}\u201d`;
}

const QUESTIONS = {
  1(trace) {
    const text = trace.texts[0];
    if (text.text === null) return [];
    const widest = [...text.characters].sort((a, b) => b.bytes.length - a.bytes.length)[0];
    const letter = text.characters.find((one) => /^[A-Za-z]$/.test(one.text));
    return [
      whole(`How many bytes of UTF-8 are ${quoted(text.text)}?`, text.n_bytes,
        `${counted(text.n_characters, "character")}; ASCII takes one byte each, others two to four.`),
      widest && whole(`How many bytes does ${quoted(widest.text)} take?`, widest.bytes.length / 2,
        `They are ${hexPairs(widest.bytes)}.`),
      letter && whole(`Which number is the byte of ${quoted(letter.text)}? (a is 97, A is 65)`,
        parseInt(letter.bytes, 16), `In hexadecimal ${letter.bytes}.`),
    ];
  },

  2(trace) {
    const text = trace.texts[0];
    if (text.text === null) return [];
    const first = "Does this tokenizer cut the text into stretches first?";
    if (text.splits === null) return [choice(first, ["yes", "no"], "no", "It looks at the text as a whole.")];
    const words = text.splits.map((split) => readable(split.bytes));
    const blank = text.splits.findIndex((split, index) => index > 0 && /^20./.test(split.bytes));
    return [
      whole("Into how many stretches is the text cut before any token is made?", text.n_splits,
        `They begin ${cut(words.slice(0, 4).join(" | "), 60)}.`),
      blank > 0 && choice(`To which stretch does the blank before ${quoted(words[blank].slice(1))} belong?`,
        ["to the one after it", "to the one before it", "to none"], "to the one after it",
        "The blank is kept in front of its word."),
      text.splits.length > 1 && choice("Can one token reach from one stretch into the next?", ["yes", "no"], "no",
        "Merges never cross an edge."),
    ];
  },

  3(trace) {
    const text = trace.texts[0];
    if (text.text === null || text.cells.length === 0) return [];
    const cell = text.cells.find((one) => one.mask && !one.special) ?? text.cells[0];
    const others = text.cells.map((one) => one.id).filter((id) => id !== cell.id).slice(0, 2);
    const ids = new Set([cell.id, ...others, (cell.id * 7 + 13) % trace.vocab_size]);
    const options = [...ids].sort((a, b) => a - b).map(String);
    const fewer = text.n_tokens < text.n_bytes ? "fewer" : text.n_tokens === text.n_bytes ? "as many" : "more";
    return [
      whole(`How many tokens will ${quoted(text.text)} become?`, text.n_tokens, `By ${trace.tokenizer}.`),
      choice(`Which id does ${quoted(cell.label)} get?`, options, String(cell.id),
        `Ids go from 0 to ${grouped(trace.vocab_size - 1)}; an id says nothing of meaning.`),
      choice("Are there fewer tokens than bytes?", ["fewer", "as many", "more"], fewer,
        `${counted(text.n_tokens, "token")}, ${counted(text.n_bytes, "byte")}.`),
    ];
  },

  4(trace) {
    const { table } = trace;
    const cell = trace.texts[0].cells[0];
    if (!cell || cell.id === null) return [];
    const [rows, width] = table.shape;
    const size = grouped(table.row_bytes);
    return [
      table.itemsize !== null && whole(
        `A row has ${grouped(width)} values of ${table.dtype}, ${counted(table.itemsize, "byte")} each. `
        + "How many bytes is one row?", table.row_bytes, `${width} ${TIMES} ${table.itemsize} = ${size}.`),
      whole(`The table begins at byte ${grouped(table.offset)}, a row is ${size} bytes. `
        + `At which byte does row ${cell.id} begin?`, cell.offset,
        `${grouped(table.offset)} + ${cell.id} ${TIMES} ${size} = ${grouped(cell.offset)}.`),
      choice("To read one row, how much of the table has to be read?",
        ["that row", "everything before it", "all of it"], "that row",
        `${size} of ${grouped(rows * table.row_bytes)} bytes.`),
    ];
  },

  5(trace) {
    const { gather } = trace;
    const seen = new Set();
    const isAgain = (cell) => cell.id !== null && (seen.has(cell.id) || !seen.add(cell.id));
    const again = trace.texts.flatMap((text) => text.cells).find(isAgain);
    const [texts, tokens, width] = gather.shape;
    return [
      shape("Which shape have the gathered rows? Batch, tokens, width.", gather.shape,
        `${counted(texts, "text")}, ${counted(tokens, "token")}, ${counted(width, "channel")}.`),
      trace.entered === "text" && choice("A one-hot matrix times the table: is it the same as looking the rows up?",
        ["the same", "something else"], gather.equal ? "the same" : "something else",
        gather.equal ? "Zeros times a row add nothing; the one picks its row." : `${upper(gather.note)}.`),
      again && choice(`${quoted(again.label)} comes more than once. Do its rows differ here?`, ["yes", "no"], "no",
        "One id, one row. What differs by place comes later, if at all."),
    ];
  },

  6(trace) {
    const { cells } = trace.texts[0];
    const cell = cells[Math.min(1, cells.length - 1)];
    if (!cell) return [];
    const s = trace.stages.findIndex((stage) => stage.name === "position");
    if (s >= 0) return addedQuestions(trace, cell, s);
    if (trace.positions.turnings.length > 0) return turnQuestions(trace, cells);
    return [choice("Without positions, do the vectors know their order?", ["yes", "no"], "no",
      "The same tokens in another order give the same vectors in another order.")];
  },

  7(trace) {
    const masked = trace.texts.reduce((sum, text) => sum + text.n_padding, 0);
    const still = trace.stages.length === 0;
    return [
      shape("Which shape have the hidden states? Batch, tokens, width.", trace.shape,
        "This is what the first block of the model gets."),
      choice("Is the hidden state of a token different from its row here?", ["different", "the same"],
        still ? "the same" : "different", still ? "Nothing was added: order comes in later, or not at all."
          : `It passed: ${listed(trace.stages.map((stage) => stage.name))}.`),
      whole("How many zeros are in the mask?", masked,
        masked ? "One for every place that only fills up." : "Nothing had to be filled up."),
    ];
  },

  8(trace) {
    const { backward, table } = trace;
    if (!backward) return [];
    const often = backward.rows.find((row) => row.count > 1 && !row.is_padding);
    const padding = backward.rows.find((row) => row.is_padding);
    const used = new Set([trace.padding.id, ...backward.rows.map((row) => row.id)]);
    const ids = Array.from({ length: Math.min(table.shape[0], used.size + 1) }, (_, id) => id);
    const unused = ids.find((id) => !used.has(id));
    const { tied } = backward;
    return [
      whole(`The table has ${grouped(table.shape[0])} rows. How many receive a gradient?`, backward.touched,
        `${upper(reachOf(backward, table))}.`),
      padding && real("What is the gradient of the padding row, in channel 0?", toNumber(padding.total[0]),
        "It is guarded: nothing reaches it."),
      often && whole(`${quoted(often.label)} stands at ${counted(often.count, "place")}. How many gradients does the `
        + "lookup add up in its row?", often.count, "One row of the table, and every place adds to it."),
      unused !== undefined && choice(`Row ${unused} is not in this text. Does it learn something?`, ["yes", "no"],
        tied ? "yes" : "no", tied ? "By way of the tied head: as a wrong guess it is pushed away."
          : "It was not looked up, and no head shares its row."),
    ];
  },
};

function addedQuestions(trace, cell, s) {
  const { added, after } = cell.stages[s];
  const [row, position, sum] = [beforeStage(cell, s)[0], added[0], after[0]].map(toNumber);
  return [
    real(`${quoted(cell.label)} has ${brief(row)} in channel 0, its position ${brief(position)}. What comes out?`, sum,
      `${brief(row)} + ${brief(position)} = ${brief(sum)}.`),
    choice("The same token at another place: is the same vector added?", ["the same", "another one"], "another one",
      "It belongs to the place, whatever token stands there."),
    choice("Does adding positions change the shape?", ["yes", "no"], "no", "Every vector keeps its width."),
  ];
}

function turnQuestions(trace, cells) {
  const turning = trace.positions.turnings[0];
  const last = cells.length - 1;
  const speed = brief(turning.frequencies[0]);
  const speeds = turning.frequencies.map(toNumber);
  const lead = speeds[0] - speeds[speeds.length - 1];
  const fastest = lead > 0 ? "the first" : lead < 0 ? "the last" : "neither";
  return [
    choice("Rotary positions: does the row change here?", ["yes", "no"], "no",
      "Nothing is added; queries and keys are turned later, in the attention."),
    real(`Pair 0 turns ${speed} rad a token. Which angle has the token at place ${last}?`,
      toNumber(cells[last].turns[0].angles[0]), `${last} ${TIMES} ${speed}.`),
    real("What is the cos at place 0?", toNumber(cells[0].turns[0].cos[0]), "The angle is 0 there, for every pair."),
    speeds.length > 1 && choice("Which of the pairs shown turns faster, the first or the last?",
      ["the first", "the last", "neither"], fastest,
      `${brief(speeds[0])} rad a token against ${brief(speeds[speeds.length - 1])}: powers of theta, `
      + `which is ${brief(turning.theta)}.`),
  ];
}

// Tolerant: blanks, thousands and every minus are fine; a real number may be rounded as far as it was written.
function judge(question, written) {
  const text = written.trim().replaceAll(MINUS, "-").replaceAll("\u2013", "-");
  if (question.kind === "choice") return text === question.answer;
  if (question.kind === "shape") {
    const sizes = (text.match(/\d+/g) ?? []).map(Number);
    return sizes.length === question.answer.length && sizes.every((size, index) => size === question.answer[index]);
  }
  const bare = text.replace(/[\s_']/g, "").replace(/,(?=\d{3}\b)/g, "").replace(",", ".");
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(bare)) return false;
  const number = Number(bare);
  if (question.kind === "whole") return number === question.answer;
  const decimals = (/\.(\d*)/.exec(bare)?.[1] ?? "").length;
  const asWritten = decimals > 0 ? 0.5001 * 10 ** -decimals : 0;
  return Math.abs(number - question.answer) <= Math.max(1e-9, 0.01 * Math.abs(question.answer), asWritten);
}

function answerWords({ kind, answer }) {
  return { shape: shapeOf, choice: String, whole: grouped, real: brief }[kind](answer);
}

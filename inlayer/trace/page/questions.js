// Questions to answer before a step is shown, generated from the trace.
// Kinds: whole (exact), real (tolerant), shape, choice. Each has an explanation to show afterwards, and may list
// mistakes: [wrong answer, what it would imply].

function questionsFor(trace, step) {
  return QUESTIONS[step](trace).filter(Boolean);
}

function whole(prompt, answer, explanation, mistakes = []) {
  return { kind: "whole", prompt, answer, explanation, mistakes };
}

function real(prompt, answer, explanation, mistakes = []) {
  return Number.isFinite(answer) && { kind: "real", prompt, answer, explanation, mistakes };
}

function shape(prompt, answer, explanation, mistakes = []) {
  return { kind: "shape", prompt, answer, explanation, mistakes };
}

function choice(prompt, options, answer, explanation, mistakes = []) {
  return { kind: "choice", prompt, options, answer, explanation, mistakes };
}

function quoted(text) {
  return `\u201c${cut(visible(text), 24)}\u201d`;
}

const QUESTIONS = {
  1(trace) {
    const text = trace.texts[0];
    if (text.text === null) return [];
    const widest = [...text.characters].sort((a, b) => b.bytes.length - a.bytes.length)[0];
    const letter = text.characters.find((character) => /^[A-Za-z]$/.test(character.text));
    return [
      whole(`How many bytes does ${quoted(text.text)} take in UTF-8?`, text.n_bytes,
        `It has ${counted(text.n_characters, "character")}; an ASCII character takes one byte, others two to four.`,
        [[text.n_characters, "That is the number of characters"], [text.n_tokens, "That is the number of tokens"]]),
      widest && whole(`How many bytes does ${quoted(widest.text)} take?`, widest.bytes.length / 2,
        `The bytes are ${hexPairs(widest.bytes)}.`),
      letter && whole(`What is the byte value of ${quoted(letter.text)}? (a is 97, A is 65)`,
        parseInt(letter.bytes, 16), `In hexadecimal it is ${letter.bytes}.`,
        [[Number(letter.bytes), "That is the value in hexadecimal"],
          [parseInt(letter.bytes, 16) ^ 32, "That is the same letter in the other case"]]),
    ];
  },

  2(trace) {
    const text = trace.texts[0];
    if (text.text === null) return [];
    const first = "Does this tokenizer divide the text into pre-tokens first?";
    if (text.pre_tokens === null) return [choice(first, ["yes", "no"], "no", "It encodes the text as a whole.")];
    const words = text.pre_tokens.map((preToken) => readable(preToken.bytes));
    const blank = text.pre_tokens.findIndex((preToken, index) => index > 0 && /^20./.test(preToken.bytes));
    return [
      whole("How many pre-tokens does the text split into?", text.n_pre_tokens,
        `The first are ${cut(words.slice(0, 4).join(" | "), 60)}.`,
        [[text.n_tokens, "That is the number of tokens"], [text.n_characters, "That is the number of characters"]]),
      blank > 0 && choice(`Which pre-token does the space before ${quoted(words[blank].slice(1))} belong to?`,
        ["the one after it", "the one before it", "none"], "the one after it",
        "The space is kept at the start of the word."),
      text.pre_tokens.length > 1 && choice("Can a token span two pre-tokens?", ["yes", "no"], "no",
        "Merges never cross a boundary."),
    ];
  },

  3(trace) {
    const text = trace.texts[0];
    if (text.text === null || text.tokens.length === 0) return [];
    const token = text.tokens.find((candidate) => candidate.mask && !candidate.special) ?? text.tokens[0];
    const others = text.tokens.map(({ id }) => id).filter((id) => id !== token.id).slice(0, 2);
    const ids = new Set([token.id, ...others, (token.id * 7 + 13) % trace.vocab_size]);
    const options = [...ids].sort((a, b) => a - b).map(String);
    const compared = text.n_tokens < text.n_bytes ? "fewer" : text.n_tokens === text.n_bytes ? "the same" : "more";
    return [
      whole(`How many tokens does ${quoted(text.text)} have?`, text.n_tokens, `Encoded by ${trace.tokenizer}.`, [
        [text.n_tokens + text.n_padding, "You counted the padding tokens"],
        [text.n_bytes, "That is the number of bytes"],
        [text.n_characters, "That is the number of characters"],
        [text.text.trim().split(/\s+/).length, "That is the number of words; a word may be several tokens"],
      ]),
      choice(`What is the id of ${quoted(token.label)}?`, options, String(token.id),
        `Ids range from 0 to ${grouped(trace.vocab_size - 1)}; the number itself has no meaning.`,
        text.tokens.map(({ id, label }) => [String(id), `That is the id of ${quoted(label)}`])),
      choice("How does the number of tokens compare with the number of bytes?", ["fewer", "the same", "more"],
        compared, `${counted(text.n_tokens, "token")}, ${counted(text.n_bytes, "byte")}.`),
    ];
  },

  4(trace) {
    const { table } = trace;
    const token = trace.texts[0].tokens[0];
    if (!token || token.id === null) return [];
    const [rows, width] = table.shape;
    const size = grouped(table.row_bytes);
    return [
      table.itemsize !== null && whole(
        `A row has ${grouped(width)} values of ${table.dtype}, ${counted(table.itemsize, "byte")} each. `
        + "How many bytes long is a row?", table.row_bytes, `${width} ${TIMES} ${table.itemsize} = ${size}.`,
        [[width, "That is the number of values; multiply by the bytes per value"],
          [table.row_bytes * 8, "That is the number of bits"]]),
      whole(`The table starts at byte ${grouped(table.offset)}, and a row is ${size} bytes long. `
        + `At which byte does row ${token.id} start?`, token.offset,
        `${grouped(table.offset)} + ${token.id} ${TIMES} ${size} = ${grouped(token.offset)}.`,
        [[token.offset - table.offset, "You left out the offset of the table"],
          [token.offset + table.row_bytes, "That is where the row ends; rows are counted from 0"],
          [token.offset - table.row_bytes, "That is where the row before it starts; rows are counted from 0"],
          [table.offset + token.id, "A row is longer than one byte: multiply the id by the row size"]]),
      choice("How much of the table has to be read to get one row?",
        ["only that row", "everything before it", "all of it"], "only that row",
        `${size} of ${grouped(rows * table.row_bytes)} bytes.`),
    ];
  },

  5(trace) {
    const { gather } = trace;
    const seen = new Set();
    const isRepeated = (token) => token.id !== null && (seen.has(token.id) || !seen.add(token.id));
    const repeated = trace.texts.flatMap((text) => text.tokens).find(isRepeated);
    const [texts, tokens, width] = gather.shape;
    return [
      shape("What is the shape of the gathered rows (batch, tokens, width)?", gather.shape,
        `${counted(texts, "text")}, ${counted(tokens, "token")}, ${counted(width, "channel")}.`),
      trace.input === "text" && choice("Does multiplying a one-hot matrix by the table give the same rows?",
        ["yes", "no"], gather.equal ? "yes" : "no",
        gather.equal ? "The zeros contribute nothing, and the 1 selects its row." : `${upper(gather.note)}.`),
      repeated && choice(`${quoted(repeated.label)} occurs more than once. Do its rows differ?`, ["yes", "no"], "no",
        "The same id always selects the same row. Positions are applied later, if at all."),
    ];
  },

  6(trace) {
    const { tokens } = trace.texts[0];
    const token = tokens[Math.min(1, tokens.length - 1)];
    if (!token) return [];
    const s = trace.stages.findIndex((stage) => stage.name === "position");
    if (s >= 0) return addedQuestions(trace, token, s);
    if (trace.positions.rotary.length > 0) return rotaryQuestions(trace, tokens);
    return [choice("Without positions, do the vectors contain information about their order?", ["yes", "no"], "no",
      "The same tokens in another order give the same vectors in another order.")];
  },

  7(trace) {
    const masked = trace.texts.reduce((sum, text) => sum + text.n_padding, 0);
    const unchanged = trace.stages.length === 0;
    return [
      shape("What is the shape of the hidden states (batch, tokens, width)?", trace.shape,
        "This is the input of the first decoder block."),
      choice("Does the hidden state of a token differ from its row here?", ["yes", "no"],
        unchanged ? "no" : "yes", unchanged ? "Nothing was added; positions are applied later, or not at all."
          : `The stages are: ${listed(trace.stages.map((stage) => stage.name))}.`),
      whole("How many zeros are in the mask?", masked,
        masked ? "One for each padding token." : "The batch has no padding.",
        [[trace.texts.reduce((sum, text) => sum + text.n_tokens, 0), "That is the number of ones: real tokens"]]),
    ];
  },

  8(trace) {
    const { backward, table } = trace;
    if (!backward) return [];
    const repeated = backward.rows.find((row) => row.count > 1 && !row.is_padding);
    const padding = backward.rows.find((row) => row.is_padding);
    const used = new Set([trace.padding.id, ...backward.rows.map((row) => row.id)]);
    const ids = Array.from({ length: Math.min(table.shape[0], used.size + 1) }, (_, id) => id);
    const unused = ids.find((id) => !used.has(id));
    const { tied } = backward;
    return [
      whole(`The table has ${grouped(table.shape[0])} rows. How many receive a gradient?`,
        backward.n_rows_with_gradient, `${upper(reachOf(backward, table))}.`,
        [[backward.n_unique_ids, tied ? "Those are the rows that were looked up; the tied head also reaches the others"
          : "That includes the padding row"],
          [table.shape[0], tied ? "That includes the padding row" : "Only rows that were looked up receive one"],
          [trace.texts.reduce((sum, text) => sum + text.n_tokens, 0), "That is the number of tokens; equal tokens "
            + "share a row"]]),
      padding && real("What is the gradient of the padding row, in channel 0?", toNumber(padding.total[0]),
        "The padding row receives no gradient."),
      repeated && whole(`${quoted(repeated.label)} occurs ${counted(repeated.count, "time")}. How many gradients `
        + "are summed into its row?", repeated.count,
        "All occurrences share one row, and each adds its gradient.",
        [[1, "There is one row, but each lookup of it adds a gradient"]]),
      unused !== undefined && choice(`Row ${unused} is not used here. Does it receive a gradient?`,
        ["yes", "no"], tied ? "yes" : "no", tied
          ? "Through the tied head, which lowers the probability of wrong tokens."
          : "It was not looked up, and no tied head uses it."),
    ];
  },
};

function addedQuestions(trace, token, s) {
  const { added, output } = token.stages[s];
  const [row, position, sum] = [beforeStage(token, s)[0], added[0], output[0]].map(toNumber);
  return [
    real(`Channel 0 of ${quoted(token.label)} is ${brief(row)}; its position adds ${brief(position)}. What is the sum?`,
      sum, `${brief(row)} + ${brief(position)} = ${brief(sum)}.`,
      [[row - position, "You subtracted the position"], [row * position, "You multiplied; positions are added"]]),
    choice("If the same token occurs at another position, is the same vector added?", ["yes", "no"], "no",
      "The vector depends on the position, not on the token."),
    choice("Does adding positions change the shape?", ["yes", "no"], "no", "Every vector keeps its width."),
  ];
}

function rotaryQuestions(trace, tokens) {
  const rotary = trace.positions.rotary[0];
  const last = tokens.length - 1;
  const frequency = brief(rotary.frequencies[0]);
  const frequencies = rotary.frequencies.map(toNumber);
  const difference = frequencies[0] - frequencies[frequencies.length - 1];
  const fastest = difference > 0 ? "the first" : difference < 0 ? "the last" : "neither";
  return [
    choice("Do rotary positions change the rows in this step?", ["yes", "no"], "no",
      "RoPE adds nothing; attention rotates queries and keys later."),
    real(`Pair 0 rotates by ${frequency} rad per position. What is the angle at position ${last}?`,
      toNumber(tokens[last].rotations[0].angles[0]), `${last} ${TIMES} ${frequency}.`,
      [[(last + 1) * frequencies[0], "Positions are counted from 0"],
        [last * frequencies[0] * 180 / Math.PI, "That is in degrees; angles are in radians"]]),
    real("What is the cosine at position 0?", toNumber(tokens[0].rotations[0].cos[0]),
      "The angle at position 0 is 0 for every pair.", [[0, "That is the sine of 0"]]),
    frequencies.length > 1 && choice("Which of the pairs shown rotates faster, the first or the last?",
      ["the first", "the last", "neither"], fastest,
      `${brief(frequencies[0])} rad per position compared with ${brief(frequencies[frequencies.length - 1])}; the `
      + `frequencies are powers of theta, ${brief(rotary.theta)}.`),
  ];
}

// Accepts spaces, thousands separators, and any minus sign; a real number may be rounded.
function isCorrect(question, written) {
  return isAnswer(question.kind, question.answer, readAnswer(question, written));
}

// A list of sizes, a number with its decimals, or the text of a choice; null if it cannot be parsed.
function readAnswer({ kind }, written) {
  const text = written.trim().replaceAll(MINUS, "-").replaceAll("\u2013", "-");
  if (kind === "choice") return text;
  if (kind === "shape") return (text.match(/\d+/g) ?? []).map(Number);
  const bare = text.replace(/[\s_']/g, "").replace(/,(?=\d{3}\b)/g, "").replace(",", ".");
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(bare)) return null;
  return { number: Number(bare), decimals: (/\.(\d*)/.exec(bare)?.[1] ?? "").length };
}

function isAnswer(kind, answer, given) {
  if (given === null) return false;
  if (kind === "choice") return given === answer;
  if (kind === "shape") return sameVector(given, answer);
  if (kind === "whole") return given.number === answer;
  const asWritten = given.decimals > 0 ? 0.5001 * 10 ** -given.decimals : 0;
  return Math.abs(given.number - answer) <= Math.max(1e-9, 0.01 * Math.abs(answer), asWritten);
}

// Why an answer is wrong if the kind of mistake can be recognized, otherwise an empty string.
function diagnose(question, written) {
  const { kind, answer, mistakes } = question;
  const given = readAnswer(question, written);
  if (given === null) return "That is not a number.";
  const known = mistakes.find(([wrong]) => isAnswer(kind, wrong, given));
  if (known) return `${known[1]}.`;
  if (kind === "shape") return diagnoseShape(answer, given);
  if (kind === "whole" && Math.abs(given.number - answer) === 1) return "Off by one.";
  const ratio = kind === "choice" || answer === 0 ? NaN : given.number / answer;
  if (Math.abs(ratio + 1) < 0.01) return "The sign is wrong.";
  const power = Math.log10(ratio);
  const isShifted = Math.abs(power) > 0.5 && Math.abs(power - Math.round(power)) < 0.005;
  return isShifted ? "The digits are right, but the decimal point is in the wrong place." : "";
}

function diagnoseShape(answer, sizes) {
  const sorted = (list) => [...list].sort((a, b) => a - b);
  if (sameVector(sizes, answer.slice(1))) return "You left out the batch, the first axis.";
  if (sameVector(sorted(sizes), sorted(answer))) return "The sizes are right, but the axes are in the wrong order.";
  if (sizes.length !== answer.length) return `The shape has ${answer.length} axes.`;
  const wrong = sizes.flatMap((size, axis) => (size === answer[axis] ? [] : [axis]));
  if (wrong.length > 1) return "";
  const [axis] = wrong;
  const off = Math.abs(sizes[axis] - answer[axis]) === 1 ? ", by one" : "";
  return `Only the ${["batch", "number of tokens", "width"][axis]} is wrong${off}.`;
}

function formatAnswer({ kind, answer }) {
  return { shape: shapeOf, choice: String, whole: grouped, real: brief }[kind](answer);
}

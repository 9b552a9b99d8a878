// Tokens as text, written as in the terminal (render/glyphs.py): spaces are open boxes, and invisible characters are
// escapes. Bytes that are not whole characters arrive as \xe2, so \xe2 is always a byte and \u00e2 a character.

const ESCAPES = { " ": "\u2423", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function visible(text) {
  return Array.from(text, (character) => ESCAPES[character] ?? (/[\p{C}\p{Z}]/u.test(character) ? escaped(character) : character)).join("");
}

// The text of a token. A SentencePiece vocabulary writes the space before a word as an underscore-like block.
function tokenText(text) {
  return text === "" ? "(empty)" : visible(text.replace(/^\u2581+/, (marks) => " ".repeat(marks.length)));
}

function escaped(character) {
  const point = character.codePointAt(0), digits = point < 0x80 ? 2 : point < 0x10000 ? 4 : 8;
  return `\\${{ 2: "x", 4: "u", 8: "U" }[digits]}${point.toString(16).padStart(digits, "0")}`;
}

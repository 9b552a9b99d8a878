// Formatting of numbers, bytes, shapes, and tokens. Rounding happens only here; data-value attributes are exact.

const MINUS = "\u2212";
const TIMES = "\u00d7";
const ARROW = "\u2192";
const DOTS = "\u2026";
const NOT_FINITE = { nan: NaN, inf: Infinity, "-inf": -Infinity };

// JSON has no NaN or infinity; a trace encodes them as strings.
function toNumber(value) {
  return typeof value === "string" ? NOT_FINITE[value] : value;
}

function exact(value) {
  return String(value);
}

function largest(values, below = Infinity) {
  let maxAbs = 0;
  for (const value of values) {
    const size = Math.abs(toNumber(value));
    if (size < below && size > maxAbs) maxAbs = size;
  }
  return maxAbs;
}

const HUGE = 1e5; // larger numbers are written as powers of ten
const SMALL = 1e-3; // figures with only smaller numbers use powers of ten throughout

// Decimals that show three significant digits of the largest number in a figure; null means powers of ten.
function decimalsFor(maxAbs) {
  if (!(maxAbs > 0)) return 3;
  if (maxAbs < SMALL || maxAbs >= HUGE) return null;
  return Math.max(1, 2 - Math.floor(Math.log10(maxAbs)) + (maxAbs < 1 ? 0 : 1));
}

function fixed(value, decimals) {
  const number = toNumber(value);
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "+\u221e" : MINUS + "\u221e";
  if (number === 0) return (0).toFixed(decimals ?? 0);
  if (decimals === null || Math.abs(number) >= HUGE) return powerOfTen(number);
  const written = number.toFixed(decimals);
  return Number(written) === 0 ? powerOfTen(number) : signed(written); // a nonzero number is never shown as zero
}

// One digit after the point and no plus sign, which is about as wide as the other numbers of a figure.
function powerOfTen(number) {
  return signed(number.toExponential(1).replace("e+", "e"));
}

// For sentences and formulas: six significant digits, no trailing zeros.
function brief(value) {
  const number = toNumber(value);
  if (!Number.isFinite(number)) return fixed(value, 0);
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size < 1e-5 || size >= 1e9) return signed(number.toExponential(3));
  return signed(String(Number(number.toPrecision(6))));
}

function shortened(value) {
  return brief(Number(toNumber(value).toPrecision(4)));
}

function signed(written) {
  return written.replaceAll("-", MINUS);
}

function counted(number, thing, things = thing + "s") {
  return `${grouped(number)} ${number === 1 ? thing : things}`;
}

function grouped(number) {
  return Number(number).toLocaleString("en-US", { maximumFractionDigits: 6 });
}

function byteSize(count) {
  if (count < 10000) return counted(count, "byte");
  const units = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]];
  const [unit, size] = units.find(([, least]) => count >= least);
  return `${grouped(count)} bytes (${(count / size).toPrecision(3)} ${unit})`;
}

function shapeOf(sizes) {
  return `(${sizes.join(", ")})`;
}

function hexPairs(bytes) {
  return bytes.replace(/(..)(?=.)/g, "$1 ");
}

function bytesOf(hex) {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

// Decodes bytes; those that are not whole characters are shown as \xe2, never as a replacement character.
function readable(hex) {
  const bytes = bytesOf(hex), decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const decoded = (at, length) => {
    try {
      return decoder.decode(bytes.subarray(at, at + length));
    } catch {
      return null;
    }
  };
  let text = "";
  for (let at = 0, length; at < bytes.length; at += length ?? 1) {
    length = [1, 2, 3, 4].find((size) => decoded(at, size) !== null);
    text += length ? visible(decoded(at, length)) : `\\x${bytes[at].toString(16)}`;
  }
  return text;
}

function codePoint(character) {
  return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

function cut(text, limit = 18) {
  const characters = Array.from(text);
  return characters.length > limit ? characters.slice(0, limit - 1).join("") + DOTS : text;
}

function arrows(text) {
  return text.replaceAll("->", ARROW);
}

// Capitalizes the start of a sentence, unless it is code such as nn.Embedding.
function upper(text) {
  return /^[a-z]+(-[a-z]+)*([\s,;:.]|$)/.test(text) && !/^[a-z]+\.\S/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
}

function listed(items) {
  if (items.length < 2) return items.join("");
  return items.slice(0, -1).join(", ") + " and " + items[items.length - 1];
}

function nameOf(token) {
  return tokenText(token.label);
}

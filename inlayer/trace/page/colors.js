// Colors: one per token id, and the diverging palette for numbers (blue below zero, orange above).

// Alternating greens and purples in OKLCH. They differ from each other, from the colors of numbers and controls, and
// from the map's kinds of tokens, even for readers with red-green color blindness (tests/browser/test_colors.py).
const TOKEN_COLORS = {
  light: [
    [0.45, 0.13, 126], [0.62, 0.105, 289], [0.49, 0.105, 166], [0.38, 0.145, 319],
    [0.56, 0.15, 151], [0.55, 0.147, 339], [0.36, 0.126, 133], [0.46, 0.127, 303],
  ],
  dark: [
    [0.72, 0.15, 155], [0.86, 0.107, 320], [0.8, 0.133, 164], [0.66, 0.16, 285],
    [0.89, 0.12, 135], [0.72, 0.125, 351], [0.89, 0.14, 180], [0.66, 0.118, 324],
  ],
};

const HEAT_POWER = 0.75; // exponent below 1: small values stay visible on a canvas; table cells, which have digits on top, are linear

let hues = new Map(); // token id -> its number, in order of first occurrence
let heatColors = null; // 256 colors for int8 values in the current theme

// Hues are numbered in the order of the first trace, so a token keeps its hue when it is swapped.
function assignHues(...traces) {
  hues = new Map();
  for (const text of traces.flatMap((trace) => trace.texts)) {
    for (const { id, mask } of text.tokens) {
      if (id !== null && mask && !hues.has(id)) hues.set(id, hues.size);
    }
  }
}

function isDark() {
  return getComputedStyle(document.documentElement).colorScheme === "dark";
}

// The color of a token wherever it appears; padding and tokens outside the text are gray.
function tokenColor(id, alpha = 1) {
  const number = hues.get(id);
  return number === undefined ? `oklch(${isDark() ? 0.76 : 0.56} 0.01 220 / ${alpha})` : numberedColor(number, alpha);
}

// Every second pass through the colors is darker and grayer, and starts in the middle.
function numberedColor(number, alpha = 1) {
  const colors = TOKEN_COLORS[isDark() ? "dark" : "light"], second = Math.floor(number / colors.length) % 2;
  const [lightness, chroma, hue] = colors[(number + second * colors.length / 2) % colors.length];
  return `oklch(${lightness - 0.04 * second} ${chroma * (1 - 0.3 * second)} ${hue} / ${alpha})`;
}

function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function channels(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}

// [red, green, blue] of a number on a scale from -maxAbs to maxAbs.
function heatColor(value, maxAbs) {
  const share = maxAbs > 0 ? Math.min(1, Math.abs(value) / maxAbs) ** HEAT_POWER : 0;
  const zero = channels(cssColor("--heat-zero"));
  const end = channels(cssColor(value < 0 ? "--cold" : "--hot"));
  return zero.map((part, index) => Math.round(part + (end[index] - part) * share));
}

// Black or white, whichever has more contrast with a color: at least 4.5.
function inkOn(color) {
  const [red, green, blue] = color.map((part) => (part <= 10 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

// Colors of int8 values as pixels, by value + 128. -128 stands for a non-finite value.
function heatPalette() {
  if (heatColors) return heatColors;
  const pixel = ([red, green, blue], alpha = 255) => ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  heatColors = Uint32Array.from({ length: 256 }, (_, index) => pixel(heatColor(index - 128, 127)));
  heatColors[0] = pixel([0, 0, 0], 0); // not finite: transparent
  return heatColors;
}

document.addEventListener("theme-change", () => { heatColors = null; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.dispatchEvent(new Event("theme-change"));
});

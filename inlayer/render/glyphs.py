"""Glyphs for the terminal: escaped text, bytes, numbers, and heat strips, all of known width.

- control characters, and characters that move their neighbors or have no certain width, are shown as escape codes
- numbers fit in seven columns, from 1e-45 to 1e38
- heat strips have one character per channel: blocks colored from blue through gray to red. Without color, the height
  of a block shows the value (half height is zero); without Unicode, ASCII characters are used
- see also: their layout on the screen (trace/layout.py, training/run_report.py)
Tested in tests/trace/test_terminal.py.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from rich.cells import cell_len
from rich.text import Text

NUMBER = 7  # columns of a number
MAX_MARKS = 2  # combining marks per character; more would overlap other lines
LEFT_TO_RIGHT = "\u200e"  # zero width; keeps the columns after Arabic or Hebrew text in order
GRAY, BLUE, RED = (160, 160, 160), (40, 100, 230), (225, 60, 40)  # zero and both extremes, on black and on white


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """The characters that a terminal can show."""

    encoding: str
    color: bool
    blank: str = "␣"
    more: str = "…"
    rule: str = "─"
    bar: str = "│"
    arrow: str = "→"
    times: str = "×"
    plus_minus: str = "±"
    strip: str = "▁▂▃▄▅▆▇"  # seven levels, from most negative to most positive

    def escape(self, text: str) -> str:
        """Escape a text so that it stays on one line and cannot control the terminal."""
        return self.truncate(text, len(text) * 10, blank=" ")

    def truncate(self, text: str, columns: int, blank: str | None = None) -> str:
        """Escape a text and truncate it to `columns`."""
        blank = self.blank if blank is None else blank
        if text.isascii() and text.isprintable() and len(text) <= columns:  # most texts: nothing to escape
            return text.replace(" ", blank)
        shown, end = "", ""
        used, marks, fitting = 0, MAX_MARKS, 0  # fitting: length of the part that fits together with the ellipsis
        for character in text:
            if marks < MAX_MARKS and _is_mark(character):
                glyph, marks = character if self._can_encode(character) else _code(character), marks + 1
            else:
                glyph = blank if character == " " else self._glyph(character)
                marks = 0 if glyph == character else MAX_MARKS
            used += cell_len(glyph)
            if used > columns:
                return shown[:fitting] + (self.more if columns > 0 else "") + end
            shown += glyph
            if used <= columns - len(self.more):
                fitting = len(shown)
            if glyph == character and unicodedata.bidirectional(character) in ("R", "AL", "AN"):
                end = LEFT_TO_RIGHT
        return shown + end

    def truncate_bytes(self, data: str, columns: int) -> str:
        """Like `truncate`, for bytes in hexadecimal; bytes that are not whole characters become escape codes."""
        return self.truncate(bytes.fromhex(data).decode(errors="surrogateescape"), columns)

    def _glyph(self, character: str) -> str:
        """Escape one character unless it is printable, has a fixed width on its own, and can be encoded."""
        is_shown = character.isprintable() and (character.isascii() or _stands_alone(character))
        return character if is_shown and self._can_encode(character) else _code(character)

    def _can_encode(self, character: str) -> bool:
        try:
            character.encode(self.encoding)
        except UnicodeEncodeError:
            return False
        return True

    def hex(self, data: str, columns: int) -> str:
        """Format bytes, given in hexadecimal, as pairs of digits; as many as fit."""
        if len(data) // 2 <= (columns + 1) // 3:
            return bytes.fromhex(data).hex(" ")
        shown = max(1, (columns - len(self.more)) // 3)
        return f"{bytes.fromhex(data[: 2 * shown]).hex(' ')} {self.more}"

    def heat(self, values: Sequence[float], scale: float) -> Text:
        """Draw a heat strip, one character per channel; `scale` is the value with full intensity."""
        strip = Text()
        for value in values:
            if math.isnan(value):
                strip.append("?", style="bold magenta")
                continue
            sign = (value > 0) - (value < 0)
            share = min(1.0, abs(value) / scale) if scale else 1.0
            level = 3 + sign * min(3, 1 + int(share * 3))
            strip.append(self.strip[-1 if self.color else level], style=_color(sign * share) if self.color else "")
        return strip


ASCII = {
    "blank": "\\s", "more": "...", "rule": "-", "bar": "|", "arrow": "->", "times": "x", "plus_minus": "+-",
    "strip": "=~-.+*#",
}  # fmt: skip


@cache
def glyphs_for(encoding: str, *, color: bool) -> Glyphs:
    """Choose the glyphs that an encoding can represent."""
    glyphs = Glyphs(encoding=encoding, color=color)
    try:
        "".join(map(str, vars(glyphs).values())).encode(encoding)
    except LookupError:  # an unknown encoding
        return Glyphs(encoding="ascii", color=color, **ASCII)
    except UnicodeEncodeError:
        return Glyphs(encoding=encoding, color=color, **ASCII)
    return glyphs


def with_spaces(token: str) -> str:
    """Return a token's text with spaces where a SentencePiece vocabulary spells those before a word as "▁".

    >>> with_spaces("▁King"), with_spaces(" King"), with_spaces("<｜begin▁of▁sentence｜>")
    (' King', ' King', '<｜begin▁of▁sentence｜>')
    """
    text = token.lstrip("▁")
    return " " * (len(token) - len(text)) + text


def number(value: float, *, power: bool = False) -> str:
    """Format a value in at most seven columns: with decimals, or as a power of ten if it is very small or large."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    forms = [f"{value:.{n}f}" for n in (4, 3, 2, 1) if 0.001 <= abs(value) < 10 ** (5 - n) and not power]
    for digits in (1, 0):
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        forms.append(f"{mantissa}e{int(exponent)}")
    return next(form for form in forms if len(form) <= NUMBER)


def largest(vectors: Iterable[Sequence[float]]) -> float:
    """Return the largest absolute value, the common scale of several heat strips; NaN if no value is finite."""
    return max((abs(value) for vector in vectors for value in vector if math.isfinite(value)), default=math.nan)


def _color(share: float) -> str:
    end, intensity = RED if share > 0 else BLUE, abs(share) ** 0.7
    red, green, blue = (round(gray + (full - gray) * intensity) for gray, full in zip(GRAY, end, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _is_mark(character: str) -> bool:
    is_variation_selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return unicodedata.category(character).startswith("M") and not is_variation_selector


def _stands_alone(character: str) -> bool:
    """Return whether a character has a fixed width by itself; skin tones and halves of flags do not."""
    is_part = "\U0001f1e6" <= character <= "\U0001f1ff" or "\U0001f3fb" <= character <= "\U0001f3ff"
    return not (is_part or cell_len(character) == 0 or _is_mark(character))


def _code(character: str) -> str:
    r"""Return an escape code: \xe2 is always a byte, \u00e2 a character."""
    point = ord(character)
    if 0xDC80 <= point <= 0xDCFF:  # how surrogateescape represents a byte
        return f"\\x{point - 0xDC00:02x}"
    return f"\\u{point:04x}" if 0x80 <= point <= 0xFF else ascii(character)[1:-1]

"""The floor: what a terminal can show: a text made safe, bytes, numbers and strips of values, each as wide as it says.

- a control character, and one that moves its neighbors or has no certain width, is shown as its code; a blank as ␣
- a number keeps to seven columns, from 1e-45 to 1e38; what is no number is named
- a strip has one character a channel: blocks from blue over gray to red; where there is no color, the height of a
  block says how much and, below or above the middle, of which sign; where there are no blocks, ASCII does
- not here: where on a page it stands (trace/terminal/page.py, training/report.py)
Checked in tests/trace/test_terminal.py.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

__all__ = ["NUMBER", "Glyphs", "glyphs_for", "largest", "number"]

NUMBER = 7  # columns of a number
MAX_MARKS = 2  # accents on one character; text with more of them grows over its neighbors
LEFT_TO_RIGHT = "\u200e"  # of no width: keeps the columns behind Arabic or Hebrew in their order
NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
GRAY, BLUE, RED = (160, 160, 160), (40, 100, 230), (225, 60, 40)  # zero and the two ends: seen on black and on white
UNICODE_SIGNS = "␣…─│→±×▁▂▃▄▅▆▇"


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """The characters of one terminal: its encoding, and the marks it can show."""

    encoding: str
    color: bool
    blank: str
    more: str
    rule: str
    bar: str
    arrow: str
    times: str
    plus_minus: str
    strip: str  # seven, from most negative to most positive

    def safe(self, text: str) -> str:
        """The text on one line, with nothing in it that acts on the terminal."""
        return self.fold(text, len(text) * 10, blank=" ")

    def fold(self, text: str, columns: int, blank: str | None = None) -> str:
        """The text as it is shown, its end left out where it is wider than `columns`."""
        shown: list[str] = []
        used, marks, turned, room = 0, MAX_MARKS, False, columns - len(self.more)
        fitting = 0  # of `shown`, with the sign that says there is more
        for character in text:
            if not character.isascii() and marks < MAX_MARKS and _is_mark(character):
                shown.append(self._if_encodable(character))
                marks += 1
            else:
                shown.append(self.sign(character, blank))
                marks = 0 if shown[-1] == character else MAX_MARKS
            used += cell_len(shown[-1])
            if used <= room:
                fitting = len(shown)
            if used > columns:
                shown[fitting:] = [self.more] if columns > 0 else []
                break
            turned = turned or (shown[-1] == character and unicodedata.bidirectional(character) in ("R", "AL", "AN"))
        return "".join(shown) + (LEFT_TO_RIGHT if turned else "")

    def sign(self, character: str, blank: str | None = None) -> str:
        """One character by itself."""
        if character == " ":
            return self.blank if blank is None else blank
        if character.isascii():
            return character if character.isprintable() else NAMED.get(character) or _code(character)
        if not _stands_alone(character):
            return _code(character)
        return self._if_encodable(character)

    def _if_encodable(self, character: str) -> str:
        try:
            character.encode(self.encoding)
        except UnicodeEncodeError:
            return _code(character)
        return character

    def hex(self, data: str, columns: int) -> str:
        """Bytes as pairs of digits, as many as fit."""
        size, fitting = len(data) // 2, (columns + 1) // 3
        if size <= fitting:
            return bytes.fromhex(data).hex(" ")
        shown = max(1, (columns - 1 - len(self.more) + 1) // 3)
        return f"{bytes.fromhex(data[: 2 * shown]).hex(' ')} {self.more}"

    def escaped(self, data: str, columns: int) -> str:
        """Bytes that are no whole characters, in place of a text."""
        shown = [f"\\x{byte:02x}" for byte in bytes.fromhex(data[: 2 * columns])]
        if 4 * len(shown) <= columns:
            return "".join(shown)
        return "".join(shown[: max(0, (columns - len(self.more)) // 4)]) + self.more

    def heat(self, values: Sequence[float], scale: float) -> Text:
        """One character a channel. `scale` is the value that is shown in full."""
        strip = Text()
        for value in values:
            if math.isnan(value):
                strip.append("?", style="bold magenta")
                continue
            share = _share(value, scale)
            level = 3 + math.copysign(min(3, 1 + int(abs(share) * 3)), share) if share else 3
            strip.append(self.strip[-1 if self.color else int(level)], style=_color(share) if self.color else "")
        return strip


def glyphs_for(encoding: str, *, color: bool) -> Glyphs:
    """What can be written in an encoding."""
    try:
        UNICODE_SIGNS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        try:
            "".encode(encoding)
        except LookupError:
            encoding = "ascii"
        return Glyphs(
            encoding=encoding,
            color=color,
            blank="\\s",
            more="...",
            rule="-",
            bar="|",
            arrow="->",
            times="x",
            plus_minus="+-",
            strip="=~-.+*#",
        )
    return Glyphs(
        encoding=encoding,
        color=color,
        blank="␣",
        more="…",
        rule="─",
        bar="│",
        arrow="→",
        times="×",
        plus_minus="±",
        strip="▁▂▃▄▅▆▇",
    )


def number(value: float, *, power: bool = False) -> str:
    """A value in at most seven columns: four decimals where that says enough, a power of ten where it does not."""
    size = abs(value)
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    for limit, decimals in ((10, 4), (100, 3), (1000, 2), (10_000, 1)):
        if 0.001 <= size < limit and not power:
            shown = f"{value:.{decimals}f}"
            if len(shown) <= NUMBER:
                return shown
    for digits in (1, 0):
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        shown = f"{mantissa}e{int(exponent)}"
        if len(shown) <= NUMBER:
            break
    return shown


def largest(vectors: Iterable[Sequence[float]]) -> float:
    """The scale of strips that stand together."""
    return max((abs(value) for vector in vectors for value in vector if math.isfinite(value)), default=0.0)


def _share(value: float, scale: float) -> float:
    """Of the scale, from -1 to 1; only zero is 0."""
    if value == 0:
        return 0.0
    return math.copysign(min(1.0, abs(value) / scale) or 1e-9 if scale else 1.0, value)


def _color(share: float) -> str:
    end, much = RED if share > 0 else BLUE, abs(share) ** 0.7
    red, green, blue = (round(gray + (full - gray) * much) for gray, full in zip(GRAY, end, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M") and not _chooses_variant(character)


def _chooses_variant(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _stands_alone(character: str) -> bool:
    """Has it a width of its own, whatever stands beside it? Skin tones and halves of flags have not."""
    if not character.isprintable() or cell_len(character) == 0 or _is_mark(character):
        return False
    return not ("\U0001f1e6" <= character <= "\U0001f1ff" or "\U0001f3fb" <= character <= "\U0001f3ff")


def _code(character: str) -> str:
    return ascii(character)[1:-1]

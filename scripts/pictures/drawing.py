"""Drawing primitives for all pictures: cells colored by value, arrows, text.

- a picture is a small SVG of text and shapes, with light and dark colors and a transparent background
- blue and orange mean values below and above zero and nothing else, as in the walk; highlights are petrol, plum, ochre
  or moss, and a mistake is red
- everything has the class `picture` and nothing has an id, so one page can contain several pictures
- coordinates are rounded, so the same values give the same file on every machine
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

MINUS = "\N{MINUS SIGN}"
CAP = 0.6  # a cell is never so dark that its number becomes unreadable

STYLE = """
.picture { --ink: #1b2326; --muted: #56646a; --line: #b9c2c5; --soft: #e9eded; --hot: #c2560c; --cold: #1f6fb5;
  --a: #0d5a66; --b: #7b3f8c; --c: #86660a; --d: #4c6b1e; --bad: #9c2f2a; --good: #1d6a40; color: var(--ink) }
@media (prefers-color-scheme: dark) {
.picture { --ink: #e6ecee; --muted: #a0adb2; --line: #4d5a60; --soft: #263036; --hot: #f0934d; --cold: #58a6e8;
  --a: #7cc7d1; --b: #d0a2de; --c: #d9bd58; --d: #a6cc78; --bad: #f09a94; --good: #7fcf9f } }
.picture text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial,
  sans-serif; fill: currentColor; stroke: none }
.picture .mono, .picture .number { font-family: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas,
  "DejaVu Sans Mono", "Liberation Mono", monospace }
.picture .number { font-size: 13px }
.picture .small { font-size: 12px }
.picture .large { font-size: 18px }
.picture .strong { font-weight: 600 }
.picture .muted { color: var(--muted) }
.picture .a { color: var(--a) }
.picture .b { color: var(--b) }
.picture .c { color: var(--c) }
.picture .d { color: var(--d) }
.picture .bad { color: var(--bad) }
.picture .good { color: var(--good) }
.picture .hot { color: var(--hot) }
.picture .cold { color: var(--cold) }
.picture .faint { color: var(--line) }
.picture .soft { color: var(--soft) }
.picture .fill { fill: currentColor; stroke: none }
.picture .line { fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round }
.picture .thin { stroke-width: 1 }
.picture .thick { stroke-width: 2.5 }
.picture .dashed { stroke-dasharray: 5 4; stroke-linecap: butt }
""".strip()


def short(number: float) -> str:
    """Format a coordinate with at most two decimals."""
    return f"{round(number, 2) + 0.0:g}"


def shown(number: float, digits: int) -> str:
    """Format a number for display: a real minus sign, and none before a zero."""
    text = f"{number:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


class Drawing:
    """A canvas of `width` x `height`, drawn from back to front."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.marks: list[str] = []

    def svg(self, description: str) -> str:
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" width="{self.width}"'
                f' height="{self.height}" viewBox="0 0 {self.width} {self.height}">',
                f"<title>{escape(self.title)}</title>",
                f"<desc>{escape(description)}</desc>",
                f"<style>\n{STYLE}\n</style>",
                *self.marks,
                "</svg>",
                "",
            ]
        )

    def mark(self, name: str, text: str | None = None, **attributes: object) -> None:
        pairs = (
            (key.replace("_", "-").strip("-"), short(value) if isinstance(value, int | float) else str(value))
            for key, value in attributes.items()
            if value is not None and value != ""
        )
        inside = "".join(f" {key}={quoteattr(value)}" for key, value in pairs)
        self.marks.append(f"<{name}{inside}/>" if text is None else f"<{name}{inside}>{escape(text)}</{name}>")

    # ---- text

    def text(self, x: float, y: float, text: str, kind: str = "", *, at: str = "middle") -> None:
        """Write text on the baseline y; `at` says what x is: start, middle or end."""
        self.mark("text", text, class_=kind, x=x, y=y, text_anchor=None if at == "start" else at)

    def lines(
        self, x: float, y: float, words: Sequence[str], kind: str = "", *, at: str = "middle", by: float = 18
    ) -> None:
        for index, text in enumerate(words):
            self.text(x, y + index * by, text, kind, at=at)

    # ---- shapes

    def box(self, x: float, y: float, w: float, h: float, kind: str = "faint line thin", *, round_: float = 3) -> None:
        self.mark("rect", class_=kind, x=x, y=y, width=w, height=h, rx=round_ or None)

    def tint(self, x: float, y: float, w: float, h: float, kind: str, much: float, *, round_: float = 3) -> None:
        """Fill a box with a light tint, so text on it stays readable in light and dark."""
        self.mark("rect", class_=f"{kind} fill", x=x, y=y, width=w, height=h, rx=round_ or None, fill_opacity=much)

    def line(self, *points: tuple[float, float], kind: str = "muted line") -> None:
        path = " ".join(f"{'L' if index else 'M'}{short(x)} {short(y)}" for index, (x, y) in enumerate(points))
        self.mark("path", class_=kind, d=path)

    def circle(self, x: float, y: float, r: float, kind: str = "muted line") -> None:
        self.mark("circle", class_=kind, cx=x, cy=y, r=r)

    def path(self, d: str, kind: str = "muted line") -> None:
        self.mark("path", class_=kind, d=d)

    def head(self, x: float, y: float, angle: float, kind: str = "muted line", size: float = 7) -> None:
        """Draw the open head of an arrow that ends at (x, y)."""
        wings = [(x - size * math.cos(angle + side), y - size * math.sin(angle + side)) for side in (0.45, -0.45)]
        self.line(wings[0], (x, y), wings[1], kind=kind.replace(" dashed", ""))

    def arrow(self, start: tuple[float, float], end: tuple[float, float], kind: str = "muted line") -> None:
        self.line(start, end, kind=kind)
        self.head(*end, math.atan2(end[1] - start[1], end[0] - start[0]), kind)

    def swing(
        self, start: tuple[float, float], end: tuple[float, float], kind: str = "muted line", *, down: bool = False
    ) -> None:
        """Draw a curved arrow that leaves and arrives horizontally, or vertically with `down`."""
        (x1, y1), (x2, y2) = start, end
        if down:
            middle = (y1 + y2) / 2
            curve, angle = (x1, middle, x2, middle), math.copysign(math.pi / 2, y2 - y1)
        else:
            middle = (x1 + x2) / 2
            curve, angle = (middle, y1, middle, y2), 0.0 if x2 > x1 else math.pi
        a, b, c, d = map(short, curve)
        self.path(f"M{short(x1)} {short(y1)} C{a} {b} {c} {d} {short(x2)} {short(y2)}", kind)
        self.head(x2, y2, angle, kind)

    def brace(
        self, x1: float, x2: float, y: float, kind: str = "muted line", *, up: bool = False, deep: float = 7
    ) -> None:
        """Draw a bracket below the span x1..x2, or above it."""
        tip = -deep if up else deep
        self.line((x1, y), (x1, y + tip), (x2, y + tip), (x2, y), kind=kind)

    # ---- numbers

    def cell(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str = "",
        *,
        value: float = 0.0,
        most: float = 1.0,
        kind: str = "",
        words: str = "number",
    ) -> None:
        """Draw one cell, tinted by its value (hot above zero, cold below) or by its `kind`."""
        if value:
            strength = CAP * min(1.0, abs(value) / most)
            self.tint(x, y, w, h, "hot" if value > 0 else "cold", strength, round_=2)
        elif kind:
            self.tint(x, y, w, h, kind, 1.0 if kind == "soft" else 0.2, round_=2)
        self.box(x, y, w, h, round_=2)
        if text:
            self.text(x + w / 2, y + h / 2 + 4.5, text, words)

    def grid(
        self,
        x: float,
        y: float,
        rows: Sequence[Sequence[float]],
        *,
        w: float = 48,
        h: float = 26,
        digits: int | None = 2,
        most: float | None = None,
        words: str = "number",
    ) -> None:
        """Draw rows of numbers as cells; with `digits=None`, only their colors."""
        most = most or max(abs(value) for row in rows for value in row) or 1.0
        for r, row in enumerate(rows):
            for c, value in enumerate(row):
                text = "" if digits is None else shown(value, digits)
                self.cell(x + c * w, y + r * h, w, h, text, value=value, most=most, words=words)

    def strip(
        self, x: float, y: float, texts: Sequence[str], *, w: float = 48, h: float = 28, kinds: Sequence[str] = ()
    ) -> None:
        """Draw a row of cells with words or ids, each in the color of its kind."""
        for index, text in enumerate(texts):
            self.cell(x + index * w, y, w, h, text, kind=kinds[index] if kinds else "soft")

    def hatched(self, x: float, y: float, w: float, h: float, kind: str, *, gap: float = 8) -> None:
        """Fill a box with diagonal lines."""
        self.tint(x, y, w, h, kind, 0.08, round_=2)
        at = gap
        while at < w + h:  # a line from the top edge to the left or bottom edge
            x1, y1 = (x + at, y) if at <= w else (x + w, y + at - w)
            x2, y2 = (x, y + at) if at <= h else (x + at - h, y + h)
            self.line((x1, y1), (x2, y2), kind=f"{kind} line thin")
            at += gap
        self.box(x, y, w, h, f"{kind} line thin", round_=2)

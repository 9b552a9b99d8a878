"""Draws docs/architecture.svg: the data flow, and the packages in the order in which they may import each other.

python scripts/make_architecture.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

OUT = Path(__file__).parents[1] / "docs" / "architecture.svg"
LEFT, WIDTH, GAP = 30, 1060, 14
INK, SOFT, EDGE = "#1f2933", "#616e7c", "#9aa5b1"

FLOW = [
    ("text", "str"), ("ids", "(B, T)"), ("rows", "(B, T, D)"), ("+ positions", "added or prepared"),
    ("hidden states", "(B, T, D)"), ("decoder", "not ours"), ("head", "logits (B, T, V)"),
]  # fmt: skip
LAYERS = [
    ("#f5f7fa", [("cli", "command line"), ("web", "server and API")]),
    ("#f5f7fa", [("learn", "course and grader"), ("integrations", "attach to transformers")]),
    ("#f5f7fa", [("trace", "walk: every value"), ("training", "text to model"), ("inspection", "health of a table")]),
    ("#e6f1f5", [("checkpoint", "source to model"), ("geometry", "neighbors, maps")]),
    ("#e6f1f5", [("embeddings", "the layer"), ("head", "logits, loss"), ("pooling", "one vector per text"),
                 ("positions", "learned, sinusoidal, rotary")]),
    ("#eef3e6", [("families", "config.json to spec"), ("tables", "ids to rows"), ("tokenizers", "text to ids")]),
    ("#f5efe6", [("formats", "safetensors, GGUF, .bin: bytes on disk"), ("render", "glyphs, styles, Markdown")]),
    ("#f0f0f0", [("errors, shapes, checks, files, ragged, initialization, tensors, tying, sharding", "base modules")]),
]  # fmt: skip


def box(x: float, y: float, width: float, fill: str, title: str, note: str, dashed: bool = False) -> str:
    middle, dash = x + width / 2, ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="50" rx="8" fill="{fill}" stroke="{EDGE}"{dash}/>'
        f'<text x="{middle:g}" y="{y + 21:g}" text-anchor="middle" font-size="16" font-weight="600" fill="{INK}">'
        f'{escape(title)}</text><text x="{middle:g}" y="{y + 41:g}" text-anchor="middle" font-size="12" fill="{SOFT}">'
        f"{escape(note)}</text>"
    )


def row(y: float, fill: str, boxes: list[tuple[str, str]]) -> str:
    width = (WIDTH - GAP * (len(boxes) - 1)) / len(boxes)
    return "\n".join(
        box(LEFT + number * (width + GAP), y, width, fill, *one, dashed=one[0] == "decoder")
        for number, one in enumerate(boxes)
    )


def label(y: float, text: str) -> str:
    return f'<text x="{LEFT}" y="{y:g}" font-size="14" fill="{SOFT}">{escape(text)}</text>'


def main() -> None:
    parts = [label(30, "data flow; a tied head reads the same table"), row(42, "#e6f1f5", FLOW)]
    parts.append(label(130, "packages: each imports only from the layers below it"))
    y = 142.0
    for number, (fill, boxes) in enumerate(LAYERS):
        parts.append(row(y, fill, boxes))
        y += 62
        if number == 4:
            end = LEFT + WIDTH
            parts.append(
                f'<line x1="{LEFT}" y1="{y - 6:g}" x2="{end}" y2="{y - 6:g}" stroke="#c98a3b" stroke-dasharray="4 3"/>'
                f'<text x="{end}" y="{y + 9:g}" text-anchor="end" font-size="12" fill="#a8702a">'
                "below this line: numpy only; checkpoint and inspection also run without torch</text>"
            )
            y += 16
    OUT.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1120 {y + 8:g}" role="img" aria-labelledby="t" '
        'font-family="ui-sans-serif, system-ui, Helvetica, Arial, sans-serif">'
        '<title id="t">The data flow from text to logits, and the packages</title>\n'
        f'<rect width="1120" height="{y + 8:g}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()

"""Draws docs/architecture.svg: the data flow, and the packages in the order in which they may import each other.

python scripts/make_architecture.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

OUT = Path(__file__).parents[1] / "docs" / "architecture.svg"
LEFT, WIDTH, GAP = 30, 1060, 14
INK, SOFT, EDGE = "#1f2933", "#616e7c", "#9aa5b1"

TORCH, CORE = "#e6f1f5", "#eef3e6"  # blue: needs torch; green: runs without it

# title, note, whether it is part of the light core, and its width relative to the others of its row
Box = tuple[str, str, bool, float]
FLOW: list[Box] = [
    ("text", "str", False, 1), ("ids", "(B, T)", False, 1), ("rows", "(B, T, D)", False, 1),
    ("+ positions", "added or prepared", False, 1), ("hidden states", "(B, T, D)", False, 1),
    ("decoder", "not ours", False, 1), ("head", "logits (B, T, V)", False, 1),
]  # fmt: skip
LAYERS: list[list[Box]] = [
    [("cli", "command line", False, 1), ("web", "server and API", False, 1)],
    [("learn", "course and grader", False, 1), ("integrations", "transformers, scikit-learn, datasets", False, 1)],
    [("trace", "walk: every value", False, 1), ("training", "text to model", False, 1),
     ("inspection", "health of a table", True, 1)],
    [("checkpoint", "source to model", True, 1), ("encoding", "texts to vectors", True, 1),
     ("geometry", "neighbors, maps", True, 1)],
    [("embeddings", "layer; input_table, extra_tables, per_layer, layer_stage", False, 2.1),
     ("head", "logits, loss", False, 1), ("pooling", "one vector per text", False, 1),
     ("positions, norms", "learned, sinusoidal, rotary", False, 1.15)],
    [("families", "config.json to spec", True, 1), ("tables", "ids to rows; without torch: stored tables", False, 1),
     ("tokenizers", "text to ids", True, 1)],
    [("formats", "safetensors, GGUF, .bin: bytes on disk", True, 1), ("render", "glyphs, styles, Markdown", True, 1),
     ("ragged", "ids of many texts", True, 1)],
    [("errors, shapes, checks, facts_base, files, threads", "base modules", True, 1),
     ("initialization, tensors, tying, sharding, chunked_loss", "base modules", False, 1.3)],
]  # fmt: skip


def box(x: float, y: float, width: float, fill: str, title: str, note: str, dashed: bool = False) -> str:
    middle, dash = x + width / 2, ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="50" rx="8" fill="{fill}" stroke="{EDGE}"{dash}/>'
        f'<text x="{middle:g}" y="{y + 21:g}" text-anchor="middle" font-size="16" font-weight="600" fill="{INK}">'
        f'{escape(title)}</text><text x="{middle:g}" y="{y + 41:g}" text-anchor="middle" font-size="12" fill="{SOFT}">'
        f"{escape(note)}</text>"
    )


def row(y: float, boxes: list[Box]) -> str:
    unit = (WIDTH - GAP * (len(boxes) - 1)) / sum(width for *_, width in boxes)
    x, parts = float(LEFT), []
    for title, note, is_core, width in boxes:
        fill = CORE if is_core else TORCH
        parts.append(box(x, y, width * unit, fill, title, note, dashed=title == "decoder"))
        x += width * unit + GAP
    return "\n".join(parts)


def label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="14" fill="{SOFT}">{escape(text)}</text>'


def main() -> None:
    parts = [label(LEFT, 30, "data flow; a tied head reads the same table"), row(42, FLOW)]
    parts.append(label(LEFT, 130, "packages and modules: none imports from a row above its own"))
    legend = label(830, 130, "light core: numpy only, without torch")
    parts.append(f'<rect x="806" y="118" width="16" height="16" rx="3" fill="{CORE}" stroke="{EDGE}"/>{legend}')
    parts += [row(142 + 62 * number, boxes) for number, boxes in enumerate(LAYERS)]
    height = 150 + 62 * len(LAYERS)
    OUT.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1120 {height}" role="img" aria-labelledby="t" '
        'font-family="ui-sans-serif, system-ui, Helvetica, Arial, sans-serif">'
        '<title id="t">The data flow from text to logits, and the packages</title>\n'
        f'<rect width="1120" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()

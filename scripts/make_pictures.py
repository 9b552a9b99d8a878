"""Draw the pictures of the course: `python -m scripts.make_pictures`.

Each picture is a small SVG that shows real values (scripts/pictures/). The lesson's alt text describes the picture and
is also written into the SVG as its description, so run this script again after changing an alt text.
Tested in tests/learn/test_pictures.py.
"""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt

import inlayer
from scripts.pictures import checkpoints, lookup, position_padding, training

CONTENT = Path(inlayer.__file__).parent / "learn" / "content"
FOLDER = CONTENT / "pictures"
DRAWERS = lookup.PICTURES | position_padding.PICTURES | training.PICTURES | checkpoints.PICTURES


def described() -> dict[str, str]:
    """Return the alt text of every picture by the address that lessons use."""
    return {
        str(part.attrs["src"]): " ".join(part.content.split())
        for path in sorted(CONTENT.glob("*/lesson.md"))
        for block in MarkdownIt().parse(path.read_text(encoding="utf-8"))
        for part in block.children or ()
        if part.type == "image"
    }


def draw() -> dict[str, str]:
    """Draw every picture; return SVG texts by file name."""
    alt_texts = described()
    return {f"{name}.svg": drawer().svg(alt_texts.get(f"pictures/{name}.svg", "")) for name, drawer in DRAWERS.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in draw().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()

"""Draw the pictures of the course: `python -m scripts.make_pictures`.

Each is a small SVG made of real numbers (scripts/pictures/). What it shows is said once, in the alt text of the lesson
that shows it, and is written into the picture as its description: after a change there, draw again.
"""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt

import inlayer
from scripts.pictures import early, last, late, middle

CONTENT = Path(inlayer.__file__).parent / "learn" / "content"
FOLDER = CONTENT / "pictures"
DRAWERS = early.PICTURES | middle.PICTURES | late.PICTURES | last.PICTURES


def described() -> dict[str, str]:
    """What lessons say of the pictures they show: address, as lessons write it -> alt text."""
    return {
        str(part.attrs["src"]): " ".join(part.content.split())
        for path in sorted(CONTENT.glob("*/lesson.md"))
        for block in MarkdownIt().parse(path.read_text(encoding="utf-8"))
        for part in block.children or ()
        if part.type == "image"
    }


def draw() -> dict[str, str]:
    """Every picture as text, by the name of its file."""
    said = described()
    return {f"{name}.svg": drawer().svg(said.get(f"pictures/{name}.svg", "")) for name, drawer in DRAWERS.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in draw().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()

"""What a model is called in an answer: by its name, not by where it lies on this machine.

Checked in tests/web/test_routes.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from inlayer.paths import last_part, shown
from inlayer.tables import StoredEmbedding
from inlayer.trace import Pipeline

__all__ = ["find_places", "without_places"]


def find_places(lines: Iterable[Pipeline]) -> dict[str, str]:
    """Paths that errors of these models may show, the longest first, each with its last part."""
    found: set[Path] = set()
    for line in lines:
        if line.title != line.source:
            given = Path(line.source)
            found |= {given, given.absolute(), given.resolve()}
        table = line.layer.token_embedding
        if isinstance(table, StoredEmbedding) and isinstance(path := getattr(table.table.source, "path", None), Path):
            found.add(path)
    # A path of one word, such as ".", says nothing of where it is, and may stand in any message.
    told = {shown(path): last_part(path) for path in found if len(path.parts) > 1}
    return dict(sorted(told.items(), key=lambda item: -len(item[0])))


def without_places(message: str, places: Mapping[str, str]) -> str:
    """The message with these paths cut down to their last parts."""
    for place, last in places.items():
        message = message.replace(place, last)
    return message

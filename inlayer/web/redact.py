"""Hides local paths: responses name a model by its name, not by where it is stored.

Tested in tests/web/test_redact.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from inlayer.files import base_name, shown
from inlayer.tables import StoredEmbedding
from inlayer.trace import Pipeline

__all__ = ["find_paths", "redact"]


def find_paths(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Map each path that errors of these models may contain to its last part, longest path first."""
    found: set[Path] = set()
    for pipeline in pipelines:
        if pipeline.title != pipeline.source:
            given = Path(pipeline.source)
            found |= {given, given.absolute(), given.resolve()}
        table = pipeline.layer.token_embedding
        if isinstance(table, StoredEmbedding) and isinstance(path := getattr(table.table.source, "path", None), Path):
            found.add(path)
    # A path of one part, such as ".", reveals nothing and may occur in any message.
    paths = {shown(path): base_name(path) for path in found if len(path.parts) > 1}
    return dict(sorted(paths.items(), key=lambda item: -len(item[0])))


def redact(message: str, paths: Mapping[str, str]) -> str:
    """Replace each of these paths in a message with its last part."""
    for path, last in paths.items():
        message = message.replace(path, last)
    return message

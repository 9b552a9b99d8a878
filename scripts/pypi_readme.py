"""Hook of the build (pyproject.toml): the README as PyPI shows it, without links that only work in the repository.

With a `Repository` in [project.urls], relative links and pictures point to the files of this version there. Without it,
a link becomes its text, and a picture is left out. Tested in tests/test_wheel.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")


class PyPIReadme(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling for every build."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        text = absolute_links(readme, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute_links(readme: str, repository: str | None, version: str) -> str:
    """Return the README with its relative links replaced, as described above."""

    def replaced(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        if repository is None:
            return "" if picture else text
        return f"{picture}[{text}]({repository.rstrip('/')}/{'raw' if picture else 'blob'}/v{version}/{target})"

    return RELATIVE_LINK.sub(replaced, readme)

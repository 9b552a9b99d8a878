"""Extension of the documentation site (mkdocs.yml): the section "Example" of a docstring is shown as code.

Without it, a docstring's `>>>` become nested quotations, because the parser only knows the title "Examples".
Tested in tests/test_docs.py, which builds the site.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Renames the section in every docstring."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

"""Checks the model passed to an adapter. Tested in tests/integrations/test_exports.py."""

from __future__ import annotations

from typing import Any

from inlayer.errors import InputError


def check_source(source: Any) -> Any:
    """Return the source. None is an error, because it is usually a variable that was never set."""
    if source is None:
        raise InputError(
            "source is None; pass anything that inlayer.load accepts, or omit it to use the bundled sample model"
        )
    return source

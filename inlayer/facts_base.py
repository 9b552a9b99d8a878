"""Base module: the base class of facts, and their JSON.

A subclass of `Facts` is a frozen, keyword-only dataclass; the order of its fields is their order in the JSON.
Tested in tests/trace/test_schema.py, tests/inspection/test_report.py, and tests/training/test_run_report.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import Any, ClassVar

from typing_extensions import dataclass_transform

NAMES = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}  # non-finite values: Python's JSON -> ours


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Facts:
    """Values that an operation reports, such as a walk or an inspection."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


def to_json(value: Any) -> str:
    """Encode facts as ASCII JSON; a file name may not be valid Unicode."""
    try:  # the encoder reads dataclasses directly; only non-finite values need `plain`, which is slower
        return json.dumps(value, default=vars, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def plain(value: Any, names: Mapping[str, str] = NAMES) -> Any:
    """Convert dataclasses and tuples to JSON-compatible values. NaN and infinities get their name, or None."""
    return json.loads(json.dumps(value, default=_fields), parse_constant=names.get)


def _fields(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else vars(value)

"""Reads an untrusted config.json: the type and range of every field are checked when it is read.

config.json -> [ConfigReader] -> LayerSpec
- a config is a dict, a `transformers` config object (its `to_dict()`), or a path to config.json or to its folder
- null means "none" for optional things (a padding row, a soft cap); otherwise it is treated as missing
- nothing that a config names is imported or executed
Tested with wrong types and damaged files in tests/families/test_config_reader.py.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inlayer.errors import ConfigError, DtypeError, MissingFileError, type_name
from inlayer.files import file_errors, format_path, read_json

MAX_CONFIG = 16 * 2**20  # bytes; the longest real configs, with quantization lists, stay below 2 MB
MAX_FIELD_SIZE = 2**31 - 1  # rows or channels; a config with more is damaged


def read_config(config: object) -> dict[str, Any]:
    """Return the config as a plain dict."""
    if isinstance(config, (str, Path)):
        return _read_file(Path(config))
    to_dict = getattr(config, "to_dict", None)
    fields = to_dict() if callable(to_dict) else config
    if not isinstance(fields, Mapping):
        wrong = type_name(config)
        raise DtypeError(f"the config is {wrong}; pass a dict, a transformers config, or a path to config.json")
    return dict(fields)


def _read_file(path: Path) -> dict[str, Any]:
    with file_errors(path, "cannot be read as a config path", ConfigError):
        if path.is_dir():
            path = path / "config.json"
        if not path.is_file():
            expected = "a config.json or a folder with one; for a sample or a hub id, use inlayer.load(source).spec"
            raise MissingFileError(f"no config at {format_path(path)}; expected {expected}")
    return read_json(path, MAX_CONFIG, ConfigError, "a config.json")


def short_repr(value: object) -> str:
    """Return a value for a message, shortened even if it is deeply nested."""
    return reprlib.repr(value)


def invalid_error(name: str, value: object, expected: str) -> ConfigError:
    """Return the error for a field with this value."""
    return ConfigError(f"the config's {name} is {short_repr(value)}; expected {expected}")


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise invalid_error(name, value, "a finite number")
    return float(value)


class ConfigReader:
    """A config's fields, under any of their names. Values are checked when read; the family provides defaults."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._config, self._defaults = config, defaults

    def get(self, *names: str) -> tuple[str, Any]:
        """Return the first name with a value in the config or the family's defaults, and the value (None if unset)."""
        for source in (self._config, self._defaults):
            for name in names:
                if source.get(name) is not None:
                    return name, source[name]
        return names[0], None

    def get_or_none(self, *names: str) -> tuple[str, Any]:
        """Like `get`, but null in the config means "none" and overrides the family's default."""
        name, value = self.get(*names)
        return name, None if self.is_null(name) else value

    def __contains__(self, name: str) -> bool:
        """Return whether the config has the field, even with the value null."""
        return name in self._config

    def is_null(self, name: str) -> bool:
        """Return whether the config has the field with the value null."""
        return name in self and self._config[name] is None

    def size(self, *names: str, minimum: int = 1) -> int:
        """Read a required count: rows, channels, heads."""
        size = self.optional_size(*names, minimum=minimum)
        if size is None:
            raise ConfigError(f"the config has no {' / '.join(names)}; the size of the input layer depends on it")
        return size

    def optional_size(self, *names: str, minimum: int = 1) -> int | None:
        name, value = self.get_or_none(*names)
        if value is None:
            return None
        if type(value) is not int or not minimum <= value <= MAX_FIELD_SIZE:
            raise invalid_error(name, value, f"an integer in {minimum}..{MAX_FIELD_SIZE:,}")
        return value

    def index(self, *names: str) -> int | None:
        """Read a token id; a negative id is an old way to write "none"."""
        name, value = self.get_or_none(*names)
        if value is None:
            return None
        if type(value) is not int:
            raise invalid_error(name, value, "an integer or null")
        return value if value >= 0 else None

    def number(self, *names: str, default: float) -> float:
        name, value = self.get(*names)
        return default if value is None else _number(name, value)

    def optional_number(self, *names: str) -> float | None:
        name, value = self.get_or_none(*names)
        return None if value is None else _number(name, value)

    def flag(self, *names: str, default: bool) -> bool:
        name, value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid_error(name, value, "true or false")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        _, value = self.get(name)
        if not isinstance(value, (list, tuple)):
            raise invalid_error(name, value, "a list of numbers")
        return tuple(_number(f"{name}[{index}]", number) for index, number in enumerate(value))

    def mapping(self, name: str) -> dict[str, Any]:
        """Read a nested object; empty if it is missing."""
        _, value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise ConfigError(f"the config's {name} is {type_name(value)}; expected an object of named fields")
        return dict(value)


def text_config(config: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields of the text model, with missing ones filled in from the outer level."""
    outer = config or {}
    nested = outer.get("text_config")
    return outer | nested if isinstance(nested, dict) else outer


def tie_flags(config: dict[str, Any] | None) -> list[Any]:
    """Return the tie flags of a config under both of their names; the outer level comes first and takes precedence."""
    outer = config or {}
    nested = outer.get("text_config")
    levels = (outer, nested if isinstance(nested, dict) else {})
    flags = [level.get(name) for level in levels for name in ("tie_word_embeddings", "tie_embeddings")]
    return [flag for flag in flags if flag is not None]

"""The floor: every error inlayer raises on purpose.

One family, `InlayerError`; each member is also the builtin a Python user would catch. A message says what
is wrong, where, what is allowed, and the likely cause. The command line prints it in one line and exits 2.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DtypeError",
    "IdRangeError",
    "InlayerError",
    "InputError",
    "MissingExtraError",
    "MissingFileError",
    "PositionRangeError",
    "ShapeError",
    "TextError",
    "TokenizerError",
]


class InlayerError(Exception):
    """Anything inlayer refuses to do."""


class InputError(InlayerError, ValueError):
    """Arguments that break a rule of the call."""


class ShapeError(InlayerError, ValueError):
    """A tensor of the wrong rank or size."""


class DtypeError(InlayerError, TypeError):
    """A tensor of the wrong dtype, or something that is no tensor at all."""


class IdRangeError(InlayerError, IndexError):
    """A token id outside its table."""


class PositionRangeError(InlayerError, IndexError, ValueError):
    """A position outside its table. Also a ValueError: a text that is too long is a bad value, not only a bad index."""


class TextError(InlayerError, ValueError):
    """A string that has no UTF-8 bytes: it holds a lone surrogate."""


class ConfigError(InlayerError, ValueError):
    """A model's config that is malformed, contradictory or of an unknown family."""


class TokenizerError(InlayerError, ValueError):
    """A tokenizer file that is malformed or of an unknown kind."""


class CheckpointError(InputError):
    """A checkpoint's file that is malformed, cut short, or changed while it was open."""


class MissingFileError(InlayerError, FileNotFoundError):
    """A file or folder that is not there."""


class MissingExtraError(InlayerError, ImportError):
    """An optional package that is not installed; the message carries the install line."""

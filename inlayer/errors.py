"""Base module: every exception that inlayer raises on purpose.

All of them derive from `InlayerError` and from the builtin exception a Python user would expect. A message is one line:
what is wrong, where, what is allowed, and what to do next. The command line prints it and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class InlayerError(Exception):
    """Base class of all errors that inlayer raises on purpose.

    Example:
        >>> try:
        ...     inlayer.Embeddings(vocab_size=0, n_embd=4)
        ... except inlayer.InlayerError as error:  # this one is also a ValueError
        ...     print(error)
        vocab_size is 0; it must be an integer of at least 1
    """


class InputError(InlayerError, ValueError):
    """An invalid argument, or arguments that contradict each other."""


class ShapeError(InlayerError, ValueError):
    """A tensor with the wrong number of axes or the wrong size."""


class DtypeError(InlayerError, TypeError):
    """A tensor with the wrong dtype, or a value that is not a tensor."""


class IdRangeError(InlayerError, IndexError):
    """A token id outside its table."""


class PositionRangeError(InlayerError, IndexError, ValueError):
    """A position outside its table. Also a ValueError, because a text that is too long is an invalid value."""


class TextError(InlayerError, ValueError):
    """A string that cannot be encoded as UTF-8 because it contains a lone surrogate."""


class ConfigError(InlayerError, ValueError):
    """A config of a model or a training run that is malformed, contradictory, or not supported."""


class TokenizerError(InlayerError, ValueError):
    """A tokenizer file that is malformed or of an unsupported kind."""


class CheckpointError(InputError):
    """A checkpoint file that is malformed, truncated, or modified while it was open."""


class MissingPartError(InputError, AttributeError):
    """A model has no tokenizer or no head; `hasattr` is then false."""


class MissingFileError(InlayerError, FileNotFoundError):
    """A file or folder that does not exist."""


class MissingExtraError(InlayerError, ImportError):
    """An optional package that is not installed; the message contains the install command."""


@contextmanager
def needs_package(feature: str, package: str, install: str, *modules: str) -> Iterator[None]:
    """Turn a failed import of `modules` inside the block into a MissingExtraError: `feature` needs `package`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        raise MissingExtraError(f"{feature} needs {package}: pip install {install}") from None


def needs_torch(feature: str) -> AbstractContextManager[None]:
    """Turn a failed import of torch inside the block into a MissingExtraError saying that `feature` needs torch."""
    return needs_package(feature, "torch", "'inlayer[torch]'", "torch", "jaxtyping")


def type_name(value: object) -> str:
    """Return the type of a value with its article, for a message.

    >>> type_name(3), type_name("a"), type_name(None)
    ('an int', 'a str', 'None')
    """
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeioAEIO' or name == 'ndarray' else 'a'} {name}"

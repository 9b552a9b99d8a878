"""Caching for methods: like `functools.lru_cache`, but with one cache per object, which is freed with it.

Used by trace/pipeline.py. Tested in tests/trace/test_pipeline.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")
Method = Callable[Concatenate[S, P], T]


def cached(maxsize: int) -> Callable[[Method[S, P, T]], Method[S, P, T]]:
    """Keep the results of the last `maxsize` different calls of a method."""

    def decorate(method: Method[S, P, T]) -> Method[S, P, T]:
        name = f"_{method.__name__}_cache"

        @wraps(method)
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            cache: Any = vars(self).get(name)
            if cache is None:
                cache = vars(self).setdefault(name, lru_cache(maxsize)(partial(method, self)))
            result: T = cache(*args, **kwargs)
            return result

        return call

    return decorate

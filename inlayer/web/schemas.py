"""What a request asks for, checked: bytes or a query in, a frozen question out.

- a question is hashable and holds every argument: it is the key of the answer it gets
- a stranger's JSON: no NaN, no infinity, no key twice, no field that is not known, no depth that Python cannot follow
- limits are on what is asked for, before any of it is done; `Limits` holds them all, openapi.py shows them
- not here: what only the model knows, such as which ids it has; there the library's own errors answer
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NoReturn, TypeVar
from urllib.parse import parse_qsl

from inlayer.errors import InputError
from inlayer.paths import quoted

__all__ = [
    "POSITIONS",
    "TOKEN",
    "Field",
    "InitializationAsked",
    "Limits",
    "RefusedError",
    "TokenAsked",
    "WalkAsked",
    "check_texts",
    "read_fields",
    "read_pairs",
    "read_query",
    "read_walk",
]

POSITIONS = ("none", "learned", "sinusoidal", "rotary")
TOKEN = "token"  # the field of a query that the guard reads; no question has it

NAMES = {"string": "a string", "integer": "an integer", "boolean": "true or false"}

Question = TypeVar("Question", "TokenAsked", "InitializationAsked")


class RefusedError(Exception):
    """An answer that is no answer: an HTTP status and one line that says why."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most that one request may ask for."""

    body: int = 262_144  # bytes
    texts: int = 16
    characters: int = 16_384  # of all texts together
    dims: int = 512
    tokens: int = 1_024
    places: int = 1_024  # texts x tokens: the work
    values: int = 32_768  # texts x tokens x dims: the size of the answer
    pad: int = 64
    theta: float = 1e12
    k: int = 64
    integer: int = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class WalkAsked:
    """`POST /api/walk`."""

    texts: tuple[str, ...]
    model: str | None = None  # the first that was named at start
    dims: int = 8
    tokens: int = 64
    positions: str | None = None
    theta: float | None = None
    swap: tuple[int, int] | None = None
    pad: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenAsked:
    """`GET /api/token`."""

    id: int
    model: str | None = None
    k: int = 8


@dataclass(frozen=True, kw_only=True)
class InitializationAsked:
    """`GET /api/initialization`."""

    model: str | None = None
    seed: int = 0
    dims: int = 8


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a question: what it is, whether it has to be there, what it is when it is not."""

    kind: Literal["string", "integer", "boolean"] = "string"
    needed: bool = True
    default: str | int | bool | None = None
    example: str | int | bool = ""
    most: int = 2**31 - 1  # of an integer


def read_walk(body: bytes, limits: Limits) -> WalkAsked:
    """The question in the body of a request."""
    said = _object(body)
    known = [field.name for field in fields(WalkAsked)]
    _only_known(said, known)
    if "texts" not in said:
        raise InputError('texts is missing; send {"texts": ["I love dogs"]}')
    texts = check_texts(said.pop("texts"), limits)
    checks: dict[str, Callable[[Any], Any]] = {
        "model": lambda value: _string("model", value),
        "dims": lambda value: _integer("dims", value, 1, limits.dims),
        "tokens": lambda value: _integer("tokens", value, 1, limits.tokens),
        "positions": lambda value: _choice("positions", value, POSITIONS),
        "theta": lambda value: _number("theta", value, limits.theta),
        "swap": lambda value: _pair("swap", value, limits.integer),
        "pad": lambda value: _integer("pad", value, 0, limits.pad),
    }
    optional = {"model", "positions", "theta", "swap"}
    asked = WalkAsked(
        texts=texts,
        **{name: checks[name](value) for name, value in said.items() if not (value is None and name in optional)},
    )
    if (places := len(texts) * asked.tokens) > limits.places:
        raise InputError(
            f"texts x tokens is {len(texts)} x {asked.tokens} = {places:,}; "
            f"at most {limits.places:,} are walked at once"
        )
    if (values := len(texts) * asked.tokens * asked.dims) > limits.values:
        raise InputError(
            f"texts x tokens x dims is {len(texts)} x {asked.tokens} x {asked.dims} = {values:,}; "
            f"at most {limits.values:,} are answered at once"
        )
    return asked


def read_query(query: bytes, question: type[Question], limits: Limits) -> Question:
    """The question in the query of an address."""
    said = read_pairs(query)
    known = [field.name for field in fields(question)]
    _only_known(said, known)
    if "id" in known and "id" not in said:
        raise InputError("id is missing; ask with ?id=0")
    ranges = {
        "id": (-limits.integer, limits.integer),  # the library says what the table has
        "k": (1, limits.k),
        "seed": (0, limits.integer),
        "dims": (1, limits.dims),
    }
    checked: dict[str, Any] = {
        name: value if name == "model" else _digits(name, value, *ranges[name]) for name, value in said.items()
    }
    return question(**checked)


def read_pairs(query: bytes) -> dict[str, str]:
    """The names and values of a query, without the token."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:  # UnicodeDecodeError is one too
        raise InputError("the query of the address is no list of name=value in UTF-8") from None
    said: dict[str, str] = {}
    for name, value in pairs:
        if name in said:
            raise InputError(f"{quoted(name)} is there twice; give it once")
        said[name] = value
    said.pop(TOKEN, None)
    return said


def read_fields(given: bytes, known: Mapping[str, Field], *, query: bool) -> dict[str, Any]:
    """The fields of a question, in a query or in the JSON of a body; one that is left out has its default."""
    example = {name: kind.example for name, kind in known.items() if kind.needed}
    said: dict[str, Any] = dict(read_pairs(given)) if query else _object(given, json.dumps(example))
    _only_known(said, list(known))
    return {name: _field(name, said.get(name), kind, query=query) for name, kind in known.items()}


def _field(name: str, value: Any, field: Field, *, query: bool) -> Any:
    if value is None:
        if field.needed:
            raise InputError(f"{name} is missing; it is {NAMES[field.kind]}, such as {json.dumps(field.example)}")
        return field.default
    if field.kind == "integer":
        return _digits(name, value, 0, field.most) if query else _integer(name, value, 0, field.most)
    if type(value) is not (str if field.kind == "string" else bool):
        raise InputError(f"{name} is {_kind(value)}; it is {NAMES[field.kind]}")
    return value


def _object(body: bytes, example: str = '{"texts": ["I love dogs"]}') -> dict[str, Any]:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}") from None
    try:
        said = json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InputError(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise InputError("the body is nested too deeply") from None
    except InputError:
        raise
    except ValueError:  # Python's own limit on the digits of a number
        raise InputError("the body holds a number of too many digits") from None
    if not isinstance(said, dict):
        raise InputError(f"the body is JSON, but no object; send {example}")
    return said


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{quoted(twice)} is there twice; give it once")
    return made


def _no_constant(name: str) -> NoReturn:
    raise InputError(f"the body holds {name}, which JSON does not have")


def _only_known(said: dict[str, Any], known: Sequence[str]) -> None:
    for name in said:
        if name not in known:
            raise InputError(f"{quoted(name)} is not known here; known are {', '.join(known)}")


def check_texts(value: Any, limits: Limits) -> tuple[str, ...]:
    """The texts of a walk: at least one, and no more than this server walks."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError('texts is no list of strings; send {"texts": ["I love dogs"]}')
    if not 1 <= len(value) <= limits.texts:
        raise InputError(f"{len(value)} texts; between 1 and {limits.texts} make a batch here")
    if (characters := sum(map(len, value))) > limits.characters:
        raise RefusedError(
            413, f"the texts have {characters:,} characters; at most {limits.characters:,} are walked here"
        )
    return tuple(value)


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} is {_kind(value)}; it is a string")
    return value


def _choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    if value not in allowed or not isinstance(value, str):
        raise InputError(f"{name} is {quoted(value)}; it is one of {', '.join(allowed)}, or null")
    return value


def _integer(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, float) and value.is_integer():  # JSON does not tell 8.0 from 8
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} is {_kind(value)}; it is an integer in {least}..{most}")
    if not least <= value <= most:
        raise InputError(f"{name} is {_short(value)}; it is in {least}..{most}")
    return value


def _number(name: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} is {_kind(value)}; it is a number above 0, or null")
    if not 0 < value <= most or not math.isfinite(value):
        raise InputError(f"{name} is {_short(value)}; it is above 0 and at most {most:g}")
    return float(value)


def _pair(name: str, value: Any, most: int) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{name} is {_kind(value)}; it is two places of tokens, such as [0, 2], or null")
    first, second = (_integer(name, place, 0, most) for place in value)
    return first, second


def _digits(name: str, text: str, least: int, most: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        raise InputError(f"{name} is {quoted(text)}; it is an integer")
    return _integer(name, int(text), least, most)


def _kind(value: Any) -> str:
    names = {bool: "a boolean", str: "a string", list: "a list", dict: "an object", float: "no whole number"}
    return "null" if value is None else names.get(type(value), "a number")


def _short(value: int | float) -> str:
    return str(value) if not isinstance(value, int) or abs(value) < 10**20 else "a very large number"

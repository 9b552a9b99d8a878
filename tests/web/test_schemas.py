"""Bad requests: each gets its status and one line that says what was wrong and what is right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inlayer.trace import Pipeline
from inlayer.web.schemas import Limits
from tests.web.client import Place, running

LIMITS = Limits()
HI: dict[str, Any] = {"texts": ["Hi"]}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON: Expecting property name"),
        (b'{"texts": ["Hi"]} x', "Extra data at character 18"),
        (b'\xef\xbb\xbf{"texts": ["Hi"]}', "not JSON"),
        (b'{"texts": ["\xff"]}', "not UTF-8: byte 12 is 0xff"),
        (b'{"texts": ["Hi"]}'.decode().encode("utf-16"), "not UTF-8"),
        (b'{"texts": ["a\nb"]}', "Invalid control character"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 40_000, "nested too deeply"),
        (b'{"texts": ["Hi"], "theta": NaN}', "holds NaN"),
        (b'{"texts": ["Hi"], "theta": -Infinity}', "holds -Infinity"),
        (b'{"texts": ["Hi"], "theta": 1e999}', "theta is inf"),
        (b'{"texts": ["Hi"], "dims": ' + b"9" * 5_000 + b"}", "too many digits"),
        (b'{"texts": ["Hi"], "dims": ' + b"9" * 4_000 + b"}", "dims is a very large number; it is in 1..512"),
        (b'{"texts": ["Hi"], "texts": ["Ho"]}', "'texts' is there twice"),
        (b'"texts"', "no object"),
        (b"null", "no object"),
    ],
)
def test_damaged_json(place: Place, body: bytes, says: str) -> None:
    answer = place.ask("/api/walk", body)
    assert answer.status == 400
    assert says in answer.error


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({}, "texts is missing"),
        ({"text": "Hi"}, "'text' is not known here; known are texts, model, dims, tokens"),
        ({**HI, "bo\ngus": 1}, "'bo\\ngus' is not known"),
        ({"texts": "Hi"}, "no list of strings"),
        ({"texts": ["Hi", 1]}, "no list of strings"),
        ({"texts": None}, "no list of strings"),
        ({"texts": []}, "0 texts; between 1 and 16"),
        ({"texts": ["Hi"] * 17}, "17 texts; between 1 and 16"),
        ({**HI, "model": "no/such"}, "model is 'no/such'; those named when the server started are 'default'"),
        ({**HI, "model": "../../etc/passwd"}, "those named when the server started"),
        ({**HI, "model": "minilm"}, "those named when the server started"),  # a sample, but not named at start
        ({**HI, "model": ""}, "those named when the server started"),
        ({**HI, "model": 1}, "model is a number; it is a string"),
        ({**HI, "dims": 0}, "dims is 0; it is in 1..512"),
        ({**HI, "dims": 513}, "dims is 513; it is in 1..512"),
        ({**HI, "dims": True}, "dims is a boolean; it is an integer in 1..512"),
        ({**HI, "dims": 8.5}, "dims is no whole number"),
        ({**HI, "dims": "8"}, "dims is a string"),
        ({**HI, "dims": None}, "dims is null"),
        ({**HI, "tokens": 1_025}, "tokens is 1025; it is in 1..1024"),
        ({**HI, "tokens": -1}, "tokens is -1"),
        ({**HI, "tokens": 2**70}, "tokens is a very large number"),
        ({**HI, "tokens": 1_024, "dims": 512}, "texts x tokens x dims is 1 x 1024 x 512 = 524,288; at most 32,768"),
        ({"texts": ["Hi"] * 2, "tokens": 513}, "texts x tokens is 2 x 513 = 1,026; at most 1,024 are walked at once"),
        ({**HI, "positions": "up"}, "positions is 'up'; it is one of none, learned, sinusoidal, rotary"),
        ({**HI, "positions": ["none"]}, "positions is ['none']"),
        ({**HI, "positions": {"a": "x" * 1_000}}, "positions is {"),
        ({**HI, "theta": 0}, "theta is 0; it is above 0"),
        ({**HI, "theta": -1.5}, "theta is -1.5"),
        ({**HI, "theta": 1e13}, "at most 1e+12"),
        ({**HI, "theta": True}, "theta is a boolean"),
        ({**HI, "theta": "10000"}, "theta is a string"),
        ({**HI, "swap": 1}, "swap is a number; it is two places"),
        ({**HI, "swap": [1]}, "swap is a list; it is two places"),
        ({**HI, "swap": [0, 1, 2]}, "two places"),
        ({**HI, "swap": [0, True]}, "swap is a boolean"),
        ({**HI, "swap": [-1, 0]}, "swap is -1"),
        ({**HI, "swap": [0, 99]}, "99"),  # this text has no such token: the library says so
        ({**HI, "pad": 65}, "pad is 65; it is in 0..64"),
        ({**HI, "pad": 1.5}, "pad is no whole number"),
        ({"texts": ["\ud800"]}, "lone surrogate"),
    ],
)
def test_bad_values(place: Place, said: Any, says: str) -> None:
    answer = place.ask("/api/walk", said)
    assert answer.status == 400
    assert says in answer.error
    assert len(answer.error) < 300


@pytest.mark.parametrize(
    "said",
    [
        HI,
        {"texts": [""]},
        {"texts": ["Hi"] * 16},
        {**HI, "model": None, "positions": None, "theta": None, "swap": None},
        {**HI, "dims": 8.0},  # JSON does not tell it from 8
        {**HI, "dims": 512},
        {**HI, "tokens": 1_024, "dims": 32},
        {"texts": ["Hi"] * 2, "tokens": 512},
        {**HI, "pad": 64},
        {**HI, "positions": "rotary", "theta": 1},
        {"texts": ["I love dogs"], "swap": [0, 1], "pad": 1, "positions": "none"},
    ],
)
def test_the_edges_of_what_is_allowed(place: Place, said: Any) -> None:
    assert place.ask("/api/walk", said).status == 200


def test_texts_have_a_size(place: Place) -> None:
    half = "x" * (LIMITS.characters // 2)
    assert place.ask("/api/walk", {"texts": [half, half]}).status == 200
    answer = place.ask("/api/walk", {"texts": [half, half + "x"]})
    assert answer.status == 413
    assert "the texts have 16,385 characters; at most 16,384" in answer.error


def test_a_body_has_a_size(place: Place) -> None:
    body = json.dumps(HI).encode()
    assert place.ask("/api/walk", body.ljust(LIMITS.body)).status == 200
    answer = place.ask("/api/walk", body.ljust(LIMITS.body + 1))
    assert answer.status == 413
    assert "larger than 262,144 bytes" in answer.error


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/token", "id is missing"),
        ("/api/token?id=", "id is ''; it is an integer"),
        ("/api/token?id=x", "id is 'x'"),
        ("/api/token?id=1.0", "id is '1.0'"),
        ("/api/token?id=%EF%BC%91", "it is an integer"),  # a digit, but not of ASCII
        ("/api/token?id=1_0", "id is '1_0'"),
        ("/api/token?id=+1", "it is an integer"),
        ("/api/token?id=" + "9" * 5_000, "it is an integer"),
        ("/api/token?id=99999999999999999999", "id is"),
        ("/api/token?id=-1", "id -1 is outside 0..6143"),
        ("/api/token?id=6144", "id 6144 is outside 0..6143"),
        ("/api/token?id=1&k=0", "k is 0; it is in 1..64"),
        ("/api/token?id=1&k=65", "k is 65; it is in 1..64"),
        ("/api/token?id=1&id=2", "'id' is there twice"),
        ("/api/token?id=1&model=nope", "model is 'nope'"),
        ("/api/token?id=1&dims=8", "'dims' is not known here; known are id, model, k"),
        ("/api/token?id=%ff", "no list of name=value in UTF-8"),
        ("/api/token?id", "no list of name=value"),
        ("/api/token?id=1&" + "&".join(f"a{n}=1" for n in range(500)), "'a0' is not known"),
        ("/api/initialization?seed=-1", "seed is -1; it is in 0.."),
        ("/api/initialization?seed=9223372036854775808", "seed is 9223372036854775808"),
        ("/api/initialization?dims=0", "dims is 0"),
        ("/api/initialization?id=1", "'id' is not known here; known are model, seed, dims"),
    ],
)
def test_bad_queries(place: Place, path: str, says: str) -> None:
    answer = place.ask(path)
    assert answer.status == 400
    assert says in answer.error


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/no/such", 404, "nothing is at '/no/such'"),
        ("GET", "/api/models/", 404, "nothing is at"),  # no redirect: it would repeat the token
        ("GET", "/api/../etc/passwd", 404, "nothing is at"),
        ("GET", "/..%2f..%2fetc%2fpasswd", 404, "nothing is at"),
        ("GET", "//evil.example/", 404, "nothing is at"),
        ("GET", "/a%0d%0ab", 404, "nothing is at"),
        ("GET", "/" + "x" * 2_000, 404, "nothing is at"),
        ("GET", "/api/walk", 405, "'GET' is not for '/api/walk'; it takes POST"),
        ("POST", "/api/models", 405, "'POST' is not for"),
        ("OPTIONS", "/api/walk", 405, "'OPTIONS' is not for"),
        ("DELETE", "/", 405, "'DELETE' is not for"),
        ("TRACE", "/", 405, "'TRACE' is not for"),
    ],
)
def test_not_here(place: Place, method: str, path: str, status: int, says: str) -> None:
    answer = place.ask(path, method=method)
    assert answer.status == status
    assert says in answer.error
    assert (answer.headers["Allow"] is not None) == (status == 405)


def test_what_breaks_inside_says_nothing_of_it(line: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Pipeline):
        def walk(self, *_: Any, **__: Any) -> Any:
            raise OSError("/secret/path is gone")

    broken = Broken.__new__(Broken)
    broken.__dict__.update(line.__dict__)
    with running({"default": broken}) as (place, _):
        answer = place.ask(f"/api/walk?token={place.token}", HI)
        assert place.ask("/api/models").status == 200
    assert answer.status == 500
    assert answer.error == "something went wrong here; the server's own output says what"
    assert "POST /api/walk failed" in caplog.text
    assert "/secret/path is gone" in caplog.text  # stderr has it
    assert place.token not in caplog.text

"""Bad requests get status 400 and one line that says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inlayer.trace import Pipeline
from inlayer.web.request_body import MAX_BODY
from inlayer.web.schemas import MAX_CHARACTERS
from tests.web.client import Client, running

HI: dict[str, Any] = {"texts": ["Hi"]}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "required"),
        (b"{", "not valid JSON"),
        (b'{"texts": ["Hi"]} x', "not valid JSON: trailing characters"),
        (b'{"texts": ["\xff"]}', "not valid JSON: invalid unicode code point"),
        (b'{"texts": ["a\nb"]}', "not valid JSON: control character"),
        (b"[" * 60_000, "not valid JSON: recursion limit exceeded"),
        (b'{"a":' * 16_000, "not valid JSON: recursion limit exceeded"),
        (b'{"texts": ["Hi"], "theta": NaN}', "theta:"),
        (b'{"texts": ["Hi"], "theta": -Infinity}', "theta:"),
        (b'{"texts": ["Hi"], "theta": 1e999}', "theta:"),
        (b'{"texts": ["Hi"], "dims": ' + b"9" * 5_000 + b"}", "not valid JSON: number out of range"),
        (b'{"texts": ["Hi"], "dims": ' + b"9" * 4_000 + b"}", "dims: must be less than or equal to 512"),
        (b'"texts"', "valid dictionary"),
        (b"null", "valid dictionary"),
    ],
)
def test_invalid_json(client: Client, body: bytes, error: str) -> None:
    response = client.send("/api/walk", body)
    assert response.status == 400
    assert error in response.error


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "texts: Field required"),
        ({**HI, "text": "Hi"}, "unknown field 'text'"),
        ({**HI, "bo\ngus": 1}, "unknown field 'bo\\ngus'"),
        ({"texts": "Hi"}, "texts: must be a valid list"),
        ({"texts": ["Hi", 1]}, "texts.1: must be a valid string"),
        ({"texts": None}, "texts: must be a valid list"),
        ({"texts": []}, "texts: must have at least 1 item"),
        ({"texts": ["Hi"] * 17}, "texts: must have at most 16 items"),
        ({**HI, "model": "no/such"}, "model 'no/such' is not served here; available models: 'default'"),
        ({**HI, "model": "../../etc/passwd"}, "is not served here"),
        ({**HI, "model": "minilm"}, "is not served here"),  # a sample, but not specified at startup
        ({**HI, "model": ""}, "is not served here"),
        ({**HI, "model": 1}, "model: must be a valid string"),
        ({**HI, "dims": 0}, "dims: must be greater than or equal to 1 (got 0)"),
        ({**HI, "dims": 513}, "dims: must be less than or equal to 512 (got 513)"),
        ({**HI, "dims": True}, "dims: must be a valid integer"),
        ({**HI, "dims": 8.5}, "dims: must be a valid integer"),
        ({**HI, "dims": "8"}, "dims: must be a valid integer"),
        ({**HI, "dims": None}, "dims: must be a valid integer"),
        ({**HI, "max_tokens": 1_025}, "max_tokens: must be less than or equal to 1024"),
        ({**HI, "max_tokens": 2**70}, "max_tokens: must be less than or equal to 1024"),
        (
            {**HI, "max_tokens": 1_024, "dims": 512},
            "texts x max_tokens x dims (1 x 1024 x 512): 524,288 is more than the limit",
        ),
        (
            {"texts": ["Hi"] * 2, "max_tokens": 513},
            "texts x max_tokens (2 x 513): 1,026 is more than the limit of 1,024",
        ),
        ({**HI, "positions": "up"}, "positions: must be 'none', 'learned', 'sinusoidal' or 'rotary'"),
        ({**HI, "positions": ["none"]}, "positions: must be"),
        ({**HI, "theta": 0}, "theta: must be greater than 0"),
        ({**HI, "theta": 1e13}, "theta: must be less than or equal to 1,000,000,000,000"),
        ({**HI, "theta": True}, "theta: must be a valid number"),
        ({**HI, "swap": 1}, "swap: must be a valid list"),
        ({**HI, "swap": [1]}, "swap: must have at least 2 items"),
        ({**HI, "swap": [0, 1, 2]}, "swap: must have at most 2 items"),
        ({**HI, "swap": [-1, 0]}, "swap.0: must be greater than or equal to 0"),
        ({**HI, "swap": [0, 99]}, "99"),  # this text has no such token: an error of the library
        ({**HI, "pad": 65}, "pad: must be less than or equal to 64"),
        ({"texts": ["\ud800"]}, "does it contain a lone surrogate?"),
    ],
)
def test_invalid_values(client: Client, body: Any, error: str) -> None:
    response = client.send("/api/walk", body)
    assert response.status == 400
    assert error in response.error
    assert len(response.error) < 300


@pytest.mark.parametrize(
    "body",
    [
        HI,
        {"texts": [""]},
        {"texts": ["Hi"] * 16},
        {**HI, "model": None, "positions": None, "theta": None, "swap": None},
        {**HI, "dims": 512},
        {**HI, "max_tokens": 1_024, "dims": 32},
        {"texts": ["Hi"] * 2, "max_tokens": 512},
        {**HI, "pad": 64},
        {**HI, "positions": "rotary", "theta": 1},
        {"texts": ["I love dogs"], "swap": [0, 1], "pad": 1, "positions": "none"},
    ],
)
def test_limits_are_inclusive(client: Client, body: Any) -> None:
    assert client.send("/api/walk", body).status == 200


def test_texts_and_bodies_are_limited(client: Client) -> None:
    half = "x" * (MAX_CHARACTERS // 2)
    assert client.send("/api/walk", {"texts": [half, half]}).status == 200
    assert (
        "the texts have 16,385 characters; the limit is 16,384; `inlayer walk --file`"
        in client.send("/api/walk", {"texts": [half, half + "x"]}).error
    )
    body = json.dumps(HI).encode()
    assert client.send("/api/walk", body.ljust(MAX_BODY)).status == 200
    response = client.send("/api/walk", body.ljust(MAX_BODY + 1))
    assert response.status == 413
    assert "larger than 262,144 bytes" in response.error


def test_a_body_of_many_keys_is_rejected_in_linear_time(client: Client) -> None:
    """A quadratic check of repeated keys once blocked the server for half a minute; an error per key takes seconds."""
    keys = ",".join(f'"k{n}":1' for n in range(16_000)) + ',"k15999":1'
    body = ('{"texts":["Hi"],' + keys + "}").encode()
    assert client.send("/api/walk", body).error == "the body has 16,001 fields; at most 1,024 are allowed"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/api/token", "id: Field required"),
        ("/api/token?id=", "id: must be a valid integer"),
        ("/api/token?id=x", "id: must be a valid integer"),
        ("/api/token?id=1.5", "id: must be a valid integer"),
        ("/api/token?id=" + "9" * 5_000, "id:"),
        ("/api/token?id=99999999999999999999", "id: must be less than or equal to"),
        ("/api/token?id=-1", "id -1 is outside 0..6143"),
        ("/api/token?id=6144", "id 6144 is outside 0..6143"),
        ("/api/token?id=1&k=0", "k: must be greater than or equal to 1"),
        ("/api/token?id=1&k=65", "k: must be less than or equal to 64"),
        ("/api/token?id=1&model=nope", "model 'nope' is not served here"),
        ("/api/token?id=1&dims=8", "unknown field 'dims'"),
        ("/api/token?id=%ff", "id: must be a valid integer"),
        ("/api/token?id=1&" + "&".join(f"a{n}=1" for n in range(500)), "unknown field 'a0'"),
        ("/api/initialization?seed=-1", "seed: must be greater than or equal to 0"),
        ("/api/initialization?seed=9223372036854775808", "seed: must be less than or equal to"),
        ("/api/initialization?dims=0", "dims: must be"),
        ("/api/initialization?id=1", "unknown field 'id'"),
    ],
)
def test_invalid_queries(client: Client, path: str, error: str) -> None:
    response = client.send(path)
    assert response.status == 400
    assert error in response.error


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/no/such", 404, "'/no/such' does not exist"),
        ("GET", "/api/models/", 404, "does not exist"),  # no redirect: it would repeat the token
        ("GET", "/api/../etc/passwd", 404, "does not exist"),
        ("GET", "/..%2f..%2fetc%2fpasswd", 404, "does not exist"),
        ("GET", "//evil.example/", 404, "does not exist"),
        ("GET", "/a%0d%0ab", 404, "does not exist"),
        ("GET", "/" + "x" * 2_000, 404, "does not exist"),
        ("GET", "/api/walk", 405, "'/api/walk' does not accept 'GET'; use POST"),
        ("OPTIONS", "/api/walk", 405, "does not accept 'OPTIONS'"),
    ],
)
def test_unknown_routes_and_methods(client: Client, method: str, path: str, status: int, error: str) -> None:
    response = client.send(path, method=method)
    assert response.status == status
    assert error in response.error
    assert (response.headers["Allow"] is not None) == (status == 405)


def test_an_internal_error_reveals_nothing(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Pipeline):
        def walk(self, *_: Any, **__: Any) -> Any:
            raise OSError("/secret/path is gone")

    broken = Broken.__new__(Broken)
    broken.__dict__.update(pipeline.__dict__)
    with running({"default": broken}) as client:
        response = client.send(f"/api/walk?token={client.token}", HI)
        assert client.send("/api/models").status == 200
    assert response.status == 500
    assert response.error == "an internal error occurred; the server's stderr has the details"
    assert "POST /api/walk failed" in caplog.text
    assert "/secret/path is gone" in caplog.text  # stderr has it
    assert client.token not in caplog.text

"""The API returns what the library returns, documents itself, and serves many clients at once."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from benchmarks.serve import text_of
from inlayer.facts_base import plain, to_json
from inlayer.trace import Change, Pipeline
from inlayer.trace.facts import NeighborFacts
from inlayer.trace.token_facts import describe_token, initialize
from inlayer.web.worker_threads import as_json
from tests.web.client import TIMEOUT, Client, running

CLIENTS = 50


@pytest.fixture(scope="module")
def openapi(client: Client) -> Any:
    return client.send("/api/openapi.json").json


def validate(openapi: Any, schema: str, value: Any) -> None:
    """Raise if the value does not match the documented schema."""
    document = {"$ref": f"#/components/schemas/{schema}", "components": openapi["components"]}
    Draft202012Validator(document).validate(value)


@pytest.mark.parametrize(
    ("body", "change"),
    [
        ({"texts": ["I love dogs"]}, Change()),
        ({"texts": ["I love dogs", "naïve 🙂"], "dims": 3, "max_tokens": 2}, Change()),
        ({"texts": ["I love dogs"], "positions": "rotary", "theta": 100}, Change(positions="rotary", theta=100.0)),
        ({"texts": ["I love dogs"], "swap": [1, 2], "pad": 1}, Change(swap=(1, 2), pad=1)),
        ({"texts": ["I love dogs"], "positions": "none"}, Change(positions="none")),
    ],
)
def test_walk_equals_the_library(client: Client, pipeline: Pipeline, openapi: Any, body: Any, change: Change) -> None:
    theirs = client.send("/api/walk", body).json
    ours = pipeline.walk(body["texts"], dims=body.get("dims", 8), max_tokens=body.get("max_tokens", 64), change=change)
    assert theirs == ours.to_dict()
    validate(openapi, "WalkRequest", body)
    validate(openapi, "Trace", theirs)


def test_token_initialization_and_models_equal_the_library(client: Client, pipeline: Pipeline, openapi: Any) -> None:
    token = client.send("/api/token?id=500&k=3&model=default").json
    initialization = client.send("/api/initialization?seed=7&dims=2").json
    models = client.send("/api/models").json
    assert token == plain(describe_token(pipeline, 500, k=3))
    assert initialization == plain(initialize(pipeline, seed=7, dims=2))
    assert models == {"models": [plain(pipeline.facts())]}
    validate(openapi, "TokenFacts", token)
    validate(openapi, "ModelList", models)


def test_models_are_addressed_by_name(pipeline: Pipeline) -> None:
    with running({"first": pipeline, "other": pipeline}) as client:
        assert [model["name"] for model in client.send("/api/models").json["models"]] == ["first", "other"]
        default = client.send("/api/walk", {"texts": ["Hi"]})
        named = client.send("/api/walk", {"texts": ["Hi"], "model": "first"})
        assert default.json == named.json
        assert "'first', 'other'" in client.send("/api/walk", {"texts": ["Hi"], "model": "third"}).error


NUMBERS = [1e-06, 5e-324, 0.1, -0.0, 2.0**-149, 1e16, 123456789012345680.0, 1.7976931348623157e308]


def test_json_has_no_nan_and_is_ascii() -> None:
    values = [NeighborFacts(id=1, label="x", cosine=value) for value in (1.5, float("nan"), float("-inf"))]
    assert [one["cosine"] for one in json.loads(to_json(values))] == [1.5, "nan", "-inf"]
    facts = [Change(positions="\ud800 🙂", swap=(1, 2)), *values]
    assert to_json(facts).isascii()
    assert json.loads(to_json(facts)) == plain(facts)
    # The server's own writer: valid Unicode, a lone surrogate, each non-finite value, small and large numbers.
    given = [facts[:1], values, values[1:2], [Change(positions="NaN 🙂")], [Change(theta=value) for value in NUMBERS]]
    for one in given:
        assert json.loads(as_json(one)) == plain(one)
    assert as_json(given[-2:]) != to_json(given[-2:]).encode()  # control: it is another writer


# ---- OpenAPI


def test_openapi_document_is_valid(openapi: Any) -> None:
    assert openapi["openapi"].startswith("3.1")
    for schema in openapi["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    known = {f"#/components/schemas/{name}" for name in openapi["components"]["schemas"]}
    referenced = set(references(openapi))
    assert referenced <= known
    assert "#/components/schemas/Trace" in referenced
    assert {"/api/models", "/api/walk", "/api/token", "/api/initialization", "/api/course"} <= set(openapi["paths"])


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in references(item)]
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in references(item)]
    return []


def test_openapi_validation_can_fail(client: Client, openapi: Any) -> None:
    trace = client.send("/api/walk", {"texts": ["Hi"]}).json
    for damage in ({"shape": "no"}, {"texts": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            validate(openapi, "Trace", trace | damage)
    for body in ({}, {"texts": ["Hi"], "dims": 0}, {"texts": ["Hi"], "swap": [1]}, {"texts": ["Hi"], "x": 1}):
        with pytest.raises(jsonschema.ValidationError):
            validate(openapi, "WalkRequest", body)


# ---- many clients


@pytest.mark.slow
def test_fifty_clients_each_get_their_own_response(client: Client, pipeline: Pipeline) -> None:
    """All send at the same moment, twice each, on connections they keep open."""
    start = threading.Barrier(CLIENTS)

    def send(number: int) -> list[tuple[str, Any]]:
        connection = http.client.HTTPConnection(client.host, client.port, timeout=TIMEOUT)
        headers = {"Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}
        received = []
        start.wait(TIMEOUT)
        for turn in range(2):
            text = text_of(number, turn)
            connection.request("POST", "/api/walk", json.dumps({"texts": [text], "dims": 4}), headers)
            response = connection.getresponse()
            assert response.status == 200
            received.append((text, json.loads(response.read())))
        connection.close()
        return received

    with ThreadPoolExecutor(CLIENTS) as pool:
        received = [pair for pairs in pool.map(send, range(CLIENTS)) for pair in pairs]
    assert len({text for text, _ in received}) == 2 * CLIENTS
    for text, trace in received[::10]:
        assert trace == pipeline.walk([text], dims=4, max_tokens=64).to_dict()
    assert all(trace["texts"][0]["text"] == text for text, trace in received)


def test_a_full_queue_is_reported(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.web.app.QUEUE", 0)
    with running({"default": pipeline}) as client:
        response = client.send("/api/walk", {"texts": ["Hi"]})
        assert response.status == 503
        assert "are already waiting" in response.error
        assert response.headers["Retry-After"] == "1"
        assert client.send("/").status == 200  # needs no thread

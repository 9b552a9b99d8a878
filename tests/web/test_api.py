"""The API tells what the library tells, describes itself in full, and does so for many at once."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from benchmarks.serve import text_of
from inlayer.trace import Change, Pipeline
from inlayer.trace.facts import NeighborFacts, plain
from inlayer.web.api import encode
from inlayer.web.learn import ADDRESSES, Asking
from tests.web.client import PATIENCE, Place, running

CLIENTS = 50


@pytest.fixture(scope="module")
def description(place: Place) -> Any:
    return place.ask("/api/openapi.json").json


def validate(description: Any, schema: str, value: Any) -> None:
    """Raise where the value is not as described."""
    whole = {"$ref": f"#/components/schemas/{schema}", "components": description["components"]}
    Draft202012Validator(whole).validate(value)


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ({"texts": ["I love dogs"]}, Change()),
        ({"texts": ["I love dogs", "naïve 🙂"], "dims": 3, "tokens": 2}, Change()),
        ({"texts": ["I love dogs"], "positions": "rotary", "theta": 100}, Change(positions="rotary", theta=100.0)),
        ({"texts": ["I love dogs"], "swap": [1, 2], "pad": 1}, Change(swap=(1, 2), pad=1)),
        ({"texts": ["I love dogs"], "positions": "none"}, Change(positions="none")),
    ],
)
def test_a_walk_is_the_librarys(place: Place, line: Pipeline, description: Any, said: Any, change: Change) -> None:
    theirs = place.ask("/api/walk", said).json
    ours = line.walk(said["texts"], dims=said.get("dims", 8), tokens=said.get("tokens", 64), change=change)
    assert theirs == ours.to_dict()
    validate(description, "Walk", said)
    validate(description, "Trace", theirs)


def test_tokens_initialization_and_models_equal_the_library(place: Place, line: Pipeline, description: Any) -> None:
    token, initialization = (
        place.ask("/api/token?id=500&k=3&model=default").json,
        place.ask("/api/initialization?seed=7&dims=2").json,
    )
    models = place.ask("/api/models").json
    assert token == plain(line.token(500, k=3))
    assert initialization == plain(line.initialization(seed=7, dims=2))
    assert models == {"models": [plain(line.facts())]}
    validate(description, "TokenFacts", token)
    validate(description, "InitializationFacts", initialization)
    validate(description, "Models", models)


def test_an_answer_is_kept_under_all_of_its_question(line: Pipeline) -> None:
    base = {"texts": ["I love dogs"], "positions": "rotary"}
    others: list[dict[str, Any]] = [
        {}, {"texts": ["I love cats"]}, {"dims": 4}, {"tokens": 2}, {"positions": "none"}, {"theta": 100},
        {"swap": [0, 1]}, {"pad": 1}, {"texts": ["I", "love dogs"]}, {"texts": ["I love", "dogs"]},
    ]  # fmt: skip
    with running({"default": line}) as (place, _):
        first = [place.ask("/api/walk", base | other).body for other in others]
        again = [place.ask("/api/walk", base | other).body for other in others]
        tokens = [place.ask(f"/api/token?{query}").body for query in ("id=1", "id=2", "id=1&k=1")]
    assert first == again
    assert len(set(first)) == len(others)
    assert len(set(tokens)) == 3


def test_models_go_by_the_names_they_were_given(line: Pipeline) -> None:
    other = Pipeline.__new__(Pipeline)
    other.__dict__.update(line.__dict__, name="other")
    with running({"first": line, "other": other}) as (place, _):
        assert [model["name"] for model in place.ask("/api/models").json["models"]] == ["first", "other"]
        by_default = place.ask("/api/walk", {"texts": ["Hi"]})
        named = place.ask("/api/walk", {"texts": ["Hi"], "model": "first"})
        assert by_default.json == named.json
        assert "'first', 'other'" in place.ask("/api/walk", {"texts": ["Hi"], "model": "third"}).error
        assert place.ask("/api/openapi.json").json["components"]["schemas"]["Walk"]["properties"]["model"]["enum"] == [
            "first", "other", None,
        ]  # fmt: skip


def test_encoding_is_plain_json() -> None:
    awkward = [NeighborFacts(id=1, label="x", cosine=value) for value in (1.5, float("nan"), float("-inf"))]
    assert [one["cosine"] for one in json.loads(encode(awkward))] == [1.5, "nan", "-inf"]
    assert json.loads(encode(awkward)) == plain(awkward)
    facts = [Change(positions="\ud800 🙂", swap=(1, 2)), NeighborFacts(id=1, label="x", cosine=0.1)]
    assert json.loads(encode(facts)) == plain(facts)


# ---- the description


def test_every_address_is_described_and_every_described_one_answers(
    place: Place, line: Pipeline, description: Any
) -> None:
    with running({"default": line}) as (_, api):
        routes = {(route.path, method) for route in api.app.routes for method in route.methods}  # type: ignore[attr-defined]
    described = {(path, method.upper()) for path, item in description["paths"].items() for method in item}
    assert routes == described
    queries = {"/api/token": "?id=1"} | {one.path: f"?{urlencode(given(one))}" for one in ADDRESSES}
    bodies = {"/api/walk": {"texts": ["Hi"]}} | {one.path: given(one) for one in ADDRESSES}
    for path, method in described:
        query = queries.get(path, "") if method != "POST" else ""
        answer = place.ask(path + query, bodies[path] if method == "POST" else None, method=method)
        said = description["paths"][path][method.lower()]["responses"]["200"]
        assert answer.status == 200
        if method == "HEAD":
            assert "content" not in said
            assert answer.body == b""
            if path != "/api/learn/lesson":  # its exercises are drawn anew each time
                assert int(answer.headers["Content-Length"]) == len(place.ask(path + query).body)
        else:
            assert [answer.headers["Content-Type"].partition(";")[0]] == list(said["content"])


def given(asking: Asking) -> dict[str, Any]:
    """What an address of the course needs to be told."""
    if asking.name == "answer":
        return {"exercise": "forward/hidden_shape", "answer": "(1, 2, 3)"}
    told = {name: field.example for name, field in asking.fields.items() if field.needed}
    return told | ({"task": "one_hot"} if asking.name == "reset" else {})  # no other test of this file has one


def test_the_description_is_openapi(description: Any) -> None:
    assert description["openapi"].startswith("3.1")
    for schema in description["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    known = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}
    referred = set(references(description))
    assert referred <= known
    assert {"#/components/schemas/Trace", "#/components/schemas/Error"} <= referred


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in references(item)]
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in references(item)]
    return []


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/api/walk", {}, {}, 400),
        ("/api/walk", {"texts": ["x" * 20_000]}, {}, 413),
        ("/api/walk", {"texts": ["Hi"]}, {"Content-Type": "text/plain"}, 415),
        ("/api/token?id=-1", None, {}, 400),
        ("/api/initialization?seed=x", None, {}, 400),
        ("/", None, {"Authorization": "Bearer wrong"}, 401),
        ("/api/models", None, {"Host": "evil.example"}, 403),
        ("/api/models", {}, {}, 405),
    ],
)
def test_errors_are_described(place: Place, description: Any, path: str, body: Any, headers: Any, status: int) -> None:
    answer = place.ask(path, body, headers=headers)
    assert answer.status == status
    item = description["paths"][path.partition("?")[0]]
    for method, operation in item.items():
        content = operation["responses"][str(status)].get("content", {})
        assert list(content) == ([] if method == "head" else ["application/json"])
    validate(description, "Error", answer.json)


def test_the_validation_can_fail(place: Place, description: Any) -> None:
    trace = place.ask("/api/walk", {"texts": ["Hi"]}).json
    for damage in ({"shape": "no"}, {"extra": 1}, {"texts": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            validate(description, "Trace", trace | damage)
    for said in ({}, {"texts": ["Hi"], "dims": 0}, {"texts": ["Hi"], "swap": [1]}, {"texts": ["Hi"], "x": 1}):
        with pytest.raises(jsonschema.ValidationError):
            validate(description, "Walk", said)


# ---- many at once


def test_fifty_clients_each_get_their_own_answer(place: Place, line: Pipeline) -> None:
    """All ask at the same moment, twice each, on connections they keep."""
    at_once = threading.Barrier(CLIENTS)

    def ask(client: int) -> list[tuple[str, Any]]:
        connection = http.client.HTTPConnection(place.host, place.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {place.token}", "Content-Type": "application/json"}
        answers = []
        at_once.wait(PATIENCE)
        for number in range(2):
            text = text_of(client, number)
            connection.request("POST", "/api/walk", json.dumps({"texts": [text], "dims": 4}), headers)
            answer = connection.getresponse()
            assert answer.status == 200
            answers.append((text, json.loads(answer.read())))
        connection.close()
        return answers

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pair for pairs in pool.map(ask, range(CLIENTS)) for pair in pairs]
    assert len({text for text, _ in answers}) == 2 * CLIENTS
    for text, trace in answers:
        assert trace == line.walk([text], dims=4, tokens=64).to_dict()


def test_too_many_at_once_are_told_so(line: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.web.api.WAITING", 0)
    with running({"default": line}) as (place, _):
        answer = place.ask("/api/walk", {"texts": ["Hi"]})
        assert answer.status == 503
        assert "are waiting already" in answer.error
        assert answer.headers["Retry-After"] == "1"
        assert place.ask("/api/models").status == 200  # what needs no thread is still there

"""The embeddings API with the unmodified `openai` client on loopback, and its errors."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from safetensors.torch import load_file, save_file

import inlayer
from inlayer.trace import Pipeline
from inlayer.web import openai as api
from inlayer.web.request_body import MAX_API_BODY
from tests.web.client import TOKEN, Client, running

KEY = "sk-a-key-for-tests"
TEXTS = ["I love dogs", "naïve 🙂", "the " * 700]


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    with running({"default": Pipeline(inlayer.load("default"))}, api_key=KEY) as client:
        yield client


@pytest.fixture(scope="module")
def client(server: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return inlayer.load("default").encode(TEXTS, normalize=True)


def test_texts_give_the_normalized_vectors_of_the_model(client, vectors):
    found = client.embeddings.create(model="default", input=TEXTS)  # the client asks for base64
    np.testing.assert_array_equal(np.array([one.embedding for one in found.data], np.float32), vectors)
    assert [one.index for one in found.data] == [0, 1, 2]
    tokens = inlayer.load("default").tokenizer.encode_batch(TEXTS, add_special_tokens=False).flat.size
    assert (found.usage.prompt_tokens, found.usage.total_tokens, found.model) == (tokens, tokens, "default")


@pytest.mark.parametrize("encoding_format", ["float", "base64", None])
def test_formats_and_dimensions(client, vectors, encoding_format):
    found = client.embeddings.create(model="default", input=TEXTS[0], encoding_format=encoding_format, dimensions=5)
    value = found.data[0].embedding
    if encoding_format == "base64":
        import base64

        value = np.frombuffer(base64.b64decode(value), "<f4")
    expected = inlayer.load("default").encode(TEXTS[0], normalize=True, dim=5)
    np.testing.assert_allclose(np.array(value, np.float32), expected, atol=1e-7)


def test_ids_and_lists_of_ids(client, vectors):
    tokenizer = inlayer.load("default").tokenizer
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    found = client.embeddings.create(model="default", input=ids)
    np.testing.assert_array_equal(np.array([one.embedding for one in found.data], np.float32), vectors)
    one = client.embeddings.create(model="default", input=ids[0])
    np.testing.assert_array_equal(np.array(one.data[0].embedding, np.float32), vectors[0])
    assert one.usage.prompt_tokens == len(ids[0])


def test_models(client):
    assert [one.id for one in client.models.list()] == ["default"]
    assert client.models.retrieve("default").object == "model"
    with pytest.raises(openai.NotFoundError, match="available models: default"):
        client.models.retrieve("gpt")
    with pytest.raises(openai.NotFoundError, match="'gpt' is not served here") as error:
        client.embeddings.create(model="gpt", input="x")
    assert (error.value.code, error.value.type, error.value.param) == (
        "model_not_found", "invalid_request_error", "model",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": []}, "input must be a nonempty text"),
        ({"input": ""}, "input contains an empty text"),
        ({"input": ["a", ""]}, "input contains an empty text"),
        ({"input": [[]]}, "input contains an empty text or list"),
        ({"input": 3}, "input must be a nonempty text"),
        ({"input": ["a", 1]}, "input mixes texts, ids"),
        ({"input": [0, "a"]}, "input mixes texts, ids"),
        ({"input": [[1.5]]}, "input mixes texts, ids"),
        ({"input": [True]}, "input mixes texts, ids"),
        ({"input": [-1]}, "id -1"),
        ({"input": [10**6]}, "id 1000000"),
        ({"input": [10**30]}, "does not fit in 64 bits"),
        ({"input": ["a"] * 2049}, "input has 2,049 items; the limit is 2,048"),
        ({"input": [[1] * 300_001]}, "input has 300,001 tokens; the limit is 300,000"),
        ({"input": "\ud800"}, "does it contain a lone surrogate?"),
        ({"input": "x", "dimensions": 0}, "dimensions"),
        ({"input": "x", "dimensions": 129}, "dimensions is 129; it must be at most 128"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "x", "model": None}, "model: must be a valid string (got null)"),
        ({"input": "x", "user": True}, "user: must be a valid string (got true)"),
        ({"input": "x", "other": 1}, "unknown field 'other'"),
        ({}, "input"),
    ],
)
def test_errors_have_the_format_of_openai(server, body, message):
    response = Client(server.port, KEY).send("/v1/embeddings", {"model": "default"} | body)
    assert response.status == 400
    error = response.json["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]
    assert error["param"] == (
        None if "surrogate" in message else next((name for name in body if name != "input"), "input")
    )


def test_key(server, client):
    wrong = openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0)
    with pytest.raises(
        openai.AuthenticationError, match="the API key is wrong; use the key given with --api-key"
    ) as error:
        wrong.embeddings.create(model="default", input="x")
    assert error.value.code == "invalid_api_key"
    assert Client(server.port, TOKEN).send("/v1/models").status == 200  # the page's token also works
    assert Client(server.port, KEY).send("/api/models").status == 401  # but the key opens nothing else
    assert Client(server.port, KEY).send("/v1/models", headers={"Origin": "http://evil.example"}).status == 403


def test_large_bodies(server):
    client = Client(server.port, KEY)
    text = "dogs " * 100_000
    assert client.send("/v1/embeddings", {"model": "default", "input": text}).status == 200
    long = " representatives" * api.MAX_INPUT_TOKENS
    response = client.send("/v1/embeddings", {"model": "default", "input": long})
    assert (len(long) > 2**22, response.status, response.json["usage"]["total_tokens"]) == (True, 200, 300_000)
    response = client.send("/v1/embeddings", b" " * (MAX_API_BODY + 1))
    assert (response.status, response.json["error"]["type"]) == (413, "invalid_request_error")
    assert client.send("/v1/models", b" " * 300_000).status == 413


def test_body_with_very_many_values_is_not_parsed(server):
    largest = b'{"model": "default", "input": [' + b"1," * (api.MAX_INPUT_TOKENS - 1) + b"1]}"
    assert server.send("/v1/embeddings", largest).status == 200  # control: as many as a request may have
    response = server.send("/v1/embeddings", b'{"model": "default", "input": [' + b"1," * 600_000 + b"1]}")
    assert (response.status, response.json["error"]["type"]) == (413, "invalid_request_error")
    assert response.json["error"]["message"].startswith("the body has more than 310,000 commas")


def test_parallel_clients_get_their_own_vectors(client):
    expected, wrong = inlayer.load("default").encode([f"text {n}" for n in range(200)], normalize=True), []

    def ask(first: int) -> None:
        for number in range(first, 200, 20):
            found = client.embeddings.create(model="default", input=f"text {number}")
            if not np.array_equal(np.array(found.data[0].embedding, np.float32), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=[first]) for first in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_limits_are_those_of_openai():
    assert (api.MAX_INPUTS, api.MAX_INPUT_TOKENS) == (2048, 300_000)


def test_vectors_that_are_not_finite_are_an_error(tmp_path):
    folder = shutil.copytree(inlayer.load("default").store.files.path, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][40] = float("inf")
    save_file(tensors, folder / "model.safetensors")
    with running({"broken": Pipeline(inlayer.load(folder))}) as client:
        response = client.send("/v1/embeddings", {"model": "broken", "input": ["love", "I"]})
        assert (response.status, client.send("/v1/embeddings", {"model": "broken", "input": "love"}).status) == (
            400,
            200,
        )
    assert "the vector of input 1 is not finite" in response.json["error"]["message"]

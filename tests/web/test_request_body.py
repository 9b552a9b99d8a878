"""Bodies: what is slow to parse is rejected before it is parsed, and what looks like it inside a text is not."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
from functools import partial
from typing import Any

import pytest

from inlayer.trace import Pipeline
from inlayer.web.request_body import MAX_API_BODY, MAX_COUNTS, JsonRequest, JsonTokenCounter, limit_body, max_body
from inlayer.web.server import READ_BYTES, BoundedProtocol, worker_app
from tests.web.client import TOKEN, Client, running

COMMAS, BRACKETS, QUOTES, OUTSIDE = MAX_COUNTS.values()


def embeddings(client: Client, value: bytes) -> tuple[int, str]:
    """The status and the error of a request with this input."""
    response = client.send("/v1/embeddings", b'{"model": "default", "input": ' + value + b"}")
    return response.status, response.json.get("error", {}).get("message", "")


SLOW = {
    "commas": [b"[" + b"1," * (COMMAS + 1) + b"1]", b"[" + b"0.1," * (COMMAS + 1) + b"1]"],
    "brackets": [
        b"[" + b",".join([b"[" * 100 + b"]" * 100] * (BRACKETS // 100 + 1)) + b"]",  # needs hardly any commas
        b"[" + b"{}," * BRACKETS + b"1]",
    ],
    "quotes": [
        b"{" + b",".join(b'"%x":1' % n for n in range(QUOTES // 2)) + b"}",
        b"{" + b",".join(b'"%x" \n :1' % n for n in range(QUOTES // 2)) + b"}",
        b"{" + b",".join(b'"%x\\\\":1' % n for n in range(QUOTES)) + b"}",  # keys that end in a backslash
        b"[" + b'"",' * (QUOTES // 2) + b"1]",
    ],
    "bytes outside of texts": [b"[" + b",".join([b"7" * 4_300] * (OUTSIDE // 4_300 + 1)) + b"]", b" " * OUTSIDE],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in SLOW.items() for value in values])
def test_slow_bodies_are_rejected(client: Client, name: str, value: bytes) -> None:
    status, message = embeddings(client, value)
    assert status == 413
    assert message == f"the body has more than {MAX_COUNTS[name]:,} {name}; split it into several requests"


@pytest.mark.parametrize("text", ['{"t": ""}\n' * 20_000, "[" * 70_000, '\\"[' * 70_000])
def test_texts_with_signs_of_structure_are_accepted(client: Client, text: str) -> None:
    body = json.dumps(text).encode()
    assert body.count(b'"') > 2 * QUOTES or body.count(b"[") > BRACKETS
    assert embeddings(client, body) == (200, "")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"[" * 300 + b"]" * 300, "recursion limit exceeded"),
        (b"1" * 5_000, "number out of range"),
        (b'"a', "EOF while parsing"),
        (b"{'a': 1}", "key must be a string"),
        (b'"\xff"', "invalid unicode"),
        (b'"\\ud800"', "does it contain a lone surrogate?"),
    ],
)
def test_invalid_json(client: Client, value: bytes, message: str) -> None:
    status, found = embeddings(client, value)
    assert status == 400
    assert found.startswith("the body is not valid JSON: ")
    assert message in found


def test_a_huge_id_does_not_fill_the_message(client: Client) -> None:
    status, message = embeddings(client, b"[" + b"7" * 4_000 + b"]")
    assert status == 400
    assert "does not fit in 64 bits" in message
    assert len(message) < 200


def test_counts_add_up_over_the_parts_of_a_body() -> None:
    parts = [b"[" * BRACKETS, b"[", b"]"]

    async def receive() -> Any:
        return {"type": "http.request", "body": parts.pop(0), "more_body": True}

    async def read() -> None:
        receive_limited = limit_body(receive, 2**22)
        assert (await receive_limited())["body"] == b"[" * BRACKETS
        await receive_limited()

    with pytest.raises(Exception, match="more than 65,536 brackets"):
        asyncio.run(read())
    assert parts == [b"]"]


def test_counts_do_not_depend_on_where_a_body_is_cut() -> None:
    texts = ['[,"', "\\", '\\"', '\\\\",[', '"', "", "a,b", '{"a": [",\\\\\\""]}']
    body = json.dumps({text: [text, {text: [1, 2]}] for text in texts}).encode()
    expected = {"commas": 3 * len(texts) - 1, "brackets": 3 * len(texts) + 1, "quotes": 6 * len(texts)}
    expected["bytes outside of texts"] = len(re.sub(rb'"(\\.|[^"\\])*"', b"", body))
    for cut in range(len(body)):
        tokens = JsonTokenCounter()
        tokens.add(body[:cut])
        tokens.add(body[cut : cut + 1])
        tokens.add(body[cut + 1 :])
        assert tokens.counts == expected


def test_the_largest_body_does_not_block_the_event_loop() -> None:
    """The CPU time of the longest iteration, for texts and numbers that take the longest to parse."""
    numbers = b",".join([b"7" * 4_300] * (OUTSIDE // 4_301 - 1))
    text = b"\\u00e9" * ((MAX_API_BODY - len(numbers)) // 6 - 2)
    body = b'["' + text + b'",' + numbers + b"]"

    async def longest() -> float:
        parts = [body[start : start + 2**16] for start in range(0, len(body), 2**16)]
        scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": []}

        async def receive() -> Any:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        job = asyncio.ensure_future(JsonRequest(scope, limit_body(receive, max_body(scope))).json())
        most, last = 0.0, time.thread_time()
        while not job.done():
            await asyncio.sleep(0)
            most, last = max(most, (now := time.thread_time()) - last), now
        assert len((await job)[0]) == len(text) // 6
        return most

    assert min(asyncio.run(longest()) for _ in range(5)) < 0.05


def test_little_is_read_at_a_time(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body in chunks of one byte takes h11 long; other clients get their turn after each part."""
    sizes: list[int] = []
    receive = BoundedProtocol.data_received

    def data_received(self: BoundedProtocol, data: bytes) -> None:
        sizes.append(len(data))
        receive(self, data)

    monkeypatch.setattr(BoundedProtocol, "data_received", data_received)
    head = f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = json.dumps({"texts": ["Hi"]}).ljust(20_000).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with running({"default": pipeline}) as client:
        assert client.raw(head.encode() + chunks).startswith(b"HTTP/1.1 200 ")
    assert max(sizes) <= READ_BYTES
    assert sum(sizes) == len(head) + len(chunks)


def test_a_worker_freezes_what_it_started_with(pipeline: Pipeline) -> None:
    """A full collection of garbage visits everything else, torch included, which takes 0.1 s."""
    try:
        worker_app(partial(dict, default=pipeline), TOKEN, "127.0.0.1")
        assert gc.get_freeze_count() > 10 * len(gc.get_objects())
    finally:
        gc.unfreeze()

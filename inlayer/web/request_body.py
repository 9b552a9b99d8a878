"""Request bodies: limits on size and arrival time, and fast parsing.

guard -> [body] -> routes
- a body is JSON; its size and arrival time are limited while it is read
- parsing blocks the event loop, even in a thread, because it holds the GIL. The parts that make it slow are therefore
  counted first: values, lists and objects, strings and keys. Commas, brackets, and escaped quotes inside strings are
  ignored
- jiter (pydantic's parser) reads numbers ten times as fast as the json module, and stops at 200 levels of nesting
Tested in tests/web/test_request_body.py with the slowest bodies of each kind.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

MAX_BODY, MAX_API_BODY = 262_144, 2**24  # bytes; the latter for embeddings: 300,000 tokens as ids or text
# At most 40 ms of parsing (docs/decisions.md). A number takes longer to parse than a string of the same size.
MAX_COUNTS = {"commas": 310_000, "brackets": 65_536, "quotes": 32_768, "bytes outside of texts": 2**22}
BODY_SECONDS = 10.0
MAX_TEXTS, MAX_CHARACTERS = 16, 16_384  # limits for a walk; characters in all texts together


class JsonRequest(Request):
    """A request whose body is parsed by jiter."""

    async def json(self) -> Any:
        body = await self.body()
        await asyncio.sleep(0)  # joining the parts of a large body takes as long as parsing it
        try:
            return from_json(body)
        except ValueError as error:
            hint = "; does it contain a lone surrogate?" if "hex escape" in str(error) else ""
            raise json.JSONDecodeError(str(error) + hint, "", 0) from None


class JsonRoute(APIRoute):
    """A route whose requests are `JsonRequest`s."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


def check_body_headers(scope: Scope) -> None:
    """Reject a body that is too large or not plain JSON, before it is read."""
    headers = Headers(scope=scope)
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    kind, _, parameters = headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise HTTPException(415, "send the body as Content-Type: application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "send the body without Content-Encoding")
    length = headers.get("content-length", "0")
    if len(length) > 18 or int(length) > max_body(scope):  # h11 has checked that these are digits
        raise _too_large_error(max_body(scope))


def max_body(scope: Scope) -> int:
    """Return the limit for a request's body, in bytes."""
    return MAX_API_BODY if scope["path"] == "/v1/embeddings" else MAX_BODY


def _too_large_error(limit: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {limit:,} bytes")


def limit_body(receive: Receive, limit: int) -> Receive:
    """Limit a body's size, its number of parts, and the time until it has arrived."""
    size, tokens, complete = 0, JsonTokenCounter(), False
    end = asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive_limited() -> Message:
        nonlocal size, complete
        if complete:
            return await receive()  # waits for the client to disconnect
        try:
            message = await asyncio.wait_for(receive(), end - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            message_text = f"the body did not arrive within {BODY_SECONDS:g} s"
            raise HTTPException(408, message_text, {"Connection": "close"}) from None
        if message["type"] == "http.request":
            body = message.get("body", b"")
            size += len(body)
            tokens.add(body)
            complete = not message.get("more_body", False)
        if size > limit:
            raise _too_large_error(limit)
        for name, maximum in MAX_COUNTS.items():
            if tokens.counts[name] > maximum:
                raise HTTPException(413, f"the body has more than {maximum:,} {name}; split it into several requests")
        return message

    return receive_limited


class JsonTokenCounter:
    """Counts the parts of a body that are slow to parse: values, lists, objects, and strings (above all keys)."""

    def __init__(self) -> None:
        self.counts, self._inside, self._escape = Counter[str](), False, b""

    def add(self, part: bytes) -> None:
        """Count the next part of a body, which may begin inside a string or an escape."""
        part = (self._escape + part).replace(b"\\\\", b"").replace(b'\\"', b"")  # the remaining quotes are delimiters
        self._escape = b"\\" if part.endswith(b"\\") else b""
        pieces = part.removesuffix(b"\\").split(b'"', MAX_COUNTS["quotes"] + 1)
        outside = b"".join(pieces[self._inside :: 2])
        self._inside ^= len(pieces) % 2 == 0
        brackets = outside.count(b"[") + outside.count(b"{")
        found = {"commas": outside.count(b","), "brackets": brackets, "quotes": len(pieces) - 1}
        self.counts.update(found | {"bytes outside of texts": len(outside)})

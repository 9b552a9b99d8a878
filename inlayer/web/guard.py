"""The guard: who may ask, how much may be sent, and what every answer carries.

request -> [guard] -> api
- every request shows the token, the page's own too; it is compared in constant time
- other websites: the Host must be an address or a name that is ours (a rebound name is neither), the Origin our own,
  and Sec-Fetch-Site same-origin or none; only a link to a page itself may come from elsewhere. No CORS header is sent
- a body is JSON, counted while it arrives and given up when it does not
- no answer is stored, framed, sniffed or shared; only the walk may stand in a frame of this very server (api.py). None
  holds a traceback, stderr gets it
Checked rule by rule, each with the request that passes, in tests/web/test_guard.py.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
from collections.abc import Iterable
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inlayer.paths import printable, quoted
from inlayer.web.schemas import TOKEN, RefusedError

__all__ = ["HEADERS", "Guard", "error_body", "read_body"]

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
BODY_SECONDS = 10.0
PAGES = ("/", "/learn")

log = logging.getLogger("inlayer.web")  # without a handler of its own it reaches stderr


class Guard:
    """ASGI around the application. `hosts` are the names, beside localhost and any address, that it answers to."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str] = ()) -> None:
        self.app, self.token = app, token.encode("ascii")
        self.hosts = {"localhost", *(name.lower() for name in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only http is served here, not {scope['type']}")
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            try:
                self._check(scope)
            except RefusedError as refusal:
                await answer_error(send_guarded, refusal.status, str(refusal), refusal.headers)
                return
            await self.app(scope, receive, send_guarded)
        except Exception:
            log.exception("%s %s failed", scope["method"], printable(scope["path"])[:200])
            if not started:
                await answer_error(send_guarded, 500, "something went wrong here; the server's own output says what")

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise RefusedError(
                403, f"Host is {quoted(host)}; this server answers to its address, localhost or the name given at start"
            )
        for origin in headers.getlist("origin"):
            if origin.lower() != f"http://{host}".lower():
                raise RefusedError(403, f"Origin is {quoted(origin)}; other websites may not ask here")
        sites = set(headers.getlist("sec-fetch-site"))
        if sites - {"same-origin", "none"} and not _is_link_to_page(scope, headers):
            raise RefusedError(403, "the request comes from another website; it may not ask here")
        self._check_token(headers, scope["query_string"])

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, "0"
        if not (port.isascii() and port.isdigit()):
            return False
        if name.lower() in self.hosts:
            return True
        try:
            ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
        except ValueError:
            return False
        return True

    def _check_token(self, headers: Headers, query: bytes) -> None:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
        shown = [value.encode("utf-8", "surrogateescape") for name, value in pairs if name == TOKEN]
        for value in headers.getlist("authorization"):
            scheme, _, secret = value.partition(" ")
            shown.append(secret.strip().encode("utf-8") if scheme.lower() == "bearer" else b"")
        right = [hmac.compare_digest(value, self.token) for value in shown]  # all of them: no short cut to time
        if not right or not all(right):
            what = "wrong" if shown else "missing"
            raise RefusedError(
                401, f"the token is {what}; open the whole address that the server printed", WWW_Authenticate="Bearer"
            )


def _is_link_to_page(scope: Scope, headers: Headers) -> bool:
    """A link to a page as a whole, from a mail or a notebook: whoever wrote it learns nothing when it is followed."""
    return (
        scope["method"] == "GET"
        and scope["path"] in PAGES
        and headers.getlist("sec-fetch-mode") == ["navigate"]
        and headers.getlist("sec-fetch-dest") == ["document"]
    )


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The JSON that was sent: never more than `most` bytes of it in memory, however it is cut up."""
    headers = Headers(scope=scope)
    kind, _, parameters = headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise RefusedError(415, "the body is sent as Content-Type: application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(415, "the body is sent as it is, without Content-Encoding")
    too_large = RefusedError(413, f"the body is larger than {most:,} bytes")
    length = headers.get("content-length", "0")
    if len(length) > 18 or int(length) > most:  # the server has seen to it that these are digits
        raise too_large
    body = bytearray()
    end = asyncio.get_running_loop().time() + BODY_SECONDS
    more = True
    while more:
        try:
            message = await asyncio.wait_for(receive(), end - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            raise RefusedError(408, f"the body did not arrive within {BODY_SECONDS:g} s", Connection="close") from None
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the client left before the body was there")
        body += message["body"]
        more = message["more_body"]
        if len(body) > most:
            raise too_large
    return bytes(body)


def error_body(message: str) -> bytes:
    """One line, whatever it quotes."""
    return json.dumps({"error": printable(" ".join(message.split()))}).encode()


async def answer_error(send: Send, status: int, message: str, headers: dict[str, str] | None = None) -> None:
    """An error without the application."""
    body = error_body(message)
    fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    raw = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})

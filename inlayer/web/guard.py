"""The guard: checks who may send requests, and sets the headers of every response.

request -> [guard] -> app
- every request, even from the server's page, must present the token, which is compared in constant time
- protection from other websites: Host must be an IP address or a name of this server (against DNS rebinding), Origin
  must be this server, and Sec-Fetch-Site must be same-origin or none. The only exception is a link that opens a
  page. No CORS header is sent
- responses are not cached, framed, or sniffed, and contain no traceback; for page loads, errors are returned as HTML
- see also: limits of a body (request_body.py)
Every rule is tested with a request that passes and with one that fails in tests/web/test_guard.py.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterable, Mapping
from html import escape
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inlayer.files import printable, quote
from inlayer.render import Page, style_sheet
from inlayer.web.request_body import check_body_headers, limit_body, max_body

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
API = "/v1/"  # routes in OpenAI's format
INTERNAL_ERROR = "an internal error occurred; the server's stderr has the details"
PAGES = ("/", "/learn", "/inspect")
ERROR_PAGE = """<!doctype html>
<html lang="en">
{{head}}
<body><main class="error-page"><h1>{{title}}</h1><p>{{message}}</p></main></body>
</html>
"""
ERROR_STYLE = ".error-page { max-width: 40rem; margin: 4rem auto; padding: 0 1rem; }\n"
ADVICE = "Run inlayer serve again, and open the address that it prints, including the token."

log = logging.getLogger("inlayer.web")  # writes to stderr unless a handler is added


class GuardMiddleware:
    """ASGI middleware. `hosts`: host names to accept, in addition to localhost and any IP address.

    `api_key` is accepted like the token, but only by the routes in OpenAI's format.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str] = (), api_key: str | None = None) -> None:
        self.app, self.token = app, token.encode("ascii")
        self.api_key = self.token if api_key is None else api_key.encode()
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
            self._check_origin(scope)
            scope = self._without_token(scope)
            check_body_headers(scope)
            await self.app(scope, limit_body(receive, max_body(scope)), send_guarded)
        except HTTPException as error:  # raised by these checks; the application handles its own errors
            if expects_page(scope):
                response: Response = error_page(error.status_code, error.detail, error.headers)
            else:
                response = error_response(error.status_code, error.detail, error.headers, scope["path"])
            await response(scope, receive, send_guarded)
        except Exception:
            log.exception("%s %s failed", scope["method"], printable(scope["path"])[:200])
            if not started:
                await error_response(500, INTERNAL_ERROR, None, scope["path"])(scope, receive, send_guarded)

    def _check_origin(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            message = f"Host is {quote(host)}; expected an IP address, localhost, or the host name given with --host"
            raise HTTPException(403, message)
        for origin in headers.getlist("origin"):
            if origin.lower() != f"http://{host}".lower():
                raise HTTPException(403, f"Origin is {quote(origin)}; other websites are not allowed")
        sites = set(headers.getlist("sec-fetch-site"))
        # A link to a page may come from an email or a notebook; its author learns nothing if it is followed.
        modes = headers.getlist("sec-fetch-mode"), headers.getlist("sec-fetch-dest")
        is_link = scope["method"] == "GET" and scope["path"] in PAGES and modes == (["navigate"], ["document"])
        if sites - {"same-origin", "none"} and not is_link:
            raise HTTPException(403, "the request comes from a different website, which is not allowed")

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, "0"
        if not (port.isascii() and port.isdigit()):
            return False
        try:
            ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
        except ValueError:
            return name.lower() in self.hosts
        return True

    def _without_token(self, scope: Scope) -> Scope:
        """Check the token and remove it from the query, so no route sees it."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
        tokens = [value.encode("utf-8", "surrogateescape") for name, value in pairs if name == "token"]
        for value in Headers(scope=scope).getlist("authorization"):
            scheme, _, secret = value.partition(" ")
            tokens.append(secret.strip().encode("utf-8") if scheme.lower() == "bearer" else b"")
        is_api = scope["path"].startswith(API)
        secrets = [self.token, self.api_key] if is_api else [self.token]
        # Compare with all of them, so that the time does not depend on which one matches.
        matches = [[hmac.compare_digest(value, secret) for secret in secrets] for value in tokens]
        if not matches or not all(map(any, matches)):
            credential, advice = "token", "open the complete address that the server printed"
            if is_api:
                credential, advice = "API key", "use the key given with --api-key, or the token that the server printed"
            message = f"the {credential} is {'wrong' if tokens else 'missing'}; {advice}"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})
        rest = urlencode([pair for pair in pairs if pair[0] != "token"], errors="surrogateescape")
        return {**scope, "query_string": rest.encode("ascii")}


def expects_page(scope: Scope) -> bool:
    """Return whether the request is a browser opening a page, rather than a program calling the API."""
    is_api = scope["path"].startswith(("/api/", API))
    return scope["method"] == "GET" and not is_api and "text/html" in Headers(scope=scope).get("accept", "")


def error_page(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as a small page, for users who opened the address in a browser."""
    page = Page(ERROR_PAGE, style_sheet() + ERROR_STYLE, "")
    text = printable(" ".join(message.split()))
    title = "The token is missing or wrong" if status == 401 else "This page cannot be shown"
    sentence = ADVICE if status == 401 else f"{text[:1].upper()}{text[1:]}."
    document = page.document(title, message=escape(sentence))
    policy = page.policy("frame-ancestors 'none'")
    return HTMLResponse(document, status, {**(headers or {}), "content-security-policy": policy})


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None, path: str = "", param: str | None = None
) -> JSONResponse:
    """Return an error as one line of JSON, even if the message quotes several lines; in OpenAI's format for some paths.

    `param` is the invalid field of the request, if known.
    """
    line = printable(" ".join(message.split()))
    if not path.startswith(API):
        return JSONResponse({"error": line}, status, headers)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    code = {401: "invalid_api_key", 404: "model_not_found" if param == "model" else None}.get(status)
    return JSONResponse({"error": {"message": line, "type": kind, "param": param, "code": code}}, status, headers)

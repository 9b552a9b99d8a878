"""The guard: every rule with a request that breaks it and one that does not."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from inlayer.trace import Pipeline
from inlayer.trace.html import content_security_policy, page
from inlayer.web.guard import HEADERS
from tests.web.client import TIMEOUT, TOKEN, Client, running

BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9"}
PATHS = [
    "/",
    "/learn",
    "/api/course",
    "/api/course/check",
    "/api/models",
    "/api/token?id=1",
    "/api/initialization",
    "/api/openapi.json",
    "/api/walk",
    "/no/such",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
def test_every_route_requires_the_token(client: Client, path: str, method: str) -> None:
    response = client.send(path, method=method, token=False)
    assert response.status == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    if method != "HEAD":
        assert "the token is missing" in response.error


@pytest.mark.parametrize("path", PATHS)
def test_the_token_is_accepted(client: Client, path: str) -> None:
    assert client.send(path).status != 401
    between = "&" if "?" in path else "?"
    assert client.send(f"{path}{between}token={TOKEN}", token=False).status != 401


@pytest.mark.parametrize(
    ("path", "authorization"),
    [
        ("/", f"Bearer {TOKEN}x"),
        ("/", f"Bearer {TOKEN[:-1]}"),
        ("/", f"Bearer {TOKEN.upper()}"),
        ("/", f"Basic {TOKEN}"),
        ("/", TOKEN),
        ("/", "Bearer"),
        ("/", "Bearer \xff\xe9"),
        ("/?token=", None),
        (f"/?token={TOKEN}x", None),
        ("/?token=%ff%00", None),
        (f"/?token={TOKEN}&token=x", None),  # one correct and one wrong token
        ("/?token=x", f"Bearer {TOKEN}"),
    ],
)
def test_a_wrong_token_is_rejected(client: Client, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    response = client.send(path, headers=headers, token=False)
    assert response.status == 401
    assert "the token is wrong" in response.error


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9", "localhost", "LOCALHOST:1", "[::1]:80", "10.1.2.3:80"])
def test_our_hosts_are_accepted(client: Client, host: str) -> None:
    assert client.send("/api/models", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "localhost.", "[::1",
        "localhost:x", "localhost:", "2130706433", "127.1", "0x7f.1", "user@localhost", "::1:80x",
    ],
)  # fmt: skip
def test_other_host_names_are_rejected(client: Client, host: str) -> None:
    response = client.send("/api/models", headers={"Host": host})
    assert response.status == 403
    assert "Host is" in response.error


def test_a_host_name_given_at_start_is_accepted(pipeline: Pipeline) -> None:
    with running({"default": pipeline}, hosts=("My-Box",)) as client:
        assert client.send("/api/models", headers={"Host": "my-box:80"}).status == 200
        assert client.send("/api/models", headers={"Host": "my-box.example:80"}).status == 403


def test_a_missing_host_is_rejected(client: Client) -> None:
    asked = f"GET /api/models HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n"
    assert client.raw(f"{asked}\r\n".encode()).startswith(b"HTTP/1.1 403 ")
    assert client.raw(f"{asked}Host: localhost\r\n\r\n".encode()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_only_our_origin_is_accepted(client: Client, method: str) -> None:
    path, body = ("/api/models", None) if method == "GET" else ("/api/walk", {"texts": ["Hi"]})
    own = f"http://127.0.0.1:{client.port}"
    assert client.send(path, body, headers={"Origin": own}).status == 200
    for other in (
        "null", "", "http://evil.example", f"https://127.0.0.1:{client.port}", "http://127.0.0.1",
        f"http://127.0.0.1:{client.port + 1}", f"http://localhost:{client.port}", f"{own}/", f"{own}.evil.example",
    ):  # fmt: skip
        response = client.send(path, body, headers={"Origin": other})
        assert response.status == 403, other
        assert "other websites" in response.error
        assert not any(name.lower().startswith("access-control") for name in response.headers)


def test_every_origin_header_is_checked(client: Client) -> None:
    own = f"127.0.0.1:{client.port}"
    asked = f"GET /api/models HTTP/1.1\r\nHost: {own}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
    once, twice = f"Origin: http://{own}\r\n", f"Origin: http://{own}\r\nOrigin: http://evil.example\r\n"
    assert client.raw(f"{asked}{once}\r\n".encode()).startswith(b"HTTP/1.1 200 ")
    assert client.raw(f"{asked}{twice}\r\n".encode()).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("path", ["/", "/api/models"])
@pytest.mark.parametrize(("site", "status"), [("same-origin", 200), ("none", 200), ("cross-site", 403),
                                              ("same-site", 403), ("", 403)])  # fmt: skip
def test_fetch_metadata_is_checked(client: Client, path: str, site: str, status: int) -> None:
    assert client.send(path, headers={"Sec-Fetch-Site": site}).status == status


def test_only_pages_may_be_linked_from_other_sites(client: Client) -> None:
    follow = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.send("/", headers=follow).status == 200
    assert client.send("/learn", headers=follow).status == 200
    assert client.send("/api/models", headers=follow).status == 403
    assert client.send("/api/course", headers=follow).status == 403
    assert client.send("/", headers=follow | {"Sec-Fetch-Dest": "iframe"}).status == 403
    assert client.send("/", headers=follow | {"Sec-Fetch-Mode": "no-cors"}).status == 403
    assert client.send("/", method="POST", headers=follow).status == 403
    assert client.send("/", headers=follow, token=False).status == 401


def test_only_this_server_may_frame_the_walk(client: Client) -> None:
    """A lesson shows it in a frame. The browser enforces frame-ancestors; the guard rejects other sites before that."""
    framed = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    walk = client.send("/", headers=framed)
    assert walk.status == 200
    assert walk.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in walk.headers["Content-Security-Policy"]
    for site in ("cross-site", "same-site"):
        assert client.send("/", headers=framed | {"Sec-Fetch-Site": site}).status == 403
    learn = client.send("/learn", headers=framed)
    assert learn.headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in learn.headers["Content-Security-Policy"]


def responses(client: Client) -> Iterator[tuple[str, object]]:
    yield "page", client.send("/")
    yield "course", client.send("/learn")
    yield "models", client.send("/api/models")
    yield "not found", client.send("/no/such")
    yield "no token", client.send("/", token=False)
    yield "invalid", client.send("/api/walk", {})


def test_every_response_has_the_security_headers(client: Client) -> None:
    for name, response in responses(client):
        headers = {key.lower(): value for key, value in response.headers.items()}
        assert headers["x-content-type-options"] == "nosniff", name
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == ("SAMEORIGIN" if name == "page" else "DENY")
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        ancestors = "'self'" if name == "page" else "'none'"  # a lesson of this server frames the walk
        assert f"frame-ancestors {ancestors}" in headers["content-security-policy"]
        assert not {"server", "location", "set-cookie"} & set(headers)
        assert TOKEN not in str(response.headers)


def test_the_page_has_its_content_security_policy(client: Client) -> None:
    page = client.send("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"] == content_security_policy(served=True)
    assert page.body.lower().startswith(b"<!doctype html>")
    assert TOKEN.encode() not in page.body
    assert "default-src 'none'" in client.send("/api/models").headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ('application/json; charset="utf-8"', 200),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("text/plain; application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/json-seq", 415),
        ("", 415),
    ],
)
def test_only_json_bodies_are_accepted(client: Client, kind: str, status: int) -> None:
    assert client.send("/api/walk", {"texts": ["Hi"]}, headers={"Content-Type": kind}).status == status


def test_compressed_bodies_are_rejected(client: Client) -> None:
    assert client.send("/api/walk", {"texts": ["Hi"]}, headers={"Content-Encoding": "gzip"}).status == 415
    assert client.send("/api/walk", {"texts": ["Hi"]}, headers={"Content-Encoding": "identity"}).status == 200


def head(client: Client, *fields: str) -> bytes:
    lines = [
        "POST /api/walk HTTP/1.1", f"Host: 127.0.0.1:{client.port}", f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json", *fields,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_large_body_is_rejected_before_it_is_sent(client: Client) -> None:
    for length in ("262145", "99999999999999999999"):
        with socket.create_connection((client.host, client.port), timeout=TIMEOUT) as connection:
            connection.sendall(head(client, f"Content-Length: {length}"))
            assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_measured_while_it_arrives(client: Client) -> None:
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    with socket.create_connection((client.host, client.port), timeout=TIMEOUT) as connection:
        connection.sendall(head(client, "Transfer-Encoding: chunked"))
        for _ in range(64):  # 262,144 bytes, the limit; the body has not ended
            connection.sendall(chunk)
        connection.sendall(chunk)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
    body = b'{"texts": ["Hi"]}'
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    response = client.raw(head(client, "Transfer-Encoding: chunked", "Connection: close") + pieces + b"0\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # a TLS client
    ],
)
def test_invalid_http_gets_one_error_and_a_closed_connection(client: Client, data: bytes) -> None:
    try:
        response = client.raw(data)
    except ConnectionError:  # the rest of the large headers was not read
        response = b""
    assert response == b"" or (response.startswith(b"HTTP/1.1 4") and response.endswith(b'"}'))
    if response:
        assert all(f"\r\n{name}: {value}\r\n".encode() in response for name, value in HEADERS.items())
    assert client.send("/api/models").status == 200  # the next request is served


def test_a_browser_gets_a_page_for_an_unknown_address(client: Client) -> None:
    response = client.send("/lern<b>", headers=BROWSER)
    assert (response.status, response.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"&#x27;/lern&lt;b&gt;&#x27; does not exist; go back, or open /." in response.body
    assert "does not exist" in client.send("/api/lern", headers=BROWSER).error  # JSON


def test_a_browser_gets_a_page_that_explains_a_wrong_token(client: Client) -> None:
    for path in ("/?token=wrong", "/", "/learn?token=wrong", "/inspect", "/lern"):
        response = client.send(path, headers=BROWSER, token=False)
        assert response.status == 401
        assert response.headers["content-type"].startswith("text/html")
        assert b"the token is" not in response.body  # the heading says it
        assert b"Run inlayer serve again, and open the address that it prints" in response.body
        assert "default-src 'none'" in response.headers["content-security-policy"]
    for path, headers in (("/api/models", BROWSER), ("/?token=wrong", {"Accept": "*/*"})):  # the API stays JSON
        assert "the token is" in client.send(path, headers=headers, token=False).error


def test_the_page_is_small() -> None:
    assert len(page(title="inlayer", data=None).encode()) <= 400_000  # with everything vendored, and not compressed

"""Who may ask: every rule with a request that breaks it and the same request put right."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from inlayer.trace import Pipeline
from inlayer.trace.html import content_security_policy
from inlayer.web.guard import HEADERS
from tests.web.client import PATIENCE, TOKEN, Place, running

PATHS = [
    "/",
    "/learn",
    "/api/learn",
    "/api/learn/check",
    "/api/models",
    "/api/token?id=1",
    "/api/initialization",
    "/api/openapi.json",
    "/api/walk",
    "/no/such",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
def test_nothing_answers_without_the_token(place: Place, path: str, method: str) -> None:
    answer = place.ask(path, method=method, token=False)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    if method != "HEAD":
        assert "the token is missing" in answer.error


@pytest.mark.parametrize("path", PATHS)
def test_the_token_opens(place: Place, path: str) -> None:
    assert place.ask(path).status != 401
    between = "&" if "?" in path else "?"
    assert place.ask(f"{path}{between}token={TOKEN}", token=False).status != 401


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
        (f"/?token={TOKEN}&token=x", None),  # one right and one wrong is wrong
        ("/?token=x", f"Bearer {TOKEN}"),
    ],
)
def test_a_wrong_token(place: Place, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = place.ask(path, headers=headers, token=False)
    assert answer.status == 401
    assert "the token is wrong" in answer.error


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9", "localhost", "LOCALHOST:1", "[::1]:80", "10.1.2.3:80"])
def test_own_hosts(place: Place, host: str) -> None:
    assert place.ask("/api/models", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "localhost.", "[::1",
        "localhost:x", "localhost:", "2130706433", "127.1", "0x7f.1", "user@localhost", "::1:80x",
    ],
)  # fmt: skip
def test_rebound_names_are_refused(place: Place, host: str) -> None:
    answer = place.ask("/api/models", headers={"Host": host})
    assert answer.status == 403
    assert "Host is" in answer.error


def test_a_host_given_at_start_is_ours(line: Pipeline) -> None:
    with running({"default": line}, hosts=("My-Box",)) as (place, _):
        assert place.ask("/api/models", headers={"Host": "my-box:80"}).status == 200
        assert place.ask("/api/models", headers={"Host": "my-box.example:80"}).status == 403


def test_no_host_at_all(place: Place) -> None:
    asked = f"GET /api/models HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n"
    assert place.raw(f"{asked}\r\n".encode()).startswith(b"HTTP/1.1 403 ")
    assert place.raw(f"{asked}Host: localhost\r\n\r\n".encode()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_origins(place: Place, method: str) -> None:
    path, body = ("/api/models", None) if method == "GET" else ("/api/walk", {"texts": ["Hi"]})
    own = f"http://127.0.0.1:{place.port}"
    assert place.ask(path, body, headers={"Origin": own}).status == 200
    for other in (
        "null", "", "http://evil.example", f"https://127.0.0.1:{place.port}", "http://127.0.0.1",
        f"http://127.0.0.1:{place.port + 1}", f"http://localhost:{place.port}", f"{own}/", f"{own}.evil.example",
    ):  # fmt: skip
        answer = place.ask(path, body, headers={"Origin": other})
        assert answer.status == 403, other
        assert "other websites" in answer.error
        assert not any(name.lower().startswith("access-control") for name in answer.headers)


def test_a_second_origin_does_not_hide_behind_the_first(place: Place) -> None:
    own = f"127.0.0.1:{place.port}"
    asked = f"GET /api/models HTTP/1.1\r\nHost: {own}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
    once, twice = f"Origin: http://{own}\r\n", f"Origin: http://{own}\r\nOrigin: http://evil.example\r\n"
    assert place.raw(f"{asked}{once}\r\n".encode()).startswith(b"HTTP/1.1 200 ")
    assert place.raw(f"{asked}{twice}\r\n".encode()).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("path", ["/", "/api/models"])
@pytest.mark.parametrize(("site", "status"), [("same-origin", 200), ("none", 200), ("cross-site", 403),
                                              ("same-site", 403), ("", 403)])  # fmt: skip
def test_fetch_metadata(place: Place, path: str, site: str, status: int) -> None:
    assert place.ask(path, headers={"Sec-Fetch-Site": site}).status == status


def test_a_link_from_elsewhere_may_lead_to_the_page_and_nowhere_else(place: Place) -> None:
    follow = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert place.ask("/", headers=follow).status == 200
    assert place.ask("/learn", headers=follow).status == 200
    assert place.ask("/api/models", headers=follow).status == 403
    assert place.ask("/api/learn", headers=follow).status == 403
    assert place.ask("/", headers=follow | {"Sec-Fetch-Dest": "iframe"}).status == 403
    assert place.ask("/", headers=follow | {"Sec-Fetch-Mode": "no-cors"}).status == 403
    assert place.ask("/", method="POST", headers=follow).status == 403
    assert place.ask("/", headers=follow, token=False).status == 401


def test_the_walk_may_stand_in_a_frame_of_this_server_alone(place: Place) -> None:
    """Beside a lesson. The browser holds a frame against frame-ancestors; the guard refuses other sites before that."""
    framed = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    walk = place.ask("/", headers=framed)
    assert walk.status == 200
    assert walk.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in walk.headers["Content-Security-Policy"]
    for site in ("cross-site", "same-site"):
        assert place.ask("/", headers=framed | {"Sec-Fetch-Site": site}).status == 403
    learn = place.ask("/learn", headers=framed)
    assert learn.headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in learn.headers["Content-Security-Policy"]


def answers(place: Place) -> Iterator[tuple[str, object]]:
    yield "page", place.ask("/")
    yield "course", place.ask("/learn")
    yield "facts", place.ask("/api/models")
    yield "not there", place.ask("/no/such")
    yield "no token", place.ask("/", token=False)
    yield "bad", place.ask("/api/walk", {})


def test_every_answer_carries_the_headers(place: Place) -> None:
    for name, answer in answers(place):
        headers = {key.lower(): value for key, value in answer.headers.items()}
        assert headers["x-content-type-options"] == "nosniff", name
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == ("SAMEORIGIN" if name == "page" else "DENY")
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        ancestors = "'self'" if name == "page" else "'none'"  # the walk stands beside a lesson of this very server
        assert f"frame-ancestors {ancestors}" in headers["content-security-policy"]
        assert not {"server", "location", "set-cookie"} & set(headers)
        assert TOKEN not in str(answer.headers)


def test_the_page_and_its_policy(place: Place) -> None:
    page = place.ask("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"] == content_security_policy(served=True)
    assert page.body.lower().startswith(b"<!doctype html>")
    assert TOKEN.encode() not in page.body
    assert "default-src 'none'" in place.ask("/api/models").headers["Content-Security-Policy"]


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
def test_a_body_is_json_and_says_so(place: Place, kind: str, status: int) -> None:
    assert place.ask("/api/walk", {"texts": ["Hi"]}, headers={"Content-Type": kind}).status == status


def test_a_packed_body_is_refused(place: Place) -> None:
    assert place.ask("/api/walk", {"texts": ["Hi"]}, headers={"Content-Encoding": "gzip"}).status == 415
    assert place.ask("/api/walk", {"texts": ["Hi"]}, headers={"Content-Encoding": "identity"}).status == 200


def head(place: Place, *fields: str) -> bytes:
    lines = [
        "POST /api/walk HTTP/1.1", f"Host: 127.0.0.1:{place.port}", f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json", *fields,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_large_body_is_refused_before_it_is_sent(place: Place) -> None:
    for length in ("262145", "99999999999999999999"):
        with socket.create_connection((place.host, place.port), timeout=PATIENCE) as connection:
            connection.sendall(head(place, f"Content-Length: {length}"))
            assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_a_body_in_pieces_is_counted_as_it_comes(place: Place) -> None:
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    with socket.create_connection((place.host, place.port), timeout=PATIENCE) as connection:
        connection.sendall(head(place, "Transfer-Encoding: chunked"))
        for _ in range(64):  # 262,144 bytes: all that is allowed, and the body has not ended
            connection.sendall(chunk)
        connection.sendall(chunk)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
    body = b'{"texts": ["Hi"]}'
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    answer = place.raw(head(place, "Transfer-Encoding: chunked", "Connection: close") + pieces + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


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
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # somebody speaks TLS
    ],
)
def test_what_is_no_http_gets_one_line_and_the_door(place: Place, data: bytes) -> None:
    try:
        answer = place.raw(data)
    except ConnectionError:  # the rest of a large head was not read
        answer = b""
    assert answer == b"" or (answer.startswith(b"HTTP/1.1 4") and answer.endswith(b'"}'))
    if answer:
        assert all(f"\r\n{name}: {value}\r\n".encode() in answer for name, value in HEADERS.items())
    assert place.ask("/api/models").status == 200  # and the next one is served

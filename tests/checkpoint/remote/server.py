"""A local stand-in for the hub, with fault injection.

- `/{repo}/resolve/{revision}/{file}` for HEAD and GET, with the hub's headers. Large files are redirected to a second
  origin (another port), as the hub redirects to its CDN
- `/api/models/{repo}/revision/{revision}` names the commit and its files
- as a plain web server, `/{repo}/resolve/{revision}/` is a folder URL
- every byte sent is counted, every request recorded; `fail()` makes the next responses for a file faulty
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

UNCOUNTED = "/api/agent-harnesses"  # huggingface_hub requests it once a day on its own account
REDIRECTED = (".safetensors", ".model", ".bin")
CHUNK = 64 << 10
RANGE_ERRORS = {  # added to first, last and size in Content-Range
    "shift_range": (1, 1, 0),
    "wrong_start": (1, 0, 0),
    "short_range": (0, -1, 0),
    "change_size": (0, 0, 1),
}
LENGTH_ERRORS = {"short_range": -1, "short_length": -1, "long_length": 1}
FAULTS = {
    "ignore_range", "cut_connection", "no_length", "no_content_range", "gzip", "change_etag", "status", "hang", "drip",
    "redirect", *RANGE_ERRORS, *LENGTH_ERRORS,
}  # fmt: skip


@dataclass
class Fault:
    kind: str
    file: str
    times: int  # number of faulty responses
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    after: int = 1000  # bytes before the connection is cut
    skip: int = 0  # number of correct responses before


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    origin: str  # "hub" or "cdn"
    range: str | None
    token: str | None


class Hub:
    """Both origins, their repositories, and a record of all requests."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, Path]] = {}  # repository -> commit -> folder
        self.revisions: dict[tuple[str, str], str] = {}
        self.gated: dict[str, str] = {}  # repository -> the token that grants access
        self.omit_commit = False
        self.omit_etag = False
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.sent: Counter[str] = Counter()  # bytes by file name or API path, headers included
        self.connections: list[socket.socket] = []
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.hub, self.cdn = self._serve("hub"), self._serve("cdn")

    def _serve(self, origin: str) -> ThreadingHTTPServer:
        handler = type("Handler", (Handler,), {"hub": self, "origin": origin})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.hub.server_port}"

    def add(self, repo: str, folder: Path, revision: str = "main") -> str:
        """Serve a folder as a new commit of a repository; the revision then refers to it."""
        commit = hashlib.sha1(f"{repo} {folder} {revision}".encode()).hexdigest()
        self.commits.setdefault(repo, {})[commit] = folder
        self.revisions[repo, revision] = commit
        return commit

    def fail(self, kind: str, file: str, times: int = 1_000_000, **options: object) -> None:
        assert kind in FAULTS
        self.faults.append(Fault(kind, file, times, **options))  # type: ignore[arg-type]

    def next_fault(self, file: str, kinds: set[str]) -> Fault | None:
        """The fault of the next response for a file, if it is of one of these kinds."""
        with self.lock:
            for fault in self.faults:
                if fault.file == file and fault.kind in kinds and fault.times > 0:
                    if fault.skip > 0:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def ranges(self, file: str) -> list[tuple[int, int]]:
        """First and last byte of each range requested from the origin that serves the file."""
        origin = "cdn" if file.endswith(REDIRECTED) else "hub"
        found = [request for request in self.requests if request.path.endswith("/" + file) and request.range]
        served = [request.range or "" for request in found if request.origin == origin]
        return [tuple(map(int, re.findall(r"\d+", requested))) for requested in served]  # type: ignore[misc]

    def reset(self) -> None:
        self.requests.clear()
        self.sent.clear()

    def stop(self) -> None:
        self.stopped.set()
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()
        for connection in self.connections:
            with suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    hub: Hub
    origin: str

    def handle(self) -> None:
        self.hub.connections.append(self.connection)
        with suppress(OSError):  # the client closed the connection
            super().handle()

    def do_HEAD(self) -> None:
        self.respond()

    def do_GET(self) -> None:
        self.respond()

    def respond(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = self.headers.get("Authorization")
        self.key = path
        if path == UNCOUNTED:
            return self.refuse(404, "")
        self.hub.requests.append(Request(self.command, path, self.origin, self.headers.get("Range"), token))
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        info = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        if found is None and info is None:
            return self.refuse(404, "")
        repo, revision = (found or info).groups()[:2]  # type: ignore[union-attr]
        if repo not in self.hub.commits:
            return self.refuse(401, "RepoNotFound")
        if self.origin == "hub" and repo in self.hub.gated and token != f"Bearer {self.hub.gated[repo]}":
            return self.refuse(403 if token else 401, "GatedRepo")
        commit = self.hub.revisions.get((repo, revision), revision)
        folder = self.hub.commits[repo].get(commit)
        if folder is None:
            return self.refuse(404, "RevisionNotFound")
        if found is None:
            return self.describe(folder, repo, commit)
        if not (folder / found[3]).is_file():
            return self.refuse(404, "EntryNotFound")
        return self.resolve(folder / found[3], repo, commit)

    def describe(self, folder: Path, repo: str, commit: str) -> None:
        fault = self.hub.next_fault("api", {"status"})
        if fault is not None:
            return self.head(fault.status, fault.headers, 0)
        files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        content = {"id": repo, "siblings": [{"rfilename": file} for file in files]}
        data = json.dumps(content if self.hub.omit_commit else content | {"sha": commit}).encode()
        self.head(200, {"Content-Type": "application/json"}, len(data))
        self.wfile.write(data)
        return self.count(len(data))

    def resolve(self, file: Path, repo: str, commit: str) -> None:
        self.key = file.name
        size, etag = file.stat().st_size, hashlib.sha256(f"{file} {file.stat().st_mtime_ns}".encode()).hexdigest()
        if self.origin == "hub" and self.hub.next_fault(file.name, {"change_etag"}):
            etag = "another"
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        headers |= {} if self.hub.omit_etag else {"ETag": f'"{etag}"'}
        if self.origin == "hub" and file.name.endswith(REDIRECTED):
            location = f"http://127.0.0.1:{self.hub.cdn.server_port}/{repo}/resolve/{commit}/{file.name}"
            linked = {} if self.hub.omit_etag else {"X-Linked-ETag": f'"{etag}"'}
            return self.head(302, headers | linked | {"Location": location}, 0)
        return self.send(file, size, headers, self.hub.next_fault(file.name, FAULTS - {"change_etag"}))

    def send(self, file: Path, size: int, headers: dict[str, str], fault: Fault | None) -> None:
        kind = fault.kind if fault is not None else ""
        requested = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if kind == "hang":
            self.hub.stopped.wait(20)
            self.close_connection = True
            return None
        if fault is not None and kind in {"status", "redirect"}:
            return self.head(302 if kind == "redirect" else fault.status, fault.headers, 0)
        if requested is None or kind == "ignore_range":
            self.head(200, headers, size)
            return self.body(file, 0, size)
        first, last = int(requested[1]), min(int(requested[2]), size - 1)
        if first >= size:
            return self.head(416, headers | {"Content-Range": f"bytes */{size}"}, 0)
        named = [
            value + error for value, error in zip((first, last, size), RANGE_ERRORS.get(kind, (0, 0, 0)), strict=True)
        ]
        if kind != "no_content_range":
            headers["Content-Range"] = f"bytes {named[0]}-{named[1]}/{named[2]}"
        if kind == "gzip":
            headers["Content-Encoding"] = "gzip"
        length = None if kind == "no_length" else last - first + 1 + LENGTH_ERRORS.get(kind, 0)
        self.head(206, headers, length)
        stop = first + fault.after if fault is not None and kind == "cut_connection" else last + 1
        self.body(file, first, min(stop, last + 1, first + (length or size)), drip=kind == "drip")
        if kind in {"cut_connection", "long_length", "no_length"}:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        return None

    def body(self, file: Path, first: int, stop: int, *, drip: bool = False) -> None:
        if self.command == "HEAD":
            return
        with file.open("rb") as stream:
            stream.seek(first)
            while first < stop:
                chunk = stream.read(min(1000 if drip else CHUNK, stop - first))
                self.count(len(chunk))  # before the client can have it: a test may reset the counters then
                self.wfile.write(chunk)
                first += len(chunk)
                self.hub.stopped.wait(0.03 if drip else 0)

    def refuse(self, status: int, code: str) -> None:
        self.head(status, {"X-Error-Code": code, "X-Error-Message": "no"} if code else {}, 0)

    def head(self, status: int, headers: dict[str, str], length: int | None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def flush_headers(self) -> None:
        self.count(sum(map(len, self._headers_buffer)))
        super().flush_headers()

    def count(self, size: int) -> None:
        with self.hub.lock:
            self.hub.sent[self.key] += size

    def log_message(self, *_: object) -> None:
        """Nothing: `requests` has the requests."""

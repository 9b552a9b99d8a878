"""A hub on this machine: repositories served over HTTP as the real one does it, and every way to do it wrong.

- `/{repo}/resolve/{revision}/{file}` for HEAD and GET, with the hub's headers; large files are redirected to a second
  origin (another port), as the hub redirects to its CDN
- `/api/models/{repo}/tree/{revision}` lists files
- every byte that is sent is counted, every request is kept
- `fail()` makes the next answers for a file (or the listing, "tree") wrong in one of the ways of `FAULTS`
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

HOUSEKEEPING = "/api/agent-harnesses"  # huggingface_hub asks for it once a day, whoever uses it: not ours to count
LARGE = (".safetensors", ".model", ".bin")  # redirected
CHUNK = 64 << 10
FAULTS = {
    "ignores the range", "cuts the connection", "announces too little", "announces too much", "announces nothing",
    "shifts the range", "starts elsewhere", "shortens the range", "names no range", "compresses", "changes size",
    "changes etag", "status", "hangs", "drips",
}  # fmt: skip

LIES = {  # added to first, last and size in Content-Range
    "shifts the range": (1, 1, 0),
    "starts elsewhere": (1, 0, 0),
    "shortens the range": (0, -1, 0),
    "changes size": (0, 0, 1),
}
LENGTH_LIES = {"shortens the range": -1, "announces too little": -1, "announces too much": 1}


@dataclass
class Fault:
    kind: str
    file: str
    times: int  # how many answers it spoils
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    after: int = 1000  # bytes before a cut
    skip: int = 0  # how many answers are right before
    methods: set[str] = field(default_factory=lambda: {"GET"})


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    origin: str  # "hub" or "cdn"
    range: str | None
    token: str | None


class Hub:
    """Both origins, what they serve, and what they were asked."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, Path]] = {}  # repository -> commit -> folder
        self.revisions: dict[tuple[str, str], str] = {}
        self.anonymous = False  # leaves out the name of the commit
        self.gated: dict[str, str] = {}  # repository -> the token that opens it
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.sent: Counter[str] = Counter()  # bytes by file, or by path of the API; headers included
        self.connections: list[socket.socket] = []
        self.lock = threading.Lock()
        self.released = threading.Event()  # ends every hanging answer
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
        """Serve a folder as a new commit of a repository, which the revision then means."""
        commit = hashlib.sha1(f"{repo} {folder} {revision}".encode()).hexdigest()
        self.commits.setdefault(repo, {})[commit] = folder
        self.revisions[repo, revision] = commit
        return commit

    def fail(self, kind: str, file: str, times: int = 1_000_000, **how: object) -> None:
        assert kind in FAULTS
        self.faults.append(Fault(kind, file, times, **how))  # type: ignore[arg-type]

    def fault(self, method: str, file: str, kinds: set[str]) -> Fault | None:
        """The fault of the next answer for a file, if it has one of these kinds."""
        with self.lock:
            for fault in self.faults:
                right = fault.file == file and fault.kind in kinds and method in fault.methods
                if right and fault.times > 0:
                    if fault.skip > 0:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def ranges(self, file: str) -> list[tuple[int, int]]:
        """The ranges of a file that were asked for, as first and last byte, without those that were redirected."""
        origin = "cdn" if file.endswith(LARGE) else "hub"
        asked = [seen for seen in self.seen if seen.path.endswith("/" + file) and seen.origin == origin and seen.range]
        return [tuple(map(int, re.findall(r"\d+", seen.range or ""))) for seen in asked]  # type: ignore[misc]

    def forget(self) -> None:
        self.seen.clear()
        self.sent.clear()

    def stop(self) -> None:
        self.released.set()
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()
        for connection in self.connections:
            with suppress(OSError):  # it was closed long ago
                connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    hub: Hub
    origin: str

    def handle(self) -> None:
        self.hub.connections.append(self.connection)
        with suppress(OSError):  # the client closed the connection: it has read enough
            super().handle()

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = self.headers.get("Authorization")
        self.key = path
        if path == HOUSEKEEPING:
            return self.refuse(404, "")
        self.hub.seen.append(Seen(self.command, path, self.origin, self.headers.get("Range"), token))
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path)
        if found is None and tree is None:
            return self.refuse(404, "")
        repo, revision = (found or tree).groups()[:2]  # type: ignore[union-attr]
        if repo not in self.hub.commits:
            return self.refuse(401, "RepoNotFound")
        wanted = self.hub.gated.get(repo)
        if self.origin == "hub" and wanted is not None and token != f"Bearer {wanted}":
            return self.refuse(403 if token else 401, "GatedRepo")
        commit = self.hub.revisions.get((repo, revision), revision)
        folder = self.hub.commits[repo].get(commit)
        if folder is None:
            return self.refuse(404, "RevisionNotFound")
        if found is None:
            return self.list(folder)
        file = folder / found[3]
        if not file.is_file():
            return self.refuse(404, "EntryNotFound", commit)
        return self.resolve(file, repo, commit)

    def resolve(self, file: Path, repo: str, commit: str) -> None:
        self.key = file.name
        size, etag = file.stat().st_size, hashlib.sha256(str(file).encode()).hexdigest()
        if self.origin == "hub" and self.hub.fault(self.command, file.name, {"changes etag"}):
            etag = "another"
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes", "ETag": f'"{etag}"'}
        if self.hub.anonymous:
            del headers["X-Repo-Commit"]
        if self.origin == "hub" and file.name.endswith(LARGE):
            place = f"http://127.0.0.1:{self.hub.cdn.server_port}/{repo}/resolve/{commit}/{file.name}"
            linked = {"X-Linked-Size": str(size), "X-Linked-ETag": f'"{etag}"', "Location": place}
            return self.head(302, headers | linked, 0)
        fault = self.hub.fault(self.command, file.name, FAULTS - {"changes etag"})
        return self.send(file, size, headers, fault)

    def send(self, file: Path, size: int, headers: dict[str, str], fault: Fault | None) -> None:
        kind = fault.kind if fault is not None else ""
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if kind == "hangs":
            self.hub.released.wait(20)
            self.close_connection = True
            return None
        if fault is not None and kind == "status":
            return self.head(fault.status, fault.headers, 0)
        if asked is None or kind == "ignores the range":
            self.head(200, headers, size)
            return self.body(file, 0, size)
        first, last = int(asked[1]), min(int(asked[2]), size - 1)
        if first >= size:
            return self.head(416, headers | {"Content-Range": f"bytes */{size}"}, 0)
        shown = [value + change for value, change in zip((first, last, size), LIES.get(kind, (0, 0, 0)), strict=True)]
        if kind != "names no range":
            headers["Content-Range"] = f"bytes {shown[0]}-{shown[1]}/{shown[2]}"
        if kind == "compresses":
            headers["Content-Encoding"] = "gzip"
        length = None if kind == "announces nothing" else last - first + 1 + LENGTH_LIES.get(kind, 0)
        self.head(206, headers, length)
        stop = first + fault.after if fault is not None and kind == "cuts the connection" else last + 1
        self.body(file, first, min(stop, last + 1, first + (length or size)), drips=kind == "drips")
        if kind in {"cuts the connection", "announces too much", "announces nothing"}:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        return None

    def body(self, file: Path, first: int, stop: int, *, drips: bool = False) -> None:
        if self.command == "HEAD":
            return
        with file.open("rb") as stream:
            stream.seek(first)
            while first < stop:
                chunk = stream.read(min(1000 if drips else CHUNK, stop - first))
                self.wfile.write(chunk)
                self.count(len(chunk))
                first += len(chunk)
                self.hub.released.wait(0.03 if drips else 0)

    def list(self, folder: Path) -> None:
        fault = self.hub.fault(self.command, "tree", {"status"})
        if fault is not None:
            return self.head(fault.status, fault.headers, 0)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        entries = [
            {"type": "file", "path": file.relative_to(folder).as_posix(), "size": file.stat().st_size, "oid": "0" * 40}
            for file in files
        ]
        data = json.dumps(entries).encode()
        self.head(200, {"Content-Type": "application/json"}, len(data))
        self.wfile.write(data)
        return self.count(len(data))

    def refuse(self, status: int, code: str, commit: str | None = None) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": "no"} if code else {}
        self.head(status, headers | ({"X-Repo-Commit": commit} if commit else {}), 0)

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

    def log_message(self, *what: object) -> None:
        """Nothing: the requests are in `seen`."""

"""The server under load: 50 clients on loopback for 30 s, each sending a request as soon as it has an answer.

- walks: `inlayer serve` with the bundled sample model. There is no peer: the headline is the 95th percentile of the
  latency relative to 300 ms, which still feels immediate
- vectors: POST /v1/embeddings with WordLlama's table, compared with the same table in sentence-transformers behind
  FastAPI (peer_server.py), with as many processes

The limit is the same walks or vectors as JSON, computed in one process without a server, times the number of cores.

The clients are one lean process on the same cores. Every request has its own text, so no response is cached.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.measure import Ratio, Result, conditions, installed

CLIENTS, SECONDS, WARM_UP = 50, 30.0, 10.0  # both servers have started their processes after the warm-up
MAX_MS = 300
LIMIT_SECONDS = 5.0
WALKS, VECTORS = "/api/walk", "/v1/embeddings"
TEXTS_PER_REQUEST = 8
SENTENCE = "I love dogs and cats but the old house by the sea keeps its own time"


def run() -> Iterator[Result]:
    """Yield the latency of walks, then the throughput of vectors."""
    load = measure_load([sys.executable, "-m", "inlayer", "serve", "--json"], WALKS)
    yield Result(
        name="serve_walks",
        ratios=[
            Ratio(label=f"95th percentile / {MAX_MS} ms", value=load["p95_ms"] / MAX_MS, at_most=1),
            limit_of(WALKS, load),
            Ratio(label="errors", value=load["errors"], at_most=0),
        ],
        measured=load,
        sizes={"clients": CLIENTS, "seconds": SECONDS, "model": "default", "words per text": "3 to 10"},
        notes=[
            f"starlette {installed('starlette')}, uvicorn {installed('uvicorn')}",
            "the clients run on the same cores as the server",
        ],
    )
    yield compare_vectors()


def compare_vectors() -> Result:
    """Compare requests per second with those of the peer."""
    ours = measure_load([sys.executable, "-m", "inlayer", "serve", "--json", "--model", "wordllama"], VECTORS)
    theirs = measure_load([sys.executable, "-m", "benchmarks.peer_server"], VECTORS)
    rates = [load["requests_per_second"] for load in (ours, theirs)]
    return Result(
        name="serve_vectors",
        ratios=[
            Ratio(label="requests per second: inlayer / sentence-transformers + FastAPI", value=rates[0] / rates[1]),
            limit_of(VECTORS, ours),
            Ratio(label="errors", value=ours["errors"], at_most=0),
        ],
        measured={"inlayer": ours, "sentence-transformers + FastAPI": theirs},
        sizes={"clients": CLIENTS, "seconds": SECONDS, "model": "wordllama", "texts per request": TEXTS_PER_REQUEST},
        notes=["the clients run on the same cores as the server"],
    )


def measure_load(command: list[str], path: str) -> dict[str, Any]:
    """Start a server, run the clients, stop the server, and return the measurements."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["url"]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.serve", url, path], capture_output=True, text=True, check=True
            )
        finally:
            server.terminate()
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def limit_of(path: str, load: dict[str, Any]) -> Ratio:
    """Requests per second relative to the limit, which is measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.serve", "limit", path]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=one_thread)
    limit = float(done.stdout) * conditions()["cores"]
    return Ratio(label="requests per second: limit / inlayer", value=limit / load["requests_per_second"])


def rate_alone(path: str, seconds: float = LIMIT_SECONDS) -> float:
    """Responses per second that one core computes, without a server."""
    import inlayer
    from inlayer.trace import Pipeline
    from inlayer.web.worker_threads import as_json

    model = inlayer.load("default" if path == WALKS else "wordllama")
    pipeline = Pipeline(model) if path == WALKS else None

    def respond(number: int) -> object:
        if pipeline is not None:
            return as_json(pipeline.walk([text_of(0, number)]))
        texts = [text_of(0, number * TEXTS_PER_REQUEST + index) for index in range(TEXTS_PER_REQUEST)]
        return as_json(model.encode(texts, normalize=True).tolist())

    for number in range(10):
        respond(number)
    done, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        respond(done)
        done += 1
    return done / (time.perf_counter() - begin)


def text_of(client: int, number: int) -> str:
    """A unique text of 3 to 10 words."""
    words = SENTENCE.split()
    start = (client * 7 + number * 3) % len(words)
    words = [*words[start:], *words[:start]][: 2 + number % 8]
    return f"{' '.join(words)} {client}-{number}"


@dataclass
class Measurements:
    """Measurements of all clients, in seconds, without the warm-up."""

    begin: float
    end: float
    seconds: list[float] = field(default_factory=list)
    bytes: int = 0
    errors: list[str] = field(default_factory=list)


class Client(asyncio.Protocol):
    """A connection that sends a request, waits for the whole response, and sends the next one."""

    def __init__(self, number: int, head: str, measured: Measurements, finished: asyncio.Future[None]) -> None:
        self.number, self.request_head, self.measured, self.finished = number, head, measured, finished
        self.requests, self.sent_at, self.missing, self.head = 0, 0.0, -1, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send_request()

    def send_request(self) -> None:
        walks = WALKS in self.request_head
        count = 1 if walks else TEXTS_PER_REQUEST
        texts = [text_of(self.number, self.requests * count + index) for index in range(count)]
        body = json.dumps({"texts": texts} if walks else {"model": "wordllama", "input": texts}).encode()
        self.requests += 1
        self.head, self.missing = b"", -1
        self.sent_at = time.perf_counter()
        self.transport.write(f"{self.request_head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def data_received(self, data: bytes) -> None:
        if self.missing < 0:
            self.head += data
            head, end, rest = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 200 "):
                self.measured.errors.append((head.split(b"\r\n")[0] + rest).decode(errors="replace"))
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            self.missing = length
            self.measured.bytes += length
            data = rest
        self.missing -= len(data)
        if self.missing > 0:
            return
        now = time.perf_counter()
        if self.sent_at >= self.measured.begin and now <= self.measured.end:
            self.measured.seconds.append(now - self.sent_at)
        if now < self.measured.end:
            self.send_request()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if time.perf_counter() < self.measured.end:
            self.measured.errors.append(f"connection lost: {exc}")
        if not self.finished.done():
            self.finished.set_result(None)


async def run_clients(url: str, path: str, clients: int = CLIENTS, seconds: float = SECONDS) -> dict[str, Any]:
    """Run all clients concurrently, after a warm-up that does not count."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    token = parse_qs(parts.query)["token"][0]
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\n"
    )
    begin = time.perf_counter() + WARM_UP
    measured = Measurements(begin, begin + seconds)
    loop = asyncio.get_running_loop()
    finished = []
    for number in range(clients):
        done: asyncio.Future[None] = loop.create_future()
        finished.append(done)
        client = partial(Client, number, head, measured, done)
        await loop.create_connection(client, parts.hostname, parts.port)
    await asyncio.gather(*finished)
    cuts = statistics.quantiles(measured.seconds, n=100)
    return {
        "p50_ms": round(cuts[49] * 1e3, 1),
        "p95_ms": round(cuts[94] * 1e3, 1),
        "p99_ms": round(cuts[98] * 1e3, 1),
        "slowest_ms": round(max(measured.seconds) * 1e3, 1),
        "requests": len(measured.seconds),
        "requests_per_second": round(len(measured.seconds) / seconds, 1),
        "errors": len(measured.errors),
        "first_error": measured.errors[0] if measured.errors else None,
        "clients_cpu_share": round(time.process_time() / (seconds + WARM_UP), 3),
    }


if __name__ == "__main__":
    if sys.argv[1] == "limit":
        print(rate_alone(sys.argv[2]))
    else:
        print(json.dumps(asyncio.run(run_clients(sys.argv[1], sys.argv[2]))))

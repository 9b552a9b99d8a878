"""Twins: further processes at the same address, that answer alike and end with the first."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from inlayer.checkpoint.samples import SAMPLES
from inlayer.errors import InputError
from inlayer.web.server import bind
from inlayer.web.twins import wanted
from tests.web.client import Place, process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="twins are forked on Linux only")

PATIENCE = 20.0  # seconds, on a busy machine


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_ticks(pid: int) -> int:
    """What a process has spent of the processor since it was forked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def is_free(port: int, end: float) -> bool:
    """Whether anybody may have the port, once the last thread of a process that ended has let go of its sockets."""
    while time.monotonic() < end:
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                again.bind(("127.0.0.1", port))
            except OSError:
                time.sleep(0.02)
            else:
                return True
    return False


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_they_end_with_the_first_however_it_ends(sent: signal.Signals) -> None:
    with process() as (program, place, _):
        made = children(program.pid)
        assert len(made) == wanted() - 1
        assert place.ask("/api/walk", {"texts": ["I love dogs"]}).status == 200
        program.send_signal(sent)
        program.wait(PATIENCE)
        end = time.monotonic() + PATIENCE
        while any(map(is_alive, made)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not any(map(is_alive, made))
        assert is_free(place.port, end)


def test_every_one_of_them_answers_alike() -> None:
    """Also with a tokenizer and a torch that had threads when they were forked."""
    asked: list[tuple[str, object]] = [
        ("/api/walk", {"texts": ["I love dogs " * 50], "model": model}) for model in SAMPLES
    ]
    asked += [(f"/api/token?id=11&k=8&model={model}", None) for model in SAMPLES] + [
        ("/api/initialization?seed=7", None)
    ]
    with process(*(part for name in SAMPLES for part in ("--model", name))) as (program, place, _):
        made = [program.pid, *children(program.pid)]
        for path, body in asked:
            answers = [place.ask(path, body) for _ in range(6 * len(made))]
            assert {answer.status for answer in answers} == {200}, answers[0].body
            assert len({answer.body for answer in answers}) == 1, path
        spent = [cpu_ticks(pid) for pid in made]
        assert min(spent[1:]) > 0, f"a twin did nothing: {spent}"
        refused = Place(place.port, "wrong")
        assert {refused.ask("/api/models").status for _ in range(8 * len(made))} == {401}


def test_a_twin_that_dies_is_not_missed() -> None:
    with process() as (program, place, _):
        for child in children(program.pid):
            os.kill(child, signal.SIGKILL)
            while is_alive(child):
                time.sleep(0.02)
        assert {place.ask("/api/models").status for _ in range(10)} == {200}


def test_a_second_server_does_not_share_the_port() -> None:
    with process() as (_, place, _), pytest.raises(InputError, match=str(place.port)):
        bind("127.0.0.1", place.port)

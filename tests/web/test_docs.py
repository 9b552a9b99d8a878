"""docs/web.md keeps its word: its curl lines work, its numbers are those of the code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from inlayer.web import api, course, learn, server
from inlayer.web.guard import BODY_SECONDS
from inlayer.web.schemas import Limits
from tests.web.client import Place

PAGE = (Path(__file__).parents[2] / "docs" / "web.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("curl ")]


def test_every_curl_line_works(place: Place) -> None:
    assert len(commands()) == 9
    seen = set()
    for command in commands():
        given = command.replace("$URL", f"http://127.0.0.1:{place.port}").replace(
            "$AUTH", f"Authorization: Bearer {place.token}"
        )
        if shutil.which("curl"):
            answer = subprocess.run(shlex.split(given), capture_output=True, check=True).stdout
        else:
            answer = as_curl(place, shlex.split(given))
        facts = json.loads(answer)
        assert "error" not in facts, command
        seen.add(next(iter(facts)))
    assert seen == {"models", "format", "id", "vocab_size", "openapi", "lessons", "right", "task"}


def as_curl(place: Place, words: list[str]) -> bytes:
    """What curl would send, where there is none."""
    body = words[words.index("-d") + 1].encode() if "-d" in words else None
    url = next(word for word in words if word.startswith("http"))
    return place.ask(url.removeprefix(f"http://127.0.0.1:{place.port}"), body).body


def test_the_numbers_are_those_in_force() -> None:
    limits = Limits()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE))
    assert rows["a body"] == f"{limits.body:,} bytes, within {BODY_SECONDS:g} s"
    assert rows["texts in a request"] == f"{limits.texts}, of {limits.characters:,} characters together"
    assert rows["`dims`, `tokens`, `pad`, `k`"] == f"{limits.dims}, {limits.tokens:,}, {limits.pad}, {limits.k}"
    assert rows["texts x tokens, and that x dims"] == f"{limits.places:,}, {limits.values:,}"
    assert rows["requests waiting for a thread"].startswith(f"{api.WAITING};")
    assert rows["checks graded at once, and waiting"] == f"{learn.CHECKS}, {learn.CHECKS_WAITING}; the next is told 503"
    assert rows["code of a task"] == f"{course.MAX_CODE:,} characters"
    assert rows["connections"] == (
        f"{server.MAX_CONNECTIONS}; each has {server.HEAD_SECONDS:g} s for its first request and "
        f"{server.IDLE_SECONDS:g} s for each after that"
    )
    assert rows["answers kept for the next who asks the same"] == f"{api.KEPT >> 20} MB"

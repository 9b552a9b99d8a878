"""docs/web.md: its curl commands work, and its limits match the code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from inlayer.web import app, course, request_body, schemas, server
from tests.web.client import Client

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "web.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("curl ")]


def test_every_curl_command_works(client: Client) -> None:
    assert len(commands()) == 9
    seen = set()
    for command in commands():
        given = command.replace("$URL", f"http://127.0.0.1:{client.port}").replace(
            "$AUTH", f"Authorization: Bearer {client.token}"
        )
        if shutil.which("curl"):
            body = subprocess.run(shlex.split(given), capture_output=True, check=True).stdout
        else:
            body = send_like_curl(client, shlex.split(given))
        facts = json.loads(body)
        assert "error" not in facts, command
        seen.add(next(iter(facts)))
    assert len(seen) == 8  # two walks, everything else once


def send_like_curl(client: Client, words: list[str]) -> bytes:
    """Send what curl would send, on a machine without curl."""
    body = words[words.index("-d") + 1].encode() if "-d" in words else None
    url = next(word for word in words if word.startswith("http"))
    return client.send(url.removeprefix(f"http://127.0.0.1:{client.port}"), body).body


def test_the_limits_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE))
    assert rows["body"] == f"{request_body.MAX_BODY:,} bytes, within {request_body.BODY_SECONDS:g} s"
    assert (
        rows["body of `/v1/embeddings`"]
        == f"{request_body.MAX_API_BODY:,} bytes, within {request_body.BODY_SECONDS:g} s"
    )
    counts = {
        key.split()[0]: limit for key, limit in rows.items() if " in a body, not counting those inside strings" in key
    }
    assert counts == {name.split()[0]: f"{count:,}" for name, count in request_body.MAX_COUNTS.items()}
    assert rows["texts per request"] == (f"{schemas.MAX_TEXTS}, with {schemas.MAX_CHARACTERS:,} characters in total")
    sizes = (schemas.MAX_DIMS, schemas.MAX_TOKENS, schemas.MAX_PADDING, schemas.MAX_NEIGHBORS)
    assert rows["`dims`, `max_tokens`, `pad`, `k`"] == ", ".join(f"{size:,}" for size in sizes)
    limits = f"{schemas.MAX_BATCH_TOKENS:,}, {schemas.MAX_RESPONSE_VALUES:,}"
    assert rows["texts x max_tokens, texts x max_tokens x dims"] == limits
    assert rows["waiting requests"].startswith(f"{app.QUEUE};")
    assert rows["tasks graded in parallel, waiting"].startswith(f"{course.GRADING_THREADS}, {course.GRADING_QUEUE};")
    assert rows["code of a task"] == f"{schemas.MAX_CODE:,} characters"
    assert rows["connections"] == (
        f"{server.MAX_CONNECTIONS}; closed after {server.HEAD_SECONDS:g} s without a first request, "
        f"or {server.IDLE_SECONDS:g} s without another one"
    )

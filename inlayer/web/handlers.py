"""What all answers share: facts as JSON, and a client that may go while his is made."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive

from inlayer.trace.facts import to_json

__all__ = ["encode", "until_left"]


def encode(facts: Any) -> bytes:
    """Facts as JSON in ASCII."""
    return to_json(facts).encode("ascii")


async def until_left(receive: Receive) -> None:
    """The body was read, or there is none: what is still to come is that the client goes."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""One server for the tests that only ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import inlayer
from inlayer.trace import Line
from tests.web.client import Place, running


@pytest.fixture(scope="session")
def line() -> Line:
    return Line(inlayer.load("default"), name="default")


@pytest.fixture(scope="package")
def place(line: Line) -> Iterator[Place]:
    with running({"default": line}) as (made, _):
        yield made

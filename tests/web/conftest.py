"""One server for the tests that only ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import inlayer
from inlayer.trace import Pipeline
from tests.web.client import Place, learner, running


@pytest.fixture(scope="session")
def line() -> Pipeline:
    return Pipeline(inlayer.load("default"), name="default")


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A learner's files; his progress is in the folder above."""
    with learner(tmp_path_factory.mktemp("learner")) as files:
        yield files


@pytest.fixture(scope="package")
def place(line: Pipeline, folder: Path) -> Iterator[Place]:
    with running({"default": line}, runs_code=True) as (made, _):
        yield made

"""One server for the tests that only send requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import inlayer
from inlayer.trace import Pipeline
from tests.web.client import Client, learner, running


@pytest.fixture(scope="session")
def pipeline() -> Pipeline:
    return Pipeline(inlayer.load("default"), name="default")


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A learner's files; their progress is in the parent folder."""
    with learner(tmp_path_factory.mktemp("learner")) as files:
        yield files


@pytest.fixture(scope="package")
def client(pipeline: Pipeline, folder: Path) -> Iterator[Client]:
    with running({"default": pipeline}, allow_code_execution=True) as made:
        yield made

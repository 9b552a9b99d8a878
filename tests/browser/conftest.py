"""Fixtures for browser tests: Chromium, a real server on loopback, and watched pages.

A request that leaves loopback, a console error, or a violation of the content security policy fails the test that
caused it. Browser, server and models are shared by the whole session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch

import inlayer
from inlayer.positions import LinearScaling, RopeParameters, RotaryPositions, YarnScaling
from inlayer.trace import Pipeline
from tests.browser.missing_browser import MISSING, pytest_terminal_summary  # noqa: F401  # a hook of pytest
from tests.browser.watched_page import STILL, Watched, watch
from tests.checkpoint.make_gguf import write_gguf
from tests.web.client import Client, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

CHROMIUM = os.environ.get("INLAYER_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--renderer-process-limit=1",
)  # fmt: skip


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    if CHROMIUM is None or not Path(CHROMIUM).exists():
        pytest.skip(MISSING)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip(MISSING)
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
    yield launched
    launched.close()


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pipeline]:
    """One pipeline for each feature that the page can draw."""
    default = Pipeline(inlayer.load("default"), name="default")
    tokenizer = default.tokenizer
    assert tokenizer is not None
    random = Pipeline.random(["text"], inlayer.ByteTokenizer(), width=16)
    stages = inlayer.Embeddings(
        6144, 32, 64, padding_idx=6142, n_token_types=2, norm_eps=1e-5, scale=2.0, seed=1
    )  # fmt: skip
    parameters = {"full": RopeParameters(scaling=LinearScaling(factor=4.0)), "sliding": RopeParameters(theta=100.0)}
    scaled = inlayer.Embeddings(6144, 32, positions=RotaryPositions(16, parameters), seed=2, dtype=torch.bfloat16)
    yarn = RopeParameters(theta=5e5, scaling=YarnScaling(factor=4.0, original_max_position_embeddings=32))
    interleaved = inlayer.Embeddings(6144, 32, positions=RotaryPositions(16, yarn, pairing="interleaved"), seed=5)
    odd = inlayer.Embeddings(6144, 8, seed=3)
    with torch.no_grad():
        odd.token_embedding.weight[40, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e-9])
    huge = inlayer.Embeddings(6144, 8, seed=4)
    with torch.no_grad():
        huge.token_embedding.weight[40, 2] = 3e38
    made = [default, random, Pipeline(inlayer.load(quantized(tmp_path_factory.mktemp("gguf"))), name="quantized")]
    layers = {"stages": stages, "scaled": scaled, "interleaved": interleaved, "odd": odd, "huge": huge}
    made += [Pipeline.from_layer(layer, tokenizer, source=name) for name, layer in layers.items()]
    return {pipeline.name: pipeline for pipeline in made}


def quantized(folder: Path) -> Path:
    """A GGUF file of four tokens with quantized rows."""
    rows = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    tokens = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab", "<s>"], "token_type": [1, 1, 1, 3]}
    values = {"embedding_length": 64, "attention.head_count": 4, "rope.dimension_count": 16, "context_length": 128}
    return write_gguf(
        folder / "small.gguf",
        values={f"llama.{name}": value for name, value in values.items()},
        tokenizer={**tokens, "merges": ["a b"], "bos_token_id": 3},
        tensors={"token_embd.weight": (gguf.quantize(rows, gguf.GGMLQuantizationType.Q8_0), "Q8_0")},
    )


@pytest.fixture(scope="session")
def client(pipelines: dict[str, Pipeline]) -> Iterator[Client]:
    with running(pipelines) as made:
        yield made


@contextmanager
def opening_pages(browser: Browser, client: Client, path: str) -> Iterator[Callable[..., Watched]]:
    """Open a served page with a fragment; the behavior of every page is checked at the end."""
    opened: list[Watched] = []

    def opening(
        fragment: str = "", *, path: str = path, width: int = 1280, height: int = 800, **settings: Any
    ) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, **{**STILL, **settings})
        watched = watch(context, f"http://127.0.0.1:{client.port}{path}?token={client.token}#{fragment}")
        opened.append(watched)
        watched.open()
        return watched

    yield opening
    for watched in opened:
        watched.finish()


@pytest.fixture
def open_page(browser: Browser, client: Client) -> Iterator[Callable[..., Watched]]:
    with opening_pages(browser, client, "/") as opening:
        yield opening


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Open an exported page from disk, without a network."""
    opened: list[Watched] = []

    def opening(path: Path, fragment: str = "", **settings: Any) -> Watched:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True, **{**STILL, **settings})
        watched = watch(context, path.as_uri() + (f"#{fragment}" if fragment else ""))
        opened.append(watched)
        watched.open()
        return watched

    yield opening
    for watched in opened:
        watched.finish()

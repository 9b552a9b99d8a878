"""Models that cannot show everything: without a tokenizer, with non-finite rows, with a single row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import inlayer
from inlayer.trace import Pipeline
from tests.browser.conftest import opening_pages
from tests.web.client import running

pytestmark = pytest.mark.slow

SAMPLE = Path(inlayer.__file__).parent / "samples" / "default"
NAME = "model.embed_tokens.weight"
ROWS = load_file(SAMPLE / "model.safetensors")[NAME][:500]


def write_model(folder: Path, rows: np.ndarray, *, tokenizer: bool = True) -> Pipeline:
    """The sample with other rows, and without a tokenizer if that is wanted."""
    folder.mkdir()
    config = json.loads((SAMPLE / "config.json").read_text()) | {"vocab_size": len(rows)}
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        config.pop(name, None)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({NAME: np.ascontiguousarray(rows)}, folder / "model.safetensors")
    if tokenizer:
        shutil.copy(SAMPLE / "tokenizer.json", folder)
    return Pipeline(inlayer.load(folder), name=folder.name)


@pytest.fixture(scope="module")
def open_bad(browser, pipelines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    broken = ROWS.copy()
    broken[40], broken[41, 3] = np.nan, np.inf
    made = [
        write_model(folder / "rows-only", ROWS, tokenizer=False),
        write_model(folder / "broken", broken),
        write_model(folder / "single", ROWS[:1]),
        write_model(folder / "row-only", ROWS[:1], tokenizer=False),
    ]
    with (
        running({"default": pipelines["default"]} | {one.name: one for one in made}) as client,
        opening_pages(browser, client, "/") as opening,
    ):
        yield opening


def nearest_by_loop(rows: np.ndarray, row: int, k: int) -> list[int]:
    wide = rows.astype(np.float64)
    cosines = [float(one @ wide[row] / np.linalg.norm(one) / np.linalg.norm(wide[row])) for one in wide]
    return sorted((i for i in range(len(rows)) if i != row), key=lambda i: -cosines[i])[:k]


def test_model_without_tokenizer_has_a_map_with_ids(open_bad):
    watched = open_bad("text=I+love+dogs&model=default&step=5")
    page = watched.page
    page.select_option("#model", "rows-only")
    page.wait_for_selector(".map-about:has-text('of 500 rows')")
    assert watched.text("#stage h1") == "This model has no tokenizer"
    assert page.is_hidden("#error")
    for unused in ("#scene", "#changes", "#steps", "#texts", "#examples", "#add-text", "#predict"):
        assert page.is_hidden(unused), unused
    assert page.is_disabled("#view-compare")
    assert page.is_disabled("#view-initialization")
    assert page.evaluate("inlayerMap.data.texts").__len__() == len(ROWS)
    assert page.evaluate("inlayerMap.data.texts[7]") == "#7"
    page.fill("#map-query", "#7")
    page.press("#map-query", "Enter")
    page.wait_for_selector("#token .neighbors li")
    shown = [
        int(one) for one in page.eval_on_selector_all("#token li[data-id]", "(all) => all.map((one) => one.dataset.id)")
    ]
    assert shown == nearest_by_loop(ROWS, 7, len(shown))
    assert shown != nearest_by_loop(ROWS, 8, len(shown))  # control
    assert "special" not in watched.text("#token")
    page.focus("#token [data-field=channel]")  # the inspector explains the value without a walk
    assert "E[7,0]" in watched.inspector()
    page.select_option("#model", "default")
    page.wait_for_selector(".figure[data-step='5']")
    assert page.input_value("#texts textarea") == "I love dogs"


def test_rows_that_are_not_finite_are_holes_with_a_name(open_bad):
    watched = open_bad("text=IJH&model=broken&step=5&token=40")
    page = watched.page
    page.wait_for_selector("#map[data-drawn]")
    page.wait_for_selector("#token h3")
    assert "The row contains NaN or infinity" in watched.text("#token")
    assert list(page.evaluate("Array.from(inlayerScene.images.strips.row.nonFinite)")) == [128, 1, 0]
    page.click("#token button[aria-label^=Close]")
    assert "Not shown (zero or non-finite rows): 40 (I), 41 (J)" in watched.text(".map-about")
    watched.step(8)
    assert "The loss is NaN" in watched.text(".learning")
    assert page.locator("#learning-rate").count() == 0


def test_single_row_has_a_message_instead_of_a_map(open_bad):
    watched = open_bad("text=I&model=single&step=5")
    watched.expected = ("400",)
    watched.page.wait_for_selector(".map-about:has-text('at least 3 rows')")
    assert "outside 0..0" in watched.text("#error")
    watched.page.select_option("#model", "default")
    watched.page.wait_for_selector(".figure[data-step='5']")
    watched.page.select_option("#model", "row-only")
    watched.page.wait_for_selector("#stage:has-text('Its table has 1 row, too few for a map.')")
    assert "The map shows" not in watched.text("#stage")

"""The exported page, opened from disk without a network."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
import torch

import inlayer
from inlayer.trace import Change, Pipeline, plain
from inlayer.trace.html import export, page
from inlayer.trace.token_facts import describe_token
from tests.checkpoint.test_ngram_tables import write_engram

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(pipelines, tmp_path_factory):
    file = tmp_path_factory.mktemp("export") / "walk.html"
    file.write_text(export(pipelines["default"], ["I love dogs"], step=5), encoding="utf-8")
    return file


def test_page_opens_at_its_step(exported, open_file):
    watched = open_file(exported)  # clocks stand still
    assert watched.page.get_attribute(".figure", "data-step") == "5"
    watched.page.keyboard.press("ArrowRight")
    assert watched.page.get_attribute(".figure", "data-step") == "6"
    assert all(url.startswith(("file:", "data:")) for url in watched.requests)
    again = open_file(exported, watched.fragment())
    assert again.text("body") == watched.text("body")


def test_the_page_gives_the_command_that_exports_it(open_page, open_file, tmp_path):
    view = "text=it's+a+-+test&text=--+two&model=default&step=6&positions=sinusoidal&theta=100&swap=0,2&pad=1"
    served = open_page(view)
    program, *arguments = shlex.split(served.text("#share-command"))
    assert program == "inlayer"
    subprocess.run([sys.executable, "-m", "inlayer", *arguments], cwd=tmp_path, check=True, capture_output=True)
    exported = open_file(tmp_path / "walk.html")
    assert not exported.page.is_visible("#share")
    for text in ("#chips", "#changed-note"):
        assert exported.text(text) == served.text(text)
    long = open_page("text=" + "the+dog+" * 100 + "&model=random&step=2")
    assert long.text("#share-command") == "inlayer walk --model MODEL --step 2 --html walk.html --file FILE"


def test_experiments_use_the_data_of_the_page(exported, open_file, pipelines):
    watched = open_file(exported)
    watched.page.click("#swap")
    watched.page.click("[data-field=token][data-t='2']")
    watched.page.click("[data-field=token][data-t='1']")
    watched.page.wait_for_selector("#changed-note")
    assert "16 of 32 numbers changed" in watched.text("#changed-note")
    shown = [float(cell["value"]) for cell in watched.shown() if cell["field"] == "row"]
    trace = pipelines["default"].walk(["I love dogs"], change=Change(swap=(1, 2)))
    assert shown == [value for cell in trace.texts[0].tokens for value in cell.row]
    watched.page.click("#reset")
    watched.step(6)
    watched.page.click("label:has(#positions-learned)")
    watched.page.wait_for_selector("#changed-note")
    watched.page.click("label:has(#positions-rotary)")
    watched.page.wait_for_selector("#changed-note", state="detached")
    watched.page.select_option("#theta", "100")
    watched.page.wait_for_selector("#changed-note")


def test_missing_data_disables_controls_with_a_reason(exported, open_file):
    watched = open_file(exported)
    page = watched.page
    assert page.is_disabled("#model")
    assert page.is_disabled("#add-text")
    assert page.is_hidden("#view-compare")
    assert page.get_attribute("#texts textarea", "readonly") is not None
    assert "inlayer serve" in watched.text("#input-note")
    page.click("#pad-more")
    page.wait_for_selector("#changed-note")
    assert page.is_disabled("#pad-more")
    assert "not part of this exported page" in (page.get_attribute("#pad-more", "title") or "")
    watched.step(6)
    assert page.is_disabled("#positions-none")  # combined changes are not part of the page


def test_token_and_initialization_use_the_data_of_the_page(exported, open_file, pipelines):
    watched = open_file(exported, "step=5&token=812")
    watched.page.wait_for_selector("#token h3")
    shown = [float(cell["value"]) for cell in watched.shown("#token") if cell.get("field") == "channel"]
    assert shown == describe_token(pipelines["default"], 812).row
    watched.page.click("#view-initialization")
    assert "Initialized once" in watched.text("#stage-title")


def test_page_opens_with_its_change(pipelines, open_file, tmp_path):
    file = tmp_path / "walk.html"
    change = Change(swap=(0, 3), pad=1)
    file.write_text(export(pipelines["random"], ["dogs"], step=7, change=change), encoding="utf-8")
    watched = open_file(file)
    assert watched.text("#swap") == "Tokens 0 and 3 swapped"
    assert watched.text("#pad-count") == "1 padding token"
    assert watched.page.is_visible("#changed-note")


def test_inputs_embeds(pipelines, open_file, tmp_path):
    """A walk of inputs_embeds has no text, ids or table rows, and starts at step 5."""
    pipeline = pipelines["default"]
    trace = pipeline.walk(None, inputs_embeds=torch.arange(3 * 128.0).reshape(1, 3, 128) / 1000)
    data = {"models": [plain(pipeline.facts())], "texts": [""], "walks": {"|||0": trace.to_dict()}, "tokens": {}}
    file = tmp_path / "vectors.html"
    file.write_text(page(title="vectors", data={**data, "initialization": None, "step": 5}), encoding="utf-8")
    watched = open_file(file)
    shown = [float(cell["value"]) for cell in watched.shown() if cell["field"] == "row"]
    assert shown == [value for cell in trace.texts[0].tokens for value in cell.row]
    watched.page.hover("[data-field=row][data-t='1'][data-d='2']")
    assert "inputs_embeds" in watched.inspector()
    assert watched.page.is_disabled("#swap")
    for step in (1, 2, 3, 4):
        watched.step(step)
        assert "starts from vectors" in watched.text(".figure")
    watched.step(8)
    assert "No table row was looked up" in watched.text(".figure")
    watched.page.click("#predict")
    for step in (7, 6, 5, 4, 1):
        watched.step(step)


@pytest.mark.parametrize("theta", [7.0, 1000.0])
def test_exported_theta_can_be_selected(theta, pipelines, open_file, tmp_path):
    file = tmp_path / "walk.html"
    file.write_text(export(pipelines["default"], ["dogs"], step=6, change=Change(theta=theta)), encoding="utf-8")
    watched = open_file(file)
    assert float(watched.page.input_value("#theta")) == theta
    watched.page.select_option("#theta", "")
    watched.page.wait_for_selector("#changed-note", state="detached")
    watched.page.select_option("#theta", f"{theta:g}")
    watched.page.wait_for_selector("#changed-note")
    assert f"theta changed from 10000 to {theta:g}" in watched.text("#changed-note")


def test_link_to_missing_data_reports_an_error(exported, open_file):
    watched = open_file(exported, "step=5&pad=7")
    assert "not part of this exported page" in watched.text("#error")
    watched.page.click("#reset-experiment")
    watched.page.wait_for_selector(".figure[data-step='5']")


def test_ngram_memories_are_shown_with_their_rows(open_file, tmp_path):
    write_engram(tmp_path)
    pipeline = Pipeline(inlayer.load(tmp_path), name="engram")
    file = tmp_path / "walk.html"
    file.write_text(export(pipeline, ["the dog The dog"], step=4), encoding="utf-8")
    page = open_file(file).page
    facts = pipeline.walk(["the dog The dog"]).ngram_memories[1]
    section = page.locator("section[aria-label='N-gram memory of layer 14']")
    shown = section.inner_text()
    read = facts.reads[0][2][1]
    assert f"{read.offsets[0]:,}" in shown
    assert ", ".join(f"{row:,}" for row in read.rows) in shown
    assert "the dog and The dog at tokens 2, 6: all hash heads" in shown

"""Step 8: one training step at a learning rate. Every number equals the library's, and the map gets its arrows."""

from __future__ import annotations

import math

import pytest

from inlayer.trace.gradient_step import take_gradient_step
from inlayer.trace.html import export

pytestmark = pytest.mark.slow

TEXT = "I love dogs and cats"
STEP = "text=I+love+dogs+and+cats&model={model}&step=8"
LEARNING_RATES = [0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0]


def open_learning(open_page, model: str = "default"):
    watched = open_page(STEP.format(model=model))
    watched.page.wait_for_selector("#learning-rate")
    return watched


def test_loss_next_token_and_rows_follow_the_learning_rate(open_page, pipelines):
    watched = open_learning(open_page)
    learned = take_gradient_step(pipelines["default"], [TEXT], learning_rates=LEARNING_RATES)
    assert math.exp(learned.uniform_loss) == pytest.approx(pipelines["default"].table.shape[0])
    for index in (0, 4, 6):
        step = learned.steps[index]
        watched.page.fill("#learning-rate", str(index))
        assert watched.text(".learning .slider output") == f"{LEARNING_RATES[index]:g}"
        words = watched.text(".learning-words")
        assert f"{float(f'{step.loss:.4g}'):g}" in words
        assert f"ln V = {learned.uniform_loss:.4g}" in words
        assert ("better than" if step.loss < learned.uniform_loss else "worse than") in words
        target = watched.text(".next-bars .target .number")
        share = f"{100 * step.target.probability:#.3g}".rstrip(".")  # three digits, also 49.0 and 100
        assert target == ("< 0.1%" if step.target.probability < 0.001 else f"{share}%")
        cosines = watched.page.locator(".moved .number").all_inner_texts()
        assert [float(one) for one in cosines] == [pytest.approx(row.cosine, abs=6e-4) for row in step.moved[:8]]
    assert "falls from" in watched.text(".learning-words")
    watched.page.fill("#learning-rate", "8")
    assert learned.steps[8].loss > learned.steps[7].loss  # too large a step


def test_loss_axis_has_round_labels(open_page):
    watched = open_learning(open_page)
    labels = [float(label) for label in watched.page.locator(".loss-tick").all_text_contents()]
    assert labels == [index * labels[1] for index in range(len(labels))]
    assert len(labels) in (3, 4, 5)


CROSSED = """() => { const label = document.querySelector(".loss-value").getBBox(), found = [];
  const isInside = ({ x, y }) => x > label.x && x < label.x + label.width && y > label.y && y < label.y + label.height;
  for (const line of document.querySelectorAll(".loss-plot .plot-line, .loss-plot .loss-uniform")) {
    for (let at = 0; at <= line.getTotalLength(); at += 1) if (isInside(line.getPointAtLength(at))) found.push(at);
  }
  return found;
}"""


def test_no_line_crosses_the_label_of_the_loss(open_page):
    watched = open_learning(open_page)
    for index in range(len(LEARNING_RATES)):
        watched.page.fill("#learning-rate", str(index))
        assert watched.page.evaluate(CROSSED) == [], LEARNING_RATES[index]
    uniform = watched.page.get_attribute(".loss-uniform", "y1")
    watched.page.eval_on_selector(".loss-value", "(label, y) => label.setAttribute('y', Number(y) + 4)", uniform)
    assert watched.page.evaluate(CROSSED) != []  # control


def test_map_shows_arrows_in_step_8_only(open_page):
    watched = open_learning(open_page)
    watched.page.wait_for_function("() => window.inlayerMap?.scene.marks.length > 0")
    watched.page.fill("#learning-rate", "6")
    shifts = watched.page.evaluate("inlayerMap.scene.arrows.map((one) => Math.hypot(...one.shift))")
    assert len(shifts) == 7
    assert max(shifts) > 0
    watched.step(7)
    watched.settle()
    assert watched.page.evaluate("inlayerMap.scene.arrows.length") == 0


@pytest.mark.parametrize("change", ["empty", "one token", "question"])
def test_arrows_disappear_with_the_figure(change, open_page):
    watched = open_learning(open_page)
    page = watched.page
    page.wait_for_function("() => window.inlayerMap?.scene.arrows.length > 0")
    if change == "question":
        page.click("#predict")
        page.wait_for_selector(".question")
    else:
        page.fill("#texts textarea", {"empty": "", "one token": "I"}[change])
        page.wait_for_selector("#learning-rate", state="detached")
    assert page.evaluate("inlayerMap.scene.arrows.length") == 0
    if change == "empty":
        assert page.inner_text(".plain-fact").startswith("The text is empty.")
        page.fill("#texts textarea", TEXT)
        page.wait_for_function("() => inlayerMap.scene.arrows.length > 0")


def test_models_without_a_step_show_the_loss_alone(open_page):
    watched = open_page(STEP.format(model="stages"))
    watched.page.wait_for_selector(".figure[data-step='8']")
    assert watched.page.locator("#learning-rate").count() == 0


def test_exported_page_applies_a_step(open_file, pipelines, tmp_path):
    file = tmp_path / "walk.html"
    file.write_text(export(pipelines["default"], [TEXT]), encoding="utf-8")
    watched = open_file(file, "step=8")
    watched.page.wait_for_selector("#learning-rate")
    watched.page.fill("#learning-rate", "6")
    assert "falls from" in watched.text(".learning-words")

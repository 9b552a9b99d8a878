"""No accessibility violation that axe-core finds, in any view, dark and light."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TEXT = "text=I+love+dogs&model=default"
VIEWS = [f"step={step}" for step in range(1, 9)] + [
    "step=7&positions=sinusoidal&swap=1,2", "step=5&token=812", "step=3&predict=1", "view=initialization",
    "view=compare&other=random", "text=Hi&step=6&pad=1",
]  # fmt: skip
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# 200 colors of a heat map: contrast is checked in test_look.py, against the colors behind each text.
RUN = """async () => (await axe.run(document, { rules: { "color-contrast": { enabled: false } } })).violations
  .map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])"""


def violations(watched: Any) -> list[Any]:
    found: list[Any] = watched.page.evaluate(AXE + ";" + f"({RUN})()")
    return found


@pytest.mark.parametrize("view", VIEWS)
def test_walk_page(view, open_page):
    watched = open_page(f"{TEXT}&{view}", color_scheme="dark" if "step=6" in view else "light", reduced_motion="reduce")
    watched.page.wait_for_selector("#map[data-drawn]", state="attached")
    assert violations(watched) == []


def test_a_violation_is_found(open_page):
    watched = open_page(f"{TEXT}&step=1")
    watched.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert "button-name" in [name for name, _ in violations(watched)]

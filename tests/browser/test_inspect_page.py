"""The page of an inspection says the same as the report in the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import inlayer
from inlayer.inspection.findings import Finding
from inlayer.inspection.html import inspect_page
from inlayer.inspection.terminal import print_report

pytestmark = pytest.mark.slow
WARNING = Finding(severity="warning", code="nan-rows", message="m", advice="b")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "healthy: 1 note"),
        ({"findings": ()}, "healthy"),
        ({"findings": (WARNING, WARNING)}, "needs attention: 2 warnings"),
        ({"not_checked": ("x",)}, "no defects in what was checked: 1 note"),
        ({"not_checked": ("x",), "strict": True}, "--strict requires a complete check: 1 note"),
        ({"not_checked": ("x",), "findings": (WARNING,)}, "needs attention: 1 warning"),
    ],
)
def test_verdict_and_undertrained_rows(browser: Any, tmp_path: Path, changed: dict[str, Any], expected: str) -> None:
    model = inlayer.load("default")
    report = replace(inlayer.inspect(model), **changed)
    console = Console(width=200, file=io.StringIO(), record=True)
    print_report(report, console)
    printed = console.export_text().splitlines()
    file = tmp_path / "inspect.html"
    file.write_text(inspect_page(report, model), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("#facts dd")
    verdict = page.inner_text("#verdict")
    assert "(zero or non-finite rows): 6142 (<pad>)." in page.inner_text("#map-note")
    assert re.search(r"On average, \d+% of a token's 10 nearest tokens", page.inner_text("#map-note"))
    assert all(f"→ {finding.advice}" in page.inner_text("#findings") for finding in report.findings)
    assert "other rows" in page.inner_text("#legend")
    assert page.inner_text("#facts dt:text-is('Padding') + dd") == "row 6142: zero"
    assert page.is_hidden("#models")  # a file shows one model
    undertrained = page.inner_text("#facts dt:text-is('Undertrained') + dd")
    page.close()
    assert verdict.endswith(expected)
    assert verdict == printed[-1]
    assert f"undertrained  {undertrained}" in printed


def test_the_header_has_the_switches_of_the_other_pages(browser: Any, tmp_path: Path) -> None:
    model = inlayer.load("default")
    file = tmp_path / "inspect.html"
    file.write_text(inspect_page(inlayer.inspect(model), model), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("#facts dd")
    for theme in ("light", "dark"):
        page.click("#theme")
        assert page.inner_text("#theme") == f"Theme: {theme}"
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme
    page.keyboard.press("m")
    assert page.get_attribute("#motion", "aria-pressed") == "false"
    page.keyboard.press("?")
    assert "zoom the map" in page.inner_text("#keys")
    page.click("#keys button")
    page.reload()
    page.wait_for_selector("#facts dd")
    assert page.inner_text("#theme") == "Theme: dark"  # kept, as is the motion
    assert page.get_attribute("#motion", "aria-pressed") == "false"
    page.close()


SWATCHES = """(all) => Object.fromEntries(all.map((one) =>
  [one.querySelector("h3").textContent, getComputedStyle(one.querySelector(".swatch")).backgroundColor]))"""
# Of all pixels of the map that are mostly of one color, whether one is vivid.
VIVID = """(canvas) => { const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) {
    const [r, g, b, a] = data.subarray(at, at + 4);
    if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 90) return true;
  }
  return false; }"""


def test_notes_have_neutral_colors(browser: Any, tmp_path: Path) -> None:
    model = inlayer.load("default")
    report = inlayer.inspect(model)
    (note,) = report.findings
    warning = replace(WARNING, code="duplicate-rows", ids=(40, 41))
    file = tmp_path / "inspect.html"
    page = browser.new_page()
    for findings in ((note,), (note, warning)):
        changed = replace(report, findings=findings)
        file.write_text(inspect_page(changed, model), encoding="utf-8")
        page.goto(file.as_uri())
        page.wait_for_selector("#map[data-drawn]")
        colors = page.eval_on_selector_all(".finding", SWATCHES)
        spread = {name: max(rgb) - min(rgb) for name, color in colors.items() for rgb in [channels(color)]}
        assert spread.pop("note: undertrained-tokens") < 50
        assert all(vivid > 90 for vivid in spread.values())
        assert len(spread) == len(findings) - 1
        assert page.eval_on_selector("#map", VIVID) == (warning in findings)
    page.close()


def channels(color: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", color)]

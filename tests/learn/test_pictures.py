"""Pictures of the course: files match the scripts, lesson pictures exist, and none contains active content."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from scripts.make_pictures import DRAWERS, FOLDER, described, draw
from scripts.pictures.drawing import STYLE, Drawing, shown

NAMES = pytest.mark.parametrize("name", [f"{name}.svg" for name in DRAWERS])
SVG = "{http://www.w3.org/2000/svg}"
SHAPES = {"title", "desc", "style", "text", "rect", "path", "circle"}
ATTRIBUTES = {
    "class", "role", "width", "height", "viewBox", "x", "y", "rx", "cx", "cy", "r", "d", "text-anchor", "fill-opacity",
}  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return draw()


def stored(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@NAMES
def test_file_matches_its_script(name: str, drawn: dict[str, str]) -> None:
    assert stored(name) == drawn[name], f"{name} is out of date; run python -m scripts.make_pictures"


def test_drawing_is_deterministic(drawn: dict[str, str]) -> None:
    assert draw() == drawn


def test_pictures_match_those_used_in_lessons() -> None:
    drawable = {f"pictures/{name}.svg" for name in DRAWERS}
    assert {f"pictures/{path.name}" for path in FOLDER.iterdir()} == drawable
    assert set(described()) == drawable


@NAMES
def test_picture_has_title_and_description(name: str) -> None:
    root = ElementTree.fromstring(stored(name))
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text
    assert description is not None
    assert description.text == described()[f"pictures/{name}"]
    assert root.get("role") == "img"


@NAMES
def test_picture_has_no_scripts_or_external_content(name: str) -> None:
    text = stored(name)
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    for element in root.iter():
        assert element is root or element.tag.removeprefix(SVG) in SHAPES
        assert set(element.attrib) <= ATTRIBUTES
    assert text.count("http") == 1  # the SVG namespace
    assert not re.search(r"<!|url\(|@import|href|script", text.split("</desc>")[1])


@NAMES
def test_picture_is_readable(name: str) -> None:
    """It fits a page, its text is inside the canvas, and its colors come from the style sheet."""
    root = ElementTree.fromstring(stored(name))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert width <= 900
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"
    words = root.findall(f"{SVG}text")
    assert words
    for word in words:
        assert 0 <= float(word.attrib["x"]) <= width
        assert 12 <= float(word.attrib["y"]) <= height - 2
    assert not re.search(r"(fill|stroke|color)=", stored(name))  # all colors come from the style sheet


def test_text_is_at_least_12_pixels() -> None:
    sizes = [int(size) for size in re.findall(r"(\d+)px", STYLE)]
    assert sizes
    assert min(sizes) >= 12
    assert "prefers-color-scheme: dark" in STYLE


def test_every_used_class_has_a_style_rule() -> None:
    known = set(re.findall(r"\.([a-z]+)", STYLE))
    for name in DRAWERS:
        used = {word for names in re.findall(r'class="([^"]*)"', stored(f"{name}.svg")) for word in names.split()}
        assert used <= known, name


def test_cell_color_follows_its_value() -> None:
    """Larger values get more color, zero gets none, and negative values a real minus sign."""
    d = Drawing(100, 100, "cells")
    d.grid(0, 0, [[1.0, -0.5, 0.0]])
    tints = [mark for mark in d.marks if "fill-opacity" in mark]
    assert [re.findall(r'class="(\w+) fill".*fill-opacity="([\d.]+)"', mark)[0] for mark in tints] == [
        ("hot", "0.6"),
        ("cold", "0.3"),
    ]
    assert shown(-0.5, 2) == "\N{MINUS SIGN}0.50"
    assert shown(-0.001, 2) == "0.00"

"""The pictures of the course: drawn anew they are the same, lessons show them all, nothing acts in them."""

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


def kept(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@NAMES
def test_what_is_kept_is_what_is_drawn_now(name: str, drawn: dict[str, str]) -> None:
    assert kept(name) == drawn[name], f"{name} is not what is drawn now: python -m scripts.make_pictures"


def test_drawing_twice_gives_the_same(drawn: dict[str, str]) -> None:
    assert draw() == drawn


def test_every_picture_is_shown_by_a_lesson_and_every_one_shown_is_there() -> None:
    drawable = {f"pictures/{name}.svg" for name in DRAWERS}
    assert {f"pictures/{path.name}" for path in FOLDER.iterdir()} == drawable
    assert set(described()) == drawable


@NAMES
def test_a_picture_says_what_it_shows(name: str) -> None:
    root = ElementTree.fromstring(kept(name))
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text
    assert description is not None
    assert description.text == described()[f"pictures/{name}"]
    assert root.get("role") == "img"


@NAMES
def test_nothing_in_a_picture_acts_or_comes_from_outside(name: str) -> None:
    text = kept(name)
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    for element in root.iter():
        assert element is root or element.tag.removeprefix(SVG) in SHAPES
        assert set(element.attrib) <= ATTRIBUTES
    assert text.count("http") == 1  # the name of the format
    assert not re.search(r"<!|url\(|@import|href|script", text.split("</desc>")[1])


@NAMES
def test_a_picture_can_be_read(name: str) -> None:
    """Wide enough for a page and no wider, its words on the sheet, in colors that follow the reader's."""
    root = ElementTree.fromstring(kept(name))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert width <= 900
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"
    words = root.findall(f"{SVG}text")
    assert words
    for word in words:
        assert 0 <= float(word.attrib["x"]) <= width
        assert 12 <= float(word.attrib["y"]) <= height - 2
    assert not re.search(r"(fill|stroke|color)=", kept(name))  # every color comes from the style


def test_no_words_are_smaller_than_12_pixels() -> None:
    sizes = [int(size) for size in re.findall(r"(\d+)px", STYLE)]
    assert sizes
    assert min(sizes) >= 12
    assert "prefers-color-scheme: dark" in STYLE


def test_every_class_that_is_used_has_a_rule() -> None:
    known = set(re.findall(r"\.([a-z]+)", STYLE))
    for name in DRAWERS:
        used = {word for names in re.findall(r'class="([^"]*)"', kept(f"{name}.svg")) for word in names.split()}
        assert used <= known, name


def test_a_cell_has_the_color_of_its_value() -> None:
    """More of it for larger numbers, none for zero, and a true minus before those below zero."""
    d = Drawing(100, 100, "cells")
    d.grid(0, 0, [[1.0, -0.5, 0.0]])
    tints = [mark for mark in d.marks if "fill-opacity" in mark]
    assert [re.findall(r'class="(\w+) fill".*fill-opacity="([\d.]+)"', mark)[0] for mark in tints] == [
        ("hot", "0.6"),
        ("cold", "0.3"),
    ]
    assert shown(-0.5, 2) == "\N{MINUS SIGN}0.50"
    assert shown(-0.001, 2) == "0.00"

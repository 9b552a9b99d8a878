"""Step 6 in motion: the dial equals `apply_rotary`, the clocks run at the model's frequencies."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inlayer.positions import RotaryPositions, apply_rotary
from inlayer.trace.html import export
from inlayer.trace.position_schemes import COMPARED_SCALINGS, with_modules
from tests.browser.watched_page import MOVING

pytestmark = pytest.mark.slow

TEXT = "I love dogs"
STEP = "text=I+love+dogs&model={model}&step=6"


def open_dial(open_page, model: str, **settings):
    watched = open_page(STEP.format(model=model), **settings)
    watched.page.wait_for_selector("#dot-pair-after")
    return watched


def dots(watched) -> list[float]:
    """The dot products shown, for the pair and for all pairs, before and after the rotation."""
    names = ("pair-before", "pair-after", "all-before", "all-after")
    return [float(watched.page.get_attribute(f"#dot-{name}", "data-exact") or "nan") for name in names]


def expected_dots(pipeline, s: int, tokens: tuple[int, int], pair: int, positions: tuple[int, int]) -> Any:
    """The same from the library: hidden states, and apply_rotary with the cos and sin of the layer's positions."""
    rotary = pipeline.layer.position_embedding
    hidden_TD = pipeline.layer(torch.tensor([pipeline.tokenizer.encode(TEXT)]))[0].detach().double()
    layer_type = None if not isinstance(rotary.rope_parameters, dict) else list(rotary.rope_parameters)[s]
    cos, sin = rotary(torch.tensor(positions), torch.float32, layer_type)
    pairs = rotary.inverse_frequencies(1, layer_type)[0].numel()
    q, k = (hidden_TD[token, : 2 * pairs].expand(1, 1, 2, -1) for token in tokens)
    turned_q, turned_k = apply_rotary(q, k, cos, sin, pairing=rotary.pairing, layout=rotary.layout)
    channels = [pair, pair + pairs] if rotary.pairing == "half" else [2 * pair, 2 * pair + 1]
    found = []
    for left, right in ((q[0, 0, 0], k[0, 0, 0]), (turned_q[0, 0, 0], turned_k[0, 0, 1])):
        found.append((float(left[channels] @ right[channels]), float(left @ right)))
    tolerance = 1e-5 * float(q[0, 0, 0].norm() * k[0, 0, 0].norm())  # angles are float32 in the library
    return pytest.approx([found[0][0], found[1][0], found[0][1], found[1][1]], rel=0, abs=tolerance)


@pytest.mark.parametrize(("model", "s"), [("default", 0), ("scaled", 0), ("scaled", 1), ("interleaved", 0)])
def test_dot_products_equal_apply_rotary(model, s, open_page, pipelines):
    watched = open_dial(open_page, model)
    page = watched.page
    if s:
        page.click(f"#rope-layer-{s}")
    page.select_option("#dial-q", "3")
    page.select_option("#dial-k", "1")
    last = int(page.get_attribute("#dial-pair", "max"))
    for pair, m, n in ((0, 0, 0), (0, 5, 2), (1, 63, 1), (last, 40, 7), (2, 7, 7)):
        page.fill("#dial-pair", str(pair))
        page.fill("#dial-m", str(m))
        page.fill("#dial-n", str(n))
        assert dots(watched) == expected_dots(pipelines[model], s, (3, 1), pair, (m, n))
        assert dots(watched) != expected_dots(pipelines[model], s, (3, 1), pair, (m + 1, n))  # control


def test_moving_both_keeps_the_dot_products(open_page):
    watched = open_dial(open_page, "default")
    page = watched.page
    page.fill("#dial-m", "9")
    before, written = dots(watched), watched.text(".dots")
    page.fill("#dial-m", "12")
    assert dots(watched)[1] != pytest.approx(before[1], abs=1e-6)
    page.fill("#dial-m", "9")
    page.check("#dial-together")
    page.fill("#dial-m", "40")
    assert page.input_value("#dial-n") == "31"
    assert dots(watched) == pytest.approx(before, abs=1e-9)
    assert watched.text(".dots") == written.replace("9, 0", "40, 31")
    page.fill("#dial-m", "63")
    page.fill("#dial-n", "63")  # cannot pass the end: the distance stays
    assert [page.input_value("#dial-m"), page.input_value("#dial-n")] == ["63", "54"]


def test_positions_can_be_dragged_and_stepped(open_page):
    watched = open_dial(open_page, "default")
    page = watched.page
    page.fill("#dial-pair", "2")
    before = page.input_value("#dial-m")
    page.locator(".rope-dial").scroll_into_view_if_needed()
    label = "getComputedStyle(document.querySelector('.rope-label'))"
    assert page.evaluate(f"[{label}.paintOrder, {label}.strokeWidth]") == ["stroke", "4px"]  # no axis crosses it
    face = page.locator(".rope-dial").bounding_box()
    tip = page.locator(".rope-tip-q").bounding_box()
    x, y = tip["x"] + tip["width"] / 2, tip["y"] + tip["height"] / 2
    center = (face["x"] + face["width"] / 2, face["y"] + face["height"] / 2)
    angle = math.atan2(center[1] - y, x - center[0])
    size = math.hypot(x - center[0], y - center[1])
    page.mouse.move(x, y)
    page.mouse.down()
    for part in range(1, 11):  # counterclockwise by one radian
        turned = angle + part / 10
        page.mouse.move(center[0] + size * math.cos(turned), center[1] - size * math.sin(turned))
    page.mouse.up()
    frequency = 10000 ** (-2 / 16)
    assert int(page.input_value("#dial-m")) - int(before) == round(1 / frequency)
    page.focus("#dial-n")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#dial-n") == "1"
    assert "step=6" in watched.fragment()


@pytest.mark.parametrize("model", ["default", "interleaved"])
def test_clocks_show_every_pair_at_its_own_speed(model, open_page, pipelines):
    watched = open_dial(open_page, model)
    page = watched.page
    frequencies = pipelines[model].layer.position_embedding.inverse_frequencies()[0].tolist()
    assert page.locator(".clock").count() == len(frequencies)
    assert watched.text("#clocks-play") == "Next position"  # less motion
    page.fill("#clocks-position", "9")
    page.click("#clocks-play")
    turned = page.eval_on_selector_all(".clock .dial-hand", "all => all.map((one) => one.getAttribute('transform'))")
    degrees = [float(one.removeprefix("rotate(").split()[0]) for one in turned]
    assert degrees == pytest.approx([-math.degrees(10 * one) for one in frequencies], abs=0.01)
    assert page.locator(".clock .dial-unscaled").count() == (len(frequencies) if model == "interleaved" else 0)
    page.click(".clock[data-pair='3']")
    assert page.input_value("#dial-pair") == "3"
    assert page.get_attribute(".clock[data-pair='3']", "aria-pressed") == "true"


def test_scaling_divides_the_speeds(open_page):
    watched = open_dial(open_page, "scaled")
    assert set(watched.page.locator(".clock-ratio").all_inner_texts()) == {"\u00f74"}
    watched.page.click("#rope-layer-1")
    assert watched.page.locator(".clock-ratio").count() == 0


@pytest.mark.parametrize("name", ["YaRN", "Llama-3"])
def test_scalings_can_be_compared(name, open_page, pipelines):
    watched = open_dial(open_page, "default")
    page = watched.page
    own = pipelines["default"].layer.position_embedding
    parameters = replace(own.rope_parameters, scaling=COMPARED_SCALINGS[name])
    expected = RotaryPositions(own.head_dim, parameters).inverse_frequencies()[0].tolist()
    assert expected != own.inverse_frequencies()[0].tolist()
    page.click(f".clocks-bar button:has-text('{name}')")
    page.fill("#clocks-position", "10")
    turned = page.eval_on_selector_all(".clock .dial-hand", "all => all.map((one) => one.getAttribute('transform'))")
    degrees = [float(one.removeprefix("rotate(").split()[0]) for one in turned]
    assert degrees == pytest.approx([-math.degrees(10 * one) for one in expected], abs=0.01)
    page.fill("#dial-pair", "7")  # the dial also has the scaled angles
    page.fill("#dial-m", "40")
    layer = pipelines["default"].layer
    changed = with_modules(layer, position_embedding=RotaryPositions(own.head_dim, parameters))
    scaled = SimpleNamespace(layer=changed, tokenizer=pipelines["default"].tokenizer)
    q = int(page.input_value("#dial-q"))
    assert dots(watched) == expected_dots(scaled, 0, (q, 0), 7, (40, 0))
    assert dots(watched) != expected_dots(pipelines["default"], 0, (q, 0), 7, (40, 0))  # control
    assert page.get_attribute("#clocks-position", "max") == page.get_attribute("#dial-m", "max") == "63"
    page.click(".clocks-bar button:has-text('none')")
    assert page.locator(".clock .dial-unscaled").count() == 0


def test_clocks_run_and_pause(open_page):
    watched = open_page(STEP.format(model="default"), **MOVING)
    page = watched.page
    page.wait_for_selector("#clocks-play:has-text('Pause')")
    page.wait_for_function("() => Number(document.querySelector('#clocks-position').value) >= 1")
    page.click("#clocks-play")
    assert watched.text("#clocks-play") == "Play"
    stopped = page.get_attribute(".clock .dial-hand", "transform")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.get_attribute(".clock .dial-hand", "transform") == stopped


def test_theta_slider_changes_the_speeds_and_keeps_the_focus(open_page):
    watched = open_dial(open_page, "default")
    page = watched.page
    period = watched.text(".clock[data-pair='5'] .clock-period")
    page.focus("#theta-slider")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#changed-note")
    assert "theta=11000" in watched.fragment()
    assert page.evaluate("document.activeElement.id") == "theta-slider"
    page.wait_for_function(
        "(old) => document.querySelector('.clock[data-pair=\"5\"] .clock-period')?.textContent !== old", arg=period
    )
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#changed-note", state="detached")
    assert "theta" not in watched.fragment()


def test_exported_page_has_the_dial(open_file, pipelines, tmp_path):
    file = tmp_path / "walk.html"
    file.write_text(export(pipelines["default"], [TEXT]), encoding="utf-8")
    watched = open_file(file, "step=6&swap=0,3")
    watched.page.wait_for_selector("#dot-pair-after")
    pair, m, n = (int(watched.page.input_value(f"#dial-{name}")) for name in ("pair", "m", "n"))
    # tokens 0 and 3 are swapped: q, the last, is the first token of the text
    assert dots(watched) == expected_dots(pipelines["default"], 0, (0, 3), pair, (m, n))


def test_values_that_are_not_finite_are_not_drawn(open_page):
    watched = open_page("text=I+love&model=odd&step=6&positions=rotary")
    watched.page.wait_for_selector("#dot-pair-after")
    watched.page.select_option("#dial-k", "0")
    watched.page.fill("#dial-pair", "0")
    assert watched.text("#dot-pair-after") == "NaN"
    assert not watched.page.is_visible(".rope-tip-k")

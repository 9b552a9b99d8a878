"""The inspector (formula, offset, PyTorch code) and the token panel."""

from __future__ import annotations

import re

import pytest

from inlayer.trace import Change
from inlayer.trace.token_facts import describe_token

pytestmark = pytest.mark.slow

BATCH = "text=I+love+dogs&model={model}&step={step}"


def written(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text.replace("\u2212", "-"))]


def point(watched, field: str, t: int, d: int) -> str:
    watched.page.hover(f"[data-field={field}][data-t='{t}'][data-d='{d}']")
    return watched.inspector()


def test_row_values_show_their_row_and_offset(open_page, pipelines):
    watched = open_page(BATCH.format(model="default", step=5))
    trace = pipelines["default"].walk(["I love dogs"])
    for t, d in ((0, 0), (1, 3), (3, 7)):
        cell = trace.texts[0].tokens[t]
        text = point(watched, "row", t, d)
        assert f"rows[0,{t},{d}] = E[{cell.id},{d}]" in text
        assert cell.row[d] in written(watched.text("#inspector dd .number"))
        assert written(watched.text("#formula"))[-1] == pytest.approx(cell.row[d], rel=1e-5)
        assert watched.text("#byte-offset") == f"{cell.offset + d * trace.table.itemsize:,}"
        assert trace.table.file in text
        assert trace.table.name in text
        assert trace.steps[4].code in text


def test_exact_values_have_a_minus_sign(open_page, pipelines):
    watched = open_page(BATCH.format(model="default", step=5))
    row = pipelines["default"].walk(["I love dogs"]).texts[0].tokens[0].row
    d = next(d for d, value in enumerate(row) if value < 0)
    assert f"Exact\u2212{-row[d]}" in re.sub(r"\s", "", point(watched, "row", 0, d))


RECT = """(selector) => { const { top, bottom, height } = document.querySelector(selector).getBoundingClientRect();
  return { top, bottom, height }; }"""


@pytest.mark.parametrize("is_token_open", [False, True])
def test_details_are_visible_as_a_whole_and_move_nothing(open_page, is_token_open):
    watched = open_page(BATCH.format(model="default", step=5) + "&token=812" * is_token_open, width=1366, height=768)
    page = watched.page
    page.wait_for_selector("#token h3" if is_token_open else ".hint")
    page.locator("[data-field=row]").last.scroll_into_view_if_needed()
    before = [page.evaluate(RECT, one) for one in ("#map", "#side")]
    assert "model.safetensors" in point(watched, "row", 1, 3)
    details = page.evaluate(RECT, "#inspector")
    assert details["bottom"] <= 768
    assert details["top"] >= page.evaluate(RECT, "#steps")["bottom"]
    if not is_token_open:
        for selector in (".map-tools", ".map-legend"):
            assert details["top"] >= page.evaluate(RECT, selector)["bottom"]
    assert page.eval_on_selector("#inspector", "(one) => one.scrollHeight === one.clientHeight")
    assert [page.evaluate(RECT, one) for one in ("#map", "#side")] == before
    if is_token_open:
        page.hover("#token [data-field=channel][data-d='5']")
        assert page.is_visible("#inspector")
    page.mouse.move(1100, before[1]["top"] + 80)
    assert page.is_hidden("#inspector")  # the map is free for the pointer


def test_hidden_values_show_their_sum(open_page, pipelines):
    watched = open_page(BATCH.format(model="default", step=7) + "&positions=learned")
    trace = pipelines["default"].walk(["I love dogs"], change=Change(positions="learned"))
    cell = trace.texts[0].tokens[1]
    text = point(watched, "hidden", 1, 3)
    assert f"hidden[0,1,3] = E[{cell.id},3] + P[1,3]" in text
    row, added, hidden = written(watched.text("#formula").split("P[1,3]")[1])
    assert (row, added, hidden) == (
        pytest.approx(cell.row[3], rel=1e-5),
        pytest.approx(cell.stages[0].added[3], rel=1e-5),
        pytest.approx(cell.hidden[3], rel=1e-5),
    )
    assert f"Before the change: {cell.row[3]:.6g}".replace("-", "\u2212") in text
    assert trace.steps[6].code in text


def test_formula_contains_every_stage(open_page, pipelines):
    watched = open_page(BATCH.format(model="stages", step=7))
    cell = pipelines["stages"].walk(["I love dogs"]).texts[0].tokens[2]
    text = point(watched, "hidden", 2, 1)
    assert f"hidden[0,2,1] = norm(scale(E[{cell.id},1]) + S[0,1] + P[2,1])" in text
    for stage in cell.stages:
        assert any(abs(number - stage.output[1]) < 1e-5 for number in written(text))


def test_bits_are_divided_into_sign_exponent_and_fraction(open_page, pipelines):
    watched = open_page(BATCH.format(model="default", step=4))
    point(watched, "stored", 1, 3)
    cell = pipelines["default"].walk(["I love dogs"]).texts[0].tokens[1]
    bits = "".join(watched.page.eval_on_selector_all(".bit-part", "(all) => all.map((one) => one.textContent)"))
    assert int(bits, 2) == int(cell.stored_hex[3], 16)
    assert [len(part) for part in watched.text(".bit-figure p").split()] in ([1, 8, 7], [16])
    watched.page.hover("[data-field=offset][data-t='1']")
    offset, row, size, total = written(
        watched.text("#formula").split("=")[-2].replace(",", "")
        + " "
        + watched.text("#formula").split("=")[-1].replace(",", "")
    )
    assert offset + row * size == total == cell.offset


def test_angle_is_position_times_frequency(open_page, pipelines):
    watched = open_page(BATCH.format(model="scaled", step=6))
    rotary = pipelines["scaled"].walk(["I love dogs"]).positions.rotary[0]
    watched.page.click(".rotary summary")
    watched.page.hover("[data-field=angles][data-s='0'][data-t='3'][data-d='1']")
    position, frequency, angle = written(watched.text("#formula").splitlines()[0])
    assert position == 3
    assert frequency == pytest.approx(rotary.frequencies[1], rel=1e-5)
    assert angle == pytest.approx(3 * rotary.frequencies[1], rel=1e-4)
    assert "Without scaling" in watched.inspector()


def test_gradient_is_the_sum_of_lookup_and_head(open_page, pipelines):
    watched = open_page(BATCH.format(model="default", step=8))
    row = pipelines["default"].walk(["I love dogs"]).backward.rows[1]
    watched.page.hover(f"[data-field=total][data-id='{row.id}'][data-d='2']")
    lookup, head, total = written(watched.text("#formula").split("head")[1])
    assert (lookup, head, total) == tuple(pytest.approx(one[2], rel=1e-4) for one in (row.lookup, row.head, row.total))


def test_token_panel_shows_row_neighbors_and_bytes(open_page, pipelines):
    watched = open_page(BATCH.format(model="default", step=3))
    watched.page.click(".token-card >> nth=1")
    watched.page.wait_for_selector("#token h3")
    facts = describe_token(pipelines["default"], 812, k=8)
    shown = watched.shown("#token")
    assert [float(cell["value"]) for cell in shown if cell.get("field") == "channel"] == facts.row
    assert [float(cell["value"]) for cell in shown if "field" not in cell] == [one.cosine for one in facts.neighbors]
    text = watched.text("#token")
    assert "20 6c 6f 76 65" in text
    assert f"{facts.offset:,}" in text
    names = watched.page.eval_on_selector_all(".neighbor-name", "(all) => all.map((one) => one.textContent)")
    assert names == [one.label.replace(" ", "\u2423") for one in facts.neighbors]
    watched.page.hover("#token [data-field=channel][data-d='5']")
    assert "E[812,5]" in watched.inspector()
    assert watched.text("#byte-offset") == f"{facts.offset + 5 * 2:,}"
    watched.page.click(".neighbor >> nth=0")
    watched.page.wait_for_selector(f"#token dd .number:text-is('{facts.neighbors[0].id}')")
    watched.page.click("[aria-label='Close the token panel']")
    assert watched.page.is_hidden("#token")
    assert "token=" not in watched.fragment()


def test_long_tokens_are_truncated_except_in_the_inspector(open_page, pipelines):
    tokenizer = pipelines["default"].tokenizer
    longest = max((tokenizer.decode([one]) for one in range(6000)), key=len)
    watched = open_page(f"text={longest}&model=default&step=5")
    cut = watched.text("[data-field=token][data-t='0'] .token-label")
    assert len(longest) > 14
    assert len(cut) == 14
    assert cut.endswith("\u2026")
    watched.page.hover("[data-field=token][data-t='0']")
    assert longest.replace(" ", "\u2423") in watched.inspector()


def test_merges_can_be_expanded(open_page, pipelines):
    watched = open_page(BATCH.format(model="default", step=3))
    splits = pipelines["default"].walk(["I love dogs"]).texts[0].pre_tokens
    merges = [merge for split in splits for merge in split.merges]
    watched.page.click("details.fold summary")
    ids = watched.page.eval_on_selector_all(".merge-id", "(all) => all.map((one) => Number(one.textContent))")
    assert ids == [merge.id for merge in merges]

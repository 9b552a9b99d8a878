"""Hover, focus and click: the formula with its numbers, the byte it came from, the line of PyTorch; the token panel."""

from __future__ import annotations

import re

import pytest

from inlayer.trace import Change

BATCH = "text=I+love+dogs&model={model}&step={step}"


def written(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text.replace("\u2212", "-"))]


def point(watched, field: str, t: int, d: int) -> str:
    watched.page.hover(f"[data-field={field}][data-t='{t}'][data-d='{d}']")
    return watched.inspector()


def test_a_gathered_number_names_its_row_and_byte(open_page, lines):
    watched = open_page(BATCH.format(model="default", step=5))
    trace = lines["default"].walk(["I love dogs"])
    for t, d in ((0, 0), (1, 3), (3, 7)):
        cell = trace.texts[0].tokens[t]
        said = point(watched, "row", t, d)
        assert f"rows[0,{t},{d}] = E[{cell.id},{d}]" in said
        assert cell.row[d] in written(watched.text("#inspector dd .number"))
        assert written(watched.text("#formula"))[-1] == pytest.approx(cell.row[d], rel=1e-5)
        assert watched.text("#byte-offset") == f"{cell.offset + d * trace.table.itemsize:,}"
        assert trace.table.file in said
        assert trace.table.name in said
        assert trace.steps[4].code in said


def test_a_hidden_number_is_written_as_the_sum_it_is(open_page, lines):
    watched = open_page(BATCH.format(model="default", step=7) + "&positions=learned")
    trace = lines["default"].walk(["I love dogs"], change=Change(positions="learned"))
    cell = trace.texts[0].tokens[1]
    said = point(watched, "hidden", 1, 3)
    assert f"hidden[0,1,3] = E[{cell.id},3] + P[1,3]" in said
    row, added, hidden = written(watched.text("#formula").split("P[1,3]")[1])
    assert (row, added, hidden) == (
        pytest.approx(cell.row[3], rel=1e-5),
        pytest.approx(cell.stages[0].added[3], rel=1e-5),
        pytest.approx(cell.hidden[3], rel=1e-5),
    )
    assert f"Before the change: {cell.row[3]:.6g}".replace("-", "\u2212") in said
    assert trace.steps[6].code in said


def test_every_stage_is_in_the_formula(open_page, lines):
    watched = open_page(BATCH.format(model="stages", step=7))
    cell = lines["stages"].walk(["I love dogs"]).texts[0].tokens[2]
    said = point(watched, "hidden", 2, 1)
    assert f"hidden[0,2,1] = norm(scale(E[{cell.id},1]) + S[0,1] + P[2,1])" in said
    for stage in cell.stages:
        assert any(abs(number - stage.after[1]) < 1e-5 for number in written(said))


def test_bits_are_parted_into_sign_exponent_and_fraction(open_page, lines):
    watched = open_page(BATCH.format(model="default", step=4))
    point(watched, "stored", 1, 3)
    cell = lines["default"].walk(["I love dogs"]).texts[0].tokens[1]
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


def test_an_angle_is_the_place_times_the_speed(open_page, lines):
    watched = open_page(BATCH.format(model="scaled", step=6))
    turning = lines["scaled"].walk(["I love dogs"]).positions.rotary[0]
    watched.page.hover("[data-field=angles][data-s='0'][data-t='3'][data-d='1']")
    place, speed, angle = written(watched.text("#formula").splitlines()[0])
    assert place == 3
    assert speed == pytest.approx(turning.frequencies[1], rel=1e-5)
    assert angle == pytest.approx(3 * turning.frequencies[1], rel=1e-4)
    assert "Without scaling" in watched.inspector()


def test_a_gradient_is_lookup_and_head(open_page, lines):
    watched = open_page(BATCH.format(model="default", step=8))
    row = lines["default"].walk(["I love dogs"]).backward.rows[1]
    watched.page.hover(f"[data-field=total][data-id='{row.id}'][data-d='2']")
    lookup, head, total = written(watched.text("#formula").split("head")[1])
    assert (lookup, head, total) == tuple(pytest.approx(one[2], rel=1e-4) for one in (row.lookup, row.head, row.total))


def test_a_token_shows_its_row_its_neighbors_and_its_bytes(open_page, lines):
    watched = open_page(BATCH.format(model="default", step=3))
    watched.page.click(".token-card >> nth=1")
    watched.page.wait_for_selector("#token h3")
    facts = lines["default"].token(812, k=8)
    shown = watched.shown("#token")
    assert [float(cell["value"]) for cell in shown if cell.get("field") == "channel"] == facts.row
    assert [float(cell["value"]) for cell in shown if "field" not in cell] == [one.cosine for one in facts.neighbors]
    said = watched.text("#token")
    assert "20 6c 6f 76 65" in said
    assert f"{facts.offset:,}" in said
    names = watched.page.eval_on_selector_all(".neighbor-name", "(all) => all.map((one) => one.textContent)")
    assert names == [one.label.replace(" ", "\u2423") for one in facts.neighbors]
    watched.page.hover("#token [data-field=channel][data-d='5']")
    assert "E[812,5]" in watched.inspector()
    assert watched.text("#byte-offset") == f"{facts.offset + 5 * 2:,}"
    watched.page.click(".neighbor >> nth=0")
    watched.page.wait_for_selector(f"#token dd .number:text-is('{facts.neighbors[0].id}')")
    watched.page.click("[aria-label='Close the token']")
    assert watched.page.is_hidden("#token")
    assert "token=" not in watched.fragment()


def test_a_long_token_is_cut_and_told_in_full(open_page, lines):
    tokenizer = lines["default"].tokenizer
    longest = max((tokenizer.decode([one]) for one in range(6000)), key=len)
    watched = open_page(f"text={longest}&model=default&step=5")
    cut = watched.text("[data-field=token][data-t='0'] .token-label")
    assert len(longest) > 14
    assert len(cut) == 14
    assert cut.endswith("\u2026")
    watched.page.hover("[data-field=token][data-t='0']")
    assert longest.replace(" ", "\u2423") in watched.inspector()


def test_merges_unfold(open_page, lines):
    watched = open_page(BATCH.format(model="default", step=3))
    splits = lines["default"].walk(["I love dogs"]).texts[0].pre_tokens
    merges = [merge for split in splits for merge in split.merges]
    watched.page.click("details.fold summary")
    ids = watched.page.eval_on_selector_all(".merge-id", "(all) => all.map((one) => Number(one.textContent))")
    assert ids == [merge.id for merge in merges]

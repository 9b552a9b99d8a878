"""Every number has a formula, a source and a line of PyTorch, and nonzero numbers never read as zero."""

from __future__ import annotations

import math

import pytest

from inlayer.trace import Change

pytestmark = pytest.mark.slow

# Hovers one cell of each kind and lists what the inspector lacks.
LACKING = """() => {
  const inspector = document.querySelector("#inspector"), seen = new Set(), lacking = [];
  for (const cell of document.querySelectorAll(".workspace [data-field]")) {
    const kind = cell.dataset.field + (cell.closest("#token") ? " of the panel" : "");
    if (["character", "preToken", "token"].includes(kind) || seen.has(kind)) continue;
    seen.add(kind);
    inspector.replaceChildren();
    cell.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }));
    const told = inspector.textContent;
    if (!inspector.querySelector("#formula")) lacking.push(kind + ": formula");
    if (!inspector.querySelector(".code-line")) lacking.push(kind + ": line");
    const isPlaced = inspector.querySelector("#byte-offset") || told.includes("not stored in a file");
    const computed = ["mask", "loss", "initialization-mean", "initialization-std"];
    if (!isPlaced && !computed.includes(kind)) lacking.push(kind + ": origin");
  }
  return { seen: [...seen], lacking };
}"""
KINDS = {
    3: {"id"},
    4: {"id", "offset", "stored"},
    5: {"row", "channel of the panel", "cosine of the panel"},
    6: {"before", "added", "output", "angles", "cos", "sin", "frequency"},
    7: {"added", "output", "hidden", "mask", "padding"},
    8: {"lookup", "head", "total", "norm", "unmasked", "loss", "gradient"},
}


@pytest.mark.parametrize("step", KINDS)
def test_every_kind_of_number_is_explained(step, open_page):
    seen: set[str] = set()
    for model in ("default", "stages", "scaled"):
        watched = open_page(f"text=I+love+dogs&text=Hi&model={model}&step={step}&pad=1&token=812")
        watched.page.wait_for_selector("#token h3")
        told = watched.page.evaluate(LACKING)
        assert told["lacking"] == [], model
        seen |= set(told["seen"])
    assert KINDS[step] <= seen


def test_initialization_numbers_are_explained(open_page):
    watched = open_page("text=I+love+dogs&view=initialization")
    told = watched.page.evaluate(LACKING)
    assert told["lacking"] == []
    assert {"initialization", "initialization-mean", "initialization-std", "row"} <= set(told["seen"])


def test_vector_before_the_position_is_not_called_a_row(open_page, pipelines):
    cell = pipelines["stages"].walk(["I love dogs"]).texts[0].tokens[1]
    watched = open_page("text=I+love+dogs&model=stages&step=6")
    watched.page.hover("[data-field=before][data-t='1'][data-d='5']")
    assert watched.text(".inspector-title") == "x[0,1,5] before the position"
    assert "= scale(rows[0,1,5]) + S[0,5]" in watched.text("#formula")
    assert f"{cell.stages[1].output[5]:.6g}".replace("-", "\u2212") in watched.text("#formula")


def test_added_vectors_show_their_row_and_offset(open_page, pipelines):
    trace = pipelines["stages"].walk(["I love dogs"])
    watched = open_page("text=I+love+dogs&model=stages&step=6")
    watched.page.hover("[data-field=added][data-t='2'][data-d='3']")
    stage, value = trace.stages[2], trace.texts[0].tokens[2].stages[2]
    assert f"P[{value.row},3]" in watched.inspector()
    assert stage.table.name in watched.inspector()
    assert f"{value.row} (of 0 to {stage.table.shape[0] - 1})" in watched.inspector()
    assert watched.text("#byte-offset") == f"{value.offset + 3 * stage.table.itemsize:,}"


def test_gradients_show_the_offset_of_their_row(open_page, pipelines):
    trace = pipelines["default"].walk(["I love dogs"])
    row = trace.backward.rows[1]
    watched = open_page("text=I+love+dogs&model=default&step=8&pad=1")
    watched.page.hover(f"[data-field=head][data-id='{row.id}'][data-d='2']")
    offset = trace.table.offset + row.id * trace.table.row_bytes + 2 * trace.table.itemsize
    assert watched.text("#byte-offset") == f"{offset:,}"
    watched.page.hover("[data-field=unmasked][data-d='2']")
    assert "without padding_idx=6142" in watched.text("#inspector .code-line")


def test_step_4_shows_the_code_of_the_selected_row(open_page, pipelines):
    watched = open_page("text=I+love+dogs&model=default&step=4")
    for t, cell in enumerate(pipelines["default"].walk(["I love dogs"]).texts[0].tokens):
        watched.page.hover(f"[data-field=stored][data-t='{t}'][data-d='0']")
        assert watched.text("#inspector .code-line code") == f"E[{cell.id}]"


# ---- number formatting


@pytest.mark.parametrize("model", ["default", "stages", "odd", "huge"])
def test_nonzero_numbers_never_read_as_zero(model, open_page):
    watched = open_page(f"text=I+love+dogs&model={model}&step=4&pad=1")
    compared = 0
    for step in (4, 5, 6, 7, 8):
        watched.step(step)
        for cell in watched.shown():
            number, text = float(cell["value"]), cell["written"].replace("cos ", "").replace("sin ", "")
            if text and math.isfinite(number):
                read = float(text.replace("\u2212", "-").replace(",", ""))
                assert (read == 0) == (number == 0), (step, cell)
                compared += 1
    assert compared > 100


def test_unmasked_padding_gradient_has_its_own_scale(open_page, pipelines):
    watched = open_page("text=I+love+dogs&model=default&step=8&pad=1")
    section = "section[aria-label='The padding row without padding_idx']"
    vector = pipelines["default"].walk(["I love dogs"], change=Change(pad=1)).backward.unmasked_padding_gradient
    shown = [cell for cell in watched.shown(section) if cell["field"] == "unmasked"]
    assert [float(cell["value"]) for cell in shown] == vector
    assert watched.page.locator(f"{section} .legend").count() == 1
    strongest = watched.page.eval_on_selector_all(f"{section} td.cell", "(all) => all.map((one) => one.style.cssText)")
    assert any("--m: 1.000" in one for one in strongest)


def test_huge_number_does_not_hide_the_others(open_page, pipelines):
    watched = open_page("text=I+love+dogs&model=huge&step=5")
    widths = watched.page.eval_on_selector_all(
        "tbody tr:first-child td.cell", "(all) => all.map((one) => one.getBoundingClientRect().width)"
    )
    assert max(widths) <= 1.05 * min(widths)
    rows = [cell for cell in watched.shown() if cell["field"] == "row"]
    assert [cell["written"] for cell in rows if float(cell["value"]) > 1e30] == ["3.0e38"]
    ordinary = [cell["written"] for cell in rows if abs(float(cell["value"])) > 0.01 and float(cell["value"]) < 1e30]
    assert len(ordinary) > 8
    assert all(len(text.partition(".")[2]) >= 3 for text in ordinary)
    assert "and larger" in watched.text(".figure .legend")

"""Every number shown equals the library's, for served and exported pages, several models, texts and changes.

The numbers are compared with the trace, with the model's own objects from `inlayer.load`, and with the bytes of the
file at the offsets shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from torch.nn import functional

import inlayer
from inlayer.trace import Change
from inlayer.trace.html import export
from tests.browser.numbers import expected, is_rounding, key, same, value

pytestmark = pytest.mark.slow

DOGS = ["I love dogs"]
BATCH = ["I love dogs", "the cat, the d\u00f6g and \U0001f600"]
WALKS = {
    "default": ("default", DOGS, Change()),
    "batch": ("default", BATCH, Change()),
    "padded": ("default", DOGS, Change(pad=2)),
    "sinusoidal": ("default", DOGS, Change(positions="sinusoidal", swap=(1, 2))),
    "theta": ("default", DOGS, Change(theta=500.0)),
    "random": ("random", ["d\u00f6g", "\U0001f600"], Change(pad=1)),
    "stages": ("stages", DOGS, Change()),
    "scaled": ("scaled", DOGS, Change()),
    "odd": ("odd", DOGS, Change()),
    "quantized": ("quantized", ["abba"], Change(swap=(0, 1))),
}


def fragment_of(model: str, texts: list[str], change: Change, step: int = 1) -> str:
    fields: list[tuple[str, Any]] = [("text", text) for text in texts] + [("model", model), ("step", step)]
    fields += [("positions", change.positions)] if change.positions else []
    fields += [("theta", f"{change.theta:g}")] if change.theta else []
    fields += [("swap", ",".join(map(str, change.swap)))] if change.swap else []
    fields += [("pad", change.pad)] if change.pad else []
    return urlencode(fields)


def compare(watched, trace) -> int:
    """Compare every number of all eight steps; return how many."""
    compared = 0
    for step in range(1, 9):
        watched.step(step)
        shown = [cell for cell in watched.shown() if cell["field"] not in ("character", "preToken")]
        wanted = expected(trace, step)
        assert {key(cell) for cell in shown} == set(wanted), f"step {step}"
        for cell in shown:
            assert same(value(cell), wanted[key(cell)]), (step, cell)
            if cell["written"] and cell["field"] not in ("cos", "sin"):
                assert is_rounding(cell["written"], value(cell)), (step, cell)
        compared += len(shown)
    return compared


@pytest.mark.parametrize("name", WALKS)
def test_served_numbers_equal_the_trace(name, open_page, pipelines):
    model, texts, change = WALKS[name]
    trace = pipelines[model].walk(texts, change=change)
    assert compare(open_page(fragment_of(model, texts, change)), trace) > 50


def test_characters_and_bytes(open_page, pipelines):
    watched = open_page(fragment_of("default", BATCH, Change()))
    shown = watched.shown()
    for b, text in enumerate(BATCH):
        assert [cell["value"] for cell in shown if cell["b"] == str(b)] == [one.encode().hex() for one in text]
    watched.step(2)
    splits = [cell for cell in watched.shown() if cell["b"] == "1"]
    assert "".join(cell["value"] for cell in splits) == BATCH[1].encode().hex()
    assert "\ufffd" not in watched.text("body")


@pytest.mark.parametrize("dims", [16])
def test_served_numbers_equal_the_model(dims, open_page):
    """Independent of traces: the objects that a user of the library has."""
    model = inlayer.load("default")
    ids = model.tokenizer.encode(DOGS[0])
    batch = torch.tensor([ids])
    rows, hidden = model.embeddings.token_embedding(batch)[0], model.embeddings(batch)[0]
    cos, sin = model.embeddings.rotary(torch.arange(len(ids)))
    pairs = cos.shape[-1] // 2
    watched = open_page(fragment_of("default", DOGS, Change()) + f"&dims={dims}")

    def field(step: int, name: str) -> torch.Tensor:
        watched.step(step)
        found = [cell for cell in watched.shown() if cell["field"] == name]
        return torch.tensor([value(cell) for cell in found], dtype=torch.float64).reshape(len(ids), -1)

    def matches(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        return torch.equal(ours, theirs.double()[:, : ours.shape[1]])

    assert matches(field(3, "id"), batch[0][:, None])
    assert matches(field(5, "row"), rows)
    assert field(5, "row").shape[1] == dims
    assert matches(field(7, "hidden"), hidden)
    assert matches(field(6, "cos"), cos.reshape(len(ids), -1)[:, :pairs])
    assert matches(field(6, "sin"), sin.reshape(len(ids), -1)[:, :pairs])
    assert not matches(field(6, "sin"), cos.reshape(len(ids), -1)[:, :pairs])  # control


def test_offsets_point_to_the_bytes_of_the_file(open_page, pipelines):
    model = inlayer.load("default")
    file = next(Path(inlayer.__file__).parent.glob(f"samples/default/{pipelines['default'].table.file}")).read_bytes()
    watched = open_page(fragment_of("default", DOGS, Change(), 4))
    shown = watched.shown()
    offsets = {cell["t"]: int(cell["value"]) for cell in shown if cell["field"] == "offset"}
    stored = [cell for cell in shown if cell["field"] == "stored"]
    assert len(stored) == 8 * len(model.tokenizer.encode(DOGS[0]))
    for cell in stored:
        at = offsets[cell["t"]] + 2 * int(cell["d"])
        raw = torch.frombuffer(bytearray(file[at : at + 2]), dtype=torch.bfloat16)
        assert float(raw) == value(cell)


def test_gradients_equal_autograd(open_page):
    """The tied head and the lookup share one table, computed by torch alone."""
    model = inlayer.load("default")
    text = "a dog, the dog"
    ids = torch.tensor([model.tokenizer.encode(text)])
    table = model.embeddings.token_embedding.weight.detach().float().clone().requires_grad_()
    hidden = functional.embedding(ids, table, padding_idx=model.embeddings.padding_idx)
    loss = functional.cross_entropy((hidden @ table.T)[0, :-1], ids[0, 1:])
    loss.backward()
    watched = open_page(fragment_of("default", [text], Change(), 8))
    shown = watched.shown()
    totals = [cell for cell in shown if cell["field"] == "total"]
    assert len(totals) == 8 * len(set(ids[0].tolist()))
    assert table.grad is not None
    for cell in totals:
        wanted = float(table.grad[int(cell["id"]), int(cell["d"])])
        assert value(cell) == pytest.approx(wanted, rel=1e-4, abs=1e-7)
    assert [value(cell) for cell in shown if cell["field"] == "loss"] == [pytest.approx(float(loss.detach()))]
    assert "sum of 2" in watched.text("#stage")  # " dog" was looked up twice


@pytest.mark.parametrize("name", ["default", "batch", "random"])
def test_exported_numbers_equal_the_trace(name, open_file, pipelines, tmp_path):
    model, texts, change = WALKS[name]
    file = tmp_path / "walk.html"
    file.write_text(export(pipelines[model], texts, change=change), encoding="utf-8")
    assert compare(open_file(file), pipelines[model].walk(texts, change=change, max_tokens=64)) > 50


def test_comparison_detects_differences(open_page, pipelines):
    other = pipelines["default"].walk(["I love cats"])
    with pytest.raises(AssertionError):
        compare(open_page(fragment_of("default", DOGS, Change())), other)

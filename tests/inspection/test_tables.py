"""`inspect` on the tables besides token table and head: facts, and one damaged checkpoint per fault."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import inlayer
from inlayer.cli import main
from inlayer.inspection import inspect
from inlayer.inspection.html import inspect_page
from tests.families.survey import save_tiny
from tests.families.tiny import VOCAB

Tensors = dict[str, Tensor]
TABLE, PER_LAYER = "model.embed_tokens.weight", "model.embed_tokens_per_layer.weight"
MTP, VALUE, ROUTING = "mtp.embed_tokens.weight", "model.value_embeds.1.weight", "model.layers.1.mlp.gate.tid2eid"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Gemma-4 with a copy for multi-token prediction, a value table and a routing table."""
    folder = tmp_path_factory.mktemp("healthy")
    torch.manual_seed(0)
    save_tiny("gemma4_text", "causal", str(folder))
    change(folder, lambda tensors: tensors.update({MTP: tensors[TABLE].clone(), VALUE: torch.randn(VOCAB, 16)}))
    change(folder, lambda tensors: tensors.update({ROUTING: torch.randint(0, 8, (VOCAB, 2))}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_routed_experts": 8}))
    return folder


def change(folder: Path, damage: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    damage(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def damaged(healthy: Path, folder: Path, damage: Callable[[Tensors], object]) -> set[tuple[str, str]]:
    for file in healthy.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    change(folder, damage)
    return {(finding.severity, finding.code) for finding in inspect(folder).findings}


@pytest.mark.parametrize("quick", [False, True])
def test_every_table_is_listed(healthy: Path, quick: bool) -> None:
    report = inspect(healthy, quick=quick)
    tables = {table.role: table for table in report.tables}
    assert tables.keys() == {"per_layer", "mtp", "value", "routing"}
    stored = load_file(healthy / "model.safetensors")
    for table in report.tables:
        tensor = stored[table.tensor]
        assert (table.rows, table.width, table.rows_read) == (*tensor.shape, VOCAB)
        assert table.expected_rows == VOCAB
        raw = (healthy / table.file).read_bytes()[table.offset : table.offset + table.nbytes]
        assert raw == tensor.numpy().tobytes()
        assert table.parameter_share == tensor.numel() / sum(one.numel() for one in stored.values())
        if table.role != "routing":
            assert table.norm_median == pytest.approx(float(tensor.norm(dim=1).median()))
    assert (tables["per_layer"].scale, tables["mtp"].copy_of) == (16.0, TABLE)
    assert [one.code for one in report.findings if one.code.startswith("table-")] == ["table-stored-twice"]
    assert report.exit_code == 0


def test_terminal_json_and_page_show_them(
    healthy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["inlayer", "inspect", str(healthy), *flags])
        with pytest.raises(SystemExit):
            main()
        shown = capsys.readouterr().out
        assert PER_LAYER in shown
        if flags:
            roles = [one["role"] for one in json.loads(shown)["tables"]]
            assert sorted(roles) == ["mtp", "per_layer", "routing", "value"]
        else:
            assert "rows x 16" in shown
            assert f"equals {TABLE}" in " ".join(shown.split())
    model = inlayer.load(healthy)
    assert PER_LAYER in inspect_page(inspect(model), model)


def shorten(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: tensors[name][:-1]})


def fill(name: str, rows: slice, value: float) -> Callable[[Tensors], object]:
    return lambda tensors: tensors[name][rows].fill_(value)


FAULTS: dict[str, tuple[Callable[[Tensors], object], str, str]] = {
    "per-layer table cut": (shorten(PER_LAYER), "error", "table-rows-mismatch"),
    "per-layer table missing": (lambda tensors: tensors.pop(PER_LAYER), "error", "tensor-missing"),
    "copy cut": (shorten(MTP), "error", "table-rows-mismatch"),
    "value table cut": (shorten(VALUE), "error", "table-rows-mismatch"),
    "routing table cut": (shorten(ROUTING), "error", "table-rows-mismatch"),
    "NaN in the per-layer table": (fill(PER_LAYER, slice(50, 51), float("nan")), "error", "table-not-finite"),
    "infinity in the copy": (fill(MTP, slice(50, 51), float("inf")), "error", "table-not-finite"),
    "copy differs in a few rows": (fill(MTP, slice(50, 52), 0.5), "warning", "table-copy-differs"),
    "many dead rows": (fill(PER_LAYER, slice(20, 60), 0.0), "error", "table-zero-rows"),
    "value table of zeros": (fill(VALUE, slice(None), 0.0), "note", "table-zero-rows"),
    "negative expert": (fill(ROUTING, slice(50, 51), -1), "error", "routing-out-of-range"),
    "expert that does not exist": (fill(ROUTING, slice(50, 51), 8), "error", "routing-out-of-range"),
    "narrow per-layer table": (
        lambda tensors: tensors.update({PER_LAYER: tensors[PER_LAYER][:, :-1]}),
        "error",
        "tensor-shape-mismatch",
    ),
    "FP8 without scales": (
        lambda tensors: tensors.update({PER_LAYER: tensors[PER_LAYER].to(torch.float8_e4m3fn)}),
        "note",
        "fp8-without-scales",
    ),
    "routing table of zeros": (fill(ROUTING, slice(None), 0), "note", "routing-untrained"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_reported(name: str, healthy: Path, tmp_path: Path) -> None:
    damage, severity, code = FAULTS[name]
    assert (severity, code) in damaged(healthy, tmp_path, damage)


def test_padding_row_may_be_zero(healthy: Path, tmp_path: Path) -> None:
    """The fixture has no tokenizer, so every other id may occur in text."""
    assert inlayer.load(healthy).spec.padding_idx == 0
    for row, expected in ((0, set()), (1, {("error", "table-zero-rows")})):
        found = damaged(healthy, tmp_path, fill(PER_LAYER, slice(row, row + 1), 0.0))
        assert {one for one in found if one[1] == "table-zero-rows"} == expected


@pytest.mark.parametrize("quick", [False, True])
def test_rows_that_were_not_read_are_not_judged(healthy: Path, tmp_path: Path, quick: bool) -> None:
    for file in healthy.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    rows, table = 5000, torch.randn(5000, 64)
    change(tmp_path, lambda tensors: tensors.update({TABLE: table, MTP: table.clone(), VALUE: torch.zeros(rows, 16)}))
    read = "each of the 1,024 rows read of" if quick else "every row of"
    messages = {finding.code: finding.message for finding in inspect(tmp_path, quick=quick).findings}
    assert messages["table-zero-rows"] == f"{read} '{VALUE}' is zero, as at initialization"
    equal = " in the 1,024 rows read" if quick else ""
    assert messages["table-stored-twice"] == f"'{MTP}' equals '{TABLE}'{equal}, and both are stored"


@pytest.mark.slow
def test_every_part_of_a_memory_is_read(tmp_path: Path) -> None:
    """qwen4_exp with 512 parts, two of them damaged."""
    torch.manual_seed(0)
    save_tiny("qwen4_exp_text", "causal", str(tmp_path), split_ngram_parts=512)
    parts = sorted(name for name in load_file(tmp_path / "model.safetensors") if "ngram_embedding.shard_" in name)
    nan, zero = parts[300], parts[301]

    def damage(tensors: Tensors) -> None:
        tensors[nan].fill_(float("nan"))
        tensors[zero].zero_()

    change(tmp_path, damage)
    report = inspect(tmp_path)
    assert {table.tensor for table in report.tables if table.role == "ngram"} == set(parts)
    messages = {finding.code: finding.message for finding in report.findings}
    assert nan in messages["table-not-finite"]
    assert zero in messages["table-zero-rows"]


def test_a_copy_with_its_own_rows_is_no_fault(healthy: Path, tmp_path: Path) -> None:
    found = damaged(healthy, tmp_path, lambda tensors: tensors.update({MTP: torch.randn(VOCAB, 64)}))
    assert not [code for _, code in found if code.startswith("table-")]

"""Arithmetic of the benchmarks: ratios, targets, and one JSON line per result. Speed itself is not tested."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from benchmarks import embed_quality, measure, open_checkpoint
from benchmarks.__main__ import NAMES
from benchmarks.tying import TIED_DEFAULT, UNTIED_DEFAULT, VARIANTS, read_runs, short_jobs
from benchmarks.tying_report import write
from inlayer.training.config import TrainConfig
from tests.console import ROOT


def test_ratio_and_its_target() -> None:
    slow, fast = [3.0, 4.0, 8.0], [1.0, 2.0, 2.0]
    one = measure.ratio("slow / fast", slow, fast, at_least=3.0)
    assert (one.value, one.best, one.met) == (2.0, 3.0, False)
    assert measure.ratio("slow / fast", slow, fast, at_most=2.0).met
    assert measure.ratio("slow / fast", slow, fast).met is None


def test_functions_take_turns() -> None:
    calls: list[str] = []
    seconds = measure.interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2, warm_up=1)
    assert calls == ["a", "b"] * 3
    assert [len(one) for one in seconds.values()] == [2, 2]  # without the warm-up


def test_result_is_one_json_line_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "OUT", tmp_path)
    one = measure.ratio("ours / theirs", [1.0], [2.0], at_most=0.4)
    result = measure.Result(name="example", ratios=[one], measured={}, sizes={"rows": 3})
    line = measure.as_json(result)
    assert "\n" not in line
    assert json.loads(line)["ratios"]["ours / theirs"] == {
        "median": 0.5, "fastest": 0.5, "target": "at most 0.4", "met": False,
    }  # fmt: skip
    assert measure.draw(result).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_exists(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)


def test_quality_of_pooled_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for texts, labels in (embed_quality.topic_texts(), embed_quality.verb_texts()):
        assert len(texts) == len(labels) > 1000
        assert len({*labels}) in {10, 20}
    for name in ("topic_texts", "verb_texts"):  # few of them, because fitting takes a second
        pairs = [*zip(*getattr(embed_quality, name)(), strict=True)][::20]
        monkeypatch.setattr(embed_quality, name, lambda pairs=pairs: tuple(map(list, zip(*pairs, strict=True))))
    rows = "a dog runs,a cat runs,3.5\nthe sun is hot,seven words,0.5\na dog,a dog,5\n"
    for folder, file in (("stsb", "stsb-en-dev.csv"), ("stsb", "stsb-en-test.csv"), ("wordsim", "words.txt")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / file).write_text("dog cat 8\nsun seven 1\n" if folder == "wordsim" else rows)
    monkeypatch.setattr(sys, "argv", ["embed_quality", "--data", str(tmp_path), "--models", "default"])
    embed_quality.main()
    printed = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1] for row in printed] == ["plain", "model2vec, same table", *embed_quality.FITTED]
    assert all(len(row) == 7 and abs(float(row[-1].rstrip(" |"))) <= 100 for row in printed)
    documented = (ROOT / "docs" / "embed.md").read_text(encoding="utf-8")
    assert all(f"| {name} | plain |" in documented for name in embed_quality.MODELS)


def test_plain_reads_give_the_rows_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_checkpoint, "ROWS", 1024)
    monkeypatch.setattr(open_checkpoint, "WIDTH", 112)
    monkeypatch.setattr(open_checkpoint, "CONFIG", open_checkpoint.CONFIG | {"vocab_size": 1024, "hidden_size": 112})
    open_checkpoint.write_checkpoint(tmp_path)
    ids = torch.tensor([[1023, 0, 5]])
    expected, _ = open_checkpoint.with_inlayer(str(tmp_path), ids)
    rows, _ = open_checkpoint.with_plain_reads(str(tmp_path), ids)
    assert torch.equal(rows, expected)


def test_sparse_checkpoint_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_checkpoint, "SHARDS", 2)
    monkeypatch.setattr(open_checkpoint, "EXPERTS", 3)
    sizes = open_checkpoint.write_sparse_checkpoint(tmp_path)
    assert sizes["tensors"] == 1 + 2 * 3 * 6
    assert sizes["bytes"] > 2**31  # of the first shard, this is only the table
    rows, _ = open_checkpoint.with_inlayer(str(tmp_path), torch.tensor([[0, 163_839]]))
    assert rows.shape == (1, 2, 7168)
    assert not rows.any()


@pytest.mark.slow
def test_tying_study_runs_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    done = {**read_runs(ROOT / "docs" / "tying")[0], "variant": "tied", "factor": 1, "seed": 0, "steps": 20}
    path.write_text(json.dumps(done) + "\n" + json.dumps(done)[:50])  # cut off by a kill
    command = [sys.executable, "-m", "benchmarks.tying", "--short", "--out", str(tmp_path), "--processes", "1"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert output.startswith("4 runs, 1 already done\n")
    first, *runs = read_runs(tmp_path)
    assert first == done
    assert {(run["variant"], run["factor"]) for run in (first, *runs)} == {(j.variant, j.factor) for j in short_jobs()}
    for run in runs:
        assert 4 < run["validation_loss"] < 8
        assert run["curves"]["loss"][0] > run["curves"]["loss"][-1]


@pytest.mark.slow
def test_tying_page_matches_its_runs(tmp_path: Path) -> None:
    page = tmp_path / "tying.md"
    text = (ROOT / "docs" / "tying.md").read_text(encoding="utf-8")
    page.write_text(re.sub(r"-->\n[^<].*?<!-- end -->", "-->\n<!-- end -->", text, flags=re.DOTALL), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != text
    write(read_runs(ROOT / "docs" / "tying"), tmp_path, page)
    assert page.read_text(encoding="utf-8") == text
    assert {path.name for path in tmp_path.glob("*.png")} == {
        path.name for path in (ROOT / "docs" / "tying").glob("*.png")
    }


def test_defaults_of_training_are_the_best_variants_of_the_study() -> None:
    plain = {"init": "normal", "init_std": 0.02, "output_scale": 1.0}
    (variant,) = [one for one in VARIANTS if one.name == TIED_DEFAULT]
    assert {**plain, **variant.model}.items() <= asdict(TrainConfig().decoder_config(256)).items()
    (untied,) = [one for one in VARIANTS if one.name == UNTIED_DEFAULT]
    assert {**plain, **untied.model}.items() <= asdict(TrainConfig(tie=False).decoder_config(256)).items()
    defaults = TrainConfig().resolved()
    for name in ("warmup_steps", "max_grad_norm", "embedding_weight_decay"):
        assert bool(defaults[name]) == bool(variant.settings[name])

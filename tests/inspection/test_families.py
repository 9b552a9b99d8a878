"""Randomly initialized models of every family, written by transformers, have no warnings; damaged ones have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import inlayer
from inlayer.inspection import inspect
from tests.families.references import CASES, Case, reference_config
from tests.families.survey import save_tiny

ENCODERS = {"bert", "distilbert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet", "albert"}


@pytest.mark.slow
@pytest.mark.parametrize("headed", [True, False])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_randomly_initialized_models_are_healthy(tmp_path: Path, case: Case, headed: bool) -> None:
    torch.manual_seed(0)
    maker = AutoModel
    if headed and case.model_type in ENCODERS:
        maker = AutoModelForMaskedLM
    elif headed:
        maker = AutoModelForSeq2SeqLM if case.model_type.endswith("t5") else AutoModelForCausalLM
    model = maker.from_config(reference_config(case))
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.pad_token_id = None  # transformers does not write Llama-1's -1
    model.save_pretrained(tmp_path)
    report = inspect(tmp_path)
    assert report.exit_code == 0, report.findings
    assert {finding.code for finding in report.findings} <= {
        "random-initialization",
        "tokenizer-missing",
        "padding-row-nonzero",
        "head-stored-twice",
        "dtype-mismatch",
    }
    assert report.table.model_type == case.model_type
    assert (report.table.rows, report.positions.kind) == (99, inlayer.describe(case.config_json).positions)


@pytest.mark.parametrize(("model_type", "kind"), [("luke", "masked"), ("bigbird_pegasus", "causal")])
def test_model_classes_that_never_tie_their_head(tmp_path: Path, model_type: str, kind: str) -> None:
    save_tiny(model_type, kind, str(tmp_path))
    report = inspect(tmp_path)
    assert "tied-head-differs" not in {finding.code for finding in report.findings}
    assert (report.head.tie_word_embeddings, report.head.tie_is_explicit) == (False, True)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": ["AnyOther"]}))  # control
    assert "tied-head-differs" in {finding.code for finding in inspect(tmp_path).findings}


@pytest.mark.parametrize(
    ("model_type", "kind", "tensor", "code"),
    [
        ("t5gemma", "seq2seq", "model.decoder.embed_tokens.weight", "head-not-finite"),  # also the table of the decoder
        ("bart", "masked", "model.decoder.embed_positions.weight", "table-not-finite"),
        ("bart", "masked", "final_logits_bias", "tensor-not-finite"),
        ("mpnet", "masked", "mpnet.encoder.relative_attention_bias.weight", "tensor-not-finite"),
        ("t5", "seq2seq", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "tensor-not-finite"),
        ("roformer", "causal", "roformer.embeddings.token_type_embeddings.weight", "table-not-finite"),  # not supported
    ],
)
def test_every_tensor_that_is_reported_is_checked(
    tmp_path: Path, model_type: str, kind: str, tensor: str, code: str
) -> None:
    torch.manual_seed(0)
    save_tiny(model_type, kind, str(tmp_path))
    assert inspect(tmp_path).exit_code == 0, inspect(tmp_path).findings
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[tensor][..., 3] = torch.nan
    save_file(tensors, tmp_path / "model.safetensors")
    assert [finding.code for finding in inspect(tmp_path).findings if finding.severity == "error"] == [code]

"""Randomly initialized models of every family, written by transformers, have no warnings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import inlayer
from inlayer.inspection import inspect
from tests.families.references import CASES, Case, reference_config

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

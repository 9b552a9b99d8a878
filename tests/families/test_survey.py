"""Every model type in transformers: those that were equal stay equal, and a new plain type is not refused."""

from __future__ import annotations

import json

import pytest

from inlayer.families import FAMILIES
from tests.families.document import RECORD
from tests.families.references import CASES
from tests.families.survey import JOBS, Job, Outcome, examine

RECORDED = {(one["model_type"], one["kind"]): one for one in json.loads(RECORD.read_text())["outcomes"]}
EQUAL = [job for job, one in RECORDED.items() if one["outcome"] == "equal"]
FAST = [
    ("blt", "causal"),
    ("qwen4_exp_text", "causal"),
    ("bart", "causal"),
    ("deberta", "masked"),
    ("gemma4_text", "causal"),
    ("llama4_text", "causal"),
]
MIN_TYPES = 190  # of 214; a smaller number means that support was lost
MIN_GENERIC = 40  # model types that also open as generic, under an unknown name
# Opened as generic, but the tables have another form: each angle once, or three axes for texts with images.
OTHER_TABLES = {"gpt_oss", "cohere_compass_text"}


def check_generic(outcome: Outcome) -> None:
    """Under an unknown name, a model is what it was recorded as, or equal now."""
    assert outcome.generic in (RECORDED[outcome.model_type, outcome.kind]["generic"], "equal")


@pytest.mark.parametrize("job", FAST, ids="-".join)
def test_type_is_equal(job: Job) -> None:
    outcome = examine(job)
    assert outcome.outcome == "equal", outcome.reason
    assert outcome.hidden > 0
    check_generic(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("job", [job for job in EQUAL if job not in FAST], ids="-".join)
def test_recorded_type_is_still_equal(job: Job) -> None:
    if job in JOBS:  # an older or newer transformers may not have it
        outcome = examine(job)
        assert outcome.outcome == "equal", outcome.reason
        check_generic(outcome)


@pytest.mark.slow
def test_no_new_plain_type_is_refused() -> None:
    """A type that a newer transformers adds: equal, or special enough that `make families` records a reason."""
    outcomes = [examine(job) for job in JOBS if job not in RECORDED]
    refused = [one.model_type for one in outcomes if one.outcome in ("refused", "differs")]
    assert not refused, f"add rows to inlayer/families/model_types.py and run `make families`: {refused}"


def test_record_has_enough_types() -> None:
    listed = {model_type for model_type, kind in RECORDED if kind in ("causal", "masked")}
    partly = {model_type for (model_type, _), one in RECORDED.items() if one["outcome"] != "equal"}
    assert len(listed - partly) >= MIN_TYPES
    assert not [job for job, one in RECORDED.items() if one["outcome"] == "differs"]
    generic = {job: one["generic"] for job, one in RECORDED.items()}
    assert sum(outcome == "equal" for outcome in generic.values()) > MIN_GENERIC
    assert {model_type for (model_type, _), outcome in generic.items() if outcome == "differs"} <= OTHER_TABLES


def test_every_family_was_compared() -> None:
    compared = {one["family"] for one in RECORDED.values() if one["outcome"] == "equal"}
    cases = {case.ours or case.model_type for case in CASES}
    flat = {"qwen2_vl", "qwen2_5_vl"}  # the flat spelling of their text types
    elsewhere = {"deepseek_v41", "deepseek_v41_text", "longcat_flash_ngram"}  # tests/checkpoint/test_ngram_tables.py
    assert FAMILIES.keys() <= compared | cases | flat | elsewhere


def test_control_a_wrong_family_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "gemma", FAMILIES["llama"])
    outcome = examine(("gemma", "causal"))
    assert (outcome.outcome, "up to" in outcome.reason) == ("differs", True)
    monkeypatch.setitem(FAMILIES, "llama", FAMILIES["cohere"])
    assert "cos or sin" in examine(("llama", "causal")).reason
    monkeypatch.setitem(FAMILIES, "hyperclovax", FAMILIES["granite"])  # Granite divides logits instead
    assert "logits" in examine(("hyperclovax", "causal")).reason
    monkeypatch.delitem(FAMILIES, "gemma2")
    assert examine(("gemma2", "causal")).outcome == "refused"

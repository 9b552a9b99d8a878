"""The schema is that of the dataclasses, and every kind of trace keeps to it."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
import torch

from inlayer.tokenizers import ByteTokenizer
from inlayer.trace import Change, Pipeline, plain, random_pipeline
from tests.trace.lines import SAMPLES, bytes_line, family, sample
from tests.trace.schema import FILE, schema

WRITTEN = json.loads(FILE.read_text())


def check(value: Any, name: str = "Trace") -> None:
    """Against the file, after a round trip through strict JSON."""
    again = json.loads(json.dumps(plain(value), allow_nan=False))
    jsonschema.Draft202012Validator(WRITTEN | {"$ref": f"#/$defs/{name}"}).validate(again)


def test_the_file_is_made_from_the_dataclasses() -> None:
    assert schema() == WRITTEN, "make docs writes it again"
    jsonschema.Draft202012Validator.check_schema(WRITTEN)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str) -> None:
    line = sample(name)
    for text in ("I love dogs", "", "naïve 🙂 漢字 \0"):
        check(line.walk([text]))
    check(line.token(7), "TokenFacts")
    check(line.birth(), "Birth")
    check(line.facts(), "ModelFacts")


@pytest.mark.parametrize("name", ["bert", "gemma3_text-new", "opt-projected", "gpt2", "kimi_k2", "granite"])
def test_families(name: str) -> None:
    check(family(name).walk(["I love dogs"]))


def test_batches_changes_and_vectors() -> None:
    line = sample("default")
    check(line.walk(["I love dogs", "x"], change=Change(positions="learned", swap=(0, 1), pad=2)))
    check(line.walk(None, inputs_embeds=torch.zeros(1, 2, 128, dtype=torch.bfloat16)))


def test_numbers_json_does_not_have() -> None:
    line = bytes_line("learned")
    with torch.no_grad():
        line.layer.token_embedding.weight[97, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    trace = Pipeline.of_layer(line.tokenizer, line.layer, line.head, source="damaged").walk(["ab"])
    check(trace)
    assert trace.to_dict()["texts"][0]["cells"][0]["row"][:3] == ["nan", "inf", "-inf"]


def test_the_check_can_fail() -> None:
    good = random_pipeline(["a"], ByteTokenizer()).walk(["a"]).to_dict()
    for damage in (
        lambda one: one.update(format=2),
        lambda one: one.update(extra=1),
        lambda one: one.pop("gather"),
        lambda one: one["texts"][0]["cells"][0].update(id="a"),
        lambda one: one["texts"][0]["cells"][0]["row"].append("many"),
    ):
        bad = copy.deepcopy(good)
        damage(bad)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(WRITTEN).validate(bad)

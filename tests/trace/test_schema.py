"""The schema matches the dataclasses, and every kind of trace matches the schema."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
import torch

from inlayer.tokenizers import ByteTokenizer
from inlayer.trace import Change, Pipeline, plain
from inlayer.trace.token_facts import describe_token, initialize
from tests.trace.pipelines import SAMPLES, family, random_bytes, sample  # some are slow tests
from tests.trace.schema import FILE, schema

WRITTEN = json.loads(FILE.read_text())


def check(value: Any, name: str = "Trace") -> None:
    """Validate against the file, after a round trip through strict JSON."""
    again = json.loads(json.dumps(plain(value), allow_nan=False))
    jsonschema.Draft202012Validator(WRITTEN | {"$ref": f"#/$defs/{name}"}).validate(again)


def test_schema_file_matches_the_dataclasses() -> None:
    assert schema() == WRITTEN, "run `make docs` to update it"
    jsonschema.Draft202012Validator.check_schema(WRITTEN)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_traces_match_the_schema(name: str) -> None:
    pipeline = sample(name)
    for text in ("I love dogs", "", "naïve 🙂 漢字 \0"):
        check(pipeline.walk([text]))
    check(describe_token(pipeline, 7), "TokenFacts")
    check(initialize(pipeline), "InitializationFacts")
    check(pipeline.facts(), "ModelFacts")


@pytest.mark.parametrize("name", ["bert", "gemma3_text-new", "opt-projected", "gpt2", "kimi_k2", "granite"])
def test_family_traces_match_the_schema(name: str) -> None:
    check(family(name).walk(["I love dogs"]))


def test_batches_changes_and_vectors_match_the_schema() -> None:
    pipeline = sample("default")
    check(pipeline.walk(["I love dogs", "x"], change=Change(positions="learned", swap=(0, 1), pad=2)))
    check(pipeline.walk(None, inputs_embeds=torch.zeros(1, 2, 128, dtype=torch.bfloat16)))


def test_nan_and_infinity_are_strings() -> None:
    pipeline = random_bytes("learned")
    with torch.no_grad():
        pipeline.layer.token_embedding.weight[97, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    trace = Pipeline.from_layer(pipeline.layer, pipeline.tokenizer, pipeline.head, source="damaged").walk(["ab"])
    check(trace)
    assert trace.to_dict()["texts"][0]["tokens"][0]["row"][:3] == ["nan", "inf", "-inf"]


def test_invalid_traces_are_rejected() -> None:
    good = Pipeline.random(["a"], ByteTokenizer()).walk(["a"]).to_dict()
    for damage in (
        lambda one: one.update(format=1),
        lambda one: one.update(extra=1),
        lambda one: one.pop("gather"),
        lambda one: one["texts"][0]["tokens"][0].update(id="a"),
        lambda one: one["texts"][0]["tokens"][0]["row"].append("many"),
    ):
        bad = copy.deepcopy(good)
        damage(bad)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(WRITTEN).validate(bad)

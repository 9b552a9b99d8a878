"""Pipelines for tests: the samples, every family, and randomly initialized ones."""

from __future__ import annotations

from functools import cache

import pytest
import torch

import inlayer
from inlayer.embeddings import Embeddings
from inlayer.families import describe
from inlayer.tokenizers import ByteTokenizer, WordTokenizer
from inlayer.trace import Pipeline
from tests.families.references import CASES

SAMPLES = ["default", "minilm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("wordllama", "smollm2"))]
# One family per trait: learned, token types and norm, projection, position offset, skipped padding, tied bias, rotary,
# scaled angles, length-dependent angles, scale, layer types, interleaved layout, multiplier.
TRAITS = {
    "gpt2", "bert", "electra", "opt-projected", "roberta", "t5", "llama", "llama-3.1", "llama-dynamic-short", "gemma",
    "gemma3_text-new", "deepseek_v3", "granite",
}  # fmt: skip
FAMILIES = [case.name if case.name in TRAITS else pytest.param(case.name, marks=pytest.mark.slow) for case in CASES]
WORDS = "I love dogs and cats but not the rain in May"


@cache
def sample(name: str) -> Pipeline:
    return Pipeline(inlayer.load(name), name=name)


@cache
def family(name: str, dtype: torch.dtype = torch.float32) -> Pipeline:
    """A randomly initialized layer and head of a family, with a word tokenizer."""
    case = next(case for case in CASES if case.name == name)
    layer = Embeddings.from_config(case.config_json, seed=0, dtype=dtype)
    head = layer.head_from_config(case.config_json)
    for number, part in enumerate(p for p in (*layer.parameters(), head.bias) if p is not None and p.dim() == 1):
        torch.nn.init.normal_(part, generator=torch.Generator().manual_seed(number))
    return Pipeline.from_layer(layer, WordTokenizer.from_text(WORDS), head, source=describe(case.config_json).family)


def random_bytes(positions: str, width: int = 8) -> Pipeline:
    return Pipeline.random(["x" * 40], ByteTokenizer(), positions=positions, width=width)

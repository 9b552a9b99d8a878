"""Rule 1: hidden states are bit-identical to the input of transformers' first block, in all families and dtypes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from inlayer.embeddings import Embeddings
from inlayer.positions import LearnedPositions, RotaryPositions
from tests.families.references import CASES, Case, Reference, reference_config
from tests.families.survey import same_bits

DTYPES = [torch.float32, torch.bfloat16]
PAD = 1


@cache
def reference(name: str, dtype: torch.dtype) -> Reference:
    return Reference(next(case for case in CASES if case.name == name), dtype)


def random_ids(padded: str | None = None) -> tuple[Tensor, Tensor]:
    """Ids (3, 7) padded on one side, and their mask."""
    ids = torch.randint(4, 99, (3, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row, pads in enumerate((0, 2, 5)):
        if padded and pads:
            where = slice(None, pads) if padded == "left" else slice(-pads, None)
            ids[row, where], mask[row, where] = PAD, 0
    return ids, mask


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


# These have no positions in their input layer, and transformers' models of them take no position_ids.
WITHOUT_POSITIONS = {"bloom", "t5", "mt5", "umt5"}


@pytest.mark.filterwarnings("ignore:attention_mask has padding on the left")  # as transformers numbers them
@each(CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_input_ids(case: Case, dtype: torch.dtype) -> None:
    both = reference(case.name, dtype)
    layer = both.ours()
    for padded in (None, "right", "left"):
        ids, mask = random_ids(padded)
        theirs, _ = both.run(input_ids=ids, attention_mask=mask)
        assert same_bits(layer(ids, attention_mask=mask), theirs), padded
        with torch.no_grad():  # the fast lookup gives the same bits
            assert same_bits(layer(ids, attention_mask=mask), theirs), padded
        # control: other ids, other states
        assert not same_bits(layer(ids.flip(1), attention_mask=mask), theirs), padded


@each(CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_embeds(case: Case, dtype: torch.dtype) -> None:
    both = reference(case.name, dtype)
    vectors = torch.randn(3, 7, both.table.embedding_dim, generator=torch.Generator().manual_seed(2)).to(dtype)
    theirs, _ = both.run(inputs_embeds=vectors)
    layer = both.ours()
    assert same_bits(layer(inputs_embeds=vectors), theirs)
    assert not same_bits(layer(inputs_embeds=2 * vectors + 1), theirs)


@each([case for case in CASES if case.model_type not in WITHOUT_POSITIONS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_position_ids(case: Case, dtype: torch.dtype) -> None:
    both = reference(case.name, dtype)
    ids, _ = random_ids()
    position_ids = torch.randint(0, case.longest + 1, ids.shape, generator=torch.Generator().manual_seed(3))
    position_ids[0, 0] = case.longest
    theirs, tables = both.run(input_ids=ids, position_ids=position_ids)
    layer = both.ours()
    assert same_bits(layer(ids, position_ids=position_ids), theirs)
    moved = layer(ids, position_ids=(position_ids + 1) % case.longest)
    assert same_bits(moved, theirs) != isinstance(
        layer.position_embedding, LearnedPositions
    )  # positions matter where added
    assert bool(tables) == isinstance(layer.position_embedding, RotaryPositions)
    for layer_type, (cos, sin) in tables.items():
        ours = layer.rotary(position_ids, layer_type)
        assert same_bits(ours[0], cos)
        assert same_bits(ours[1], sin)
        assert not same_bits(layer.rotary(position_ids + 1, layer_type)[0], cos)


def test_packed_and_left_padded_position_ids_are_used() -> None:
    both = reference("gpt2", torch.float32)
    ids, _ = random_ids("left")
    position_ids = torch.tensor([[0, 1, 2, 0, 1, 2, 3], [0, 0, 0, 1, 2, 3, 4], [0, 0, 0, 0, 0, 0, 1]])
    theirs, _ = both.run(input_ids=ids, position_ids=position_ids)
    assert same_bits(both.ours()(ids, position_ids=position_ids), theirs)


def test_token_types() -> None:
    for name in ("bert", "albert", "electra"):
        both = reference(name, torch.float32)
        ids, _ = random_ids()
        types = torch.tensor([[0, 0, 0, 1, 1, 1, 1]]).expand(3, 7)
        theirs, _ = both.run(input_ids=ids, token_type_ids=types)
        assert same_bits(both.ours()(ids, token_type_ids=types), theirs)
        assert not same_bits(both.ours()(ids), theirs)


@each([case for case in CASES if case.ours is None])  # transformers reads kimi_k2 as deepseek_v3
def test_config_object_and_file_give_the_same_layer(case: Case) -> None:
    both = reference(case.name, torch.float32)
    ids, _ = random_ids()
    from_object, from_file = both.ours(reference_config(case)), both.ours()
    assert same_bits(from_object(ids), from_file(ids))
    if isinstance(from_file.position_embedding, RotaryPositions):
        parameters = from_object.position_embedding.rope_parameters
        for layer_type in parameters if isinstance(parameters, dict) else [None]:
            for mine, other in zip(from_object.rotary(ids, layer_type), from_file.rotary(ids, layer_type), strict=True):
                assert same_bits(mine, other)


def test_nested_gemma3() -> None:
    """The layout of a Gemma-3 file: a sparse text_config, with defaults for everything else."""
    from transformers import Gemma3Config

    raw = {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 64,
            "vocab_size": 99,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
    }
    ours = Embeddings.from_config(raw, device="meta")
    theirs = Embeddings.from_config(Gemma3Config.from_dict(raw), device="meta")
    assert ours.position_embedding.rope_parameters == theirs.position_embedding.rope_parameters
    assert ours.position_embedding.head_dim == theirs.position_embedding.head_dim == 256
    assert (ours.vocab_size, ours.scale) == (theirs.vocab_size, theirs.scale) == (99, 8.0)

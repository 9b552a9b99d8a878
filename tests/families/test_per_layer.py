"""Per-layer embeddings and `ids_of`, compared with Gemma-3n and Gemma-4 of transformers where factors are rounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import inlayer
from inlayer.embeddings import Embeddings
from inlayer.errors import CheckpointError, ConfigError, DtypeError, InputError
from tests.families.capture import capture
from tests.families.survey import DTYPES, open_reference, same_bits
from tests.families.tiny import VOCAB, build, tiny_config

TYPES = ("gemma3n_text", "gemma4_text")
# Neither square root fits into bfloat16, and the second table is shorter than the first.
SIZES = {"hidden_size": 40, "hidden_size_per_layer_input": 24, "vocab_size_per_layer_input": VOCAB - 20}


def models(model_type: str, folder: Path, dtype: torch.dtype) -> tuple[Any, Embeddings]:
    torch.manual_seed(1)
    model = build("causal", tiny_config(model_type, **SIZES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(folder)
    return open_reference(type(model), str(folder), dtype), inlayer.load(folder, dtype=dtype).embeddings


def ids(limit: int = VOCAB - 20) -> Tensor:
    return torch.randint(4, limit, (3, 7), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("model_type", TYPES)
def test_equal_to_transformers(model_type: str, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, layer = models(model_type, tmp_path, dtype)
    plain, padded = ids(), ids()
    padded[1:, :3] = 0
    inside = VOCAB if model_type == "gemma3n_text" else VOCAB - 20  # Gemma-3n has ids without a row in this table
    for given in (plain, padded, ids(inside)):
        ours, reference = layer.per_layer(given), capture(theirs, input_ids=given).per_layer
        assert reference is not None
        assert same_bits(ours, reference)
        assert not same_bits(layer.per_layer(given.roll(1, 1)), reference)
    # ids and other vectors: what transformers does with images
    vectors = torch.randn(3, 7, 40, generator=torch.Generator().manual_seed(3)).to(dtype)
    text_model = theirs.model
    reference = text_model.project_per_layer_inputs(
        vectors, text_model.embed_tokens_per_layer(plain).unflatten(-1, (4, 24))
    )
    assert same_bits(layer.per_layer(plain, vectors), reference)
    assert same_bits(layer.per_layer(plain[0]), layer.per_layer(plain)[0])  # one text


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors_alone(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, layer = models("gemma4_text", tmp_path, dtype)
    rows = theirs.get_input_embeddings()(ids()).detach()
    assert torch.equal(layer.ids_of(rows), ids())
    assert same_bits(layer.per_layer(inputs_embeds=rows), layer.per_layer(ids()))
    if dtype == torch.float32:
        reference = capture(theirs, inputs_embeds=rows).per_layer
        assert reference is not None
        assert same_bits(layer.per_layer(inputs_embeds=rows), reference)
    else:  # its search multiplies by another factor than its lookup
        with pytest.raises(RuntimeError, match="do not exactly match"):
            capture(theirs, inputs_embeds=rows)
    changed = rows.clone()
    changed[1, 4, 5] = torch.nextafter(changed[1, 4, 5], torch.zeros((), dtype=dtype))
    with pytest.raises(InputError, match=r"the vector at \(1, 4\) is not a row of the table"):
        layer.per_layer(inputs_embeds=changed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gemma3n_projects_vectors_alone(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs, layer = models("gemma3n_text", tmp_path, dtype)
    vectors = torch.randn(3, 7, 40, generator=torch.Generator().manual_seed(3)).to(dtype)
    reference = capture(theirs, inputs_embeds=vectors).per_layer
    assert reference is not None
    assert same_bits(layer.per_layer(inputs_embeds=vectors), reference)
    with pytest.raises(DtypeError, match="convert them"):
        layer.per_layer(inputs_embeds=vectors.half())


def test_control_the_other_rounding_differs(tmp_path: Path) -> None:
    theirs, layer = models("gemma4_text", tmp_path, torch.bfloat16)
    reference = capture(theirs, input_ids=ids()).per_layer
    assert layer.per_layer_embedding is not None
    assert reference is not None
    layer.per_layer_embedding.round_factors = True
    assert not same_bits(layer.per_layer(ids()), reference)


def test_trainable_rows_get_gradients_and_padding_does_not(tmp_path: Path) -> None:
    models("gemma4_text", tmp_path, torch.float32)
    layer = inlayer.load(tmp_path, trainable=True).embeddings
    assert layer.per_layer_embedding is not None
    layer.per_layer(torch.tensor([[0, 5, 6]])).sum().backward()
    gradient = layer.per_layer_embedding.table.weight.grad
    assert gradient is not None
    assert gradient.abs().sum(1).nonzero().flatten().tolist() == [5, 6]
    before = layer.per_layer(ids())
    layer.resize(VOCAB + 5)
    assert layer.per_layer_embedding.table.weight.shape == (VOCAB + 5, 96)
    assert same_bits(layer.per_layer(ids()), before)


def test_invalid_configs_and_files(tmp_path: Path) -> None:
    config = {"model_type": "gemma4_text", "vocab_size": 64, "hidden_size": 32}
    with pytest.raises(ConfigError, match=r"a table of 262,144 x 549,755,813,632 values"):
        inlayer.describe(config | {"num_hidden_layers": 2**31 - 1})
    with pytest.raises(ConfigError, match=r"pad_token_id 9 is outside its per-layer table of 5 rows"):
        inlayer.describe(config | {"vocab_size_per_layer_input": 5, "pad_token_id": 9})
    assert inlayer.describe(config | {"hidden_size_per_layer_input": 0}).per_layer is None
    plain = Embeddings(8, 4)
    with pytest.raises(InputError, match="no per-layer embeddings"):
        plain.per_layer(torch.tensor([1]))
    models("gemma4_text", tmp_path, torch.float32)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace(f'input": {VOCAB - 20}', f'input": {VOCAB}'))
    with pytest.raises(CheckpointError, match=r"embed_tokens_per_layer.weight' .* \(79, 96\); its config"):
        _ = inlayer.load(tmp_path).embeddings

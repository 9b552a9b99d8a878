"""load(source, trainable=True): rows in memory that can be trained and resized."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import inlayer
from inlayer.errors import InputError


def save(folder: Path, **changes: Any) -> Path:
    config = transformers.GPT2Config(vocab_size=40, n_embd=8, n_positions=6, n_layer=1, n_head=2, **changes)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_trainable_layer_trains_and_resizes(tmp_path: Path, tied: bool) -> None:
    source = save(tmp_path / "model", tie_word_embeddings=tied)
    frozen, model = inlayer.load(source), inlayer.load(source, trainable=True)
    layer, head = model.embeddings, model.head
    assert layer.training
    assert head.tied == tied
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(layer.eval()(ids), frozen.embeddings(ids))
    assert torch.equal(head(layer(ids)), frozen.head(frozen.embeddings(ids)))
    before = frozen.table.rows([1])
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)
    head.loss(layer(ids), ids.roll(-1)).backward()
    optimizer.step()
    assert not torch.equal(layer.token_embedding.weight[1], torch.from_numpy(before[0]))
    assert (inlayer.load(source).table.rows([1]) == before).all()  # the file is unchanged
    assert layer.resize(44) == 44
    assert (head.vocab_size == 44) == tied
    assert pickle.loads(pickle.dumps(model)).trainable


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_trainable_is_true_or_false(value: Any) -> None:
    with pytest.raises(InputError, match=f"trainable is {value!r}; it must be True or False"):
        inlayer.load("default", trainable=value)


def test_error_of_resize_names_the_alternative() -> None:
    with pytest.raises(InputError, match=r"load\(source, trainable=True\) reads a checkpoint's rows into one"):
        inlayer.load("default").embeddings.resize(9000)
    with pytest.raises(RuntimeError, match="does not require grad"):  # control: without trainable, nothing is trained
        inlayer.load("default").embeddings(torch.tensor([[1]])).sum().backward()

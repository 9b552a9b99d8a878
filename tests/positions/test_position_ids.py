"""Position ids: the rules of GPT-2, RoBERTa and OPT on written-out cases."""

from __future__ import annotations

import pytest
import torch

from inlayer import Embeddings
from inlayer.errors import ConfigError, ShapeError
from inlayer.positions import PositionIdRule, make_position_ids

CPU = torch.device("cpu")
IDS = torch.tensor([[5, 6, 7, 1, 1], [1, 1, 5, 6, 7], [5, 1, 6, 1, 7]])  # 1 is padding
MASK = IDS.ne(1).long()


@pytest.mark.filterwarnings("ignore:attention_mask has padding on the left")
def test_order_counts_every_token() -> None:
    ours = make_position_ids(PositionIdRule(), (3, 5), CPU, IDS, MASK)
    assert ours.expand(3, 5).tolist() == [[0, 1, 2, 3, 4]] * 3


def test_roberta_counts_real_tokens_after_the_padding_id() -> None:
    ours = make_position_ids(PositionIdRule(by="ids", start=2, padding_idx=1), (3, 5), CPU, IDS, None)
    assert ours.tolist() == [[2, 3, 4, 1, 1], [1, 1, 2, 3, 4], [2, 1, 3, 1, 4]]


@pytest.mark.filterwarnings("ignore:attention_mask has padding on the left")
def test_roberta_numbers_inputs_embeds_in_order() -> None:
    """Padding cannot be recognized in vectors."""
    ours = make_position_ids(PositionIdRule(by="ids", start=2, padding_idx=1), (3, 5), CPU, None, MASK)
    assert ours.tolist() == [[2, 3, 4, 5, 6]]


def test_opt_counts_the_mask() -> None:
    ours = make_position_ids(PositionIdRule(by="mask"), (3, 5), CPU, IDS, MASK)
    assert ours.tolist() == [[0, 1, 2, -1, -1], [-1, -1, 0, 1, 2], [0, -1, 1, -1, 2]]
    assert torch.equal(make_position_ids(PositionIdRule(by="mask"), (3, 5), CPU, IDS, MASK.bool()), ours)
    assert make_position_ids(PositionIdRule(by="mask"), (3, 5), CPU, IDS, None).tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_small_integer_ids_do_not_overflow(dtype: torch.dtype) -> None:
    ids = torch.full((1, 300), 5, dtype=dtype)
    assert make_position_ids(PositionIdRule(by="ids", start=2, padding_idx=1), (1, 300), CPU, ids, None)[0, -1] == 301


def test_texts_of_padding_only() -> None:
    ours = make_position_ids(
        PositionIdRule(by="ids", start=2, padding_idx=1), (1, 3), CPU, torch.ones(1, 3, dtype=torch.int64), None
    )
    assert ours.tolist() == [[1, 1, 1]]


def test_layer_uses_the_rule() -> None:
    layer = Embeddings(
        9, 4, 8, position_id_rule=PositionIdRule(by="ids", start=2, padding_idx=1), padding_idx=1, seed=0
    )
    theirs = (
        layer.token_embedding.weight[IDS]
        + layer.position_embedding.weight[torch.tensor([[2, 3, 4, 1, 1], [1, 1, 2, 3, 4], [2, 1, 3, 1, 4]])]
    )
    assert torch.equal(layer(IDS), theirs)
    assert not torch.equal(layer(IDS, position_ids=torch.arange(5)), theirs)
    assert not layer(IDS)[0, 3].any()  # the padding row and its position's row are both zero


def test_layer_passes_the_mask_to_the_rule() -> None:
    layer = Embeddings(9, 4, 8, position_id_rule=PositionIdRule(by="mask"), position_offset=2, seed=0)
    theirs = layer.token_embedding.weight[IDS[1]] + layer.position_embedding.weight[[1, 1, 2, 3, 4]]
    assert torch.equal(layer(IDS, attention_mask=MASK)[1], theirs)
    assert torch.equal(layer(IDS[1], attention_mask=MASK[1]), theirs)  # one text, one mask
    with pytest.raises(ShapeError, match=r"attention_mask has shape \(3, 4\); expected \(3, 5\)"):
        layer(IDS, attention_mask=MASK[:, :4])


def test_rule_by_ids_needs_padding_idx() -> None:
    with pytest.raises(ConfigError, match="need padding_idx"):
        PositionIdRule(by="ids")

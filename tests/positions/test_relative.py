"""ALiBi slopes and relative buckets are bit-identical to transformers'."""

from __future__ import annotations

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as build_falcon_alibi
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from inlayer.errors import InputError
from inlayer.positions import position_ids_from_mask
from inlayer.positions.relative import alibi_bias, alibi_slopes, deberta_buckets, t5_buckets

HEADS = [1, 2, 3, 4, 7, 8, 12, 16, 20, 71, 112]
DISTANCES = torch.arange(-3000, 3001)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bloom_and_falcon(heads: int, dtype: torch.dtype) -> None:
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    positions = position_ids_from_mask(mask) * mask
    theirs = build_alibi_tensor(mask, heads, dtype).view(2, heads, 1, 5)
    assert torch.equal(alibi_bias(alibi_slopes(heads), positions).to(dtype), theirs)
    falcon = build_falcon_alibi(mask, heads, dtype).view(2, heads, 1, 5)
    assert torch.equal(alibi_bias(alibi_slopes(heads).bfloat16(), positions).to(dtype), falcon)
    assert not torch.equal(alibi_bias(alibi_slopes(heads), positions + 1).to(dtype), theirs)  # control


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("bias_max", [8.0, 6.0])
def test_alibi_of_mpt_equals_transformers(heads: int, bias_max: float) -> None:
    theirs = build_mpt_alibi_tensor(heads, 9, alibi_bias_max=bias_max)
    assert torch.equal(alibi_bias(alibi_slopes(heads, bias_max=bias_max), torch.arange(-8, 1)[None])[0], theirs)
    assert not torch.equal(alibi_slopes(heads, bias_max=bias_max), alibi_slopes(heads, bias_max=bias_max + 1))


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (16, 100), (64, 1000)])
def test_buckets_of_t5_equal_transformers(buckets: int, longest: int) -> None:
    ours = t5_buckets(DISTANCES, buckets=buckets, max_distance=longest)
    theirs = T5Attention._relative_position_bucket(DISTANCES, True, buckets, longest)
    assert torch.equal(ours, theirs)
    assert ours.min() == 0
    assert ours.max() == buckets - 1
    other = t5_buckets(DISTANCES, buckets=buckets, max_distance=2 * longest)
    assert not torch.equal(other, theirs)


@pytest.mark.parametrize(("buckets", "longest"), [(256, 512), (32, 128)])
def test_deberta(buckets: int, longest: int) -> None:
    theirs = make_log_bucket_position(DISTANCES, buckets, longest).long()
    assert torch.equal(deberta_buckets(DISTANCES, buckets=buckets, max_position=longest), theirs)
    assert not torch.equal(deberta_buckets(DISTANCES, buckets=buckets, max_position=longest + 1), theirs)


def test_wrong_settings_are_errors() -> None:
    for heads in (0, -1, 2**20):
        with pytest.raises(InputError, match="heads is"):
            alibi_slopes(heads)
    for buckets, longest in ((2, 128), (32, 16), (32, 0)):
        with pytest.raises(InputError, match="buckets up to distance"):
            t5_buckets(DISTANCES, buckets=buckets, max_distance=longest)
        with pytest.raises(InputError, match="buckets up to distance"):
            deberta_buckets(DISTANCES, buckets=buckets, max_position=longest)

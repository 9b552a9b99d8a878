"""Relative positions: a bias on attention scores that depends on the distance between two tokens.

text -> ids -> rows -> [positions] -> hidden states -> head
- relative positions add nothing to the rows: attention adds the bias to its scores
- ALiBi: a slope per head times the position of the key (BLOOM, Falcon, MPT)
- buckets (T5, DeBERTa-v2): each small distance has its own learned row; large ones share rows in log-spaced buckets
- `Embeddings.relative` has a model's settings; the learned rows stay in the file, and a walk shows them
Tested against transformers, bit by bit, in tests/positions/test_relative.py.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from inlayer.errors import InputError
from inlayer.families.spec import MAX_ALIBI_HEADS, AlibiSpec, RelativeBucketSpec
from inlayer.tensors import check_ids


def alibi_slopes(heads: int, *, bias_max: float | None = None) -> Float[Tensor, " H"]:
    """Compute the slope of every head: a geometric sequence, with extra slopes if `heads` is not a power of two.

    `bias_max` is MPT's `alibi_bias_max` (MPT orders its slopes differently); None for BLOOM and Falcon.

    Example:
        >>> alibi_slopes(4)
        tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    if not isinstance(heads, int) or not 1 <= heads <= MAX_ALIBI_HEADS:
        raise InputError(f"heads is {heads!r}; it must be an integer in 1..{MAX_ALIBI_HEADS:,}")
    if bias_max is not None:
        power = 2 ** math.ceil(math.log2(heads))
        slopes = 1.0 / torch.pow(2, torch.arange(1, power + 1).float() * (bias_max / power))
        return slopes if power == heads else torch.cat((slopes[1::2], slopes[::2]))[:heads]
    power = 2 ** math.floor(math.log2(heads))
    slopes = _powers(power, torch.arange(1, power + 1, dtype=torch.int32))
    extra = _powers(2 * power, torch.arange(1, 1 + 2 * (heads - power), 2, dtype=torch.int32))
    return torch.cat((slopes, extra))


def _powers(heads: int, exponents: Tensor) -> Tensor:
    base = torch.full((), 2 ** (-(2 ** -(math.log2(heads) - 3))), dtype=torch.float32)
    return torch.pow(base, exponents)


def alibi_bias(slopes: Float[Tensor, " H"], position_ids: Int[Tensor, "B T"]) -> Float[Tensor, "B H 1 T"]:
    """Compute what attention adds to the scores of each key: slope times position. Only differences matter."""
    return slopes[:, None, None] * check_ids(position_ids, "position_ids")[:, None, None]


def alibi_from_spec(
    spec: AlibiSpec, position_ids: Int[Tensor, "B T"], dtype: torch.dtype
) -> tuple[Float[Tensor, " H"], Float[Tensor, "B H 1 T"]]:
    """Return the slopes of a model, and the bias of each key, in the dtypes of the original model.

    `spec` is `Embeddings.relative`, and `dtype` is the dtype of the hidden states. MPT's bias is always float32, and
    its positions are relative to the last token.

    Example:
        >>> slopes, bias = alibi_from_spec(AlibiSpec(heads=2), torch.arange(3)[None], torch.float32)
        >>> slopes.tolist(), bias[0, 0, 0].tolist()
        ([0.0625, 0.00390625], [0.0, 0.0625, 0.125])
    """
    slopes = alibi_slopes(spec.heads, bias_max=spec.bias_max)
    slopes = slopes.bfloat16() if spec.bfloat16_slopes else slopes
    bias = alibi_bias(slopes, position_ids)
    return slopes, bias if spec.bias_max is not None else bias.to(dtype)


def relative_rows(spec: RelativeBucketSpec, distances: Tensor) -> Int[Tensor, "..."]:
    """Return the row of a model's learned table for each distance, key position - query position.

    Example:
        >>> t5 = RelativeBucketSpec(kind="t5", buckets=32, max_distance=128)
        >>> relative_rows(t5, torch.tensor([-1, 0, 1])).tolist()
        [1, 0, 17]
        >>> deberta = RelativeBucketSpec(kind="deberta", buckets=None, max_distance=4)
        >>> relative_rows(deberta, torch.tensor([-9, 0, 1])).tolist()
        [7, 4, 3]
    """
    if spec.kind == "t5":
        return t5_buckets(distances, buckets=spec.rows, max_distance=spec.max_distance)
    rows = -check_ids(distances, "distances").long()
    if spec.buckets is not None:
        rows = deberta_buckets(rows, buckets=spec.buckets, max_position=spec.max_distance)
    return (rows + spec.rows // 2).clamp(0, spec.rows - 1)


def t5_buckets(distances: Tensor, *, buckets: int, max_distance: int) -> Int[Tensor, "..."]:
    """Return the row of a T5 encoder's bias table for each distance, key position - query position.

    Example:
        >>> t5_buckets(torch.tensor([0, 1, 7, 8, 30, 500, -1, -500]), buckets=32, max_distance=128).tolist()
        [0, 17, 23, 24, 27, 31, 1, 15]
    """
    _check_buckets(buckets, max_distance)
    distances = check_ids(distances, "distances").long()
    after, distances = distances > 0, distances.abs()
    half, exact = buckets // 2, buckets // 4
    steps = torch.log(distances.float() / exact) / math.log(max_distance / exact) * (half - exact)
    far = (exact + steps.long()).clamp(max=half - 1)
    return after.long() * half + torch.where(distances < exact, distances, far)


def deberta_buckets(distances: Tensor, *, buckets: int, max_position: int) -> Int[Tensor, "..."]:
    """Return DeBERTa-v2's signed bucket for each distance, query position - key position; short distances are kept."""
    _check_buckets(buckets, max_position)
    distances = check_ids(distances, "distances").long()
    middle = buckets // 2
    near = (distances < middle) & (distances > -middle)
    size = torch.where(near, middle - 1, distances.abs())
    step = torch.log(size / middle) / torch.log(torch.tensor((max_position - 1) / middle)) * (middle - 1)
    far = (torch.ceil(step) + middle) * torch.sign(distances)
    return torch.where(size <= middle, distances.to(far.dtype), far).long()


def _check_buckets(buckets: int, longest: int) -> None:
    if buckets < 4 or longest <= buckets // 2 + 1:
        raise InputError(
            f"{buckets} buckets up to distance {longest}; use at least 4 buckets and a maximum distance of more than "
            "half the number of buckets"
        )

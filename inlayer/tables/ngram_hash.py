"""N-gram memories: the last few token ids -> rows of a large hashed table. Numpy only.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- an `NgramSpec` describes any variant: qwen4_exp and DeepSeek's Engram mix products with xor and have prime-sized
  hash heads; LongCat-Flash and BLT add the products
- hashing is in int64 with two's complement wrap-around, as in the original models. Numpy's remainder is never negative
- a look-back ends at the start of the text, at padding, and at the ids in `stop_ids`. `fill_id` replaces older ids
- see also: the spec of each config (families/ngram_configs.py), finding the tensors (checkpoint/find_tables.py)
Tested against plain loops over Python integers, transformers, and sglang in tests/tables/test_ngram_hash.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from inlayer.checks import as_int64, check_id_array
from inlayer.errors import ConfigError, InputError, ShapeError
from inlayer.formats.tensor_info import TensorInfo
from inlayer.shapes import Ids, Mask
from inlayer.tables.stored_table import StoredTable

PRIME_LIMIT = 3_215_031_751  # the Miller-Rabin test with bases 2, 3, 5, and 7 is exact below this number


@dataclass(frozen=True, kw_only=True)
class NgramSpec:
    """Determines which rows of a table a token reads, from the n-grams that end at it.

    A hash head reads the last `order` ids: each is multiplied by the multiplier of its distance, the products are
    mixed, and the remainder by its modulus is the row, counted from the first row of that hash head.

    Example:
        >>> spec = NgramSpec(tensor_suffix="ngram", layer=None, vocab_size=10, width=4, orders=(2, 3), moduli=(5, 7),
        ...                  multipliers=((1, 3), (1, 3, 9)), mix="sum", fill_id=0, rows=12)
        >>> ngram_ids(spec, [[4, 2, 6]])[0].tolist()
        [[4, 9], [4, 5], [2, 11]]
    """

    tensor_suffix: str  # end of the tensor's name, without ".weight" and any shard number
    layer: int | None  # the decoder layer that reads it; None: the rows are part of the hidden states
    vocab_size: int
    width: int  # width of a row
    rows: int  # rows of the table, which may be padded to more than the hash heads use
    orders: tuple[int, ...]  # how many ids each hash head reads
    multipliers: tuple[tuple[int, ...], ...]  # for each hash head: the factors for the id, the id before it, ...
    moduli: tuple[int, ...]  # number of rows of each hash head
    mix: Literal["xor", "sum"]
    fill_id: int  # replaces the ids before the start
    stop_ids: tuple[int, ...] = ()  # ids that end a look-back
    # a stop id may be the newest id of an n-gram; if False, all ids of such an n-gram are `fill_id`
    stop_ids_are_hashed: bool = True
    padding_stops: bool = True  # padding is treated as outside the text
    compressed_vocab_size: int | None = None  # ids with the same normalized text are first merged into this many ids
    added: Literal["no", "sum", "projected_mean"] = "no"  # how rows become part of the hidden states
    tensor_per_head: bool = False

    @property
    def n_hash_heads(self) -> int:
        """The number of rows that each token reads."""
        return len(self.orders)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each hash head."""
        return tuple(accumulate(self.moduli, initial=0))[:-1]

    @property
    def look_back(self) -> int:
        """How many earlier ids affect a token's rows."""
        return max(self.orders) - 1


def ngram_ids(
    spec: NgramSpec, ids: object, history: object = None, *, mask: object = None, token_map: Ids | None = None
) -> Ids:
    """Return the rows (B, T, heads) that each of the ids (B, T) reads.

    Args:
        spec: The memory.
        ids: Token ids (B, T).
        history: The ids (B, S) before them; only the last `spec.look_back` matter.
        mask: (B, S + T), 0 for padding.
        token_map: The compressed id of each token, for a spec with `compressed_vocab_size`.

    Raises:
        IdRangeError: If an id is outside the vocabulary.
        ShapeError: If the shapes of ids, history, and mask are inconsistent.
    """
    limit = spec.vocab_size if token_map is None else len(token_map)
    tokens, inside, start = _with_history(spec, check_id_array(ids, limit), history, mask, limit)
    if spec.compressed_vocab_size is not None and token_map is None:
        name = spec.tensor_suffix
        raise InputError(f"the n-gram memory {name} hashes compressed ids, which need the model's tokenizer")
    stops = np.isin(tokens, spec.stop_ids)
    context = _lookback_context(spec, tokens if token_map is None else token_map[tokens], inside, stops, token_map)
    combine = np.bitwise_xor if spec.mix == "xor" else np.add
    mixed: dict[tuple[int, ...], Ids] = {}  # hash heads may share their multipliers
    row_ids = np.empty((*tokens.shape, spec.n_hash_heads), np.int64)
    for head, (order, modulus, offset) in enumerate(zip(spec.orders, spec.moduli, spec.offsets, strict=True)):
        factors = spec.multipliers[head][:order]
        if factors not in mixed:
            mixed[factors] = reduce(
                combine, (ids * np.int64(factor) for ids, factor in zip(context, factors, strict=False))
            )
        row_ids[..., head] = mixed[factors] % modulus + offset
    return row_ids[:, start:]


def _with_history(spec: NgramSpec, ids: Ids, history: object, mask: object, limit: int) -> tuple[Ids, Mask, int]:
    """Return the ids with the relevant part of the history, which of them are not padding, and where the ids start."""
    if ids.ndim != 2:
        raise ShapeError(f"input_ids has shape {ids.shape}; expected (batch, tokens)")
    before = np.empty((len(ids), 0), np.int64) if history is None else check_id_array(history, limit)
    if before.ndim != 2 or len(before) != len(ids):
        raise ShapeError(f"history has shape {before.shape}; expected ({len(ids)}, tokens before input_ids)")
    tokens = np.concatenate([before, ids], axis=1)
    inside = np.ones(tokens.shape, np.bool_)
    if mask is not None:
        inside = np.atleast_2d(as_int64(mask, "attention_mask") != 0)  # the mask of a single text may have one axis
        if inside.shape != tokens.shape:
            raise ShapeError(f"attention_mask has shape {inside.shape}; expected {tokens.shape}, history included")
        inside |= not spec.padding_stops
    start = min(before.shape[1], spec.look_back)
    unused = before.shape[1] - start
    return tokens[:, unused:], inside[:, unused:], start


def _lookback_context(spec: NgramSpec, tokens: Ids, inside: Mask, stops: Mask, token_map: Ids | None) -> list[Ids]:
    """Return, for each distance, the id that many positions earlier; `fill_id` where the look-back has ended."""
    fill = spec.fill_id if token_map is None else token_map[spec.fill_id]
    continues = inside & ~stops
    context = [np.where(inside if spec.stop_ids_are_hashed else continues, tokens, fill)]
    reached = np.ones_like(inside) if spec.stop_ids_are_hashed else continues
    for distance in range(1, spec.look_back + 1):
        reached, older = reached.copy(), np.full_like(tokens, fill)
        reached[:, :distance] = False
        reached[:, distance:] &= continues[:, :-distance]
        older[:, distance:] = tokens[:, :-distance]
        context.append(np.where(reached, older, fill))
    return context


def primes_from(start: int, count: int) -> tuple[int, ...]:
    """Return the first `count` primes that are not below `start`.

    >>> primes_from(10, 4)
    (11, 13, 17, 19)
    """
    primes: list[int] = []
    candidate = start
    while len(primes) < count:
        if candidate >= PRIME_LIMIT:
            raise ConfigError(f"heads with {start:,} or more rows are not supported; the limit is {PRIME_LIMIT:,}")
        if _is_prime(candidate):
            primes.append(candidate)
        candidate += 1
    return tuple(primes)


def _is_prime(number: int) -> bool:
    """Return whether a number is prime, by the Miller-Rabin test, which is exact below PRIME_LIMIT."""
    if number < 2 or any(number % prime == 0 for prime in (2, 3, 5, 7)):
        return number in (2, 3, 5, 7)
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    for base in (2, 3, 5, 7):
        power = pow(base, (number - 1) >> twos, number)
        if power == 1:
            continue
        if all(pow(power, 1 << step, number) != number - 1 for step in range(twos)):
            return False
    return True


class NgramMemory:
    """A spec with the rows of a checkpoint, and where the rows are stored.

    Attributes:
        spec: How n-grams are hashed.
        table: The rows.
        tensors: The tensors of the rows: one, or the shards in order.
    """

    def __init__(
        self,
        spec: NgramSpec,
        table: StoredTable,
        tensors: tuple[TensorInfo, ...] = (),
        compress: Callable[[], Ids] | None = None,
    ) -> None:
        self.spec, self.table, self.tensors, self._compress = spec, table, tensors, compress

    @cached_property
    def token_map(self) -> Ids | None:
        """The compressed id of each token, if the spec hashes such ids."""
        return None if self._compress is None else self._compress()

    def row_ids(self, ids: object, history: object = None, mask: object = None) -> Ids:
        """Return the rows (B, T, heads) that each id reads, as `ngram_ids`."""
        return ngram_ids(self.spec, ids, history, mask=mask, token_map=self.token_map)

    def locate(self, row: int) -> tuple[TensorInfo, int]:
        """Return the tensor that contains a row, and the row's first byte in its file."""
        first = 0
        for tensor in self.tensors:
            if 0 <= row - first < tensor.shape[0]:
                return tensor, tensor.offset + (row - first) * (tensor.nbytes // tensor.shape[0])
            first += tensor.shape[0]
        raise InputError(f"row {row} is outside the {first:,} rows of the n-gram memory {self.spec.tensor_suffix}")

    def __deepcopy__(self, memo: dict[int, Any]) -> NgramMemory:
        return self  # a memory is immutable

"""The n-gram memories that a config describes.

config.json -> [NgramSpec] -> Embeddings.ngram_ids
- qwen4_exp: multipliers from splitmix64, consecutive primes as the sizes of hash heads, look-back up to end-of-text
- DeepSeek-V4.1 (Engram): multipliers from numpy's generator, seeded by the layer, on compressed token ids
- LongCat-Flash: powers of the vocabulary size, look-back up to end-of-text; BLT: powers of large primes
- every count is checked before anything is derived from it
Tested with malicious configs in tests/checkpoint/test_ngram_tables.py; hashes in tests/tables/test_ngram_hash.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from inlayer.errors import ConfigError
from inlayer.families.config_reader import MAX_FIELD_SIZE, ConfigReader, invalid_error, short_repr
from inlayer.tables.ngram_hash import NgramSpec, primes_from

MAX_HEADS = 1024  # total for all memories of a model; DeepSeek-V4.1 has 48
MAX_ORDER = 64  # ids per n-gram; BLT has up to 8
MAX_ROWS = 2**40
MASK64 = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # the increment of splitmix64
LAYER_PRIME = 10007  # its product with the layer is the seed of the layer's multipliers
# The bases of BLT's polynomial hashes, in order; a model with more functions reuses them.
BLT_BASES = (
    1000000007, 5915587277, 1500450271, 3267000013, 5754853343, 4093082899, 9576890767, 3628273133, 2860486313,
    5463458053, 3367900313,
)  # fmt: skip


def read_ngrams(kind: str | None, config: ConfigReader, vocab_size: int, n_embd: int) -> tuple[NgramSpec, ...]:
    """Return a family's n-gram memories, which are of this kind; () if the config does not switch them on."""
    readers = {"qwen4": _qwen4, "engram": _engram, "longcat": _longcat, "blt": _blt}
    return () if kind is None else tuple(readers[kind](config, vocab_size, n_embd))


def splitmix64(value: int) -> int:
    """Return the output of the splitmix64 generator for a state.

    >>> hex(splitmix64(0))
    '0xe220a8397b1dcdaf'
    """
    value = (value + GOLDEN_GAMMA) & MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


def _qwen4(config: ConfigReader, vocab_size: int, n_embd: int) -> Iterator[NgramSpec]:
    layers = sorted(set(_integers(config, "ple_layer_ids")))
    if not layers:
        return
    if layers[0] < 1:
        raise invalid_error("ple_layer_ids", layers, "layers numbered from 1")
    orders = _orders(config, ["ngram_size"], ["heads_per_ngram"], len(layers))
    heads = len(orders)
    width = _width_per_head(config.optional_size("ple_embed_dim") or n_embd, heads, "ple_embed_dim")
    multiple, (_, seed) = config.size("make_ngram_vocab_size_divisible_by"), config.get("seed")
    if type(seed) is not int:
        raise invalid_error("seed", seed, "an integer")
    stop = _first_index(config, vocab_size)
    primes = _primes(config, "ngram_vocab_size_base", heads, len(layers))
    for index, (layer, moduli) in enumerate(zip(layers, primes, strict=True)):
        states = (seed + LAYER_PRIME * index + GOLDEN_GAMMA * (distance + 1) for distance in range(orders[-1]))
        drawn = [splitmix64(state & MASK64) % _bound(vocab_size) for state in states]
        yield NgramSpec(
            tensor_suffix=f"layers.{layer - 1}.ple.ple_embedding.ngram_embedding", layer=layer - 1,
            vocab_size=vocab_size, width=width, rows=-(-sum(moduli) // multiple) * multiple, orders=orders,
            moduli=moduli, multipliers=_odd(drawn, heads), mix="xor", fill_id=stop, stop_ids=(stop,),
        )  # fmt: skip


def _engram(config: ConfigReader, vocab_size: int, _: int) -> Iterator[NgramSpec]:
    layers = _integers(config, "engram_layer_ids")
    if not layers:
        return
    orders = _orders(config, ["engram_max_ngram_size"], ["engram_n_heads"], len(layers))
    heads = len(orders)
    sizes, compressed = _integers(config, "engram_num_embeddings"), config.size("engram_compressed_vocab_size")
    if len(sizes) != len(layers):
        raise ConfigError(f"the config has {len(layers)} engram_layer_ids but {len(sizes)} engram_num_embeddings")
    primes = _primes(config, "engram_vocab_size", heads, len(layers))
    pad = _check_inside(config.size("engram_pad_token_id", minimum=0), vocab_size, "engram_pad_token_id")
    image = config.index("image_token_id") if _has_vision(config) else None
    stop_ids, width = () if image is None else (image,), config.size("engram_head_dim")
    for layer, rows, moduli in zip(layers, sizes, primes, strict=True):
        if sum(moduli) != rows:
            needed = f"its {heads} prime-sized hash heads have {sum(moduli):,}"
            raise ConfigError(f"the config's engram_num_embeddings has {rows:,} rows for layer {layer}, but {needed}")
        drawn = np.random.default_rng(LAYER_PRIME * layer).integers(0, _bound(compressed), orders[-1], np.int64)
        yield NgramSpec(
            tensor_suffix=f"layers.{layer}.engram.embed", layer=layer, vocab_size=vocab_size, width=width,
            rows=rows, orders=orders, moduli=moduli, multipliers=_odd(drawn.tolist(), heads), mix="xor",
            fill_id=pad, stop_ids=stop_ids, stop_ids_are_hashed=False, compressed_vocab_size=compressed,
        )  # fmt: skip


def _longcat(config: ConfigReader, vocab_size: int, n_embd: int) -> Iterator[NgramSpec]:
    ratio = config.optional_number("ngram_vocab_size_ratio", "oe_vocab_size_ratio")
    if ratio is None:
        return
    orders = _orders(config, ["emb_neighbor_num", "oe_neighbor_num"], ["emb_split_num", "oe_split_num"])
    largest, rows = orders[-1], ratio * vocab_size
    if not 1 <= rows <= MAX_FIELD_SIZE:
        raise ConfigError(f"the config's ngram_vocab_size_ratio {ratio:g} results in tables of {rows:g} rows")
    moduli = tuple(int(rows) + 2 * head + 1 for head in range(len(orders)))
    if vocab_size * moduli[-1] * largest >= 2**63:  # otherwise, sglang's reduction of every product is harmless
        raise ConfigError(f"a hash of {largest} ids below {vocab_size:,} modulo {moduli[-1]:,} does not fit in 64 bits")
    powers = tuple(tuple(pow(vocab_size, distance, modulus) for distance in range(largest)) for modulus in moduli)
    yield NgramSpec(
        tensor_suffix="ngram_embeddings.embedders", layer=None, vocab_size=vocab_size, rows=sum(moduli),
        moduli=moduli, width=_width_per_head(n_embd, len(orders), "hidden_size"), orders=orders, multipliers=powers,
        mix="sum", fill_id=0, stop_ids=(_first_index(config, vocab_size),), added="projected_mean",
        tensor_per_head=True,
    )  # fmt: skip


def _blt(config: ConfigReader, vocab_size: int, n_embd: int) -> Iterator[NgramSpec]:
    functions, rows = config.size("encoder_hash_byte_group_nb_functions"), config.size("encoder_hash_byte_group_vocab")
    sizes = _integers(config, "encoder_hash_byte_group_size")
    if not sizes or functions * len(sizes) > MAX_HEADS or not all(1 <= size <= MAX_ORDER for size in sizes):
        given = f"{functions:,} hash functions for byte groups of {short_repr(sizes)}"
        raise ConfigError(f"the config has {given}; expected at most {MAX_HEADS:,} hash heads of 1..{MAX_ORDER} bytes")
    bases = [BLT_BASES[function % len(BLT_BASES)] for function in range(functions)]
    heads = [(base, size) for base in bases for size in sizes]
    powers = (tuple(_signed(pow(base, size - 1 - back, 2**64)) for back in range(size)) for base, size in heads)
    yield NgramSpec(
        tensor_suffix="encoder_hash_tok_embedding", layer=None, vocab_size=vocab_size, width=n_embd, added="sum",
        rows=rows * len(heads), orders=tuple(size for _, size in heads), moduli=(rows,) * len(heads), mix="sum",
        multipliers=tuple(powers), fill_id=0, padding_stops=False,
    )  # fmt: skip


def _signed(value: int) -> int:
    """Return the int64 with the same bits."""
    return value - 2**64 if value >= 2**63 else value


def _orders(
    config: ConfigReader, largest_names: Sequence[str], count_names: Sequence[str], layers: int = 1
) -> tuple[int, ...]:
    """Return the order of every hash head in a layer, ascending; each order has the same number of heads."""
    largest, per_order = config.size(*largest_names), config.size(*count_names)
    if not 2 <= largest <= MAX_ORDER or (largest - 1) * per_order * layers > MAX_HEADS:
        raise ConfigError(
            f"the config's {largest_names[0]} is {largest:,} and its {count_names[0]} is {per_order:,} in {layers:,} "
            f"layers; n-grams have 2..{MAX_ORDER} ids, and all layers together at most {MAX_HEADS:,} hash heads"
        )
    return tuple(order for order in range(2, largest + 1) for _ in range(per_order))


def _primes(config: ConfigReader, name: str, heads: int, layers: int) -> list[tuple[int, ...]]:
    """Return the sizes of each layer's hash heads: consecutive primes, starting at a given size."""
    start, count = config.size(name), heads * layers
    if start * count > MAX_ROWS:
        raise invalid_error(name, start, f"hash tables with at most {MAX_ROWS:,} rows for {count:,} hash heads")
    primes = primes_from(start, count)
    return [primes[first : first + heads] for first in range(0, count, heads)]


def _bound(vocab_size: int) -> int:
    """Return the bound for half of a multiplier, so the product of a multiplier and an id fits in 63 bits."""
    return max(1, (2**63 - 1) // vocab_size // 2)


def _odd(drawn: list[int], heads: int) -> tuple[tuple[int, ...], ...]:
    """Return the odd multipliers that all hash heads of a layer share."""
    return (tuple(2 * value + 1 for value in drawn),) * heads


def _integers(config: ConfigReader, name: str) -> list[int]:
    """Read a list of non-negative integers; empty if it is missing."""
    value: Any = config.get(name)[1]
    if value is None:
        return []
    is_list = isinstance(value, (list, tuple)) and len(value) <= MAX_HEADS
    if not is_list or not all(type(item) is int and 0 <= item <= MAX_FIELD_SIZE for item in value):
        raise invalid_error(name, value, f"a list of at most {MAX_HEADS:,} integers in 0..{MAX_FIELD_SIZE:,}")
    return list(value)


def _first_index(config: ConfigReader, vocab_size: int) -> int:
    """Return the end-of-text id, or the first one if there are several."""
    value: Any = config.get("eos_token_id")[1]
    first = value[0] if isinstance(value, list) and value else value
    return _check_inside(first, vocab_size, "eos_token_id")


def _check_inside(token: object, vocab_size: int, name: str) -> int:
    if type(token) is not int or not 0 <= token < vocab_size:
        raise invalid_error(name, token, f"an id in 0..{vocab_size - 1:,} for its n-grams")
    return token


def _has_vision(config: ConfigReader) -> bool:
    layers: Any = config.mapping("vision_config").get("num_hidden_layers", config.get("vision_n_layers")[1])
    return isinstance(layers, int) and layers > 0


def _width_per_head(width: int, heads: int, name: str) -> int:
    if width % heads:
        raise ConfigError(f"the config's {name} {width:,} is not a multiple of its {heads:,} hash heads")
    return width // heads

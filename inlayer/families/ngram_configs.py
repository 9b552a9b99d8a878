"""The n-gram memories that a config describes.

config.json -> [NgramSpec] -> Embeddings.ngram_ids
- qwen4_exp: multipliers from splitmix64, consecutive primes as the sizes of hash heads, look-back up to end-of-text
- DeepSeek-V4.1 (Engram): multipliers from numpy's generator, seeded by the layer, on compressed token ids
- LongCat-Flash: powers of the vocabulary size, look-back up to end-of-text; BLT: powers of large primes
- every count is checked before anything is derived from it
Tested with hostile configs in tests/checkpoint/test_ngram_tables.py; the hashes in tests/tables/test_ngram_hash.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inlayer.errors import ConfigError
from inlayer.families.config_reader import MAX_FIELD_SIZE, ConfigReader, short
from inlayer.tables.ngram_hash import NgramSpec, primes_from

MAX_HEADS = 1024  # limit for all memories of a model; DeepSeek-V4.1 has 48
MAX_ORDER = 64  # ids per n-gram; BLT has up to 8
MAX_ROWS = 2**40
MASK64 = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # the increment of splitmix64
LAYER_PRIME = 10007  # its product with the layer is the seed of the layer's multipliers
# The bases of BLT's polynomial hashes, in order; a model with more functions starts again.
BLT_BASES = (
    1000000007, 5915587277, 1500450271, 3267000013, 5754853343, 4093082899, 9576890767, 3628273133, 2860486313,
    5463458053, 3367900313,
)  # fmt: skip


def read_ngrams(kind: str | None, fields: ConfigReader, vocab_size: int, n_embd: int) -> tuple[NgramSpec, ...]:
    """Return the n-gram memories of a family that has this kind; none if the config does not switch them on."""
    readers: dict[str, Callable[[ConfigReader, int, int], tuple[NgramSpec, ...]]] = {
        "qwen4": _qwen4, "engram": _engram, "longcat": _longcat, "blt": _blt,
    }  # fmt: skip
    return () if kind is None else readers[kind](fields, vocab_size, n_embd)


def splitmix64(value: int) -> int:
    """Return the output of the splitmix64 generator for a state.

    >>> hex(splitmix64(0))
    '0xe220a8397b1dcdaf'
    """
    value = (value + GOLDEN_GAMMA) & MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


def _qwen4(fields: ConfigReader, vocab_size: int, n_embd: int) -> tuple[NgramSpec, ...]:
    layers = sorted(set(_integers(fields, "ple_layer_ids")))
    if not layers:
        return ()
    if layers[0] < 1:
        raise ConfigError("the config's ple_layer_ids contains 0; its layers are numbered from 1")
    largest, per_order, heads = _counts(fields, ("ngram_size", "heads_per_ngram"), len(layers))
    width = _width_per_head(fields.optional_size("ple_embed_dim") or n_embd, heads, "ple_embed_dim")
    multiple, (_, seed) = fields.size("make_ngram_vocab_size_divisible_by"), fields.get("seed")
    if type(seed) is not int:
        raise ConfigError(f"the config's seed is {short(seed)}; expected an integer")
    stop = _first_index(fields, vocab_size)
    primes = _primes(fields, "ngram_vocab_size_base", heads * len(layers))
    bound = max(1, (2**63 - 1) // vocab_size // 2)
    specs = []
    for index, layer in enumerate(layers):
        states = (seed + LAYER_PRIME * index + GOLDEN_GAMMA * (distance + 1) for distance in range(largest))
        multipliers = tuple(2 * (splitmix64(state & MASK64) % bound) + 1 for state in states)
        moduli = primes[heads * index : heads * (index + 1)]
        settings: Any = {"orders": _orders(largest, per_order), "multipliers": (multipliers,) * heads, "moduli": moduli}
        settings |= {"mix": "xor", "fill": stop, "stops": (stop,), "rows": -(-sum(moduli) // multiple) * multiple}
        tensor = f"layers.{layer - 1}.ple.ple_embedding.ngram_embedding"
        specs.append(NgramSpec(tensor=tensor, layer=layer - 1, vocab_size=vocab_size, width=width, **settings))
    return tuple(specs)


def _engram(fields: ConfigReader, vocab_size: int, _: int) -> tuple[NgramSpec, ...]:
    layers = _integers(fields, "engram_layer_ids")
    if not layers:
        return ()
    largest, per_order, heads = _counts(fields, ("engram_max_ngram_size", "engram_n_heads"), len(layers))
    sizes, compressed = _integers(fields, "engram_num_embeddings"), fields.size("engram_compressed_vocab_size")
    if len(sizes) != len(layers):
        raise ConfigError(f"the config has {len(layers)} engram_layer_ids but {len(sizes)} engram_num_embeddings")
    primes = _primes(fields, "engram_vocab_size", heads * len(layers))
    pad = fields.count("engram_pad_token_id")
    _check_inside(pad, vocab_size, "engram_pad_token_id")
    image = fields.index("image_token_id") if _has_vision(fields) else None
    stops, width = () if image is None else (image,), fields.size("engram_head_dim")
    bound = max(1, (2**63 - 1) // compressed // 2)
    specs = []
    for index, (layer, rows) in enumerate(zip(layers, sizes, strict=True)):
        moduli = primes[heads * index : heads * (index + 1)]
        if sum(moduli) != rows:
            raise ConfigError(
                f"the config's engram_num_embeddings has {rows:,} rows for layer {layer}, but its {heads} prime-sized "
                f"hash heads have {sum(moduli):,}"
            )
        drawn = np.random.default_rng(LAYER_PRIME * layer).integers(0, bound, largest, np.int64)
        multipliers = tuple(2 * value + 1 for value in drawn.tolist())
        settings: Any = {"orders": _orders(largest, per_order), "multipliers": (multipliers,) * heads, "moduli": moduli}
        settings |= {"mix": "xor", "fill": pad, "stops": stops, "stops_are_hashed": False, "rows": rows}
        settings |= {"compressed_size": compressed, "width": width}
        specs.append(NgramSpec(tensor=f"layers.{layer}.engram.embed", layer=layer, vocab_size=vocab_size, **settings))
    return tuple(specs)


def _longcat(fields: ConfigReader, vocab_size: int, n_embd: int) -> tuple[NgramSpec, ...]:
    ratio = fields.optional_number("ngram_vocab_size_ratio", "oe_vocab_size_ratio")
    if ratio is None:
        return ()
    names = [name if fields.get(name)[1] is not None else old for name, old in LONGCAT_NAMES]
    largest, per_order, heads = _counts(fields, (names[0], names[1]), 1)
    rows = ratio * vocab_size
    if not 1 <= rows <= MAX_FIELD_SIZE:
        raise ConfigError(f"the config's ngram_vocab_size_ratio {ratio:g} gives tables of {rows:g} rows")
    moduli = tuple(int(rows) + 2 * head + 1 for head in range(heads))
    if vocab_size * moduli[-1] * largest >= 2**63:  # below, it does not matter that sglang reduces every product
        raise ConfigError(f"a hash of {largest} ids below {vocab_size:,} modulo {moduli[-1]:,} does not fit in 64 bits")
    powers = tuple(tuple(pow(vocab_size, distance, modulus) for distance in range(largest)) for modulus in moduli)
    return (
        NgramSpec(
            tensor="ngram_embeddings.embedders", layer=None, vocab_size=vocab_size, rows=sum(moduli), moduli=moduli,
            width=_width_per_head(n_embd, heads, "hidden_size"), orders=_orders(largest, per_order), multipliers=powers,
            mix="sum", fill=0, stops=(_first_index(fields, vocab_size),), added="projected mean", tensor_per_head=True,
        ),
    )  # fmt: skip


LONGCAT_NAMES = (("emb_neighbor_num", "oe_neighbor_num"), ("emb_split_num", "oe_split_num"))


def _blt(fields: ConfigReader, vocab_size: int, n_embd: int) -> tuple[NgramSpec, ...]:
    functions, rows = fields.size("encoder_hash_byte_group_nb_functions"), fields.size("encoder_hash_byte_group_vocab")
    sizes = _integers(fields, "encoder_hash_byte_group_size")
    if not sizes or functions * len(sizes) > MAX_HEADS or not all(1 <= size <= MAX_ORDER for size in sizes):
        raise ConfigError(
            f"the config has {functions:,} hash functions for byte groups of {short(sizes)}; at most {MAX_HEADS:,} "
            f"hash heads of 1..{MAX_ORDER} bytes are supported"
        )
    bases = [BLT_BASES[function % len(BLT_BASES)] for function in range(functions)]
    heads = [(base, size) for base in bases for size in sizes]
    return (
        NgramSpec(
            tensor="encoder_hash_tok_embedding", layer=None, vocab_size=vocab_size, width=n_embd, added="sum",
            rows=rows * len(heads), orders=tuple(size for _, size in heads), moduli=(rows,) * len(heads), mix="sum",
            multipliers=tuple(
                tuple(_signed(pow(base, size - 1 - back, 2**64)) for back in range(size)) for base, size in heads
            ),
            fill=0, padding_stops=False,
        ),
    )  # fmt: skip


def _signed(value: int) -> int:
    """Return the int64 with the same bits."""
    return value - 2**64 if value >= 2**63 else value


def _orders(largest: int, per_order: int) -> tuple[int, ...]:
    return tuple(order for order in range(2, largest + 1) for _ in range(per_order))


def _counts(fields: ConfigReader, names: tuple[str, str], layers: int) -> tuple[int, int, int]:
    """Return the largest order, the hash heads per order, and the hash heads of a layer."""
    largest, per_order = (fields.size(name) for name in names)
    heads = (largest - 1) * per_order
    if not 2 <= largest <= MAX_ORDER or heads * layers > MAX_HEADS:
        raise ConfigError(
            f"the config's {names[0]} is {largest:,} and its {names[1]} is {per_order:,} in {layers:,} layers; n-grams "
            f"have 2..{MAX_ORDER} ids, and all layers together at most {MAX_HEADS:,} hash heads"
        )
    return largest, per_order, heads


def _primes(fields: ConfigReader, name: str, heads: int) -> tuple[int, ...]:
    """Return the sizes of all hash heads: the primes from a size upward."""
    start = fields.size(name)
    if start * heads > MAX_ROWS:
        raise ConfigError(
            f"the config's {name} is {start:,} for {heads:,} hash heads; a table has at most {MAX_ROWS:,} rows"
        )
    return primes_from(start, heads)


def _integers(fields: ConfigReader, name: str) -> list[int]:
    """Read a list of non-negative integers; empty if it is missing."""
    value: Any = fields.get(name)[1]
    if value is None:
        return []
    if not isinstance(value, (list, tuple)) or len(value) > MAX_HEADS:
        raise ConfigError(f"the config's {name} is {short(value)}; expected a list of at most {MAX_HEADS:,} integers")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= MAX_FIELD_SIZE:
            raise ConfigError(f"the config's {name} has {short(item)}; expected integers in 0..{MAX_FIELD_SIZE:,}")
    return list(value)


def _first_index(fields: ConfigReader, vocab_size: int) -> int:
    """Return the end-of-text id: the first, if there are several."""
    value: Any = fields.get("eos_token_id")[1]
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, bool) or not isinstance(first, int):
        raise ConfigError(f"the config's eos_token_id is {short(value)}; its n-grams need an end-of-text id")
    return _check_inside(first, vocab_size, "eos_token_id")


def _check_inside(token: int, vocab_size: int, name: str) -> int:
    if not 0 <= token < vocab_size:
        raise ConfigError(f"the config's {name} is {token:,}; it must be in 0..{vocab_size - 1:,}")
    return token


def _has_vision(fields: ConfigReader) -> bool:
    layers: Any = fields.mapping("vision_config").get("num_hidden_layers", fields.get("vision_n_layers")[1])
    return isinstance(layers, int) and layers > 0


def _width_per_head(width: int, heads: int, name: str) -> int:
    if width % heads:
        raise ConfigError(f"the config's {name} {width:,} is not a multiple of its {heads:,} hash heads")
    return width // heads

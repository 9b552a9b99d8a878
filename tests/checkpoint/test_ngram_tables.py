"""Tiny checkpoints with n-gram memories, compared with transformers and sglang."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import DynamicCache

import inlayer
from inlayer.errors import CheckpointError, ConfigError, DtypeError, InlayerError, InputError, ShapeError
from inlayer.tables.ngram_hash import primes_from
from tests.families.survey import open_reference, same_bits
from tests.families.tiny import build, tiny_config
from tests.tables.sglang_functions import engram, extract
from tests.tables.test_ngram_hash import V41, plain

LEVELS = ("float32", "bfloat16")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("qwen")
    torch.manual_seed(0)
    model = build("causal", tiny_config("qwen4_exp_text"))
    model.save_pretrained(folder)
    return folder, type(model)


@pytest.mark.parametrize("dtype", LEVELS)
def test_qwen_in_shards_equals_transformers_token_by_token(qwen: tuple[Path, Any], dtype: str) -> None:
    folder, maker = qwen
    theirs = open_reference(maker, str(folder), getattr(torch, dtype))
    model = inlayer.load(folder, dtype=dtype)
    assert [memory.spec.layer for memory in model.ngram_memories] == [0, 2]
    names = [tensor.name for tensor in model.ngram_memories[0].tensors]
    assert [name.rpartition("ngram_embedding.")[2] for name in names] == [f"shard_{n}.weight" for n in range(3)]
    assert [table.role for table in model.tables].count("ngram") == 6
    ids = torch.randint(3, 90, (3, 12), generator=torch.Generator().manual_seed(1))
    ids[0, 4] = ids[1, 0] = 2  # end of text
    for layer in (0, 2):
        module = theirs.model.layers[layer].ple.ple_embedding
        whole = module(ids, None)
        ours = model.embeddings.ngram(ids, layer=layer)
        assert ours.shape == (3, 12, 8, 8)
        assert same_bits(ours.flatten(-2), whole)
        cache = DynamicCache(config=theirs.config)
        for at in range(12):
            one = module(ids[:, at : at + 1], cache)
            mine = model.embeddings.ngram(ids[:, at : at + 1], ids[:, :at], layer=layer).flatten(-2)
            assert same_bits(mine, one)
            assert same_bits(mine, whole[:, at : at + 1])
    assert not same_bits(model.embeddings.ngram(ids, layer=0), model.embeddings.ngram(ids, layer=2))  # control


@pytest.mark.parametrize("name", ["layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"])
def test_stored_hashing_that_differs_from_the_config_is_an_error(
    qwen: tuple[Path, Any], name: str, tmp_path: Path
) -> None:
    shutil.copytree(qwen[0], tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    stored = next(one for one in tensors if one.endswith(name))
    for damage, message in (
        (tensors[stored] + 2, "its values are not the ones that its config determines"),
        (tensors[stored][:-1], "expected . integers"),
    ):
        save_file(tensors | {stored: damage}, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=rf"{name}' .* {message}"):
            _ = inlayer.load(tmp_path).ngram_memories


def test_rows_are_where_they_are_said_to_be(qwen: tuple[Path, Any]) -> None:
    model = inlayer.load(qwen[0])
    memory = model.ngram_memories[1]
    for row in (0, 300, memory.spec.rows - 1):
        tensor, offset = memory.locate(row)
        data = (qwen[0] / tensor.file).read_bytes()[offset : offset + memory.spec.width * 4]
        assert data == memory.table.rows(row).tobytes()
    with pytest.raises(InputError, match="is outside"):
        memory.locate(memory.spec.rows)
    for copied in (
        pickle.loads(pickle.dumps(model)).ngram_memories[1],
        copy.deepcopy(model.embeddings).ngram_memories[1],
    ):
        assert np.array_equal(copied.table.rows([5, 300]), memory.table.rows([5, 300]))


def test_a_layer_without_rows_still_computes_ids(qwen: tuple[Path, Any]) -> None:
    layer = inlayer.Embeddings.from_config(qwen[0])
    ids = torch.tensor([[5, 6, 7]])
    found = layer.ngram_ids(ids, layer=0)
    assert torch.equal(found, inlayer.load(qwen[0]).embeddings.ngram_ids(ids, layer=0))
    assert found[0].tolist() == plain(layer.ngrams[0], [5, 6, 7])
    with pytest.raises(InputError, match=r"rows of the n-gram memory .* were not loaded; use inlayer.load"):
        layer.ngram(ids, layer=0)
    with pytest.raises(InputError, match="several n-gram memories; pass layer=0 or layer=2"):
        layer.ngram_ids(ids)
    with pytest.raises(InputError, match="layer 1 has no n-gram memory; pass layer=0 or layer=2"):
        layer.ngram_ids(ids, layer=1)
    with pytest.raises(InputError, match=r"this model has no n-gram memory$"):
        inlayer.load("default").embeddings.ngram_ids(ids)


# ---- DeepSeek's Engram

VOCAB = 300
PRIMES = primes_from(90, 48)
ENGRAM: dict[str, Any] = V41 | {
    "vocab_size": VOCAB, "hidden_size": 16, "pad_token_id": 2, "num_attention_heads": 4, "head_dim": 16,
    "qk_rope_head_dim": 8,
    "engram_vocab_size": 90, "engram_head_dim": 64, "engram_num_embeddings": [sum(PRIMES[:24]), sum(PRIMES[24:])],
}  # fmt: skip


def write_engram(folder: Path, *, change: Any = None, **config: Any) -> dict[str, Tensor]:
    """A V4.1 checkpoint with a byte-level tokenizer."""
    if not hasattr(torch, "float8_e8m0fnu"):
        pytest.skip("this torch does not have the dtype of the scales")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "</s>", "<pad>", *alphabet, "the", "The", "Ġthe", "do", "Do", "g", "Ġdo"]
    vocab = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    merges = [("t", "h"), ("T", "h")]
    vocab |= {"th": len(vocab), "Th": len(vocab) + 1}
    tokenizer = Tokenizer(models.BPE(vocab, [*merges, ("th", "e"), ("Th", "e"), ("d", "o"), ("D", "o"), ("Ġ", "do")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    size = int(inlayer.tokenizers.huggingface.compressed_ids(inlayer.open_tokenizer(folder)).max()) + 1
    generator = torch.Generator().manual_seed(3)
    tensors: dict[str, Tensor] = {"embed.weight": torch.randn(VOCAB, 16, generator=generator).bfloat16()}
    for layer, rows in zip((1, 14), ENGRAM["engram_num_embeddings"], strict=True):
        name = f"layers.{layer}.engram.embed."
        tensors[name + "weight"] = torch.randn(rows, 64, generator=generator).to(torch.float8_e4m3fn)
        scales = torch.randint(100, 140, (rows, 2), generator=generator, dtype=torch.uint8)
        tensors[name + "scale"] = scales.view(torch.float8_e8m0fnu)
    if change is not None:
        change(tensors)
    save_file(tensors, folder / "model.safetensors")
    settings = ENGRAM | {"engram_compressed_vocab_size": size} | config
    (folder / "config.json").write_text(json.dumps({"model_type": "deepseek_v41", "text_config": settings}))
    return tensors


def test_engram_equals_sglang(tmp_path: Path) -> None:
    """Ids from their functions, and rows from the lookup that their module has for the CPU."""
    tensors = write_engram(tmp_path)
    model = inlayer.load(tmp_path)
    assert model.table_info.name == "embed.weight"
    assert [(table.role, table.name) for table in model.tables if table.role == "ngram"] == [
        ("ngram", f"layers.{layer}.engram.embed.weight") for layer in (1, 14)
    ]
    embedding = extract(
        "sglang/srt/layers/engram.py", "EngramEmbedding", FP8_BLOCK_SIZE=32, _cuda_kernels=lambda _: False
    ).EngramEmbedding
    ids = model.tokenizer.encode("The dog, the Dog and THE do-do", add_special_tokens=False)
    text = torch.tensor([ids, ids[::-1]])
    for layer in (1, 14):
        found = model.embeddings.ngram_ids(text, layer=layer)
        name = f"layers.{layer}.engram.embed."
        theirs = SimpleNamespace(host_table=None, row_start=0, rows=len(tensors[name + "weight"]))
        theirs.weight, theirs.scale = tensors[name + "weight"], tensors[name + "scale"]
        expected = embedding._owned_rows(theirs, found)
        ours = model.embeddings.ngram(text, layer=layer)
        assert same_bits(ours, expected)
        assert ours.isfinite().all()
        theirs.scale = tensors[name + "scale"].view(torch.uint8).flip(1).view(torch.float8_e8m0fnu)
        assert not same_bits(ours, embedding._owned_rows(theirs, found))  # control: the other block's scale
        one_by_one = [model.embeddings.ngram(text[:, at : at + 1], text[:, :at], layer=layer) for at in range(len(ids))]
        assert same_bits(torch.cat(one_by_one, 1), ours)


def test_engram_compression_is_that_of_the_tokenizer(tmp_path: Path) -> None:
    write_engram(tmp_path)
    model = inlayer.load(tmp_path)
    backend = model.tokenizer._exact

    class Theirs:
        backend_tokenizer = backend

        def __len__(self) -> int:
            return backend.get_vocab_size(with_added_tokens=True)

    lookup, _ = engram().build_compressed_token_map(Theirs())
    assert model.ngram_memories[0].token_map.tolist() == lookup
    the, The = (model.tokenizer.encode(word, add_special_tokens=False) for word in ("the", "The"))
    assert the != The
    assert torch.equal(*(model.embeddings.ngram_ids(torch.tensor([one]), layer=1) for one in (the, The)))


def remove(name: str) -> Any:
    return lambda tensors: tensors.pop(name)


def replaced(name: str, make: Any) -> Any:
    return lambda tensors: tensors.update({name: make(tensors[name])})


MISFIT = r"its table [\d,]+ x 64 in blocks of \d+ x \d+ needs"
SCALE = "layers.14.engram.embed.scale"
ROWS = "layers.1.engram.embed.weight"
DAMAGED = {
    "no rows": (remove(ROWS), r"does not have all tensors of layers\.1\.engram\.embed.*parts found: none"),
    "no scales": (remove(SCALE), r"is F8_E4M3 \(.*its scales 'layers\.14\.engram\.embed\.scale' are missing"),
    "fewer scales": (replaced(SCALE, lambda x: x[:-1].clone()), MISFIT),
    "blocks that do not fit": (replaced(SCALE, lambda x: x.view(torch.uint8).repeat(1, 2)[:, :3].contiguous().view(
        torch.float8_e8m0fnu)), MISFIT),
    "flat scales": (replaced(SCALE, lambda x: x.reshape(-1).clone()), MISFIT),
    "integer scales": (replaced(SCALE, lambda x: x.view(torch.uint8).to(torch.int32)), "scales are floating point"),
    "fewer rows": (replaced(ROWS, lambda x: x[:-1].clone()), MISFIT),
    "narrower rows": (replaced(ROWS, lambda x: x[:, :32].clone()), r"its config requires rows of 64 values"),
    "integers": (replaced(ROWS, lambda x: x.view(torch.uint8)), "expected floating-point values"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_engram_is_explained(case: str, tmp_path: Path) -> None:
    change, message = DAMAGED[case]
    write_engram(tmp_path, change=change)
    with pytest.raises(InlayerError, match=message) as caught:
        _ = inlayer.load(tmp_path).embeddings
    assert "\n" not in str(caught.value)


def test_memories_of_an_invalid_config_are_an_error_not_an_empty_list(tmp_path: Path) -> None:
    write_engram(tmp_path, engram_n_heads=10**9)
    with pytest.raises(ConfigError, match="at most 1,024 hash heads"):
        _ = inlayer.load(tmp_path).ngram_memories
    (tmp_path / "config.json").unlink()
    assert inlayer.load(tmp_path).ngram_memories == ()


def test_another_tokenizer_is_explained(tmp_path: Path) -> None:
    write_engram(tmp_path, engram_compressed_vocab_size=200)
    model = inlayer.load(tmp_path)
    with pytest.raises(CheckpointError, match="distinct normalized tokens, but its config requires 200"):
        model.embeddings.ngram_ids(torch.tensor([[1]]), layer=1)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InlayerError, match=r"need a tokenizer\.json, but the model has no tokenizer"):
        inlayer.load(tmp_path).embeddings.ngram_ids(torch.tensor([[1]]), layer=1)


# ---- LongCat-Flash, in the hidden states


def write_longcat(folder: Path, dtype: torch.dtype) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = {"model_type": "longcat_flash_ngram", "vocab_size": 64, "hidden_size": 96, "num_attention_heads": 4,
              "qk_rope_head_dim": 8, "oe_vocab_size_ratio": 1.5, "oe_neighbor_num": 4, "oe_split_num": 4}  # fmt: skip
    generator = torch.Generator().manual_seed(5)
    tensors = {"model.embed_tokens.weight": torch.randn(64, 96, generator=generator).to(dtype)}
    for head in range(12):
        name = "model.ngram_embeddings."
        tensors[f"{name}embedders.{head}.weight"] = torch.randn(96 + 2 * head + 1, 8, generator=generator).to(dtype)
        tensors[f"{name}post_projs.{head}.weight"] = torch.randn(96, 8, generator=generator).to(dtype)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return config, tensors


def longcat_reference(config: dict[str, Any], tensors: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Their module on the CPU; their CUDA kernel for the ids is compared in tests/tables/test_ngram_hash.py."""
    spec = inlayer.describe(config).ngrams[0]
    dtype = tensors["model.embed_tokens.weight"].dtype

    def embedding(num_embeddings: int, embedding_dim: int, **_: Any) -> nn.Embedding:
        return nn.Embedding(num_embeddings, embedding_dim, dtype=dtype)

    def compute(*, tokens: Tensor, n_gram_ids: Tensor, **_: Any) -> None:
        n_gram_ids.copy_(torch.tensor(plain(spec, tokens.tolist())))

    names = {"VocabParallelEmbedding": embedding, "is_dp_attention_enabled": bool, "compute_n_gram_ids": compute}
    module = extract("sglang/srt/layers/n_gram_embedding.py", "NgramEmbedding", **names).NgramEmbedding(
        64, 96, 96, 4, 4, 2
    )
    module.init_buffers(1, 64, "cpu")
    module.oe_projection = nn.Parameter(module.oe_projection.to(dtype), requires_grad=False)
    indices = SimpleNamespace(org_vocab_start_index=0, org_vocab_end_index=spec.rows)
    module.oe_embeder.shard_indices = indices
    module.word_embeder.weight.data = tensors["model.embed_tokens.weight"]
    for name, value in tensors.items():
        if "ngram" in name:
            module.load_weight(None, name, value)
    lengths = torch.tensor([len(ids)], dtype=torch.int32)
    info = SimpleNamespace(req_lens=lengths, column_starts=lengths * 0, token_table=None)
    mode = SimpleNamespace(is_extend=lambda: True)
    batch = SimpleNamespace(forward_mode=mode, ngram_embedding_info=info, batch_size=1, req_pool_indices=lengths)
    with torch.no_grad():
        result: Tensor = module(ids, batch)
    return result


@pytest.mark.parametrize("dtype", LEVELS)
def test_longcat_hidden_states_equal_sglang(dtype: str, tmp_path: Path) -> None:
    config, tensors = write_longcat(tmp_path, getattr(torch, dtype))
    model = inlayer.load(tmp_path)
    ids = torch.randint(0, 64, (30,), generator=torch.Generator().manual_seed(2))
    ids[9] = 2
    theirs = longcat_reference(config, tensors, ids)
    stages = model.embeddings.stages(ids)
    assert [stage.name for stage in stages] == ["row", "n-grams"]
    assert same_bits(stages[-1].output, theirs)
    assert not same_bits(stages[0].output, theirs)  # control: the rows alone
    pieces = [model.embeddings(ids[None, at : at + 10], history=ids[None, :at])[0] for at in (0, 10, 20)]
    torch.testing.assert_close(torch.cat(pieces), theirs, rtol=0.02 if dtype == "bfloat16" else 1e-5, atol=1e-5)
    assert model.embeddings(torch.tensor([[1, 2]])).requires_grad is False


def test_mask_with_a_history(tmp_path: Path) -> None:
    write_longcat(tmp_path, torch.float32)
    layer = inlayer.load(tmp_path).embeddings
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(3))
    history, rest, mask = ids[:, :4], ids[:, 4:], torch.ones(2, 9)
    expected = layer(rest, history=history)
    assert same_bits(layer(rest, history=history, attention_mask=mask), expected)
    mask[:, :3] = 0  # n-grams do not read this padding
    padded = layer(rest, history=history, attention_mask=mask)
    assert same_bits(padded, layer(rest, history=history[:, 3:]))
    assert not same_bits(padded, expected)
    assert same_bits(layer(rest[0], history=history[:1], attention_mask=mask[0]), padded[0])
    with pytest.raises(ShapeError, match=r"attention_mask has shape \(2, 5\); expected \(2, 9\), history included"):
        layer(rest, history=history, attention_mask=mask[:, 4:])
    with pytest.raises(DtypeError, match="attention_mask is a sparse tensor"):
        layer(rest, attention_mask=mask[:, 4:].to_sparse())
    with pytest.raises(DtypeError, match="history has dtype"):
        layer(rest, history=history.float())


def test_longcat_parts_must_match_the_config(tmp_path: Path) -> None:
    _, tensors = write_longcat(tmp_path, torch.float32)
    name = "model.ngram_embeddings.embedders."
    swapped = tensors | {f"{name}0.weight": tensors[f"{name}1.weight"], f"{name}1.weight": tensors[f"{name}0.weight"]}
    save_file(swapped, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="rows in 12 tensors; its config requires"):
        _ = inlayer.load(tmp_path).ngram_memories
    save_file(
        {key: value for key, value in tensors.items() if key != f"{name}3.weight"}, tmp_path / "model.safetensors"
    )
    with pytest.raises(CheckpointError, match="parts found: 0, 1, 2, 4"):
        _ = inlayer.load(tmp_path).ngram_memories
    projection = "model.ngram_embeddings.post_projs.4.weight"
    save_file(tensors | {projection: tensors[projection].T.contiguous()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"post_projs\.4\.weight' .* \(8, 96\); its config requires 12"):
        _ = inlayer.load(tmp_path).embeddings


# ---- qwen4_exp in FP8, with one scale


def test_one_scale_for_a_whole_table(qwen: tuple[Path, Any], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    tensors, plain_rows = load_file(qwen[0] / "model.safetensors"), {}
    for name in [name for name in tensors if "ngram_embedding" in name and name.endswith("weight")]:
        tensors[name] = plain_rows[name] = (tensors[name] * 16).to(torch.float8_e4m3fn)
    scale = torch.tensor([0.0625], dtype=torch.bfloat16)
    for layer in (0, 2):
        tensors[f"model.layers.{layer}.ple.ple_embedding.ngram_embedding.weight_scale"] = scale.clone()
    save_file(tensors, tmp_path / "model.safetensors")
    shutil.copy(qwen[0] / "config.json", tmp_path)
    memory = inlayer.load(tmp_path).ngram_memories[0]
    rows = torch.cat([plain_rows[tensor.name] for tensor in memory.tensors])
    expected = rows.bfloat16() * scale
    ours = memory.table.rows(np.arange(memory.spec.rows))
    assert ours.dtype == ml_dtypes.bfloat16
    assert np.array_equal(ours.view(np.uint16), expected.view(torch.int16).numpy().view(np.uint16))


# ---- hostile configs: an error of one line, before anything is allocated

HOSTILE = {
    "a billion heads": ({"engram_n_heads": 10**9}, "all layers together at most 1,024 hash heads"),
    "a billion orders": ({"engram_max_ngram_size": 10**9}, r"n-grams have 2\.\.64 ids"),
    "a million layers": ({"engram_layer_ids": list(range(10**6))}, "a list of at most 1,024 integers"),
    "one row off": ({"engram_num_embeddings": [384_006_168, 384_016_681]}, "384,016,681 rows for layer 14, but its 24"),
    "one size": ({"engram_num_embeddings": [384_006_168]}, "2 engram_layer_ids but 1 engram_num_embeddings"),
    "primes beyond the limit": ({"engram_vocab_size": 2**31 - 1, "engram_num_embeddings": [1, 1]}, "has 1 rows for"),
    "a size that is text": ({"engram_num_embeddings": "many"}, "expected a list"),
    "a size that is a flag": ({"engram_num_embeddings": [True, 3]}, "expected a list of at most 1,024 integers"),
    "a negative layer": ({"engram_layer_ids": [-1, 3]}, r"is \[-1, 3\]; expected .* integers in 0"),
    "no compressed size": ({"engram_compressed_vocab_size": None}, "has no engram_compressed_vocab_size"),
    "padding outside": ({"engram_pad_token_id": 129_280}, r"engram_pad_token_id is 129280; expected an id in 0"),
    "width zero": ({"engram_head_dim": 0}, "engram_head_dim is 0"),
}  # fmt: skip
QWEN_HOSTILE = {
    "a billion heads": ({"heads_per_ngram": 10**9}, "at most 1,024 hash heads"),
    "layer zero": ({"ple_layer_ids": [0]}, "expected layers numbered from 1"),
    "no end of text": ({"eos_token_id": []}, r"eos_token_id is \[\]; expected an id in 0\.\..* for its n-grams"),
    "end of text outside": ({"eos_token_id": 248_320}, r"eos_token_id is 248320; expected an id in 0\.\.248,319"),
    "a width that does not divide": ({"ple_embed_dim": 2561}, "2,561 is not a multiple of its 16 hash heads"),
    "too many rows": (
        {"ngram_vocab_size_base": 2**31 - 1, "heads_per_ngram": 511, "ple_embed_dim": 1022},
        "2147483647; expected .* for 1,022 hash heads",
    ),
}
LONGCAT_HOSTILE = {
    "an infinite size": ({"ngram_vocab_size_ratio": 1e308, "emb_neighbor_num": 3, "emb_split_num": 2}, "tables of inf"),
    "a huge ratio": ({"ngram_vocab_size_ratio": 1e300, "emb_neighbor_num": 3, "emb_split_num": 2}, "in tables of"),
    "a billion neighbors": ({"ngram_vocab_size_ratio": 2, "emb_neighbor_num": 10**9, "emb_split_num": 1}, "2..64 ids"),
    "no neighbors": ({"ngram_vocab_size_ratio": 2}, "has no emb_neighbor_num / oe_neighbor_num"),
}
BLT_HOSTILE = {
    "a billion functions": ({"encoder_hash_byte_group_nb_functions": 10**9}, "1,000,000,000 hash functions"),
    "long groups": ({"encoder_hash_byte_group_size": [3, 10**9]}, r"heads of 1\.\.64 bytes"),
    "too many groups": ({"encoder_hash_byte_group_size": [3] * 2000}, "at most 1,024"),
}
CASES = [
    *((V41, *case) for case in HOSTILE.values()),
    *(
        ({"model_type": "qwen4_exp_text", "ple_layer_ids": [1], "eos_token_id": 1}, *case)
        for case in QWEN_HOSTILE.values()
    ),
    *(({"model_type": "longcat_flash_ngram"}, *case) for case in LONGCAT_HOSTILE.values()),
    *(({"model_type": "blt"}, *case) for case in BLT_HOSTILE.values()),
]
CASE_NAMES = [*HOSTILE, *QWEN_HOSTILE, *LONGCAT_HOSTILE, *BLT_HOSTILE]


@pytest.mark.parametrize(("config", "change", "message"), CASES, ids=CASE_NAMES)
def test_hostile_configs_allocate_nothing(config: dict[str, Any], change: dict[str, Any], message: str) -> None:
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(ConfigError, match=message) as caught:
        inlayer.describe(config | change)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert peak < 20_000_000

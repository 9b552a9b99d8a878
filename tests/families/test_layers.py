"""Layers that differ: without positions (NoPE), with a base of their own, and positions with three axes (M-RoPE)."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING
from transformers.models.blt.modeling_blt import BltRotaryEmbedding
from transformers.models.muse_spark.modeling_muse_spark import MuseSparkTextRotaryEmbedding
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

import inlayer
from inlayer import Embeddings, describe
from inlayer.checkpoint.layer import find_part
from inlayer.errors import InputError, ShapeError
from inlayer.families import FAMILIES
from tests.families.capture import capture
from tests.families.survey import open_reference, same_bits, save_tiny
from tests.families.tiny import OTHERS, build, tiny_config

MIXED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama4_text", {}),
    ("llama4_text", {"no_rope_layers": [0, 1, 1, 0]}),
    ("smollm3", {}),
    ("smollm3", {"no_rope_layer_interval": 2, "no_rope_layers": None}),
    ("cohere2", MIXED),
    ("exaone4", MIXED),
    ("exaone4", {"layer_types": ["full_attention"] * 4, "sliding_window": None}),
    ("exaone_moe", MIXED),
    ("afmoe", MIXED),
    ("flint", MIXED),
    ("kolibri1", MIXED),
    ("beam", MIXED | {"n_group": 1, "topk_group": 1}),
    ("qwen3_next", {}),  # hybrids: only layers with attention rotate
    ("lfm2_moe", {}),
    ("minimax", {}),
    ("bamba", {}),
    ("recurrent_gemma", {}),
    ("mllama", {}),
]


def rotated_layers(model: Any) -> set[int]:
    """The layers of a transformers model whose attention rotates its queries."""
    module, current, seen = importlib.import_module(type(model).__module__), [-1], set[int]()
    name = next(name for name in ("apply_rotary_pos_emb", "apply_rotary_emb") if hasattr(module, name))
    original = getattr(module, name)

    def record(*args: Any, **kwargs: Any) -> Any:
        seen.add(current[0])
        return original(*args, **kwargs)

    setattr(module, name, record)
    hooks = [
        block.register_forward_pre_hook(lambda _m, _a, number=number: current.__setitem__(0, number))
        for number, block in enumerate(getattr(model.model, "language_model", model.model).layers)
    ]
    try:
        with torch.no_grad():
            model(input_ids=torch.tensor([[5, 6, 7]]))
    finally:
        setattr(module, name, original)
        for hook in hooks:
            hook.remove()
    return seen


@pytest.mark.parametrize(("model_type", "settings"), CASES, ids=[f"{name}-{len(more)}" for name, more in CASES])
def test_layers_without_rotary_positions(model_type: str, settings: dict[str, Any]) -> None:
    config = tiny_config(model_type, **settings)
    theirs = rotated_layers(build("causal", config).eval())
    layer = Embeddings.from_config(config, device="meta")
    ours = {number for number in range(4) if layer.rotary(torch.arange(3), layer=number) is not None}
    assert ours == theirs
    assert theirs


@pytest.mark.parametrize("model_type", ["granite_swa", "granitemoe_swa"])
@pytest.mark.parametrize("thetas", [[0, 1e4, 5e5, 1e4], [1234.5] * 4, [0, 7e4, 7e4, 0], None], ids=str)
def test_layers_with_their_own_base(model_type: str, thetas: list[float] | None) -> None:
    config = tiny_config(model_type, layer_rope_theta=thetas)
    theirs = build("causal", config).model
    bases = sorted({theta for theta in config.layer_rope_theta if theta})
    rotary = dict(zip(bases, theirs.rotary_embs, strict=True))
    layer, positions = Embeddings.from_config(config), torch.arange(8)[None]
    for number, theta in enumerate(config.layer_rope_theta):
        ours = layer.rotary(positions, layer=number)
        if not theta:
            assert ours is None
            continue
        expected = rotary[theta](torch.zeros(1, 8, 4), positions)
        assert same_bits(ours[0], expected[0])
        assert same_bits(ours[1], expected[1])
    if thetas and len(bases) > 1:  # control
        assert not same_bits(layer.rotary(positions, layer=1)[0], layer.rotary(positions, layer=2)[0])


def test_only_hybrid_layers_of_zamba2_have_positions() -> None:
    kinds = ["mamba", "hybrid", "linear_attention", "hybrid"]
    sizes = {"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 99, "use_mem_rope": True}
    layer = Embeddings.from_config({"model_type": "zamba2", "layers_block_type": kinds} | sizes, device="meta")
    rotated = [layer.rotary(torch.arange(3), layer=number) is not None for number in range(4)]
    assert rotated == [False, True, False, True]


def test_bases_of_layers_that_only_switch_positions_on() -> None:
    """Muse Spark's model has one base, whatever its config lists."""
    config = tiny_config("muse_spark_text", rope_theta=5e5, layer_rope_theta=[1e4, 1e5, 0, 0])
    theirs, positions = MuseSparkTextRotaryEmbedding(config), torch.arange(8)[None]
    layer = Embeddings.from_config(config)
    for number in (0, 1):
        for ours, expected in zip(
            layer.rotary(positions, layer=number), theirs(torch.zeros(1, 8, 4), positions), strict=True
        ):
            assert same_bits(ours, expected)
    assert layer.rotary(positions, layer=2) is None


@pytest.mark.parametrize("settings", [
    {"rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 64, "truncate": False},
    {"rope_type": "proportional", "partial_rotary_factor": 0.75},
    {"rope_type": "proportional", "partial_rotary_factor": 0.25},
], ids=str)  # fmt: skip
def test_settings_of_one_layer_type(settings: dict[str, Any]) -> None:
    """transformers ignores `truncate` there, and computes only the powers that proportional positions use."""
    rope = {"rope_theta": 1234.5, **settings}
    sliding = {"rope_type": "default", "rope_theta": 1e4}
    is_gemma = settings["rope_type"] == "proportional"
    config = tiny_config(
        "gemma4_text" if is_gemma else "cohere_compass_text",
        rope_parameters={"full_attention": rope} | ({"sliding_attention": sliding} if is_gemma else {}),
    )
    theirs = build("causal", config).model
    layer, positions = Embeddings.from_config(config), torch.arange(40)[None] * 7
    expected = theirs.rotary_emb(torch.zeros(1, 40, 4), positions, layer_type="full_attention")
    ours = layer.rotary(positions, "full_attention")
    assert same_bits(ours[0], expected[0])
    assert same_bits(ours[1], expected[1])


@pytest.mark.parametrize(
    "listed", [{}, None, {"1": {"num_key_value_heads": 1}, "3": {"num_key_value_heads": 1}}], ids=str
)
@pytest.mark.parametrize("model_type", ["gemma4_text", "gemma4_unified_text", "embedding_gemma2_text"])
def test_heads_of_gemma4_with_one_width(model_type: str, listed: dict[str, Any] | None) -> None:
    raw = tiny_config(model_type).to_dict() | {"per_layer_config": listed}
    theirs = build(OTHERS.get(model_type, "causal"), CONFIG_MAPPING[model_type].from_dict(raw))
    layer, positions = Embeddings.from_config(raw), torch.arange(8)[None]
    for layer_type in ("full_attention", "sliding_attention"):
        expected = getattr(theirs, "model", theirs).rotary_emb(torch.zeros(1, 8, 4), positions, layer_type)
        for ours, their in zip(layer.rotary(positions, layer_type), expected, strict=True):
            assert same_bits(ours, their)
    del raw["per_layer_config"]  # control: then layers with full attention have wider heads
    assert Embeddings.from_config(raw, device="meta").rotary(positions, "full_attention")[0].shape[-1] == 512


@pytest.mark.parametrize("model_type", ["bart", "mbart", "pegasus"])
def test_untied_encoder_has_its_own_table(model_type: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    maker = type(save_tiny(model_type, "seq2seq", str(tmp_path), tie_word_embeddings=False))
    model = inlayer.load(tmp_path)
    assert model.table_info.name == "model.encoder.embed_tokens.weight"
    theirs, ids = open_reference(maker, str(tmp_path), torch.float32), torch.randint(4, 80, (2, 8))
    seen = capture(theirs, input_ids=ids, decoder_input_ids=ids[:, :2])
    assert same_bits(model.embeddings(ids), seen.hidden)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_marian_is_saved_without_its_positions(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    maker = save_tiny("marian", "seq2seq", str(tmp_path))
    model = inlayer.load(tmp_path, dtype=dtype)
    assert find_part(model, "position_embedding.weight") is None
    theirs, ids = open_reference(maker, str(tmp_path), dtype), torch.randint(4, 80, (2, 8))
    vectors = torch.randn(2, 8, 64).to(dtype)  # an encoder does not scale them, a decoder alone does
    for given in ({"input_ids": ids}, {"inputs_embeds": vectors}):
        seen = capture(theirs, **given, decoder_input_ids=ids[:, :2])
        assert same_bits(model.embeddings(**given), seen.hidden)
    assert same_bits(model.embeddings.position_embedding.weight, theirs.model.encoder.embed_positions.weight)
    report = inlayer.inspect(tmp_path)
    assert report.positions.kind == "sinusoidal"
    assert "tensor-missing" not in [finding.code for finding in report.findings]


@pytest.mark.parametrize("model_type", ["xlm", "flaubert", "deberta"])
def test_padding_without_a_mask(model_type: str, tmp_path: Path) -> None:
    """XLM masks as many tokens as there are padding ids; DeBERTa masks none."""
    torch.manual_seed(0)
    theirs, layer = save_tiny(model_type, "masked", str(tmp_path)).eval(), inlayer.load(tmp_path).embeddings
    for padded in (slice(5, None), slice(None, 3)):
        ids = torch.randint(4, 80, (2, 8))
        ids[1, padded] = layer.padding_idx
        assert same_bits(layer(ids), capture(theirs, input_ids=ids).hidden)
    assert bool((layer(ids)[1, 5:] == 0).all()) == (model_type != "deberta")  # control


def test_rotary_settings_of_blt_are_those_of_its_encoder() -> None:
    config = CONFIG_MAPPING["blt"](vocab_size=99).to_dict()
    del config["encoder_config"]["rope_parameters"]
    config["rope_parameters"] = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
    theirs = BltRotaryEmbedding(CONFIG_MAPPING["blt"].from_dict(copy.deepcopy(config)).encoder_config)
    layer, positions = Embeddings.from_config(config), torch.arange(8)[None]
    for ours, expected in zip(layer.rotary(positions), theirs(torch.zeros(1), positions), strict=True):
        assert same_bits(ours, expected)


def test_longrope_of_bailing_hybrid_uses_its_length() -> None:
    factors = [1.0 + pair / 7 for pair in range(8)]
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": factors, "long_factor": factors}
    rope |= {"original_max_position_embeddings": 16}
    config = tiny_config("bailing_hybrid", rope_parameters=rope, max_position_embeddings=64)
    theirs, positions = build("causal", config).model.rotary_emb, torch.arange(8)[None]
    layer = Embeddings.from_config(config)
    assert layer.block_size == describe({"model_type": "bailing_hybrid", "model_max_length": 64}).block_size == 64
    for ours, expected in zip(layer.rotary(positions), theirs(torch.zeros(1), positions), strict=True):
        assert same_bits(ours, expected)


def test_layer_selects_its_type() -> None:
    layer = Embeddings.from_config(tiny_config("beam", **MIXED), device="meta")
    by_number, by_type = layer.rotary(torch.arange(3), layer=0), layer.rotary(torch.arange(3), "sliding_attention")
    assert torch.equal(by_number[0], by_type[0])
    with pytest.raises(InputError, match=r"layers 0\.\.3"):
        layer.rotary(torch.arange(3), layer=4)
    for unlisted in ("mimo_v2_flash", "flint", "cohere2"):  # without num_hidden_layers, no rule applies
        mixed = Embeddings.from_config({"model_type": unlisted}, device="meta")
        with pytest.raises(InputError, match="no list of layer types"):
            mixed.rotary(torch.arange(3), layer=0)
    nowhere = Embeddings.from_config({"model_type": "kimi_k3", "text_config": {}}, device="meta")
    assert nowhere.rotary(torch.arange(3), layer=3) is None
    with pytest.raises(InputError, match="not rotary"):
        Embeddings.from_config({"model_type": "gpt2"}, device="meta").rotary(torch.arange(3), layer=3)


@pytest.mark.parametrize("model_type", ["gemma3_text", "gemma4_text", "modernbert", "olmo3", "mimo_v2_flash"])
def test_layer_finds_the_base_of_its_type(model_type: str) -> None:
    config, positions = tiny_config(model_type), torch.arange(3)
    layer = Embeddings.from_config(config, device="meta")
    for number, layer_type in enumerate(config.layer_types):
        by_number, by_type = layer.rotary(positions, layer=number), layer.rotary(positions, layer_type)
        assert torch.equal(by_number[0], by_type[0])


@pytest.mark.parametrize("listed", [
    {"layer_types": ["sliding_attention", "heavily_compressed_attention"]},
    {"compress_ratios": [0, 128]},
])  # fmt: skip
def test_compressed_layers_of_deepseek_v4_have_their_own_base(listed: dict[str, Any]) -> None:
    layer = Embeddings.from_config(tiny_config("deepseek_v4").to_dict() | {"layer_types": None} | listed, device="meta")
    bases = [layer.rotary(torch.arange(3), layer=number)[0] for number in (0, 1)]
    assert torch.equal(bases[0], layer.rotary(torch.arange(3), "main")[0])
    assert torch.equal(bases[1], layer.rotary(torch.arange(3), "compress")[0])


POSITIONS = torch.randint(0, 500, (3, 2, 7), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("model_type", "rotary", "sections", "settings"),
    [
        ("qwen2_vl_text", Qwen2VLRotaryEmbedding, [2, 3, 3], {}),
        ("qwen2_5_vl_text", Qwen2VLRotaryEmbedding, [4, 2, 2], {}),
        ("qwen3_5_text", Qwen3_5TextRotaryEmbedding, [3, 3, 2], {"partial_rotary_factor": 1.0}),
        ("qwen3_5_text", Qwen3_5TextRotaryEmbedding, [2, 1, 1], {"partial_rotary_factor": 0.5}),
    ],
)
def test_three_axes(model_type: str, rotary: Any, sections: list[int], settings: Any, dtype: torch.dtype) -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections, **settings}
    config = CONFIG_MAPPING[model_type](
        hidden_size=64, num_attention_heads=4, head_dim=16, vocab_size=99, rope_parameters=rope
    )
    layer = Embeddings.from_config(config, dtype=dtype)
    states = torch.zeros(2, 7, 64, dtype=dtype)
    theirs = rotary(config)(states, POSITIONS)
    if FAMILIES[model_type].sections == "chunked" and theirs[0].dim() == 4:  # attention selects the axes
        theirs = tuple(
            torch.cat([part[i % 3] for i, part in enumerate(table.split(sections * 2, dim=-1))], dim=-1)
            for table in theirs
        )
    ours = layer.rotary(POSITIONS)
    assert same_bits(ours[0], theirs[0])
    assert same_bits(ours[1], theirs[1])
    assert not same_bits(layer.rotary(POSITIONS.flip(0))[0], theirs[0])  # control: the axes matter
    text = layer.rotary(POSITIONS[0])  # text only: all axes are the same
    assert same_bits(text[0], layer.rotary(POSITIONS[:1].expand(3, -1, -1))[0])
    with pytest.raises(ShapeError, match=r"expected \(3, batch, tokens\)"):
        layer.rotary(POSITIONS[:2])


@pytest.mark.parametrize(
    ("model_type", "field"), [("muse_spark", "layer_rope_theta"), ("mistral_large4", "no_rope_layers")]
)
def test_layers_listed_in_the_text_config(model_type: str, field: str) -> None:
    text_type = f"{model_type}_text"
    default = CONFIG_MAPPING[text_type](num_hidden_layers=6)
    bare = {"model_type": model_type, "text_config": {"model_type": text_type, "num_hidden_layers": 6}}
    for given, text in ((config := tiny_config(model_type, "image-text"), config.text_config), (bare, default)):
        layer, theirs = Embeddings.from_config(given, device="meta"), getattr(text, field)
        ours = [layer.rotary(torch.arange(3), layer=number) is not None for number in range(len(theirs))]
        assert ours == [bool(flag) for flag in theirs]
        assert 0 < sum(ours) < len(ours)


def test_learned_frequencies_stay_float32_and_matter() -> None:
    layer = Embeddings.from_config(tiny_config("mistral_large4", "image-text"))
    before = layer.rotary(torch.arange(9))[0]
    torch.nn.init.normal_(layer.position_embedding.alpha, generator=torch.Generator().manual_seed(0))
    learned = layer.rotary(torch.arange(9))[0]
    assert not torch.equal(learned, before)  # control for `make families`, which compares random ones
    alpha = layer.position_embedding.alpha.clone()
    layer.to(torch.bfloat16)
    assert torch.equal(layer.position_embedding.alpha, alpha)
    assert torch.equal(layer.rotary(torch.arange(9))[0], learned.to(torch.bfloat16))


@pytest.mark.parametrize("is_zero", [True, False])
def test_transformers_overwrites_the_padding_row_of_funnel(tmp_path: Path, is_zero: bool) -> None:
    """Ours is the row of the file, so both are equal if it is zero, as training leaves it."""
    saved = save_tiny("funnel", "masked", str(tmp_path), pad_token_id=5)
    if is_zero:
        with torch.no_grad():
            saved.get_input_embeddings().weight[5] = 0
        saved.save_pretrained(tmp_path)
    ids = torch.tensor([[7, 5, 8]])
    ours, theirs = inlayer.load(tmp_path).embeddings(ids), open_reference(type(saved), str(tmp_path), torch.float32)
    hidden = capture(theirs, input_ids=ids).hidden
    assert hidden is not None
    assert torch.equal(ours[:, ::2], hidden[:, ::2])
    assert torch.equal(ours, hidden) is is_zero

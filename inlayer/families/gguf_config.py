"""Converts the metadata of a GGUF file to the config.json fields that `describe` reads.

GGUF metadata -> [config] -> LayerSpec -> Embeddings, Head
- sizes come from tensors where possible, everything else from `{architecture}.*`
- a missing value is set to None, so a family's default is not used in its place
- float32 values become the shortest decimal with the same float32 value, the number in the original config.json
- Llama-3's scaled angles are stored as one divisor per channel pair (rope_freqs.weight), so they become LongRoPE with
  one list
Tested against real configs and transformers in tests/families/test_gguf_config.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlayer.errors import ConfigError
from inlayer.families.config_reader import short_repr
from inlayer.families.model_types import FAMILIES
from inlayer.families.rope import NO_ROTARY
from inlayer.families.rope_scaling_settings import MAX_SETTING
from inlayer.families.spec import FULL, SLIDING

# GGUF architecture -> the family with the same input layer. "llama" also covers Mistral, Mixtral, and SmolLM; "bert"
# also covers RoBERTa, because the conversion drops its first two position rows.
# `_find_family` distinguishes families that share an architecture.
SAME_NAME = (  # apart from "-" in place of "_"
    "afmoe", "apertus", "arcee", "bert", "bitnet", "bloom", "cohere2", "dbrx", "dots1", "ernie4_5", "ernie4_5-moe",
    "eurobert", "exaone-moe", "exaone4", "falcon", "falcon-h1", "gemma", "gemma2", "glm4", "gpt-oss", "gpt2", "granite",
    "hy_v3", "jais2", "jamba", "kimi-linear", "laguna", "lfm2", "llama", "mamba", "mamba2", "mellum", "minicpm3",
    "minimax-m2", "mistral4", "mpt", "nemotron", "nemotron_h", "nomic-bert", "olmo", "olmo2", "olmoe", "phi3", "qwen2",
    "qwen3", "seed_oss", "smollm3", "stablelm", "starcoder2", "t5",
)  # fmt: skip
ARCHITECTURES = {name: name.replace("-", "_") for name in SAME_NAME} | {
    "chatglm": "glm", "cohere2moe": "cohere2_moe", "command-r": "cohere", "deepseek2": "deepseek_v3",
    "deepseek32": "deepseek_v32", "deepseek4": "deepseek_v4", "gemma-embedding": "gemma3_text", "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "glm-dsa": "glm_moe_dsa", "glm4moe": "glm4_moe",
    "gptneox": "gpt_neox", "granitehybrid": "granitemoehybrid", "granitemoe": "granite",
    "hunyuan-dense": "hunyuan_v1_dense", "hunyuan-moe": "hunyuan_v1_moe", "jina-bert-v3": "jina_embeddings_v3",
    "lfm2moe": "lfm2_moe", "llama-embed": "llama", "llama4": "llama4_text", "mimo2": "mimo_v2_flash",
    "minimax-m3": "minimax_m3_vl_text", "mistral3": "ministral3", "modern-bert": "modernbert",
    "nemotron_h_moe": "nemotron_h", "nomic-bert-moe": "nomic_bert", "phi2": "phi", "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2_vl_text", "qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text", "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next", "qwen3vl": "qwen3_vl_text", "qwen3vlmoe": "qwen3_vl_moe_text",
    "starcoder": "gpt_bigcode", "t5encoder": "t5",
}  # fmt: skip

TABLE, HEAD, POSITIONS, TOKEN_TYPES = "token_embd.weight", "output.weight", "position_embd.weight", "token_types.weight"
PER_LAYER = "per_layer_token_embd.weight"
SCALED, SHORT, LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
ROPE_FACTORS = (SCALED, SHORT, LONG)
SECTIONS = "rope.dimension_sections"  # stored for four axes; text and images have three
SLIDING_LAYERS = "attention.sliding_window_pattern"  # true for each layer with sliding attention
KV_HEADS = "attention.head_count_kv"  # a list in hybrid models: 0 for a layer without attention
LAYER_TYPES = "attention.layer_types"  # the names of layer types
COMPRESSION = "attention.compress_ratios"  # DeepSeek-V4: 0 for a layer that is not compressed
ARRAYS = (SECTIONS, SLIDING_LAYERS, KV_HEADS, LAYER_TYPES, COMPRESSION)
NOT_ROTATED = 1e9  # Gemma-4 divides the angles of pairs that are not rotated by more than this


def config_from_gguf(
    metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], factors: Mapping[str, Sequence[float]]
) -> dict[str, Any] | None:
    """Return the config for a file with this metadata; None if there is no architecture or no table."""
    architecture = metadata.get("general.architecture")
    table = shapes.get(TABLE, ())
    if not isinstance(architecture, str) or not architecture or len(table) != 2:
        return None
    rows, width = table
    config: dict[str, Any] = {"vocab_size": rows, "hidden_size": width, "tie_word_embeddings": HEAD not in shapes}
    if architecture not in ARCHITECTURES:  # use only fields that every file has, without a family's defaults
        return {"model_type": f"{architecture} (GGUF)" if architecture in FAMILIES else architecture, **config}
    arch = _Architecture(metadata, architecture, shapes, factors)
    traits, padding = arch.traits, metadata.get("tokenizer.ggml.padding_token_id")
    config |= {
        "model_type": arch.family,
        "num_attention_heads": arch.get("attention.head_count"),
        "num_hidden_layers": arch.get("block_count"),
        # As in llama.cpp, an id outside the table means that there is no padding row.
        "pad_token_id": padding if type(padding) is int and padding < rows else None,
        "final_logit_softcapping": arch.get("final_logit_softcapping"),
        "layer_norm_eps": arch.get("attention.layer_norm_epsilon") or arch.get("attention.layer_norm_rms_epsilon"),
        "rms_norm_eps": arch.get("attention.layer_norm_rms_epsilon"),
        "embedding_multiplier": arch.get("embedding_scale"),
        # Cohere multiplies logits by this number, Granite divides by it.
        "logits_scaling" if arch.family.startswith("granite") else "logit_scale": arch.get("logit_scale"),
        "type_vocab_size": shapes.get(TOKEN_TYPES, (None,))[0],
        "hidden_size_per_layer_input": arch.get("embedding_length_per_layer_input"),
        "vocab_size_per_layer_input": shapes.get(PER_LAYER, (None,))[0],
        "relative_attention_num_buckets": arch.get("attention.relative_buckets_count"),
        "layer_types": _layer_types(arch),
    }
    if flag := traits.scale_flag:  # AFMoE's scale is always on in llama.cpp
        config[flag] = True
    if flag := traits.positions_flag:  # Granite's hybrids have no positions, but Bamba does
        config[flag] = "rope" if arch.get("rope.scaling.finetuned") else None
    if field := traits.streams_field:
        config[field] = arch.need("hyper_connection.count")
    if traits.positions == "learned" and POSITIONS in shapes:
        config["max_position_embeddings"] = shapes[POSITIONS][0]
    elif traits.positions != "none":
        config["max_position_embeddings"] = arch.need("context_length")
    if traits.positions == "rotary":
        config |= ROTARY_READERS.get(arch.family, _rotary)(arch)
    return config


class _Architecture:
    """The metadata of one architecture, by names without the architecture's prefix."""

    def __init__(
        self, metadata: Mapping[str, Any], name: str, shapes: Mapping[str, tuple[int, ...]],
        factors: Mapping[str, Sequence[float]],
    ) -> None:  # fmt: skip
        self._metadata, self.name, self.factors, self.width = metadata, name, factors, shapes[TABLE][1]
        self.family = self._find_family(has_token_types=TOKEN_TYPES in shapes)
        self.traits = FAMILIES[self.family]

    def get(self, name: str) -> Any:
        value = self._metadata.get(f"{self.name}.{name}")
        return _shortest(value) if isinstance(value, float) else value

    def need(self, name: str) -> int:
        value = self.get(name)
        if type(value) is not int or value < 1:
            raise ConfigError(f"its {self.name}.{name} is {short_repr(value)}; it must be a positive integer")
        return value

    def _find_family(self, *, has_token_types: bool) -> str:
        """Return the family. If several families share an architecture, other metadata distinguishes them."""
        if self.name == "bert" and not has_token_types:
            return "distilbert"
        if self.name == "olmo2" and self.get("attention.sliding_window"):
            return "olmo3"
        if self.name == "granitehybrid" and self.get("rope.scaling.finetuned") and self.get("ssm.state_size"):
            return "bamba"
        return ARCHITECTURES[self.name]


def _layer_types(arch: _Architecture) -> list[Any] | None:
    """Return the type of every layer, as far as the file specifies it; [] if layers differ in an unknown way."""
    if isinstance(pattern := arch.get(SLIDING_LAYERS), list):
        blocks, mtp = arch.need("block_count"), arch.get("nextn_predict_layers")  # the pattern may omit the latter
        if not blocks - (mtp if type(mtp) is int else 0) <= len(pattern) <= blocks:
            raise ConfigError(f"its {SLIDING_LAYERS} has {len(pattern)} entries, not one for each block")
        return [SLIDING if slides else FULL for slides in pattern]
    if isinstance(heads := arch.get(KV_HEADS), list) and 0 in heads:
        return [FULL if count else NO_ROTARY[0] for count in heads]
    if arch.family == "laguna" and arch.get("attention.sliding_window"):
        return arch.get(LAYER_TYPES) or []
    return None


def _shortest(value: float) -> float:
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return float(str(single)) if float(single) == value else value


def _rotary(arch: _Architecture) -> dict[str, Any]:
    config: dict[str, Any] = {}
    rope = {"rope_theta": arch.get("rope.freq_base") or 10_000.0, **_scaling(arch)}
    if "qk_rope_head_dim" in arch.traits.defaults:  # only the rotated part of the heads matters here
        config["qk_rope_head_dim"] = config["head_dim"] = arch.need("rope.dimension_count")
    else:
        stored = arch.get("attention.key_length") is not None
        head = arch.need("attention.key_length") if stored else arch.width // arch.need("attention.head_count")
        config["head_dim"], rotated = head, arch.get("rope.dimension_count")
        rope["partial_rotary_factor"] = _rotated_fraction(rotated if rotated is not None else head, head)
    if isinstance(sections := arch.get(SECTIONS), list):
        rope["mrope_section"] = sections[:3]
    if arch.family == "phi3":  # Phi-3 has the original length outside the rotary settings
        config["original_max_position_embeddings"] = arch.get("rope.scaling.original_context_length")
    if {FULL, SLIDING} <= {*arch.traits.theta_fields, *arch.traits.defaults.get("rope_parameters", ())}:
        rotated = arch.get("rope.dimension_count_swa")
        partial = _rotated_fraction(rotated, config["head_dim"]) if rotated else rope.get("partial_rotary_factor")
        return config | {"rope_parameters": {FULL: rope, SLIDING: _sliding(arch) | {"partial_rotary_factor": partial}}}
    return config | {"rope_parameters": rope}


def _sliding(arch: _Architecture) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": arch.get("rope.freq_base_swa") or 10_000.0}


def _gemma4_rotary(arch: _Architecture) -> dict[str, Any]:
    """Return Gemma-4's settings: full-attention layers have wider heads and rotate only the pairs with divisor 1."""
    head, divisors = arch.need("attention.key_length"), list(arch.factors.get(SCALED, ()))
    if any(1 != divisor < NOT_ROTATED for divisor in divisors) or len(divisors) not in (0, head // 2):
        found = short_repr(divisors)
        raise ConfigError(f"its {SCALED} is {found}; expected {head // 2} divisors, each 1 or very large")
    full = {
        "rope_type": "proportional",
        "rope_theta": arch.get("rope.freq_base") or 1e6,
        "partial_rotary_factor": _rotated_fraction(2 * divisors.count(1.0) if divisors else head, head),
    }
    return {
        "head_dim": arch.get("attention.key_length_swa") or head,
        "global_head_dim": head,
        "rope_parameters": {FULL: full, SLIDING: _sliding(arch)},
    }


def _deepseek_v4_rotary(arch: _Architecture) -> dict[str, Any]:
    """Return DeepSeek-V4's settings: compressed layers have their own base, and only they are scaled."""
    return {
        "head_dim": arch.need("attention.key_length"),
        "qk_rope_head_dim": arch.need("rope.dimension_count"),
        "rope_theta": arch.get("rope.freq_base"),
        "compress_rope_theta": arch.get("attention.compress_rope_freq_base"),
        "compress_ratios": arch.get(COMPRESSION),
        "rope_scaling": _scaling(arch),
    }


ROTARY_READERS = {"gemma4_text": _gemma4_rotary, "deepseek_v4": _deepseek_v4_rotary}


def _rotated_fraction(rotated: object, head: object) -> float:
    """Return the rotated fraction of a head, rounded so that fraction * head gives back the number of channels."""
    if type(rotated) is not int or type(head) is not int or not 2 <= rotated <= head or rotated % 2:
        channels = f"{short_repr(rotated)} of a head's {short_repr(head)} channels"
        raise ConfigError(f"it rotates {channels}; expected an even number in 2..{short_repr(head)}")
    fraction = rotated / head
    return fraction if int(fraction * head) == rotated else math.nextafter(fraction, 1.0)


def _scaling(arch: _Architecture) -> dict[str, Any]:
    kind, factors = arch.get("rope.scaling.type"), arch.factors
    original = {"original_max_position_embeddings": arch.get("rope.scaling.original_context_length") or None}
    if SHORT in factors and LONG in factors:
        divisors = {"short_factor": list(factors[SHORT]), "long_factor": list(factors[LONG])}
        return {"rope_type": "longrope", **divisors, **original}
    if any(factor != 1 for factor in factors.get(SCALED, ())):
        divisors = {key: list(factors[SCALED]) for key in ("short_factor", "long_factor")}
        return {"rope_type": "longrope", **divisors, "attention_factor": 1.0}
    factor = arch.get("rope.scaling.factor")
    if kind in (None, "none"):
        kind, factor = "linear", arch.get("rope.scale_linear") or 1  # an old key
    if kind == "linear" and factor == 1:
        return {"rope_type": "default"}
    if isinstance(factor, (int, float)) and not 0 < factor < math.inf:
        raise ConfigError(f"its {arch.name}.rope.scaling.factor is {short_repr(factor)}; it must be positive")
    return {"rope_type": kind, "factor": factor, **original, **(_yarn(arch) if kind == "yarn" else {})}


def _yarn(arch: _Architecture) -> dict[str, Any]:
    settings = {name: arch.get(f"rope.scaling.yarn_{name}") for name in ("beta_fast", "beta_slow")}
    settings["truncate"] = arch.family != "gpt_oss"
    multiplier = arch.get(name := "rope.scaling.yarn_log_multiplier")
    if multiplier is None:
        return settings
    if type(multiplier) not in (int, float) or not abs(multiplier) < MAX_SETTING:
        raise ConfigError(f"its {arch.name}.{name} is {short_repr(multiplier)}; it must be a number")
    # DeepSeek stores 0.1 x mscale_all_dim. It does not store mscale, because both are equal in all of these models
    mscale = multiplier if arch.family == "ministral3" else _shortest(float(np.float32(multiplier * 10)))
    return settings | {"mscale": mscale, "mscale_all_dim": mscale}

"""A tiny model of any type in transformers: one recipe shrinks every config.

Sizes are recognized by the names of their fields, so a new type usually needs nothing here. `OVERRIDES` has what
a type's own checks require in addition.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

CAUSAL, MASKED = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), dict(MODEL_FOR_MASKED_LM_MAPPING_NAMES)
# Other types that are supported: encoder-decoder models and models with images
OTHERS = {"t5": "seq2seq", "mt5": "seq2seq", "umt5": "seq2seq", "longt5": "seq2seq", "qwen2_vl": "image-text",
          "qwen2_5_vl": "image-text", "qwen3_vl": "image-text", "qwen3_vl_moe": "image-text",
          "muse_spark": "image-text", "mistral_large4": "image-text", "mistral4": "image-text", "t5gemma": "seq2seq",
          "embedding_gemma2_text": "encoder"}  # fmt: skip

LAYERS, VOCAB = 4, 99
DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
# Traits that defaults switch off, so the comparison covers them.
SWITCHED_ON = {
    "scale_embedding": True, "embedding_multiplier": 12.0, "mup_enabled": True, "rescale_embeddings": True,
    "logits_scaling": 3.0, "lm_head_multiplier": 0.5, "output_multiplier": 0.25,
}  # fmt: skip
MISSING = {"head_dim": 16, "num_key_value_heads": 4, "moe_intermediate_size": 32}  # where None is not accepted
# The first pattern that matches a field's whole name decides; a value that is already smaller is kept.
SIZES: list[tuple[str, int]] = [
    (r"vocab_size|.*_vocab_size|vocab_size_.*", 99),
    (r"num_hidden_layers|n_layers?|num_layers|(encoder|decoder)_layers|num_(encoder|decoder)_layers|depth", LAYERS),
    (r".*layers", 2),
    (r".*(kv|key_value)_heads|.*_n_head_kv|num_kv.*", 2),
    (r".*heads|n_head|num_head|.*_n_heads", 4),
    (r".*head_dim|d_kv|d_head|.*head_size|kv_channels", 16),
    (r"rotary_dim", 8),
    (r".*lora_rank", 16),
    (r".*(hidden_size|d_model|n_embd|n_embed|embed_dim|emb_dim|embedding_dim|width)|dim|hidden_dim", 64),
    (r".*(intermediate_size|ffn_dim|d_ff|n_inner|inner_dim|ffn_hidden_size|mlp_dim|ff_dim|d_inner|dim_ff)", 32),
    (r".*(experts_per_tok|top_?k|k_experts|moe_k)|num_selected_experts", 2),
    (r".*experts?|moe_num_.*", 4),
    (r".*(positions?|position_embeddings|seq_len|seq_length|max_length|context_length|n_ctx)", 64),
    (r".*(mamba|ssm|conv)_(d_)?(state|n_groups|groups)|.*state_size", 8),
    (r".*(chunk_size|block_size|window|sliding_window|attention_window)", 8),
    (r"image_size|patch_size|.*_(image|patch)_size", 16),
]


def shrink(raw: dict[str, Any]) -> dict[str, Any]:
    """A config's fields with small sizes, also in nested configs; lists with one entry per layer are cut."""
    depth = next((raw[name] for name in DEPTHS if type(raw.get(name)) is int), None)
    small: dict[str, Any] = {}
    for name, value in raw.items():
        if name == "per_layer_config":
            small[name] = None
        elif name in SWITCHED_ON:
            small[name] = SWITCHED_ON[name]
        elif isinstance(value, dict):
            small[name] = shrink(value) if name.endswith(("config", "coder")) else copy.deepcopy(value)
        elif isinstance(value, list) and (len(value) == depth or ("layer" in name and len(value) > LAYERS)):
            small[name] = value[: LAYERS - 1] + value[-1:]  # the last layer is often special
        elif re.search("token_(id|index)$", name) and isinstance(value, int) and value >= VOCAB:
            small[name] = 1 if name == "pad_token_id" else 3
        elif re.search("token_id$", name) and isinstance(value, list):
            small[name] = [min(one, 3) for one in value]
        elif value is None and name in MISSING:
            small[name] = MISSING[name]
        elif type(value) is int:
            size = next((size for pattern, size in SIZES if re.fullmatch(pattern, name)), value)
            small[name] = min(value, size) if value > 0 else value
        else:
            small[name] = value
    return small


def merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two configs merged, nested ones included; the second wins."""
    both = {name: merge(one[name], value) if isinstance(value, dict) and isinstance(one.get(name), dict) else value
            for name, value in other.items()}  # fmt: skip
    return one | both


MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32}
QWEN4 = {
    "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
    "indexer_compress_ratio": 2, "ple_layer_ids": [1, 3], "ngram_vocab_size_base": 97, "heads_per_ngram": 4,
    "split_ngram_parts": 3, "eos_token_id": 2, "number_of_conv_states": 3,
    "layer_types": ["linear_attention", "indexed_attention"] * 2,
}  # fmt: skip
HYBRID = {"layer_types": ["linear_attention", "full_attention"] * 2}
GEMMA4 = {
    "per_layer_config": {"1": {"head_dim": 32}, "3": {"head_dim": 32}},
    "num_kv_shared_layers": 0,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}}
OVERRIDES: dict[str, dict[str, Any]] = {
    "qwen2_vl": {"text_config": SECTIONS},
    "qwen2_5_vl": {"text_config": SECTIONS},
    "dbrx": {"attn_config": {"rope_theta": 1e4}},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "kimi_linear": HYBRID,
    "mimo_v2_flash": {"head_dim": 32},
    "qwen4_exp_text": QWEN4,
    "qwen4_exp": {"text_config": QWEN4},
    "blt": {"use_cache": False, "patch_in_forward": False, "encoder_hash_byte_group_vocab": 97},
    "bamba": MAMBA | {"attn_layer_indices": [1, 3]},
    "esm": {"vocab_size": VOCAB, "pad_token_id": 1, "mask_token_id": 3},
    "esmc": {"num_key_value_heads": 4, "vocab_size": VOCAB},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 128},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "embedding_gemma2_text": {"per_layer_config": GEMMA4["per_layer_config"], "layer_types": GEMMA4["layer_types"]},
    "gemma4_text": GEMMA4,
    "gemma4_unified_text": GEMMA4,
    "gemma4": {"text_config": GEMMA4},
    "gemma4_unified": {"text_config": GEMMA4},
    "granitemoehybrid": MAMBA | {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8},
    "mobilebert": {"embedding_size": 64},
    "neomme": {"per_layer_config": None},
    "squeezebert": {"embedding_size": 64},
    "t5gemma": {"encoder": {"hidden_size": 48}, "decoder": {"hidden_size": 48}},  # a scale that bfloat16 rounds
    "mistral_large4": {"text_config": {"kv_source_layers": [0, 1, 2, 3]}},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layer_types": ["mamba", "hybrid"] * 2},
    "zamba2": {"layer_types": ["mamba", "hybrid"] * 2},
}


def tiny_config(model_type: str, kind: str = "causal", **settings: Any) -> PreTrainedConfig:
    """The config of a tiny model of this type."""
    maker = CONFIG_MAPPING[model_type]
    raw = merge(merge(shrink(maker().to_dict()), OVERRIDES.get(model_type, {})), settings)
    raw.pop("transformers_version", None)
    if kind == "causal" and raw.get("is_decoder") is False:
        raw["is_decoder"] = True
    return maker.from_dict(copy.deepcopy(raw))


def build(kind: str, config: PreTrainedConfig) -> Any:
    """The model of a config, with its language-model head."""
    makers = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM,
              "image-text": AutoModelForImageTextToText, "encoder": AutoModel}  # fmt: skip
    return makers[kind].from_config(config, attn_implementation="eager")

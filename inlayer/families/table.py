"""The table of families: how the input layer and head of each model type differ from the others.

config.json -> [Family] -> LayerSpec
An entry has the traits that set a model type apart, and its default values, because published files rely on them
(Gemma-3's nested text_config has neither its vocabulary size nor its number of heads).
Tested against the defaults of transformers' config classes in tests/families/test_defaults.py, and the resulting layers
against transformers' models in tests/families/test_parity.py. docs/families.md is generated from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = ["FAMILIES", "NESTED", "Family"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """The traits of one model type's input layer and head."""

    defaults: dict[str, Any]
    positions: Literal["none", "learned", "rotary"] = "rotary"
    pads: bool = True  # the table has a padding row: pad_token_id
    padding_idx: int | None = None  # this row, whatever the config has
    # learned positions
    position_offset: int = 0
    position_ids_by: Literal["order", "ids", "mask"] = "order"
    # rotary positions
    pairing: Literal["half", "interleaved"] = "half"
    layout: Literal["half", "interleaved", "single"] | None = None
    partial: bool = False  # a fraction of each head may be rotated
    float32_tables: bool = False  # cos and sin stay float32 in a bfloat16 model
    rope_fields: tuple[str, str] = ("rope_theta", "partial_rotary_factor")  # the base, and the rotated fraction
    rope_names: Mapping[str, str] = field(default_factory=dict)  # old names of rope types
    # around the sum
    scaled: Literal["no", "sqrt", "multiplier"] = "no"  # sqrt: rows only; multiplier: rows and inputs_embeds
    normed: bool = False
    token_types: bool = False
    project: Literal["rows", "sum"] | None = None  # rows: before positions (OPT); sum: after the norm (ALBERT)
    projects_equal_widths: bool = False  # also if rows are as wide as hidden states
    dropout: str | None = None  # the field with the dropout rate
    # head
    head_bias: bool = False  # masked-language heads have one
    head_input_scaled: bool = False  # T5 and UMT5 when tied: hidden states times 1 / sqrt(width)


def _sizes(vocab: int, width: int, heads: int, positions: int | None = None, **others: Any) -> dict[str, Any]:
    sizes = {"vocab_size": vocab, "hidden_size": width, "num_attention_heads": heads}
    return sizes | ({"max_position_embeddings": positions} if positions else {}) | others


# fmt: off
TIED = {"tie_word_embeddings": True}
ENCODER = {"pad_token_id": 0, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, **TIED}
GPT_OSS_ROPE = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096}

_bert = Family(defaults=_sizes(30522, 768, 12, 512, **ENCODER), positions="learned", normed=True, token_types=True,
               dropout="hidden_dropout_prob", head_bias=True)
_roberta = replace(_bert, defaults=_sizes(50265, 768, 12, 512, **ENCODER | {"pad_token_id": 1}), position_ids_by="ids")
_xlm_roberta = replace(_roberta, defaults=_roberta.defaults | {"vocab_size": 30522})
_gpt2 = Family(defaults=_sizes(50257, 768, 12, 1024, embd_pdrop=0.1, **TIED), positions="learned", pads=False,
               dropout="embd_pdrop")
_t5 = Family(defaults=_sizes(32128, 512, 8, dropout_rate=0.1, initializer_range=1.0, **TIED), positions="none",
             pads=False, dropout="dropout_rate", head_input_scaled=True)
_umt5 = replace(_t5, defaults=_t5.defaults | {"vocab_size": 250112, "num_attention_heads": 6})
_mistral = Family(defaults=_sizes(32000, 4096, 32, 131072))
_olmo = Family(defaults=_sizes(50304, 4096, 32, 2048, pad_token_id=1), float32_tables=True)
_qwen2 = Family(defaults=_sizes(151936, 4096, 32, 32768))
_gemma = Family(defaults=_sizes(256000, 3072, 16, 8192, head_dim=256, pad_token_id=0, **TIED), scaled="sqrt")
_glm = Family(defaults=_sizes(151552, 4096, 32, 131072, head_dim=128, pad_token_id=151329, partial_rotary_factor=0.5),
              pairing="interleaved", layout="half", partial=True)
_cohere = Family(defaults=_sizes(256000, 8192, 64, 8192, pad_token_id=0, rope_theta=5e5, logit_scale=0.0625, **TIED),
                 pairing="interleaved")
_deepseek_v3 = Family(defaults=_sizes(129280, 7168, 128, 4096, qk_rope_head_dim=64), pairing="interleaved",
                      layout="half")

FAMILIES: dict[str, Family] = {
    "albert": replace(_bert, project="sum", projects_equal_widths=True, defaults=_sizes(
        30000, 4096, 64, 512, embedding_size=128, **ENCODER | {"hidden_dropout_prob": 0.0})),
    "arcee": Family(defaults=_sizes(32000, 2560, 32, 4096)),
    "bert": _bert,
    "bloom": Family(defaults=_sizes(250880, 64, 8, layer_norm_epsilon=1e-5, **TIED), positions="none", pads=False,
                    normed=True),
    "camembert": _xlm_roberta,
    "cohere": _cohere,
    "cohere2": replace(_cohere, defaults=_cohere.defaults | {"rope_theta": 1e4}),
    "deepseek_v3": _deepseek_v3,
    "distilbert": replace(_bert, token_types=False, dropout="dropout", defaults=_sizes(
        30522, 768, 12, 512, pad_token_id=0, layer_norm_eps=1e-12, dropout=0.1, **TIED)),
    "electra": replace(_bert, defaults=_sizes(30522, 256, 4, 512, embedding_size=128, **ENCODER), project="sum"),
    "gemma": _gemma,
    "gemma2": replace(_gemma, defaults=_sizes(
        256000, 2304, 8, 8192, head_dim=256, pad_token_id=0, final_logit_softcapping=30.0, **TIED)),
    "gemma3_text": replace(_gemma, defaults=_sizes(
        262208, 2304, 8, 131072, head_dim=256, pad_token_id=0, rope_theta=1e6, rope_local_base_freq=1e4, **TIED)),
    "glm": _glm,
    "glm4": _glm,
    "glm4_moe": Family(defaults=_sizes(151552, 4096, 96, 131072, partial_rotary_factor=0.5), partial=True),
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt2,
    "gpt_neo": replace(_gpt2, defaults=_sizes(50257, 2048, 16, 2048, embed_dropout=0.0, **TIED),
                       dropout="embed_dropout"),
    "gpt_neox": Family(defaults=_sizes(50432, 6144, 64, 2048, rotary_pct=0.25), pads=False, partial=True,
                       rope_fields=("rotary_emb_base", "rotary_pct"), dropout="hidden_dropout"),
    "gpt_oss": Family(layout="single", defaults=_sizes(
        201088, 2880, 64, 131072, head_dim=64, rope_theta=150000.0, rope_parameters=GPT_OSS_ROPE)),
    "granite": Family(defaults=_sizes(32000, 4096, 32, 2048, embedding_multiplier=1.0, logits_scaling=1.0),
                      scaled="multiplier"),
    "helium": Family(defaults=_sizes(48000, 2560, 20, 4096, head_dim=128, pad_token_id=3, rope_theta=1e5),
                     pairing="interleaved", layout="half"),
    "kimi_k2": replace(_deepseek_v3, defaults=_deepseek_v3.defaults | {"vocab_size": 163840}),
    "llama": Family(defaults=_sizes(32000, 4096, 32, 2048)),
    "mistral": _mistral,
    "mixtral": replace(_mistral, defaults=_mistral.defaults | {"rope_theta": 1e6}),
    "mpnet": replace(_roberta, defaults=_roberta.defaults | {"vocab_size": 30527}, token_types=False, padding_idx=1),
    "mt5": replace(_umt5, head_input_scaled=False),
    "nemotron": Family(defaults=_sizes(256000, 6144, 48, 4096, partial_rotary_factor=0.5, initializer_range=0.0134),
                       partial=True),
    "olmo": _olmo,
    "olmo2": _olmo,
    "opt": Family(defaults=_sizes(50272, 768, 12, 2048, pad_token_id=1, **TIED), positions="learned",
                  position_offset=2, position_ids_by="mask", project="rows"),
    "phi": Family(defaults=_sizes(51200, 2048, 32, 2048, partial_rotary_factor=0.5), partial=True,
                  dropout="embd_pdrop", head_bias=True),
    "phi3": Family(defaults=_sizes(32064, 3072, 32, 4096, pad_token_id=32000, original_max_position_embeddings=4096),
                   partial=True, rope_names={"su": "longrope", "yarn": "longrope"}),
    "qwen2": _qwen2,
    "qwen2_moe": Family(defaults=_sizes(151936, 2048, 16, 32768)),
    "qwen3": replace(_qwen2, defaults=_qwen2.defaults | {"head_dim": 128}),
    "qwen3_moe": Family(defaults=_sizes(151936, 2048, 32, 32768)),
    "roberta": _roberta,
    "seed_oss": Family(defaults=_sizes(155136, 4096, 80, 524288, head_dim=128, pad_token_id=1)),
    "smollm3": Family(defaults=_sizes(128256, 2048, 16, 32768, pad_token_id=128004, rope_theta=2e6, **TIED)),
    "stablelm": Family(defaults=_sizes(50304, 2560, 32, 4096, partial_rotary_factor=0.25), partial=True),
    "starcoder2": Family(defaults=_sizes(49152, 3072, 24, 4096, initializer_range=0.018042, embedding_dropout=0.0,
                                         **TIED), dropout="embedding_dropout"),
    "t5": _t5,
    "umt5": _umt5,
    "xlm-roberta": _xlm_roberta,
}
# fmt: on

# Model types with a nested text config, and the type of that config if it has none of its own.
NESTED: dict[str, str] = {"gemma3": "gemma3_text", "kimi_k25": "deepseek_v3", "llava": "llama", "mistral3": "mistral"}

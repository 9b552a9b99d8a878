"""The table of families: the traits of each model type's input layer and head.

config.json -> [Family] -> LayerSpec
An entry has the traits that set a model type apart, and its default values, because published files rely on them
(Gemma-3's nested text_config has neither vocabulary size nor number of heads). A misspelled trait is an error at once.
Tested in tests/families/, also that every default is read, because a misspelled one would have no effect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inlayer.families.family import Family
from inlayer.families.spec import FULL, MAX_LAYERS, SLIDING

SIZES = ("vocab_size", "hidden_size", "num_attention_heads", "max_position_embeddings")


def _rope(theta: float, partial: float | None = None) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": theta}
    return rope if partial is None else rope | {"partial_rotary_factor": partial}


def _config(*sizes: int, **fields: Any) -> dict[str, Any]:
    """Default values of config fields: the `SIZES`, in order, and others by name."""
    return dict(zip(SIZES, sizes, strict=False)) | fields


def _like(base: Family, config: dict[str, Any] | None = None, **traits: Any) -> Family:
    """A family like `base`, but with these defaults of its `config` and these traits."""
    return replace(base, defaults=base.defaults | (config or {}), **traits)


# fmt: off
ALTERNATING = (2**16, 2**16)  # alternating sections of two position axes over a whole head; larger than any head
TIED = {"tie_word_embeddings": True}
PER_LAYER = {"vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256, "rms_norm_eps": 1e-6}
ENCODER = {"pad_token_id": 0, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, **TIED}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192, "rope_theta": 1.2e7}
GPT_OSS_ROPE = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096}
MISTRAL_ROPE = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}

_plain, _none = Family(defaults={}), Family(defaults={}, positions="none")
_bert = _like(_plain, _config(30522, 768, 12, 512, **ENCODER), positions="learned", norm="layernorm", token_types=True,
    dropout_field="hidden_dropout_prob", head_bias=True)
_roberta = _like(_bert, _config(50265, 768, 12, 512, pad_token_id=1), position_ids_by="ids")
_xlm_roberta = _like(_roberta, _config(vocab_size=30522))
_gpt2 = _like(_plain, _config(50257, 768, 12, 1024, embd_pdrop=0.1, **TIED), positions="learned", padding_row=None,
    dropout_field="embd_pdrop")
_t5 = _like(_plain, _config(32128, 512, 8, dropout_rate=0.1, initializer_range=1.0, **TIED), positions="none",
    padding_row=None, dropout_field="dropout_rate", head_input_scaled=True, relative="t5")
_umt5 = _like(_t5, _config(vocab_size=250112, num_attention_heads=6))
_mistral = _like(_plain, _config(32000, 4096, 32, 131072))
_olmo = _like(_plain, _config(50304, 4096, 32, 2048, pad_token_id=1), keep_float32=True)
_qwen2 = _like(_plain, _config(151936, 4096, 32, 32768))
_TWO_BASES = {FULL: "rope_theta", SLIDING: "rope_local_base_freq"}
_gemma = _like(_plain, _config(256000, 3072, 16, 8192, head_dim=256, pad_token_id=0, **TIED), scale_at="rows",
    round_scale=True)
_gemma2 = _like(_gemma, _config(256000, 2304, 8, 8192, final_logit_softcapping=30.0))
_glm = _like(_plain, _config(151552, 4096, 32, 131072, head_dim=128, pad_token_id=151329, partial_rotary_factor=0.5),
    pairing="interleaved", layout="half", has_partial_rotary=True)
_cohere = _like(_plain, _config(256000, 8192, 64, 8192, pad_token_id=0, rope_theta=5e5, logit_scale=0.0625, **TIED),
    pairing="interleaved", rotate_in_float32=True)
_deepseek_v3 = _like(_plain, _config(129280, 7168, 128, 4096, qk_rope_head_dim=64), pairing="interleaved",
    layout="half")

_partial = _like(_plain, has_partial_rotary=True, rotary_dim_field="rotary_dim")
_mamba = _like(_none, _config(50280, 768, 1, pad_token_id=0, initializer_range=0.1, **TIED))
_hunyuan_v1 = _like(_plain, _config(290943, 4096, 32, 2048, pad_token_id=0))
_hybrid = _like(_partial, full_attention_interval=4, default_layer_type="linear_attention")
_gemma4 = _like(_gemma, _config(global_head_dim=512,
    rope_parameters={SLIDING: _rope(1e4), FULL: _rope(1e6, 0.25) | {"rope_type": "proportional"}}),
    has_global_head_dim=True, full_attention_interval=6, last_layer_is_full=True)
_deepseek_v4 = _like(_plain, _config(129280, 4096, 64, 1048576, head_dim=512, qk_rope_head_dim=64, hc_mult=4,
    compress_rope_theta=1.6e5), pairing="interleaved", layout="single", has_partial_rotary=True,
    head_dim_fields=("head_dim",), rotary_dim_field="qk_rope_head_dim", streams_field="hc_mult",
    scaled_layers=("compress",), theta_fields={"main": "rope_theta", "compress": "compress_rope_theta"})
_deepseek_v41 = _like(_deepseek_v4, _config(engram_pad_token_id=2), ngrams="engram")
_SLIDING = {"layers_without_rotary": (FULL,)}  # only layers with sliding attention are rotated
_granite = _like(_plain, _config(32000, 4096, 32, 2048), scale_at="inputs", scale_field="embedding_multiplier")
_gptj = _like(_plain, _config(50400, 4096, 16, 2048, embd_pdrop=0.0, rotary_dim=64), padding_row=None,
    pairing="interleaved", layout="single", has_partial_rotary=True, rotary_dim_field="rotary_dim",
    dropout_field="embd_pdrop", head_bias=True)
_qwen2_vl = _like(_plain, _config(152064, 8192, 64, 32768, rope_theta=1e6), sections="chunked",
    default_sections=(16, 24, 24))
_qwen3_vl = _like(_plain, _config(rope_theta=5e5), sections="interleaved", default_sections=(24, 20, 20))
_qwen3_5 = _like(_hybrid, _config(248320, 4096, 16, 32768, head_dim=256, partial_rotary_factor=0.25),
    sections="interleaved")
_complex = _like(_plain, pairing="interleaved", layout="complex", keep_float32=True)
_ernie4_5 = _like(_plain, _config(pad_token_id=0, rope_theta=5e5, **TIED), pairing="interleaved", layout="half",
    keep_float32=True)
_deberta = _like(_bert, _config(50265, 768, 12, 512, position_biased_input=True, type_vocab_size=0,
    layer_norm_eps=1e-7), positions_flag="position_biased_input", positions_first=True, norm="layernorm_fp32",
    mask_padding=True, relative="deberta")
_rotary_bert = _like(_bert, positions="rotary")
_xlm = _like(_bert, _config(30145, 2048, 16, 512, pad_token_id=2, dropout=0.1), token_types=False, mask_padding="ids",
    dropout_field="dropout")
_modernbert = _like(_plain, _config(50368, 768, 12, 8192, pad_token_id=50283, global_rope_theta=1.6e5,
    local_rope_theta=1e4, **TIED), theta_fields={FULL: "global_rope_theta", SLIDING: "local_rope_theta"},
    scaled_layers=(FULL, SLIDING), norm="layernorm_no_bias", dropout_field="embedding_dropout", head_bias=True,
    full_attention_interval=3, first_layer_is_full=True, rotate_in_float32=True)
_longcat = _like(_deepseek_v3, _config(131072, 6144, 64, 131072, rope_theta=10e6, eos_token_id=2), ngrams="longcat")
# Encoder and decoder share one table and have their own positions; the encoder's are used, if there is one.
_bart = _like(_plain, _config(50265, 1024, 16, 1024, pad_token_id=1, dropout=0.1, **TIED), positions="learned",
    position_offset=2, norm="layernorm", dropout_field="dropout", scale_at="rows", scale_flag="scale_embedding")

GENERIC = _partial  # assumptions about an unknown type (families/generic.py)

FAMILIES: dict[str, Family] = {
    "afmoe": _like(_plain, _config(200192, 2048, 16, 16384, head_dim=128), scale_at="inputs", scale_flag="mup_enabled",
        full_attention_interval=4, **_SLIDING),
    "albert": _like(_bert, _config(30000, 4096, 64, 512, embedding_size=128, hidden_dropout_prob=0.0),
        projection_at="sum", projects_equal_widths=True),
    "apertus": _like(_plain, _config(131072, 4096, 32, 65536, pad_token_id=3, rope_parameters=LLAMA3_ROPE)),
    "arcee": _like(_plain, _config(32000, 2560, 32, 4096)),
    "aria_text": _like(_plain, _config(32000, 4096, 32, 2048, pad_token_id=2)),
    "axk1": _like(_deepseek_v3, _config(163840, 7168, 64, 32768)),
    "axk2": _like(_deepseek_v3, _config(163840, 2048, 32, 131072, qk_rope_head_dim=32)),
    "bailing_hybrid": _like(_deepseek_v3, _config(157184, 2560, 32, 262144, pad_token_id=156892, rope_theta=6e6)),
    "bamba": _like(_partial, _config(128000, 4096, 32, 262144, pad_token_id=0, partial_rotary_factor=0.5)),
    "bart": _bart, "mbart": _bart,
    "beam": _like(_olmo, _config(151936, 5120, 48, 8192, head_dim=128, pad_token_id=None, final_logit_softcapping=30.0,
        rope_parameters={SLIDING: _rope(1e4), FULL: None})),
    "bert": _bert, "ernie": _bert, "roberta": _roberta, "roberta-prelayernorm": _roberta, "xlm-roberta": _xlm_roberta,
    "camembert": _xlm_roberta, "data2vec-text": _xlm_roberta, "xmod": _xlm_roberta,
    "bert-generation": _like(_bert, _config(50358, 1024, 16, 512), token_types=False),
    "big_bird": _like(_bert, _config(50358, 768, 12, 4096), scale_at="inputs", scale_flag="rescale_embeddings"),
    "bigbird_pegasus": _like(_bart, _config(96103, 1024, 16, 4096, pad_token_id=0, scale_embedding=True),
        position_offset=0, norm=None, untied_classes=("BigBirdPegasusForCausalLM",)),
    "biogpt": _like(_bart, _config(42384, 1024, 16, 1024, layer_norm_eps=1e-12, hidden_dropout_prob=0.1, dropout=None,
        scale_embedding=True), norm=None, dropout_field="hidden_dropout_prob"),
    "bitnet": _like(_plain, _config(128256, 2560, 20, 2048, rope_theta=5e5)),
    "blenderbot": _like(_bart, _config(8008, 2560, 32, 128, pad_token_id=0), position_offset=0, norm=None),
    "blt": _like(_plain, _config(260, 1024, 16, 24576, rope_theta=5e5, dropout=0.0,
        encoder_hash_byte_group_vocab=500002, encoder_hash_byte_group_nb_functions=1,
        encoder_hash_byte_group_size=[3, 4, 5, 6, 7, 8]), dropout_field="dropout", padding_row=None, ngrams="blt",
        pairing="interleaved"),
    "bloom": _like(_plain, _config(250880, 64, 8, layer_norm_epsilon=1e-5, **TIED), positions="none", padding_row=None,
        norm="layernorm", relative="alibi"),
    "codegen": _gptj, "gptj": _gptj, "cohere": _cohere,
    "cohere2": _like(_cohere, _config(256000, 8192, 64, 8192, rope_theta=1e4), **_SLIDING, full_attention_interval=4),
    "cohere2_moe": _like(_cohere, _config(256000, 8192, 64, 8192, head_dim=128, rope_theta=1e4), **_SLIDING),
    "cohere_compass_text": _like(_plain, _config(256000, 8192, 64, 8192, pad_token_id=0, **TIED),
        sections="interleaved"),
    "convbert": _like(_bert, _config(30522, 768, 12, 512, pad_token_id=1, embedding_size=768), projection_at="sum",
        positions_first=True),
    "ctrl": _like(_gpt2, _config(246534, 1280, 16, 256, layer_norm_epsilon=1e-6), positions="sinusoidal",
        scale_at="inputs", head_bias=True),
    "cwm": _like(_plain, _config(128256, 6144, 48, 131072, head_dim=128,
        rope_parameters=LLAMA3_ROPE | {"factor": 16.0, "rope_theta": 1e6})),
    "dbrx": _like(_plain, _config(32000, 2048, 16, 2048)),
    "deberta": _deberta,
    "deberta-v2": _like(_deberta, _config(128100, 1536, 24, 512), norm="layernorm"),
    "deepseek_v2": _like(_complex, _config(102400, 4096, 32, 2048, qk_rope_head_dim=64)),
    "deepseek_v3": _deepseek_v3,
    "deepseek_v32": _like(_deepseek_v3, _config(129280, 7168, 128, 163840)),
    "deepseek_v4": _deepseek_v4, "deepseek_v41": _deepseek_v41, "deepseek_v41_text": _deepseek_v41,
    "diffllama": _like(_plain, _config(32000, 2048, 32, 2048)),
    "distilbert": _like(_bert, _config(30522, 768, 12, 512, dropout=0.1), token_types=False, dropout_field="dropout"),
    "doge": _like(_plain, _config(32768, 1024, 8, 2048)),
    "dots1": _like(_plain, _config(152064, 4608, 32, 2048)),
    "electra": _like(_bert, _config(30522, 256, 4, 512, embedding_size=128), projection_at="sum"),
    "embedding_gemma2_text": _like(_gemma4, _config(262144, 512, 4, 262144, num_hidden_layers=24,
        hidden_size_per_layer_input=512, rms_norm_eps=1e-6, rope_parameters={SLIDING: _rope(1e4), FULL: _rope(1e6)},
        tie_word_embeddings=False), per_layer="projected"),
    "emu3_text_model": _like(_plain, _config(184622, 4096, 32, 9216, pad_token_id=151643, rope_theta=1e6)),
    "ernie4_5": _like(_ernie4_5, _config(103424, 1024, 16, 131072, head_dim=128)),
    "ernie4_5_moe": _like(_ernie4_5, _config(103424, 2560, 20, 131072)),
    "esmc": _like(_plain, _config(64, 2560, 40, 2048, pad_token_id=1), head_bias=True),
    "eurobert": _like(_plain, _config(128256, 768, 12, 8192, pad_token_id=128001)),
    "exaone4": _like(_plain, _config(102400, 4096, 32, 2048), **_SLIDING, full_attention_interval=4),
    "exaone_moe": _like(_plain, _config(102400, 4096, 32, 2048, pad_token_id=0), **_SLIDING, full_attention_interval=4),
    "falcon": _like(_plain, _config(65024, 4544, 71, 2048, **TIED), alibi_flag="alibi", relative="alibi_bf16"),
    "falcon_h1": _like(_plain, _config(128000, 4096, 32, 8192, pad_token_id=0), scale_at="rows",
        scale_field="embedding_multiplier"),
    "flaubert": _xlm,
    "flex_olmo": _like(_olmo, _config(100352, 4096, 32, 4096, pad_token_id=100277, rope_theta=5e5)),
    "flint": _like(_plain, _config(150144, 2048, 32, 262144, head_dim=128), **_SLIDING),
    "fnet": _like(_bert, _config(32000, 768, 1, 512, pad_token_id=3, type_vocab_size=4), projection_at="sum",
        projects_equal_widths=True),
    "funnel": _like(_none, _config(30522, 768, 12, initializer_range=0.1, layer_norm_eps=1e-09, hidden_dropout=0.1,
        **TIED), norm="layernorm", dropout_field="hidden_dropout", head_bias=True),
    "gemma": _gemma, "gemma2": _gemma2, "vaultgemma": _gemma2,
    "gemma3_text": _like(_gemma, _config(262208, 2304, 8, 131072, rope_theta=1e6, rope_local_base_freq=1e4),
        theta_fields=_TWO_BASES, scaled_layers=(FULL,), full_attention_interval=6),
    "gemma3n_text": _like(_gemma, _config(262400, 2048, 8, 32768, final_logit_softcapping=30.0, rope_theta=1e6,
        rope_local_base_freq=1e4, num_hidden_layers=35, **PER_LAYER), per_layer="rounded", theta_fields=_TWO_BASES,
        scaled_layers=(FULL,), full_attention_interval=5),
    "gemma4_text": _like(_gemma4, _config(262144, 2304, 8, 131072, num_hidden_layers=30, **PER_LAYER),
        per_layer="exact"),
    "gemma4_unified_text": _like(_gemma4, _config(262144, 2304, 8, 262144)),
    "git": _like(_bert, _config(30522, 768, 12, 1024, tie_word_embeddings=False), token_types=False),
    "glm": _glm, "glm4": _glm,
    "glm4_moe": _like(_plain, _config(151552, 4096, 96, 131072, partial_rotary_factor=0.5), has_partial_rotary=True),
    "glm4_moe_lite": _like(_deepseek_v3, _config(154880, 2048, 20, 202752), has_partial_rotary=True),
    "glm_moe_dsa": _like(_deepseek_v3, _config(154880, 6144, 64, 202752)),
    "gpt2": _gpt2, "gpt_bigcode": _gpt2,
    "gpt_neo": _like(_gpt2, _config(50257, 2048, 16, 2048, embed_dropout=0.0), dropout_field="embed_dropout"),
    "gpt_neox": _like(_plain, _config(50432, 6144, 64, 2048, rotary_pct=0.25), padding_row=None,
        has_partial_rotary=True, rope_fields=("rotary_emb_base", "rotary_pct"), dropout_field="hidden_dropout"),
    "gpt_neox_japanese": _like(_partial, _config(32000, 2560, 32, 2048, **TIED), padding_row=None,
        rope_fields=("rotary_emb_base", "rotary_pct")),
    "gpt_oss": _like(_plain, _config(201088, 2880, 64, 131072, head_dim=64, rope_theta=150000.0,
        rope_parameters=GPT_OSS_ROPE), layout="single"),
    "granite": _granite, "granitemoe": _granite, "granitemoeshared": _granite,
    "granite_swa": _like(_granite, _config(100352, 2560, 20, 8192, **TIED), layer_thetas_field="layer_rope_theta"),
    "granitemoe_swa": _like(_granite, layer_thetas_field="layer_rope_theta"),
    "granitemoehybrid": _like(_granite, _config(32000, 4096, 32, 2048), positions_flag="position_embedding_type",
        full_attention_interval=MAX_LAYERS + 1, default_layer_type="linear_attention"),
    "gte": _like(_rotary_bert, _config(250048, 768, 12, 8192, pad_token_id=1, type_vocab_size=1, rope_theta=160000.0)),
    "helium": _like(_plain, _config(48000, 2560, 20, 4096, head_dim=128, pad_token_id=3, rope_theta=1e5),
        pairing="interleaved", layout="half"),
    "hunyuan_v1_dense": _hunyuan_v1, "hunyuan_v1_moe": _hunyuan_v1,
    "hy_v3": _like(_plain, _config(120832, 4096, 64, 131072, head_dim=128, initializer_range=0.006,
        rope_theta=11158840.0)),
    "hy_v4": _like(_plain, _config(120832, 2816, 32, 262144, qk_rope_head_dim=64, pad_token_id=120002,
        initializer_range=0.006, hc_mult=4), streams_field="hc_mult"),
    "hyperclovax": _like(_granite, logits_scaling_multiplies=True),
    "inkling_text": _like(_none, _config(201024, 6144, 64, rms_norm_eps=1e-06, logits_mup_width_multiplier=24.0),
        norm="rmsnorm", norm_at="rows"),
    "jais2": _like(_plain, _config(150272, 3328, 26, 8192)),
    "jamba": _like(_none, _config(65536, 4096, 32, pad_token_id=0)),
    "jetmoe": _like(_plain, _config(32000, 2048, 32, 4096, initializer_range=0.01, **TIED)),
    "jina_embeddings_v3": _like(_rotary_bert, _config(250002, 1024, 16, 8194, pad_token_id=1, type_vocab_size=1,
        layer_norm_eps=1e-05, rope_theta=20000.0)),
    "kimi_k2": _like(_deepseek_v3, _config(vocab_size=163840)),
    "kimi_linear": _like(_none, _config(163840, 2304, 32, pad_token_id=163839)),
    "kolibri1": _like(_plain, _config(128000, 2560, 48, 262144, head_dim=128), **_SLIDING, full_attention_interval=5),
    "laguna": _like(_partial, _config(100352, 2048, 48, 131072, head_dim=128,
        rope_parameters={FULL: _rope(5e5, 0.5), SLIDING: _rope(1e4, 1.0)}), full_attention_interval=1),
    "lfm2": _like(_plain, _config(65536, 2560, 32, 128000, pad_token_id=0, rope_theta=1e6, **TIED)),
    "lfm2_moe": _like(_plain, _config(65536, 2048, 32, 128000, pad_token_id=0, rope_theta=1e6, **TIED)),
    "llama": _like(_plain, _config(32000, 4096, 32, 2048)),
    "llama4_text": _like(_complex, _config(202048, 5120, 40, 131072, head_dim=128, rope_theta=5e5,
        no_rope_layer_interval=4, num_hidden_layers=48), no_rope_interval=True),
    "longcat_flash": _longcat, "longcat_flash_ngram": _longcat,
    "longformer": _like(_roberta, _config(30522, 768, 12, 512), positions_first=True),
    "longt5": _t5,
    "luke": _like(_roberta, _config(50267, 768, 12, 512), positions_first=True, untied_classes=("LukeForMaskedLM",)),
    "mamba": _mamba, "falcon_mamba": _mamba,
    "mamba2": _like(_none, _config(32768, 4096, 128, pad_token_id=1, initializer_range=0.1)),
    "marian": _like(_bart, _config(58101, 1024, 16, 1024, pad_token_id=58100), position_offset=0,
        scale_at="encoder_rows", norm=None, sinusoidal_if_missing=True),
    "megatron-bert": _like(_bert, _config(29056, 1024, 16, 512), norm=None),
    "mellum": _like(_partial, _config(98304, 2304, 32, 131072, head_dim=128,
        rope_parameters={FULL: _rope(5e5), SLIDING: _rope(1e4)}), full_attention_interval=1),
    "mimo_v2_flash": _like(_partial, _config(152576, 4096, 64, 131072, head_dim=192,
        rope_parameters={FULL: _rope(5e6, 0.334), SLIDING: _rope(1e4, 0.334)})),
    "minicpm3": _like(_plain, _config(73448, 2560, 40, 32768, qk_rope_head_dim=32, initializer_range=0.1, scale_emb=12,
        dim_model_base=256, **TIED), scale_at="rows", round_scale=True, scale_field="scale_emb"),
    "minimax": _like(_plain, _config(32000, 4096, 32, 131072, rope_theta=1e6), full_attention_interval=2,
        first_layer_is_full=True, default_layer_type="linear_attention"),
    "minimax_m2": _like(_partial, _config(200064, 3072, 48, 196608, head_dim=128, rope_theta=5e6)),
    "minimax_m3_vl_text": _like(_partial, _config(200064, 6144, 64, 524288, head_dim=128, rope_theta=5e6),
        rotary_dim_field=None),
    "ministral3": _like(_plain, _config(131072, 4096, 32, 262144, head_dim=128, pad_token_id=11,
        rope_parameters=MISTRAL_ROPE | {"factor": 16.0, "original_max_position_embeddings": 16384, "rope_theta": 1e6})),
    "mistral": _mistral, "ministral": _mistral,
    "mistral4": _like(_deepseek_v3, _config(131072, 4096, 32, 1048576, qk_nope_head_dim=64, pad_token_id=11,
        rope_parameters=MISTRAL_ROPE | {"factor": 128.0, "original_max_position_embeddings": 8192, "rope_theta": 1e4}),
        head_dim_fields=("head_dim",), head_dim_addends=("qk_nope_head_dim", "qk_rope_head_dim"),
        rotary_dim_field="qk_rope_head_dim"),
    "mistral_large4_text": _like(_deepseek_v3, _config(204800, 6144, 64, 1048576, rope_theta=1e4, num_hidden_layers=72,
        no_rope_layer_interval=4, final_logit_softcapping=30.0,
        rope_parameters={"rope_type": "yarn", "factor": 2048.0, "rope_theta": 1e4, "attention_factor": 1.0,
                         "original_max_position_embeddings": 512}),
        no_rope_interval=True, learned_frequencies=True),
    "mixtral": _like(_mistral, _config(rope_theta=1e6)),
    "mllama_text_model": _like(_plain, _config(128256, 4096, 32, 131072, pad_token_id=128004, rope_theta=5e5),
        input_only_rows=8),
    "modernbert": _modernbert, "modernbert-decoder": _modernbert,
    "moshi": _like(_plain, _config(32000, 4096, 32, 3000), input_only_rows=1),
    "mpnet": _like(_roberta, _config(vocab_size=30527), token_types=False, padding_row=1, relative="mpnet"),
    "mpt": _like(_none, _config(50368, 2048, 16, **TIED), relative="alibi_mpt"),
    "mra": _like(_bert, _config(50265, 768, 12, 512, pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-05),
        position_start=2),
    "mt5": _like(_umt5, head_input_scaled=False),
    "muse_spark_text": _like(_plain, _config(202048, 8192, 128, 1048576, head_dim=64, rope_theta=5e5, rms_norm_eps=1e-5,
        num_hidden_layers=62, final_logit_softcapping=20.0, output_multiplier=0.1767766952966369),
        norm="rmsnorm_fp32_no_weight", norm_at="rows", layer_thetas_field="layer_rope_theta", has_one_theta=True,
        no_rope_interval=True),
    "mvp": _like(_bart, _config(50267, 1024, 16, 1024)),
    "nanochat": _like(_plain, _config(50304, 768, 6, 2048, pad_token_id=1, rms_norm_eps=1e-06,
        final_logit_softcapping=15.0), norm="rmsnorm_no_weight", reverse_rotation=True),
    "nemotron": _like(_partial, _config(256000, 6144, 48, 4096, partial_rotary_factor=0.5, initializer_range=0.0134)),
    "nemotron_h": _like(_none, _config(131072, 4096, 32, pad_token_id=0)),
    "neomme": _like(_partial, _config(131072, 1024, 16, 16384, head_dim=64, num_key_value_heads=4, num_hidden_layers=17,
        embedding_rank=256, norm_eps=1e-6, rope_parameters={FULL: _rope(1e6, 0.25), SLIDING: _rope(1e4, 1.0)}, **TIED),
        padding_row=None, projection_at="rows", projects_equal_widths=True, value_embeddings=True,
        norm="rmsnorm_fp32_no_weight", sections="interleaved", default_sections=ALTERNATING),
    "nomic_bert": _like(_rotary_bert, _config(30528, 768, 12, 2048, hidden_dropout_prob=0.0, rope_theta=1000.0)),
    "nystromformer": _like(_bert, _config(30000, 768, 12, 510, pad_token_id=1, layer_norm_eps=1e-05), position_start=2),
    "olmo": _olmo, "olmo2": _olmo,
    "olmo3": _like(_olmo, _config(50304, 4096, 32, 2048, rope_theta=5e5, local_rope_theta=5e5),
        theta_fields={FULL: "rope_theta", SLIDING: "local_rope_theta"}, scaled_layers=(FULL,),
        full_attention_interval=4),
    "olmo_hybrid": _like(_olmo, _config(100352, 3840, 30, 65536, pad_token_id=100277)),
    "olmoe": _like(_plain, _config(50304, 2048, 16, 4096, pad_token_id=1)),
    "openai-gpt": _like(_gpt2, _config(40478, 768, 12, 512)),
    "opt": _like(_plain, _config(50272, 768, 12, 2048, pad_token_id=1, **TIED), positions="learned", position_offset=2,
        position_ids_by="mask", projection_at="rows"),
    "pegasus": _like(_bart, _config(50265, 1024, 16, 1024, pad_token_id=0), position_offset=0, norm=None,
        scale_at="encoder_rows"),
    "persimmon": _like(_partial, _config(262144, 4096, 64, 16384, partial_rotary_factor=0.5)),
    "phi": _like(_plain, _config(51200, 2048, 32, 2048, partial_rotary_factor=0.5), has_partial_rotary=True,
        dropout_field="embd_pdrop", head_bias=True),
    "phi3": _like(_plain, _config(32064, 3072, 32, 4096, pad_token_id=32000, original_max_position_embeddings=4096),
        has_partial_rotary=True, rope_type_aliases={"su": "longrope", "yarn": "longrope"}),
    "phi4_multimodal": _like(_partial, _config(200064, 3072, 32, 131072, pad_token_id=199999),
        dropout_field="embd_pdrop", rope_type_aliases={"su": "longrope", "yarn": "longrope"}),
    "phimoe": _like(_plain, _config(32064, 4096, 32, 131072, rope_theta=1e6), has_mscales=True),
    "plbart": _like(_bart, _config(50005, 768, 12, 1024, scale_embedding=True)),
    "qwen2": _qwen2,
    "qwen2_5_vl": _qwen2_vl, "qwen2_vl": _qwen2_vl,  # published files have no text_config
    "qwen2_5_vl_text": _qwen2_vl, "qwen2_vl_text": _qwen2_vl,
    "qwen2_moe": _like(_plain, _config(151936, 2048, 16, 32768)),
    "qwen3": _like(_qwen2, _config(head_dim=128)),
    "qwen3_5_moe_text": _like(_qwen3_5, _config(hidden_size=2048)),
    "qwen3_5_text": _qwen3_5,
    "qwen3_moe": _like(_plain, _config(151936, 2048, 32, 32768)),
    "qwen3_next": _like(_hybrid, _config(151936, 2048, 16, 32768, head_dim=256, partial_rotary_factor=0.25)),
    "qwen3_vl_moe_text": _like(_qwen3_vl, _config(151936, 2048, 16, 128000, **TIED)),
    "qwen3_vl_text": _like(_qwen3_vl, _config(151936, 4096, 32, 128000, head_dim=128)),
    "qwen4_exp_text": _like(_hybrid, _config(248320, 2048, 16, 32768, head_dim=256, ngram_size=3, heads_per_ngram=8,
        ngram_vocab_size_base=20_000_000, make_ngram_vocab_size_divisible_by=128, seed=1234, hc_count=4),
        sections="interleaved", ngrams="qwen4", streams_field="hc_count"),
    "recurrent_gemma": _like(_partial, _config(256000, 2560, 10, pad_token_id=0, partial_rotary_factor=0.5,
        block_types=["recurrent", "recurrent", "attention"], logits_soft_cap=30.0, **TIED), scale_at="inputs",
        round_scale="bfloat16"),
    "rembert": _like(_bert, _config(250300, 1152, 18, 512, hidden_dropout_prob=0.0, input_embedding_size=256,
        output_embedding_size=1664, tie_word_embeddings=False), projection_at="sum", projects_equal_widths=True),
    "rwkv": _like(_none, _config(50277, 4096, 1)),
    "seed_oss": _like(_plain, _config(155136, 4096, 80, 524288, head_dim=128, pad_token_id=1)),
    "smollm3": _like(_plain, _config(128256, 2048, 16, 32768, pad_token_id=128004, rope_theta=2e6,
        no_rope_layer_interval=4, num_hidden_layers=36, **TIED), no_rope_interval=True),
    "solar_open": _like(_partial, _config(196608, 4096, 64, 131072, head_dim=128, rope_theta=1e6)),
    "squeezebert": _like(_bert, _config(30522, 768, 12, 512), positions_first=True),
    "stablelm": _like(_plain, _config(50304, 2560, 32, 4096, partial_rotary_factor=0.25), has_partial_rotary=True),
    "starcoder2": _like(_plain, _config(49152, 3072, 24, 4096, initializer_range=0.018042, embedding_dropout=0.0,
        **TIED), dropout_field="embedding_dropout"),
    "t5": _t5,
    "t5gemma": _like(_gemma, _config(256000, 2304, 8, 8192, final_logit_softcapping=30.0, dropout_rate=0.0),
        scale_at="inputs", round_scale=True, dropout_field="dropout_rate", decoder_table=True),
    "trocr": _like(_bart, _config(50265, 1024, 16, 512)),
    "ultrabert": _like(_plain, _config(32000, 4096, 32, 32768, pad_token_id=0,
        rope_parameters={SLIDING: _rope(1e4), FULL: _rope(2560000.0)})),
    "umt5": _umt5,
    "whisper": _like(_bart, _config(51865, 384, 6, 448, pad_token_id=50256, dropout=0.0), position_offset=0,
        scale_at=None, norm=None),
    "xlm": _xlm,
    "xlm-roberta-xl": _like(_roberta, _config(250880, 2560, 32, 514, type_vocab_size=1), norm=None),
    "xlnet": _like(_none, _config(32000, 1024, 16, pad_token_id=5, dropout=0.1, **TIED), dropout_field="dropout",
        head_bias=True),
    "xlstm": _like(_none, _config(50304, 4096, 8, pad_token_id=1, output_logit_soft_cap=30.0)),
    "yoso": _like(_bert, _config(50265, 768, 12, 4096, pad_token_id=1, type_vocab_size=1), position_start=2),
    "youtu": _like(_deepseek_v3, _config(128256, 2048, 16, 131072, initializer_range=0.01976423537605237, **TIED)),
    "zamba": _like(_none, _config(32000, 3712, 16, pad_token_id=0, **TIED)),
    "zamba2": _like(_plain, _config(32000, 2560, 32, 4096, pad_token_id=0,
        layers_block_type=[FULL if layer in (6, 12, 18, 24, 30, 36, 42, 47, 51) else "mamba" for layer in range(54)],
        **TIED), positions_flag="use_mem_rope"),
}
# fmt: on

# Model types with a nested text config, and the type of that config if it has none of its own.
TEXT_TYPES: dict[str, str] = {
    "aria": "aria_text", "emu3": "emu3_text_model", "fuyu": "persimmon", "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "gemma4_unified": "gemma4_unified_text", "got_ocr2": "qwen2",
    "embedding_gemma2": "embedding_gemma2_text", "inkling": "inkling_text", "kimi_k25": "deepseek_v3",
    "kimi_k3": "kimi_linear", "llama4": "llama4_text", "llava": "llama", "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral3": "mistral", "mistral_large4": "mistral_large4_text", "mllama": "mllama_text_model",
    "modernvbert": "modernbert", "moss_transcribe_diarize": "qwen3", "muse_spark": "muse_spark_text",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen4_exp": "qwen4_exp_text", "ultravbert": "ultrabert",
}  # fmt: skip
# Model types whose input layer is described by a part of their config, next to fields of the whole.
INPUT_CONFIG_FIELDS: dict[str, str] = {"blt": "encoder_config", "t5gemma": "encoder"}

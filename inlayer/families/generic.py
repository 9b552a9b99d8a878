"""Generic: an unknown model type whose config and tensors look like those of an ordinary rotary decoder.

config.json + tensor names -> [LayerSpec, labeled as generic]
- the tensors outside the blocks must be one table, one final norm, and perhaps a head; blocks must have attention
- the model is rejected if a config field hints at anything else in the input layer (a scale, a norm, another table) or
  the table has a different size (checkpoint/model.py)
- some settings have to be assumed: rows are neither scaled nor normalized, and rotary pairs are (i, i + K/2). The label
  is shown wherever the model is displayed
Tested with every supported family under an unknown name in tests/families/test_generic.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from inlayer.errors import ConfigError
from inlayer.families.config_reader import short_repr
from inlayer.families.tensor_names import HEAD_ENDS, OTHER_MODULES, TABLE_ENDS

ASSUMED = "rows used as stored, rotary positions in half pairs; not compared with the original model"
MAX_NAMES = 2_000_000
REQUIRED = ("vocab_size", "hidden_size", "num_attention_heads", "max_position_embeddings")
ROPE_FIELDS = ("rope_theta", "rope_parameters", "rope_scaling")
INPUT_LAYER_HINTS = re.compile(
    r"emb(ed)?_|_emb(ed)?$|embedding|mup|rotary|rope|position|alibi|ngram|engram|ple_|per_layer|hc_mult|stream|"
    r"type_vocab|nope_|neox|interleav|normalize_input|sqrt|softcap|query_pre_attn|encoder"
)
FACTORS = re.compile("scal|multipl|factor|theta|freq")
BLOCKS_ONLY = re.compile("rout|expert|moe_|loss|capacity|attention_value|initializer")  # names of factors inside blocks
ROPE_HINTS = re.compile("section|interleav|neox")
ORDINARY = {
    *REQUIRED, *ROPE_FIELDS, "tie_word_embeddings", "partial_rotary_factor", "original_max_position_embeddings",
    "initializer_range",
}  # fmt: skip
NEUTRAL_VALUES: tuple[Any, ...] = (None, False, 0, 0.0, 1, 1.0, [], {}, "rope", "rotary")
ATTENTION_LAYERS = ("full_attention", "sliding_attention", "chunked_attention")
FINAL_NORM = re.compile(r"(^|\.)(final_|last_)?(layer_?)?(norm|ln)(_f|_final)?\.(weight|bias)$")
ATTENTION = re.compile(r"\.\d+\..*(q_proj|k_proj|qkv_proj|query_key_value|qkv)\.weight$")
RECURRENT = re.compile(r"\.(A_log|conv1d|dt_bias)(\.|$)")  # in such hybrids, attention often has no positions
LATENT = re.compile(r"kv_a_proj|kv_lora")  # latent attention may pair channels either way


def check_generic(raw: Mapping[str, Any], names: Collection[str], *, is_text_part: bool = False) -> None:
    """Raise ConfigError, with the reason, unless the config and the tensors look like an ordinary rotary decoder.

    `is_text_part` says whether the config is the text part of another config.
    """
    if is_text_part and any(raw.get(name) is not None for name in ("vision_config", "audio_config")):
        raise ConfigError("its positions may have several axes: it is part of a multimodal model")
    missing = [name for name in REQUIRED if raw.get(name) is None]
    if missing or not any(raw.get(name) for name in ROPE_FIELDS):
        fields = ", ".join(missing) or ROPE_FIELDS[0]
        raise ConfigError(f"it is not an ordinary rotary decoder: the config has no {fields}")
    _check_fields(raw)
    for rope in [value for value in map(raw.get, ROPE_FIELDS) if isinstance(value, Mapping)]:
        special = [name for name in rope if ROPE_HINTS.search(str(name)) and _is_set(rope[name])]
        if special:
            raise ConfigError(f"its rotary positions may be nonstandard: the config sets {short_repr(special[0])}")
    types = raw.get("layer_types") or ()
    if not isinstance(types, (list, tuple)) or not all(name in ATTENTION_LAYERS for name in types):
        raise ConfigError(f"its layers are not all attention: layer_types is {short_repr(types)}")
    if len(names) > MAX_NAMES:
        raise ConfigError(f"it has {len(names):,} tensors; at most {MAX_NAMES:,} are examined")
    blocks = [name for name in names if re.search(r"\.\d+\.", name)]
    outside = [name for name in names if not OTHER_MODULES.search(name)]
    if not any(ATTENTION.search(name) for name in blocks) or any(LATENT.search(name) for name in blocks):
        raise ConfigError("its blocks have no attention with plain query and key projections")
    if any(RECURRENT.search(name) for name in blocks):
        raise ConfigError("its blocks are not all attention: some are recurrent")
    if sum(name.endswith(TABLE_ENDS) for name in outside) != 1:
        raise ConfigError("it does not have exactly one token table")
    others = [name for name in outside if not name.endswith((*TABLE_ENDS, *HEAD_ENDS)) and not FINAL_NORM.search(name)]
    norms = {name.rpartition(".")[0] for name in outside if FINAL_NORM.search(name)}
    if others or len(norms) != 1 or any("emb" in name for name in norms):
        listed = short_repr(others[:3])
        raise ConfigError(f"it has tensors outside its blocks that may belong to the input layer: {listed}")


def _check_fields(raw: Mapping[str, Any]) -> None:
    """Raise ConfigError if a field hints at anything special in the input layer."""
    for name, value in raw.items():
        is_factor = FACTORS.search(str(name)) and not BLOCKS_ONLY.search(str(name))
        if name not in ORDINARY and (is_factor or INPUT_LAYER_HINTS.search(str(name))) and _is_set(value):
            setting = f"{short_repr(name)}: {short_repr(value)}"
            raise ConfigError(f"its input layer may be nonstandard: the config sets {setting}")
    if raw.get("hidden_act") == "gelu_pytorch_tanh":
        raise ConfigError("it uses Gemma's activation, and Gemma scales rows by a factor that is not in the config")


def _is_set(value: object) -> bool:
    """Return whether a field with this value may have an effect; `true` equals 1, and a factor of 1 has no effect."""
    return value is True or value not in NEUTRAL_VALUES

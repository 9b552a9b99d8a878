"""The rotary settings of a config: head width, parameters per layer type, and which layers have positions at all.

config.json -> [RotarySpec] -> positions.RotaryPositions
- old files have `rope_theta` and `rope_scaling`, new files have only `rope_parameters`. If both are present,
  `rope_scaling` takes precedence, as in transformers
- layers may differ: a base per layer type (Gemma-3, ModernBERT), or no positions in some (Llama-4, SmolLM3, Cohere-2)
- M-RoPE (Qwen-VL): `mrope_section` assigns channel pairs to the axes time, height, and width
Tested against transformers, family by family, in tests/families/.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from inlayer.errors import ConfigError
from inlayer.families import rope_scaling_settings as rope_scaling
from inlayer.families.config_reader import ConfigReader, invalid_error, short_repr
from inlayer.families.family import Family
from inlayer.families.rope_scaling_settings import RopeScaling
from inlayer.families.spec import FULL, MAX_LAYERS, SLIDING, RopeParameters, RotarySpec

Method = TypeVar("Method", bound=RopeScaling)

N_HEAD_FIELDS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional")
NO_ROTARY = ("linear_attention", "conv", "mamba", "recurrent")  # layer types in hybrid models
ALL_ALIKE, UNLISTED = None, ()  # instead of a list of layer types: all are the same, or the config does not list them
FULL_ATTENTION_INTERVAL = ("sliding_window_pattern", "global_attn_every_n_layers", "full_attention_interval")


def read_rotary(family: Family, config: ConfigReader, n_embd: int) -> RotarySpec:
    """Return the rotary settings of a config."""
    head_dim = config.optional_size(*family.head_dim_fields) or sum(map(config.size, family.head_dim_addends))
    head_dim = head_dim or n_embd // config.size(*N_HEAD_FIELDS)
    if not head_dim:
        raise ConfigError(f"head_dim is 0: the hidden size {n_embd:,} is smaller than the number of attention heads")
    parameters, layers = _rope_parameters(family, config, head_dim), _layers(family, config)
    if layers and isinstance(parameters, dict):  # a type that has no parameters has no positions
        layers = tuple(name if name in parameters else None for name in layers)
    elif layers and None not in layers:
        layers = ALL_ALIKE
    return RotarySpec(
        head_dim=head_dim,
        rope_parameters=parameters,
        pairing=family.pairing,
        layout=family.layout,
        keep_float32=family.keep_float32,
        layer_types=layers,
        learned_frequencies=family.learned_frequencies,
        reverse_rotation=family.reverse_rotation,
        rotate_in_float32=family.rotate_in_float32,
    )


def _layers(family: Family, config: ConfigReader) -> tuple[str | None, ...] | None:
    """Return the type of each layer, or None for a layer without rotary positions.

    Instead of such a list, the result is ALL_ALIKE if all layers have the same positions, and UNLISTED if they differ
    and the config does not list them.
    """
    types = _layer_types(family, config)
    flags_field, flags = _rotary_flags(family, config)
    for name, value in (("layer_types", types), (flags_field, flags)):
        if value is not None and (not isinstance(value, (list, tuple)) or len(value) > MAX_LAYERS):
            raise invalid_error(name, value, "a list with one entry per layer")
    if flags:
        thetas = _layer_thetas(family, config)
        if len(thetas) > 1:
            return tuple(thetas[theta] if theta else None for theta in flags)
        if family.no_rope_interval or (family.layer_thetas_field and not all(flags)):
            return tuple("rotary" if flag else None for flag in flags)
    layers_without = () if config.is_null("sliding_window") else family.layers_without_rotary
    if types:
        without = {*NO_ROTARY, *layers_without}
        return tuple(name if isinstance(name, str) and name not in without else None for name in types)
    return UNLISTED if layers_without else ALL_ALIKE


def _rotary_flags(family: Family, config: ConfigReader) -> tuple[str, Any]:
    """Return the field with a flag per layer, and the flags: false, or a base of 0, means no rotary positions.

    Families with an interval compute flags that are missing; in other families, they are None.
    """
    field = family.layer_thetas_field or "no_rope_layers"
    _, flags = config.get(field)
    if flags or not family.no_rope_interval:
        return field, flags
    depth = _depth(config)
    if family.layer_thetas_field:  # Muse Spark: every fourth layer has none, counted from the last
        return field, [(depth - 1 - layer) % 4 != 0 for layer in range(depth)]
    return field, [(layer + 1) % config.size("no_rope_layer_interval") != 0 for layer in range(depth)]


def _layer_types(family: Family, config: ConfigReader) -> Any:
    """Return the type of every layer: the config's list, or what its model class fills in; None if neither is known.

    The config's list may be any value; the caller checks it.
    """
    field, listed = config.get("layer_types", "layers_block_type", "compress_ratios", "block_types")
    is_list = isinstance(listed, (list, tuple))
    if "compress" in family.theta_fields and is_list:  # DeepSeek-V4; a ratio of 0 is sliding
        return ["main" if kind in (SLIDING, 0) else "compress" for kind in listed]
    if field in ("layer_types", "layers_block_type") and listed is not None:
        return [*listed[:-1], FULL] if family.last_layer_is_full and is_list and listed else listed
    layers = range(_depth(config))
    if (types := _types_from_indices(config, layers)) is not None:
        return types
    if field == "block_types" and is_list and listed:  # RecurrentGemma repeats them
        return [listed[layer % len(listed)] for layer in layers]
    return _types_from_interval(family, config, layers)


def _types_from_indices(config: ConfigReader, layers: range) -> list[str] | None:
    """Return the types if the config lists the layers with rotary positions (Bamba, LFM2) or without (Mllama)."""
    field, indices = config.get("attn_layer_indices", "full_attn_idxs", "cross_attention_layers")
    if not isinstance(indices, (list, tuple)) or len(indices) > MAX_LAYERS:
        return None
    lists_rotary = field != "cross_attention_layers"
    return [FULL if (layer in indices) == lists_rotary else NO_ROTARY[0] for layer in layers]


def _types_from_interval(family: Family, config: ConfigReader, layers: range) -> list[str] | None:
    """Return the types if one layer in every n has full attention: the first of these n, or the last."""
    if family.full_attention_interval is None:
        return None
    interval = config.optional_size(*FULL_ATTENTION_INTERVAL) or family.full_attention_interval
    full = 0 if family.first_layer_is_full else interval - 1
    types = [FULL if layer % interval == full else family.default_layer_type for layer in layers]
    if family.last_layer_is_full and types:
        types[-1] = FULL
    return types


def _depth(config: ConfigReader) -> int:
    """Return the number of blocks; 0 if there are none or the config lacks the field."""
    if config.get("num_hidden_layers")[1] in (None, 0):
        return 0
    return min(config.size("num_hidden_layers"), MAX_LAYERS)


def _layer_thetas(family: Family, config: ConfigReader) -> dict[float, str]:
    """Return the bases of layers that set one, each with a name for the layers that share it."""
    if family.layer_thetas_field is None or family.has_one_theta or config.get(family.layer_thetas_field)[1] is None:
        return {}
    return {theta: f"theta {theta:,g}" for theta in config.numbers(family.layer_thetas_field) if theta}


def _rope_parameters(family: Family, config: ConfigReader, head_dim: int) -> RopeParameters | dict[str, RopeParameters]:
    """Return one `RopeParameters`, or one per layer type."""
    read = partial(_read_parameters, family, config, head_dim)
    scaling = config.mapping("rope_scaling")
    if family.theta_fields:  # old files have one field per layer type
        parameters, by_type = config.mapping("rope_parameters"), {}
        for layer_type, name in family.theta_fields.items():
            theta, own = config.number(name, default=10_000.0), ConfigReader(parameters, {}).mapping(layer_type)
            if layer_type == "compress" and not own:  # DeepSeek-V4's published files: no cos/sin factor
                settings = {"attention_factor": 1.0} | (scaling or parameters) | {"rope_theta": theta}
            else:  # the old spelling overrides the new one, except for its key "type"
                settings = {"rope_theta": theta} | (own or {"rope_type": "default"})
                settings |= scaling if layer_type in family.scaled_layers else {}
            by_type[layer_type] = read(settings, layer_type)
        return by_type
    rope = scaling or config.mapping("rope_parameters")
    by_layer_type = {name: inner for name, inner in rope.items() if isinstance(inner, Mapping)}
    if by_layer_type and all(value is None or isinstance(value, Mapping) for value in rope.values()):
        return {name: read(inner, name) for name, inner in by_layer_type.items()}  # None: a type without positions
    thetas = _layer_thetas(family, config)
    if not thetas:
        return read(rope)
    by_theta = {name: read(rope | {"rope_theta": theta}) for theta, name in thetas.items()}
    return by_theta if len(by_theta) > 1 else next(iter(by_theta.values()))


def _read_parameters(
    family: Family, config: ConfigReader, head_dim: int, settings: Mapping[str, Any], layer_type: str | None = None
) -> RopeParameters:
    if layer_type is not None:  # transformers reads it only if all layers share their settings
        settings = {name: value for name, value in settings.items() if name != "truncate"}
    rope = ConfigReader(settings, {})
    _, kind = rope.get("rope_type", "type")
    kind = family.rope_type_aliases.get(kind, kind) if isinstance(kind, str) else kind
    theta, fraction = rope.optional_number("rope_theta"), rope.optional_number("partial_rotary_factor")
    theta_field, fraction_field = family.rope_fields
    if fraction is None:
        fraction = config.number(fraction_field, default=1.0)
        rotary_dim = config.optional_size(family.rotary_dim_field) if family.rotary_dim_field else None
        fraction = fraction if rotary_dim is None else rotary_dim / head_dim
    scaling: RopeScaling | None = None
    if kind == "proportional":
        scaling = rope_scaling.ProportionalScaling(fraction=fraction, factor=rope.number("factor", default=1.0))
    elif kind not in (None, "default", "mrope"):
        scaling = _scaling(kind, rope, config)
    if family.has_mscales and isinstance(scaling, rope_scaling.LongRopeScaling):
        scales = tuple(rope.number(name, default=scaling.cos_sin_factor) for name in ("short_mscale", "long_mscale"))
        scaling = dataclasses.replace(scaling, long_factor=scaling.short_factor, mscales=scales)
    # families that always rotate whole heads ignore the fraction, unless there is RoPE scaling
    uses_fraction = kind != "proportional" and (family.has_partial_rotary or scaling is not None)
    return RopeParameters(
        theta=config.number(theta_field, default=10_000.0) if theta is None else theta,
        partial_rotary_factor=fraction if uses_fraction else 1.0,
        scaling=scaling,
        sections=_sections(family, rope),
        sections_interleaved=family.sections == "interleaved",
        head_dim=_head_dim_of(layer_type, family, config) if family.has_global_head_dim else None,
    )


def _head_dim_of(layer_type: str | None, family: Family, config: ConfigReader) -> int | None:
    """Return a layer type's head width, or None if it is not special. New files list it per layer, old ones once."""
    if "per_layer_config" not in config:
        return config.optional_size("global_head_dim") if layer_type == FULL else None
    types = _layer_types(family, config)
    for number, settings in config.mapping("per_layer_config").items():
        index = int(number) if str(number).isdecimal() and len(str(number)) < 5 else MAX_LAYERS
        if isinstance(types, list) and index < len(types) and types[index] == layer_type and isinstance(settings, dict):
            return ConfigReader(settings, {}).optional_size("head_dim")
    return None


def _sections(family: Family, rope: ConfigReader) -> tuple[int, ...] | None:
    """Return the number of channel pairs per position axis."""
    if family.sections is None:
        return None
    _, value = rope.get("mrope_section")
    value = family.default_sections if value is None else value
    axes = len(family.default_sections)
    is_list = isinstance(value, (list, tuple)) and len(value) == axes
    if not is_list or not all(type(size) is int and size > 0 for size in value):
        raise invalid_error("mrope_section", value, f"{axes} positive integers")
    return tuple(value)


def _scaling(kind: object, inner: ConfigReader, config: ConfigReader) -> RopeScaling:
    if kind == "linear":
        return _read_settings(rope_scaling.LinearScaling, inner)
    max_length = config.size("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")
    if kind == "dynamic" and inner.optional_number("alpha") is not None:  # Hunyuan: a fixed factor on theta
        return _read_settings(rope_scaling.NTKAlphaScaling, inner)
    if kind == "dynamic":
        return _read_settings(rope_scaling.DynamicNTKScaling, inner, original_max_position_embeddings=max_length)
    # Phi-3 has the original length outside the rope settings, and that value takes precedence.
    original = config.optional_size("original_max_position_embeddings")
    original = original or inner.optional_size("original_max_position_embeddings") or max_length
    known: dict[str, Any] = {"original_max_position_embeddings": original}
    if kind == "llama3":
        return _read_settings(rope_scaling.Llama3Scaling, inner, **known)
    known["factor"] = inner.optional_number("factor") or max_length / original
    if kind == "yarn":
        known["beta_fast"] = inner.optional_number("beta_fast") or 32.0
        known["beta_slow"] = inner.optional_number("beta_slow") or 1.0
        known["truncate"] = inner.flag("truncate", default=True)
        return _read_settings(rope_scaling.YarnScaling, inner, **known)
    if kind == "longrope":
        divisors = {name: inner.numbers(name) for name in ("short_factor", "long_factor")}
        return _read_settings(rope_scaling.LongRopeScaling, inner, **known, **divisors, mscales=())
    raise ConfigError(f"the config's rope type is {short_repr(kind)}; supported types: {', '.join(ROPE_TYPES)}")


def _read_settings(method: type[Method], inner: ConfigReader, **known: Any) -> Method:
    """Return a method with the known settings; the others are read as numbers, under the names of its fields."""
    for field in dataclasses.fields(method):
        if field.name not in known:
            value = inner.optional_number(field.name)
            if value is None and field.default is dataclasses.MISSING:
                raise ConfigError(f"the config has RoPE scaling without a {field.name}")
            known[field.name] = field.default if value is None else value
    return method(**known)

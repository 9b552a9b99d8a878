"""The layer and its config: table, positions, token types, norm, and projection.

source -> Model -> facts -> [findings] -> Report
- a tensor is read only if its header gives the shape that the config requires; a file may claim any shape
- only the table's header is read here, and a few rows of a second candidate
- learned positions are scanned in blocks; smaller tensors are read whole. Positions that no token uses are ignored: OPT
  reserves the first two, and RoBERTa all up to the padding id
Tested with damaged checkpoints in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from inlayer.checkpoint.find_tables import find_part_name, has_shape
from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.families import FAMILIES, LayerSpec
from inlayer.families.config_reader import text_config
from inlayer.families.config_to_spec import ROW_WIDTH_FIELDS
from inlayer.families.generic import ASSUMED
from inlayer.families.model_types import TEXT_TYPES
from inlayer.families.spec import AlibiSpec, RelativeBucketSpec
from inlayer.families.tensor_names import OTHER_MODULES, RELATIVE, TENSOR_ENDS, table_candidates, table_role
from inlayer.files import printable, quote
from inlayer.formats.tensor_info import TensorInfo
from inlayer.inspection.findings import MAX_NUMBER, Finding, shorten
from inlayer.inspection.report import PositionFacts, RotaryTypeFacts, TokenTableFacts, TrainingFacts, describe_tensor
from inlayer.inspection.scan import RowStatistics, is_out_of_scale, scan_rows
from inlayer.render.numbers import pluralize
from inlayer.tables import StoredTable

FOR_PYTHON = re.compile(r"\. For another model, build its layer with [^)]*\)")  # in the error for an unknown type
MAY_BE_MEANT = "; the model type is unknown, so this may be intended"
LEARNED_POSITIONS, RELATIVE_TABLE = "position_embedding.weight", "relative positions"
MAX_CANDIDATES = 16  # if there are more, all tensors were listed because none has a table's name
FILE_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "half": "F16", "float": "F32"}
MIN_THETA, MAX_THETA = 500.0, 1e12  # published models use 10,000 to about 5e10
MIN_CONTEXT, MAX_CONTEXT = 8, 2**32  # tokens
LENGTH_SCALING_RULES = ("linear", "dynamic", "yarn")  # their factor multiplies a length, unlike Llama-3's and Phi-3's
MAX_IDENTICAL = 0.01  # share of the positions; if a table was extended by repeating it, each one occurs a few times
MIN_RMS = 1e-5  # for position tables; larger values are always accepted, up to 1
MAX_READ_VALUES = 2**26  # largest tensor that is read whole: 256 MB in float32
MAX_POSITIONS = 2**23


# ---- the table


def table_facts(model: Model) -> TokenTableFacts:
    stored, spec, config = model.table_info, model.spec, text_config(model.config)
    total = scale = None
    with suppress(InlayerError):  # a missing or damaged shard matters only if one of its tensors is needed
        total = model.store.parameters()
    architectures, model_type = config.get("architectures"), config.get("model_type")
    config_rows = _integer(config, "vocab_size")
    config_width = _integer(config, *ROW_WIDTH_FIELDS, "hidden_size", "n_embd")
    if spec is not None:
        model_type, scale = spec.family, spec.scale * spec.input_multiplier
        config_rows, config_width = spec.vocab_size, spec.row_width or spec.n_embd
    return TokenTableFacts(
        **describe_tensor(stored, total, scale),
        model_type="static embeddings" if model.is_static else _string(model_type),
        architecture=_string(architectures[0]) if isinstance(architectures, list) and architectures else None,
        config_vocab_size=config_rows,
        config_width=config_width,
        config_dtype=_string(config.get("torch_dtype") or config.get("dtype")),
        parameters=math.prod(stored.shape),
        model_parameters=total,
        other_candidates=tuple(shorten(name, 200) for name in _other_candidates(model)),
    )


def is_unknown_type(model: Model) -> bool:
    """Return whether the config names a model type unknown to inlayer. Its sizes may differ from the usual ones."""
    model_type = text_config(model.config).get("model_type")
    is_known = isinstance(model_type, str) and (model_type in FAMILIES or model_type in TEXT_TYPES)
    return model.config is not None and not is_known


def table_findings(model: Model, facts: TokenTableFacts) -> Iterator[Finding]:
    """Yield a finding for each contradiction between the table and the config."""
    reported, is_unknown = "", is_unknown_type(model)
    if model.config is not None and model.spec is None:
        reason = str(model.spec_error).replace("inlayer.families.FAMILIES", "docs/families.md")
        reported = shorten(FOR_PYTHON.sub("", reason), 600)
        code = "unknown-model-type" if is_unknown else "invalid-config"
        outside = re.search(r"_token_id (\d+) is outside its table", reported)
        if outside is None or int(outside[1]) < facts.rows:  # otherwise reported as special-id-out-of-range
            yield Finding("note" if is_unknown else "error", code, reported)
    elif model.spec is not None and model.spec.is_generic:
        yield Finding("note", "generic-model-type", f"unknown model type, opened as {model.spec.family}: {ASSUMED}")
    tie = text_config(model.config).get("tie_word_embeddings")
    if model.spec is None and tie is not None and not isinstance(tie, bool) and "tie_word_embeddings" not in reported:
        yield Finding("error", "invalid-config", f"tie_word_embeddings is {quote(tie)}; it must be true or false")
    if facts.config_vocab_size not in (None, facts.rows):
        message = f"the table has {facts.rows:,} rows, but vocab_size in the config is {facts.config_vocab_size:,}"
        yield Finding("warning" if is_unknown else "error", "vocab-size-mismatch", message + MAY_BE_MEANT * is_unknown)
    if facts.config_width not in (None, facts.width):
        message = f"the table has {facts.width:,} channels, but the config expects {facts.config_width:,}"
        yield Finding("error", "hidden-size-mismatch", message)
    if facts.config_dtype in FILE_DTYPES and FILE_DTYPES[facts.config_dtype] != facts.dtype:
        message = f"the table is stored as {facts.dtype}, but the config names {facts.config_dtype}"
        yield Finding("note", "dtype-mismatch", message)
    yield from fp8_findings(facts.tensor, model.table)
    others = [name for name in _other_candidates(model) if _is_second_table(model, name)]
    if others and model.spec is not None:  # an unknown family may have separate tables for encoder and decoder
        message = f"{quote(others[0])} has the same shape as {facts.tensor}, which was used, but different rows"
        yield Finding("warning", "ambiguous-table", message, len(others))


def fp8_findings(name: str, table: StoredTable) -> Iterator[Finding]:
    """Report an FP8 table without scales, whose values are used as stored. With scales, rows are float32."""
    if table.dtype.name.startswith("float8"):
        message = f"{quote(name)} is {table.dtype.name} without scales; its values are used as they are stored"
        yield Finding("note", "fp8-without-scales", message)


def _other_candidates(model: Model) -> list[str]:
    """Return other tensors with a table's name. Only names are compared, so no other header or index is read."""
    if model.store.remote:
        return []
    candidates = table_candidates(dict.fromkeys(model.store.names(), model.table_info.shape), *model.table_info.shape)
    known = (model.table_info.name, model.head_name)  # T5Gemma's head is the table of its decoder
    return [name for name in candidates if name not in known] if len(candidates) <= MAX_CANDIDATES else []


def unidentified_tables(model: Model) -> list[str]:
    """Return tensors with the table's shape in an unknown family; they may be tables or heads."""
    if model.spec is not None or model.store.remote:
        return []
    known = (model.table_info.name, model.head_name)
    names = [name for name in model.store.names() if name not in known and not OTHER_MODULES.search(name)]
    return [name for name in names if table_role(name) is None and has_shape(model.store, name, model.table_info.shape)]


def _is_second_table(model: Model, name: str) -> bool:
    """Return whether a tensor of the table's size has different rows. T5 stores the same table under three names."""
    if not has_shape(model.store, name, model.table_info.shape):
        return False
    ids = np.unique(np.linspace(0, model.table_info.shape[0] - 1, 16).astype(np.int64))
    try:
        rows, others = (table.rows(ids).astype(np.float64) for table in (model.table, model.store.table(name)))
    except InlayerError:
        return False
    return not np.array_equal(rows, others)


def _integer(config: dict[str, Any], *names: str) -> int | None:
    values = (value for value in map(config.get, names) if type(value) is int)
    return next((max(-MAX_NUMBER, min(value, MAX_NUMBER)) for value in values), None)


def _string(value: object) -> str | None:
    return printable(value[:60]) if isinstance(value, str) else None


def training_facts(model: Model) -> TrainingFacts | None:
    """Return what `inlayer train` recorded in the `inlayer` entry of the config."""
    entry = (model.config or {}).get("inlayer")
    if not isinstance(entry, dict):
        return None
    scale, unseen = entry.get("input_scale"), entry.get("unseen_tokens")
    valid = scale is None or (type(scale) in (int, float) and math.isfinite(scale) and scale > 0)
    if not valid or type(unseen) is not int or unseen < 0:
        return None
    return TrainingFacts(input_scale=scale, unseen_tokens=min(unseen, MAX_NUMBER))


# ---- positions


def position_facts(model: Model) -> PositionFacts:
    if (spec := model.spec) is None:
        return PositionFacts(kind="none" if model.is_static else "unknown")
    rotary, name, tensor_rows = _rotary_facts(spec), None, None
    if spec.positions == "learned":  # otherwise, skip listing the tensor names, which may be remote
        name = find_part_name(model, LEARNED_POSITIONS)
    if name is not None:
        with suppress(InlayerError):  # this is reported as tensor-unreadable
            tensor_rows = next(iter(model.store.find(name).shape), None)
    return PositionFacts(
        kind="sinusoidal" if name is None and spec.sinusoidal_if_missing else spec.positions,
        context_length=_context_length(spec, rotary),
        tensor=None if name is None else shorten(name, 200),
        tensor_rows=tensor_rows,
        rotary=rotary,
        relative=_relative(spec),
    )


def _relative(spec: LayerSpec) -> str | None:
    if isinstance(spec.relative, AlibiSpec):
        return f"attention adds ALiBi, {pluralize(spec.relative.heads, 'head')}"
    if spec.relative is None:
        return None
    return f"attention uses {pluralize(spec.relative.rows, 'row')} for distances up to {spec.relative.max_distance:,}"


def _rotary_facts(spec: LayerSpec) -> tuple[RotaryTypeFacts, ...]:
    """Return the rotary settings of each layer type, or () if positions are not rotary."""
    if spec.rotary is None:
        return ()
    angles = spec.rotary.rope_parameters
    by_type: dict[Any, Any] = angles if isinstance(angles, dict) else {None: angles}
    return tuple(
        RotaryTypeFacts(
            layer_type=_string(layer_type),
            rope_type="default" if settings.scaling is None else settings.scaling.kind,
            rope_theta=settings.theta,
            factor=getattr(settings.scaling, "factor", None),
            original_max_position_embeddings=getattr(settings.scaling, "original_max_position_embeddings", None),
            partial_rotary_factor=settings.partial_rotary_factor,
        )
        for layer_type, settings in by_type.items()
    )


def _context_length(spec: LayerSpec, rotary: tuple[RotaryTypeFacts, ...]) -> int | None:
    """Return the effective context length. Configs state it after scaling (Llama-3.1, Phi-3), or as a factor on the
    declared length or, for YaRN (Qwen), on the original length. Learned positions may start after the padding id.
    """
    if spec.block_size is None:
        return None
    if spec.positions == "learned":
        return max(0, spec.block_size - spec.position_id_rule.start)
    scaling = rotary[0] if len(rotary) == 1 else None
    if scaling is None or scaling.factor is None or scaling.rope_type not in LENGTH_SCALING_RULES:
        return spec.block_size
    extended = min((scaling.original_max_position_embeddings or spec.block_size) * scaling.factor, 2.0**62)
    return max(spec.block_size, round(extended))


# ---- context length, and tensors other than the table


def layer_findings(model: Model, positions: PositionFacts, row_rms: float | None, *, quick: bool) -> Iterator[Finding]:
    """Yield findings about unusual context lengths, and missing or damaged tensors.

    `row_rms` is the RMS of a typical row of the table.
    """
    if (spec := model.spec) is None:
        return
    yield from _context_findings(spec, positions)
    for part, shape in _shapes(spec).items():
        is_bias = part == "head.bias"
        if is_bias and not spec.head.bias and model.store.remote and quick:
            continue  # proving there is none would require reading the whole index
        name = _find_part(model, part)
        if name is None:
            computed = part == LEARNED_POSITIONS and spec.sinusoidal_if_missing
            # a model saved without its head has no bias
            if not is_bias and part != RELATIVE_TABLE and not computed:
                yield Finding("error", "tensor-missing", f"the files contain no tensor for {part}")
            continue
        try:
            stored = model.store.find(name)
            fits = stored.shape == shape or (is_bias and stored.shape == (1, *shape))  # as in BART
            if fits or (part == RELATIVE_TABLE and stored.shape[:1] == shape):
                yield from _value_findings(model, spec, part, stored, row_rms)
            elif part == LEARNED_POSITIONS and stored.shape[1:] == shape[1:]:
                code = "positions-too-few" if stored.shape[0] < shape[0] else "positions-too-many"
                message = f"the files contain {stored.shape[0]:,} positions, but the config requires {shape[0]:,}"
                yield Finding("error", code, message)
            elif not is_bias or spec.head.bias:  # the head does not use other biases
                message = f"{quote(name)} has shape {quote(stored.shape)}, but the config requires {shape}"
                yield Finding("error", "tensor-shape-mismatch", message)
        except InlayerError as error:
            message = f"{quote(name)} cannot be read: {shorten(str(error), 300)}"
            yield Finding("warning", "tensor-unreadable", message)


def _find_part(model: Model, part: str) -> str | None:
    if part == RELATIVE_TABLE:
        return next(filter(RELATIVE.fullmatch, model.store.names()), None)
    return find_part_name(model, part)


def is_part(model: Model, name: str) -> bool:
    """Return whether `layer_findings` reads this tensor."""
    return model.spec is not None and any(_find_part(model, part) == name for part in _shapes(model.spec))


def _context_findings(spec: LayerSpec, facts: PositionFacts) -> Iterator[Finding]:
    unusual = [rotary.rope_theta for rotary in facts.rotary if not MIN_THETA <= rotary.rope_theta <= MAX_THETA]
    if unusual:
        message = f"rope_theta is {unusual[0]:g}; published models use 10,000 to 5e10"
        yield Finding("warning", "unusual-rope-theta", message, len(unusual))
    length, declared = facts.context_length, spec.block_size
    if length is None or declared is None:
        return
    if not MIN_CONTEXT <= length <= MAX_CONTEXT:
        message = f"the context length is {length:,}; expected {MIN_CONTEXT:,} to {MAX_CONTEXT:,} tokens"
        yield Finding("warning", "unusual-context-length", message)
    original = max((rotary.original_max_position_embeddings or 0 for rotary in facts.rotary), default=0)
    if original > declared:
        message = f"max_position_embeddings is {declared:,}, less than the original length of "
        message += f"{original:,} that RoPE scaling starts from"
        yield Finding("warning", "context-length-below-original", message)


def _shapes(spec: LayerSpec) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that the config requires, and of a head's bias, which files may have."""
    row_width = spec.row_width or spec.n_embd
    sum_width = row_width if spec.projection_at == "sum" else spec.n_embd
    learned, normed, projected = spec.positions == "learned", spec.norm_eps is not None, spec.projection_at is not None
    shapes = {
        LEARNED_POSITIONS: ((spec.block_size or 0) + spec.position_offset, sum_width) if learned else None,
        "token_type_embedding.weight": (spec.n_token_types, sum_width) if spec.n_token_types > 0 else None,
        "norm.weight": (sum_width,) if normed and not spec.norm.endswith("_no_weight") else None,
        "norm.bias": (sum_width,) if normed and spec.norm in ("layernorm", "layernorm_fp32") else None,
        "projection.weight": (spec.n_embd, row_width) if projected else None,
        "projection.bias": (spec.n_embd,) if spec.projection_at == "sum" else None,
        "head.bias": (spec.head.vocab_size or spec.vocab_size,),
    }
    if spec.rotary is not None and spec.rotary.learned_frequencies:
        shapes["position_embedding.alpha"] = (spec.rotary.head_dim // 2,)
    if (extra := spec.per_layer) is not None:  # its table is checked with the other tables
        shapes["per_layer_embedding.projection.weight"] = extra.n_layers * extra.width, spec.n_embd
        shapes["per_layer_embedding.norm.weight"] = (extra.width,)
    if isinstance(spec.relative, RelativeBucketSpec):  # the width is the number of heads or of hidden channels
        shapes[RELATIVE_TABLE] = (spec.relative.rows,)
    return {part: shape for part in (*TENSOR_ENDS, RELATIVE_TABLE) if (shape := shapes.get(part)) is not None}


def _value_findings(
    model: Model, spec: LayerSpec, part: str, stored: TensorInfo, row_rms: float | None
) -> Iterator[Finding]:
    name, size = quote(stored.name), math.prod(stored.shape)
    if part == LEARNED_POSITIONS and stored.shape[0] <= MAX_POSITIONS:
        scan = scan_rows(model.store.table(stored.name))
        if scan.finite.all():
            yield from _position_row_findings(scan, spec, name, row_rms)
            return
    elif size > MAX_READ_VALUES:
        yield Finding("warning", "tensor-too-large", f"{name} has {size:,} values and was not read")
        return
    elif np.isfinite(model.store.read(stored.name).astype(np.float64)).all():
        return
    yield Finding("error", "tensor-not-finite", f"{name} contains NaN or infinity, which affects every token")


def _position_row_findings(scan: RowStatistics, spec: LayerSpec, name: str, row_rms: float | None) -> Iterator[Finding]:
    """Yield findings about positions that cannot express order: zero, identical, or scaled unlike the rows."""
    used = np.arange(len(scan.ids)) >= spec.position_offset + spec.position_id_rule.start
    count, zero = int(used.sum()), int((used & scan.is_zero).sum())
    if zero > 1 or 0 < count == zero:
        message = f"{zero:,} of {count:,} positions in {name} are zero, so they add no position information"
        yield Finding("error" if zero == count else "warning", "positions-zero", message, zero)
    _, sizes = np.unique(scan.first_equal[used & ~scan.is_zero], return_counts=True)
    largest = int(sizes.max(initial=0))
    if largest > 2 and largest > MAX_IDENTICAL * count:
        message = f"{largest:,} of {count:,} positions in {name} are identical; the model cannot distinguish them"
        yield Finding("error" if largest == count else "warning", "positions-identical", message, largest)
    norms = scan.norms[used & ~scan.is_zero]
    if not len(norms) or row_rms is None:
        return
    rms, expected = float(np.median(norms)) / math.sqrt(scan.width), row_rms * spec.scale * spec.input_multiplier
    if is_out_of_scale(rms, expected, MIN_RMS):  # positions and rows are added
        message = f"values of a typical position are about {rms:.1g} and those of a row about {expected:.1g}; the "
        yield Finding("warning", "positions-scale-mismatch", message + "smaller ones are lost when the two are added")

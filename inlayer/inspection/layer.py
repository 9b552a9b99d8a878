"""The table, its positions and its head: what the files say, what the config says, and where the two disagree.

[checkpoint] files -> [facts -> findings]
- nothing but headers is read here
- no head is normal for an encoder or a model saved without one: the class that the config names decides
- not here: positions, norms and their like (doctor/parts.py), tokens (doctor/vocabulary.py), rows (doctor/rows.py)
Checked with one damaged copy a finding in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from inlayer.checkpoint.model import Model
from inlayer.errors import ConfigError, InlayerError
from inlayer.families import FAMILIES, LayerSpec, describe
from inlayer.families.table import NESTED
from inlayer.families.weights import choose_part, table_candidates
from inlayer.inspection.report import (
    Finding,
    LayerFacts,
    PositionFacts,
    RotaryFacts,
    bounded,
    counted,
    shorten,
)
from inlayer.paths import printable, quoted
from inlayer.positions import Angles

__all__ = ["LONGEST_NAME", "layer_facts", "layer_findings", "position_facts", "text_config"]

LONGEST_NAME = 200  # characters of a tensor's name that are shown
MAX_CANDIDATES = 16  # more are no candidates: no tensor has a table's name, and all have been taken
SMALLEST_THETA, LARGEST_THETA = 500.0, 1e12  # published models have 10,000 to some 5e10
SHORTEST_CONTEXT, LONGEST_CONTEXT = 8, 2**32  # tokens: nobody makes models for less, or for more
STRETCHING = frozenset(("linear", "dynamicntk", "yarn"))  # their factor goes on a length; LLaMA-3's and Phi-3's do not
FILE_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "half": "F16", "float": "F32"}


def text_config(config: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of the text model, with those of the outer level behind them."""
    outer = config or {}
    nested = outer.get("text_config")
    return outer | nested if isinstance(nested, dict) else outer


def layer_facts(model: Model) -> LayerFacts:
    stored, spec, config = model.stored, model.spec, text_config(model.config)
    rows, width = stored.shape
    whole = _parameters(model)
    classes = config.get("architectures")
    return LayerFacts(
        family=spec.family if spec is not None else _word(config.get("model_type")),
        architecture=_word(classes[0]) if isinstance(classes, list) and classes else None,
        tensor=shorten(stored.name, LONGEST_NAME),
        file=shorten(stored.file, LONGEST_NAME),
        offset=stored.offset,
        bytes=stored.nbytes,
        dtype=stored.dtype,
        rows=rows,
        width=width,
        config_rows=bounded(spec.vocab_size) if spec is not None else _size(config, "vocab_size"),
        config_width=bounded(spec.row_width or spec.n_embd)
        if spec is not None
        else _size(config, "hidden_size", "n_embd"),
        config_dtype=_word(config.get("torch_dtype") or config.get("dtype")),
        scale=spec.scale * spec.multiplier if spec is not None else None,
        parameters=rows * width,
        model_parameters=whole,
        share=rows * width / whole if whole else None,
        other_candidates=tuple(shorten(name, LONGEST_NAME) for name in _other_candidates(model)),
    )


def position_facts(model: Model) -> PositionFacts:
    spec = model.spec
    if spec is None:
        return PositionFacts(kind="unknown", context=None, tensor=None, tensor_rows=None, rotary=())
    tensor, tensor_rows = None, None
    if spec.positions == "learned":
        tensor = choose_part("position_embedding.weight", model.store.names(), model.stored.name)
        try:
            shape = model.store.find(tensor).shape if tensor is not None else ()
            tensor_rows = shape[0] if shape else None
        except InlayerError:  # said by part_findings
            tensor_rows = None
    rotary = _rotary_facts(spec)
    return PositionFacts(
        kind=spec.positions,
        context=_context(spec, rotary),
        tensor=shorten(tensor, LONGEST_NAME) if tensor is not None else None,
        tensor_rows=tensor_rows,
        rotary=rotary,
    )


def layer_findings(model: Model, facts: LayerFacts, positions: PositionFacts) -> Iterator[Finding]:
    """Where table and config disagree."""
    yield from _config_findings(model)
    if facts.config_rows is not None and facts.config_rows != facts.rows:
        yield Finding(
            severity="error",
            code="config-rows-differ",
            meaning=f"the table has {facts.rows:,} rows and the config's vocab_size is {counted(facts.config_rows)}",
            advice="set vocab_size to the table's rows, or save the table again after the resize",
        )
    if facts.config_width is not None and facts.config_width != facts.width:
        yield Finding(
            severity="error",
            code="config-width-differs",
            meaning=f"a row has {facts.width:,} channels and the config asks for {counted(facts.config_width)}",
            advice="these weights and this config.json are of different models; fetch the pair again",
        )
    if facts.config_dtype in FILE_DTYPES and FILE_DTYPES[facts.config_dtype] != facts.dtype:
        yield Finding(
            severity="note",
            code="dtype-differs",
            meaning=f"the table is stored as {facts.dtype} and the config's dtype is {facts.config_dtype}",
            advice="a loader that follows the config converts every row",
        )
    rivals = [name for name in _other_candidates(model) if _is_rival(model, name)]
    if rivals and model.spec is not None:  # elsewhere an encoder and a decoder may have their own
        yield Finding(
            severity="warning",
            code="two-tables",
            meaning=f"{quoted(rivals[0])} could be the table too: it has the size of {facts.tensor}, which was "
            "taken, and other rows",
            advice="if the other one is meant, leave it alone in its file; delete what is left over from training",
            count=len(rivals),
        )
    yield from _context_findings(model, positions)


def _context_findings(model: Model, positions: PositionFacts) -> Iterator[Finding]:
    """Lengths and rotary bases that no model has."""
    odd = [angles.theta for angles in positions.rotary if not SMALLEST_THETA <= angles.theta <= LARGEST_THETA]
    if odd:
        yield Finding(
            severity="warning",
            code="rope-theta-odd",
            meaning=f"the rotary base is {odd[0]:g}; published models have 10,000 to some 5e10",
            advice="compare rope_theta with the model's own config.json",
            count=len(odd),
        )
    context, declared = positions.context, model.spec.block_size if model.spec is not None else None
    if context is None or declared is None:
        return
    if not SHORTEST_CONTEXT <= context <= LONGEST_CONTEXT:
        yield Finding(
            severity="warning",
            code="context-odd",
            meaning=f"the longest text would have {counted(context)} token{'' if context == 1 else 's'}",
            advice="compare max_position_embeddings, and the factor of rope_scaling, with the model's own config.json",
        )
    trained = max((angles.original_max_position_embeddings or 0 for angles in positions.rotary), default=0)
    if trained > declared:
        yield Finding(
            severity="warning",
            code="context-below-original",
            meaning=f"the rotary scaling starts from {counted(trained)} tokens, and max_position_embeddings is "
            f"{counted(declared)}: less",
            advice="one of the two is of another model; compare with the model's own config.json",
        )


def _config_findings(model: Model) -> Iterator[Finding]:
    if model.config is None or model.spec is not None:
        return
    try:
        describe(model.config)
    except ConfigError as error:
        kind = text_config(model.config).get("model_type")
        known = isinstance(kind, str) and (kind in FAMILIES or kind in NESTED)
        yield Finding(
            severity="error" if known else "note",
            code="config-refused" if known else "unknown-family",
            meaning=shorten(str(error).split("; known are")[0], 300),
            advice="mend the field in config.json"
            if known
            else "rows can be read all the same; positions and scale are not guessed",
        )


def _parameters(model: Model) -> int | None:
    try:
        return model.store.parameters()
    except InlayerError:  # a shard that is missing or damaged, which matters where a tensor of it is needed
        return None


def _other_candidates(model: Model) -> list[str]:
    """Tensors that have a table's name too. Judged by names alone, so that no header but theirs is read; the index of a
    remote checkpoint is not read for it.
    """
    if model.store.remote:
        return []
    named = table_candidates(dict.fromkeys(model.store.names(), model.stored.shape), *model.stored.shape)
    return [name for name in named if name != model.stored.name] if len(named) <= MAX_CANDIDATES else []


def _is_rival(model: Model, name: str) -> bool:
    """A tensor of the table's size with other rows. T5 keeps its table under three names: those are no rivals."""
    try:
        if model.store.find(name).shape != model.stored.shape:
            return False
        some = np.unique(np.linspace(0, model.stored.shape[0] - 1, 16).astype(np.int64))
        return not torch.equal(model.store.table(name).read(some), model.table.read(some))
    except InlayerError:
        return False


def _rotary_facts(spec: LayerSpec) -> tuple[RotaryFacts, ...]:
    if spec.rotary is None:
        return ()
    angles = spec.rotary.angles
    kinds: list[tuple[str | None, Angles]] = list(angles.items()) if isinstance(angles, dict) else [(None, angles)]
    return tuple(
        RotaryFacts(
            layers=layers,
            type="default" if one.scaling is None else type(one.scaling).__name__.lower(),
            theta=one.theta,
            factor=getattr(one.scaling, "factor", None),
            original_max_position_embeddings=_bounded(getattr(one.scaling, "original_max_position_embeddings", None)),
            partial=one.partial,
        )
        for layers, one in kinds
    )


def _context(spec: LayerSpec, rotary: tuple[RotaryFacts, ...]) -> int | None:
    """The longest text. A config gives it after stretching (LLaMA-3.1, Phi-3), or before: a factor on the declared
    length, or in YaRN on the trained one (Qwen). Where positions start past the padding's, the first are no token's.
    """
    if spec.block_size is None:
        return None
    if spec.positions == "learned":
        return bounded(max(0, spec.block_size - spec.position_id_rule.start))
    scaling = rotary[0] if len(rotary) == 1 else None
    if scaling is None or scaling.factor is None or scaling.type not in STRETCHING:
        return bounded(spec.block_size)
    longest = min((scaling.original_max_position_embeddings or bounded(spec.block_size)) * scaling.factor, 2.0**62)
    return bounded(max(spec.block_size, round(longest)))


def _size(config: dict[str, Any], *names: str) -> int | None:
    return next((bounded(value) for value in map(config.get, names) if type(value) is int), None)


def _bounded(number: int | None) -> int | None:
    return None if number is None else bounded(number)


def _word(value: object) -> str | None:
    return printable(value[:60]) if isinstance(value, str) else None

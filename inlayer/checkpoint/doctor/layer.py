"""The table, its positions and its head: what the files say, what the config says, and where the two disagree.

[checkpoint] files -> [facts -> findings]
- nothing but headers and the small parts (positions, norms) is read here; the head is compared with the table in blocks
- no head is normal for an encoder or a model saved without one: the class that the config names decides
- not here: tokens (doctor/vocabulary.py), rows (doctor/rows.py)
Checked with one damaged copy a finding in tests/checkpoint/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from inlayer.checkpoint.doctor.report import Finding, LayerFacts, PositionFacts, RotaryFacts
from inlayer.checkpoint.model import Model
from inlayer.errors import ConfigError, InlayerError
from inlayer.families import FAMILIES, LayerSpec, describe
from inlayer.families.table import NESTED
from inlayer.families.weights import PARTS, choose_part, table_candidates
from inlayer.paths import printable
from inlayer.positions import Angles

__all__ = ["layer_facts", "layer_findings", "part_findings", "position_facts", "text_config"]

LONGEST_NAME = 200  # characters of a tensor's name that are shown
MOST_CANDIDATES = 16  # more are no candidates: no tensor has a table's name, and all have been taken
SMALLEST_THETA = 500.0  # published models have 10,000 and more
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
        tensor=printable(stored.name[:LONGEST_NAME]),
        file=printable(stored.file),
        offset=stored.offset,
        bytes=stored.nbytes,
        dtype=stored.dtype,
        rows=rows,
        width=width,
        config_rows=spec.vocab_size if spec is not None else _size(config, "vocab_size"),
        config_width=(spec.row_width or spec.n_embd) if spec is not None else _size(config, "hidden_size", "n_embd"),
        config_dtype=_word(config.get("torch_dtype") or config.get("dtype")),
        scale=spec.scale * spec.multiplier if spec is not None else None,
        parameters=rows * width,
        model_parameters=whole,
        share=rows * width / whole if whole else None,
        other_candidates=tuple(printable(name) for name in _other_candidates(model)),
    )


def position_facts(model: Model) -> PositionFacts:
    spec = model.spec
    if spec is None:
        return PositionFacts(kind="unknown", context=None, tensor=None, tensor_rows=None, rotary=())
    tensor, tensor_rows = None, None
    if spec.positions == "learned":
        tensor = choose_part("position_embedding.weight", model.store.names(), model.stored.name)
        try:
            tensor_rows = model.store.find(tensor).shape[0] if tensor is not None else None
        except InlayerError:  # said by part_findings
            tensor_rows = None
    rotary = _rotary_facts(spec)
    return PositionFacts(
        kind=spec.positions, context=_context(spec, rotary), tensor=tensor, tensor_rows=tensor_rows, rotary=rotary
    )


def layer_findings(model: Model, facts: LayerFacts, positions: PositionFacts) -> Iterator[Finding]:
    """Where table and config disagree."""
    yield from _config_findings(model)
    if facts.config_rows is not None and facts.config_rows != facts.rows:
        yield Finding(
            severity="error",
            code="config-rows-differ",
            meaning=f"the table has {facts.rows:,} rows and the config's vocab_size is {facts.config_rows:,}",
            advice="set vocab_size to the table's rows, or save the table again after the resize",
        )
    if facts.config_width is not None and facts.config_width != facts.width:
        yield Finding(
            severity="error",
            code="config-width-differs",
            meaning=f"a row has {facts.width:,} channels and the config asks for {facts.config_width:,}",
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
            meaning=f"{printable(rivals[0])} could be the table too: it has the size of {facts.tensor}, which was "
            "taken, and other rows",
            advice="if the other one is meant, leave it alone in its file; delete what is left over from training",
            count=len(rivals),
        )
    for angles in positions.rotary:
        if angles.theta < SMALLEST_THETA:
            yield Finding(
                severity="warning",
                code="rope-theta-odd",
                meaning=f"the rotary base is {angles.theta:g}; published models have 10,000 and more",
                advice="compare rope_theta with the model's own config.json",
            )


def part_findings(model: Model, positions: PositionFacts) -> Iterator[Finding]:
    """The small parts of the layer: are they there, long enough, finite?"""
    spec = model.spec
    for part in PARTS:
        if spec is None or not _needed(part, spec):
            continue
        name = choose_part(part, model.store.names(), model.stored.name)
        if name is None:
            continue
        try:
            values = model.store.read(name)
        except InlayerError as error:
            yield Finding(
                severity="warning",
                code="part-unreadable",
                meaning=f"{printable(name)} cannot be read: {printable(str(error))}",
                advice="fetch the file that holds it",
            )
            continue
        if not bool(torch.isfinite(values.float()).all()):
            yield Finding(
                severity="error",
                code="part-not-finite",
                meaning=f"{printable(name)} holds NaN or infinity, which reaches every token",
                advice="fetch the file again; if it is a fresh training result, the run diverged",
            )
    if spec is None or spec.positions != "learned" or positions.tensor_rows is None:
        return
    wanted = (spec.block_size or 0) + spec.position_offset
    if positions.tensor_rows != wanted:
        short = positions.tensor_rows < wanted
        yield Finding(
            severity="error",
            code="positions-too-short" if short else "positions-too-long",
            meaning=f"there are {positions.tensor_rows:,} rows of positions and the config asks for {wanted:,}",
            advice="set max_position_embeddings to what the table has" + (", or texts past it fail" if short else ""),
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
            meaning=printable(str(error)).split("; known are")[0],
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
    if model.store.kind == "hub":
        return []
    named = table_candidates(dict.fromkeys(model.store.names(), model.stored.shape), *model.stored.shape)
    return [name for name in named if name != model.stored.name] if len(named) <= MOST_CANDIDATES else []


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
            trained_length=getattr(one.scaling, "trained_length", None),
            partial=one.partial,
        )
        for layers, one in kinds
    )


def _context(spec: LayerSpec, rotary: tuple[RotaryFacts, ...]) -> int | None:
    """The longest text. A config gives it after stretching (LLaMA-3.1), or before: a factor on the trained length."""
    if spec.block_size is None or len(rotary) != 1 or rotary[0].factor is None:
        return spec.block_size
    trained = rotary[0].trained_length or spec.block_size
    return max(spec.block_size, round(trained * rotary[0].factor)) if trained == spec.block_size else spec.block_size


def _needed(part: str, spec: LayerSpec) -> bool:
    """Does the family's layer have this part?"""
    return {
        "position_embedding.weight": spec.positions == "learned",
        "token_type_embedding.weight": spec.token_types > 0,
        "norm.weight": spec.norm_eps is not None,
        "norm.bias": spec.norm_eps is not None,
        "projection.weight": spec.projected != "no",
        "projection.bias": spec.projected != "no",
        "head.bias": spec.head.bias,
    }[part]


def _size(config: dict[str, Any], *names: str) -> int | None:
    return next((value for value in map(config.get, names) if type(value) is int), None)


def _word(value: object) -> str | None:
    return printable(value)[:60] if isinstance(value, str) else None

"""Positions: context length and rotary settings from the config, and the values of learned positions.

source -> Model -> facts -> [findings] -> Report
- a learned position table is scanned in blocks, like the token table
- rows that no token uses are ignored: OPT reserves two in front, RoBERTa those up to the padding id
- randomly initialized positions are fine
- elsewhere: shapes of all tensors (check_layer_tensors.py)
Tested with damaged checkpoints in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.families import LayerSpec
from inlayer.families.weights import choose_part
from inlayer.inspection.check_table import MAX_NAME
from inlayer.inspection.findings import Finding, shorten
from inlayer.inspection.report import PositionFacts, RotarySummary
from inlayer.inspection.scan import Flags, RowStatistics

__all__ = ["LEARNED_POSITIONS", "context_findings", "position_facts", "position_row_findings"]

LEARNED_POSITIONS = "position_embedding.weight"
MIN_THETA, MAX_THETA = 500.0, 1e12  # published models use 10,000 to about 5e10
MIN_CONTEXT, MAX_CONTEXT = 8, 2**32  # tokens
EXTENDING = frozenset(
    ("linear", "dynamicntk", "yarn")
)  # their factor multiplies a length; LLaMA-3's and Phi-3's do not
MAX_IDENTICAL = 0.01  # of the positions: a table extended by repeating it has a few of each
SCALE_RATIO = 100.0  # between positions and scaled rows, which are added up
MAX_RMS, MIN_RMS = 1.0, 1e-5  # values in between are always accepted


def position_facts(model: Model) -> PositionFacts:
    if (spec := model.spec) is None:
        return PositionFacts(kind="unknown")
    rotary = _rotary_facts(spec)
    length = _context_length(spec, rotary)
    name = None
    if spec.positions == "learned":  # otherwise all tensor names, which may be remote, are not needed
        name = choose_part(LEARNED_POSITIONS, model.store.names(), model.table_info.name)
    if name is None:
        return PositionFacts(kind=spec.positions, context_length=length, rotary=rotary)
    try:
        tensor_rows = next(iter(model.store.find(name).shape), None)
    except InlayerError:  # reported as tensor-unreadable
        tensor_rows = None
    return PositionFacts(kind="learned", context_length=length, tensor=shorten(name, MAX_NAME), tensor_rows=tensor_rows)


def context_findings(model: Model, facts: PositionFacts) -> Iterator[Finding]:
    """Context lengths and rotary bases outside of what models use."""
    unusual = [rotary.rope_theta for rotary in facts.rotary if not MIN_THETA <= rotary.rope_theta <= MAX_THETA]
    if unusual:
        message = f"rope_theta is {unusual[0]:g}; published models use 10,000 to 5e10"
        yield Finding("warning", "unusual-rope-theta", message, len(unusual))
    length, declared = facts.context_length, model.spec.block_size if model.spec is not None else None
    if length is None or declared is None:
        return
    if not MIN_CONTEXT <= length <= MAX_CONTEXT:
        message = f"the context length is {length:,} token{'' if length == 1 else 's'}"
        yield Finding("warning", "unusual-context-length", message)
    original = max((rotary.original_max_position_embeddings or 0 for rotary in facts.rotary), default=0)
    if original > declared:
        message = f"max_position_embeddings is {declared:,}, less than the original length of "
        message += f"{original:,} that rotary scaling starts from"
        yield Finding("warning", "context-length-below-original", message)


def position_row_findings(scan: RowStatistics, spec: LayerSpec, name: str, row_rms: float | None) -> Iterator[Finding]:
    """Learned positions that cannot express order; `row_rms` is the RMS of a typical row of the table."""
    used = np.arange(len(scan.ids)) >= spec.position_offset + spec.position_id_rule.start
    yield from _indistinct_findings(scan, used, name)
    norms = scan.norms[used & ~scan.is_zero]
    if not len(norms) or row_rms is None:
        return
    rms, expected = float(np.median(norms)) / math.sqrt(len(scan.channel_means)), row_rms * spec.scale * spec.multiplier
    if rms > max(MAX_RMS, SCALE_RATIO * expected) or rms < min(MIN_RMS, expected / SCALE_RATIO):
        message = f"values of a typical position are about {rms:.1g}, those of a row {expected:.1g}; one of the two "
        yield Finding("warning", "positions-scale-mismatch", message + "disappears in their sum")


def _indistinct_findings(scan: RowStatistics, used: Flags, name: str) -> Iterator[Finding]:
    """Positions that are zero or identical."""
    count, zero = int(used.sum()), int((used & scan.is_zero).sum())
    if zero > 1 or 0 < count == zero:
        message = f"{zero:,} of {count:,} positions in {name} are zero, so tokens there have no position"
        yield Finding("error" if zero == count else "warning", "positions-zero", message, zero)
    _, sizes = np.unique(scan.first_equal[used & ~scan.is_zero], return_counts=True)
    largest = int(sizes.max(initial=0))
    if largest > 2 and largest > MAX_IDENTICAL * count:
        message = f"{largest:,} of {count:,} positions in {name} are identical; the model cannot distinguish them"
        yield Finding("error" if largest == count else "warning", "positions-identical", message, largest)


def _rotary_facts(spec: LayerSpec) -> tuple[RotarySummary, ...]:
    if spec.rotary is None:
        return ()
    angles = spec.rotary.angles
    by_type: dict[Any, Any] = angles if isinstance(angles, dict) else {None: angles}
    return tuple(
        RotarySummary(
            layer_type=layer_type,
            rope_type="default" if one.scaling is None else type(one.scaling).__name__.lower(),
            rope_theta=one.theta,
            factor=getattr(one.scaling, "factor", None),
            original_max_position_embeddings=getattr(one.scaling, "original_max_position_embeddings", None),
            partial_rotary_factor=one.partial,
        )
        for layer_type, one in by_type.items()
    )


def _context_length(spec: LayerSpec, rotary: tuple[RotarySummary, ...]) -> int | None:
    """Effective context length. Configs state it after scaling (LLaMA-3.1, Phi-3) or before, as a factor on the
    declared length or, for YaRN (Qwen), on the original one. Learned positions may start after the padding id.
    """
    if spec.block_size is None:
        return None
    if spec.positions == "learned":
        return max(0, spec.block_size - spec.position_id_rule.start)
    scaling = rotary[0] if len(rotary) == 1 else None
    if scaling is None or scaling.factor is None or scaling.rope_type not in EXTENDING:
        return spec.block_size
    extended = min((scaling.original_max_position_embeddings or spec.block_size) * scaling.factor, 2.0**62)
    return max(spec.block_size, round(extended))

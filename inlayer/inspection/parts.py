"""What a layer adds to its rows: positions, token types, norm, projection. Are they there, whole, and learned?

[checkpoint] files -> [facts -> findings]
- a part is read only if its header gives the shape that the config asks for: a file may claim any
- learned positions are scanned in blocks by the code that scans the table; the other parts are read whole, if small
- rows of positions that no token has are left alone: OPT keeps two in front, RoBERTa those up to the padding's
- newborn positions are small random numbers, and fine
- not here: rotary positions, which are no tensor (doctor/layer.py)
Checked with damaged copies in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.families import LayerSpec
from inlayer.families.weights import PARTS, choose_part
from inlayer.formats.safetensors import TensorInfo
from inlayer.inspection.health import RowStatistics, scan_rows
from inlayer.inspection.report import Finding, PositionFacts, bounded, counted, shorten
from inlayer.paths import quoted
from inlayer.tensors import to_tensor

__all__ = ["are_small", "part_findings"]

Flags = npt.NDArray[np.bool_]

POSITIONS = "position_embedding.weight"
MAX_VALUES = 2**26  # of a part that is read whole: 256 MB in float32
MAX_POSITIONS = 2**23
LARGEST_GROUP = 0.01  # of the positions may be equal: a table made longer by repeating it has a few of each
OUT_OF_SCALE = 100.0  # times the values of a row, as it enters the sum
LARGEST_USUAL, SMALLEST_USUAL = 1.0, 1e-5  # values that need no comparison


def part_findings(model: Model, positions: PositionFacts, row_rms: float | None) -> Iterator[Finding]:
    """The parts of the layer that are in the files; `row_rms` is of the values of a usual row of the table."""
    spec = model.spec
    if spec is None:
        return
    for part, shape, stored in _parts(model, spec):
        if isinstance(stored, InlayerError):
            yield _unreadable(part, stored)
        elif stored.shape != shape:
            yield from _wrong_shape(part, stored, shape, positions)
        elif part == POSITIONS and shape[0] <= MAX_POSITIONS:
            yield from _scanned_positions(model, spec, stored, row_rms)
        elif math.prod(shape) > MAX_VALUES:
            yield Finding(
                severity="warning",
                code="part-too-large",
                meaning=f"{quoted(stored.name)} has {math.prod(shape):,} values, and was not read",
                advice="no published model has such a part; compare config.json with the model's own",
            )
        else:
            yield from _read_whole(model, stored)


def are_small(model: Model) -> bool:
    """May the layer be put together, whose parts are read whole?"""
    if model.spec is None:
        return True
    parts = [stored for _, _, stored in _parts(model, model.spec)]
    return all(isinstance(stored, InlayerError) or math.prod(stored.shape) <= MAX_VALUES for stored in parts)


def _parts(model: Model, spec: LayerSpec) -> Iterator[tuple[str, tuple[int, ...], TensorInfo | InlayerError]]:
    """Every part that the family's layer has and the files hold, with the shape it should have."""
    for part in PARTS:
        shape = _shape(part, spec)
        name = choose_part(part, model.store.names(), model.table_info.name) if shape is not None else None
        if shape is None or name is None:
            continue
        try:
            yield part, shape, model.store.find(name)
        except InlayerError as error:
            yield part, shape, error


def _shape(part: str, spec: LayerSpec) -> tuple[int, ...] | None:
    """What the config asks for; None where the family's layer has no such part."""
    row_width = spec.row_width or spec.n_embd
    sum_width = row_width if spec.project == "sum" else spec.n_embd
    learned, normed, projected = spec.positions == "learned", spec.norm_eps is not None, spec.project is not None
    return {
        POSITIONS: ((spec.block_size or 0) + spec.position_offset, sum_width) if learned else None,
        "token_type_embedding.weight": (spec.token_types, sum_width) if spec.token_types > 0 else None,
        "norm.weight": (sum_width,) if normed else None,
        "norm.bias": (sum_width,) if normed else None,
        "projection.weight": (spec.n_embd, row_width) if projected else None,
        "projection.bias": (spec.n_embd,) if projected else None,
        "head.bias": (spec.vocab_size,) if spec.head.bias else None,
    }[part]


def _unreadable(part: str, error: InlayerError) -> Finding:
    return Finding(
        severity="warning",
        code="part-unreadable",
        meaning=f"{part} cannot be read: {shorten(str(error), 300)}",
        advice="fetch the file that holds it",
    )


def _wrong_shape(part: str, stored: TensorInfo, shape: tuple[int, ...], positions: PositionFacts) -> Iterator[Finding]:
    if part == POSITIONS and positions.tensor_rows is not None and stored.shape[1:] == shape[1:]:
        short = positions.tensor_rows < shape[0]
        yield Finding(
            severity="error",
            code="positions-too-short" if short else "positions-too-long",
            meaning=f"there are {positions.tensor_rows:,} rows of positions and the config asks for "
            f"{counted(bounded(shape[0]))}",
            advice="set max_position_embeddings to what the table has" + (", or texts past it fail" if short else ""),
        )
        return
    yield Finding(
        severity="error",
        code="part-shape-differs",
        meaning=f"{quoted(stored.name)} has shape {quoted(stored.shape)}, and the config asks for "
        f"{quoted(tuple(map(bounded, shape)))}",
        advice="these weights and this config.json are of different models; fetch the pair again",
    )


def _read_whole(model: Model, stored: TensorInfo) -> Iterator[Finding]:
    try:
        values = model.store.read(stored.name)
    except InlayerError as error:
        yield _unreadable(quoted(stored.name), error)
        return
    if not bool(torch.isfinite(to_tensor(values).float()).all()):
        yield _not_finite(stored)


def _not_finite(stored: TensorInfo) -> Finding:
    return Finding(
        severity="error",
        code="part-not-finite",
        meaning=f"{quoted(stored.name)} holds NaN or infinity, which reaches every token",
        advice="fetch the file again; if it is a fresh training result, the run diverged",
    )


def _scanned_positions(model: Model, spec: LayerSpec, stored: TensorInfo, row_rms: float | None) -> Iterator[Finding]:
    try:
        seen = scan_rows(model.store.table(stored.name))
    except InlayerError as error:
        yield _unreadable(quoted(stored.name), error)
        return
    if not seen.finite.all():
        yield _not_finite(stored)
        return
    used = np.arange(len(seen.ids)) >= spec.position_offset + spec.position_id_rule.start
    yield from _without_order(seen, used, quoted(stored.name))
    norms = seen.norms[used & ~seen.is_zero]
    if not len(norms) or row_rms is None:
        return
    rms, usual = float(np.median(norms)) / math.sqrt(stored.shape[1]), row_rms * spec.scale * spec.multiplier
    if rms > max(LARGEST_USUAL, OUT_OF_SCALE * usual) or rms < min(SMALLEST_USUAL, usual / OUT_OF_SCALE):
        yield Finding(
            severity="warning",
            code="positions-out-of-scale",
            meaning=f"the values of a usual position are about {rms:.1g}, those of a row {usual:.1g}: the sum is one "
            "of them alone",
            advice="was a scale applied twice, or a quantized tensor read without its scale?",
        )


def _without_order(seen: RowStatistics, used: Flags, name: str) -> Iterator[Finding]:
    """Positions that are all alike give no order: zero ones, equal ones."""
    count, zero = int(used.sum()), int((used & seen.is_zero).sum())
    if zero > 1 or 0 < count == zero:
        yield Finding(
            severity="error" if zero == count else "warning",
            code="positions-zero",
            meaning=f"{zero:,} of the {count:,} positions in {name} are zero: tokens there have no place",
            advice="fetch the file again; was the table made longer without training the new rows?",
            count=zero,
        )
    _, sizes = np.unique(seen.first_equal[used & ~seen.is_zero], return_counts=True)
    largest = int(sizes.max(initial=0))
    if largest > 2 and largest > LARGEST_GROUP * count:
        yield Finding(
            severity="error" if largest == count else "warning",
            code="positions-equal",
            meaning=f"{largest:,} of the {count:,} positions in {name} are equal: the model cannot tell them apart",
            advice="fetch the file again; was the table made longer without training the new rows?",
            count=largest,
        )

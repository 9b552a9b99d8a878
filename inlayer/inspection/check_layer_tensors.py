"""Other tensors of the layer: are positions, token types, norm and projection present, complete and finite?

source -> Model -> facts -> [findings] -> Report
- a tensor is read only if its header gives the shape that the config requires; a file may claim any shape
- learned positions are scanned in blocks; the other tensors are read whole if they are small
- elsewhere: rotary positions, which have no tensor, and the values of learned ones (check_positions.py)
Tested with damaged checkpoints in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.families import LayerSpec
from inlayer.families.weights import PARTS, choose_part
from inlayer.files import quoted
from inlayer.formats.safetensors import TensorInfo
from inlayer.inspection.check_positions import LEARNED_POSITIONS, position_row_findings
from inlayer.inspection.findings import Finding, shorten
from inlayer.inspection.report import PositionFacts
from inlayer.inspection.scan import scan_rows

__all__ = ["layer_tensor_findings"]

MAX_VALUES = 2**26  # of a tensor that is read whole: 256 MB in float32
MAX_POSITIONS = 2**23


def layer_tensor_findings(model: Model, positions: PositionFacts, row_rms: float | None) -> Iterator[Finding]:
    """Missing or damaged tensors of the layer; `row_rms` is the RMS of a typical row of the table."""
    if model.spec is None:
        return
    for part, shape in _shapes(model.spec).items():
        name = choose_part(part, model.store.names(), model.table_info.name)
        if name is None:
            if part != "head.bias":  # a model saved without its head has none
                yield Finding("error", "tensor-missing", f"the files contain no tensor for {part}")
            continue
        try:
            stored = model.store.find(name)
            if stored.shape != shape:
                yield _wrong_shape(part, stored, shape, positions)
            else:
                yield from _value_findings(model, model.spec, part, stored, row_rms)
        except InlayerError as error:
            message = f"{quoted(name)} cannot be read: {shorten(str(error), 300)}"
            yield Finding("warning", "tensor-unreadable", message)


def _shapes(spec: LayerSpec) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that the config requires."""
    row_width = spec.row_width or spec.n_embd
    sum_width = row_width if spec.project == "sum" else spec.n_embd
    learned, normed, projected = spec.positions == "learned", spec.norm_eps is not None, spec.project is not None
    shapes = {
        LEARNED_POSITIONS: ((spec.block_size or 0) + spec.position_offset, sum_width) if learned else None,
        "token_type_embedding.weight": (spec.token_types, sum_width) if spec.token_types > 0 else None,
        "norm.weight": (sum_width,) if normed else None,
        "norm.bias": (sum_width,) if normed else None,
        "projection.weight": (spec.n_embd, row_width) if projected else None,
        "projection.bias": (spec.n_embd,) if spec.project == "sum" else None,
        "head.bias": (spec.vocab_size,) if spec.head.bias else None,
    }
    return {part: shape for part in PARTS if (shape := shapes[part]) is not None}


def _wrong_shape(part: str, stored: TensorInfo, shape: tuple[int, ...], positions: PositionFacts) -> Finding:
    rows = positions.tensor_rows
    if part == LEARNED_POSITIONS and rows is not None and stored.shape[1:] == shape[1:]:
        code = "positions-too-few" if rows < shape[0] else "positions-too-many"
        message = f"the files contain {rows:,} positions, but the config requires {shape[0]:,}"
        return Finding("error", code, message)
    message = f"{quoted(stored.name)} has shape {quoted(stored.shape)}, but the config requires {shape}"
    return Finding("error", "tensor-shape-mismatch", message)


def _value_findings(
    model: Model, spec: LayerSpec, part: str, stored: TensorInfo, row_rms: float | None
) -> Iterator[Finding]:
    name, size = quoted(stored.name), math.prod(stored.shape)
    if part == LEARNED_POSITIONS and stored.shape[0] <= MAX_POSITIONS:
        scan = scan_rows(model.store.table(stored.name))
        if scan.finite.all():
            yield from position_row_findings(scan, spec, name, row_rms)
            return
    elif size > MAX_VALUES:
        yield Finding("warning", "tensor-too-large", f"{name} has {size:,} values and was not read")
        return
    elif np.isfinite(model.store.read(stored.name).astype(np.float64)).all():
        return
    message = f"{name} contains NaN or infinity, which affects every token"
    yield Finding("error", "tensor-not-finite", message)

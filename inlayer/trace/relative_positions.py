"""Relative positions in a walk: the slopes of ALiBi, or the rows of a learned table, by distance.

text -> ids -> rows -> [positions] -> hidden states -> head
- they add nothing to the token rows; attention adds the bias to its scores, or multiplies the table's rows by queries
  and keys
- the numbers come from positions/relative.py. A learned table is small, so it is read as a whole
Part of step 6 of trace/terminal.py. Tested against transformers in tests/trace/test_relative.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from rich.text import Text

from inlayer.checkpoint.model import Model
from inlayer.errors import CheckpointError
from inlayer.families.spec import AlibiSpec, RelativeBucketSpec
from inlayer.families.tensor_names import RELATIVE
from inlayer.files import quote
from inlayer.formats.tensor_info import TensorInfo
from inlayer.positions import alibi_from_spec, relative_rows
from inlayer.render.glyphs import NUMBER, number
from inlayer.tensors import to_tensor
from inlayer.trace.family_facts import RelativeFacts
from inlayer.trace.layout import INDENT, Layout, padded

if TYPE_CHECKING:
    from inlayer.trace.forward import ForwardPass

KEY, FROM_LAST, DISTANCE = "position of the key", "position of the key - last position", "position of the key - query"
MAX_HEADS = 4  # heads shown in the terminal
MAX_BIAS_BYTES = 16 << 20


def relative_facts(result: ForwardPass) -> RelativeFacts | None:
    """Return the relative positions of the recorded range, or None if the model has none."""
    spec = result.pipeline.layer.relative
    if isinstance(spec, AlibiSpec):
        return _alibi(result, spec)
    return None if spec is None else _buckets(result, spec)


def _alibi(result: ForwardPass, spec: AlibiSpec) -> RelativeFacts:
    columns = torch.arange(result.shown.start, result.shown.start + result.n_shown)
    if spec.bias_max is not None:
        columns -= result.n_tokens - 1
    slopes, bias = alibi_from_spec(spec, columns[None], result.pipeline.layer.dtype)
    return RelativeFacts(
        kind="alibi", n_heads=spec.heads, slopes=slopes.tolist(), counts_from_end=spec.bias_max is not None,
        column_label=KEY if spec.bias_max is None else FROM_LAST,
        columns=columns.tolist(), tensor="", rows=[], offsets=[], bias=bias[0, : result.recorded.dims, 0].tolist(),
    )  # fmt: skip


def _buckets(result: ForwardPass, spec: RelativeBucketSpec) -> RelativeFacts:
    columns = torch.arange(1 - result.n_shown, max(result.n_shown, 1))
    rows = relative_rows(spec, columns)
    tensor, n_heads, bias, offsets = "", None, list[list[float]](), list[int]()
    model = result.pipeline.model
    if model is not None and (stored := _find_table(model, spec)) is not None:
        tensor, offsets = stored.name, (stored.offset + rows * (stored.nbytes // stored.shape[0])).tolist()
        if spec.kind == "t5":
            n_heads, table = stored.shape[1], to_tensor(model.store.read(stored.name))
            bias = table.to(result.pipeline.layer.dtype)[rows, : result.recorded.dims].T.tolist()
    return RelativeFacts(
        kind=spec.kind, n_heads=n_heads, slopes=[], counts_from_end=False, column_label=DISTANCE,
        columns=columns.tolist(), tensor=tensor, rows=rows.tolist(), offsets=offsets, bias=bias,
    )  # fmt: skip


def _find_table(model: Model, spec: RelativeBucketSpec) -> TensorInfo | None:
    """Return the learned table, checked against the config, or None if the files contain none."""
    name = next(filter(RELATIVE.fullmatch, model.store.names()), None)
    if name is None:
        return None
    stored = model.store.find(name)
    if len(stored.shape) != 2 or stored.shape[0] != spec.rows:
        raise CheckpointError(
            f"{model.source}: tensor {quote(name)} has shape {quote(stored.shape)}; its config requires "
            f"{spec.rows:,} rows"
        )
    if spec.kind == "t5" and stored.nbytes > MAX_BIAS_BYTES:
        raise CheckpointError(f"{model.source}: tensor {quote(name)} is {stored.nbytes:,} bytes; it is not a bias")
    return stored


def add_relative_positions(layout: Layout, facts: RelativeFacts) -> None:
    """Add a table with one column per position or distance: the row used, and the bias of the first heads."""
    layout.note(_description(facts))
    if not facts.columns:
        return
    heads = [f"head {head}" for head in range(len(facts.bias[:MAX_HEADS]))]
    title, width = "", max(map(len, ["slope", *heads]))
    if facts.slopes:
        slopes = map(number, facts.slopes)
        heads = [f"{name:<{width}} {slope:>{NUMBER}}" for name, slope in zip(heads, slopes, strict=False)]
        width += NUMBER + 1
        title = f"{'slope':>{width}}"
    fitting = max(1, (layout.columns - INDENT - width - 2) // (NUMBER + 1))
    zero = facts.columns.index(0) if 0 in facts.columns else 0
    start = max(0, min(len(facts.columns) - fitting, zero - fitting // 2))

    def add(name: str, cells: Sequence[float], style: str = "", write: Callable[[float], str] = str) -> None:
        line = padded(Text(" " * INDENT + name, style="dim"), INDENT + width)
        shown = cells[start : start + fitting]
        layout.add(line.append("".join(f" {write(cell):>{NUMBER}}" for cell in shown), style=style))

    add(title, facts.columns, "dim")
    if facts.rows:
        add("row", facts.rows, "cyan")
    for name, values in zip(heads, facts.bias, strict=False):
        add(name, values, write=number)
    layout.more(len(facts.columns) - fitting, "position" if facts.slopes else "distance")
    layout.more((facts.n_heads or 0) - MAX_HEADS, "head")


def _description(facts: RelativeFacts) -> str:
    if facts.kind == "alibi":
        return f"ALiBi: bias = slope x ({facts.column_label}), one column for each"
    source = f"rows of {facts.tensor}" if facts.tensor else "rows of a learned table"
    use = "one bias per head" if facts.kind == "t5" else "a vector that attention multiplies by queries and keys"
    return f"relative positions: {source}, {use}; one column for each distance ({facts.column_label})"

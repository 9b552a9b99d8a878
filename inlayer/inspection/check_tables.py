"""Every other table: per-layer, n-gram, value and routing tables, copies for multi-token prediction, and positions.

source -> Model -> facts -> [findings] -> Report
- the token table and the head are read elsewhere; of the others, rows are read in blocks, or a sample of them in a
  quick inspection, from a remote file, and from a table with more rows than a vocabulary
- a table with one row per token must have as many rows as the token table, or as the config requires
- rows of a copy are compared with the token table or the head; a few that differ are a fault, all of them are not
- elsewhere: which tensors are tables (checkpoint/find_tables.py), learned positions (check_layer.py)
Tested with damaged checkpoints in tests/inspection/test_tables.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.find_tables import TableInfo, describe_table, table_names
from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.files import quoted
from inlayer.inspection.findings import Finding, shorten
from inlayer.inspection.report import OtherTableFacts
from inlayer.inspection.scan import Ids, Progress, RowStatistics, scan_rows
from inlayer.inspection.token_kinds import TokenKind, TokenKinds

PER_TOKEN = ("per_layer", "value", "mtp", "routing")  # roles of tables with one row per token
MAX_LISTED = 200  # tables; a model may have one per block
MAX_SCANNED = 2**23  # rows that are all read; n-gram tables have hundreds of millions
MAX_ROUTING = 2**24  # values
MAX_DEAD = 0.01  # of the rows: beyond this, they are not a few rare tokens


@dataclass(frozen=True, eq=False)
class OtherTables:
    """What is known about the tables besides token table and head, and what could not be checked."""

    facts: tuple[OtherTableFacts, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()


def check_tables(
    model: Model, tokens: TokenKinds, sample: Callable[[int], Ids], *, quick: bool, progress: Progress | None = None
) -> OtherTables:
    """Read and check every table besides the token table and the head; `sample` chooses rows of a long one."""
    if model.store.remote and quick:
        return OtherTables(not_checked=("other tables (quick; remote)",))
    facts, findings, not_checked = list[OtherTableFacts](), list[Finding](), list[str]()
    parameters = _parameters(model)
    listed = [one for one in table_names(model) if one[0] not in (model.table_info.name, model.head_name)]
    required = model.spec is not None and model.spec.per_layer is not None
    if required and not any(role == "per_layer" for _, role in listed):
        findings.append(Finding("error", "tensor-missing", "the files contain no table of per-layer embeddings"))
    for name, role in listed[:MAX_LISTED]:
        try:
            info = describe_table(model, name, role, parameters)
            rows = info.shape[0]
            ids = sample(rows) if quick or model.store.remote or rows > MAX_SCANNED else None
            fact, found = _check(model, info, tokens, ids, progress)
        except InlayerError as error:
            message = f"{quoted(name)} cannot be read: {shorten(str(error), 300)}"
            findings.append(Finding("warning", "table-unreadable", message))
            continue
        facts.append(fact)
        findings += found
        if fact.rows_read < rows and not quick:
            not_checked.append(f"{rows - fact.rows_read:,} of {rows:,} rows of {fact.tensor}")
    if len(listed) > MAX_LISTED:
        not_checked.append(f"{len(listed) - MAX_LISTED:,} more tables")
    return OtherTables(tuple(facts), tuple(findings), tuple(not_checked))


def _parameters(model: Model) -> int | None:
    try:
        return model.store.parameters()
    except InlayerError:  # a missing shard
        return None


def _check(
    model: Model, info: TableInfo, tokens: TokenKinds, ids: Ids | None, progress: Progress | None
) -> tuple[OtherTableFacts, list[Finding]]:
    expected, original = _expected_rows(model, info), _original(model, info)
    findings = list(_row_count_findings(model, info, expected, tokens))
    common: dict[str, Any] = {
        "role": info.role, "tensor": shorten(info.name, 200), "file": shorten(info.file, 200), "offset": info.offset,
        "bytes": info.nbytes, "dtype": info.dtype, "rows": info.shape[0], "width": info.shape[1],
        "parameter_share": info.share, "expected_rows": expected, "scale": _scale(model, info),
    }  # fmt: skip
    if info.role == "routing":
        findings += _routing_findings(model, info)
        return OtherTableFacts(**common, rows_read=info.shape[0]), findings
    table, differing = model.store.table(info.name), list[int]()
    other = None if original is None else model.store.table(original)

    def compare(block: Ids, rows: npt.NDArray[Any]) -> None:
        if other is not None:
            differing.extend(block[(rows != other.rows(block)).any(1)].tolist())

    scan = scan_rows(table, ids, None, progress, compare)
    if original is not None:
        findings += _copy_findings(info, original, differing, len(scan.ids))
    if model.spec is None or info.role not in ("position", "token_type"):  # which check_layer.py has read
        findings += _value_findings(info, scan, tokens)
    norms = scan.norms[scan.finite & ~scan.is_zero]
    return OtherTableFacts(
        **common,
        rows_read=len(scan.ids),
        zero_rows=int(scan.is_zero.sum()),
        nan_rows=int((~scan.finite).sum()),
        duplicate_rows=int((scan.is_duplicate & ~scan.is_zero).sum()),
        norm_median=float(np.median(norms)) if len(norms) else None,
        copy_of=shorten(original, 200) if original is not None and not differing else None,
    ), findings


def _expected_rows(model: Model, info: TableInfo) -> int | None:
    """The rows that the config, or the token table, requires."""
    if info.role == "per_layer" and model.spec is not None and model.spec.per_layer is not None:
        return model.spec.per_layer.rows
    return model.table_info.shape[0] if info.role in PER_TOKEN else None


def _scale(model: Model, info: TableInfo) -> float | None:
    """The factor that is applied to looked-up rows."""
    extra = model.spec.per_layer if model.spec is not None and info.role == "per_layer" else None
    return None if extra is None else math.sqrt(extra.width)


def _original(model: Model, info: TableInfo) -> str | None:
    """The tensor that a copy for multi-token prediction may repeat: the head or the token table."""
    if info.role not in ("mtp", "token") or info.shape != model.table_info.shape:
        return None
    return model.head_name if "head" in info.name and model.head_name is not None else model.table_info.name


def _row_count_findings(model: Model, info: TableInfo, expected: int | None, tokens: TokenKinds) -> Iterator[Finding]:
    name, rows = quoted(info.name), info.shape[0]
    if expected is not None and rows != expected:
        yield Finding("error", "table-rows-mismatch", f"{name} has {rows:,} rows, but {expected:,} are required")
    elif info.role in PER_TOKEN and rows < model.table_info.shape[0] and tokens.tokenizer is not None:
        reached = tokens.ids[tokens.are(TokenKind.ORDINARY)]
        if beyond := int((reached >= rows).sum()):
            message = f"{name} has {rows:,} rows, so {beyond:,} tokens that occur in text have none"
            yield Finding("warning", "table-rows-mismatch", message, beyond)


def _copy_findings(info: TableInfo, original: str, differing: list[int], read: int) -> Iterator[Finding]:
    name = quoted(info.name)
    if not differing:
        yield Finding("note", "table-stored-twice", f"{name} equals {quoted(original)}, and both are stored")
    elif len(differing) <= read * 0.5:
        message = f"{name} is a copy of {quoted(original)}, except for {len(differing):,} of {read:,} rows"
        yield Finding("warning", "table-copy-differs", message, ids=tuple(differing))


def _value_findings(info: TableInfo, scan: RowStatistics, tokens: TokenKinds) -> Iterator[Finding]:
    name = quoted(info.name)
    if not scan.finite.all():
        bad = scan.ids[~scan.finite]
        message = f"{len(bad):,} rows of {name} contain NaN or infinity"
        yield Finding("error", "table-not-finite", message, ids=tuple(bad.tolist()))
    if info.role not in PER_TOKEN:
        return
    ordinary = np.isin(scan.ids, tokens.ids[tokens.are(TokenKind.ORDINARY, TokenKind.UNKNOWN)])
    dead = scan.ids[scan.is_zero & ordinary]
    if scan.is_zero.all():
        yield Finding("note", "table-zero-rows", f"every row of {name} is zero, as before training", ids=())
    elif len(dead):
        severe = len(dead) > MAX_DEAD * len(scan.ids)
        message = f"{len(dead):,} rows of {name} are zero, although their tokens occur in text"
        yield Finding("error" if severe else "warning", "table-zero-rows", message, ids=tuple(dead.tolist()))


def _routing_findings(model: Model, info: TableInfo) -> Iterator[Finding]:
    """A routing table has the experts of every token."""
    if math.prod(info.shape) > MAX_ROUTING:
        message = f"{quoted(info.name)} has {math.prod(info.shape):,} values and was not read"
        yield Finding("warning", "tensor-too-large", message)
        return
    experts = model.store.read_integers(info.name)
    if bad := np.flatnonzero((experts < 0).any(1)).tolist():
        message = f"{len(bad):,} rows of {quoted(info.name)} have a negative expert"
        yield Finding("error", "table-not-finite", message, ids=tuple(bad))
    elif not experts.any():
        message = f"{quoted(info.name)} sends every token to expert 0, as before training"
        yield Finding("note", "table-zero-rows", message)

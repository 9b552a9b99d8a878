"""Checks all other tables: per-layer, n-gram, value, and routing tables, multi-token prediction copies, and positions.

source -> Model -> facts -> [findings] -> Report
- the token table and the head are read elsewhere; all other rows are read in blocks, or sampled in a
  quick inspection, from a remote file, and from a table with more rows than a vocabulary
- a table with one row per token must have as many rows as the token table, or as the config requires
- rows of a copy are compared with the token table or the head. A few different rows are a defect; if all differ, the
  table is not a copy
- see also: finding the tables (checkpoint/find_tables.py), learned positions (check_layer.py)
Tested with damaged checkpoints in tests/inspection/test_tables.py and test_ngrams.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from inlayer.checkpoint.find_tables import TableInfo, describe_table, head_shape, open_memory, table_names
from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.families.config_reader import text_config
from inlayer.files import quote
from inlayer.inspection.check_layer import fp8_findings, is_part
from inlayer.inspection.check_tokens import TokenKind, TokenKinds
from inlayer.inspection.findings import Finding, Severity, shorten
from inlayer.inspection.report import NgramMemoryFacts, OtherTableFacts, describe_tensor, share_bytes
from inlayer.inspection.scan import RowStatistics, sample_ids, scan_rows
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Ids

PER_TOKEN = ("per_layer", "value", "mtp", "routing")  # roles of tables with one row per token
MAX_LISTED = 4096  # tables; a model may have one per block, or a table in hundreds of parts
MAX_SCANNED = 2**23  # tables with more rows are sampled; n-gram tables have hundreds of millions
MAX_ROUTING = 2**24  # values
MAX_DEAD = 0.01  # share of the rows; more zero rows than this are not just rare tokens


def check_tables(
    model: Model, tokens: TokenKinds, total: int | None, *, quick: bool, progress: Progress = no_progress
) -> tuple[list[OtherTableFacts], list[Finding], list[str]]:
    """Read and check every table except the token table and the head, and say what could not be checked.

    `total` is the model's number of parameters.
    """
    facts, findings, not_checked = list[OtherTableFacts](), list[Finding](), list[str]()
    if model.store.remote and quick:
        return facts, findings, ["other tables, and whether the head has a bias (quick; remote)"]
    known = (model.table_info.name, model.head_name)
    listed = [(name, role) for name, role in table_names(model) if name not in known]
    for required, words in (("per_layer", "per-layer embeddings"), ("value", "value embeddings")):
        expected = getattr(model.spec, required, None)
        if expected is not None and expected.rows and not any(role == required for _, role in listed):
            findings.append(Finding("error", "tensor-missing", f"the files contain no table of {words}"))
    for name, role in listed[:MAX_LISTED]:
        try:
            info = describe_table(model, name, role, total)
            rows = info.shape[0]
            ids = sample_ids(rows) if quick or model.store.remote or rows > MAX_SCANNED else None
            fact, table_findings = _check(model, info, tokens, total, ids, progress)
        except InlayerError as error:
            message = f"{quote(name)} cannot be read: {shorten(str(error), 300)}"
            findings.append(Finding("warning", "table-unreadable", message))
            continue
        facts.append(fact)
        findings += table_findings
        if fact.rows_read < rows and not quick:
            not_checked.append(f"{rows - fact.rows_read:,} of {rows:,} rows of {fact.tensor}")
    if len(listed) > MAX_LISTED:
        not_checked.append(pluralize(len(listed) - MAX_LISTED, "more table"))
    return facts, findings, not_checked


def _check(
    model: Model, info: TableInfo, tokens: TokenKinds, total: int | None, ids: Ids | None, progress: Progress
) -> tuple[OtherTableFacts, list[Finding]]:
    rows, width, scale = _required_size(model, info)
    findings = list(_size_findings(model, info, rows, width, tokens))
    common = describe_tensor(info, total, scale) | {"role": info.role, "expected_rows": rows}
    if info.role == "routing":
        findings += _routing_findings(model, info)
        return OtherTableFacts(**common, rows_read=info.shape[0]), findings
    original = None  # the tensor that a copy for multi-token prediction may repeat: the head or the token table
    if info.role in ("mtp", "token") and info.shape == model.table_info.shape:
        original = model.head_name if _copies_head(info) and model.head_name is not None else model.table_info.name
    table = model.store.table(info.name)
    scan = scan_rows(table, ids, None, progress, None if original is None else model.store.table(original))
    findings += fp8_findings(info.name, table)
    if original is not None and not share_bytes(info, model.store.find(original)):
        findings += _copy_findings(info, original, scan)
    if info.role not in ("position", "token_type") or not is_part(model, info.name):  # check_layer.py checks parts
        padding_idx = None if model.spec is None else model.spec.padding_idx
        findings += _value_findings(info, scan, tokens, padding_idx)
    return OtherTableFacts(
        **common,
        rows_read=len(scan.ids),
        zero_rows=int(scan.is_zero.sum()),
        nonfinite_rows=int((~scan.finite).sum()),
        duplicate_rows=int((scan.is_duplicate & ~scan.is_zero).sum()),
        norm_median=scan.norm_median,
        copy_of=shorten(original, 200) if original is not None and not scan.differing else None,
    ), findings


def _copies_head(info: TableInfo) -> bool:
    return info.role == "mtp" and "head" in info.name


def _required_size(model: Model, info: TableInfo) -> tuple[int | None, int | None, float | None]:
    """Return a table's required rows and width (None if anything is valid), and the scale of its rows."""
    spec = model.spec
    if spec is not None and spec.per_layer is not None and info.role == "per_layer":
        return spec.per_layer.rows, spec.per_layer.n_layers * spec.per_layer.width, math.sqrt(spec.per_layer.width)
    rows = (head_shape(model) if _copies_head(info) else model.table_info.shape)[0] if info.role in PER_TOKEN else None
    value = spec.value_embeddings if spec is not None and info.role == "value" else None
    return rows, None if value is None else value.width, None


def _size_findings(
    model: Model, info: TableInfo, expected: int | None, width: int | None, tokens: TokenKinds
) -> Iterator[Finding]:
    name, rows = quote(info.name), info.shape[0]
    if expected is not None and rows != expected:
        yield Finding("error", "table-rows-mismatch", f"{name} has {rows:,} rows, but {expected:,} are required")
    elif info.role in PER_TOKEN and rows < model.table_info.shape[0] and tokens.tokenizer is not None:
        reached = tokens.ids[tokens.has_kind(TokenKind.ORDINARY)]
        if beyond := int((reached >= rows).sum()):
            message = f"{name} has {rows:,} rows; tokens that occur in text but have no row: {beyond:,}"
            yield Finding("warning", "table-rows-mismatch", message, beyond)
    if width and info.shape[1] != width:
        message = f"{name} has rows of width {info.shape[1]:,}, but the config requires {width:,}"
        yield Finding("error", "tensor-shape-mismatch", message)


def _copy_findings(info: TableInfo, original: str, scan: RowStatistics) -> Iterator[Finding]:
    name, differing, read = quote(info.name), scan.differing, len(scan.ids)
    if not differing:
        where = "" if read == info.shape[0] else f" in the {read:,} rows read"
        yield Finding("note", "table-stored-twice", f"{name} equals {quote(original)}{where}, and both are stored")
    elif len(differing) <= read * 0.5:
        message = f"{name} is a copy of {quote(original)}, except for {len(differing):,} of {read:,} rows"
        yield Finding("warning", "table-copy-differs", message, ids=differing)


def _value_findings(
    info: TableInfo, scan: RowStatistics, tokens: TokenKinds, padding_idx: int | None
) -> Iterator[Finding]:
    name, read = quote(info.name), len(scan.ids)
    if not scan.finite.all():
        bad = tuple(scan.ids[~scan.finite].tolist())
        message = f"NaN or infinity in {pluralize(len(bad), 'row')} of {name}"
        yield Finding("error", "table-not-finite", message, ids=bad)
    if scan.is_zero.all():
        every = f"every row of {name}" if read == info.shape[0] else f"each of the {read:,} rows read of {name}"
        yield Finding("note", "table-zero-rows", f"{every} is zero, as at initialization")
    elif info.role in PER_TOKEN:
        reached = tokens.ids[tokens.has_kind(TokenKind.ORDINARY, TokenKind.UNKNOWN)]
        dead = set(scan.ids[scan.is_zero].tolist()).intersection(reached.tolist()) - {padding_idx}
        if dead:
            severity: Severity = "error" if len(dead) > MAX_DEAD * read else "warning"
            message = f"{name} has {pluralize(len(dead), 'zero row')} for tokens that occur in text"
            yield Finding(severity, "table-zero-rows", message, ids=tuple(sorted(dead)))


def _routing_findings(model: Model, info: TableInfo) -> Iterator[Finding]:
    """Check a routing table, which lists the experts of every token."""
    if math.prod(info.shape) > MAX_ROUTING:
        message = f"{quote(info.name)} has {math.prod(info.shape):,} values and was not read"
        yield Finding("warning", "tensor-too-large", message)
        return
    experts, total = model.store.read_integers(info.name), text_config(model.config).get("n_routed_experts")
    last = total - 1 if type(total) is int else np.iinfo(np.int64).max
    if bad := np.flatnonzero(((experts < 0) | (experts > last)).any(1)).tolist():
        verb = "refers" if len(bad) == 1 else "refer"
        message = f"{pluralize(len(bad), 'row')} of {quote(info.name)} {verb} to experts that do not exist"
        yield Finding("error", "routing-out-of-range", message, ids=tuple(bad))
    elif not experts.any():
        message = f"{quote(info.name)} sends every token to expert 0, as at initialization"
        yield Finding("note", "routing-untrained", message)


# ---- n-gram memories


def check_ngrams(model: Model, *, quick: bool) -> tuple[list[NgramMemoryFacts], list[Finding]]:
    """Return facts about every n-gram memory in the config, and a finding for each one that the files do not match.

    The rows are read with the other tables; this checks that the config's hashes lead to them.
    """
    facts, findings = list[NgramMemoryFacts](), list[Finding]()
    for spec in () if model.spec is None else model.spec.ngrams:
        n_tensors = 0
        try:
            memory = open_memory(model, spec)
            n_tensors = len(memory.tensors)
            if not quick:
                _ = memory.token_map
        except InlayerError as error:
            findings.append(Finding("error", "ngram-mismatch", shorten(str(error), 400)))
        memory_facts = NgramMemoryFacts(
            tensor_suffix=spec.tensor_suffix,
            layer=spec.layer,
            n_tensors=n_tensors,
            rows=spec.rows,
            width=spec.width,
            heads=spec.n_hash_heads,
            orders=tuple(sorted(set(spec.orders))),
            min_modulus=min(spec.moduli),
            max_modulus=max(spec.moduli),
            compressed_vocab_size=spec.compressed_vocab_size,
        )
        facts.append(memory_facts)
    return facts, findings

"""The head: whether it is tied, judging by config, files, and values, and whether its own rows are healthy.

source -> Model -> facts -> [findings] -> Report
- the head is read in blocks next to the table, in one pass that compares them and collects row statistics
- a head that differs from the table in size (Llama-3.2-Vision's has fewer rows) is read separately. If the size does
  not match the config, that is an error, and the head is not read
- as with the table, warnings are about rows of tokens that occur in text, because other tokens are never predicted
- the scale of a head is compared with the table's, but may differ a lot: nanochat's head starts at 0.001 next to a
  table of 1, and the values of Mistral's table are a tenth of its head's
- see also: computing logits (inlayer/head.py)
Tested with damaged checkpoints in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from inlayer.checkpoint.find_tables import head_shape
from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError
from inlayer.families.config_reader import text_config, tie_flags
from inlayer.families.tensor_names import config_has_head
from inlayer.files import quote
from inlayer.inspection.check_layer import MAY_BE_MEANT, is_unknown_type
from inlayer.inspection.check_rows import MAX_UNKNOWN, MAX_ZERO_ROWS, ScannedRows, shared_rows
from inlayer.inspection.check_tokens import TokenKind
from inlayer.inspection.findings import Finding, shorten
from inlayer.inspection.report import HeadFacts, share_bytes
from inlayer.inspection.scan import RowStatistics, check_scannable, is_out_of_scale, sample_ids, scan_rows
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Ids

MIN_RMS = 1e-4  # larger values are always accepted, up to 1: T5's head starts at 1


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadScan:
    """The result of reading the head: `equal` is None if there was nothing to compare."""

    equal: bool | None = None
    shape: tuple[int, ...] | None = None
    statistics: RowStatistics | None = None
    was_stopped: bool = False
    has_more_rows: bool = False  # more rows than the table, because the decoder has its own vocabulary
    error: str = ""


def scan_head(model: Model, ids: Ids | None, progress: Progress = no_progress, *, skip: bool = False) -> HeadScan:
    """Read the head's rows `ids` (None for all) and compare them with the table's; `skip` reads no rows."""
    if model.head_name is None:
        return HeadScan()
    found, table_shape = HeadScan(), model.table_info.shape
    try:
        shape = model.store.find(model.head_name).shape
        found = HeadScan(shape=shape, equal=None if shape == table_shape else False)
        if skip or shape not in (table_shape, head_shape(model)):
            return found
        head = model.store.table(model.head_name)
        rows = check_scannable(head, is_sampled=ids is not None)
        has_more_rows = rows > table_shape[0]
        if ids is not None:
            ids = sample_ids(rows) if has_more_rows else ids[ids < rows]
        statistics = scan_rows(head, ids, None, progress, model.table if shape == table_shape else None)
    except InlayerError as error:
        return replace(found, equal=None, error=shorten(str(error), 300))
    was_stopped = len(statistics.ids) < (rows if ids is None else len(ids))
    if shape == table_shape and (statistics.differing or not was_stopped):
        found = replace(found, equal=not statistics.differing)
    return replace(found, statistics=statistics, was_stopped=was_stopped, has_more_rows=has_more_rows)


def head_facts(model: Model, scan: HeadScan) -> HeadFacts:
    config = text_config(model.config)
    flags = tie_flags(model.config) if model.spec is None else [config.get("tie_word_embeddings")]
    flag = flags[0] if flags and isinstance(flags[0], bool) else None
    return HeadFacts(
        tie_word_embeddings=model.spec.head.tied if model.spec is not None else flag,
        tie_is_explicit=flag is not None,
        tensor=shorten(model.head_name, 200) if model.head_name is not None else None,
        shape=scan.shape,
        equals_table=scan.equal,
        config_expects_head=config_has_head(config),
    )


def head_findings(model: Model, facts: HeadFacts, scan: HeadScan) -> Iterator[Finding]:
    """Yield a finding for each contradiction between the config's tie flag, the stored head, and its values."""
    tied, equal, statistics = facts.tie_word_embeddings, facts.equals_table, scan.statistics
    if facts.tensor is None:
        if tied is False and facts.config_expects_head and model.spec is not None:  # an unknown family may use any name
            yield Finding("error", "head-missing", "the head is untied, but the files contain no head")
        return
    if scan.error:
        yield Finding("warning", "head-unreadable", f"the head {facts.tensor} cannot be read: {scan.error}")
        return
    if facts.shape != head_shape(model):
        unknown = is_unknown_type(model)
        rule = f"the table has {head_shape(model)}{MAY_BE_MEANT}" if unknown else f"it must be {head_shape(model)}"
        message = f"the head {facts.tensor} has shape {quote(facts.shape)}; {rule}"
        yield Finding("warning" if unknown else "error", "head-shape-mismatch", message)
    elif tied and equal is False:
        message = "the config ties the head and the table, but the stored head differs; tying would discard its values"
        ids = statistics.differing if statistics is not None else ()
        yield Finding("error" if facts.tie_is_explicit else "warning", "tied-head-differs", message, ids=ids)
    elif tied is False and equal:
        yield Finding("note", "head-equals-table", "the head and the table are untied but bit-identical")
    elif tied and equal and not share_bytes(model.store.find(model.head_name or ""), model.table_info):
        yield Finding("note", "head-stored-twice", "the head and the table are tied, but both are stored")
    if statistics is not None and not statistics.finite.all():
        ids = tuple(statistics.ids[~statistics.finite].tolist())
        message = f"NaN or infinity in {pluralize(len(ids), 'row')} of the head {facts.tensor}; "
        message += "every loss will be NaN or infinite"
        yield Finding("error", "head-not-finite", message, ids=ids)


def head_row_findings(scan: HeadScan, table: ScannedRows) -> Iterator[Finding]:
    """Yield findings about unusual rows in a head with its own weights."""
    if scan.statistics is None or scan.equal is not False or scan.has_more_rows:
        return
    head = ScannedRows(scan.statistics, table.tokens.truncate(len(scan.statistics.ids)))
    is_ordinary, is_unknown = (head.tokens.has_kind(kind) for kind in (TokenKind.ORDINARY, TokenKind.UNKNOWN))
    zero = head.statistics.is_zero & is_ordinary
    if (unknown := head.statistics.is_zero & is_unknown).mean() > MAX_UNKNOWN:
        zero |= unknown
    message = "{rows} only zeros in the head; the logits of these tokens are always zero"
    yield from head.findings_for("error" if zero.mean() > MAX_ZERO_ROWS else "warning", "head-zero-rows", message, zero)
    duplicates = head.duplicates & is_unknown
    if head.all_identical:
        duplicates = head.duplicates
    elif duplicates.mean() <= MAX_UNKNOWN:
        duplicates = np.any([group.flags & group.is_fault for group in shared_rows(head)], axis=0)
    message = "{rows} the same values as another row of the head; these tokens always get the same logit"
    yield from head.findings_for(
        "error" if head.all_identical else "warning", "head-duplicate-rows", message, duplicates
    )
    rms, expected = head.statistics.rms, table.statistics.rms
    if rms is not None and expected is not None and is_out_of_scale(rms, expected, MIN_RMS):
        message = f"values of a typical head row are about {rms:.1g}, those of the table {expected:.1g}"
        yield Finding("warning", "head-scale-mismatch", message)

"""inspect: scan a model, collect facts and findings, and report them.

source -> Model -> facts -> findings -> [Report]
- all rows are read once, in blocks (scan.py); `quick` reads only headers and a sample of the rows, and can miss defects
  outside the sample
Tested on real models, which must pass, in tests/inspection/test_report.py, and with one damaged checkpoint per fault in
tests/inspection/test_faults.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from inlayer.checkpoint import load
from inlayer.checkpoint.model import Model
from inlayer.errors import InlayerError, MissingFileError
from inlayer.families.config_reader import text_config, tie_flags
from inlayer.files import join_names
from inlayer.inspection import check_head, check_layer, check_rows, check_tables, check_tokens
from inlayer.inspection.check_rows import ScannedRows, row_facts
from inlayer.inspection.check_tokens import TokenKind, classify_ids
from inlayer.inspection.findings import SEVERITIES, Finding, Severity, shorten
from inlayer.inspection.report import Report
from inlayer.inspection.scan import check_scannable, near_zero_share, sample_ids
from inlayer.inspection.undertrained import drop_resized_references, scan_with_references
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.tokenizers import Tokenizer


def inspect(
    source: Model | str | os.PathLike[str] = "default",
    *,
    quick: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Inspect the embedding layer of a checkpoint: facts, and findings about defects.

    The files are never executed or trusted, and torch is not needed.

    Args:
        source: A folder, a file, a hub id, or the name of a sample, as in `inlayer.load`; or a loaded model. The
            default is the bundled sample model.
        quick: Read only headers and a sample of the rows. Defects outside the sample are missed.
        strict: Also set `exit_code` to 1 if the table is randomly initialized, or if anything was not checked.
        progress: Called as `progress(done, total)` while rows are read. If it returns False, reading stops and the
            report covers the rows read so far.

    Returns:
        A report with facts, findings, and an exit code. Every finding lists all of its token ids; `to_dict()` converts
        the report to JSON values.

    Raises:
        InlayerError: If the source cannot be read as a checkpoint.

    Example:
        >>> import inlayer
        >>> report = inlayer.inspect("default")
        >>> report.exit_code, [finding.code for finding in report.findings]
        (0, ['undertrained-tokens'])
        >>> len(report.ids("undertrained-tokens"))
        62
    """
    model = source if isinstance(source, Model) else load(source)
    config = text_config(model.config)
    roles = check_tokens.special_token_roles(config)
    show = progress or no_progress
    scanned = _scan(model, roles, quick, show)
    rows, tokens = scanned.rows, scanned.rows.tokens
    # The progress bar is full by then, but Ctrl-C also stops reading the other tables.
    keep_full = partial(_part_of, show, scanned.total, scanned.total)
    table, training = check_layer.table_facts(model), check_layer.training_facts(model)
    positions, head = check_layer.position_facts(model), check_head.head_facts(model, scanned.head)
    tables, table_findings, not_checked = check_tables.check_tables(
        model, tokens, table.model_parameters, quick=quick or scanned.was_stopped, progress=keep_full
    )
    ngrams, ngram_findings = check_tables.check_ngrams(model, quick=quick)
    vocabulary = check_tokens.vocabulary_facts(tokens, rows.statistics, roles, table.config_vocab_size)
    reached = tokens.ids[tokens.has_kind(TokenKind.ORDINARY, TokenKind.UNKNOWN)]
    values = row_facts(rows, scanned.padding_id, near_zero_share(model.table, reached))
    findings = [
        *check_layer.table_findings(model, table),
        *check_layer.layer_findings(model, positions, rows.statistics.rms, quick=quick),
        *check_head.head_findings(model, head, scanned.head),
        *(scanned.tokenizer_findings or check_tokens.vocabulary_findings(tokens, vocabulary)),
        *check_tokens.special_token_findings(tokens, config, roles),
        *check_rows.row_findings(rows, values, training),
        *table_findings,
        *ngram_findings,
        *check_head.head_row_findings(scanned.head, rows),
    ]
    report = Report(
        source=model.source,
        kind=model.store.kind,
        description=model.note,
        quick=quick,
        strict=strict,
        table=table,
        positions=positions,
        head=head,
        tables=tuple(tables),
        ngrams=tuple(ngrams),
        vocabulary=vocabulary,
        rows=values,
        training=training,
        findings=tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
    )
    return replace(report, not_checked=(*_not_checked(model, scanned, report), *not_checked))


class ScannedModel(NamedTuple):
    """The parts of a model that were read: its tokens, and the rows of its table and head."""

    padding_id: int | None
    tokenizer_findings: list[Finding]
    rows: ScannedRows
    head: check_head.HeadScan
    total: int  # rows to read, for the progress
    was_stopped: bool


def _scan(model: Model, roles: dict[int, list[str]], quick: bool, progress: Progress) -> ScannedModel:
    """Classify the tokens, and read all rows of the table and the head, or a sample."""
    rows = check_scannable(model.table, is_sampled=quick)
    ids = sample_ids(rows, roles) if quick else None
    n_rows = rows if ids is None else len(ids)
    total = n_rows * (1 if model.head_name is None else 2)
    progress(0, total)
    tokenizer, findings = _open_tokenizer(model)
    padding_ids = {token_id for token_id, names in roles.items() if "pad" in names}
    padding_id = model.spec.padding_idx if model.spec is not None else min(padding_ids, default=None)
    if tokenizer is not None and tokenizer.pad_id is not None:
        padding_ids.add(tokenizer.pad_id)
    tokens = drop_resized_references(model.table, classify_ids(tokenizer, rows, ids, roles, padding_ids))
    scan = scan_with_references(model.table, tokens, ids, partial(_part_of, progress, 0, total))
    was_stopped = len(scan.ids) < n_rows
    head = check_head.scan_head(model, ids, partial(_part_of, progress, n_rows, total), skip=was_stopped)
    scanned = ScannedRows(scan, tokens.truncate(len(scan.ids)))
    return ScannedModel(padding_id, findings, scanned, head, total, was_stopped or head.was_stopped)


def _not_checked(model: Model, scanned: ScannedModel, facts: Report) -> Iterator[str]:
    """Describe each part that could not be checked and so must not be reported as healthy."""
    rows, tokens, was_stopped = scanned.rows, scanned.rows.tokens, scanned.was_stopped
    head, statistics = facts.head, scanned.head.statistics
    if model.spec is None and not model.is_static:
        why = "no config.json" if model.config is None else "the config does not describe a supported model"
        yield f"positions, scale, and other tensors ({why})"
    if others := check_layer.unidentified_tables(model):
        yield f"tensors with the table's shape ({join_names(others)})"
    if head.tensor is not None and head.tie_word_embeddings is None:
        why = "tie_word_embeddings is neither true nor false" if tie_flags(model.config) else "no tie_word_embeddings"
        yield f"whether the head must equal the table ({why})"
    flags = [flag for flag in tie_flags(model.config) if isinstance(flag, bool)]
    if model.spec is None and head.tie_word_embeddings is not None and len(set(flags)) > 1:
        used = f"the outermost, {str(flags[0]).lower()}, was used"
        yield f"whether the head is tied (the config's tie flags contradict each other; {used})"
    if model.spec is None and head.tensor is None and head.config_expects_head and head.tie_word_embeddings is False:
        yield "the head (untied in the config, but no tensor has the name of one)"
    if head.shape is not None and statistics is not None and scanned.head.has_more_rows:
        yield "zero and equal rows of the head (it has more rows than the table)"
        if facts.quick and (unread := head.shape[0] - len(statistics.ids)):
            yield f"{unread:,} of {head.shape[0]:,} rows of the head (quick)"
    if tokens.tokenizer is None:
        yield "which token ids text can produce (no tokenizer)"
    elif facts.rows.undertrained_skip_reason:
        yield f"which tokens are undertrained ({facts.rows.undertrained_skip_reason})"
    if facts.training is None and check_rows.has_many_undertrained(rows):
        yield "whether the table was trained with this tokenizer (many undertrained tokens)"
    if len(tokens.ids) < tokens.rows:
        yield f"{tokens.rows - len(tokens.ids):,} of {tokens.rows:,} rows ({'stopped' if was_stopped else 'quick'})"
    if was_stopped and head.tensor is not None:
        yield "part of the head (stopped)"


def _open_tokenizer(model: Model) -> tuple[Tokenizer | None, list[Finding]]:
    """Return the tokenizer, or a finding if it is damaged: the rows can still be inspected."""
    try:
        return model.tokenizer if model.has_tokenizer else None, []
    except InlayerError as error:
        severity: Severity = "warning" if isinstance(error, MissingFileError) else "error"
        message = f"the tokenizer cannot be opened: {shorten(str(error), 300)}"
        return None, [Finding(severity, "tokenizer-unreadable", message)]


def _part_of(progress: Progress, before: int, total: int, done: int, _: int) -> object:
    """Report the progress of one scan as part of the total progress."""
    return progress(min(before + done, total), total)

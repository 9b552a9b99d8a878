"""The doctor: is the embedding layer of a checkpoint healthy? Facts and findings, from the files alone.

[checkpoint] source -> Model -> facts -> findings -> Report
- the table (doctor/layer.py), what is added to its rows (doctor/parts.py), the tie (doctor/tie.py, head_rows.py),
  tokens against rows (doctor/survey.py, vocabulary.py), the rows themselves (doctor/health.py, untrained.py, rows.py,
  row_findings.py, copies.py); doctor/report.py says what comes out
- all rows are read once, in blocks; `quick` reads headers and some rows, evenly spread, and may miss what lies between
- the same damage has the same code for ever: tests/inspection/faults.py holds one damaged copy of each
- not here: printing (doctor/terminal.py), mending
Checked on real models, which must pass, in tests/inspection/test_report.py, and with seeded faults, each of which must
be named, in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from inlayer.checkpoint.model import Model, load
from inlayer.errors import CheckpointError, InlayerError
from inlayer.inspection.head_rows import head_row_findings
from inlayer.inspection.health import Progress, RowStatistics, mean_direction, scan_rows, share_of_small
from inlayer.inspection.layer import layer_facts, layer_findings, position_facts, text_config
from inlayer.inspection.parts import are_small, part_findings
from inlayer.inspection.report import SEVERITIES, Example, Finding, Report, Severity, shorten
from inlayer.inspection.row_findings import row_findings
from inlayer.inspection.rows import Rows, health_facts, references
from inlayer.inspection.survey import REFERENCES, Kind, Survey, survey_ids
from inlayer.inspection.tie import compare_head, head_facts, head_findings
from inlayer.inspection.undertrained import MIN_REFERENCES
from inlayer.inspection.vocabulary import named_ids, odd_id_findings, vocabulary_facts, vocabulary_findings
from inlayer.paths import printable, what_is_at
from inlayer.tables import StoredTable
from inlayer.tokenizers import Tokenizer

__all__ = ["Example", "Finding", "Report", "inspect"]

MAX_REFERENCES = 2048  # rows whose mean direction stands for all of them
MAX_VALUED = 512  # rows whose values stand for all
MAX_ROWS, MAX_CHANNELS = 2**23, 2**20  # the largest published vocabularies have below 2**20 tokens
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model")
RUNS, RUN_LENGTH = 32, 32  # of a quick sample: neighbors are one read, also of a remote file


def inspect(
    source: Model | str | os.PathLike[str] | None = None, *, quick: bool = False, progress: Progress | None = None
) -> Report:
    """Examine a checkpoint, or a model that `inlayer.load` opened; without a source, the sample inlayer carries.

    `progress(done, all)` is called as rows are read.
    """
    model = source if isinstance(source, Model) else load(source)
    table, config = model.table, text_config(model.config)
    named = named_ids(config)
    tokenizer, failures = _open_tokenizer(model)
    rows = _check_size(table, quick)
    ids = _sample(rows, named) if quick else None
    survey = survey_ids(tokenizer, rows, ids, named)
    reads = 2 * rows if model.head_name is not None and not quick else rows
    statistics = _scan(table, survey, ids, _part_of(progress, 0, reads))
    comparison = compare_head(model, ids, _part_of(progress, rows, reads))
    padding_ids = frozenset(token_id for token_id, roles in named.items() if "pad" in roles)
    padding_id = model.spec.padding_idx if model.spec is not None else min(padding_ids, default=None)
    if tokenizer is not None and tokenizer.pad_id is not None:
        padding_ids |= {tokenizer.pad_id}
    examined = Rows.examine(statistics, survey, padding_ids, padding_id, table.embedding_dim)
    small = share_of_small(table, _few(survey.ids[survey.are(Kind.ORDINARY, Kind.UNKNOWN)], MAX_VALUED))
    layer, positions, head = layer_facts(model), position_facts(model), head_facts(model, comparison)
    vocabulary, health = vocabulary_facts(survey, statistics, named, layer.config_rows), health_facts(examined, small)
    findings = [
        *layer_findings(model, layer, positions),
        *part_findings(model, positions, examined.rms),
        *head_findings(model, head, comparison),
        *failures,
        *odd_id_findings(config),
        *(one for one in vocabulary_findings(survey, vocabulary, named) if not failures or one.code != "no-tokenizer"),
        *row_findings(examined, health),
    ]
    if comparison.statistics is not None and not comparison.equal:
        rows_of_head = Rows.examine(comparison.statistics, survey, padding_ids, padding_id, table.embedding_dim)
        findings += head_row_findings(rows_of_head, examined)
    if are_small(model) and not any(finding.severity == "error" for finding in findings):
        findings += _not_opened(model)
    return Report(
        source=model.source,
        kind=model.store.kind,
        sample=model.note,
        quick=quick,
        layer=layer,
        positions=positions,
        head=head,
        vocabulary=vocabulary,
        health=health,
        findings=tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
    )


def _check_size(table: StoredTable, quick: bool) -> int:
    """The number of rows. A few numbers are kept of each: a file may claim so many that they fill the memory."""
    rows, width = table.num_embeddings, table.embedding_dim
    if width > MAX_CHANNELS or (rows > MAX_ROWS and not quick):
        raise CheckpointError(
            f"the table {printable(table.name[:80])} is {rows:,} x {width:,}; up to {MAX_ROWS:,} x {MAX_CHANNELS:,} "
            "is inspected (--quick reads some rows of a longer one)"
        )
    return rows


def _open_tokenizer(model: Model) -> tuple[Tokenizer | None, list[Finding]]:
    """The tokenizer, or what is wrong with it: a damaged one keeps nobody from looking at the rows."""
    try:
        tokenizer = model.tokenizer
    except InlayerError as error:
        return None, [_unreadable("error", f"the tokenizer cannot be opened: {shorten(str(error), 300)}")]
    folder = getattr(model.store, "folder", None)
    if tokenizer is None and isinstance(folder, Path):
        for name in TOKENIZER_FILES:
            if what_is_at(folder / name) in {"folder", "no regular file"}:
                return None, [_unreadable("warning", f"{name} is no regular file")]
    return tokenizer, []


def _unreadable(severity: Severity, meaning: str) -> Finding:
    advice = "fetch the tokenizer's files again"
    return Finding(severity=severity, code="tokenizer-unreadable", meaning=meaning, advice=advice)


def _sample(rows: int, named: dict[int, list[str]]) -> npt.NDArray[np.int64]:
    """Runs of neighbors, evenly spread from the first row to the last, and the rows the config names."""
    if rows <= RUNS * RUN_LENGTH:
        return np.arange(rows)
    starts = np.linspace(0, rows - RUN_LENGTH, RUNS).astype(np.int64)
    inside = [token_id for token_id in named if token_id < rows]
    return np.union1d((starts[:, None] + np.arange(RUN_LENGTH)).reshape(-1), np.array(inside, np.int64))


def _scan(
    table: StoredTable, survey: Survey, ids: npt.NDArray[np.int64] | None, progress: Progress | None
) -> RowStatistics:
    """One pass, with the rows that no text reaches as references. Where there are none, the pass may have found some:
    special tokens whose rows equal each other. Then there is a second one.
    """
    unreached = survey.ids[survey.are(*REFERENCES)]
    statistics = scan_rows(table, ids, _direction(table, unreached), progress)
    found = survey.ids[references(statistics, survey)]
    if len(unreached) < MIN_REFERENCES <= len(found):
        statistics = scan_rows(table, ids, _direction(table, found), progress)
    return statistics


def _direction(table: StoredTable, ids: npt.NDArray[np.int64]) -> Tensor | None:
    """Where these rows point to: all of them, or as many as suffice, evenly spread."""
    return mean_direction(table, _few(ids, MAX_REFERENCES))


def _few(ids: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Not more than `most` of them, evenly spread."""
    return ids[:: max(1, -(-len(ids) // most))]


def _part_of(progress: Progress | None, before: int, reads: int) -> Progress | None:
    """Progress within one of several readings, told as progress in all of them."""
    return None if progress is None else lambda done, _: progress(before + done, reads)


def _not_opened(model: Model) -> Iterator[Finding]:
    """What nothing above has named, and still keeps the layer from being put together."""
    if model.spec is None:
        return
    try:
        model.embeddings  # noqa: B018
    except InlayerError as error:
        yield Finding(
            severity="error",
            code="layer-incomplete",
            meaning=f"the layer cannot be put together: {shorten(str(error), 300)}",
            advice="fetch the missing files, or the config.json that belongs to these weights",
        )

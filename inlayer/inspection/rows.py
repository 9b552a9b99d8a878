"""The rows of a table, as a scan and the tokenizer show them: counts, norms, channels, references.

[checkpoint] files -> [facts] -> findings
- a padding row counts as special, whatever its token is called: it may be zero
- not here: reading (doctor/health.py), the comparison with references (doctor/untrained.py), judging
  (doctor/row_findings.py)
Checked in tests/inspection/test_report.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from inlayer.inspection.health import RowStatistics
from inlayer.inspection.report import Example, HealthFacts, UntrainedFacts
from inlayer.inspection.survey import REFERENCES, Kind, Survey
from inlayer.inspection.undertrained import Untrained, find_untrained
from inlayer.inspection.vocabulary import MAX_EXAMPLES

__all__ = ["NARROWEST", "Rows", "health_facts", "references"]

Flags = npt.NDArray[np.bool_]

BINS = 32
NARROWEST = 16  # channels from which shares of channels mean anything


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """All that is known of the rows that were read."""

    statistics: RowStatistics
    survey: Survey
    untrained: Untrained
    padding_id: int | None
    width: int

    @classmethod
    def examine(
        cls, statistics: RowStatistics, survey: Survey, padding_ids: frozenset[int], padding_id: int | None, width: int
    ) -> Rows:
        """`padding_ids` are excused from being zero; `padding_id` is the one to report on."""
        kinds = survey.kinds.copy()
        kinds[np.isin(survey.ids, list(padding_ids)) & (kinds == Kind.ORDINARY)] = Kind.SPECIAL
        survey = replace(survey, kinds=kinds)
        untrained = find_untrained(statistics, references(statistics, survey), survey.are(Kind.ORDINARY))
        return cls(statistics=statistics, survey=survey, untrained=untrained, padding_id=padding_id, width=width)

    @property
    def usable(self) -> npt.NDArray[np.float64]:
        """The norms of the rows that are finite and not zero."""
        return self.statistics.norms[self.statistics.finite & ~self.statistics.is_zero]

    @property
    def copied(self) -> Flags:
        return self.statistics.is_copy & ~self.statistics.is_zero & self.statistics.finite

    @property
    def rms(self) -> float | None:
        """Of the values of a usual row."""
        return float(np.median(self.usable) / np.sqrt(self.width)) if len(self.usable) else None

    def examples(self, rows: Flags, values: npt.NDArray[np.float64] | None = None) -> tuple[Example, ...]:
        """The first few of the rows."""
        found = []
        for place in np.flatnonzero(rows)[:MAX_EXAMPLES].tolist():
            token_id = int(self.statistics.ids[place])
            value = float(values[place]) if values is not None else None
            found.append(Example(id=token_id, text=self.survey.text(token_id), value=value))
        return tuple(found)


def references(statistics: RowStatistics, survey: Survey) -> Flags:
    """Rows that nothing trained: no text reaches them, or they are special and still equal another row."""
    return survey.are(*REFERENCES) | (survey.are(Kind.SPECIAL) & statistics.is_shared)


def health_facts(rows: Rows, small_values: float | None = None) -> HealthFacts:
    seen, norms = rows.statistics, rows.usable
    energy = seen.channel_energy
    total = float(energy.sum())
    counts, edges = _histogram(norms)
    strongest = int(energy.argmax()) if total > 0 else None
    place = np.flatnonzero(seen.ids == (-1 if rows.padding_id is None else rows.padding_id))
    return HealthFacts(
        rows_read=len(seen.ids),
        nan_rows=int(seen.has_nan.sum()),
        inf_rows=int(seen.has_inf.sum()),
        zero_rows=int(seen.is_zero.sum()),
        constant_rows=int(seen.is_constant.sum()),
        copied_rows=int(rows.copied.sum()),
        norm_least=float(norms.min()) if len(norms) else None,
        norm_median=float(np.median(norms)) if len(norms) else None,
        norm_most=float(norms.max()) if len(norms) else None,
        histogram=tuple(counts),
        histogram_from=edges[0],
        histogram_to=edges[1],
        padding_id=rows.padding_id,
        padding_norm=float(seen.norms[place[0]]) if len(place) else None,
        strongest_channel=strongest,
        strongest_share=float(energy[strongest]) / total if strongest is not None else None,
        dead_channels=int((energy == 0).sum()) if total > 0 else 0,
        small_values=small_values,
        random_pipeline=_is_newborn(rows),
        untrained=UntrainedFacts(
            references=rows.untrained.references,
            by_norm=rows.untrained.norm_limit is not None,
            by_cosine=rows.untrained.cosine_limit is not None,
            rows=len(rows.untrained.rows),
            norm_limit=rows.untrained.norm_limit,
            cosine_limit=rows.untrained.cosine_limit,
        ),
    )


def _histogram(norms: npt.NDArray[np.float64]) -> tuple[list[int], tuple[float | None, float | None]]:
    """Counts, and where the first bin begins and the last one ends: at the longest norm, unless that is so far out that
    all others would share one bin.
    """
    if not len(norms):
        return [], (None, None)
    begin = float(norms.min())
    end = min(float(norms.max()), max(begin, 4 * float(np.median(norms))))
    counts, _ = np.histogram(norms, BINS, (begin, end))
    return [int(count) for count in counts], (begin, end)


def _is_newborn(rows: Rows) -> bool:
    """Do the rows look like independent draws: norms as narrow as chance makes them, channels that cancel out?"""
    norms, seen = rows.usable, rows.statistics
    total = float(seen.channel_energy.sum())
    if len(norms) < 64 or rows.width < NARROWEST or not total > 0:
        return False
    by_chance = 1 / np.sqrt(2 * rows.width)
    spread = float(norms.std() / norms.mean())
    mean_share = float((seen.channel_means**2).sum()) / total * len(norms)  # about 1 for independent rows
    return bool(0.8 * by_chance < spread < 1.25 * by_chance and mean_share < 2)

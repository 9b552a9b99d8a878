"""What the doctor hands back: facts, and findings about them.

[checkpoint] files -> facts -> [findings]
- a finding is a note (worth knowing, no fault), a warning or an error; it has a code that stays, a sentence of meaning
  and one of advice, and a few examples
- `to_dict()` is plain JSON: strings, whole numbers, finite numbers, true, false, null; a number that is NaN or infinite
  becomes null. Its keys: `source`, `kind`, `sample`, `quick`, `layer`, `positions`, `head`, `vocabulary`, `health`,
  `findings`, `exit_code`; each of the five in the middle has the fields of its class below, `findings` is a list
- not here: how facts are found (the other modules of doctor/), how they look (doctor/terminal.py)
Checked in tests/inspection/test_command.py.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from inlayer.paths import printable

__all__ = [
    "Example",
    "Finding",
    "HeadFacts",
    "HealthFacts",
    "LayerFacts",
    "PositionFacts",
    "Report",
    "RotaryFacts",
    "SpecialToken",
    "UntrainedFacts",
    "VocabularyFacts",
    "bounded",
    "counted",
    "shorten",
]

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

LONGEST_STRING = 1000  # characters in JSON: a file may name its tensors by the megabyte
LARGEST = 2**63 - 1  # a config may hold numbers of thousands of digits; past this one they are all the same


def bounded(number: int) -> int:
    """The number, or the largest one that is told apart from others."""
    return max(-LARGEST, min(number, LARGEST))


def counted(number: int) -> str:
    """A number for a sentence."""
    return f"{number:,}" if abs(number) < LARGEST else "an absurd number"


def shorten(text: str, most: int = 120) -> str:
    """A stranger's words for a line of a terminal: escaped, and cut in the middle where they are long."""
    safe = printable(text if len(text) <= 2 * most else text[:most] + text[-most:])
    return safe if len(safe) <= most and len(text) <= 2 * most else f"{safe[: most - 21]}…{safe[-20:]}"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row of the table, with its token as text where it has one, and a number that says why it is here."""

    id: int
    text: str | None
    value: float | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something to know or to mend. `count` is how many rows, ids or tensors it is about."""

    severity: Severity
    code: str
    meaning: str
    advice: str
    count: int = 1
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """The table, where it lies, and what its config says of it."""

    family: str | None
    architecture: str | None
    tensor: str
    file: str
    offset: int  # of the first byte in the file
    bytes: int
    dtype: str  # as the file spells it
    rows: int
    width: int
    config_rows: int | None
    config_width: int | None
    config_dtype: str | None
    scale: float | None  # rows are multiplied by it; None where the family is unknown
    parameters: int  # of the table
    model_parameters: int | None
    share: float | None  # of the table in the model
    other_candidates: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RotaryFacts:
    """The settings of one kind of rotary angles; `layers` names the layers that turn by them, None for all."""

    layers: str | None
    type: str
    theta: float
    factor: float | None
    original_max_position_embeddings: int | None
    partial: float


@dataclass(frozen=True, kw_only=True)
class PositionFacts:
    """How order enters: `context` is the longest text in tokens, None where nothing limits it."""

    kind: Literal["none", "learned", "rotary", "unknown"]
    context: int | None
    tensor: str | None
    tensor_rows: int | None
    rotary: tuple[RotaryFacts, ...]


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """Tied or not, asked three ways: the config's word, a head in the files, its values against the table's."""

    flag: bool | None  # of the config, or its family's default; None without a known config
    flag_written: bool  # the config itself says so
    tensor: str | None
    shape: tuple[int, ...] | None
    equal: bool | None  # bit for bit; None where there is nothing to compare
    expected: bool | None  # the model's class has a head; None where the config names no class


@dataclass(frozen=True, kw_only=True)
class SpecialToken:
    """A token with a part to play, and its row. `roles` are the names the config gives it (eos, pad)."""

    id: int
    text: str | None
    roles: tuple[str, ...]
    norm: float | None  # None where the row was not read, or is not there


@dataclass(frozen=True, kw_only=True)
class VocabularyFacts:
    """Ids against rows. Counts are of rows looked at: all of them, unless the report is a quick one."""

    tokenizer: str | None  # its kind
    tokens: int | None
    config_rows: int | None
    table_rows: int
    rows_looked_at: int
    rows_past_tokens: int | None  # after the last token: padding of the table
    holes: int | None  # rows before it that no token has
    tokens_past_table: int | None
    reserved: int | None  # tokens that are placeholders
    reusable: int | None  # reserved tokens, holes and rows past the tokens
    reusable_examples: tuple[Example, ...]
    special: tuple[SpecialToken, ...]


@dataclass(frozen=True, kw_only=True)
class UntrainedFacts:
    """Rows that look never trained, by comparison with `references`: rows that nothing can have trained."""

    references: int
    by_norm: bool  # could the method tell references from ordinary rows?
    by_cosine: bool
    rows: int
    norm_limit: float | None
    cosine_limit: float | None


@dataclass(frozen=True, kw_only=True)
class HealthFacts:
    """The rows: counts of odd ones, the distribution of norms, the channels."""

    rows_read: int
    nan_rows: int
    inf_rows: int
    zero_rows: int
    constant_rows: int
    copied_rows: int  # equal to an earlier one, bit for bit; zero rows not counted
    norm_least: float | None
    norm_median: float | None
    norm_most: float | None
    histogram: tuple[int, ...]  # rows by norm, in bins of equal width
    histogram_from: float | None
    histogram_to: float | None
    padding_id: int | None
    padding_norm: float | None
    strongest_channel: int | None
    strongest_share: float | None  # of the energy of all channels
    dead_channels: int
    small_values: float | None  # the share that is far smaller than its row's others; None where few rows were read
    random_pipeline: bool  # as if just drawn at random
    untrained: UntrainedFacts


@dataclass(frozen=True, kw_only=True)
class Report:
    """All there is to say of one checkpoint's embedding layer."""

    source: str
    kind: str
    sample: str  # what to say of it wherever it shows: that it is only a sample
    quick: bool
    layer: LayerFacts
    positions: PositionFacts
    head: HeadFacts
    vocabulary: VocabularyFacts
    health: HealthFacts
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 for healthy, notes allowed; 1 where there is a warning or an error."""
        return int(any(finding.severity != "note" for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain | {"exit_code": self.exit_code}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and len(value) > LONGEST_STRING:
        return value[: LONGEST_STRING - 1] + "…"
    return value

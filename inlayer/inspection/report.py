"""The result of an inspection: facts about a checkpoint's embedding layer, and findings.

source -> Model -> facts -> findings -> [Report]
- `to_dict()` contains plain JSON values only; a number that is NaN or infinite becomes null
- its keys are the fields of `Report` and `exit_code`; nested facts have the fields of their class below
Tested in tests/inspection/test_report.py and tests/inspection/test_command.py.
"""

from __future__ import annotations

from typing import Any, Literal

from inlayer.errors import InputError
from inlayer.facts_base import Facts, plain
from inlayer.files import quote
from inlayer.formats.tensor_info import TensorInfo
from inlayer.inspection.findings import ADVICE, SEVERITIES, Example, Finding, shorten
from inlayer.render.numbers import pluralize

MAX_UNDERTRAINED = 0.1  # share of the ordinary rows; published models have up to 3%
MIN_REFERENCES = 8  # fewest reference tokens by which undertrained rows can be recognized


class TensorFacts(Facts):
    """Where a table is stored, and its size."""

    tensor: str
    file: str
    offset: int  # position of the first byte in the file
    nbytes: int
    dtype: str  # as spelled in the file
    rows: int
    width: int
    parameter_share: float | None  # the table's share of the whole model
    scale: float | None  # factor applied to looked-up rows; None if it is not known


class TokenTableFacts(TensorFacts):
    """The embedding table, and the config's settings for it."""

    model_type: str | None
    architecture: str | None
    config_vocab_size: int | None
    config_width: int | None
    config_dtype: str | None
    parameters: int
    model_parameters: int | None
    other_candidates: tuple[str, ...]


class OtherTableFacts(TensorFacts):
    """Another table: its role and its rows. Counts cover the rows that were read."""

    role: str  # "position", "token_type", "per_layer", "ngram", "value", "mtp", "routing", or another "token" or "head"
    expected_rows: int | None  # according to the config or the token table; None if unknown
    rows_read: int
    zero_rows: int = 0
    nonfinite_rows: int = 0  # rows with NaN or infinity
    duplicate_rows: int = 0
    norm_median: float | None = None
    copy_of: str | None = None  # the tensor with the same rows, for a copy


def describe_tensor(info: TensorInfo, total: int | None, scale: float | None) -> dict[str, Any]:
    """Return the arguments of `TensorFacts`, for a tensor of a model with `total` parameters."""
    rows, width = info.shape
    name, file, share = shorten(info.name, 200), shorten(info.file, 200), rows * width / total if total else None
    location = {"tensor": name, "file": file, "offset": info.offset, "nbytes": info.nbytes, "dtype": info.dtype}
    return location | {"rows": rows, "width": width, "parameter_share": share, "scale": scale}


def share_bytes(a: TensorInfo, b: TensorInfo) -> bool:
    """Return whether two tensors are the same bytes of a file, as tied tensors in a torch file are."""
    return (a.file, a.offset, a.nbytes) == (b.file, b.offset, b.nbytes)


class NgramMemoryFacts(Facts):
    """An n-gram memory of the config: how the last few tokens choose its rows."""

    tensor_suffix: str  # end of its tensors' names
    layer: int | None  # the decoder layer that reads it; None: its rows are part of the hidden states
    n_tensors: int  # in the files; 0 if they do not match the config
    rows: int
    width: int
    heads: int
    orders: tuple[int, ...]  # numbers of tokens per n-gram
    min_modulus: int  # the rows of a hash head are its modulus
    max_modulus: int
    compressed_vocab_size: int | None  # different tokens after normalization, if they are hashed instead of ids


class RotaryTypeFacts(Facts):
    """Rotary position settings. `layer_type` is the kind of layers that use them, None for all layers."""

    layer_type: str | None
    rope_type: str
    rope_theta: float
    factor: float | None
    original_max_position_embeddings: int | None
    partial_rotary_factor: float


class PositionFacts(Facts):
    """Position scheme. `context_length` is in tokens, None if it is unlimited."""

    kind: Literal["none", "learned", "sinusoidal", "rotary", "unknown"]
    context_length: int | None = None
    tensor: str | None = None
    tensor_rows: int | None = None
    rotary: tuple[RotaryTypeFacts, ...] = ()
    relative: str | None = None  # description of the relative positions


class HeadFacts(Facts):
    """Weight tying according to three sources: the config's flag, a head tensor in the files, and its values."""

    tie_word_embeddings: bool | None  # the config's value or the family's default; None if there is no known config
    tie_is_explicit: bool  # the config itself contains tie_word_embeddings
    tensor: str | None
    shape: tuple[int, ...] | None
    equals_table: bool | None  # whether they are bit-identical; None if there is nothing to compare
    config_expects_head: bool | None  # the model's class has a head; None if the config names no class


class SpecialToken(Facts):
    """A special token. `roles`: the names the config gives it, such as eos and pad."""

    id: int
    text: str | None
    roles: tuple[str, ...]
    norm: float | None  # None if the row was not read or does not exist


class VocabularyFacts(Facts):
    """How tokens match up with rows. Counts cover the rows that were checked: all, or a sample in a quick report."""

    tokenizer: str | None = None  # its kind; without a tokenizer, most counts are None
    n_tokens: int | None = None
    config_vocab_size: int | None
    table_rows: int
    rows_checked: int
    n_trailing_rows: int | None = None  # rows after the last token, which pad the table
    n_gaps: int | None = None  # rows before the last token that have no token
    n_tokens_out_of_range: int | None = None
    n_reserved_tokens: int | None = None  # placeholders such as [unused7]
    n_reusable_ids: int | None = None  # reserved tokens, gaps, and trailing rows
    reusable_examples: tuple[Example, ...] = ()
    special_tokens: tuple[SpecialToken, ...]


class RowFacts(Facts):
    """Values of the rows: counts of unusual rows, the distribution of norms, the channels."""

    rows_read: int
    nan_rows: int
    inf_rows: int
    zero_rows: int
    constant_rows: int
    duplicate_rows: int  # bit-identical to an earlier row; zero rows are excluded
    norm_min: float | None
    norm_median: float | None
    norm_max: float | None
    norm_histogram: tuple[int, ...]  # rows per bin; bins have equal width
    histogram_min: float | None
    histogram_max: float | None
    padding_id: int | None
    padding_norm: float | None
    dominant_channel: int | None
    dominant_channel_energy: float | None  # the channel's share of the total energy
    dead_channels: int
    near_zero_share: float | None  # values much smaller than the rest of their row; None if too few rows were read
    randomly_initialized: bool
    undertrained_rows: int
    ordinary_rows: int  # rows of tokens that text produces; 0 if there is no tokenizer
    reference_rows: int  # rows of reference tokens, which text never produces; undertrained rows resemble them
    norm_threshold: float | None  # undertrained rows have at most this norm; None if norms do not separate them
    cosine_threshold: float | None  # or at least this cosine similarity to the reference tokens' mean direction

    @property
    def undertrained_skip_reason(self) -> str | None:
        """The reason why undertrained rows cannot be recognized, or None if they can."""
        if self.norm_threshold is not None or self.cosine_threshold is not None:
            return None
        if not self.reference_rows:
            return "no reference tokens"
        if self.reference_rows < MIN_REFERENCES:
            return f"only {pluralize(self.reference_rows, 'reference token')}"
        return "reference tokens look like ordinary ones"


class TrainingFacts(Facts):
    """What `inlayer train` recorded about a table that it wrote."""

    input_scale: float | None  # multiplied into the rows when they were saved; its report has norms before that
    unseen_tokens: int  # tokens that never occurred in the training text


class Report(Facts):
    """The result of `inlayer.inspect`: facts about an embedding layer, and findings.

    Attributes:
        source: The checkpoint as you named it.
        kind: The kind of source: "folder", "safetensors", "gguf", "pytorch", or "hub".
        description: A line about the bundled or installed sample; empty for other sources.
        quick: Whether only headers and a sample of the rows were read.
        table: Where the embedding table is stored, its size, and its dtype.
        positions: The position scheme and the context length.
        head: Whether the head is tied, by the config and by its values.
        tables: Every other table: positions, token types, per-layer, n-gram, value, and routing tables, copies.
        ngrams: The n-gram memories of the config.
        vocabulary: How tokens match up with rows: gaps, and reserved and special tokens.
        rows: Row values: NaN, zeros, duplicates, norms, channels, undertrained tokens.
        training: What `inlayer train` recorded, if it wrote this folder.
        findings: Errors, warnings, and notes, the most severe first.
        not_checked: Parts that could not be checked, and why. They may be faulty even if there are no findings.
        strict: Whether a randomly initialized table, or anything not checked, counts as a failure.

    Example:
        >>> import inlayer
        >>> report = inlayer.inspect("default")
        >>> report.table.rows, report.table.width, report.exit_code
        (6144, 128, 0)
    """

    source: str
    kind: str
    description: str
    quick: bool
    strict: bool = False
    table: TokenTableFacts
    positions: PositionFacts
    head: HeadFacts
    tables: tuple[OtherTableFacts, ...] = ()
    ngrams: tuple[NgramMemoryFacts, ...] = ()
    vocabulary: VocabularyFacts
    rows: RowFacts
    training: TrainingFacts | None = None
    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...] = ()

    def __repr__(self) -> str:
        table = self.table
        return f"<Report on {self.source}: {table.rows:,} x {table.width:,} {table.dtype}; {self.verdict}>"

    def __str__(self) -> str:
        from inlayer.inspection.terminal import report_text

        return report_text(self)

    @property
    def verdict(self) -> str:
        """One line: whether the layer is healthy, and how many errors, warnings, and notes there are.

        Example:
            >>> inlayer.inspect("default").verdict
            'healthy: 1 note'
        """
        counts = {name: sum(finding.severity == name for finding in self.findings) for name in SEVERITIES}
        share = self.rows.undertrained_rows / max(self.rows.ordinary_rows, 1)
        verdict = "needs attention" if self.exit_code else "healthy"
        if counts["error"] + counts["warning"] == 0:
            if self.not_checked:
                verdict = "no defects in what was checked"
            elif share > MAX_UNDERTRAINED and not self.exit_code:
                verdict = "no defects found"
            verdict += f", but {share:.0%} of the tokens look undertrained" if share > MAX_UNDERTRAINED else ""
            verdict += "; --strict requires a complete check" if self.not_checked and self.strict else ""
        summary = ", ".join(pluralize(amount, name) for name, amount in counts.items() if amount)
        return f"{verdict}: {summary}" if summary else verdict

    @property
    def exit_code(self) -> int:
        """0 if the layer is healthy (notes are allowed), 1 if there is a warning or an error; see also `strict`.

        Example:
            >>> inlayer.inspect("default").exit_code
            0
        """
        strictly = self.strict and (bool(self.not_checked) or self.rows.randomly_initialized)
        return int(strictly or any(finding.severity != "note" for finding in self.findings))

    def ids(self, code: str) -> tuple[int, ...]:
        """List the token ids of one kind of finding.

        Args:
            code: The code of a finding, such as "undertrained-tokens".

        Returns:
            Every affected token id, sorted; empty if there is no such finding.

        Raises:
            InputError: If `code` is not the code of any kind of finding.

        Example:
            >>> inlayer.inspect("default").ids("undertrained-tokens")[:3]
            (130, 133, 135)
        """
        if code not in ADVICE:
            codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings)) or "none"
            raise InputError(f"unknown finding code {quote(code)}; the codes in this report are: {codes}")
        return tuple(sorted(set[int]().union(*(finding.ids for finding in self.findings if finding.code == code))))

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain JSON values.

        Returns:
            The fields of the report and `exit_code`, ready for `json.dumps(..., allow_nan=False)`.

        Example:
            >>> inlayer.inspect("default").to_dict()["table"]["rows"]
            6144
        """
        return dict(plain(vars(self) | {"exit_code": self.exit_code}, names={}))

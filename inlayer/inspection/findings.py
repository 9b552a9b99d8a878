"""Findings: the problems and notes that an inspection reports, with a stable code and advice for each kind.

source -> Model -> facts -> [findings] -> Report
- severities follow compilers and SARIF: an error or a warning needs attention, a note is informational
- a code never changes its meaning; `ADVICE` lists every code once, and docs/checkpoints.md explains each of them
- text from a checkpoint is untrusted, so `shorten` escapes it and shortens it to one line
Tested with one damaged checkpoint per fault in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inlayer.facts_base import Facts
from inlayer.files import printable

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

MAX_NUMBER = 2**63 - 1  # a config may contain numbers with thousands of digits; larger ones are treated as this one

_DIVERGED = "Download the file again. If you trained this model yourself, the run diverged or a cast overflowed."
_MISMATCHED = "Weights and config.json belong to different models. Download both again."
_SCALED = "Check whether a scale was applied twice, or a quantized tensor was read without its scales."
_EXTENDED = "Download the file again, or train the rows that were added when the table was extended."
_HEAD_AGAIN = "Download the head again. If you trained this model yourself, check that the head was saved and resized."
_UNTRAINED = "Expected before training. If the model was trained, the wrong weights were saved."
_ORIGINAL_CONFIG = "Compare it with the model's original config.json."

ADVICE = {
    # rows
    "nan-rows": _DIVERGED,
    "inf-rows": _DIVERGED,
    "zero-rows": "Copy these rows from the original checkpoint, or train them before use.",
    "duplicate-rows": "Train tokens that were added by copying a row. Otherwise compare with the original checkpoint.",
    "constant-rows": "Convert the table again from the original. A quantizer that loses its scales produces such rows.",
    "repeated-rows": "Merge the shards of the table again: each shard once, in order.",
    "all-rows-identical": "The table was filled with a single row, not trained. Download the weights again.",
    "scale-too-small": _SCALED,
    "scale-too-large": _SCALED,
    "norm-outliers": "Compare these rows with the original checkpoint. Values this large overwhelm other tokens.",
    "unusual-value-distribution": "Check whether bfloat16 was labeled as float16, or the values were reduced to their "
    "signs. Then convert the table again.",
    "dominant-channel": "Check whether one column was scaled by mistake. Compare with the original checkpoint.",
    "dead-channels": "Check whether a column shard was lost when the shards were merged.",
    "undertrained-tokens": "Common for rare tokens. Expect unpredictable output when they occur.",
    "random-initialization": _UNTRAINED,
    "padding-row-nonzero": "Common where an attention mask hides padding (BERT). Exclude padding from sums and means.",
    # config and table
    "vocab-size-mismatch": "Set vocab_size to the number of rows, or save the table again after resizing it.",
    "hidden-size-mismatch": _MISMATCHED,
    "dtype-mismatch": "Set the config's dtype to the stored dtype to avoid converting every row on load.",
    "invalid-config": "Correct this field in config.json.",
    "unknown-model-type": "Rows can still be read. Positions and scale are not guessed.",
    "generic-model-type": "Compare hidden states with the original model before you rely on them.",
    "ambiguous-table": "Delete the tensor left over from training, or move the intended table to a separate file.",
    # other tensors of the layer
    "tensor-missing": "Download the missing files, or the config.json that belongs to these weights.",
    "tensor-unreadable": "Download the file that contains it.",
    "tensor-not-finite": _DIVERGED,
    "tensor-shape-mismatch": _MISMATCHED,
    "tensor-too-large": f"No published model has a tensor this large here. {_ORIGINAL_CONFIG}",
    # other tables
    "table-unreadable": "Download the file that contains it.",
    "table-rows-mismatch": "Weights and config.json may belong to different models, or only one table was resized.",
    "table-not-finite": _DIVERGED,
    "table-zero-rows": "Copy these rows from the original checkpoint, or train them before use.",
    "table-copy-differs": "Copy these rows again: a copy for multi-token prediction must match the original.",
    "routing-out-of-range": _MISMATCHED,
    "routing-untrained": _UNTRAINED,
    "ngram-mismatch": "Download the weights, config.json, and tokenizer again, all from the same model.",
    "fp8-without-scales": "Expected for plain FP8. If the model was quantized, download the file with its scales.",
    "table-stored-twice": "Store it once to save space.",
    # positions
    "positions-too-few": "Set max_position_embeddings to the number of rows; longer texts would fail.",
    "positions-too-many": "Set max_position_embeddings to the number of rows.",
    "positions-zero": _EXTENDED,
    "positions-identical": _EXTENDED,
    "positions-scale-mismatch": _SCALED,
    "unusual-context-length": f"Check max_position_embeddings and the rope_scaling factor. {_ORIGINAL_CONFIG}",
    "context-length-below-original": f"One of the two values is wrong. {_ORIGINAL_CONFIG}",
    "unusual-rope-theta": _ORIGINAL_CONFIG,
    # head
    "tied-head-differs": "If the head was trained separately, set tie_word_embeddings to false. Otherwise delete the "
    "stored head.",
    "head-missing": "If the model is tied, set tie_word_embeddings to true. Otherwise download the missing files.",
    "head-unreadable": "Download the file that contains it.",
    "head-shape-mismatch": "Resize the table and the head to the same number of rows. Their widths must match as well.",
    "head-not-finite": _DIVERGED,
    "head-zero-rows": _HEAD_AGAIN,
    "head-duplicate-rows": _HEAD_AGAIN,
    "head-scale-mismatch": _SCALED,
    "head-equals-table": "Tie them to save space, unless you plan to train them separately.",
    "head-stored-twice": "You can remove the head from the files.",
    # tokens
    "token-ids-out-of-range": "Resize the table for the added tokens, or use the tokenizer the table was made for.",
    "tokenizer-too-small": "Check whether this is another model's tokenizer. Download the model's own.",
    "tokenizer-unreadable": "Download the tokenizer files again.",
    "tokenizer-missing": "Put tokenizer.json, tokenizer.model, or tiktoken.model next to the weights.",
    "special-id-out-of-range": "Use the id from the model's original config.json, or resize the table.",
    "special-id-invalid": "Write the id as a number, or null if there is none.",
    "special-id-without-token": "No text produces this id. Check that the tokenizer is complete and matches the model.",
    "special-id-not-special": f"Text that contains this token produces the same id. {_ORIGINAL_CONFIG}",
}


class Example(Facts):
    """A row that a finding affects.

    Attributes:
        id: The row of the table.
        text: The text of its token, or None if it does not have one.
        value: The value that stands out, or None.

    Example:
        >>> example = inlayer.inspect("default").findings[0].examples[0]
        >>> example.id, round(example.value, 2)  # an undertrained row
        (130, 0.43)
    """

    id: int
    text: str | None
    value: float | None = None


@dataclass(frozen=True)
class Finding:
    """A problem or an informational note, as listed in `Report.findings`.

    Attributes:
        severity: "error", "warning", or "note".
        code: A name that never changes its meaning, such as "nan-rows"; docs/checkpoints.md explains each code.
        message: What was found, in one sentence.
        count: The number of affected rows, ids, or tensors.
        ids: Every affected token id; empty if the finding is not about single tokens.
        examples: The first few affected rows, with their text.
        advice: What to do next.

    Example:
        >>> finding = inlayer.inspect("default").findings[0]
        >>> finding.severity, finding.code, len(finding.ids) == finding.count
        ('note', 'undertrained-tokens', True)
    """

    severity: Severity
    code: str
    message: str
    count: int = 0  # by default the number of ids, or 1
    ids: tuple[int, ...] = ()
    examples: tuple[Example, ...] = ()
    advice: str = ""  # by default, the advice listed for the code

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", self.count or len(self.ids) or 1)
        object.__setattr__(self, "advice", self.advice or ADVICE[self.code])


def shorten(text: str, max_length: int = 120) -> str:
    """Return untrusted text on one line: escaped, with the middle omitted if it is long."""
    safe = printable(text if len(text) <= 2 * max_length else text[:max_length] + text[-max_length:])
    if len(safe) <= max_length and len(text) <= 2 * max_length:
        return safe
    return f"{safe[: max_length - 21]}…{safe[-20:]}"

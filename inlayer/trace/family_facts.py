"""Facts that only some models have: n-gram memories, per-layer and value embeddings, relative positions.

Part of a trace (trace/facts.py). Tested against the schema in tests/trace/test_ngrams.py, test_per_layer.py, and
test_relative.py.
"""

from __future__ import annotations

from typing import Literal

from inlayer.facts_base import Facts

TokenIndex = tuple[int, int]  # text, token


class NgramRead(Facts):
    """The n-gram of one order that ends at a token, and the row that each hash head of this order reads."""

    order: int
    text: str  # text of the hashed tokens, fewer than `order` near the start of the text
    rows: list[int]
    offsets: list[int]  # first byte of each row in its file


class SharedNgrams(Facts):
    """N-grams that read the same rows: repeated, equal after normalization, or by collision."""

    order: int
    texts: list[str]  # each text once
    occurrences: list[TokenIndex]
    n_shared_heads: int  # number of hash heads whose row they share
    n_heads: int  # number of hash heads of this order


class NgramFacts(Facts):
    """One n-gram memory: a large table whose rows are chosen by the last few tokens."""

    layer: int | None  # the decoder layer that reads it; None: its rows are part of the hidden states
    tensor: str  # the first tensor
    n_tensors: int
    file: str
    dtype: str  # as named in the file
    rows: int  # rows of all its tensors
    width: int
    heads: int
    normalized: bool  # tokens with the same normalized text are hashed as one
    rows_read: int  # distinct rows that the model reads for these texts; a walk reads them if `layer` is None
    bytes_read: int  # bytes of these rows, scales included
    reads: list[list[list[NgramRead]]]  # per text and token, by order
    shared: list[SharedNgrams]  # at most `max_tokens` entries


class PerLayerFacts(Facts):
    """A second table with one vector per token for every block (Gemma-3n, Gemma-4)."""

    tensor: str  # empty: in memory
    rows: int
    layers: int
    width: int  # width of each block's vector
    row_bytes: int | None
    offsets: list[list[int]] | None  # per text and token, the first byte of its row; None if it is not a local file
    norms: list[list[list[float]]]  # per text, token, and block
    vectors: list[list[list[list[float]]]]  # per text, token, and block: the first `dims` channels


class ValueFacts(Facts):
    """A second table whose rows some blocks add to the values of their attention (NeoMME)."""

    tensor: str  # empty: in memory
    rows: int
    width: int
    layers: list[int]  # the blocks that read it
    row_bytes: int | None
    offsets: list[list[int]] | None  # per text and token, the first byte of its row; None if it is not a local file
    vectors: list[list[list[float]]]  # per text and token, the recorded channels


class RoutingFacts(Facts):
    """A table with the experts of each token, for one block (DeepSeek-V4)."""

    tensor: str
    rows: int
    row_bytes: int
    offsets: list[list[int]] | None  # per text and token, the first byte of its row; None if it is not a local file
    experts: list[list[list[int]]]  # per text and token


class RelativeFacts(Facts):
    """Relative positions: the bias that attention adds to its scores, or the rows it uses, for the recorded tokens.

    The lists `rows` and `offsets`, and each list in `bias`, have one entry per entry of `columns`.
    """

    kind: Literal["alibi", "t5", "deberta"]
    n_heads: int | None  # None: the rows are vectors, not one bias per head
    slopes: list[float]  # slopes of all heads, or empty if there is no ALiBi
    counts_from_end: bool  # ALiBi of MPT: positions count from the last token
    column_label: str  # what a column is, in words: the position of a key, or a distance
    columns: list[int]
    tensor: str  # the learned table, or empty if there is none
    rows: list[int]  # rows of the table, or empty if there is none
    offsets: list[int]  # first byte of each row in its file, or empty if it is not in a file
    bias: list[list[float]]  # bias of the first `dims` heads; empty if it depends on the tokens (DeBERTa)

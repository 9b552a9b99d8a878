"""Facts of a walk: the dataclasses shown by the terminal, the page, and the JSON.

- `to_dict` and `to_json` give the JSON that schema.json describes
- a walk records a range: up to `max_tokens` tokens of each text, starting at `first_token`, and `dims` channels of each
  vector, starting at `first_channel` (rotary: the first `dims` pairs). Token indices are relative to `first_token`;
  fields with the prefix `n_` count everything
- bytes are hexadecimal strings, because a token may end in the middle of a character
Tested against library calls and against the schema in tests/trace/.
"""

from __future__ import annotations

from typing import Any, Literal

from inlayer.facts_base import Facts, plain, to_json
from inlayer.trace.family_facts import NgramFacts, PerLayerFacts, RelativeFacts, RoutingFacts, TokenIndex, ValueFacts

Vector = list[float]  # in JSON, non-finite values are the strings "nan", "inf", and "-inf"
Span = tuple[int, int]  # start, end (exclusive)
Shape2D = tuple[int, int]  # rows, channels


class Character(Facts):
    """One character of the text and its UTF-8 bytes."""

    text: str
    bytes: str


class MergeFacts(Facts):
    """One BPE merge: two adjacent tokens that became one. The lowest `rank` is merged first.

    The bytes are the normalized text's, which may differ from the original (NFC).
    """

    left: str
    right: str
    rank: int
    id: int


class PreToken(Facts):
    """One pre-token: a piece of text that the tokenizer encodes separately. No token crosses its edges."""

    span: Span  # in bytes of the text
    bytes: str
    tokens: Span  # indices into `TextTrace.tokens`, before any swap
    merges: list[MergeFacts] | None  # in the order they are applied; None unless the tokenizer is a byte-level BPE


class StageValue(Facts):
    """One token's vector after a stage of the layer, and the vector that the stage added, if it adds one."""

    added: Vector | None
    row: int | None  # index into `StageFacts.table` of the added row; None if it is not a row of a table
    offset: int | None  # first byte of that row
    output: Vector


class Rotation(Facts):
    """The rotary angles of one token, one value per channel pair."""

    angles: Vector  # radians
    unscaled_angles: Vector  # the angles without RoPE scaling
    cos: Vector  # as attention receives them: in the model's dtype, times the attention factor
    sin: Vector


class TokenTrace(Facts):
    """One token of one text through every step. With inputs_embeds, the fields of steps 1 to 4 are None."""

    id: int | None
    token: str | None  # as spelled in the vocabulary, which differs from the text if the tokenizer normalizes it
    label: str  # for display: its text, its bytes if they are not whole characters, or its name if it is special
    bytes: str  # the bytes of the text it covers
    span: Span | None  # in bytes of the text
    special: bool
    mask: Literal[0, 1]  # 0 for padding
    position: int
    offset: int | None  # first byte of its row in the table's file, or in the table if that is in memory
    stored_hex: list[str]  # one string per stored value, most significant byte first; per byte if quantized
    row: Vector
    stages: list[StageValue]  # one per entry of `Trace.stages`
    hidden: Vector
    rotations: list[Rotation]  # one per entry of `Positions.rotary`


class TextTrace(Facts):
    """One text of the batch. Lists cover the recorded range; the counts cover all of the text."""

    text: str | None  # the part of the text in the recorded range; None for inputs_embeds
    normalized: str | None  # `text` as the vocabulary spells it; None if that is the same, ignoring whitespace
    n_characters: int
    n_bytes: int
    characters: list[Character]
    pre_tokens: list[PreToken] | None  # None if the tokenizer has no pre-tokenizer, or if its spans are not known
    n_pre_tokens: int
    n_tokens: int  # padding excluded
    n_padding: int  # padding tokens that fill the text up to the length of the batch
    tokens: list[TokenTrace]  # padding included


class TableFacts(Facts):
    """An embedding table: where it is stored, and how its bytes are laid out."""

    name: str
    file: str | None  # None: in memory
    remote: bool
    dtype: str  # as named in the file: "BF16", "Q8_0"
    row_dtype: str  # dtype of the rows it returns: "bfloat16"
    shape: Shape2D
    offset: int  # first byte of the tensor
    row_bytes: int
    itemsize: int | None  # bytes per value; None if rows are quantized in blocks

    def row_offset(self, row: int) -> int:
        """Return the offset of a row's first byte in the file, or in the table if that is in memory."""
        return self.offset + row * self.row_bytes


class Gather(Facts):
    """The gathered rows, compared with a one-hot matrix product."""

    shape: tuple[int, int, int]
    compared_rows: int  # width of the one-hot vectors: the whole table or, if that is too large, the rows in use
    whole_table: bool
    equal: bool
    note: str  # why the result differs, or why only part of the table was compared; otherwise empty


class StageFacts(Facts):
    """One operation of the layer between the row and the hidden state."""

    name: Literal["scale", "n-grams", "multiplier", "projection", "token type", "position", "norm", "mask"]
    note: str
    table: TableFacts | None  # contains the rows that the stage adds; None if it adds none, or computes them


class ScaledFrequencies(Facts):
    """Rotary frequencies with a RoPE scaling that is not the model's."""

    name: str
    frequencies: Vector  # radians per position
    attention_factor: float  # multiplies cos and sin


class RotaryFacts(Facts):
    """Rotary frequencies of one layer type."""

    layer_type: str | None
    theta: float
    head_dim: int
    n_pairs: int  # rotated channel pairs per head; the remaining channels are unchanged
    pairing: str
    scaling: str | None
    attention_factor: float  # multiplies cos and sin
    frequencies: Vector  # radians per position
    unscaled_frequencies: Vector  # frequencies before RoPE scaling
    rescaled: list[ScaledFrequencies]  # RoPE scalings that a reader can compare; empty if the model has one


class Positions(Facts):
    """The position scheme of this walk."""

    scheme: Literal["none", "learned", "sinusoidal", "rotary"]
    from_model: bool  # False: a different scheme or theta was chosen for this walk
    block_size: int | None  # longest text the model supports
    note: str
    rotary: list[RotaryFacts]  # empty unless the scheme is rotary
    relative: RelativeFacts | None  # in addition to the scheme; adds nothing to the rows


class Padding(Facts):
    """The token that pads shorter texts."""

    id: int | None  # None: the model has no padding token
    is_padding_idx: bool  # True: the table's padding_idx; False: an ordinary token chosen by the tokenizer
    is_zero: bool  # all values of its row are zero
    row: Vector


class RowGradient(Facts):
    """The gradient of one table row."""

    id: int
    label: str
    occurrences: list[TokenIndex]  # where the row was looked up, at most `max_tokens` entries
    count: int  # number of lookups of this row; their gradients are summed
    lookup: Vector  # gradient through the lookup
    head: Vector | None  # gradient through the tied head; None if the head is untied or missing
    total: Vector
    norm: float  # norm of the total, over all channels
    is_padding: bool


class Backward(Facts):
    """The backward pass: which rows receive a gradient from this batch. Always in float32."""

    loss_kind: Literal["next token", "sum"]
    loss: float
    uniform_loss: float | None  # the loss if every token were equally likely, ln V; None if the loss is a sum
    note: str  # describes the targets, or the sum, of the loss
    tied: bool
    n_rows_with_gradient: int  # a tied head sends one to every row with a nonzero probability
    rows: list[RowGradient]  # in order of first occurrence, at most `max_tokens`
    n_unique_ids: int  # unique ids in the batch
    unmasked_padding_gradient: Vector | None  # the padding row's gradient if there were no padding_idx


class Change(Facts):
    """An intentional change to a walk, to see its effect."""

    positions: str | None = None
    theta: float | None = None
    swap: tuple[int, int] | None = None  # indices of two tokens of the first text
    pad: int = 0


class StepFacts(Facts):
    """One of the eight steps: its title, a one-line summary, and the line of PyTorch that performs it."""

    number: int
    title: str
    note: str
    code: str


class Trace(Facts):
    """One walk of a batch of texts through a model's embedding layer, as `inlayer.walk` returns it.

    Attributes:
        source: The model; `note`, `family`, `tokenizer`, and `vocab_size` describe it.
        shape: Shape of the hidden states: batch, tokens, width. The vectors below have `dims` channels,
            starting at `first_channel`, and each text has up to `max_tokens` tokens, starting at `first_token`.
        texts: Each text with its characters, pre-tokens, and tokens; tokens have ids, rows, and hidden states.
        table: Where the rows are stored.
        gather: The lookup compared with a product of one-hot vectors.
        positions: The position scheme; `stages` are the steps from rows to hidden states.
        padding: The padding row. `n_streams` is the number of copies of each hidden state.
        ngram_memories: The rows of each memory that n-grams read. `per_layer` and `value_embeddings` are second tables,
            or None.
        routing: The experts of each token, by block.
        backward: The gradients of the rows, or None.
        steps: Title, summary, and line of PyTorch for each of the eight steps.
        format: Version of the JSON format. `input` and `change` repeat the arguments of the walk.

    Example:
        >>> love = inlayer.walk("I love dogs").texts[0].tokens[1]
        >>> love.id, love.label, love.stored_hex[:2]
        (812, ' love', ['3ea1', 'be89'])
    """

    format: Literal[3] = 3
    source: str
    note: str  # shown next to the model's name
    family: str | None
    tokenizer: str | None
    vocab_size: int | None
    shape: tuple[int, int, int]  # shape of the hidden states: batch, tokens, width
    dims: int
    max_tokens: int
    first_token: int
    first_channel: int
    input: Literal["text", "inputs_embeds"]
    change: Change
    steps: list[StepFacts]
    texts: list[TextTrace]
    table: TableFacts
    gather: Gather
    stages: list[StageFacts]
    positions: Positions
    padding: Padding
    n_streams: int  # copies that the model makes of each hidden state, 1 for most
    ngram_memories: list[NgramFacts]
    per_layer: PerLayerFacts | None
    value_embeddings: ValueFacts | None
    routing: list[RoutingFacts]
    backward: Backward | None  # None if there is nothing to differentiate; the note of step 8 gives the reason

    def __repr__(self) -> str:
        return f"<Trace of {len(self.texts)} texts through {self.source}: hidden states {tuple(self.shape)}>"

    def to_dict(self) -> dict[str, Any]:
        """Convert the trace to JSON-compatible values.

        Returns:
            Plain dicts, lists, strings, and numbers.

        Example:
            >>> inlayer.walk("I love dogs").to_dict()["shape"]
            [1, 4, 128]
        """
        return dict(plain(self))

    def to_json(self) -> str:
        """Convert the trace to one line of JSON.

        Returns:
            The JSON that `inlayer walk --json` prints.

        Example:
            >>> inlayer.walk("I love dogs").to_json()[:31]
            '{"format":3,"source":"default",'
        """
        return to_json(self)


# ---- facts that are not part of a walk: one token, the initialization of a table, the model


class NeighborFacts(Facts):
    """A table row that is close to another by cosine similarity."""

    id: int
    label: str
    cosine: float


class TokenFacts(Facts):
    """One token id: its text, its row, and its nearest neighbors in the table."""

    id: int
    token: str | None
    label: str
    bytes: str
    special: bool
    offset: int | None
    stored_hex: list[str]
    row: Vector  # at most 512 channels
    width: int
    norm: float
    neighbors: list[NeighborFacts]  # nearest first
    note: str  # why `neighbors` is empty; otherwise empty


class ModelFacts(Facts):
    """A model available for walks, as an entry of a list to choose from."""

    name: str
    source: str
    note: str
    family: str | None
    shape: Shape2D
    dtype: str
    positions: str
    padding_id: int | None
    tied: bool | None  # None: no head
    tokenizer: bool  # False: its rows can be shown, but text cannot be run through it

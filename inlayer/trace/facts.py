"""The facts of one walk: what every rendering reads, so that none can disagree.

text -> bytes -> pieces -> ids -> rows -> (+ positions) -> hidden states, and backwards
- plain frozen dataclasses of numbers, strings and lists; `to_dict` and `to_json` give JSON, schema.json describes it
- a vector holds the first `dims` channels (or channel pairs); a text its first `tokens` tokens: both are counted in
  full, so that a rendering can say what it leaves out
- bytes are written in hexadecimal: a piece may hold half a character
- not here: where the numbers come from (trace/run.py), how they look (trace/terminal/, trace/html.py)
Checked against the library calls, and against the schema, in tests/trace/.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

__all__ = [
    "Backward", "Birth", "BirthStage", "Cell", "Change", "Character", "Gather", "Merge", "ModelFacts", "Neighbor",
    "Padding", "Positions", "RowGradient", "Split", "Stage", "StageValue", "Step", "TableFacts", "TextTrace",
    "TokenFacts", "Trace", "Turn", "Turning", "plain", "to_json",
]  # fmt: skip

Vector = list[float]  # in JSON, what is no finite number is one of the strings "nan", "inf", "-inf"
Span = tuple[int, int]  # first, one past the last


@dataclass(frozen=True, kw_only=True)
class Character:
    """One character of the text and its UTF-8 bytes."""

    text: str
    bytes: str


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Two neighbors that became one token; `rank` orders the merges, the lowest goes first.

    Their bytes are those the tokenizer cuts: of a text it normalizes (NFC), not those of the text.
    """

    left: str
    right: str
    rank: int
    id: int


@dataclass(frozen=True, kw_only=True)
class Split:
    """A stretch the tokenizer cuts out before it makes tokens; it never merges across the edges."""

    span: Span  # in bytes of the text
    bytes: str
    cells: Span  # its tokens that are told, as places in `TextTrace.cells` before any swap
    merges: list[Merge] | None  # in the order they happen; None where they are not known: no byte-level BPE


@dataclass(frozen=True, kw_only=True)
class StageValue:
    """One token's vector after a stage of the layer, and what the stage added to it, if it is a sum."""

    added: Vector | None
    row: int | None  # of `Stage.table`: what was added is this row; None where it is no row of a table
    offset: int | None  # of that row's first byte
    after: Vector


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What a rotary position prepares for one token: one value a channel pair."""

    angles: Vector  # radians
    plain_angles: Vector  # what they would be without scaling
    cos: Vector  # as the attention gets them: in the model's dtype, with the factor
    sin: Vector


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One token of one text, through every step. Fields of steps 1 to 4 are None where vectors came in."""

    id: int | None
    token: str | None  # as the vocabulary spells it
    label: str  # to show it by: its text, its bytes where they are no whole characters, its name where it is special
    bytes: str  # under it in the text
    span: Span | None  # in bytes of the text
    special: bool
    mask: Literal[0, 1]  # 0 for padding
    position: int
    offset: int | None  # of the row's first byte in the table's file (in the table, where it is in no file)
    bits: list[str]  # as stored: one number a value, most significant first; of a quantized row one a byte
    row: Vector
    stages: list[StageValue]  # one for each of `Trace.stages`
    hidden: Vector
    turns: list[Turn]  # one for each of `Positions.turnings`


@dataclass(frozen=True, kw_only=True)
class TextTrace:
    """One text of the batch. `characters`, `splits` and `cells` are those of its beginning; the counts are of all."""

    text: str | None  # its beginning; None where vectors came in
    n_characters: int
    n_bytes: int
    characters: list[Character]
    splits: list[Split] | None  # None where the tokenizer does not split before it cuts, or how is not certain
    n_splits: int
    n_tokens: int  # padding not counted
    n_padding: int  # behind it, to reach the length of the batch
    cells: list[Cell]  # padding included


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """The table the rows come from: where it lies, and what its bytes mean."""

    name: str
    file: str | None  # None: in memory
    remote: bool
    dtype: str  # as the file spells it: "BF16", "Q8_0"
    row_dtype: str  # of a row when it is looked up: "bfloat16"
    shape: Span
    offset: int  # of its first byte
    row_bytes: int
    itemsize: int | None  # bytes a value; None where a row is quantized in blocks


@dataclass(frozen=True, kw_only=True)
class Gather:
    """Rows gathered, and the same by a product with one-hot vectors."""

    shape: tuple[int, int, int]
    checked_rows: int  # width of the one-hot vectors: all of the table, or only the rows in use where it is too large
    whole: bool
    equal: bool
    note: str  # why it is not equal, or not the whole table; else empty


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One thing the layer does to a row on its way to a hidden state."""

    name: Literal["scale", "multiplier", "projection", "token type", "position", "norm"]
    note: str
    table: TableFacts | None  # where the rows lie that it adds; None where it adds none, or waves that lie nowhere


@dataclass(frozen=True, kw_only=True)
class Turning:
    """How fast channel pairs turn; one for every layer type that differs."""

    layer_type: str | None
    theta: float
    head_dim: int
    pairs: int  # of a head's channels; the rest of the head passes through
    pairing: str
    scaling: str | None
    factor: float  # on cos and sin
    frequencies: Vector  # radians a token
    plain_frequencies: Vector  # without scaling


@dataclass(frozen=True, kw_only=True)
class Positions:
    """How order comes in."""

    scheme: Literal["none", "learned", "sinusoidal", "rotary"]
    own: bool  # the model's own; False: put in its place for this walk
    block_size: int | None  # how long a text it is made for
    note: str
    turnings: list[Turning]  # of rotary positions; else empty


@dataclass(frozen=True, kw_only=True)
class Padding:
    """The id that fills up shorter texts."""

    id: int | None  # None: this model has none
    is_row: bool  # the table keeps it as its padding row; False: a token like others, from the tokenizer
    zero: bool  # is the row all zero?
    row: Vector


@dataclass(frozen=True, kw_only=True)
class RowGradient:
    """What the backward pass brings to one row of the table."""

    id: int
    label: str
    places: list[Span]  # (text, token) where it was looked up, at most `tokens` of them
    count: int  # of all of them: that many gradients are summed
    lookup: Vector  # by way of the lookup
    head: Vector | None  # by way of the tied head; None where the head has rows of its own, or there is none
    total: Vector
    norm: float  # of the whole total, all channels
    is_padding: bool


@dataclass(frozen=True, kw_only=True)
class Backward:
    """The way back: which rows learn from this batch. In float32, whatever the dtype of the table."""

    loss: Literal["next token", "sum"]
    value: float
    note: str  # what the loss is of
    tied: bool
    touched: int  # rows that receive a gradient; by a tied head every one it gives a chance to be guessed
    rows: list[RowGradient]  # of the ids of this batch, in order of their first place; at most `tokens`
    n_rows: int  # different ids in the batch
    padding_without_guard: Vector | None  # what the padding row would have received if it were not protected


@dataclass(frozen=True, kw_only=True)
class Change:
    """What was changed on purpose, to see what follows."""

    positions: str | None = None
    theta: float | None = None
    swap: Span | None = None  # two tokens of the first text
    pad: int = 0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One of the eight: its title, what happened in one line, and the one line of PyTorch that does it."""

    number: int
    title: str
    note: str
    code: str


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One walk of one batch through one model."""

    format: Literal[1] = 1
    source: str
    note: str  # what to say of the model wherever it shows
    family: str | None
    tokenizer: str | None
    vocab_size: int | None
    shape: tuple[int, int, int]  # hidden states: batch, tokens, width
    dims: int
    tokens: int
    entered: Literal["text", "inputs_embeds"]
    change: Change
    steps: list[Step]
    texts: list[TextTrace]
    table: TableFacts
    gather: Gather
    stages: list[Stage]
    positions: Positions
    padding: Padding
    backward: Backward | None  # None where it was not asked for or cannot be had: the step's note says why

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON."""
        facts: dict[str, Any] = plain(self)
        return facts

    def to_json(self) -> str:
        return to_json(self)


# ---- beside the walk: one token, the birth of a table, the model itself


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """A row of the table that points the same way."""

    id: int
    label: str
    cosine: float


@dataclass(frozen=True, kw_only=True)
class TokenFacts:
    """One id by itself: what it stands for, its row, and the rows nearest to it."""

    id: int
    token: str | None
    label: str
    bytes: str
    special: bool
    offset: int | None
    bits: list[str]
    row: Vector  # all channels, at most 512
    width: int
    norm: float
    neighbors: list[Neighbor]  # by cosine, the nearest first
    note: str  # why there are no neighbors; else empty


@dataclass(frozen=True, kw_only=True)
class BirthStage:
    """The table at one moment of its birth."""

    title: str
    note: str
    code: str  # the line of PyTorch that does it
    mean: float
    std: float
    counts: list[int]  # a histogram of all values between the edges
    edges: Vector  # one more than counts
    rows: list[Vector]  # of `Birth.ids`, the first `dims` channels


@dataclass(frozen=True, kw_only=True)
class Birth:
    """A table of the model's size being made: drawn, scaled, its padding row zeroed; afterwards only looked up."""

    vocab_size: int  # of the table shown, which is smaller than a very large model's
    width: int
    padding_idx: int | None
    seed: int
    init_std: float
    dims: int
    ids: list[int]  # rows to watch, the padding row among them
    stages: list[BirthStage]


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model that can be walked, for a list to choose from."""

    name: str
    source: str
    note: str
    family: str | None
    shape: Span
    dtype: str
    positions: str
    padding_id: int | None
    tied: bool | None  # None: no head


def to_json(value: Any) -> str:
    """Facts as JSON text, in ASCII: the name of a file may be no valid Unicode.

    The encoder looks into dataclasses by itself; only where a number is not finite `plain` has to, in twice the time.
    """
    try:
        return json.dumps(value, default=vars, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """Dataclasses, tuples and numbers as JSON has them; NaN and infinities, which it has not, as strings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value

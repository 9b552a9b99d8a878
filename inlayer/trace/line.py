"""A line: a model that can be walked, from a checkpoint or newborn, and `walk`, the short way to one trace.

text -> ids -> rows -> (+ positions) -> hidden states -> head
- a line may be walked any number of times, from several threads at once
- a newborn line has random rows for a tokenizer: to see how a table begins
Checked in tests/trace/test_line.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from torch import Tensor

from inlayer.checkpoint import Model, load
from inlayer.embeddings import Embeddings
from inlayer.errors import InputError
from inlayer.head import Head
from inlayer.tokenizers import Tokenizer
from inlayer.trace.facts import Birth, Change, TokenFacts, Trace
from inlayer.trace.initialization import give_birth
from inlayer.trace.parts import NEWBORN_POSITIONS, Parts
from inlayer.trace.run import take
from inlayer.trace.token import look_at

__all__ = ["Pipeline", "random_pipeline", "walk"]

NEWBORN_VALUES = 2**28  # of a newborn table: one gigabyte


class Pipeline(Parts):
    """A model made ready to be walked."""

    def walk(
        self,
        texts: Sequence[str] | None,
        *,
        inputs_embeds: Tensor | None = None,
        dims: int = 8,
        tokens: int = 256,
        change: Change | None = None,
    ) -> Trace:
        """One walk of a batch of texts, or of vectors in their place; `walk` below says what the arguments mean."""
        return take(self, texts, inputs_embeds=inputs_embeds, dims=dims, tokens=tokens, change=change or Change())

    def token(self, token_id: int, *, k: int = 8) -> TokenFacts:
        """One id by itself, with the k rows nearest to its own."""
        return look_at(self, token_id, k)

    def birth(self, *, seed: int = 0, dims: int = 8) -> Birth:
        """How a table like this one comes into being."""
        return give_birth(self, seed, dims)


def walk(
    text: str | Sequence[str] | None = None,
    model: Model | Pipeline | str | os.PathLike[str] | None = None,
    *,
    inputs_embeds: Tensor | None = None,
    tokenizer: Tokenizer | None = None,
    dims: int = 8,
    tokens: int = 256,
    positions: str | None = None,
    theta: float | None = None,
    swap: tuple[int, int] | None = None,
    pad: int = 0,
) -> Trace:
    """Walk a text, or several as a batch, through a model, and tell every step with the model's real numbers.

    `model` is what `inlayer.load` takes or gives; without one it is the sample that inlayer carries. Vectors (B, T, D)
    may come in place of a text. `dims` channels of a vector are told, and `tokens` tokens of a text. The rest changes
    something on purpose, to see what follows: other `positions` ("none", "learned", "sinusoidal", "rotary") or another
    base `theta`, two tokens of the first text to `swap`, tokens of padding to `pad` behind.
    """
    if isinstance(model, Pipeline):
        line = model
    else:
        line = Pipeline(model if isinstance(model, Model) else load(model), tokenizer=tokenizer)
    change = Change(positions=positions, theta=theta, swap=swap, pad=pad)
    texts = [text] if isinstance(text, str) else text
    return line.walk(texts, inputs_embeds=inputs_embeds, dims=dims, tokens=tokens, change=change)


def random_pipeline(
    texts: Sequence[str], tokenizer: Tokenizer, *, width: int = 8, positions: str = "learned", seed: int = 0
) -> Pipeline:
    """A line with random rows, large enough for these texts: one row a token, and one more for padding."""
    encoded = tokenizer.encode_batch(texts)
    highest = max((int(ids.max()) + 1 for ids in encoded if len(ids)), default=0)
    vocabulary = max(tokenizer.get_vocab_size(), highest)  # ids may have holes between them
    longest = max((len(ids) for ids in encoded), default=1)
    if (vocabulary + 1) * width > NEWBORN_VALUES:
        raise InputError(
            f"a newborn table of {vocabulary + 1:,} x {width:,} is more than this walk fills; with this tokenizer, "
            f"choose a width of at most {NEWBORN_VALUES // (vocabulary + 1)}"
        )
    layer = Embeddings(
        vocabulary + 1,
        width,
        max(longest, NEWBORN_POSITIONS),
        positions=positions,
        padding_idx=vocabulary,
        seed=seed,
    )
    head = Head(width, vocabulary + 1, padding_idx=vocabulary, device="meta")
    layer.tie(head)
    return Pipeline.of_layer(tokenizer, layer, head, source="newborn", note=f"random rows from seed {seed}")

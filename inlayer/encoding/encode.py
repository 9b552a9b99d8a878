"""encode: texts to vectors, in batches.

text -> ids -> rows -> pooling -> [vectors]
- special tokens are ignored: none are added, and those that occur in a text are skipped, as is the unknown token. For a
  model2vec or StaticEmbedding folder, that library's rules apply
- a text is never truncated; a text without tokens gives zeros
- a text's vector depends only on that text, not on its batch or on the number of threads
- see also: sums of rows (row_pooling.py), fitted weights (weighting.py)
Tested against a plain float64 computation in tests/encoding/test_encode.py.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inlayer.checks import check_id_array, check_size
from inlayer.encoding.row_pooling import POOLS, SEGMENT, RowPooler
from inlayer.errors import DtypeError, IdRangeError, InputError, TextError, TokenizerError, type_name
from inlayer.files import quote
from inlayer.formats.dtypes import as_float_dtype
from inlayer.formats.row_reader import FileRows
from inlayer.ragged import Ragged, concatenate_batches, slice_texts
from inlayer.render.progress_bar import Progress
from inlayer.shapes import Array, Ids
from inlayer.tokenizers.base import check_text, check_texts, is_list_like

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model
    from inlayer.encoding.weighting import Weighting


BATCH = 65_536  # texts; gigatoken caches the words of a batch
SHORT_TEXT, SMALL_BATCH = 512, 16  # characters, texts
TOKEN_VALUES = 2**22  # values of token vectors per streamed batch: 16 MB
TEXT_VALUES = 2**24  # values of text vectors per streamed batch: 64 MB
BATCH_CHARACTERS = 2**24  # limit for a batch, which has fewer texts if they are longer
TEXT_ERRORS = (DtypeError, IdRangeError, TextError, TokenizerError)  # errors that a text can cause
SAMPLE = 1024  # number of rows and tokens in a checksum
BLOCK_BYTES = 2**24  # bytes of rows read at a time to compute the version


class TokenVectors(NamedTuple):
    """One vector per token, as returned by `Model.encode(texts, pool="none")`.

    The tokens of text i are at indices `offsets[i]` to `offsets[i + 1] - 1`.

    Attributes:
        vectors: The vectors of all texts (N, D).
        ids: The token ids of all texts (N,).
        offsets: The index of each text's first token, and N at the end (B + 1,).

    Example:
        >>> result = inlayer.load("default").encode(["I love dogs", "Hi"], pool="none")
        >>> result.vectors.shape, result.offsets.tolist()
        ((6, 128), [0, 4, 6])
    """

    vectors: Array
    ids: Ids
    offsets: Ids


class EncodeSettings(NamedTuple):
    """Settings for turning a text's rows into its vector."""

    pool: str = "mean"
    normalize: bool = False
    dim: int | None = None
    dtype: Any = "float32"

    def validated(self, width: int) -> EncodeSettings:
        """Return the same settings with a numpy dtype, or raise InputError if one of them is invalid."""
        if self.pool not in POOLS:
            raise InputError(f"pool is {quote(self.pool)}; it must be one of {', '.join(POOLS)}")
        if not isinstance(self.normalize, (bool, np.bool_)):
            raise DtypeError(f"normalize is {quote(self.normalize)}; it must be True or False")
        if self.dim is not None:
            check_size(self.dim, "dim")
            if self.dim > width:
                raise InputError(f"dim is {self.dim}; it must be at most {width}, the width of the vectors")
        return self._replace(dtype=as_float_dtype(self.dtype))

    def postprocess(self, vectors: Array) -> Array:
        """Truncate, normalize, and convert pooled vectors (n, D)."""
        vectors = vectors if self.dim is None else np.ascontiguousarray(vectors[:, : self.dim])
        if self.normalize:
            wide = vectors.astype(np.float64)
            with np.errstate(invalid="ignore"):  # vectors that contain infinity cannot be normalized and become NaN
                norms = np.sqrt(np.vecdot(wide, wide))[:, None]
                vectors = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0).astype(vectors.dtype)
        with np.errstate(over="ignore"):
            return vectors.astype(self.dtype, copy=False)


def check_one_vector(pool: object) -> None:
    """Raise InputError if the pooling returns one vector per token where one per text is needed."""
    if pool == "none":
        raise InputError("pool is 'none', which returns one vector per token; use mean, first, last, or max")


class Encoder:
    """A model's tokenizer, its rows, and fitted weights if there are any, as returned by `Model.encoder`.

    `Model.encode` and `Model.encode_iter` use it. Call those to turn texts into vectors.

    Attributes:
        tokenizer: The model's tokenizer.
        weighting: The fitted weights, or None.
        width: Width of the vectors.

    Example:
        >>> encoder = inlayer.load("default").encoder()
        >>> encoder.width, encoder.ids(["I love dogs"]).flat.tolist()
        (128, [40, 812, 2228, 82])
    """

    def __init__(self, model: Model, weighting: Weighting | None = None) -> None:
        self.tokenizer, self.weighting = model.tokenizer, weighting
        scale: Array | None = model.token_weights
        if weighting is not None:
            weighting.check(model)
            scale = weighting.token_weights if scale is None else scale * weighting.token_weights
        self.pooler, self._remote = RowPooler(model.table, scale), model.store.remote
        self.width = model.table.embedding_dim if weighting is None else weighting.width
        self._special_ids = _skipped_ids(model)
        rows = max([model.table.num_embeddings, *(token_id + 1 for token_id in self._special_ids)])
        self._special = np.zeros(rows, np.bool_)
        self._special[[*self._special_ids]] = True

    def ids(self, texts: list[str]) -> Ragged:
        """Tokenize texts.

        Args:
            texts: The texts.

        Returns:
            The ids of the pooled tokens, without special tokens.

        Example:
            >>> inlayer.load("default").encoder().ids(["I love dogs", "Hi"]).counts.tolist()
            [4, 2]
        """
        return self.without_special(self.all_ids(texts))

    def all_ids(self, texts: list[str]) -> Ragged:
        """Tokenize texts.

        A few short texts are tokenized individually, because starting the threads for a batch takes longer.
        """
        if len(texts) <= SMALL_BATCH and all(isinstance(text, str) and len(text) <= SHORT_TEXT for text in texts):
            with suppress(TextError):  # the batch below raises an error that names the text
                return Ragged.from_lists([self.tokenizer.encode(text, add_special_tokens=False) for text in texts])
        return self.tokenizer.encode_batch(texts, add_special_tokens=False)

    def without_special(self, ids: Ragged) -> Ragged:
        """Return the same texts without special tokens, or raise IdRangeError if another id is not in the table."""
        check_id_array(ids.flat, len(self._special))
        special = self._special.take(ids.flat)
        if special.any():
            kept = np.append(0, np.cumsum(~special))
            ids = Ragged(ids.flat[~special], kept[ids.offsets])
        check_id_array(ids.flat, self.pooler.table.num_embeddings)
        return ids

    def pooled(self, ids: Ragged, settings: EncodeSettings) -> Array:
        """Return one vector per text, for validated settings."""
        vectors: Array = self.pooler.pool(ids, settings.pool)
        if self.weighting is not None:
            vectors = self.weighting.transform(vectors)
            vectors[ids.counts == 0] = 0
        return settings.postprocess(vectors)

    def vectors(self, ids: Ragged, settings: EncodeSettings) -> Array | TokenVectors:
        """Return the vectors of texts, for validated settings."""
        return self.pooled(ids, settings) if settings.pool != "none" else self.per_token(ids, settings)

    def stream(self, texts: Any, settings: EncodeSettings, batch_size: int | None) -> Iterator[Array | TokenVectors]:
        """Yield vectors batch by batch, for validated settings.

        By default, vectors are yielded in smaller batches than texts are tokenized in. A batch's memory is
        reused once the caller drops it, because allocating new memory takes longer than the lookup.
        """
        per_token = settings.pool == "none"
        for ids in self._id_batches(texts, batch_size):
            start = 0
            ends = ids.offsets if per_token else np.arange(len(ids) + 1)  # counted in tokens, or in texts
            values = math.inf if batch_size is not None else TOKEN_VALUES if per_token else TEXT_VALUES
            while start < len(ids):
                fitting = int(np.searchsorted(ends, ends[start] + values // self.pooler.width, "right")) - 1
                stop = max(start + 1, fitting)
                yield self.vectors(slice_texts(ids, start, stop), settings)
                start = stop

    def per_token(self, ids: Ragged, settings: EncodeSettings) -> TokenVectors:
        """Return one vector per token, for validated settings."""
        vectors: Array = np.empty((ids.flat.size, self.pooler.width), np.float32)
        self.pooler.fill(ids.flat, vectors)
        vectors = vectors if self.weighting is None else self.weighting.transform(vectors)
        return TokenVectors(settings.postprocess(vectors), ids.flat, ids.offsets)

    def _encode_short(self, text: str, settings: EncodeSettings) -> Array | None:
        """Return the mean of one short text without the overhead of a batch; None if that is not possible."""
        if settings.pool != "mean" or len(text) > SHORT_TEXT:
            return None
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if not self._special_ids.isdisjoint(ids):
            ids = [token_id for token_id in ids if token_id not in self._special_ids]
        if not 0 < len(ids) <= SEGMENT or max(ids) >= self.pooler.table.num_embeddings:
            return None
        vector: Array = np.add.reduce(self.pooler.rows(np.array(ids)), 0, keepdims=True) / np.float32(len(ids))
        return settings.postprocess(vector if self.weighting is None else self.weighting.transform(vector))

    def checksum(self) -> int:
        """Return a checksum of all weights and a sample of rows, tokens, and ids, which changes with the model."""
        count = self.pooler.table.num_embeddings
        sample = np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64)
        arrays = [self.pooler.table.rows(sample), self.pooler.scale]
        arrays += [] if self.weighting is None else [self.weighting.mean, self.weighting.matrix]
        data = [array.tobytes() for array in arrays if array is not None]
        for token_id in sample.tolist():
            with suppress(*TEXT_ERRORS):  # there may be more rows than tokens
                data.append(self.tokenizer.token_bytes(token_id))
                data.append(str(self.tokenizer.encode(data[-1].decode(errors="replace"))).encode())
        return zlib.crc32(b"\0".join(data))

    def version(self) -> str:
        """Return a version that changes if any row does: a checksum of all rows, or a remote file's version."""
        crc, source = 0, self.pooler.table.source
        if self._remote and not isinstance(source, FileRows):  # reading all rows would download the table
            return str(getattr(getattr(source, "file", None), "version", None))
        step = max(1, BLOCK_BYTES // source.row_bytes)
        for start in range(0, source.rows, step):
            crc = zlib.crc32(source.take(np.arange(start, min(start + step, source.rows))).data, crc)
        return str(crc)

    def _id_batches(self, texts: Any, batch_size: int | None) -> Iterator[Ragged]:
        """Yield ids batch by batch. An error names the index of the offending text."""
        done = 0
        for batch in batches(texts, batch_size):
            try:
                ids = self.ids(batch)
            except TEXT_ERRORS:
                for index, text in enumerate(batch, done):
                    check_text(text, f"text {index}")
                    try:
                        self.ids([text])
                    except TEXT_ERRORS as error:
                        raise type(error)(f"text {index}: {error}") from None
                raise
            yield ids
            done += len(batch)

    def encode(
        self, texts: Any, settings: EncodeSettings, batch_size: int | None, progress: Progress | None
    ) -> Array | TokenVectors:
        """Return the vectors of all texts (n, D), or the vector of a single text (D,)."""
        settings = settings.validated(self.width)
        per_token = settings.pool == "none"
        if batch_size is not None:
            check_size(batch_size, "batch_size")
        if isinstance(texts, str):
            short = self._encode_short(texts, settings)
            result = self.vectors(self.ids([texts]), settings) if short is None else short
            return result if isinstance(result, TokenVectors) else np.asarray(result[0])
        texts = check_texts(_as_iterable(texts))
        done, parts = 0, []
        is_plain = self.weighting is None and settings == EncodeSettings(settings.pool).validated(self.width)
        vectors = np.empty((0 if per_token else len(texts), settings.dim or self.width), settings.dtype)
        for ids in self._id_batches(texts, batch_size):
            start, done = done, done + len(ids)
            if per_token:
                parts.append(ids)
            elif is_plain:  # without another copy
                self.pooler.pool(ids, settings.pool, vectors[start:done])
            else:
                vectors[start:done] = self.pooled(ids, settings)
            if progress is not None:
                progress(done, len(texts))
        if not per_token:
            return vectors
        return self.per_token(concatenate_batches(parts), settings)


def _skipped_ids(model: Model) -> frozenset[int]:
    """Return the ids to skip: special tokens, or those that a static model's library skips."""
    if model.skipped_tokens == "none":
        return frozenset()
    if model.skipped_tokens == "special":
        return model.tokenizer.special_ids
    unknown = getattr(model.tokenizer, "unknown_id", None)
    return frozenset() if unknown is None else frozenset({unknown})


def batches(texts: Any, batch_size: int | None = None) -> Iterator[list[str]]:
    """Split texts into lists of `batch_size`; the default size is fast and limits memory."""
    if batch_size is not None:
        check_size(batch_size, "batch_size")
    source = iter(_as_iterable(texts))
    while block := list(islice(source, batch_size or BATCH)):
        if batch_size is not None or _characters(block) <= BATCH_CHARACTERS:
            yield block
            continue
        start = size = 0
        for index, text in enumerate(block):
            length = len(text) if isinstance(text, str) else 0
            size += length
            if size > BATCH_CHARACTERS and index > start:
                yield block[start:index]
                start, size = index, length
        yield block[start:]


def _characters(texts: list[Any]) -> float:
    try:
        return sum(map(len, texts))
    except TypeError:  # an item is not a text; the tokenizer reports it
        return math.inf


def _as_iterable(texts: Any) -> Any:
    if hasattr(texts, "to_pylist") and hasattr(texts, "type"):  # a pyarrow column
        return texts.to_pylist()
    if not is_list_like(texts):
        raise DtypeError(f"texts is {type_name(texts)}; it must be a list of str (encode also takes a single str)")
    return texts

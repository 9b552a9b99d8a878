"""Model: a checkpoint's embedding layer, head, and tokenizer, each read on first access.

Store -> [Model] -> tokenizer, table, embeddings, head
- `spec`, `tokenizer`, and `table` need only numpy; `embeddings` and `head` need torch (checkpoint/layer.py)
- a file without a config has rows but no positions. With a config from an unsupported family, there is a `table` but no
  `embeddings`, because inlayer does not guess what the layer adds to its rows
Tested against transformers in tests/checkpoint/test_parity.py, and without torch in tests/test_without_torch.py.
"""

from __future__ import annotations

import os
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint import find_tables
from inlayer.checkpoint.encode_mixin import EncodeMixin
from inlayer.checkpoint.find_tables import TableInfo
from inlayer.checkpoint.open import load
from inlayer.checkpoint.store import Store
from inlayer.checks import check_type
from inlayer.errors import ConfigError, MissingPartError, needs_torch
from inlayer.families import LayerSpec, describe
from inlayer.families.generic import ASSUMED
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.tables import StoredTable
from inlayer.tables.ngram_hash import NgramMemory
from inlayer.tables.stored_table import ClusteredRows
from inlayer.tokenizers import Tokenizer

if TYPE_CHECKING:
    from inlayer.embeddings import Embeddings
    from inlayer.geometry.neighbors import Analogy, Neighbor, Query, SearchedTable
    from inlayer.geometry.projection import Method, TableProjection
    from inlayer.geometry.vocabulary import Vocabulary
    from inlayer.head import Head


class Model(EncodeMixin):
    """An opened checkpoint, as `inlayer.load` returns it. Everything is read on first access.

    Attributes:
        store: The opened files: `store.names()` lists their tensors, and `store.read(name)` reads one.
        source: Where the model came from.
        note: A note to show with the model, for example that it is a sample.
        config: The contents of config.json, or None.
        dtype: The dtype passed to `load`, or None if rows keep their stored dtype.
        trainable: Whether `embeddings` holds its rows in memory, so that they can be trained.
        table_info: Name, file, byte offset, shape, and dtype of the table.
        is_static: Whether this is a model2vec or StaticEmbedding model, which has only a table.
        skipped_tokens: Tokens that `encode` leaves out: "special", "unknown", or "none".
        table: The rows, as numpy arrays.
        embeddings: The input layer, a torch module.
        head: The head, a torch module.

    Example:
        >>> model = inlayer.load("default")
        >>> model, model.spec.family, model.is_tied, model.head_name, model.token_weights
        (Model('default', llama, 6,144 x 128 BF16), 'llama', True, None, None)
        >>> model.has_tokenizer, model.has_head
        (True, True)
        >>> model.tokenizer.encode("I love dogs")
        [40, 812, 2228, 82]
        >>> model.vocabulary.texts[812]
        ' love'
    """

    _arguments: tuple[str | os.PathLike[str], np.dtype[Any] | None]

    def __init__(self, store: Store, dtype: np.dtype[Any] | None = None, *, trainable: bool = False) -> None:
        check_type(store, Store, "store", "; to open a model, call inlayer.load(source)")
        self.store, self.source, self.note, self.config = store, store.source, store.note, store.config
        self.is_static, self.skipped_tokens = store.is_static, store.skipped_tokens
        self.dtype, self.trainable = dtype, trainable
        self.table_info = find_tables.find_table(store, self.spec, self.config)
        if self.spec is not None and self.spec.is_generic:
            name, shape, size = self.spec.family, self.table_info.shape, (self.spec.vocab_size, self.spec.n_embd)
            if shape == size:
                self.note = f"{self.note}; {ASSUMED}" if self.note else f"{name}: {ASSUMED}"
            else:
                self.spec_error = ConfigError(f"{name}: its table is {shape}, but its config requires {size}")
                self.spec = None
        self.note = "; ".join(filter(None, (self.note, find_tables.unsupported_parts(self))))

    @cached_property
    def spec(self) -> LayerSpec | None:
        """The layer that the config describes; None if there is no config, or if its family is not supported."""
        try:
            return None if self.config is None else describe(self.config, tensor_names=self.store.names)
        except ConfigError as error:
            self.spec_error = error
            return None

    def _require_spec(self) -> LayerSpec:
        """Return `spec`, or raise the error with the reason why there is none."""
        if self.spec is None:
            raise ConfigError(f"{self.spec_error}. Its rows can still be looked up: load(...).table.rows(ids)")
        return self.spec

    @cached_property
    def _stored_tokenizer(self) -> Tokenizer | None:
        return self.store.open_tokenizer()

    @property
    def has_tokenizer(self) -> bool:
        """True if there is a `tokenizer`."""
        return "tokenizer" in vars(self) or self._stored_tokenizer is not None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer.

        Raises:
            MissingPartError: If the checkpoint has none; check `has_tokenizer` first.
            TokenizerError: If its file is malformed or of an unsupported kind.

        Example:
            >>> load("default").tokenizer.decode([40, 812])
            'I love'
        """
        if self._stored_tokenizer is None:
            advice = "put one next to the weights, or open one with inlayer.open_tokenizer(path)"
            raise MissingPartError(f"{self.source} has no tokenizer; {advice}")
        return self._stored_tokenizer

    @cached_property
    def table(self) -> StoredTable:
        """The token rows: `table.rows(ids)` reads them from the file as numpy arrays, without torch.

        Example:
            >>> load("default").table.rows([40, 812]).shape
            (2, 128)
        """
        padding_idx = None if self.spec is None else self.spec.padding_idx
        has_row = padding_idx is not None and padding_idx < self.table_info.shape[0]
        table = self.store.table(self.table_info.name, padding_idx if has_row else None)
        if self.is_static and self.store.find_first(["mapping"]):
            table.source = ClusteredRows(table.source, self.store.read_integers("mapping"))
            table.num_embeddings = table.source.rows
        return table if self.dtype is None else table.astype(self.dtype)

    @cached_property
    def tables(self) -> tuple[TableInfo, ...]:
        """Every tensor that token ids, positions, or n-grams index, the token table first; reads only headers.

        Raises:
            CheckpointError: If a file with one of these tensors is missing or damaged.

        Example:
            >>> [(table.role, table.shape) for table in load("default").tables]
            [('token', (6144, 128))]
        """
        total, names = self.store.parameters(), find_tables.table_names(self)
        return tuple(find_tables.describe_table(self, name, role, total) for name, role in names)

    @cached_property
    def ngram_memories(self) -> tuple[NgramMemory, ...]:
        """The n-gram memories with their rows; reads only headers, and checks them against the config.

        Raises:
            ConfigError: If the config is invalid or its family is not supported.
            CheckpointError: If the tensors do not match the config.

        Example:
            >>> load("default").ngram_memories
            ()
        """
        specs = () if self.config is None else self._require_spec().ngrams
        return tuple(find_tables.open_memory(self, spec) for spec in specs)

    @cached_property
    def token_weights(self) -> npt.NDArray[np.float64] | None:
        """The weight of each token in the mean of a text, which some model2vec models store; otherwise None."""
        return find_tables.read_weights(self) if self.is_static else None

    @cached_property
    def embeddings(self) -> Embeddings:
        """The whole input layer as a torch module.

        Its rows stay in the file, frozen; `load(source, trainable=True)` reads them into memory to train them.

        Raises:
            MissingExtraError: If torch is not installed.
            ConfigError: If the config is invalid or its family is not supported; `table` still has the rows.
            CheckpointError: If a tensor of the layer is missing or damaged.

        Example:
            >>> load("default").embeddings(torch.tensor([[40, 812]])).shape
            torch.Size([1, 2, 128])
        """
        with needs_torch("Model.embeddings"):
            from inlayer.checkpoint.layer import build_embeddings
        return build_embeddings(self)

    @cached_property
    def has_head(self) -> bool:
        """True if there is a `head`, tied or with its own rows. Does not need torch."""
        return find_tables.has_head(self)

    @cached_property
    def head(self) -> Head:
        """The head as a torch module.

        Raises:
            MissingPartError: If the checkpoint has none; check `has_head` first.
            InlayerError: Same as `embeddings`.

        Example:
            >>> load("default").head.tied
            True
        """
        if not self.has_head:
            rows, width = self.table_info.shape
            tied = f"inlayer.Head({width}, {rows}).tie(model.embeddings)"
            raise MissingPartError(f"{self.source} has no head; you can tie a new one to its table: {tied}")
        with needs_torch("Model.head"):
            from inlayer.checkpoint.layer import build_head
        return build_head(self)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The texts of the rows."""
        from inlayer.geometry.vocabulary import Vocabulary

        return Vocabulary(self.tokenizer if self.has_tokenizer else None, self.table.num_embeddings)

    def neighbors(
        self, query: Query, k: int = 10, *, table: SearchedTable = "input", words_only: bool = False,
        script: str | None = None, include_special: bool = False, progress: Progress | None = None,
    ) -> list[Neighbor]:  # fmt: skip
        """Find the tokens whose rows are nearest to a query by cosine: exact, over the whole table.

        Args:
            query: A word, a text (the mean of its tokens' rows), a token id, or a vector (D,).
            k: Number of tokens.
            table: "input", or "head" for the rows of the head.
            words_only: Return only whole words.
            script: Return only tokens in this Unicode script, such as "Latin".
            include_special: Also return special tokens and rows without a token.
            progress: Called as `progress(done, total)` with numbers of rows.

        Returns:
            Neighbors with `.id`, `.text`, and `.score`, nearest first; the query's own tokens are excluded.

        Raises:
            InputError: If the query is empty, zero, or not finite, or a filter needs a tokenizer and there is none.

        Example:
            >>> [neighbor.text for neighbor in load("default").neighbors("seven", 3)]
            [' five', ' four', ' six']
        """
        from inlayer.geometry.neighbors import find_neighbors, searched_table

        allowed = self.vocabulary.allowed(words_only=words_only, script=script, include_special=include_special)
        return find_neighbors(searched_table(self, table), self.vocabulary, query, k, allowed, progress or no_progress)

    def analogy(
        self, a: Query, b: Query, c: Query, k: int = 5, *, table: SearchedTable = "input", words_only: bool = False
    ) -> Analogy:
        """Answer "a - b + c", and compare the answer with its baselines.

        Args:
            a: A word, a text, a token id, or a vector, as in `neighbors`. The same applies to b and c.
            b: The query to subtract.
            c: The query to add.
            k: Number of answers.
            table: "input", or "head" for the rows of the head.
            words_only: Return only whole words.

        Returns:
            `answers`, `nearest_to_first` (the nearest tokens to `a` alone), and `answers_with_inputs`. Only the last
            includes a, b, and c, and tokens that are the same word as one of them, ignoring case and whitespace.

        Raises:
            InputError: If a query is empty, zero, or not finite, or the model has no such table.

        Example:
            >>> result = load("default").analogy("father", "man", "woman")
            >>> result.answers[0].text, result.nearest_to_first[0].text  # the arithmetic added nothing
            (' mother', ' mother')
        """
        from inlayer.geometry.neighbors import find_analogy, searched_table

        return find_analogy(searched_table(self, table), self.vocabulary, (a, b, c), k, words_only=words_only)

    def project(self, method: Method = "pca", *, progress: Progress | None = None) -> TableProjection:
        """Compute two coordinates for every row. Results are cached by content.

        Args:
            method: "pca"; "tsne" (extra `map`), which takes minutes, and on Ctrl-C returns its points so far; or
                "best": t-SNE if it has been computed before, as with the bundled sample, otherwise PCA.
            progress: Called as `progress(done, total)`.

        Returns:
            A projection with `points` (V, 2); zero and non-finite rows become NaN.

        Raises:
            InputError: If the method is unknown, or the table is too small for it.
            MissingExtraError: If the extra `map` is not installed and the method needs it.

        Example:
            >>> load("default").project().points.shape
            (6144, 2)
        """
        from inlayer.geometry.projection import cache_folder, project

        return project(self.table, method, cache=cache_folder(), progress=progress or no_progress)

    @property
    def is_tied(self) -> bool:
        """True if the config ties the head to the table; False if there is no config."""
        return self.spec is not None and self.spec.head.tied

    @cached_property
    def head_name(self) -> str | None:
        """The tensor of a head in the files, even if the config ties it."""
        return find_tables.find_head(self.store, self.table_info, self.spec)

    def __reduce__(self) -> tuple[Any, ...]:
        source, dtype = self._arguments  # a pickle contains the source, not the values
        return partial(load, dtype=dtype, trainable=self.trainable), (source,)

    def __repr__(self) -> str:
        rows, width = self.table_info.shape
        family = self.spec.family if self.spec is not None else "unknown family"
        return f"Model({self.source!r}, {family}, {rows:,} x {width:,} {self.table_info.dtype})"

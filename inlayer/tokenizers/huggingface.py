"""tokenizer.json: the file most open models carry.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- ids equal `tokenizers.Tokenizer.encode(text).ids` on every input; gigatoken does the work where it is proven equal
- nothing is cut or padded: truncation and padding written in the file are switched off. Dropout, which makes ids
  random, is switched off too
- the padding token is what tokenizer_config.json or special_tokens_map.json says, then the file's own `padding`, then a
  special token of that name (base.py)
- the ids a post-processor puts around a text come with add_special_tokens, as in `tokenizers`
- parse_special=False is `encode_special_tokens=True` there: tokens marked special are read as plain text, other added
  tokens are still found
- splits are those `tokenizers` made: it numbers the split each token comes from. Merges are replayed from the file,
  which is read again for them when first asked for
- not here: which file to open (open.py), what is refused (parts.py), when the fast path may be taken (fast.py), how a
  merge goes (merges.py)
Checked against `tokenizers` in tests/tokenizers/test_real.py, test_fast.py, test_splits.py and test_merges.py.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from inlayer.errors import TokenizerError
from inlayer.ragged import IdArray, Ragged
from inlayer.tokenizers.base import (
    BLOCK,
    LibraryTokenizer,
    Merged,
    Token,
    check_ids,
    check_known,
    check_text,
    check_texts,
    not_byte_level,
    pieces_from_bytes,
    special_finder,
)
from inlayer.tokenizers.charset import unsettled_texts
from inlayer.tokenizers.fast import LONG_TEXT, FastPath, encode_both, open_json
from inlayer.tokenizers.guard import library_errors, load_json_object
from inlayer.tokenizers.merges import Merges, byte_alphabet, json_merges
from inlayer.tokenizers.parts import check_opened, check_parts, flatten, unread_part
from inlayer.tokenizers.spans import in_bytes, pieces_from_offsets, splits_from_pieces

if TYPE_CHECKING:
    import tokenizers

__all__ = ["HuggingFaceTokenizer"]


class HuggingFaceTokenizer(LibraryTokenizer):
    """The tokenizer of a tokenizer.json, given as its bytes."""

    def __init__(self, data: bytes, *, where: str = "tokenizer.json", pad_token: str | None = None) -> None:
        config = load_json_object(data, where)
        model = check_parts(config, where)
        text = data.decode("utf-8-sig")
        if model.get("dropout"):
            model["dropout"] = None
            text = json.dumps(config)
        import tokenizers  # when a file is opened, not before

        self._where, self._data = where, data
        self._lock = RLock()
        with library_errors(f"{where} cannot be opened"):
            try:
                self._exact = tokenizers.Tokenizer.from_str(text)
            except Exception as error:  # the library promises no narrower class
                raise unread_part(config, where, error) from error
            check_opened(self._exact, where)
        self._exact.no_truncation()
        self._exact.no_padding()
        self._variants: dict[tuple[bool, bool], tokenizers.Tokenizer] = {(True, True): self._exact}
        self._added = self._exact.get_added_tokens_decoder()
        self.special_tokens: Mapping[str, int] = MappingProxyType(
            {token.content: token_id for token_id, token in self._added.items() if token.special}
        )
        cuts = flatten(config.get("pre_tokenizer"), "pretokenizers")
        self._cuts_first = bool(cuts)
        self._spells_bytes = is_byte_level([*cuts, *flatten(config.get("normalizer"), "normalizers")])
        self._byte_level = self._spells_bytes or is_byte_level(flatten(config.get("decoder"), "decoders"))
        vocab = model["vocab"]
        last = max(vocab.values(), default=-1) if isinstance(vocab, dict) else len(vocab) - 1
        self._id_limit = max([last, *self._added]) + 1
        padding = config.get("padding")
        self._pad_id = self._exact.token_to_id(pad_token) if pad_token is not None else None
        if self._pad_id is None and isinstance(padding, dict) and padding.get("pad_id", 0) < self._id_limit:
            self._pad_id = padding.get("pad_id")
        settings = config | {"model": {key: value for key, value in model.items() if key not in {"vocab", "merges"}}}
        self._unopened: tuple[str, dict[str, Any]] | None = (text, settings)
        self._fast: FastPath | None = None

    # -- the two paths --

    def _variant(self, parse_special: bool, post_process: bool = True) -> tokenizers.Tokenizer:
        """`tokenizers` with these settings. They are fields of its object, so that threads that want different ones
        need different objects; each is made once, when first asked for.
        """
        key = (parse_special, post_process)
        with self._lock:
            if key not in self._variants:
                variant = twin(self._exact)
                variant.encode_special_tokens = not parse_special
                if post_process:
                    variant.post_processor = self._exact.post_processor
                self._variants[key] = variant
            return self._variants[key]

    def _fast_path(self) -> FastPath | None:
        """Opened at the first batch: it reads the file a second time, which one short text is not worth."""
        with self._lock:
            if self._unopened is not None:
                data, config = self._unopened
                self._unopened = None
                if self._around is not None:
                    exact = partial(self._encode_exactly, add_special_tokens=False, parse_special=True)
                    self._fast = open_json(data, config, self._exact.token_to_id, exact)
            return self._fast

    @cached_property
    def _around(self) -> tuple[list[int], list[int]] | None:
        """The ids a post-processor puts before and after any text; None if they are not the same for every text."""
        found: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        for probe in ("a", "the 1!"):
            try:
                with library_errors(f"{self._where} cannot encode"):
                    encoding = self._exact.encode(probe)
                    bare = self._exact.encode(probe, add_special_tokens=False).ids
            except TokenizerError:  # a vocabulary without these letters and without an unknown token
                return None
            ids, added = encoding.ids, encoding.special_tokens_mask
            before = next((place for place, flag in enumerate(added) if not flag), len(ids))
            if not bare or ids[before : before + len(bare)] != bare:
                return None
            found.add((tuple(ids[:before]), tuple(ids[before + len(bare) :])))
        before_ids, after_ids = found.pop()
        return None if found else (list(before_ids), list(after_ids))

    @cached_property
    def _holds_special(self) -> Callable[[str], bool]:
        return special_finder(self.special_tokens)

    def _encode_exactly(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        """Through `tokenizers`, a block at a time: its objects live that long.

        The library hands out ids as a list; it joins the texts of a block before, so there is one list a block.
        """
        from tokenizers import Encoding  # loaded long since: a file is open

        engine = self._variant(parse_special)
        flats: list[IdArray] = []
        counts: list[int] = []
        for start in range(0, len(texts), BLOCK):
            with library_errors(f"{self._where} cannot encode"):
                encodings = engine.encode_batch_fast(
                    texts[start : start + BLOCK], add_special_tokens=add_special_tokens
                )
            counts += map(len, encodings)
            flats.append(np.array(Encoding.merge(encodings, growing_offsets=False).ids, np.int64))
        return Ragged.from_counts(np.concatenate(flats) if flats else np.empty(0, np.int64), np.array(counts, np.int64))

    # -- the contract --

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        check_text(text)
        if len(text) >= LONG_TEXT:
            batch = self.encode_batch([text], add_special_tokens=add_special_tokens, parse_special=parse_special)
            return [int(token_id) for token_id in batch.flat]
        with library_errors(f"{self._where} cannot encode"):
            return self._variant(parse_special).encode(text, add_special_tokens=add_special_tokens).ids

    def encode_batch(
        self, texts: Iterable[str], *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> Ragged:
        items = check_texts(texts)
        fast = self._fast_path()
        if fast is None:
            unsettled_texts(items)  # for lone surrogates
            return self._encode_exactly(items, add_special_tokens, parse_special)
        exact = partial(self._encode_exactly, add_special_tokens=False, parse_special=parse_special)
        # gigatoken always finds special tokens: a text without any is the same either way
        batch = encode_both(items, fast, exact, None if parse_special else self._holds_special)
        before, after = self._around if add_special_tokens and self._around is not None else ([], [])
        return batch.wrapped(before, after)

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """As `tokenizers` decodes, with the decoder of the file; but an id without a token is an error."""
        return self._exact.decode(self._known(ids), skip_special_tokens=skip_special_tokens)

    def decode_bytes(self, ids: Any) -> bytes:
        if not self._byte_level:
            raise not_byte_level(f"the {type(self._exact.model).__name__} tokenizer of {self._where}")
        return b"".join(self._bytes_of(token_id) for token_id in self._known(ids))

    def token_bytes(self, token_id: int) -> bytes:
        """Exact for a byte-level vocabulary; elsewhere the vocabulary's own spelling (`##ing`, `▁the`) in UTF-8."""
        return self._bytes_of(self._known([token_id])[0])

    def _known(self, ids: Any) -> list[int]:
        known: list[int] = check_ids(ids, self._id_limit).tolist()
        return check_known(known, lambda token_id: self._exact.id_to_token(token_id) is not None, self._where)

    def _bytes_of(self, token_id: int) -> bytes:
        token = str(self._exact.id_to_token(token_id))
        if token_id in self._added:
            return token.encode()
        if self._byte_level:
            alphabet = byte_alphabet()
            if all(character in alphabet for character in token):
                return bytes(alphabet[character] for character in token)
        elif re.fullmatch(r"<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        return token.encode()

    def get_vocab_size(self) -> int:
        return self._exact.get_vocab_size(with_added_tokens=True)

    @property
    def pad_id(self) -> int | None:
        return self._pad_id if self._pad_id is not None else super().pad_id

    def tokens(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[Token]:
        """Byte-level: the pieces' bytes add up to the text's. Elsewhere, and where a normalizer changed the text, spans
        come from the offsets of `tokenizers` and the bytes are those of the text under them (rules in spans.py).
        """
        source = check_text(text).encode()
        pieces, _ = self._cut(text, source, parse_special)
        with library_errors(f"{self._where} cannot encode"):
            whole = self._variant(parse_special).encode(text, add_special_tokens=add_special_tokens)
        return place_added(whole.ids, whole.special_tokens_mask, pieces, len(source), self._where)

    def _cut(self, text: str, source: bytes, parse_special: bool) -> tuple[list[Token], list[int | None]]:
        """The pieces of the text itself, and for each the number of the split it comes from."""
        with library_errors(f"{self._where} cannot encode"):
            # without its post-processor, which would trim white space off the offsets
            body = self._variant(parse_special, post_process=False).encode(text, add_special_tokens=False)
        ids = body.ids
        pieces = None
        if self._byte_level:
            pieces = pieces_from_bytes(source, ids, [self._bytes_of(token_id) for token_id in ids], self.special_ids)
        if pieces is None:
            pieces = pieces_from_offsets(source, ids, in_bytes(text, body.offsets), self._bytes_of, self.special_ids)
        return pieces, body.word_ids

    def splits(self, text: str, *, parse_special: bool = True) -> list[tuple[int, int]] | None:
        """As `tokenizers` cut it. None for every text where the file has no pre_tokenizer (LLaMA-2's), also for one in
        which added tokens are found.
        """
        source = check_text(text).encode()
        return splits_from_pieces(*self._cut(text, source, parse_special)) if self._cuts_first else None

    def merges(self, ids: Sequence[int]) -> list[Merged] | None:
        known = self._known(ids)
        with self._lock:
            merges = self._merges
        if merges is None or not self._added.keys().isdisjoint(known):  # added tokens are found, not merged
            return None
        return merges.leading_to(known, b"".join(self._bytes_of(token_id) for token_id in known))

    @cached_property
    def _merges(self) -> Merges | None:
        """Read from the file under the lock, once: `tokenizers` does not give them back."""
        if type(self._exact.model).__name__ != "BPE" or not self._spells_bytes:
            return None
        return json_merges(load_json_object(self._data, self._where)["model"])

    def __repr__(self) -> str:
        return f"HuggingFaceTokenizer({self._where!r}, {self.get_vocab_size()} tokens)"


def is_byte_level(steps: list[dict[str, Any]]) -> bool:
    return any(step.get("type") == "ByteLevel" for step in steps)


def twin(original: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer without its post-processor, settings of its own. The vocabulary is shared, so it is cheap."""
    copy = type(original)(original.model)
    copy.normalizer, copy.pre_tokenizer = original.normalizer, original.pre_tokenizer
    added = original.get_added_tokens_decoder()
    for special, run in itertools.groupby(sorted(added.items()), key=lambda item: item[1].special):
        tokens = [token for _, token in run]
        copy.add_special_tokens(tokens) if special else copy.add_tokens(tokens)
    if {key: token.content for key, token in copy.get_added_tokens_decoder().items()} != {
        key: token.content for key, token in added.items()
    }:  # numbered with gaps: only reading the file again gives the same numbers
        copy = type(original).from_str(original.to_str())
        copy.post_processor = None
    return copy


def place_added(ids: list[int], added: list[int], pieces: list[Token], end: int, where: str) -> list[Token]:
    """Put the ids a post-processor added between the pieces of the text: empty, at the place where they stand."""
    result: list[Token] = []
    rest = iter(pieces)
    position = 0
    for token_id, flag in zip(ids, added, strict=True):
        if flag:
            result.append(Token(token_id, b"", (position, position), True))
            continue
        piece = next(rest, None)
        if piece is None or piece.id != token_id:
            raise TokenizerError(f"{where} changes ids after cutting the text; their bytes are not known")
        result.append(piece)
        position = piece.span[1] if piece is not pieces[-1] else end
    return result

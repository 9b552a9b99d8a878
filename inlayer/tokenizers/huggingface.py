"""HuggingFaceTokenizer: reads tokenizer.json, the format of most open models.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- ids match `tokenizers.Tokenizer.encode(text).ids` on every input; gigatoken is used where verified to be equal
- truncation and padding stored in the file are turned off, as is dropout, which would make ids random
- the padding token comes from the config files, else from `padding` in tokenizer.json, else from a special token's name
- `compressed_ids` gives one id to all tokens with the same normalized text, for n-gram memories
- see also: choosing the file (open.py), validation (untrusted_files.py), the fast path (gigatoken.py)
Tested in test_real_tokenizers.py, test_gigatoken.py, test_pre_tokens.py, and test_merges.py of tests/tokenizers/;
compressed ids against sglang in tests/tables/test_ngram_hash.py.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from inlayer.errors import TokenizerError, type_name
from inlayer.files import parse_json
from inlayer.ragged import Ragged, concatenate_batches, ragged_from_counts
from inlayer.shapes import Ids
from inlayer.tokenizers.base import Analysis, Token, Tokenizer, check_text
from inlayer.tokenizers.gigatoken import EncodeBatch, is_supported, open_fast_path
from inlayer.tokenizers.library_tokenizer import BLOCK_TEXTS, LibraryTokenizer
from inlayer.tokenizers.merges import MergeTable, byte_alphabet, merges_from_json
from inlayer.tokenizers.offsets import byte_offsets, pre_tokens_from_tokens, tokens_from_offsets
from inlayer.tokenizers.untrusted_files import get_steps, library_errors, open_checked, parse_tokenizer_json

if TYPE_CHECKING:
    import tokenizers

ONE_SPACE = "\ue000"  # a private-use character that stands for a single space, which stripping would remove
REPLACEMENT = "\ufffd"  # replaces bytes of a token that are not valid UTF-8


class HuggingFaceTokenizer(LibraryTokenizer):
    """The tokenizer of a tokenizer.json, given as bytes (`data`)."""

    def __init__(self, data: bytes, *, source: str = "tokenizer.json", pad_token: str | None = None) -> None:
        config = parse_tokenizer_json(data, source)
        model = config["model"]
        if model.get("dropout"):
            model["dropout"] = None
            data = json.dumps(config).encode()
        self._source, self.data = source, data
        self._exact = open_checked(config, data.decode("utf-8-sig"), source)
        self._exact.no_truncation()
        self._exact.no_padding()
        self._variants: dict[tuple[bool, bool], tokenizers.Tokenizer] = {(True, True): self._exact}
        self._added = self._exact.get_added_tokens_decoder()
        self.special_tokens: Mapping[str, int] = {
            token.content: token_id for token_id, token in self._added.items() if token.special
        }
        normalizers, pre_tokenizers, decoders = (
            [step.get("type") for step in get_steps(config, part)]
            for part in ("normalizer", "pre_tokenizer", "decoder")
        )
        self._pre_tokenizes = bool(pre_tokenizers)
        self._encodes_bytes = "ByteLevel" in pre_tokenizers + normalizers
        self._byte_level = self._encodes_bytes or "ByteLevel" in decoders
        vocab = model.pop("vocab")
        model.pop("merges", None)
        self._settings = config  # without the vocabulary, to save memory
        last = max(vocab.values()) if isinstance(vocab, dict) else len(vocab) - 1
        self._id_limit = max([last, *self._added]) + 1
        self._continuation_prefix = (model.get("continuing_subword_prefix") or "").encode()
        self._pad_id = self._exact.token_to_id(pad_token) if pad_token is not None else None
        padding = config.get("padding")
        if self._pad_id is None and isinstance(padding, dict) and padding.get("pad_id", 0) < self._id_limit:
            self._pad_id = padding.get("pad_id")

    @property
    def unknown_id(self) -> int | None:
        """The id for text that is not in the vocabulary, or None."""
        model = self._settings["model"]
        token = model.get("unk_token")
        return model.get("unk_id") if token is None else self._exact.token_to_id(token)

    # -- encoding --

    def _variant(self, parse_special: bool, post_process: bool = True) -> tokenizers.Tokenizer:
        """Return the library's tokenizer with these settings, which are fields of the object."""
        key = (parse_special, post_process)
        with self._lock:
            if key not in self._variants:
                variant = copy_without_post_processor(self._exact)
                variant.encode_special_tokens = not parse_special
                if post_process:
                    variant.post_processor = self._exact.post_processor
                self._variants[key] = variant
            return self._variants[key]

    def _encode_one(self, text: str, add_special_tokens: bool, parse_special: bool) -> list[int]:
        # without a batch's arrays, which would take most of the time for a short text
        return self._variant(parse_special).encode(text, add_special_tokens=add_special_tokens).ids

    def _encode_exactly(self, texts: list[str], add_special_tokens: bool, parse_special: bool) -> Ragged:
        """Encode one block of texts at a time, so per-text objects are freed early."""
        from tokenizers import Encoding

        variant = self._variant(parse_special)
        batches = []
        for start in range(0, len(texts), BLOCK_TEXTS):
            block = texts[start : start + BLOCK_TEXTS]
            encodings = variant.encode_batch_fast(block, add_special_tokens=add_special_tokens)
            ids = Encoding.merge(encodings, growing_offsets=False).ids
            batches.append(ragged_from_counts(ids, np.array([len(encoding) for encoding in encodings])))
        return concatenate_batches(batches)

    @cached_property
    def _fast_path(self) -> EncodeBatch | None:
        around = self._find_special_tokens_around()
        if around is None or not is_supported(self._settings, self._exact.token_to_id):
            return None
        self._special_tokens_around = around
        text = self.data.decode("utf-8-sig")
        exact = partial(self._encode_exactly, add_special_tokens=False, parse_special=True)
        added = [token["content"] for token in self._settings.get("added_tokens") or []]
        return open_fast_path(lambda gigatoken: gigatoken.Tokenizer.from_json(text), exact, added)

    def _find_special_tokens_around(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the ids a post-processor adds before and after any text; None if they depend on the text."""
        added: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        for probe in ("a", "the 1!"):
            try:
                with library_errors(f"{self._source} cannot encode"):
                    encoding = self._exact.encode(probe)
                    bare = self._exact.encode(probe, add_special_tokens=False).ids
            except TokenizerError:  # a vocabulary without these letters and without an unknown token
                return None
            ids, mask = encoding.ids, encoding.special_tokens_mask
            start = next((position for position, is_added in enumerate(mask) if not is_added), len(ids))
            if not bare or ids[start : start + len(bare)] != bare:
                return None
            added.add((tuple(ids[:start]), tuple(ids[start + len(bare) :])))
        return added.pop() if len(added) == 1 else None

    # -- decoding and vocabulary --

    def decode(self, ids: Any, *, skip_special_tokens: bool = False) -> str:
        return self._exact.decode(self._valid_ids(ids), skip_special_tokens=skip_special_tokens)

    def _has_token(self, token_id: int) -> bool:
        return self._exact.id_to_token(token_id) is not None

    def _bytes_of(self, token_id: int) -> bytes:
        token = str(self._exact.id_to_token(token_id))  # byte-level vocabularies have a character for each byte
        if token_id in self._added:
            return token.encode()
        alphabet = byte_alphabet()
        if self._byte_level and alphabet.keys() >= {*token}:
            return bytes(alphabet[character] for character in token)
        if not self._byte_level and re.fullmatch(r"<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        return token.encode()

    def get_vocab_size(self) -> int:
        return self._exact.get_vocab_size(with_added_tokens=True)

    # -- explanations --

    def _normalize(self, text: str) -> str:
        normalizer, special = self._exact.normalizer, self._special_pattern  # special tokens are kept as they are
        if normalizer is None:
            return text
        parts = itertools.zip_longest(special.split(text), special.findall(text), fillvalue="")
        return "".join(normalizer.normalize_str(part) + token for part, token in parts)

    def _explain(self, text: str, add_special_tokens: bool, parse_special: bool, split: bool) -> Analysis:
        """Explain a text. If its tokens' bytes do not add up to it, spans follow the rules in offsets.py.

        Tokens that the post-processor adds, such as begin-of-text, get empty spans. There are no pre-tokens if the file
        has no pre_tokenizer (Llama-2).
        """
        source = check_text(text).encode()
        with library_errors(f"{self._source} cannot encode this text"):
            # without the post-processor, which would trim whitespace from the offsets
            body = self._variant(parse_special, post_process=False).encode(text, add_special_tokens=False)
            whole = self._variant(parse_special).post_process(body, add_special_tokens=add_special_tokens)
        added = list(zip(whole.ids, whole.special_tokens_mask, strict=True))
        if [token_id for token_id, is_added in added if not is_added] != body.ids:
            raise TokenizerError(
                f"the post-processor of {self._source} changes ids, so the bytes of its tokens are not known"
            )
        spelled = {token_id: self._bytes_of(token_id) for token_id in {*body.ids}}  # a long text repeats its tokens
        offsets, own = byte_offsets(text, body.offsets), [spelled[token_id] for token_id in body.ids]
        if self._byte_level and b"".join(own) == source:
            offsets = [(0, len(source))] * len(own)  # the bytes of the tokens divide the whole text
        tokens = tokens_from_offsets(source, body.ids, offsets, own, self.special_ids)
        spans = pre_tokens_from_tokens(tokens, body.word_ids) if self._pre_tokenizes else None
        if len(added) == len(tokens):
            return tokens, spans
        ends = [*(token.span[1] for token in tokens[:-1]), len(source)]
        rest, result, end = zip(tokens, ends, strict=False), list[Token](), 0
        for token_id, is_added in added:
            token, end = (Token(token_id, b"", (end, end), True), end) if is_added else next(rest)
            result.append(token)
        return result, spans

    @cached_property
    def _merge_table(self) -> MergeTable | None:
        """Read the merges from the file because `tokenizers` does not return them."""
        if type(self._exact.model).__name__ != "BPE" or not self._encodes_bytes:
            return None
        return merges_from_json(parse_json(self.data, self._source, TokenizerError)["model"])


def copy_without_post_processor(original: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Copy a tokenizer, so it has its own settings. The vocabulary is shared, which makes this cheap."""
    copy = type(original)(original.model)
    copy.normalizer, copy.pre_tokenizer = original.normalizer, original.pre_tokenizer
    added = original.get_added_tokens_decoder()
    for special, run in itertools.groupby(sorted(added.items()), key=lambda item: item[1].special):
        tokens = [token for _, token in run]
        copy.add_special_tokens(tokens) if special else copy.add_tokens(tokens)
    if copy.get_added_tokens_decoder() != added:  # ids with gaps: only parsing the file again gives the same ids
        copy = type(original).from_str(original.to_str())
        copy.post_processor = None
    return copy


def compressed_ids(tokenizer: Tokenizer | None) -> Ids:
    """Return the compressed id of every token, for hashing in DeepSeek's Engram, numbered by first appearance.

    " The", "the", and "THE" become one id, so their n-grams read the same rows. A token that is only part of a
    character has no text to normalize, so it gets its own id; only a tokenizer.json has a spelling for it.
    """
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        kind = "no tokenizer" if tokenizer is None else f"{type_name(tokenizer)}"
        raise TokenizerError(f"n-grams of compressed ids need a tokenizer.json, but the model has {kind}")
    from tokenizers import Regex, normalizers

    normalizer = normalizers.Sequence(
        [
            *(normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            *(normalizers.Replace(Regex("^ $"), ONE_SPACE), normalizers.Strip(), normalizers.Replace(ONE_SPACE, " ")),
        ]
    )
    exact, numbers, compressed = tokenizer._exact, dict[str, int](), []
    texts = exact.decode_batch([[token_id] for token_id in range(tokenizer.get_vocab_size())], False)
    for token_id, text in enumerate(texts):
        key = str(exact.id_to_token(token_id)) if REPLACEMENT in text else normalizer.normalize_str(text) or text
        compressed.append(numbers.setdefault(key, len(numbers)))
    return np.array(compressed, np.int64)

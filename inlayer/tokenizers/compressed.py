"""Compressed token ids: tokens with the same normalized text share an id, as DeepSeek's Engram hashes them.

[text] -> ids -> [compressed ids] -> rows of an n-gram memory
- " The", "the" and "THE" become one id, so that their n-grams read the same rows
- a token that is part of a character has no text to normalize: it keeps an id of its own
Tested against sglang on the tokenizer of DeepSeek-V4 in tests/tables/test_ngram.py.
"""

from __future__ import annotations

import numpy as np

from inlayer.errors import TokenizerError
from inlayer.ragged import IdArray
from inlayer.tokenizers.base import Tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer

ONE_SPACE = "\ue000"  # a private-use character stands for a text of one space, which stripping would remove
REPLACEMENT = "\ufffd"  # in the text of a token that is not valid UTF-8


def compressed_ids(tokenizer: Tokenizer | None) -> IdArray:
    """The compressed id of every token, numbered in the order of their first tokens.

    Args:
        tokenizer: That of the model; its tokenizer.json has the spelling that incomplete characters are told apart by.

    Raises:
        TokenizerError: If the model has no tokenizer.json.
    """
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        kind = "no tokenizer" if tokenizer is None else f"a {type(tokenizer).__name__}"
        raise TokenizerError(f"n-grams of compressed ids need the model's tokenizer.json; it has {kind}")
    from tokenizers import Regex, normalizers

    normalizer = normalizers.Sequence(
        [
            *(normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            *(normalizers.Replace(Regex("^ $"), ONE_SPACE), normalizers.Strip(), normalizers.Replace(ONE_SPACE, " ")),
        ]
    )
    numbers: dict[str, int] = {}
    compressed = []
    for token_id, text in enumerate(tokenizer.token_texts()):
        key = tokenizer.spelling(token_id) if REPLACEMENT in text else normalizer.normalize_str(text) or text
        compressed.append(numbers.setdefault(key, len(numbers)))
    return np.array(compressed, np.int64)

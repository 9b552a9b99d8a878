"""Tokenizer files to save with a model: copied from a tokenizer, or generated for bytes.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- bytes become a tokenizer.json without merges whose ids are the byte values, which every library can read
- a tokenizer.json without a tokenizer_config.json gets one: transformers would otherwise use the class of the model
  family, and GPT-2's adds `<|endoftext|>` with an id outside the table
Tested against transformers' AutoTokenizer in tests/training/test_tokenizer_files.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from inlayer.errors import InputError
from inlayer.files import check_path, path_kind, shown
from inlayer.tokenizers import ByteTokenizer, open_tokenizer
from inlayer.tokenizers.merges import byte_alphabet

__all__ = ["tokenizer_files"]

CONFIGS = ("tokenizer_config.json", "special_tokens_map.json", "pat_str.txt")
NAMES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json", "merges.txt", "vocab.txt", *CONFIGS)


def tokenizer_files(tokenizer: ByteTokenizer | str | os.PathLike[str]) -> dict[str, bytes]:
    """Name and contents of each file of a tokenizer, given as its file or folder."""
    if isinstance(tokenizer, ByteTokenizer):
        found = {"tokenizer.json": byte_tokenizer_json()}
    else:
        found = _copy(check_path(tokenizer, "tokenizer"))
    if "tokenizer.json" in found:
        found.setdefault("tokenizer_config.json", b'{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
    return found


def byte_tokenizer_json() -> bytes:
    """A byte-level BPE without merges: id 72 is the byte 72."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    parts: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": byte_alphabet(), "merges": []},
    }
    return json.dumps(parts, ensure_ascii=False).encode()


def _copy(path: Path) -> dict[str, bytes]:
    open_tokenizer(path)  # reports a damaged tokenizer now, not when the saved model is opened
    folder = path if path_kind(path) == "folder" else path.parent
    names = NAMES if folder == path else (path.name, *CONFIGS)
    try:
        found = {name: (folder / name).read_bytes() for name in names if path_kind(folder / name) == "file"}
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}") from error
    if path.suffix == ".json" and path.name in found:  # saved under another name
        found["tokenizer.json"] = found.pop(path.name)
    return found

"""The files of a tokenizer, to be saved with a model: copied from where it lies, or made for bytes.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- bytes become a tokenizer.json without merges, whose ids are the bytes' own values: every library can read it
- a tokenizer.json without a tokenizer_config.json gets one: transformers would take its family's own class instead, and
  GPT-2's adds `<|endoftext|>` with an id past the table
Checked against transformers' AutoTokenizer in tests/training/test_tokenizer_files.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from inlayer.errors import InputError
from inlayer.paths import check_path, shown, what_is_at
from inlayer.tokenizers import ByteTokenizer, open_tokenizer
from inlayer.tokenizers.merges import byte_alphabet

__all__ = ["tokenizer_files"]

BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "pat_str.txt")
NAMES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json", "merges.txt", "vocab.txt", *BESIDE)


def tokenizer_files(tokenizer: ByteTokenizer | str | os.PathLike[str]) -> dict[str, bytes]:
    """Name and content of each file; a path is a tokenizer's file, or the folder that holds it."""
    if isinstance(tokenizer, ByteTokenizer):
        found = {"tokenizer.json": byte_tokenizer_json()}
    else:
        found = _copy(check_path(tokenizer, "tokenizer"))
    if "tokenizer.json" in found:
        found.setdefault("tokenizer_config.json", b'{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
    return found


def byte_tokenizer_json() -> bytes:
    """A byte-level BPE that knows no merge: id 72 is the byte 72."""
    parts: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "vocab": byte_alphabet(), "merges": []},
    }
    return json.dumps(parts, ensure_ascii=False).encode()


def _copy(path: Path) -> dict[str, bytes]:
    open_tokenizer(path)  # a damaged one is an error now, not when the saved model is opened
    folder = path if what_is_at(path) == "folder" else path.parent
    names = NAMES if folder == path else (path.name, *BESIDE)
    try:
        found = {name: (folder / name).read_bytes() for name in names if what_is_at(folder / name) == "file"}
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}") from error
    if path.suffix == ".json" and path.name in found:  # it may have been saved under any name
        found["tokenizer.json"] = found.pop(path.name)
    return found

"""tokenizer.json: validation before `tokenizers` reads it, and a readable error if it cannot.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- rejected up front: a missing or empty vocabulary, and ids outside 0..MAX_ID
- `tokenizers` often reports only that "data did not match any variant of untagged enum". Here each part of the file is
  tried alone, and the error names the part that fails
- elsewhere: encoding (huggingface.py), features that gigatoken lacks (gigatoken.py), panics (untrusted_files.py)
Tested with modified files in tests/tokenizers/test_malformed_files.py.
"""

from __future__ import annotations

import json
import re
from typing import Any

from inlayer.errors import TokenizerError
from inlayer.paths import printable
from inlayer.tokenizers.untrusted_files import one_line, parse_json_object

__all__ = ["MAX_ID", "parse_tokenizer_json", "steps_of", "unreadable_part"]

MAX_ID = 2**31 - 1  # ids are passed to tables and other programs as signed 32-bit integers

# Each part with a type: its module in `tokenizers`, and the key under which a Sequence lists its steps.
PARTS = {
    "normalizer": ("normalizers", "normalizers"),
    "pre_tokenizer": ("pre_tokenizers", "pretokenizers"),
    "model": ("models", ""),
    "post_processor": ("processors", "processors"),
    "decoder": ("decoders", "decoders"),
}
EMPTY_FILE: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    **dict.fromkeys(PARTS),
    "model": {"type": "BPE", "vocab": {}, "merges": []},
}


def parse_tokenizer_json(data: bytes, where: str) -> dict[str, Any]:
    """Parse a tokenizer.json whose vocabulary is usable. Everything else is left to `tokenizers`."""
    config = parse_json_object(data, where)
    model = config.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if vocab is None:
        raise TokenizerError(f"{where} has no model with a vocab; is it a tokenizer.json?")
    if vocab in ({}, []):
        raise TokenizerError(f"{where} has an empty vocab in its model")
    for token, token_id in vocab.items() if isinstance(vocab, dict) else ():
        if type(token_id) is not int or not 0 <= token_id <= MAX_ID:
            raise TokenizerError(
                f"{where} gives {printable(token[:40])!r} the id {str(token_id)[:40]!r}; ids must be in 0..{MAX_ID}"
            )
    return config


def steps_of(config: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer, pre-tokenizer, post-processor or decoder, with Sequences flattened."""
    step = config.get(part)
    if not isinstance(step, dict):
        return []
    if step.get("type") != "Sequence":
        return [step]
    inner = step.get(PARTS[part][1])
    return [leaf for each in inner for leaf in steps_of({part: each}, part)] if isinstance(inner, list) else []


def unreadable_part(config: dict[str, Any], where: str, error: Exception) -> TokenizerError:
    """Find the part that `tokenizers` could not read, by trying each one in an otherwise empty file."""
    for part in (part for part in EMPTY_FILE if part in config and load_error(part, config[part]) is not None):
        steps = steps_of(config, part) if part in PARTS else []
        for step in [*steps, config[part]]:  # prefer the failing step of a Sequence
            found = load_error(part, step)
            if found is not None:
                return TokenizerError(f"{where}: {describe(part, step, found)}")
    unknown = next((key for key in config if key not in EMPTY_FILE), None)
    if unknown is not None:
        return TokenizerError(f"{where}: {printable(unknown[:40])!r} is not a field of a tokenizer.json")
    return TokenizerError(f"{where} cannot be read by tokenizers: {one_line(error)}")


def load_error(part: str, value: Any) -> Exception | None:
    import tokenizers

    try:
        tokenizers.Tokenizer.from_str(json.dumps(EMPTY_FILE | {part: value}))
    except Exception as error:  # the library raises nothing more specific
        return error
    return None


def describe(part: str, step: Any, error: Exception) -> str:
    import tokenizers

    detail = re.sub(r" at line \d+ column \d+$", "", one_line(error))  # a location in the file made for the trial
    if "MergeType" in detail:
        detail = "its merges are not pairs of tokens"
    detail = "" if "untagged enum" in detail else f": {detail}"
    kind = step.get("type") if isinstance(step, dict) else None
    if part not in PARTS or not isinstance(kind, str):
        return f"its {part} is malformed{detail}"
    if not hasattr(getattr(tokenizers, PARTS[part][0]), kind):
        return f"its {part} type {printable(kind[:40])!r} is not known to the tokenizers library"
    return f"its {part} of type {kind!r} is malformed{detail}"

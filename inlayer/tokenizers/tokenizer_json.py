"""tokenizer.json: validation before `tokenizers` reads it, and a readable error if it cannot.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- rejected up front: a missing or empty vocabulary, and ids outside 0..MAX_ID
- `tokenizers` often reports only that "data did not match any variant of untagged enum"; the error here names the part
- elsewhere: encoding (huggingface.py), features that gigatoken lacks (gigatoken.py), panics (untrusted_files.py)
Tested with modified files in tests/tokenizers/test_malformed_files.py.
"""

from __future__ import annotations

import re
from typing import Any

from inlayer.errors import TokenizerError
from inlayer.files import printable
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
FIELDS = {"version", "truncation", "padding", "added_tokens", *PARTS}


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
    """Explain why `tokenizers` could not read a file: an unknown type, a malformed part, or its own message."""
    import tokenizers

    for part, (module, _) in PARTS.items():
        for step in steps_of(config, part):
            kind = step.get("type")
            if isinstance(kind, str) and not hasattr(getattr(tokenizers, module), kind):
                name = printable(kind[:40])
                return TokenizerError(f"{where}: its {part} type {name!r} is not known to the tokenizers library")
    unknown = next((key for key in config if key not in FIELDS), None)
    if unknown is not None:
        return TokenizerError(f"{where}: {printable(unknown[:40])!r} is not a field of a tokenizer.json")
    message = one_line(error)
    enum = re.search(r"untagged enum (?:Py)?(Model|Merge|Normalizer|PreTokenizer|PostProcessor|Decoder)", message)
    if enum is not None:
        part = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum[1]).lower()
        return TokenizerError(
            f"{where}: its {part} is malformed" if part != "merge" else f"{where} has malformed merges"
        )
    return TokenizerError(f"{where} cannot be read by the tokenizers library: {message}")

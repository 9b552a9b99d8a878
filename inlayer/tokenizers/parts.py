"""A tokenizer.json, part by part: what is refused before `tokenizers` sees it, and which part it did not understand.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- refused beforehand: a vocabulary that is empty or has ids outside 0..MAX_ID, and what makes `tokenizers` panic,
  found by fuzzing (each check below names its case). A panic would print a report of its own to stderr
- `tokenizers` says of a part it cannot read that "data did not match any variant of untagged enum": here each part is
  tried alone, and the error names the one that fails and its type
- not here: features `tokenizers` reads and gigatoken does not (fast.py)
Checked by mutating files in tests/tokenizers/test_hostile.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from inlayer.errors import TokenizerError
from inlayer.paths import printable
from inlayer.tokenizers.charsmap import charsmap_fault
from inlayer.tokenizers.guard import one_line

if TYPE_CHECKING:
    import tokenizers

__all__ = ["MAX_ID", "check_opened", "check_parts", "flatten", "unread_part"]

MAX_ID = 2**31 - 1  # ids go to tables and other programs as 32-bit numbers with a sign

# each part that has a type: its module in `tokenizers`, and where a Sequence of it keeps its steps
PARTS = {
    "normalizer": ("normalizers", "normalizers"),
    "pre_tokenizer": ("pre_tokenizers", "pretokenizers"),
    "model": ("models", ""),
    "post_processor": ("processors", "processors"),
    "decoder": ("decoders", "decoders"),
}
EMPTY: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {"type": "BPE", "vocab": {}, "merges": []},
}
# these rewrite a text by the places its characters came from, which an insertion before the first one leaves wrong
REWRITERS = {
    "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel", "BertNormalizer", "Precompiled",
}  # fmt: skip


def flatten(step: Any, key: str) -> list[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer, post-processor or decoder, Sequences opened."""
    if not isinstance(step, dict):
        return []
    if step.get("type") != "Sequence":
        return [step]
    inner = step.get(key)
    return [leaf for part in inner for leaf in flatten(part, key)] if isinstance(inner, list) else []


def steps_of(config: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return flatten(config.get(part), PARTS[part][1])


def check_parts(config: dict[str, Any], where: str) -> dict[str, Any]:
    """The model of a tokenizer.json that may be given to `tokenizers`."""
    model = config.get("model")
    if not isinstance(model, dict) or "vocab" not in model:
        raise TokenizerError(f"{where} has no model with a vocab; is it a tokenizer.json?")
    try:
        fault = vocab_fault(model["vocab"]) or merges_fault(model) or next(step_faults(config), None)
    except RecursionError:
        raise TokenizerError(f"{where} is nested too deeply to be a tokenizer.json") from None
    if fault is not None:
        raise TokenizerError(f"{where}: {printable(fault)}")
    return model


def vocab_fault(vocab: Any) -> str | None:
    if vocab in ({}, []):
        return "the vocab of its model is empty; it could encode nothing"
    if isinstance(vocab, dict):
        for token, token_id in vocab.items():
            if type(token_id) is not int or not 0 <= token_id <= MAX_ID:
                return f"the vocab gives {token[:40]!r} the id {str(token_id)[:40]}; ids are 0..{MAX_ID}"
    return None


def merges_fault(model: dict[str, Any]) -> str | None:
    """Panics: the right side of a merge shorter than the prefix that is cut off it."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not isinstance(prefix, str) or not prefix or not isinstance(merges, list):
        return None
    size = len(prefix.encode(errors="replace"))
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[1], str):
            continue  # no merge: the library's own error says so
        right = pair[1].encode(errors="replace")
        if len(right) < size or (len(right) > size and right[size] & 0xC0 == 0x80):
            return f"the merge {pair!r:.80} is shorter than continuing_subword_prefix {prefix[:40]!r}"
    return None


def step_faults(config: dict[str, Any]) -> Iterator[str]:
    """Panics: a damaged character map, pieces of length 0, a template that names a token it does not list."""
    normalizer = steps_of(config, "normalizer")
    inserted = insertion_fault(normalizer)
    if inserted is not None:
        yield inserted
    for step in normalizer:
        if step.get("type") == "Precompiled" or "precompiled_charsmap" in step:
            fault = charsmap_fault(step.get("precompiled_charsmap"))
            if fault is not None:
                yield f"the precompiled_charsmap of its normalizer {fault}; is it damaged?"
    for step in steps_of(config, "pre_tokenizer"):
        if step.get("type") == "FixedLength" and step.get("length") == 0:
            yield "its pre_tokenizer FixedLength has length 0; a piece is at least 1 long"
    for step in steps_of(config, "post_processor"):
        listed = step.get("special_tokens")
        for name, sequences in (("single", "A"), ("pair", "AB")):
            pieces = step.get(name)
            for kind, content in named_pieces(pieces if isinstance(pieces, list) else []):
                if kind == "SpecialToken" and isinstance(listed, dict) and content not in listed:
                    yield f"its post_processor puts {content[:40]!r} into {name!r} but does not list its ids"
                if kind == "Sequence" and content not in sequences:
                    yield f"its post_processor puts a text {content[:40]!r} into {name!r}, which has {sequences}"


def named_pieces(pieces: list[Any]) -> Iterator[tuple[str, str]]:
    """(kind, id) of the pieces of a template."""
    for piece in pieces:
        for kind, body in piece.items() if isinstance(piece, dict) else ():
            if isinstance(body, dict) and isinstance(body.get("id"), str):
                yield kind, body["id"]


def insertion_fault(steps: list[dict[str, Any]]) -> str | None:
    """Panics: text put before the first character by a pattern that matches nothing, then rewritten."""
    for place, step in enumerate(steps):
        pattern = step.get("pattern")
        if (
            step.get("type") == "Replace"
            and step.get("content")
            and isinstance(pattern, dict)
            and isinstance(pattern.get("Regex"), str)
            and any(later.get("type") in REWRITERS for later in steps[place + 1 :])
            and inserts_at_the_start(pattern["Regex"])
        ):
            return (
                f"its normalizer replaces {pattern['Regex'][:60]!r}, which matches before the first character, and "
                "then rewrites the text: tokenizers cannot do both"
            )
    return None


def inserts_at_the_start(pattern: str) -> bool:
    """Does the pattern match the empty text before some character? The decoder of that name is the way to ask."""
    from tokenizers import Regex, decoders  # when a file is opened, not before

    try:
        replace = decoders.Replace(Regex(pattern), "\0")
    except Exception:  # no pattern: the library says so when it opens the file
        return False
    return any(
        replace.decode([character]).startswith("\0" + character)
        for character in (*map(chr, range(0x20, 0x7F)), "\n", "\t", "é", "中", "▁", "🙂")
    )


def check_opened(engine: tokenizers.Tokenizer, where: str) -> None:
    """Panics when a text is encoded: an added token of which the normalizer leaves nothing."""
    if engine.normalizer is None:
        return
    for token in engine.get_added_tokens_decoder().values():
        if token.normalized and not engine.normalizer.normalize_str(token.content):
            raise TokenizerError(
                f"{where}: its normalizer leaves nothing of the added token {printable(token.content[:40])!r}; it "
                "would be found everywhere"
            )


def unread_part(config: dict[str, Any], where: str, error: Exception) -> TokenizerError:
    """The error for a file `tokenizers` did not open: the part it stops at, tried alone."""
    for part in EMPTY:
        if part not in config or library_error(part, config[part]) is None:
            continue
        steps = steps_of(config, part) if part in PARTS else []
        for step in [*steps, config[part]]:  # in a Sequence the step, where one alone fails
            found = library_error(part, step)
            if found is not None:
                return TokenizerError(f"{where}: {describe(part, step, found)}")
    unknown = [key for key in config if key not in EMPTY]
    if unknown:
        return TokenizerError(f"{where} has {printable(unknown[0][:40])!r}, which is no part of a tokenizer.json")
    return TokenizerError(f"{where} is not understood by tokenizers: {one_line(error)}")


def library_error(part: str, value: Any) -> Exception | None:
    import tokenizers

    try:
        tokenizers.Tokenizer.from_str(json.dumps(EMPTY | {part: value}))
    except Exception as error:  # the library promises no narrower class
        return error
    return None


def describe(part: str, step: Any, error: Exception) -> str:
    import tokenizers

    detail = re.sub(r" at line \d+ column \d+$", "", one_line(error))  # of the file made to try the part
    if "MergeType" in detail:
        detail = "its merges are no pairs of tokens"
    detail = "" if "untagged enum" in detail else f": {detail}"
    if part not in PARTS:
        return f"its {part} is malformed{detail}"
    kind = step.get("type") if isinstance(step, dict) else None
    if not isinstance(kind, str):
        return f"its {part} has no type and is not understood{detail}"
    if not hasattr(getattr(tokenizers, PARTS[part][0]), kind):
        return f"the {part} of type {printable(kind[:40])!r} is not one that tokenizers knows"
    return f"the {part} of type {kind!r} is malformed{detail}"

"""Untrusted tokenizer files: size limits, the validation of tokenizer.json, and one-line errors.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- libraries raise a plain Exception, and Rust libraries panic on some files; both become a one-line TokenizerError
- a file of a few kilobytes can require terabytes: 28 Replace steps that double a letter, or a template that repeats
  1,000 ids. The factor by which all parts together can lengthen a text is computed when the file is opened, and
  is limited. So are the quantities that depend on it: the model's run time and the total length of all tokens
- too many steps are also an error: they take time even if none of them lengthens a text
- regular expressions that can take exponential time are rejected (backtracking.py)
Tested in test_malformed_files.py, test_growth.py, test_patterns.py, and test_open.py of tests/tokenizers/.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from inlayer.errors import InlayerError, TokenizerError
from inlayer.files import parse_json, printable, read_limited
from inlayer.tokenizers.backtracking import MAX_VARIABLE_PARTS, backtracking_risk

if TYPE_CHECKING:
    import tokenizers

MAX_FILE_BYTES = 512 << 20  # the largest real tokenizer files are about 35 MB
SOURCE_LOCATIONS = re.compile(r"^[A-Z_]+: |\S+\.(?:cc|cpp|h|rs)[(:]\d+[):\d]*\s*(?:\[[^\]]*\])?")
MAX_ID = 2**31 - 1  # ids are passed to tables and other programs as signed 32-bit integers

# Each part with a type, and its module in `tokenizers`.
PARTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pre_tokenizers",
    "model": "models",
    "post_processor": "processors",
    "decoder": "decoders",
}
JSON_FIELDS = {"version", "truncation", "padding", "added_tokens", *PARTS}

# Limits on how much all parts together lengthen a text. Of all published files, ALBERT's has the largest factor, 648:
# NFKD and sentencepiece's rules each turn one character into up to 18, and Metaspace doubles. Others have at most 72,
# tokens of up to 512 characters (GLM), words of 100 to 200, and 31,217 characters of added tokens (DeepSeek-V4).
MAX_GROWTH, MAX_ADDED = 2048, 4096  # a text of n characters becomes at most MAX_GROWTH * n + MAX_ADDED
ORDINARY_GROWTH = 72  # NFKC (18) and ByteLevel (4): the pieces of a Unigram model may have any length
MAX_TOKEN_CHARACTERS = 1 << 20  # per character of a text: MAX_GROWTH tokens of 512 characters
MAX_SEARCH = 1 << 26  # growth x length^2: WordPiece and Unigram copy all parts of a word at each of its positions
MAX_ADDED_CHARACTERS = 1 << 23  # normalized contents of all added tokens
MAX_SCAN = 1 << 20  # growth^2 x patterns, about 2 s for a short text because a pattern is tried at each position
SMALL_GROWTH = 4  # above this, a pattern may have only one repeated part; several would take growth^3 or more
MAX_STEPS = 100  # total for all parts except the model; published files have at most 11
MAX_PATTERNS = 4096  # characters of all regular expressions; published files have about 300
EXPANSION_FACTOR = {"NFC": 4, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "BertNormalizer": 4, "ByteLevel": 4,
             "Metaspace": 2, "WordPiece": 2, "BPEDecoder": 2, "CTC": 2}  # fmt: skip
NORMAL_FORMS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}  # only the largest in a sequence matters
TINY_MODEL = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
STEPS = [part for part in PARTS if part != "model"]


class Growth(NamedTuple):
    """Upper bound on how much the steps lengthen a text: n characters become up to `factor` * n + `added`."""

    factor: float = 1.0
    added: float = 0.0

    def then(self, later: Growth) -> Growth:
        """Return the growth of these steps and later ones."""
        return Growth(self.factor * later.factor, self.added * later.factor + later.added)

    def length(self, characters: int) -> float:
        """Return the largest length of a text that had so many characters."""
        return self.factor * characters + self.added


def first_line(error: BaseException, limit: int = 200) -> str:
    """Return the first line of a library's message, without locations in its source code."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(SOURCE_LOCATIONS.sub("", lines[0]).strip()[:limit])


@contextmanager
def library_errors(problem: str) -> Iterator[None]:
    """Convert any exception or panic of a tokenizer library to a TokenizerError that starts with `problem`."""
    try:
        yield
    except InlayerError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # Ctrl-C, SystemExit
        detail = first_line(error)
        raise TokenizerError(f"{problem}: {detail}" if detail else problem) from error


def read_file(path: Path) -> bytes:
    """Read a regular file of reasonable size."""
    return read_limited(path, MAX_FILE_BYTES, TokenizerError, "a tokenizer file")


def parse_tokenizer_json(data: bytes, source: str) -> dict[str, Any]:
    """Parse a tokenizer.json and check its vocabulary. Everything else is left to `tokenizers`."""
    config = parse_json(data, source, TokenizerError)
    model = config.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if vocab is None:
        raise TokenizerError(f"{source} has no model with a vocab; is it a tokenizer.json?")
    if vocab in ({}, []):
        raise TokenizerError(f"{source} has an empty vocab in its model")
    for token, token_id in vocab.items() if isinstance(vocab, dict) else ():
        if type(token_id) is not int or not 0 <= token_id <= MAX_ID:
            raise TokenizerError(
                f"{source} assigns id {str(token_id)[:40]!r} to {printable(token[:40])!r}; ids must be in 0..{MAX_ID}"
            )
    return config


def nodes_of(step: object, part: str) -> Iterator[Any]:
    """Yield a step of a part and, if it is a Sequence, the steps in it. Lazy because a file can have any number."""
    yield step
    inner = step.get(PARTS[part].replace("_", "")) if isinstance(step, dict) else None  # Sequences may lack a type
    for child in inner if isinstance(inner, list) else ():
        yield from nodes_of(child, part)


def count_steps(config: dict[str, Any]) -> int:
    """Count the steps of all parts, nested ones and Sequences included; stops after MAX_STEPS."""
    nodes = (node for part in STEPS if config.get(part) for node in nodes_of(config[part], part))
    return sum(1 for _ in itertools.islice(nodes, MAX_STEPS + 1))


def get_steps(config: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer, pre-tokenizer, post-processor, or decoder, with Sequences flattened."""
    return [
        step for step in nodes_of(config.get(part), part) if isinstance(step, dict) and step.get("type") != "Sequence"
    ]


def open_checked(config: dict[str, Any], text: str, source: str) -> tokenizers.Tokenizer:
    """Open the text of a tokenizer.json with `tokenizers`, if it passes all checks."""
    from tokenizers import Tokenizer

    with library_errors(f"{source} cannot be opened"):
        try:
            check_parts(config, source)
            return Tokenizer.from_str(text)
        except InlayerError:
            raise
        except Exception as error:  # the library raises nothing more specific
            raise unreadable_part_error(config, source, error) from error


def unreadable_part_error(config: dict[str, Any], source: str, error: Exception) -> TokenizerError:
    """Explain why `tokenizers` could not read a file: an unknown type, a malformed part, or its own message."""
    import tokenizers

    for part, module in PARTS.items():
        for step in get_steps(config, part):
            kind = step.get("type")
            if isinstance(kind, str) and not hasattr(getattr(tokenizers, module), kind):
                name = printable(kind[:40])
                return TokenizerError(f"{source}: its {part} type {name!r} is not known to the tokenizers library")
    unknown = next((key for key in config if key not in JSON_FIELDS), None)
    if unknown is not None:
        return TokenizerError(f"{source}: {printable(unknown[:40])!r} is not a field of a tokenizer.json")
    message = first_line(error)
    enum = re.search(r"untagged enum (?:Py)?(Model|Merge|Normalizer|PreTokenizer|PostProcessor|Decoder)", message)
    if enum is not None:
        return TokenizerError(f"{source}: its {enum[1].lower()} is malformed")
    return TokenizerError(f"{source} cannot be read by the tokenizers library: {message}")


def check_parts(config: dict[str, Any], source: str) -> None:
    """Raise TokenizerError if a part of a tokenizer.json can make text far longer, or has a pattern that can hang.

    The parts are read without the vocabulary, which `tokenizers` would already normalize.
    """
    from tokenizers import Tokenizer

    if count_steps(config) > MAX_STEPS:
        raise TokenizerError(f"{source}: its {', '.join(STEPS[:-1])} and {STEPS[-1]} have more than {MAX_STEPS} steps")
    for template in get_steps(config, "post_processor"):  # thousands of pieces take the library seconds to read
        if any(isinstance(pieces, list) and len(pieces) > MAX_ADDED for pieces in template.values()):
            raise TokenizerError(f"{source}: its post_processor can add more than {MAX_ADDED:,} ids to a text")
    for step in get_steps(config, "normalizer"):
        if step.get("type") == "Precompiled" and not _has_whole_map(step.get("precompiled_charsmap")):
            raise TokenizerError(f"{source}: its normalizer's character map is malformed")
    parts = {part: config.get(part) for part in STEPS}
    skeleton = Tokenizer.from_str(json.dumps(parts | {"version": "1.0", "added_tokens": [], "model": TINY_MODEL}))
    parsed = json.loads(skeleton.to_str())  # includes the defaults of fields that the file omits
    check_growth(config, parsed, source)
    check_patterns(parsed, source)


def check_growth(config: dict[str, Any], parsed: dict[str, Any], source: str) -> None:
    """Raise TokenizerError if texts or tokens can grow past the limits; `parsed` has all parts but the model."""
    growth = Growth()
    after: dict[str, Growth] = {}  # of each part and those before it
    for part in STEPS:
        steps = get_steps(parsed, part)
        if part in ("post_processor", "decoder"):  # these run after the model, and only trim and restore
            steps = [step for step in steps if step["type"] not in ("ByteLevel", "Metaspace")]
        growth = after[part] = growth.then(growth_of(steps))
        if growth.factor > MAX_GROWTH or growth.added > MAX_ADDED:
            parts = "normalizer" if part == "normalizer" else f"parts up to the {part}"
            raise TokenizerError(
                f"{source}: its {parts} can make a text {growth.factor:,.0f} times as long, plus {growth.added:,.0f} "
                f"characters; the limit is {MAX_GROWTH:,} times plus {MAX_ADDED:,}"
            )
    check_model(config, source, after["pre_tokenizer"].length(1))
    tokens = config.get("added_tokens") or []
    contents = [token["content"] for token in tokens if "content" in token]  # the library reports one without
    size = sum(after["normalizer"].length(len(content)) for content in contents)
    if size > MAX_ADDED_CHARACTERS:
        raise TokenizerError(
            f"{source}: its added tokens can have {size:,.0f} characters in all; the limit is {MAX_ADDED_CHARACTERS:,}"
        )
    templates = [step for step in get_steps(parsed, "post_processor") if step["type"] == "TemplateProcessing"]
    names = [name for step in templates for token in step["special_tokens"].values() for name in token["tokens"]]
    longest = max(longest_piece(config), *map(len, [*contents, *names, ""]))
    size = growth.length(1) * longest
    if size > MAX_TOKEN_CHARACTERS:
        raise TokenizerError(
            f"{source}: its tokens of up to {longest:,} characters can make a text {size:,.0f} times as long; the "
            f"limit is {MAX_TOKEN_CHARACTERS:,}"
        )


def check_model(config: dict[str, Any], source: str, growth: float) -> None:
    """Raise TokenizerError if the model can take too long for a text that grew by the factor `growth`."""
    model = config["model"]
    reach = len(model.get("continuing_subword_prefix") or "") + len(model.get("end_of_word_suffix") or "")
    if "max_input_chars_per_word" in model:
        reach += model["max_input_chars_per_word"]
    elif not isinstance(model["vocab"], dict) and growth > ORDINARY_GROWTH:
        reach += longest_piece(config)
    if growth * reach**2 > MAX_SEARCH:
        raise TokenizerError(
            f"{source}: its model can take too long: it searches {reach:,} characters at each position of a text that "
            f"can become {growth:,.0f} times as long"
        )


def longest_piece(config: dict[str, Any]) -> int:
    """Return the length of the model's longest token. A vocabulary with scores is a list of pairs."""
    vocab = config["model"]["vocab"]
    return max(map(len, vocab if isinstance(vocab, dict) else (piece for piece, _ in vocab)))


def growth_of(steps: Iterable[dict[str, Any]]) -> Growth:
    """Return the growth of all steps of a part. For consecutive normalization steps, only the largest factor counts."""
    growth = Growth()
    for is_form, run in itertools.groupby(steps, lambda step: step["type"] in NORMAL_FORMS):
        growths = [step_growth(step) for step in run]
        for step in [max(growths)] if is_form else growths:
            growth = growth.then(step)
    return growth


def _has_whole_map(charsmap: object) -> bool:
    """Return whether the length at the start of a character map fits its data. The library allocates any length."""
    if not isinstance(charsmap, str):
        return charsmap is None  # the library reports other types
    try:
        data = base64.b64decode(charsmap)
    except ValueError:
        return False
    return not data or (len(data) >= 4 and int.from_bytes(data[:4], "little") <= len(data) - 4)


def check_patterns(config: dict[str, Any], source: str) -> None:
    """Raise TokenizerError if a regular expression can take exponential time, or if they are too long in total."""
    steps = [(part, step["pattern"]) for part in STEPS for step in get_steps(config, part) if "pattern" in step]
    patterns = [(part, pattern["Regex"]) for part, pattern in steps if "Regex" in pattern]
    is_long = sum(len(pattern) for _, pattern in patterns) > MAX_PATTERNS
    # normal forms do not lengthen ordinary text, unless an earlier step inserts characters that grow
    steps_after = itertools.dropwhile(lambda step: step["type"] in NORMAL_FORMS, get_steps(config, "normalizer"))
    growth = growth_of(steps_after).length(1)
    if growth**2 * len(patterns) > MAX_SCAN:
        raise TokenizerError(
            f"{source}: its regular expressions can take too long: its normalizer can make a text {growth:,.0f} times "
            "as long"
        )
    max_parts = MAX_VARIABLE_PARTS if growth <= SMALL_GROWTH else 1
    for part, pattern in patterns:
        reason = f"more than {MAX_PATTERNS:,} characters in all" if is_long else backtracking_risk(pattern, max_parts)
        if reason is not None:
            name = printable(pattern[:40])
            raise TokenizerError(f"{source}: its {part} has a regular expression that can hang: {reason} in {name!r}")


def step_growth(step: dict[str, Any]) -> Growth:
    """Return the growth of a single step."""
    kind = step["type"]
    if kind == "Replace":
        replaced, content = step["pattern"].get("String"), len(step["content"])
        if not replaced:  # a regular expression can match one character, or nothing between two of them
            return Growth(1.0 + content, content)
        return Growth(max(1.0, content / len(replaced)))
    if kind == "Precompiled":
        data = base64.b64decode(step["precompiled_charsmap"] or "")
        strings = data[4 + int.from_bytes(data[:4], "little") :].decode(errors="replace").split("\0")
        return Growth(max(1, *map(len, strings)))
    if kind in ("BertProcessing", "RobertaProcessing"):
        return Growth(added=4)
    if kind == "TemplateProcessing":
        pieces, lengths = step["single"], {name: len(token["ids"]) for name, token in step["special_tokens"].items()}
        added = sum(lengths[piece["SpecialToken"]["id"]] for piece in pieces if "SpecialToken" in piece)
        return Growth(max(1, sum("Sequence" in piece for piece in pieces)), added)
    return Growth(EXPANSION_FACTOR.get(kind, 1), len(step.get("prepend") or ""))

"""open_tokenizer: open a tokenizer in any supported format, from a folder or file.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- in a folder: tokenizer.json, else tiktoken.model, tokenizer.model, or a single *.tiktoken or *.model file
- the content decides the format: `tokenizer.model` is a tiktoken file for Llama-3 and a sentencepiece model for
  Llama-2. The name is used only if the content is damaged, so that the error can name the damaged line
- files next to the tokenizer are read as data: tokenizer_config.json, special_tokens_map.json (pad_token), config.json
  (model_type), and pat_str.txt. Code in the folder is never run
Tested in tests/tokenizers/test_open.py, and with malformed files in tests/tokenizers/test_malformed_files.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from inlayer.errors import DtypeError, InputError, MissingFileError, TokenizerError, type_name
from inlayer.files import check_is_file, check_kind, check_path, file_errors, format_path, parse_json, path_kind, quote
from inlayer.tokenizers.base import Tokenizer, check_text
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from inlayer.tokenizers.tiktoken import TiktokenTokenizer, find_encoding, looks_like_tiktoken, parse_ranks
from inlayer.tokenizers.untrusted_files import MAX_ID, read_file

FILE_NAMES = ("tokenizer.json", "tiktoken.model", "tokenizer.model")
FILE_PATTERNS = ("*.tiktoken", "*.model")
SIBLINGS = ("tokenizer_config.json", "special_tokens_map.json", "pat_str.txt")  # read next to the tokenizer


def open_tokenizer(
    path: str | os.PathLike[str], *, pat_str: str | None = None, special_tokens: Mapping[str, int] | None = None
) -> Tokenizer:
    """Open the tokenizer of a model folder, or a single tokenizer file.

    Args:
        path: A folder, or a tokenizer.json, tiktoken, or sentencepiece file.
        pat_str: The split pattern of a tiktoken file from an unknown model.
        special_tokens: The special tokens of a tiktoken file, text -> id.

    Returns:
        The tokenizer. Its ids match those of the library that defines the format.

    Raises:
        MissingFileError: If there is no such file, or no tokenizer in the folder.
        TokenizerError: If the file is malformed or its split pattern is not known.
        InputError: If `pat_str` or `special_tokens` is given for a format that already includes them.

    Example:
        >>> open_tokenizer("model").encode("I love dogs")
        [40, 812, 2228, 82]
    """
    if pat_str is not None:
        check_text(pat_str, "pat_str")
    if special_tokens is not None and not isinstance(special_tokens, Mapping):
        raise DtypeError(f'special_tokens is {type_name(special_tokens)}; it must be a dict such as {{"<s>": 50256}}')
    file = find_file(check_path(path))
    data, source = read_file(file), format_path(file)
    file_format = detect_format(file, data, source)
    config = read_sibling(file, "tokenizer_config.json")
    others = read_sibling(file, "special_tokens_map.json")
    pad_token = token_text(config.get("pad_token")) or token_text(others.get("pad_token"))
    if file_format == "tiktoken":
        return open_tiktoken(file, data, config, pat_str, special_tokens, pad_token)
    if pat_str is not None or special_tokens is not None:
        raise InputError(f"{source} is not a tiktoken file; omit pat_str and special_tokens, which it contains")
    if file_format == "json":
        return HuggingFaceTokenizer(data, source=source, pad_token=pad_token)
    add_bos_eos = (config.get("add_bos_token") is True, config.get("add_eos_token") is True)
    return SentencePieceTokenizer(data, source=source, add_bos_eos=add_bos_eos, pad_token=pad_token)


def find_file(path: Path) -> Path:
    if path_kind(path) != "folder":
        return check_is_file(path, "pass a model folder or a tokenizer file")
    if (file := find_in_folder(path)) is None:
        raise MissingFileError(
            f"{format_path(path)} is a folder without a tokenizer; expected {', '.join((*FILE_NAMES, *FILE_PATTERNS))}"
        )
    return file


def find_in_folder(folder: Path) -> Path | None:
    """Return the tokenizer file in a folder, or None. A folder or pipe with that name is an error."""
    with file_errors(folder, kind=MissingFileError):
        names = [path.name for path in folder.iterdir()]
    name = choose_file(names, lambda name: path_kind(folder / name) == "file", format_path(folder))
    for other in FILE_NAMES if name is None else ():
        check_kind(folder / other, "missing")
    return None if name is None else folder / name


def choose_file(names: Iterable[str], exists: Callable[[str], bool], source: str) -> str | None:
    """Return the name of the tokenizer file in a folder: a usual name, or the only file that could be one."""
    if usual := next(filter(exists, FILE_NAMES), None):
        return usual
    for pattern in FILE_PATTERNS:
        files = sorted(name for name in names if fnmatchcase(name, pattern) and exists(name))
        if len(files) > 1:
            first = f"{format_path(files[0])}, {format_path(files[1])}"
            raise TokenizerError(f"{source} has several {pattern} files; pass the path of one of them: {first}")
        if files:
            return files[0]
    return None


def detect_format(file: Path, data: bytes, source: str) -> str:
    """Return "json", "tiktoken", or "sentencepiece"."""
    start = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        raise TokenizerError(f"{source} is empty, or starts with 4 KB of whitespace")
    if start[:1] in {b"{", b"["}:
        return "json"
    if looks_like_tiktoken(data) or file.suffix == ".tiktoken" or file.name == "tiktoken.model":
        return "tiktoken"
    if file.suffix == ".json":
        return "json"
    if data[:1] == b"\x0a":  # the key of the first piece in a serialized ModelProto
        return "sentencepiece"
    raise TokenizerError(
        f"{source} is not a tokenizer.json, a tiktoken file (lines of `base64 rank`), or a sentencepiece model; is it "
        "damaged?"
    )


def read_sibling(file: Path, name: str) -> dict[str, Any]:
    """Read a JSON file next to this one; empty if there is none. Tokens in it must be valid Unicode."""
    path = file.parent / name
    if path_kind(path) != "file":
        return {}
    content = parse_json(read_file(path), format_path(path), TokenizerError)
    try:
        for field, value in content.items():
            if "token" in field:
                json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise TokenizerError(
            f"{quote(field)} in {format_path(path)} contains a lone surrogate or is nested too deeply"
        ) from None
    return content


def token_text(value: object) -> str | None:
    """Return the text of a token in tokenizer_config.json, where it is a string or an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def open_tiktoken(
    file: Path, data: bytes, config: dict[str, Any], pat_str: str | None,
    special_tokens: Mapping[str, int] | None, pad_token: str | None,
) -> TiktokenTokenizer:  # fmt: skip
    """Open a tiktoken file with the pattern and special tokens of its encoding, unless others are given."""
    source = format_path(file)
    ranks = parse_ranks(data, source)
    encoding = find_encoding(ranks, config, read_sibling(file, "config.json"))
    pattern_file = file.parent / "pat_str.txt"
    if pat_str is None and encoding is not None:
        pat_str = encoding.pat_str
    elif pat_str is None and path_kind(pattern_file) == "file":
        try:
            pat_str = read_file(pattern_file).decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise TokenizerError(f"{format_path(pattern_file)} is not valid UTF-8") from None
    if pat_str is None:
        raise TokenizerError(
            f"{source} is a tiktoken file of an unknown model ({len(ranks)} ranks), and such files do not contain the "
            "split pattern; pass pat_str= (and special_tokens=), or put a pat_str.txt next to it"
        )
    if special_tokens is None:
        known = {} if encoding is None else encoding.special_tokens(max(ranks.values()) + 1)
        special_tokens = rename_special_tokens(known, config, source)
    # gigatoken accepts patterns only by name
    scheme = encoding.scheme if encoding is not None and encoding.pat_str == pat_str else None
    bos, eos = (added_id(config, name, special_tokens, source) for name in ("bos_token", "eos_token"))
    return TiktokenTokenizer(
        ranks, pat_str, special_tokens, source=source, fast_source=(file, scheme) if scheme is not None else None,
        around=(bos, eos), pad_id=special_tokens.get(pad_token or ""),
    )  # fmt: skip


def rename_special_tokens(known: dict[str, int], config: dict[str, Any], source: str) -> dict[str, int]:
    """Apply the names in the added_tokens_decoder of tokenizer_config.json to the known special tokens."""
    by_id = {token_id: token for token, token_id in known.items()}
    label = f"added_tokens_decoder next to {source}"
    entries = config.get("added_tokens_decoder") or {}
    if not isinstance(entries, dict):
        raise TokenizerError(f"{label} is {type_name(entries)}, not an object")
    for token_id, token in entries.items():
        text = token_text(token)
        if text is None or not token_id.isdecimal() or len(token_id) > len(str(MAX_ID)):
            raise TokenizerError(f"{label} has {quote(token_id)}: {quote(token)}; expected an id and a token")
        by_id[int(token_id)] = text
    special_tokens = {token: token_id for token_id, token in by_id.items()}
    if len(special_tokens) != len(by_id):
        raise TokenizerError(f"{label} assigns two ids to one token")
    return special_tokens


def added_id(config: dict[str, Any], name: str, special_tokens: Mapping[str, int], source: str) -> Sequence[int]:
    """Return the id that add_bos_token or add_eos_token adds to every text, if any."""
    if config.get(f"add_{name}") is not True:
        return ()
    token = token_text(config.get(name))
    if token is None or token not in special_tokens:
        raise TokenizerError(
            f"tokenizer_config.json next to {source} sets add_{name}, but {token!r} is not a special token"
        )
    return (special_tokens[token],)

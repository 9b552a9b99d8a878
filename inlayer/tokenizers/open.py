"""open_tokenizer: the tokenizer of a folder or file, decided by what the file holds.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- in a folder: tokenizer.json first, then tiktoken.model, tokenizer.model, other *.tiktoken and *.model files; the
  first that is there counts, and its content says what it is (`tokenizer.model` is ranks for LLaMA-3, a sentencepiece
  protobuf for LLaMA-2). A file named tiktoken.model or *.tiktoken that holds no JSON is read as ranks, so that the
  error about a damaged one names its line
- the files beside it are read as data: tokenizer_config.json (special tokens, add_bos_token, pad_token),
  special_tokens_map.json (pad_token), config.json (model_type), pat_str.txt. Code in the folder is never run
- paths in messages are the ones that were given
- not here: the tokenizers themselves
Checked in tests/tokenizers/test_open.py, with hostile files in tests/tokenizers/test_hostile.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inlayer.errors import DtypeError, InputError, MissingFileError, TokenizerError
from inlayer.paths import check_path, shown, what_is_at, wrong_kind
from inlayer.tokenizers.base import Tokenizer, check_text
from inlayer.tokenizers.guard import load_json_object, read_limited
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.parts import MAX_ID
from inlayer.tokenizers.patterns import KINDS, KNOWN_RANKS, MODEL_TYPES, TOKENIZER_MODULES, RankKind
from inlayer.tokenizers.ranks import RankTokenizer, looks_like_ranks, parse_ranks, ranks_fingerprint
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer, looks_like_sentencepiece

__all__ = ["open_tokenizer"]

NAMES = ("tokenizer.json", "tiktoken.model", "tokenizer.model")
OTHERS = ("*.tiktoken", "*.model")


def open_tokenizer(
    path: str | os.PathLike[str], *, pat_str: str | None = None, special_tokens: Mapping[str, int] | None = None
) -> Tokenizer:
    """The tokenizer of a model folder, or of one tokenizer file.

    `pat_str` and `special_tokens` (text -> id) are for rank files that do not say how they are split; elsewhere they
    are an error.
    """
    if pat_str is not None:
        check_text(pat_str, "pat_str")
    if special_tokens is not None and not isinstance(special_tokens, Mapping):
        raise DtypeError(
            f"special_tokens is a {type(special_tokens).__name__}; it maps the text of each token to its id, as in "
            '{"<s>": 50256}'
        )
    file = find_file(check_path(path))
    data, where = read_limited(file), shown(file)
    kind = kind_of(file, data, where)
    config = sibling(file, "tokenizer_config.json")
    if kind == "ranks":
        return open_ranks_file(file, data, where=where, config=config, pat_str=pat_str, special_tokens=special_tokens)
    if pat_str is not None or special_tokens is not None:
        raise InputError(f"{where} is no rank file: it carries its own split pattern and special tokens")
    pad_token = find_pad_token(file, config)
    if kind == "json":
        return HuggingFaceTokenizer(data, where=where, pad_token=pad_token)
    around = (config.get("add_bos_token") is True, config.get("add_eos_token") is True)
    return SentencePieceTokenizer(data, where=where, around=around, pad_token=pad_token)


def find_file(path: Path) -> Path:
    kind = what_is_at(path)
    if kind == "file":
        return path
    if kind == "nothing":
        raise MissingFileError(f"{shown(path)} is not there; give a model's folder or its tokenizer file")
    if kind != "folder":
        raise wrong_kind(path, kind)
    kinds = {name: what_is_at(path / name) for name in NAMES}
    for name in NAMES:
        if kinds[name] == "file":
            return path / name
    for pattern in OTHERS:
        found = sorted(file for file in path.glob(pattern) if file.name not in kinds and what_is_at(file) == "file")
        if len(found) > 1:
            raise TokenizerError(
                f"{shown(path)} holds several {pattern} files; name the one to open: {shown(found[0].name)}, "
                f"{shown(found[1].name)}"
            )
        if found:
            return found[0]
    for name in NAMES:
        if kinds[name] != "nothing":
            raise wrong_kind(path / name, kinds[name])
    raise MissingFileError(
        f"{shown(path)} is a folder that holds no tokenizer; looked for {', '.join((*NAMES, *OTHERS))}"
    )


def kind_of(file: Path, data: bytes, where: str) -> str:
    """One of "json", "ranks", "sentencepiece": by content; where that is damaged, by name."""
    start = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        raise TokenizerError(f"{where} is empty" if len(data) <= 4096 else f"{where} begins with white space only")
    if start[:1] in {b"{", b"["}:
        return "json"
    if looks_like_ranks(data) or file.suffix == ".tiktoken" or file.name == "tiktoken.model":
        return "ranks"
    if file.suffix == ".json":
        return "json"
    if looks_like_sentencepiece(data):
        return "sentencepiece"
    raise TokenizerError(
        f"{where} is neither a tokenizer.json, nor ranks (lines of `base64 number`), nor a sentencepiece model; is it "
        "damaged?"
    )


def sibling(file: Path, name: str) -> dict[str, Any]:
    """A JSON file beside this one; empty where there is none."""
    beside = file.parent / name
    return load_json_object(read_limited(beside), shown(beside)) if what_is_at(beside) == "file" else {}


def find_pad_token(file: Path, config: dict[str, Any]) -> str | None:
    return token_text(config.get("pad_token")) or token_text(sibling(file, "special_tokens_map.json").get("pad_token"))


def token_text(value: object) -> str | None:
    """A token in tokenizer_config.json is its text, or an object that holds it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def open_ranks_file(
    file: Path,
    data: bytes,
    *,
    where: str,
    config: dict[str, Any],
    pat_str: str | None,
    special_tokens: Mapping[str, int] | None,
) -> RankTokenizer:
    ranks = parse_ranks(data, where)
    kind = find_kind(file, ranks, config)
    scheme = kind.scheme if kind is not None else None
    written = file.parent / "pat_str.txt"
    if pat_str is None and kind is not None:
        pat_str = kind.pat_str
    elif pat_str is None and what_is_at(written) == "file":
        try:
            pat_str = read_limited(written).decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise TokenizerError(f"{shown(written)} is not UTF-8 text") from None
    if pat_str is None:
        raise TokenizerError(
            f"{where} is a rank file of {len(ranks)} tokens from no known model, and ranks do not say how text is "
            "split; pass pat_str= with the model's split pattern (and special_tokens=), or put a pat_str.txt beside "
            "it"
        )
    if kind is None or pat_str != kind.pat_str:
        scheme = None  # gigatoken knows patterns by name only
    if special_tokens is None:
        special_tokens = find_specials(kind, max(ranks.values()) + 1, config, where)
    return RankTokenizer(
        ranks,
        pat_str,
        special_tokens,
        where=where,
        fast_source=(file, scheme) if scheme is not None else None,
        around=(
            added_id(config, "bos_token", special_tokens, where),
            added_id(config, "eos_token", special_tokens, where),
        ),
        pad_id=special_tokens.get(find_pad_token(file, config) or ""),
    )


def find_kind(file: Path, ranks: Mapping[bytes, int], config: dict[str, Any]) -> RankKind | None:
    """The line of models these ranks belong to: by what they are, else by what the folder says."""
    name = KNOWN_RANKS.get(ranks_fingerprint(ranks))
    if name is None:
        auto_map = config.get("auto_map")
        entry = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else None
        entries = entry if isinstance(entry, list) else [entry]
        modules = [str(value).rsplit("--", 1)[-1].split(".")[0] for value in entries if value]
        name = next((TOKENIZER_MODULES[module] for module in modules if module in TOKENIZER_MODULES), None)
    if name is None:
        name = MODEL_TYPES.get(str(sibling(file, "config.json").get("model_type")))
    return KINDS[name] if name is not None else None


def find_specials(kind: RankKind | None, after: int, config: dict[str, Any], where: str) -> dict[str, int]:
    """Those of the model's line, with the names tokenizer_config.json gives in added_tokens_decoder."""
    by_id = {token_id: token for token, token_id in (kind.specials(after) if kind is not None else {}).items()}
    written = config.get("added_tokens_decoder") or {}
    if not isinstance(written, dict):
        raise TokenizerError(f"added_tokens_decoder beside {where} is a {type(written).__name__}, not an object")
    for token_id, token in written.items():
        text = token_text(token)
        if text is None or not token_id.isdecimal() or len(token_id) > len(str(MAX_ID)):
            raise TokenizerError(
                f"added_tokens_decoder beside {where} has {token_id[:60]!r}: {str(token)[:60]!r}; expected an id and a "
                "token"
            )
        by_id[int(token_id)] = text
    specials = {token: token_id for token_id, token in by_id.items()}
    if len(specials) != len(by_id):
        raise TokenizerError(f"added_tokens_decoder beside {where} gives one token two ids")
    return specials


def added_id(config: dict[str, Any], name: str, special_tokens: Mapping[str, int], where: str) -> Sequence[int]:
    """The id to put around every text for bos_token or eos_token, where add_..._token asks for it."""
    if config.get(f"add_{name}") is not True:
        return ()
    token = token_text(config.get(name))
    if token is None or token not in special_tokens:
        raise TokenizerError(
            f"tokenizer_config.json beside {where} asks for add_{name}, but its {name} {token!r} is no special token"
        )
    return (special_tokens[token],)

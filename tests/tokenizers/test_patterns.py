"""Regular expressions that can hang are rejected before they run; those of published tokenizers are not."""

from __future__ import annotations

import json

import pytest

from inlayer.errors import TokenizerError
from inlayer.tokenizers.backtracking import backtracking_risk
from inlayer.tokenizers.gguf_tokenizer import PRE_TOKENIZERS_BY_NAMES
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.tiktoken import ENCODINGS
from tests.tokenizers.test_growth import make, replace, sequence

HOSTILE = [
    "(a+)+b", "(?:a*)*b", "(a|a)*b", "(a|ab)+c", "(?:(?:a?)){30}a{30}", "a?" * 30 + "b", ".*" * 9 + "x",
    "(?:a{1,9}){2,}b", "(a|a)" * 26 + "b", "(?:|)" * 20 + "b", "(?:(?:a|b|)(?:|||))(x|y)(?:a|b)(?:c|)b",
    "a{1,9}{1,9}b", "a+{9}b", "(?i:x|(a+)+)b", "(?=(a+)+b)", "(?<name>a+)+b", "[b-z]|([^b]+)*b",
    "a{1,9}+a{1,9}+a{1,9}+b",
    r"(?<x>a|b\g<x>c)", r"(?x) # ) \n (a+)+", "(?~a)", r"(a)\k<1>", "a?a?a?(a?a?|a?a?a?a?)b", "((a{1,2}))*b", "(ab?)*c",
]  # fmt: skip
HARMLESS = [
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+",
    r" {2,}", r"(?<=\S) (?!\n)", r"[[:alpha:]&&[^a-c]]+", r"\x{41}\u0042+", "(ab)?", "(a+)?", "(?i)abc+", "(a|b){0,1}",
    "{", "a{,b",
    r"[\]\[(+)+]+", "",
]  # fmt: skip


def split(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize("pattern", HOSTILE)
def test_pattern_that_can_hang_is_an_error(pattern: str) -> None:
    assert backtracking_risk(pattern) is not None


@pytest.mark.parametrize("pattern", HARMLESS)
def test_harmless_pattern_is_accepted(pattern: str) -> None:
    assert backtracking_risk(pattern) is None


def test_patterns_of_published_tokenizers_are_accepted() -> None:
    steps = [step for known in PRE_TOKENIZERS_BY_NAMES.values() for step in known.steps]
    patterns = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    patterns += [encoding.pat_str for encoding in ENCODINGS.values()]
    assert len(patterns) > 20
    assert {pattern: reason for pattern in patterns if (reason := backtracking_risk(pattern)) is not None} == {}


@pytest.mark.parametrize(
    "parts",
    [
        {"pre_tokenizer": split("(o+)+x")},
        {"pre_tokenizer": sequence([split("o"), sequence([split("(.|o)*x")], "pretokenizers")], "pretokenizers")},
        {"normalizer": replace("(.+)+x", "", "Regex")},
        {"decoder": replace("(.+)+x", "", "Regex")},
        {"pre_tokenizer": sequence([split("o" * 99)] * 99, "pretokenizers")},
    ],
)
def test_file_with_such_a_pattern_is_not_opened(parts: dict[str, object]) -> None:
    with pytest.raises(TokenizerError, match="regular expression that can hang") as error:
        HuggingFaceTokenizer(make(**parts))
    assert "\n" not in str(error.value)
    assert json.loads(make(**parts))  # the file itself is valid


def test_pattern_is_checked_in_the_form_the_library_runs() -> None:
    assert HuggingFaceTokenizer(make(pre_tokenizer=split("o+|d"))).encode("dood") == [2, 4, 2]

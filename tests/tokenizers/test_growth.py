"""Files that would make a text millions of times longer: a typed error, before any of it happens."""

import base64
import io
import json
import struct
import unicodedata
from functools import partial

import pytest
import sentencepiece

from inlayer.errors import TokenizerError
from inlayer.tokenizers import open_tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from inlayer.tokenizers.untrusted_files import count_steps
from tests.tokenizers import malformed
from tests.tokenizers.samples import real_json
from tests.tokenizers.test_contract import small_sentencepiece

A = {"Sequence": {"id": "A", "type_id": 0}}
B = {"Sequence": {"id": "B", "type_id": 0}}
X = {"SpecialToken": {"id": "x", "type_id": 0}}
DOUBLE = {"type": "Replace", "pattern": {"String": "o"}, "content": "oo"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
NFKD = {"type": "NFKD"}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(steps, name="normalizers"):
    return {"type": "Sequence", name: steps}


def template(single, ids=1):
    tokens = {"x": {"id": "x", "ids": [0] * ids, "tokens": ["x"] * ids}}
    return {"type": "TemplateProcessing", "single": single, "pair": [A, B], "special_tokens": tokens}


def charsmap(replacement):
    """A normalizer of sentencepiece whose strings contain this one; its trie is empty."""
    data = struct.pack("<I", 4) + bytes(4) + replacement.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def make(**parts):
    vocab = {"a": 0, "o": 1, "d": 2, "▁": 3, "?": 4}
    content = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"}}
    return json.dumps(content | parts).encode()


HOSTILE = {
    "28 doublings": {"normalizer": sequence([DOUBLE] * 28)},
    "nested doublings": {"normalizer": sequence([sequence([DOUBLE] * 7)] * 4)},
    "a million characters": {"normalizer": replace("o", "o" * 1_000_000)},
    "every position": {"normalizer": replace("", "o" * 5000)},
    "regex": {"normalizer": sequence([replace(".", "oo" * 99, "Regex")] * 9)},
    "empty matches": {"normalizer": sequence([replace("x*", "oo", "Regex")] * 40)},
    "prepend": {"normalizer": sequence([{"type": "Prepend", "prepend": "o" * 4000}, *[DOUBLE] * 20])},
    "byte level": {"normalizer": sequence([replace("o", "é"), *[{"type": "ByteLevel"}] * 40])},
    "charsmap": {"normalizer": sequence([replace("o", "oo"), charsmap("o" * 1_000_000)])},
    "added token": {
        "normalizer": sequence([DOUBLE] * 40),
        "added_tokens": [{"id": 5, "content": "oo", "normalized": True, "special": False, "single_word": False,
                          "lstrip": False, "rstrip": False}],
    },
    "pre-tokenizer": {"pre_tokenizer": sequence([BYTE_LEVEL] * 30, "pretokenizers")},
    "many ids": {"post_processor": template([A, *[X] * 100_000], ids=1000)},
    "many copies": {"post_processor": template([A] * 100_000)},
    "copies of copies": {"post_processor": sequence([template([A, A, X])] * 40, "processors")},
    "decoder": {"decoder": sequence([DOUBLE] * 28, "decoders")},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_an_error_before_it_grows(name):
    data = make(**HOSTILE[name])
    with pytest.raises(TokenizerError, match=r"can make a text|can add more than"):
        HuggingFaceTokenizer(data).encode("I love dogs")
    with pytest.raises(TokenizerError, match=r"can make a text|can add more than"):
        HuggingFaceTokenizer(data).encode_batch(["I love dogs"])
    with pytest.raises(TokenizerError, match=r"can make a text|can add more than"):
        HuggingFaceTokenizer(data).tokens("I love dogs")


@pytest.mark.parametrize("charsmap", ["/////wAAAAA=", "AAA=", "not base64"])
def test_character_map_with_a_false_length_is_an_error(charsmap):
    with pytest.raises(TokenizerError, match="character map is malformed"):
        HuggingFaceTokenizer(make(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap}))


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": sequence([NFKD] * 100)},
        {"normalizer": sequence([sequence([])] * 100_000)},
        {"normalizer": {"normalizers": [NFKD] * 100_000}},  # without a type, as in old files
        {
            "pre_tokenizer": sequence(
                [sequence([{"type": "BertPreTokenizer"}] * 9, "pretokenizers")] * 10, "pretokenizers"
            )
        },
        {"post_processor": sequence([{"type": "ByteLevel"}] * 100, "processors")},
        {"normalizer": sequence([NFKD] * 50), "decoder": sequence([{"type": "Fuse"}] * 49, "decoders")},
    ],
)
def test_number_of_steps_is_bounded(parts):
    with pytest.raises(TokenizerError, match="have more than 100 steps"):
        HuggingFaceTokenizer(make(**parts))


def test_a_hundred_steps_open():
    assert HuggingFaceTokenizer(make(normalizer=sequence([NFKD] * 99))).encode("a") == [0]


@pytest.mark.slow
def test_the_published_file_with_most_steps_is_far_below_the_limit():
    data = real_json("janusflow-1.3b")
    assert count_steps(json.loads(data)) == 11
    assert HuggingFaceTokenizer(data).encode("I love dogs")


def test_growth_is_bounded_when_a_file_is_opened():
    tokenizer = HuggingFaceTokenizer(make(normalizer=sequence([DOUBLE] * 9)))  # 512 times
    assert tokenizer.encode("a") == [0]
    with pytest.raises(TokenizerError, match="its normalizer can make a text 1,024 times as long"):
        HuggingFaceTokenizer(make(normalizer=sequence([DOUBLE] * 10)))


def test_normal_forms_in_a_row_count_once():
    """Two of them grow no character more than one, unless a step between them puts in what grows again."""
    lower = {"type": "Lowercase"}
    assert HuggingFaceTokenizer(make(normalizer=sequence([lower, NFKD] * 20))).encode("\ufdfa") == [4]
    with pytest.raises(TokenizerError, match="its normalizer can make a text 5,832 times as long"):
        HuggingFaceTokenizer(make(normalizer=sequence([NFKD, replace(" ", "\ufdfa")] * 3)))


@pytest.mark.slow
def test_no_character_grows_more_than_18_times():
    """The reason for the factor of a row of normal forms: every order of them, on every character."""
    forms = [partial(unicodedata.normalize, name) for name in ("NFC", "NFD", "NFKC", "NFKD")]
    for number in range(0x110000):
        if not 0xD800 <= number < 0xE000:
            seen, new = {chr(number)}, {chr(number)}
            while new:
                new = {form(text) for text in new for form in (*forms, str.lower)} - seen
                seen |= new
            assert max(map(len, seen)) <= 18
    assert len(unicodedata.normalize("NFKD", "\ufdfa")) == 18


def test_bounds_of_real_files_are_far_away():
    normalizer = sequence(
        [
            replace("``", '"'),
            NFKD,
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Precompiled", "precompiled_charsmap": malformed.charsmap()},
        ]
    )
    tokenizer = HuggingFaceTokenizer(make(normalizer=normalizer))  # as in ALBERT
    assert tokenizer.encode("a") == [0]
    assert tokenizer.encode("\ufdfa" * 100) == [4]  # the longest expansion in Unicode, 18 characters each
    ours = HuggingFaceTokenizer(
        make(post_processor=template([X, A, X]), pre_tokenizer=BYTE_LEVEL | {"add_prefix_space": False})
    )
    assert ours.encode("a") == [0, 0, 0]


@pytest.mark.parametrize("kind", ["json", "sentencepiece"])
def test_special_token_that_is_not_unicode(tmp_path, kind):
    if kind == "json":
        (tmp_path / "tokenizer.json").write_bytes(make())
    else:
        (tmp_path / "tokenizer.model").write_bytes(small_sentencepiece("bpe"))
    for name, value in (
        ("pad_token", "\ud800"),
        ("bos_token", {"content": "\ud800"}),
        ("eos_token", "\ud800"),
        ("additional_special_tokens", ["<a>", "\ud800"]),
        ("added_tokens_decoder", {"3": {"content": "\ud800"}}),
    ):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({name: value}))
        with pytest.raises(TokenizerError, match=rf"'{name}' in .*tokenizer_config\.json contains a lone surrogate"):
            open_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "a", "additional_special_tokens": null}')
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "\\ud800"}')
    with pytest.raises(TokenizerError, match=r"'eos_token' in .*special_tokens_map\.json contains"):
        open_tokenizer(tmp_path)


def test_sentencepiece_model_with_hostile_rules(tmp_path):
    (tmp_path / "rules.tsv").write_text("6F\t" + " ".join(["6F"] * 20_000) + "\n")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["I l ve d gs t hell w rld"] * 50), model_writer=out, model_type="bpe", vocab_size=40,
        hard_vocab_limit=False, normalization_rule_tsv=str(tmp_path / "rules.tsv"), minloglevel=2,
    )  # fmt: skip
    tokenizer = SentencePieceTokenizer(out.getvalue())
    for use in (tokenizer.encode, tokenizer.tokens, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(TokenizerError, match="longer"):
            use("I love dogs")
        use("I d")  # control

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
REAL_CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": malformed.charsmap()}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(steps, name="normalizers"):
    return {"type": "Sequence", name: steps}


def template(single, ids=1, name="x"):
    tokens = {"x": {"id": "x", "ids": [0] * ids, "tokens": [name] * ids}}
    return {"type": "TemplateProcessing", "single": single, "pair": [A, B], "special_tokens": tokens}


def charsmap(replacement):
    """A normalizer of sentencepiece whose strings contain this one; its trie is empty."""
    data = struct.pack("<I", 4) + bytes(4) + replacement.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def word_level(unknown="?"):
    return {"type": "WordLevel", "vocab": {"a": 0, "o": 1, "d": 2, "▁": 3, unknown: 4}, "unk_token": unknown}


def word_piece(longest, prefix="##"):
    vocab = {"o": 0, f"{prefix}o": 1, "?": 2}
    limits = {"continuing_subword_prefix": prefix, "max_input_chars_per_word": longest}
    return {"type": "WordPiece", "vocab": vocab, "unk_token": "?", **limits}


def unigram(longest):
    return {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], *(["o" * n, -1.0] for n in range(1, longest + 1))]}


def added_tokens(count, length, normalized=True):
    flags = dict.fromkeys(("special", "single_word", "lstrip", "rstrip"), False) | {"normalized": normalized}
    return [{"id": 5 + n, "content": f"{n:0{length}}", **flags} for n in range(count)]


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def make(**parts):
    return json.dumps({"version": "1.0", "added_tokens": [], "model": word_level()} | parts).encode()


GROWS = r"can make a text|can add more than"
GROW = replace(".", "é" * 511, "Regex")

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
    "decoders with an empty suffix": {"decoder": sequence([{"type": "BPEDecoder", "suffix": ""}] * 40, "decoders")},
    "all parts": {
        "normalizer": GROW,
        "pre_tokenizer": sequence([BYTE_LEVEL] * 4, "pretokenizers"),
        "post_processor": template([A] * 512),
    },
    "normalizer and template": {"normalizer": GROW, "post_processor": template([A] * 512)},
    "text that the template drops": {"normalizer": sequence([DOUBLE] * 40), "post_processor": template([X])},
    "normalizer and decoder": {"normalizer": GROW, "decoder": replace("o", "o" * 511)},
    "unknown token": {"model": word_level("o" * 200_000), "normalizer": GROW},
    "tokens of a template": {"post_processor": template([A, *[X] * 4000], name="x" * 10_000)},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_an_error_before_it_grows(name):
    data = make(**HOSTILE[name])
    with pytest.raises(TokenizerError, match=GROWS):
        HuggingFaceTokenizer(data).encode("I love dogs")
    with pytest.raises(TokenizerError, match=GROWS):
        HuggingFaceTokenizer(data).encode_batch(["I love dogs"])
    with pytest.raises(TokenizerError, match=GROWS):
        HuggingFaceTokenizer(data).tokens("I love dogs")


COSTLY = {
    "WordPiece": ({"model": word_piece(10**9), "normalizer": GROW}, "model can take too long"),
    "WordPiece without growth": ({"model": word_piece(10**9)}, "model can take too long"),
    "WordPiece prefix": ({"model": word_piece(100, "#" * 100_000)}, "model can take too long"),
    "Unigram": ({"model": unigram(600), "normalizer": GROW}, "model can take too long"),
    "added tokens": (
        {"added_tokens": added_tokens(100, 2000), "normalizer": GROW},
        "added tokens can have 102,451,100 characters",
    ),
    "one added token": (
        {"added_tokens": added_tokens(1, 5000), "decoder": replace("o", "o" * 511)},
        "tokens of up to 5,000 characters",
    ),
    "patterns": (
        {"normalizer": replace(".", "o" * 80, "Regex"), "pre_tokenizer": split("[op]+[op]+[xy]")},
        "more than 1 optional or repeated parts",
    ),
    "one repeated part": (
        {"normalizer": replace(".", "o" * 1500, "Regex"), "pre_tokenizer": split("[op]+[xy]")},
        "regular expressions can take too long",
    ),
}


@pytest.mark.parametrize("name", COSTLY)
def test_costly_file_is_an_error_when_it_is_opened(name):
    parts, message = COSTLY[name]
    with pytest.raises(TokenizerError, match=message):
        HuggingFaceTokenizer(make(**parts))


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "NFKC"}, "pre_tokenizer": sequence([METASPACE, BYTE_LEVEL], "pretokenizers"),
         "post_processor": template([X, A, X]), "decoder": BYTE_LEVEL},
        {"normalizer": sequence([NFKD, REAL_CHARSMAP]), "pre_tokenizer": METASPACE,
         "post_processor": template([X, A, X]), "decoder": METASPACE},
        {"model": word_piece(1000), "normalizer": {"type": "BertNormalizer", "clean_text": True,
         "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}},
        {"model": unigram(300), "normalizer": NFKD,
         "pre_tokenizer": sequence([METASPACE, BYTE_LEVEL], "pretokenizers")},
        {"normalizer": NFKD, "pre_tokenizer": split(r" ?[a-z]+[0-9]*|\s+(?!\S)")},
        {"added_tokens": added_tokens(10_000, 30), "normalizer": NFKD},
    ],
)  # fmt: skip
def test_combinations_of_real_files_open(parts):
    assert HuggingFaceTokenizer(make(**parts)).encode("I love dogs")


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
    tokenizer = HuggingFaceTokenizer(make(normalizer=sequence([DOUBLE] * 11)))  # 2,048 times
    assert tokenizer.encode("a") == [0]
    with pytest.raises(TokenizerError, match="its normalizer can make a text 4,096 times as long"):
        HuggingFaceTokenizer(make(normalizer=sequence([DOUBLE] * 12)))


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
            REAL_CHARSMAP,
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

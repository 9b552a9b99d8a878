"""TiktokenTokenizer against tiktoken: Llama-3's file, a small one, and Kimi-K2's where it is available."""

import base64
import itertools
import json

import pytest
import tiktoken

from inlayer.errors import IdRangeError, InputError, TextError, TokenizerError
from inlayer.tokenizers import open_tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.tiktoken import ENCODINGS, TiktokenTokenizer, parse_ranks, ranks_sha256
from tests.shared_data import shared
from tests.tokenizers.samples import hostile_texts, llama3_ranks, real_json
from tests.tokenizers.test_contract import small_ranks


def many_merges() -> list[bytes]:
    """Return tokens that reveal where text was split: runs of mixed whitespace, contractions, digits, case."""
    white = [b"".join(run) for size in range(2, 6) for run in itertools.product([b" ", b"\n", b"\t"], repeat=size)]
    words = b" t|th| th|'s|'S|'l|'ll|12|123|1234|ab|AB|Ab|aB| a|!!|!\n|/\n| !|\n!|==".split(b"|")
    return [bytes([value]) for value in range(256)] + white + words


def kimi_folder(tmp_path, **config):
    """Make a folder like a Kimi checkpoint, with a small tiktoken file."""
    (tmp_path / "tiktoken.model").write_bytes(small_ranks())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


KIMI_CONFIG = {
    "tokenizer_class": "TikTokenTokenizer",
    "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
    "added_tokens_decoder": {
        "261": {"content": "[BOS]", "special": True},
        "262": {"content": "[EOS]", "special": True},
    },
    "bos_token": "[BOS]",
    "pad_token": "[EOS]",
}


def test_kimi_folder_equals_tiktoken(tmp_path):
    ours = open_tokenizer(kimi_folder(tmp_path, **KIMI_CONFIG))
    assert len(ours.special_tokens) == 256
    assert ours.get_vocab_size() == 261 + 256
    assert (ours.special_tokens["[BOS]"], ours.special_tokens["<|reserved_token_263|>"]) == (261, 263)
    assert ours.pad_id == 262
    specials = ["[BOS]", "[EOS]", "<|reserved_token_300|>"]
    theirs = tiktoken.Encoding(
        "theirs",
        pat_str=ENCODINGS["kimi"].pat_str,
        mergeable_ranks=parse_ranks(small_ranks(), "ranks"),
        special_tokens=dict(ours.special_tokens),
    )
    texts = hostile_texts(800, 31, specials)
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == theirs.encode(text, allowed_special="all"), ascii(text)
    for text, mine in zip(texts, ours.encode_batch(texts, parse_special=False), strict=True):
        assert mine.tolist() == theirs.encode_ordinary(text), ascii(text)
    for text in texts[:200]:
        tokens = ours.tokens(text)
        assert b"".join(token.bytes for token in tokens) == text.encode()
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text, allowed_special="all")) == text


def test_begin_of_text_is_added_only_if_configured(tmp_path):
    assert open_tokenizer(kimi_folder(tmp_path, **KIMI_CONFIG)).encode("a") == [97]
    ours = open_tokenizer(kimi_folder(tmp_path, **KIMI_CONFIG, add_bos_token=True))
    assert ours.encode("a") == [261, 97]
    assert ours.encode("a", add_special_tokens=False) == [97]
    assert [row.tolist() for row in ours.encode_batch(["a", ""])] == [[261, 97], [261]]
    assert ours.tokens("a")[0] == (261, b"", (0, 0), True)
    with pytest.raises(TokenizerError, match="sets add_bos_token"):
        open_tokenizer(kimi_folder(tmp_path, **KIMI_CONFIG | {"bos_token": "<none>", "add_bos_token": True}))


def test_model_type_identifies_kimi(tmp_path):
    (tmp_path / "tiktoken.model").write_bytes(small_ranks())
    (tmp_path / "config.json").write_text('{"model_type": "kimi_k2"}')
    assert "<|reserved_token_261|>" in open_tokenizer(tmp_path).special_tokens


def test_unknown_file_needs_a_pattern(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(small_ranks())
    with pytest.raises(TokenizerError, match="pass pat_str="):
        open_tokenizer(path)
    assert open_tokenizer(path, pat_str=r"\s+|\S+").encode("the") == [257]
    (tmp_path / "pat_str.txt").write_text(r"\s+|\S+")
    assert open_tokenizer(path).encode("the") == [257]
    with pytest.raises(TokenizerError, match="split pattern"):
        open_tokenizer(path, pat_str="(")
    with pytest.raises(TokenizerError, match="drops part"):
        open_tokenizer(path, pat_str=r"\S+").tokens("a b")


def test_special_tokens_argument(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(small_ranks())
    assert open_tokenizer(path, pat_str=r".", special_tokens={"<s>": 300}).encode("a<s>") == [97, 300]
    with pytest.raises(TokenizerError, match="as does"):
        open_tokenizer(path, pat_str=r".", special_tokens={"<s>": 97})
    with pytest.raises(TokenizerError, match=r"0\.\.2147483647"):
        open_tokenizer(path, pat_str=r".", special_tokens={"<s>": 2**31})
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="is not a tiktoken file"):
        open_tokenizer(tmp_path / "tokenizer.json", pat_str=".")


def test_id_in_a_gap_is_an_error(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(small_ranks())
    ours = open_tokenizer(path, pat_str=r".", special_tokens={"<s>": 300})
    with pytest.raises(IdRangeError, match="id 299 at position 1 is not a token"):
        ours.decode([1, 299])


def line(token: bytes, rank: object) -> bytes:
    return base64.b64encode(token) + b" " + str(rank).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (small_ranks() + b"!!!! 300\n", "line 262"),
        (small_ranks() + b"YWI= x\n", "line 262"),
        (small_ranks() + b"YWI=\n", "line 262"),
        (small_ranks() + line(b"ab", 5), "line 262 of .* repeats the token b'ab' or the rank 5"),
        (small_ranks() + line(b"the", 261), "line 262 of .* repeats the token b'the'"),
        (small_ranks() + line(b"ab", 270), "no rank 261"),
        (small_ranks() + line(b"ab", -1), "line 262 of .* is not `base64 rank`: b'YWI= -1'"),
        (small_ranks().split(b"\n", 1)[1], "byte 0x00"),
        (small_ranks()[:900], "damaged|byte 0x"),
    ],
)
def test_damaged_file_is_rejected(tmp_path, data, match):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(data)
    with pytest.raises(TokenizerError, match=match):
        open_tokenizer(path, pat_str=".")


def test_text_that_tiktoken_cannot_split_is_an_error(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(small_ranks())
    with pytest.raises(TextError, match="cannot split this text of 1000000"):
        open_tokenizer(path, pat_str=r"\S+|\s+(?!\S)|\s+").encode(" " * 1_000_000)


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_known_pattern_equals_tiktoken(name, tmp_path):
    """Including gigatoken's scheme of that name, if it has one."""
    encoding = ENCODINGS[name]
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    path = tmp_path / "x.tiktoken"
    path.write_bytes(b"".join(line(token, rank) for token, rank in ranks.items()))
    source = (path, encoding.scheme) if encoding.scheme else None
    ours = TiktokenTokenizer(ranks, encoding.pat_str, {"<s>": len(ranks)}, fast_source=source)
    theirs = tiktoken.Encoding(
        "theirs", pat_str=encoding.pat_str, mergeable_ranks=ranks, special_tokens={"<s>": len(ranks)}
    )
    texts = hostile_texts(800, 33, ["12345", " the!", "/\n\n", "\n \n ", " \t ", "<s>"])
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == theirs.encode(text, allowed_special="all"), ascii(text)
    if pytest.importorskip("gigatoken"):
        assert (ours._fast_path is not None) == (encoding.scheme is not None)


def test_patterns_differ():
    """Control: Llama-3's pattern splits a space from the line break before it, cl100k's does not."""
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    ids = [TiktokenTokenizer(ranks, ENCODINGS[name].pat_str, {}).encode("a\n ") for name in ("llama3", "cl100k")]
    assert ids[0] != ids[1]


@pytest.mark.slow
def test_kimi_k2_equals_tiktoken():
    ours = open_tokenizer(shared("data", "tokenizers", "kimi-k2", "tiktoken.model"))
    pattern = shared("data", "tokenizers", "kimi-k2", "pat_str.txt").read_text(encoding="utf-8")
    assert ENCODINGS["kimi"].pat_str == pattern
    data = shared("data", "tokenizers", "kimi-k2", "tiktoken.model").read_bytes()
    theirs = tiktoken.Encoding(
        "kimi", pat_str=pattern, mergeable_ranks=parse_ranks(data, "kimi"), special_tokens=dict(ours.special_tokens)
    )
    assert ours.get_vocab_size() == 163_840
    assert min(ours.special_ids) == 163_584
    texts = hostile_texts(3000, 34, list(ours.special_tokens)[:20])
    for text, mine in zip(texts, ours.encode_batch(texts), strict=True):
        assert mine.tolist() == theirs.encode(text, allowed_special="all"), ascii(text)
    if pytest.importorskip("gigatoken"):
        assert ours._fast_path is not None


@pytest.mark.slow
def test_llama3_equals_its_tokenizer_json(tmp_path):
    """A model based on Llama-3 has the same vocabulary in a tokenizer.json; its special tokens have other names."""
    (tmp_path / "tokenizer.model").write_bytes(llama3_ranks())
    ours = open_tokenizer(tmp_path)
    theirs = HuggingFaceTokenizer(real_json("deepseek-r1-distill-llama-8b"))
    assert ours.special_tokens["<|begin_of_text|>"] == 128_000
    assert ours.get_vocab_size() == theirs.get_vocab_size() == 128_256
    texts = [text for text in hostile_texts(800, 35) if all(ord(character) < 0x3000 for character in text)]
    assert ours.encode_batch(texts) == theirs.encode_batch(texts, add_special_tokens=False)


def test_hash_ignores_the_order_of_lines():
    lines = small_ranks().splitlines(keepends=True)
    shuffled = parse_ranks(b"".join(reversed(lines)) + b"\n", "ranks")
    assert ranks_sha256(shuffled) == ranks_sha256(parse_ranks(small_ranks(), "ranks"))

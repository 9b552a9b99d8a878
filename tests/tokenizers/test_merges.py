"""BPE merges: replays against a slow loop over the file's own list, and against the ids of the libraries."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.errors import IdRangeError
from inlayer.tokenizers import ByteTokenizer, Merge, Tokenizer, WordTokenizer
from inlayer.tokenizers import huggingface as huggingface_module
from inlayer.tokenizers import merges as merges_module
from inlayer.tokenizers.gguf_tokenizer import open_gguf_tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.merges import MergeTable, byte_alphabet, merges_from_json
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from inlayer.tokenizers.tiktoken import TiktokenTokenizer
from tests.checkpoint.make_gguf import fields_of_json
from tests.tokenizers.samples import hostile_texts, llama2, minilm
from tests.tokenizers.test_contract import small_sentencepiece
from tests.tokenizers.test_gguf_tokenizer import same
from tests.tokenizers.test_pre_tokens import HARD, open_real
from tests.tokenizers.test_tiktoken import many_merges

# One of each kind of byte-level BPE.
REPLAYED = [
    "deepseek-coder-33b-base",
    "small tiktoken",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("deepseek-r1-distill-llama-8b", "llama3 tiktoken")),
    pytest.param("kimi-k2 tiktoken", marks=pytest.mark.slow),
]
LETTERS = {value: character for character, value in byte_alphabet().items()}


class Slow:
    """A slow BPE: scan all adjacent pairs, merge the best one, start over. Tokens are spelled as in the file."""

    def __init__(self, model: dict) -> None:
        self.vocab, self.whole = model["vocab"], model.get("ignore_merges")
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(pairs)}

    def best(self, tokens: list) -> tuple[int, int] | None:
        found = [
            (self.ranks[pair], index) for index, pair in enumerate(itertools.pairwise(tokens)) if pair in self.ranks
        ]
        return min(found, default=None)

    def replay(self, data: bytes) -> tuple[list[Merge], list[int]]:
        tokens = [LETTERS[value] for value in data]
        merged: list[Merge] = []
        if self.whole and "".join(tokens) in self.vocab:
            return merged, [self.vocab["".join(tokens)]]
        while (found := self.best(tokens)) is not None:
            rank, index = found
            left, right = tokens[index : index + 2]
            tokens[index : index + 2] = [left + right]
            merged.append(Merge(self.bytes_of(left), self.bytes_of(right), rank, self.vocab[left + right]))
        return merged, [self.vocab[token] for token in tokens]

    @staticmethod
    def bytes_of(token: str) -> bytes:
        return bytes(byte_alphabet()[character] for character in token)


class SlowRanks:
    """The same by tiktoken ranks, where the rank belongs to the joined bytes, not to the pair."""

    def __init__(self, ranks: dict[bytes, int]) -> None:
        self.ranks = ranks

    def replay(self, data: bytes) -> tuple[list[Merge], list[int]]:
        merged: list[Merge] = []
        tokens = [data] if data in self.ranks else [bytes([value]) for value in data]
        while True:
            joined = [left + right for left, right in itertools.pairwise(tokens)]
            known = [(self.ranks[token], index) for index, token in enumerate(joined) if token in self.ranks]
            if not known:
                return merged, [self.ranks[token] for token in tokens]
            rank, index = min(known)
            merged.append(Merge(*tokens[index : index + 2], rank, rank))
            tokens[index : index + 2] = [joined[index]]


def slow_reference(ours: Tokenizer) -> Slow | SlowRanks:
    if isinstance(ours, TiktokenTokenizer):
        return SlowRanks(ours._ranks)
    assert isinstance(ours, HuggingFaceTokenizer)
    return Slow(json.loads(ours.data.decode("utf-8-sig"))["model"])


def pre_token_ids(ours: Tokenizer, text: str) -> list[list[int]]:
    """Return the ids of each pre-token, without those of added tokens."""
    spans = ours.pre_tokens(text)
    added = ours._added.keys() if isinstance(ours, HuggingFaceTokenizer) else ours.special_ids
    tokens = [token for token in ours.tokens(text, add_special_tokens=False) if token.bytes]
    groups = [[token.id for token in tokens if a <= token.span[0] and token.span[1] <= b] for a, b in spans or []]
    return [ids for ids in groups if added.isdisjoint(ids)]


@pytest.fixture(scope="module", params=REPLAYED)
def real(request) -> str:
    return request.param  # opened in the tests: see tests/shared_data.py


def test_merges_equal_the_slow_loop(real):
    ours = open_real(real)
    slow = slow_reference(ours)
    seen = 0
    for text in [*HARD, *hostile_texts(50, 51, list(ours.special_tokens)[:12])]:
        for ids in pre_token_ids(ours, text):
            theirs, reached = slow.replay(ours.decode_bytes(ids))
            assert reached == ids, ascii(text)  # control: the slow loop is right
            assert ours.merges(ids) == theirs, ascii(text)
            seen += len(theirs)
    assert seen > 80


def test_long_run(real):
    """The libraries use another algorithm for long pre-tokens."""
    ours = open_real(real)
    text = "a" * 2_000
    groups = pre_token_ids(ours, text)
    assert [*itertools.chain(*groups)] == ours.encode(text, add_special_tokens=False)
    for ids in groups:
        merged = ours.merges(ids)
        assert merged is not None
        assert len(ours.decode_bytes(ids)) - len(merged) == len(ids) or merged == []


def test_ids_that_merges_do_not_produce(real):
    ours = open_real(real)
    ids = ours.encode(" thxqing", add_special_tokens=False)
    assert ours.merges(ids)
    apart = [ours.encode(character, add_special_tokens=False)[0] for character in " thxqing"]
    assert ours.merges(apart) is None
    assert ours.merges([]) == []
    assert ours.merges(ids[:1]) is not None
    special = next(iter(ours.special_ids))
    assert ours.merges([special]) is None
    assert ours.merges([*ids, special]) is None
    with pytest.raises(IdRangeError, match=r"at \[1\]"):
        ours.merges([ids[0], 10**7])


def test_comparison_can_fail(small_json):
    """Control: with two merges swapped, the slow loop gives another result for some texts."""
    ours = HuggingFaceTokenizer(small_json)
    model = json.loads(small_json)["model"]
    model["merges"][0], model["merges"][1] = model["merges"][1], model["merges"][0]
    wrong, right = Slow(model), slow_reference(ours)
    groups = [ids for text in hostile_texts(40, 52) for ids in pre_token_ids(ours, text + " the other birds")]
    assert all(ours.merges(ids) == right.replay(ours.decode_bytes(ids))[0] for ids in groups)
    assert any(ours.merges(ids) != wrong.replay(ours.decode_bytes(ids))[0] for ids in groups)


def tiny(merges: list, **settings: object) -> bytes:
    """Make a byte-level BPE with these merges."""
    tokens = [*LETTERS.values(), *dict.fromkeys("".join(m.split(" ") if isinstance(m, str) else m) for m in merges)]
    vocab = {token: token_id for token_id, token in enumerate(dict.fromkeys(tokens))}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": vocab, "merges": merges, **settings}
    return json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": pre, "model": model}).encode()


def grow(choices: list[tuple[int, int]]) -> list[list[str]]:
    """Make merges of existing tokens; one may occur twice, and one token may be made in several ways."""
    tokens, merges = ["a", "b"], []
    for left, right in choices:
        pair = [tokens[left % len(tokens)], tokens[right % len(tokens)]]
        merges.append(pair)
        tokens.append("".join(pair))
    return merges


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12).map(grow),
    st.text("ab", max_size=40),
    st.booleans(),
)
def test_random_merges_equal_the_slow_loop(merges, text, ignore_merges):
    """The ids equal the library's, for any list of merges."""
    ours = HuggingFaceTokenizer(tiny(merges, ignore_merges=ignore_merges))
    ids = ours.encode(text)
    assert ours.merges(ids) == slow_reference(ours).replay(text.encode())[0]


def test_small_examples():
    ours = HuggingFaceTokenizer(tiny([["t", "h"], ["th", "e"]]))
    t, h = ours.encode("th"), ours.encode("the")
    assert ours.merges(h) == [(b"t", b"h", 0, t[0]), (b"th", b"e", 1, h[0])]
    assert ours.merges(ours.encode("é")) == []  # two bytes without a merge
    assert HuggingFaceTokenizer(tiny(["t h", "th e"])).merges(h) == ours.merges(h)  # the older notation
    assert HuggingFaceTokenizer(tiny(["t h", "th e"], dropout=0.9)).merges(h) == ours.merges(h)
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    by_rank = TiktokenTokenizer(ranks, r"[\s\S]+", {})
    assert by_rank.merges([ranks[b"123"], ranks[b"4"]]) is None  # 1234 is a token, so it is taken whole
    assert by_rank.merges([ranks[b"1234"]]) == []
    assert by_rank.merges(by_rank.encode("thx")) == [(b"t", b"h", ranks[b"th"], ranks[b"th"])]


def test_ignore_merges_takes_words_whole():
    """With `ignore_merges` a word in the vocabulary is one token without merges, even if no merges produce it."""
    vocab_only = json.loads(tiny([["a", "b"], ["c", "d"]], ignore_merges=True))
    vocab_only["model"]["vocab"]["abcd"] = 258
    whole = HuggingFaceTokenizer(json.dumps(vocab_only).encode())
    assert whole.encode("abcd") == [258]
    assert whole.merges([258]) == []
    assert whole.merges([256, 257]) is None
    assert len(whole.merges(whole.encode("abcda")) or []) == 2
    vocab_only["model"]["ignore_merges"] = False
    merged = HuggingFaceTokenizer(json.dumps(vocab_only).encode())
    assert merged.merges([258]) is None
    assert len(merged.merges(merged.encode("abcd")) or []) == 2


def test_tokenizers_without_byte_merges(small_json):
    suffixed = tiny([["a", "b</w>"]], end_of_word_suffix="</w>")
    config = json.loads(suffixed)
    config["model"]["vocab"] |= {"b</w>": 900, "ab</w>": 901}
    prefixed = json.loads(tiny([["a", "##b"]], continuing_subword_prefix="##"))
    prefixed["model"]["vocab"] |= {"##b": 900, "ab": 901}
    spelled = json.loads(small_json) | {"pre_tokenizer": {"type": "Whitespace"}}  # letters, not bytes
    assert spelled["decoder"]["type"] == "ByteLevel"
    for tokenizer in (
        ByteTokenizer(),
        WordTokenizer(["a", "ab"]),
        SentencePieceTokenizer(small_sentencepiece("bpe")),
        HuggingFaceTokenizer(minilm()),
        HuggingFaceTokenizer(llama2()),
        *(HuggingFaceTokenizer(json.dumps(each).encode()) for each in (config, prefixed, spelled)),
    ):
        assert tokenizer.merges(tokenizer.encode("ab", add_special_tokens=False)) is None
        assert tokenizer.merges([]) is None
        with pytest.raises(IdRangeError):
            tokenizer.merges([10**7])


def test_gguf_merges_equal_the_original(small_json):
    ours = open_gguf_tokenizer(same(fields_of_json(small_json, "gpt-2")), source="gguf")
    theirs = HuggingFaceTokenizer(small_json)
    groups = [ids for text in hostile_texts(50, 53, ["<s>"]) for ids in pre_token_ids(theirs, text)]
    assert any(theirs.merges(ids) for ids in groups)
    for ids in groups:
        assert ours.merges(ids) == theirs.merges(ids) is not None


def test_replay_is_not_quadratic():
    """The number of lookups grows with the number of bytes, not with its square."""
    merges = merges_from_json(json.loads(tiny(grow([(0, 0), (2, 2), (3, 3), (4, 4)])))["model"])
    assert merges is not None
    lookups = 0

    def merge(left: int, right: int) -> tuple[int, int] | None:
        nonlocal lookups
        lookups += 1
        return merges.merge(left, right)

    counting = MergeTable(byte_ids=merges.byte_ids, merge=merge, whole=merges.whole)
    assert len(counting.replay(b"a" * 2_000)[1]) == 125
    assert lookups < 12_000


def test_long_pre_tokens_are_not_replayed(monkeypatch):
    ours = HuggingFaceTokenizer(tiny([["a", "a"]]))
    monkeypatch.setattr(merges_module, "MAX_PRE_TOKEN_BYTES", 10)
    assert len(ours.merges(ours.encode("a" * 10)) or []) == 5
    assert ours.merges(ours.encode("a" * 11)) is None


def test_byte_without_a_token():
    config = json.loads(tiny([["a", "b"]]))
    del config["model"]["vocab"]["c"]
    config["model"]["vocab"]["<unk>"] = 999
    config["model"]["unk_token"] = "<unk>"
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    assert ours.encode("abc")[-1] == 999
    assert ours.merges(ours.encode("abc")) is None
    assert len(ours.merges(ours.encode("abd")) or []) == 1


def test_merges_are_read_once(small_json, monkeypatch):
    read = []
    monkeypatch.setattr(huggingface_module, "merges_from_json", lambda model: read.append(1) or merges_from_json(model))
    ours = HuggingFaceTokenizer(small_json)
    ids = ours.encode(" the")
    assert read == []
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ours.merges(ids), range(16)))
    assert answers == [ours.merges(ids)] * 16 != [None] * 16
    assert read == [1]

"""Merges: replayed against a slow loop over the file's own list, and against the ids of the libraries."""

import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.errors import IdRangeError
from inlayer.tokenizers import ByteTokenizer, Merged, Tokenizer, WordTokenizer
from inlayer.tokenizers import huggingface as huggingface_module
from inlayer.tokenizers import merges as merges_module
from inlayer.tokenizers.gguf import open_gguf_tokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from inlayer.tokenizers.merges import Merges, byte_alphabet, json_merges
from inlayer.tokenizers.ranks import RankTokenizer
from inlayer.tokenizers.sentencepiece import SentencePieceTokenizer
from tests.checkpoint.make_gguf import fields_of_json
from tests.tokenizers.samples import hostile_texts, llama2, minilm
from tests.tokenizers.test_contract import small_sentencepiece
from tests.tokenizers.test_gguf import same
from tests.tokenizers.test_ranks import many_merges
from tests.tokenizers.test_splits import HARD, REAL, open_real, spaced_words

OTHER_KINDS = {"minilm", "llama2", "jiutian-139moe-chat"}
# One of each kind of byte-level BPE; INLAYER_ALL_TOKENIZERS=1 replays all of them.
KINDS = {"deepseek-coder-33b-base", "gpt2", "llama3", "llama3 ranks", "kimi-k2"}
REPLAYED = [
    name for name in REAL if name not in OTHER_KINDS and (name in KINDS or "INLAYER_ALL_TOKENIZERS" in os.environ)
]
LETTERS = {value: character for character, value in byte_alphabet().items()}


class Slow:
    """Look at all neighbors, join the best, begin again. Tokens are written as the file writes them."""

    def __init__(self, model: dict) -> None:
        self.vocab, self.whole = model["vocab"], model.get("ignore_merges")
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(pairs)}

    def best(self, tokens: list) -> tuple[int, int] | None:
        found = [
            (self.ranks[pair], place) for place, pair in enumerate(itertools.pairwise(tokens)) if pair in self.ranks
        ]
        return min(found, default=None)

    def replay(self, data: bytes) -> tuple[list[Merged], list[int]]:
        tokens = [LETTERS[value] for value in data]
        merged: list[Merged] = []
        if self.whole and "".join(tokens) in self.vocab:
            return merged, [self.vocab["".join(tokens)]]
        while (found := self.best(tokens)) is not None:
            rank, place = found
            left, right = tokens[place : place + 2]
            tokens[place : place + 2] = [left + right]
            merged.append(Merged(self.bytes_of(left), self.bytes_of(right), rank, self.vocab[left + right]))
        return merged, [self.vocab[token] for token in tokens]

    @staticmethod
    def bytes_of(token: str) -> bytes:
        return bytes(byte_alphabet()[character] for character in token)


class SlowRanks:
    """The same by ranks: what two neighbors make together counts, not which two they are."""

    def __init__(self, ranks: dict[bytes, int]) -> None:
        self.ranks = ranks

    def replay(self, data: bytes) -> tuple[list[Merged], list[int]]:
        merged: list[Merged] = []
        tokens = [data] if data in self.ranks else [bytes([value]) for value in data]
        while True:
            joined = [left + right for left, right in itertools.pairwise(tokens)]
            known = [(self.ranks[token], place) for place, token in enumerate(joined) if token in self.ranks]
            if not known:
                return merged, [self.ranks[token] for token in tokens]
            rank, place = min(known)
            merged.append(Merged(*tokens[place : place + 2], rank, rank))
            tokens[place : place + 2] = [joined[place]]


def slow_twin(ours: Tokenizer) -> Slow | SlowRanks:
    if isinstance(ours, RankTokenizer):
        return SlowRanks(ours._ranks)
    assert isinstance(ours, HuggingFaceTokenizer)
    return Slow(json.loads(ours._data.decode("utf-8-sig"))["model"])


def split_ids(ours: Tokenizer, text: str) -> list[list[int]]:
    """The ids of each split, those of added tokens left out."""
    splits = ours.splits(text)
    added = ours._added.keys() if isinstance(ours, HuggingFaceTokenizer) else ours.special_ids
    pieces = [piece for piece in ours.tokens(text, add_special_tokens=False) if piece.bytes]
    groups = [[piece.id for piece in pieces if a <= piece.span[0] and piece.span[1] <= b] for a, b in splits or []]
    return [ids for ids in groups if added.isdisjoint(ids)]


@pytest.fixture(scope="module", params=[*REPLAYED, "small ranks"])
def real(request) -> tuple[Tokenizer, Slow | SlowRanks]:
    ours = spaced_words() if request.param == "small ranks" else open_real(request.param)
    return ours, slow_twin(ours)


def test_every_split_is_explained(real):
    ours, slow = real
    seen = 0
    for text in [*HARD, *hostile_texts(120, 51, list(ours.special_tokens)[:12])]:
        for ids in split_ids(ours, text):
            theirs, reached = slow.replay(ours.decode_bytes(ids))
            assert reached == ids, ascii(text)  # the slow loop is right
            assert ours.merges(ids) == theirs, ascii(text)
            seen += len(theirs)
    assert seen > 200


def test_a_long_run(real):
    """As the libraries cut it, which take another way for long splits."""
    ours, _ = real
    text = "a" * 2_000
    groups = split_ids(ours, text)
    assert [*itertools.chain(*groups)] == ours.encode(text, add_special_tokens=False)
    for ids in groups:
        merged = ours.merges(ids)
        assert merged is not None
        assert len(ours.decode_bytes(ids)) - len(merged) == len(ids) or merged == []


def test_ids_that_merges_do_not_make(real):
    ours, _ = real
    ids = ours.encode(" thxqing", add_special_tokens=False)
    assert ours.merges(ids)
    apart = [ours.encode(character, add_special_tokens=False)[0] for character in " thxqing"]
    assert ours.merges(apart) is None
    assert ours.merges([]) == []
    assert ours.merges(ids[:1]) is not None
    special = next(iter(ours.special_ids))
    assert ours.merges([special]) is None
    assert ours.merges([*ids, special]) is None
    with pytest.raises(IdRangeError, match="position 1"):
        ours.merges([ids[0], 10**7])


def test_the_comparison_can_fail(small_json):
    """The control: with two merges in each other's place, the slow loop gives another answer for some texts."""
    ours = HuggingFaceTokenizer(small_json)
    model = json.loads(small_json)["model"]
    model["merges"][0], model["merges"][1] = model["merges"][1], model["merges"][0]
    wrong, right = Slow(model), slow_twin(ours)
    groups = [ids for text in hostile_texts(100, 52) for ids in split_ids(ours, text + " the other birds")]
    assert all(ours.merges(ids) == right.replay(ours.decode_bytes(ids))[0] for ids in groups)
    assert any(ours.merges(ids) != wrong.replay(ours.decode_bytes(ids))[0] for ids in groups)


def tiny(merges: list, **settings: object) -> bytes:
    """A byte-level BPE with these merges of letters."""
    tokens = [*LETTERS.values(), *dict.fromkeys("".join(m.split(" ") if isinstance(m, str) else m) for m in merges)]
    vocab = {token: token_id for token_id, token in enumerate(dict.fromkeys(tokens))}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": vocab, "merges": merges, **settings}
    return json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": pre, "model": model}).encode()


def grow(choices: list[tuple[int, int]]) -> list[list[str]]:
    """Merges of what is there already; one may come twice, and one token may be made in several ways."""
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
def test_random_merges(merges, text, ignore_merges):
    """Ids are the library's, for any list of merges."""
    ours = HuggingFaceTokenizer(tiny(merges, ignore_merges=ignore_merges))
    ids = ours.encode(text)
    assert ours.merges(ids) == slow_twin(ours).replay(text.encode())[0]


def test_small_answers():
    ours = HuggingFaceTokenizer(tiny([["t", "h"], ["th", "e"]]))
    t, h = ours.encode("th"), ours.encode("the")
    assert ours.merges(h) == [(b"t", b"h", 0, t[0]), (b"th", b"e", 1, h[0])]
    assert ours.merges(ours.encode("é")) == []  # two bytes that no merge joins
    assert HuggingFaceTokenizer(tiny(["t h", "th e"])).merges(h) == ours.merges(h)  # the older way to write merges
    assert HuggingFaceTokenizer(tiny(["t h", "th e"], dropout=0.9)).merges(h) == ours.merges(h)
    ranks = {token: rank for rank, token in enumerate(many_merges())}
    by_rank = RankTokenizer(ranks, r"[\s\S]+", {})
    assert by_rank.merges([ranks[b"123"], ranks[b"4"]]) is None  # 1234 is a token: taken whole
    assert by_rank.merges([ranks[b"1234"]]) == []
    assert by_rank.merges(by_rank.encode("thx")) == [(b"t", b"h", ranks[b"th"], ranks[b"th"])]


def test_a_word_taken_whole():
    """With `ignore_merges` a token that no merges make is an answer, and has none."""
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


def test_kinds_without_byte_merges(small_json):
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


def test_a_gguf_merges_like_its_file(small_json):
    ours = open_gguf_tokenizer(same(fields_of_json(small_json, "gpt-2")), where="gguf")
    theirs = HuggingFaceTokenizer(small_json)
    groups = [ids for text in hostile_texts(100, 53, ["<s>"]) for ids in split_ids(theirs, text)]
    assert any(theirs.merges(ids) for ids in groups)
    for ids in groups:
        assert ours.merges(ids) == theirs.merges(ids) is not None


def test_a_long_split_stays_cheap():
    """Pairs looked at grow with the bytes, not with their square."""
    merges = json_merges(json.loads(tiny(grow([(0, 0), (2, 2), (3, 3), (4, 4)])))["model"])
    assert merges is not None
    looked = 0

    def join(left: int, right: int) -> tuple[int, int] | None:
        nonlocal looked
        looked += 1
        return merges.join(left, right)

    counting = Merges(byte_ids=merges.byte_ids, join=join, whole=merges.whole)
    replayed = counting.replay(b"a" * 10_000)
    assert replayed is not None
    assert len(replayed[1]) == 625
    assert looked < 60_000


def test_a_split_too_long_is_not_replayed(monkeypatch):
    ours = HuggingFaceTokenizer(tiny([["a", "a"]]))
    monkeypatch.setattr(merges_module, "LONGEST", 10)
    assert len(ours.merges(ours.encode("a" * 10)) or []) == 5
    assert ours.merges(ours.encode("a" * 11)) is None


def test_a_byte_without_a_token():
    config = json.loads(tiny([["a", "b"]]))
    del config["model"]["vocab"]["c"]
    config["model"]["vocab"]["<unk>"] = 999
    config["model"]["unk_token"] = "<unk>"
    ours = HuggingFaceTokenizer(json.dumps(config).encode())
    assert ours.encode("abc")[-1] == 999
    assert ours.merges(ours.encode("abc")) is None
    assert len(ours.merges(ours.encode("abd")) or []) == 1


def test_the_file_is_read_once(small_json, monkeypatch):
    read = []
    monkeypatch.setattr(huggingface_module, "json_merges", lambda model: read.append(1) or json_merges(model))
    ours = HuggingFaceTokenizer(small_json)
    ids = ours.encode(" the")
    assert read == []
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ours.merges(ids), range(16)))
    assert answers == [ours.merges(ids)] * 16 != [None] * 16
    assert read == [1]

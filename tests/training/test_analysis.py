"""What was learned, against plain loops; and that a table of any kind can be told about."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import inlayer
from inlayer.errors import InputError, ShapeError
from inlayer.tokenizers import Tokenizer, WordTokenizer
from inlayer.training import learned as module
from inlayer.training.analysis import Drift, Learned, what_was_learned

ROWS, WIDTH, PADDING, ZERO = 40, 6, 7, 11


def random_tables(seed: int = 0) -> tuple[Tensor, Tensor, np.ndarray]:
    """A table, the same later, and counts: with ties, and ten ids that were never seen."""
    random = torch.Generator().manual_seed(seed)
    before, moved = torch.randn(2, ROWS, WIDTH, generator=random)
    after = 1.5 * before + moved
    before[PADDING], after[PADDING] = 0, 0
    before[ZERO] = 0
    counts = torch.randint(1, 9, (ROWS,), generator=random).numpy()
    counts[::4] = 0
    return before, after, counts


def words(*names: str) -> WordTokenizer:
    return WordTokenizer(list(names))


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("bpe")
    (folder / "text.txt").write_text("the dogs and sands of love\n" * 50 + "and, of the dogs\n" * 50)
    inlayer.train_bpe([folder / "text.txt"], 277, folder / "made", special_tokens=["<pad>", "stop"])
    return inlayer.open_tokenizer(folder / "made")


def id_of(tokenizer: Tokenizer, text: str) -> int:
    (found,) = tokenizer.encode(text)
    return found


# ---- drift


def length(row: list[float]) -> float:
    return math.sqrt(sum(value * value for value in row))


def mean(values: list[float]) -> float | None:
    kept = [value for value in values if math.isfinite(value)]
    return sum(kept) / len(kept) if kept else None


def slow_drift(before: Tensor, after: Tensor, ids: list[int]) -> dict[str, float | None]:
    """One row after the other."""
    cosines, movements, olds, news = [], [], [], []
    for token_id in ids:
        old, new = before[token_id].tolist(), after[token_id].tolist()
        a, b = length(old), length(new)
        olds.append(a)
        news.append(b)
        if a and math.isfinite(b):
            movements.append(length([y - x for x, y in zip(old, new, strict=True)]) / a)
            if b:
                cosines.append(sum(x * y for x, y in zip(old, new, strict=True)) / (a * b))
    return {"cosine": mean(cosines), "movement": mean(movements), "norm_before": mean(olds), "norm_after": mean(news)}


def slow_groups(counts: np.ndarray, padding: int | None) -> dict[str, list[int]]:
    order = sorted((i for i in range(len(counts)) if i != padding), key=lambda i: (-counts[i], i))
    seen = [i for i in order if counts[i]]
    groups, rest = {"all rows": order}, list(seen)
    for place, name in enumerate(module.QUARTERS):
        size = len(seen) // 4 + (place < len(seen) % 4)
        groups[name], rest = rest[:size], rest[size:]
    groups["never seen"] = [i for i in order if not counts[i]]
    return {name: ids for name, ids in groups.items() if ids}


def numbers(drift: Drift) -> dict[str, float | None]:
    return {name: getattr(drift, name) for name in ("cosine", "movement", "norm_before", "norm_after")}


@pytest.mark.parametrize("broken", [None, math.nan, math.inf])
@pytest.mark.parametrize("padding", [None, PADDING])
def test_drift_against_a_plain_loop(padding: int | None, broken: float | None) -> None:
    before, after, counts = random_tables()
    if broken is not None:
        after[3, 2] = broken
    ours = what_was_learned(before, after, counts, inlayer.ByteTokenizer(), padding_idx=padding)
    theirs = slow_groups(counts, padding)
    assert [one.name for one in ours.drift] == list(theirs)
    for one, ids in zip(ours.drift, theirs.values(), strict=True):
        assert numbers(one) == pytest.approx(slow_drift(before, after, ids), rel=1e-6)
        assert (one.rows, one.least, one.most) == (len(ids), counts[ids].min(), counts[ids].max())
        assert one.share == pytest.approx(counts[ids].sum() / counts.sum())
    assert ours.broken == (broken is not None)


def test_the_comparison_can_fail() -> None:
    before, after, counts = random_tables()
    told = what_was_learned(before, after, counts, inlayer.ByteTokenizer()).drift
    after[5] += 0.1
    for one, ids in zip(told, slow_groups(counts, None).values(), strict=True):
        theirs = slow_drift(before, after, ids)
        assert (numbers(one) == pytest.approx(theirs, rel=1e-6)) == (5 not in ids)


@pytest.mark.parametrize("padding", [None, PADDING])
def test_mean_row_ratio(padding: int | None) -> None:
    before, after, counts = random_tables()
    ours = what_was_learned(before, after + 3, counts, inlayer.ByteTokenizer(), padding_idx=padding)
    for table, ratio in ((before, ours.mean_row_ratio_before), (after + 3, ours.mean_row_ratio_after)):
        kept = torch.stack([row for token_id, row in enumerate(table) if token_id != padding])
        assert ratio == pytest.approx(float(kept.mean(0).norm() / kept.norm(dim=1).mean()), rel=1e-5)
    assert ours.mean_row_ratio_before < 0.5 < ours.mean_row_ratio_after  # type: ignore[operator]
    same = what_was_learned(torch.ones(5, 3), torch.ones(5, 3), np.ones(5), inlayer.ByteTokenizer())
    assert same.mean_row_ratio_after == pytest.approx(1)
    assert numbers(same.drift[0]) == pytest.approx(
        {"cosine": 1, "movement": 0, "norm_before": 3**0.5, "norm_after": 3**0.5}
    )


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, counts = random_tables()
    whole = what_was_learned(before, after, counts, inlayer.ByteTokenizer(), padding_idx=PADDING)
    monkeypatch.setattr(module, "BLOCK_VALUES", 3 * WIDTH)
    parts = what_was_learned(before, after, counts, inlayer.ByteTokenizer(), padding_idx=PADDING)
    assert [numbers(one) for one in parts.drift] == [pytest.approx(numbers(one)) for one in whole.drift]
    assert parts.mean_row_ratio_after == pytest.approx(whole.mean_row_ratio_after)
    assert [[near.id for near in word.after] for word in parts.words] == [
        [near.id for near in word.after] for word in whole.words
    ]


# ---- words and their neighbors


def test_neighbors_before_and_after() -> None:
    tokenizer = words("cat", "dog", "sea", "sky", "<pad>")
    before = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.9, 0, 0.1], [0, 0.9, 0.1], [0, 0, 0]])
    after = torch.tensor([[1.0, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.1], [0, 0, 0]])
    told = what_was_learned(before, after, np.array([9, 8, 7, 6, 5]), tokenizer, padding_idx=4, k=1)
    assert [(one.label, one.count) for one in told.words] == [("cat", 9), ("dog", 8), ("sea", 7), ("sky", 6)]
    assert [one.before[0].label for one in told.words] == ["sea", "sky", "cat", "dog"]
    assert [one.after[0].label for one in told.words] == ["dog", "cat", "sky", "sea"]
    assert told.words[0].after[0].cosine == pytest.approx(0.9 / math.sqrt(0.82))
    assert told.words[0].after[0].id == 1


def test_a_row_that_points_nowhere_has_no_neighbors() -> None:
    before, after, counts = random_tables()
    told = what_was_learned(before, after, counts, inlayer.ByteTokenizer(), words=ROWS, k=3)
    by_id = {one.id: one for one in told.words}
    assert by_id[ZERO].before == ()
    assert len(by_id[ZERO].after) == 3
    assert all(near.id not in (one.id, ZERO, PADDING) for one in told.words for near in one.before)


def counts_of(tokenizer: Tokenizer, texts: dict[str, int]) -> np.ndarray:
    counts = np.zeros(tokenizer.get_vocab_size(), np.int64)
    for text, count in texts.items():
        counts[id_of(tokenizer, text)] = count
    return counts


def chosen(counts: np.ndarray, tokenizer: Tokenizer, **settings: Any) -> list[str]:
    table = torch.randn(len(counts), 4, generator=torch.Generator().manual_seed(0))
    return [one.label for one in what_was_learned(table, table, counts, tokenizer, **settings).words]


def test_whole_words_first(bpe: Tokenizer) -> None:
    counts = counts_of(
        bpe, {" the": 50, ",": 900, " of": 800, "and": 700, " dogs": 3, "\n": 600, "q": 500, " love": 20}
    )
    assert chosen(counts, bpe, words=3) == [" the", " love", " dogs"]
    assert chosen(counts, bpe, words=4) == ["and", " the", " love", " dogs"]
    assert set(chosen(counts, bpe, words=6)) == {"and", " the", " love", " dogs", " of", "q"}
    assert len(chosen(counts, bpe)) == 8
    assert chosen(counts, bpe, words=0) == []
    assert chosen(counts, bpe, words=3, padding_idx=id_of(bpe, " the")) == ["and", " love", " dogs"]
    for special in bpe.special_ids:
        counts[special] = 10**6
    assert chosen(counts, bpe, words=4) == ["and", " the", " love", " dogs"]  # "stop" is special, though a word
    assert set(chosen(counts, bpe, words=99)).isdisjoint(bpe.special_tokens)


def test_bytes_are_letters_first() -> None:
    counts = np.zeros(256, np.int64)
    counts[list(b"eta \n,.")] = [50, 40, 30, 99, 98, 97, 96]
    counts[0xAB] = 95  # no character by itself, though its digits are letters
    assert chosen(counts, inlayer.ByteTokenizer(), words=3) == ["e", "t", "a"]
    assert chosen(counts, inlayer.ByteTokenizer(), words=4) == [" ", "e", "t", "a"]
    assert "ab" in chosen(counts, inlayer.ByteTokenizer())


def test_a_space_may_be_written_otherwise() -> None:
    tokenizer = words("▁the", "▁of", "and", "▁", "##ing", "▁sea")
    assert chosen(np.array([1, 9, 8, 7, 6, 2]), tokenizer, words=2) == ["▁sea", "▁the"]
    assert chosen(np.array([1, 9, 8, 7, 6, 2]), tokenizer, words=3) == ["and", "▁sea", "▁the"]


def test_nothing_was_seen() -> None:
    before, after, counts = random_tables()
    told = what_was_learned(before, after, 0 * counts, inlayer.ByteTokenizer())
    assert told.words == ()
    assert [(one.name, one.rows, one.share) for one in told.drift] == [("all rows", ROWS, 0), ("never seen", ROWS, 0)]


def test_rows_past_the_vocabulary_have_a_number() -> None:
    table = torch.eye(4)
    told = what_was_learned(table, table, np.array([1]), words("one"), k=3)
    assert sorted(near.label for near in told.words[0].after) == ["#1", "#2", "#3"]


@given(st.integers(0, 100), st.integers(0, 20))
def test_words_are_spread_over_the_frequent_ones(size: int, wanted: int) -> None:
    ranks = module._spread(list(range(size)), wanted)
    assert len(ranks) == min(size, wanted)
    assert ranks == sorted(set(ranks))
    if ranks:
        assert ranks[0] == 0
    if wanted > 1 and ranks:
        assert ranks[-1] == size - 1


# ---- whatever comes


def strict(told: Learned) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(asdict(told), allow_nan=False))
    return made


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38, 0.0])
def test_a_diverged_table_can_be_told_about(value: float) -> None:
    before, after, counts = random_tables()
    told = what_was_learned(before, torch.full_like(after, value), counts, inlayer.ByteTokenizer(), padding_idx=PADDING)
    made = strict(told)
    assert told.broken == (0 if math.isfinite(value) else ROWS - 1)
    assert made["drift"][0]["norm_before"] > 0
    assert (made["drift"][0]["cosine"] is None) == (value != 3e38)
    assert (made["mean_row_ratio_after"] is None) == (value != 3e38)


def test_other_kinds_of_numbers() -> None:
    before, after, counts = random_tables()
    whole = what_was_learned(before.bfloat16(), after.bfloat16(), counts, inlayer.ByteTokenizer())
    parameter = torch.nn.Parameter(after.bfloat16())
    again = what_was_learned(before.bfloat16(), parameter, torch.from_numpy(counts), inlayer.ByteTokenizer())
    assert strict(again) == strict(whole)
    shorter = what_was_learned(before, after, counts[:20], inlayer.ByteTokenizer())
    filled = np.where(np.arange(ROWS) < 20, counts, 0)
    assert shorter == what_was_learned(before, after, filled, inlayer.ByteTokenizer())


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"counts_V": np.zeros(41)}, ShapeError, r"counts has shape \(41,\).* 40 rows"),
        ({"counts_V": np.zeros((40, 1))}, ShapeError, r"counts has shape \(40, 1\)"),
        ({"padding_idx": 40}, InputError, r"padding_idx is 40; the table has the rows 0\.\.39"),
        ({"padding_idx": -1}, InputError, "padding_idx is -1"),
        ({"words": -1}, InputError, "words is -1"),
        ({"k": -2}, InputError, "k is -2"),
    ],
)
def test_refusals(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    before, after, counts = random_tables()
    given = {"before_VD": before, "after_VD": after, "counts_V": counts, "tokenizer": inlayer.ByteTokenizer()}
    with pytest.raises(error, match=message):
        what_was_learned(**{**given, **changed})

"""Comparison of tables before and after training, checked against plain loops; any table can be compared."""

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
from inlayer.tokenizers import Tokenizer, WordTokenizer
from inlayer.training import analysis as module
from inlayer.training.analysis import RowChange, TableComparison, compare_before_and_after

ROWS, WIDTH, PADDING, ZERO = 40, 6, 7, 11


def random_tables(seed: int = 0) -> tuple[Tensor, Tensor, np.ndarray]:
    """A table before and after, and counts with ties and ten unseen ids."""
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


# ---- rows


def norm(row: list[float]) -> float:
    return math.sqrt(sum(value * value for value in row))


def mean(values: list[float]) -> float | None:
    kept = [value for value in values if math.isfinite(value)]
    return sum(kept) / len(kept) if kept else None


def slow_change(before: Tensor, after: Tensor, ids: list[int]) -> dict[str, float | None]:
    """Means over rows, one row at a time."""
    cosines, distances, olds, news = [], [], [], []
    for token_id in ids:
        old, new = before[token_id].tolist(), after[token_id].tolist()
        a, b = norm(old), norm(new)
        olds.append(a)
        news.append(b)
        if a and math.isfinite(b):
            distances.append(norm([y - x for x, y in zip(old, new, strict=True)]) / a)
            if b:
                cosines.append(sum(x * y for x, y in zip(old, new, strict=True)) / (a * b))
    return {"cosine": mean(cosines), "distance": mean(distances), "norm_before": mean(olds), "norm_after": mean(news)}


def slow_groups(counts: np.ndarray, padding: int | None) -> dict[str, list[int]]:
    order = sorted((i for i in range(len(counts)) if i != padding), key=lambda i: (-counts[i], i))
    seen = [i for i in order if counts[i]]
    groups, rest = {"all rows": order}, list(seen)
    for number, name in enumerate(module.QUARTERS):
        size = len(seen) // 4 + (number < len(seen) % 4)
        groups[name], rest = rest[:size], rest[size:]
    groups["never seen"] = [i for i in order if not counts[i]]
    return {name: ids for name, ids in groups.items() if ids}


def numbers(change: RowChange) -> dict[str, float | None]:
    return {name: getattr(change, name) for name in ("cosine", "distance", "norm_before", "norm_after")}


@pytest.mark.parametrize("broken", [None, math.nan, math.inf])
@pytest.mark.parametrize("padding", [None, PADDING])
def test_change_matches_a_plain_loop(padding: int | None, broken: float | None) -> None:
    before, after, counts = random_tables()
    if broken is not None:
        after[3, 2] = broken
    ours = compare_before_and_after(before, after, counts, inlayer.ByteTokenizer(), padding_idx=padding)
    theirs = slow_groups(counts, padding)
    assert [group.name for group in ours.groups] == list(theirs)
    for group, ids in zip(ours.groups, theirs.values(), strict=True):
        assert numbers(group) == pytest.approx(slow_change(before, after, ids), rel=1e-6)
        assert group.rows == len(ids)
        assert group.share == pytest.approx(counts[ids].sum() / counts.sum())
    assert ours.nonfinite_rows == (broken is not None)


def test_comparison_detects_a_changed_row() -> None:
    before, after, counts = random_tables()
    result = compare_before_and_after(before, after, counts, inlayer.ByteTokenizer()).groups
    after[5] += 0.1
    for group, ids in zip(result, slow_groups(counts, None).values(), strict=True):
        theirs = slow_change(before, after, ids)
        assert (numbers(group) == pytest.approx(theirs, rel=1e-6)) == (5 not in ids)


@pytest.mark.parametrize("padding", [None, PADDING])
def test_mean_vector_ratio(padding: int | None) -> None:
    before, after, counts = random_tables()
    ours = compare_before_and_after(before, after + 3, counts, inlayer.ByteTokenizer(), padding_idx=padding)
    for table, ratio in ((before, ours.mean_vector_ratio_before), (after + 3, ours.mean_vector_ratio_after)):
        kept = torch.stack([row for token_id, row in enumerate(table) if token_id != padding])
        assert ratio == pytest.approx(float(kept.mean(0).norm() / kept.norm(dim=1).mean()), rel=1e-5)
    assert ours.mean_vector_ratio_before < 0.5 < ours.mean_vector_ratio_after  # type: ignore[operator]
    same = compare_before_and_after(torch.ones(5, 3), torch.ones(5, 3), np.ones(5, np.int64), inlayer.ByteTokenizer())
    assert same.mean_vector_ratio_after == pytest.approx(1)
    assert numbers(same.groups[0]) == pytest.approx(
        {"cosine": 1, "distance": 0, "norm_before": 3**0.5, "norm_after": 3**0.5}
    )


def test_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after, counts = random_tables()
    whole = compare_before_and_after(before, after, counts, inlayer.ByteTokenizer(), padding_idx=PADDING)
    monkeypatch.setattr(module, "BLOCK_VALUES", 3 * WIDTH)
    parts = compare_before_and_after(before, after, counts, inlayer.ByteTokenizer(), padding_idx=PADDING)
    assert [numbers(group) for group in parts.groups] == [pytest.approx(numbers(group)) for group in whole.groups]
    assert parts.mean_vector_ratio_after == pytest.approx(whole.mean_vector_ratio_after)
    assert [[near.id for near in word.after] for word in parts.tokens] == [
        [near.id for near in word.after] for word in whole.tokens
    ]


# ---- tokens and their neighbors


def test_neighbors_before_and_after() -> None:
    tokenizer = words("cat", "dog", "sea", "sky", "<pad>")
    before = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.9, 0, 0.1], [0, 0.9, 0.1], [0, 0, 0]])
    after = torch.tensor([[1.0, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.1], [0, 0, 0]])
    result = compare_before_and_after(before, after, np.array([9, 8, 7, 6, 5]), tokenizer, padding_idx=4, k=1)
    assert [(compared.token, compared.count) for compared in result.tokens] == [
        ("cat", 9),
        ("dog", 8),
        ("sea", 7),
        ("sky", 6),
    ]
    assert [compared.before[0].token for compared in result.tokens] == ["sea", "sky", "cat", "dog"]
    assert [compared.after[0].token for compared in result.tokens] == ["dog", "cat", "sky", "sea"]
    assert result.tokens[0].after[0].cosine == pytest.approx(0.9 / math.sqrt(0.82))
    assert result.tokens[0].after[0].id == 1


def test_zero_row_has_no_neighbors() -> None:
    before, after, counts = random_tables()
    result = compare_before_and_after(before, after, counts, inlayer.ByteTokenizer(), tokens=ROWS, k=3)
    by_id = {compared.id: compared for compared in result.tokens}
    assert by_id[ZERO].before == ()
    assert len(by_id[ZERO].after) == 3
    assert all(near.id not in (compared.id, ZERO, PADDING) for compared in result.tokens for near in compared.before)


def counts_of(tokenizer: Tokenizer, texts: dict[str, int]) -> np.ndarray:
    counts = np.zeros(tokenizer.get_vocab_size(), np.int64)
    for text, count in texts.items():
        counts[id_of(tokenizer, text)] = count
    return counts


def chosen(counts: np.ndarray, tokenizer: Tokenizer, **settings: Any) -> list[str]:
    table = torch.randn(len(counts), 4, generator=torch.Generator().manual_seed(0))
    return [compared.token for compared in compare_before_and_after(table, table, counts, tokenizer, **settings).tokens]


def test_whole_words_come_first(bpe: Tokenizer) -> None:
    counts = counts_of(
        bpe, {" the": 50, ",": 900, " of": 800, "and": 700, " dogs": 3, "\n": 600, "q": 500, " love": 20}
    )
    assert chosen(counts, bpe, tokens=3) == [" the", " love", " dogs"]
    assert chosen(counts, bpe, tokens=4) == ["and", " the", " love", " dogs"]
    assert set(chosen(counts, bpe, tokens=6)) == {"and", " the", " love", " dogs", " of", "q"}
    assert len(chosen(counts, bpe)) == 8
    assert chosen(counts, bpe, tokens=0) == []
    assert chosen(counts, bpe, tokens=3, padding_idx=id_of(bpe, " the")) == ["and", " love", " dogs"]
    for special in bpe.special_ids:
        counts[special] = 10**6
    assert chosen(counts, bpe, tokens=4) == ["and", " the", " love", " dogs"]  # "stop" is a word, but special
    assert set(chosen(counts, bpe, tokens=99)).isdisjoint(bpe.special_tokens)


def test_letters_come_first_among_bytes() -> None:
    counts = np.zeros(256, np.int64)
    counts[list(b"eta \n,.")] = [50, 40, 30, 99, 98, 97, 96]
    counts[0xAB] = 95  # not a character by itself, but its hex digits are letters
    assert chosen(counts, inlayer.ByteTokenizer(), tokens=3) == ["e", "t", "a"]
    assert chosen(counts, inlayer.ByteTokenizer(), tokens=4) == [" ", "e", "t", "a"]
    assert "\\xab" in chosen(counts, inlayer.ByteTokenizer())


def test_sentencepiece_space() -> None:
    tokenizer = words("▁the", "▁of", "and", "▁", "##ing", "▁sea")
    assert chosen(np.array([1, 9, 8, 7, 6, 2]), tokenizer, tokens=2) == ["▁sea", "▁the"]
    assert chosen(np.array([1, 9, 8, 7, 6, 2]), tokenizer, tokens=3) == ["and", "▁sea", "▁the"]


def test_text_without_tokens() -> None:
    before, after, counts = random_tables()
    result = compare_before_and_after(before, after, 0 * counts, inlayer.ByteTokenizer())
    assert result.tokens == ()
    assert [(group.name, group.rows, group.share) for group in result.groups] == [
        ("all rows", ROWS, 0),
        ("never seen", ROWS, 0),
    ]


def test_rows_without_a_token_show_their_id() -> None:
    table = torch.eye(4)
    result = compare_before_and_after(table, table, np.array([1, 0, 0, 0]), words("one"), k=3)
    assert sorted(near.token for near in result.tokens[0].after) == ["#1", "#2", "#3"]


@given(st.integers(0, 100), st.integers(0, 20))
def test_tokens_are_spread_over_frequencies(size: int, wanted: int) -> None:
    ranks = module._spread(list(range(size)), wanted)
    assert len(ranks) == min(size, wanted)
    assert ranks == sorted(set(ranks))
    if ranks:
        assert ranks[0] == 0
    if wanted > 1 and ranks:
        assert ranks[-1] == size - 1


# ---- special values and errors


def strict(result: TableComparison) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(json.dumps(asdict(result), allow_nan=False))
    return parsed


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38, 0.0])
def test_diverged_table(value: float) -> None:
    before, after, counts = random_tables()
    result = compare_before_and_after(
        before, torch.full_like(after, value), counts, inlayer.ByteTokenizer(), padding_idx=PADDING
    )
    values = strict(result)
    assert result.nonfinite_rows == (0 if math.isfinite(value) else ROWS - 1)
    assert values["groups"][0]["norm_before"] > 0
    assert (values["groups"][0]["cosine"] is None) == (value != 3e38)
    assert (values["mean_vector_ratio_after"] is None) == (value != 3e38)


def test_other_dtypes() -> None:
    before, after, counts = random_tables()
    whole = compare_before_and_after(before.bfloat16(), after.bfloat16(), counts, inlayer.ByteTokenizer())
    parameter = torch.nn.Parameter(after.bfloat16())
    again = compare_before_and_after(before.bfloat16(), parameter, counts, inlayer.ByteTokenizer())
    assert strict(again) == strict(whole)

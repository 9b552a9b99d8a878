"""The benchmarks' own arithmetic: ratios, targets, and one JSON line a result. Speed itself is never tested."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from benchmarks import measure
from benchmarks.__main__ import NAMES


def test_a_ratio_says_whether_its_target_is_met() -> None:
    slow, fast = [3.0, 4.0, 8.0], [1.0, 2.0, 2.0]
    one = measure.ratio("slow / fast", slow, fast, at_least=3.0)
    assert (one.value, one.best, one.met) == (2.0, 3.0, False)
    assert measure.ratio("slow / fast", slow, fast, at_most=2.0).met
    assert measure.ratio("slow / fast", slow, fast).met is None


def test_peers_take_turns() -> None:
    calls: list[str] = []
    seconds = measure.interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2, warm_up=1)
    assert calls == ["a", "b"] * 3
    assert [len(one) for one in seconds.values()] == [2, 2]  # the warm-up does not count


def test_a_result_is_one_line_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "OUT", tmp_path)
    one = measure.ratio("ours / theirs", [1.0], [2.0], at_most=0.4)
    result = measure.Result(name="example", ratios=[one], measured={}, sizes={"rows": 3})
    line = measure.as_json(result)
    assert "\n" not in line
    assert json.loads(line)["ratios"]["ours / theirs"] == {
        "median": 0.5, "fastest": 0.5, "target": "at most 0.4", "met": False,
    }  # fmt: skip
    assert measure.draw(result).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_is_there(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)

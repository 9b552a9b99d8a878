"""Tables fit the terminal, and numbers are complete at any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from inlayer.render.fitted_table import fitted_table, natural_width

TITLES = ("word similarity", "pairs", "Spearman", "random rows", "norm")
ROWS = [("wordsim353-relatedness", "1,252", "0.412", "-0.012", "0.43 → 5.54"), ("men", "3", "0.5", "-", "1 → 2")]


def rendered(width: int) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width)
    console.print(fitted_table(TITLES, ROWS, width))
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 36, 40, 50, 60, 80, 120])
def test_nothing_is_truncated(width: int) -> None:
    lines = rendered(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    assert {"1,252", "0.412", "-0.012", "5.54"} <= {*text.split()}
    assert "wordsim353-relatedness" in text or len(lines) > 3  # divided, as it does not fit


def test_a_wide_terminal_divides_nothing() -> None:
    width = natural_width(TITLES, ROWS)
    lines = rendered(width)
    assert len(lines) == 1 + len(ROWS)
    assert max(map(len, lines)) == width
    assert len(rendered(width - 1)) > len(lines)

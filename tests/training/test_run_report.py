"""The report is complete, fits its width, and untrusted text cannot act in it.

In Chromium: tests/browser/test_training.py.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from inlayer.render.glyphs import LEFT_TO_RIGHT
from inlayer.training.analysis import RowChange, TableComparison, TokenComparison, TokenNeighbor
from inlayer.training.plot import smooth_loss
from inlayer.training.run_report import GeneratedText, TrainingReport, show, to_html, to_json
from tests.training.metrics import make_metrics

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = [
    "", " ", "<script>alert(1)</script>", "</style><script>x</script>", "</title>", '"><img src=x onerror=alert(1)>',
    "\x1b[31mred\x1b]0;title\x07\x9b2J", "a\nb\r\nc\td\0\x7f\x85\u2028", "日本語 ｆｕｌｌ 한국어", "مرحبا بالعالم 123",
    "\u202eevil\u202c \u2066x\u2069 \u200f", "Z" + "\u0353" * 40, "👩\u200d👩\u200d👧 👍🏽 🇩🇪",
    "[bold]x[/bold] :smile:", "\ufffd\ufeff\U000e0041\u00ad", "x" * 5000, "word " * 400, "{{title}} {0} %s",
    "&lt;b&gt; &amp;", "javascript:alert(1)", "\udc80 alone",
]  # fmt: skip


def make_table(*labels: str, nonfinite: int = 0) -> TableComparison:
    near = tuple(
        TokenNeighbor(id=n, token=label, cosine=0.9 - 0.1 * n) for n, label in enumerate((*labels, " cat", "ing"))
    )
    tokens = [
        TokenComparison(id=n, token=label, count=5 - n, before=near[::-1], after=near)
        for n, label in enumerate((*labels, " dog"))
    ]
    change = {"cosine": 0.31, "distance": 4.5, "norm_before": 0.16, "norm_after": 1.25}
    groups = [("all rows", 4000, 1.0), ("most frequent quarter", 12345, 0.905), ("never seen", 17, 0.0)]
    return TableComparison(
        tokens=tuple(tokens),
        groups=tuple(RowChange(name=n, rows=r, share=share, **change) for n, r, share in groups),
        mean_vector_ratio_before=0.0125,
        mean_vector_ratio_after=0.625,
        nonfinite_rows=nonfinite,
    )


def make_report(
    text: str = " plain", *, steps: int = 300, metrics: list[dict[str, Any]] | None = None
) -> TrainingReport:
    """A report with a text in every field that can contain untrusted text."""
    return TrainingReport.from_metrics(
        make_metrics(steps) if metrics is None else metrics,
        name=f"run {text}",
        model={
            "architecture": "gpt",
            "vocab_size": 4096,
            "n_embd": 64,
            "n_layer": 2,
            "tie": True,
            "input_scale": 50.0,
            "parameters": 362_496,
        },
        settings={
            "learning_rate": 3e-3,
            "files": [text],
            text: text,
            "seed": 0,
            "untie_at": None,
            "center": True,
            "device": "cpu",
        },
        table=make_table(text),
        generated_text=GeneratedText(prompt=f"Once {text}", text=f"upon\na time {text}"),
        warnings=(f"the mean row is long: {text}",),
    )


def printed(report: TrainingReport, columns: int = 80, *, encoding: str = "utf-8", color: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    show(report, Console(file=file, width=columns, color_system="truecolor" if color else None, force_terminal=color))
    file.flush()
    return raw.getvalue().decode(encoding)


# ---- data


def test_report_summarizes_metrics() -> None:
    metrics = make_metrics(300)
    report = make_report(metrics=metrics)
    smoothed = smooth_loss([line["loss"] for line in metrics])
    assert report.training_loss is not None
    assert report.validation_loss is not None
    assert (report.steps, report.tokens, report.seconds) == (300, 307_200, 37.5)
    assert report.tokens_per_second == 8192
    assert (report.training_loss.first, report.training_loss.last) == (metrics[0]["loss"], smoothed[-1])
    assert report.training_loss.best == min(smoothed) == smoothed[report.training_loss.best_step - 1]
    losses = [line["validation_loss"] for line in metrics if "validation_loss" in line]
    assert (report.validation_loss.first, report.validation_loss.last, report.validation_loss.best) == (
        losses[0],
        losses[-1],
        min(losses),
    )
    assert report.validation_loss.best_step == 300


def test_diverged_run() -> None:
    metrics = make_metrics(50)
    metrics[-1]["loss"] = None
    report = make_report(metrics=metrics)
    assert report.training_loss is not None
    assert report.training_loss.last is None
    assert report.validation_loss is None
    assert f"{metrics[0]['loss']:.3f} → not finite; best" in printed(report)
    lost = make_report(metrics=[{**line, "loss": math.nan} for line in metrics])
    assert lost.training_loss is None
    assert "never finite" in printed(lost)
    nothing = make_report(metrics=[])
    assert (nothing.steps, nothing.tokens, nothing.tokens_per_second) == (0, 0, None)
    assert "0 steps, 0 tokens in 0.0 s" in printed(nothing)


@pytest.mark.parametrize(("last", "rises"), [(3.146, ""), (3.24, ""), (4.376, "1.23"), (math.nan, "")])
def test_overfitting_is_a_warning(last: float, rises: str) -> None:
    metrics = make_metrics(300)
    for step, loss in ((100, 3.146), (200, 3.9), (300, last)):
        metrics[step - 1]["validation_loss"] = loss
    report = make_report(metrics=metrics)
    assert len(report.warnings) == (2 if rises else 1)
    warning = f"validation loss is {rises} above its best at step 100: overfitting; the saved model has the weights of "
    warning += "step 300"
    for shown in (printed(report), " ".join(Tags(to_html(report, None)).words)):
        assert (warning in " ".join(shown.split())) == bool(rises)


def test_gap_between_training_and_validation_is_a_warning() -> None:
    metrics = make_metrics(300)
    for step, loss in ((100, 5.2), (200, 5.131), (300, 5.16)):  # too close to its best for the other warning
        metrics[step - 1]["validation_loss"] = loss
    report = make_report(metrics=metrics)
    assert report.training_loss is not None
    gap = 5.16 - (report.training_loss.last or 0.0)
    assert gap > 1
    assert report.warnings[1].startswith(
        f"validation loss is {gap:.2f} above the training loss: overfitting; the saved"
    )
    assert len(make_report().warnings) == 1  # control


@pytest.mark.parametrize(("steps", "averaged"), [(99, 1), (300, 4)])
def test_smoothed_loss_is_labeled_as_a_mean(steps: int, averaged: int) -> None:
    metrics = make_metrics(steps)
    report = make_report(metrics=metrics)
    assert report.training_loss is not None
    last = math.fsum(line["loss"] for line in metrics[-averaged:]) / averaged
    assert report.training_loss.last == pytest.approx(last)
    label = (
        f" → {last:.3f} (mean of the last {averaged} steps); best mean " if averaged > 1 else f" → {last:.3f}; best "
    )
    for shown in (printed(report, 120), " ".join(Tags(to_html(report, None)).words)):
        assert label in " ".join(shown.split())


def test_json_is_strict() -> None:
    report = make_report()
    made = json.loads(to_json(report))
    assert made["training_loss"]["last"] == report.training_loss.last  # type: ignore[union-attr]
    assert made["table"]["tokens"][0]["after"][0] == {"id": 0, "token": " plain", "cosine": 0.9}
    assert made["settings"]["files"] == [" plain"]
    assert made["generated_text"] == {"prompt": "Once  plain", "text": "upon\na time  plain"}
    odd = replace(report, seconds=math.inf, model={"a": math.nan, "b": (1, -math.inf), "c": Path("x")})
    assert "NaN" not in to_json(odd)
    made = json.loads(to_json(odd), parse_constant=pytest.fail)
    assert (made["seconds"], made["model"]) == (None, {"a": None, "b": [1, None], "c": "x"})
    assert to_json(make_report("\udc80 日本")).isascii()  # lone surrogates are escaped


# ---- the terminal


def check_lines(text: str, columns: int) -> None:
    for line in text.split("\n"):
        assert cell_len(line) <= columns, line
        for character in line:
            if character != LEFT_TO_RIGHT:
                assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), ascii(line)


def lines_of_neighbors(shown: str) -> list[str]:
    """The lines from the first neighbors of a token to the next heading, without those of tokens."""
    lines = shown.partition("nearest neighbors")[2].partition("how the rows changed")[0].splitlines()[1:-2]
    return [line for line in lines if "in the text" not in line]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_terminal_shows_everything(columns: int) -> None:
    shown = printed(make_report(), columns)
    check_lines(shown, columns)
    flat = " ".join(shown.split())
    for part in (
        "gpt, table of 4,096 rows x 64, 2 layers, tied head, 362,496 parameters",
        "folder run plain",
        "300 steps, 307,200 tokens in 37.5 s on cpu, 8,192 tokens/s",
        "warning the mean row is long: plain",
        "␣dog 4 times in the text before ing 0.70 ␣cat 0.80 ␣plain 0.90 after ␣plain 0.90 ␣cat 0.80 ing 0.70",
        "1.2% → 62.5% of the mean row norm",
        "saved norms 50 times the norms above, because the input scale is multiplied into the saved table",
        "prompt Once plain output upon a time plain",
    ):
        assert part in flat
    assert "\nwarning      the mean" in shown  # two spaces after the longest label
    neighbors = lines_of_neighbors(printed(make_report(" plain" * 9), columns - 20))
    assert neighbors
    assert all(line.startswith("  ") for line in neighbors)
    if columns >= 72:  # narrower tables wrap their cells
        cells = ["12,345", "90.5%", "0.31", "4.50×", "0.16 → 1.25"]
        (row,) = [line for line in shown.split("\n") if "most frequent quarter" in line]
        assert row.split("quarter")[1].split(None, len(cells) - 1) == cells
    assert "NaN" not in shown
    assert "NaN or infinity in 17 rows" in printed(replace(make_report(), table=make_table(nonfinite=17)), columns)


def test_color_changes_only_colors() -> None:
    plain, colored = printed(make_report()), printed(make_report(), color=True)
    assert plain != colored
    assert ESCAPE.sub("", colored) == plain


def test_ascii_terminal() -> None:
    shown = printed(make_report("naïve 日本"), encoding="ascii")
    check_lines(shown, 80)
    assert "0.16 -> 1.25" in shown
    assert "\\sdog" in shown


def test_minimal_report() -> None:
    empty = TableComparison(
        tokens=(), groups=(), mean_vector_ratio_before=None, mean_vector_ratio_after=None, nonfinite_rows=0
    )
    report = TrainingReport.from_metrics([], name="x", model=make_report().model, settings={}, table=empty)
    shown = printed(report)
    check_lines(shown, 80)
    assert "nearest neighbors" not in shown
    assert "generated text" not in shown
    assert "not finite → not finite" in shown
    assert "<summary>Settings" not in to_html(report, None)
    isolated = TokenComparison(id=0, token="a", count=1, before=(), after=())
    alone = replace(report, table=replace(empty, tokens=(isolated,)))
    assert "a  1 time in the text" in printed(alone)
    assert printed(alone).count("none (zero row)") == 2
    assert to_html(alone, None).count("none (zero row)") == 2


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_on_the_terminal(text: str) -> None:
    for columns, encoding in ((30, "utf-8"), (60, "utf-8"), (120, "ascii")):
        check_lines(printed(make_report(text, steps=3), columns, encoding=encoding), columns)


# ---- the page


class Tags(HTMLParser):
    """Tags, attributes and text of a document, as a browser parses them."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def skeleton(document: str) -> list[tuple[str, dict[str, str | None]]]:
    """Every tag with its attributes, except the width of bars."""
    return [(tag, {k: v for k, v in attributes.items() if k != "width"}) for tag, attributes in Tags(document).tags]


def check_page(document: str, like: str) -> None:
    """Untrusted text adds no tag or attribute: the tree equals that of a page with plain text."""
    assert skeleton(document) == skeleton(like)
    document.encode()
    for _, attributes in Tags(document).tags:
        assert not any(name.startswith("on") or name in ("style", "href", "action") for name in attributes)
        assert (attributes.get("src") or "data:image/png;base64,").startswith("data:image/png;base64,")
    [style] = re.findall(r"<style>(.*?)</style>", document, re.DOTALL)  # anywhere else, "http:" is a word of the text
    assert not re.search(r"https?:|//[a-z]|@import|url\(", style)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_in_the_page(text: str) -> None:
    check_page(
        to_html(make_report(text, steps=3), b"png"),
        like=to_html(make_report("plain", steps=3), b"png"),
    )


@settings(max_examples=15)
@given(st.text(st.characters(codec=None), max_size=60))
def test_random_text(text: str) -> None:
    check_page(to_html(make_report(text, steps=2), None), like=to_html(make_report("a", steps=2), None))
    check_lines(printed(make_report(text, steps=2), 60), 60)


def test_page_check_detects_changes() -> None:
    good = to_html(make_report(), None)
    for bad in ("<b>", "<p onclick=x>", '<p style="x">'):
        with pytest.raises(AssertionError):
            check_page(good.replace("<main>", f"<main>{bad}"), like=good)


def test_page_shows_everything() -> None:
    metrics = make_metrics(300)
    document = to_html(make_report(metrics=metrics), b"the picture")
    shown = " ".join(" ".join(Tags(document).words).split())
    for part in (
        "gpt, table of 4,096 rows x 64", "300 steps, 307,200 tokens", "warning the mean row is long: plain",
        "␣dog 4 times", "0.16 → 1.25", "1.2% → 62.5%", "Saved norms: 50 times the norms above",
        "Once plain upon a time plain",
        "learning_rate 0.003", "files plain", "untie_at -", "center yes", "validation",
    ):  # fmt: skip
        assert part in shown, part
    picture = base64.b64encode(b"the picture").decode()
    assert ("img", f"data:image/png;base64,{picture}") in [
        (tag, attributes.get("src")) for tag, attributes in Tags(document).tags
    ]
    assert "pip install 'inlayer[train]'" in " ".join(Tags(to_html(make_report(), None)).words)


def test_policy_allows_the_style_only() -> None:
    document = to_html(make_report(), None)
    style = document.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(attributes["content"] for tag, attributes in Tags(document).tags if "http-equiv" in attributes)
    assert (
        policy == f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert document.index("http-equiv") < document.index("<style>")

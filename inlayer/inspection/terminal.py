"""A report on one screen: facts first, then the findings, the worst of them first.

[checkpoint] files -> facts -> findings -> [terminal]
- everything can be read without color: severities are words
- every string is escaped and cut before it is shown: most were found in files
- lines are wrapped to the terminal's width; of every list only a few are shown, the rest is counted
- not here: any judging; what is shown is what the report holds
Checked at three widths in tests/inspection/test_command.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from inlayer.inspection.report import Example, Finding, HeadFacts, Report, RotaryFacts, SpecialToken, shorten
from inlayer.inspection.undertrained import MIN_REFERENCES

__all__ = ["show"]

LABEL = 11  # columns of what stands on the left
MAX_SPECIAL = 6
LONGEST_WORD, LONGEST_SENTENCE = 120, 600  # characters
BARS = " ▁▂▃▄▅▆▇█"
PLAIN_BARS = " .:-=+*#@"  # where the terminal's encoding has no blocks
STYLES = {"error": "bold red", "warning": "bold yellow", "note": "cyan"}


def show(report: Report, console: Console) -> None:
    """Print the report."""
    report = _tame(report)
    for label, text in _facts(report, console):
        _print_beside(console, Text(label.ljust(LABEL), "bold"), text)
    console.print()
    for finding in report.findings:
        _print_beside(console, Text(finding.severity.ljust(LABEL), STYLES[finding.severity]), _finding_text(finding))
    console.print(_verdict(report), style="bold")


def _tame(value: Any, most: int = LONGEST_WORD) -> Any:
    """A report whose strings are safe on a terminal, and short: names and texts in it are strangers'."""
    if isinstance(value, str):
        return shorten(value, most)
    if isinstance(value, tuple):
        return tuple(_tame(item, most) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    sentences = isinstance(value, Finding)
    return replace(
        value,
        **{
            field.name: _tame(getattr(value, field.name), LONGEST_SENTENCE if sentences else most)
            for field in fields(value)
        },
    )


def _print_beside(console: Console, label: Text, text: Text) -> None:
    """A label, and beside it a text wrapped to the columns that are left."""
    for number, line in enumerate(text.wrap(console, max(20, console.width - LABEL))):
        line.rstrip()
        console.print(Text.assemble(label if number == 0 else " " * LABEL, line), no_wrap=True, overflow="crop")


def _facts(report: Report, console: Console) -> Iterator[tuple[str, Text]]:
    layer, health = report.layer, report.health
    yield "source", Text(report.source)
    if report.sample:
        yield "", Text(report.sample, "dim")
    if report.quick:
        yield "quick", Text(f"headers and {health.rows_read:,} of {layer.rows:,} rows were read; counts are of these")
    family = layer.family or "no config"
    yield "table", Text(f"{family}: {layer.rows:,} x {layer.width:,} {layer.dtype}, {_bytes(layer.bytes)}")
    yield "", Text(f"{layer.tensor} in {layer.file} at byte {layer.offset:,}")
    if layer.model_parameters is not None and layer.share is not None:
        yield "", Text(f"{layer.share:.1%} of the model's {layer.model_parameters:,} parameters")
    yield "positions", Text(_positions(report))
    if layer.scale is not None:
        yield "scale", Text("none" if layer.scale == 1 else f"rows x {layer.scale:g}")
    yield "head", Text(_head(report.head, report.quick))
    yield "tokens", Text(_tokens(report))
    if report.vocabulary.reusable:
        yield "reusable", _reusable(report)
    if report.vocabulary.special:
        yield "special", _special(report.vocabulary.special)
    yield (
        "rows",
        Text(
            f"{health.nan_rows:,} with NaN, {health.inf_rows:,} with infinity, {health.zero_rows:,} zero, "
            f"{health.copied_rows:,} {'copy' if health.copied_rows == 1 else 'copies'} of another"
        ),
    )
    if health.norm_median is not None:
        yield "norms", Text(_histogram(report, console))
    if health.padding_id is not None and health.padding_norm is not None:
        state = "zero" if health.padding_norm == 0 else f"norm {health.padding_norm:.3g}"
        yield "padding", Text(f"row {health.padding_id:,}: {state}")
    yield "untrained", Text(_untrained(report))


def _positions(report: Report) -> str:
    positions = report.positions
    limit = "no limit of length" if positions.context is None else f"context {positions.context:,}"
    if positions.kind == "unknown":
        return "unknown: no config of a known family"
    if positions.kind == "none":
        return "none are added to the rows"
    if positions.kind == "learned":
        return f"learned: {positions.tensor_rows or 0:,} rows in {positions.tensor}, {limit}"
    return f"rotary: {'; '.join(_rotary(angles) for angles in positions.rotary)}; {limit}"


def _rotary(angles: RotaryFacts) -> str:
    text = f"{angles.layers}: " if angles.layers else ""
    text += f"theta {angles.theta:,.10g}"
    if angles.partial != 1:
        text += f" on {angles.partial:g} of a head"
    if angles.factor is None:
        return text
    since = f" from {angles.original_max_position_embeddings:,}" if angles.original_max_position_embeddings else ""
    return f"{text}, {angles.type} x {angles.factor:g}{since}"


def _head(head: HeadFacts, quick: bool) -> str:
    flag = {None: "the config says nothing", True: "the config says tied", False: "the config says untied"}[head.flag]
    if head.tensor is None:
        return f"{flag}; no head in the files" + (", as its class has none" if head.expected is False else "")
    shape = shorten(" x ".join(f"{size:,}" for size in head.shape or ()))
    sample = " in the rows read" if quick else ""
    equal = {None: "not compared", True: f"equal to the table{sample}", False: "not equal to the table"}[head.equal]
    return f"{flag}; {head.tensor} {shape} is there, {equal}"


def _tokens(report: Report) -> str:
    facts = report.vocabulary
    text = f"{facts.table_rows:,} rows"
    if facts.config_rows is not None:
        text += f", {facts.config_rows:,} in the config"
    if facts.tokens is None:
        unreadable = any(finding.code == "tokenizer-unreadable" for finding in report.findings)
        return f"{text}; {'its tokenizer cannot be read' if unreadable else 'no tokenizer'}"
    text += f", {facts.tokens:,} tokens ({facts.tokenizer}); "
    text += f"{facts.rows_past_tokens:,} {'row' if facts.rows_past_tokens == 1 else 'rows'} past them"
    if facts.holes:
        text += f", {facts.holes:,} {'hole' if facts.holes == 1 else 'holes'}"
    return text


def _reusable(report: Report) -> Text:
    facts = report.vocabulary
    text = f"{facts.reusable:,} ids that no text reaches ({facts.reserved:,} reserved)"
    return Text(f"{text}: {_listed(facts.reusable_examples, facts.reusable or 0)}")


def _special(tokens: tuple[SpecialToken, ...]) -> Text:
    shown = [
        " ".join([*token.roles, f"{token.id} {token.text or '(no token)'}"])
        + (f" ({token.norm:.3g})" if token.norm is not None else "")
        for token in tokens[:MAX_SPECIAL]
    ]
    more = f" and {len(tokens) - MAX_SPECIAL:,} more" if len(tokens) > MAX_SPECIAL else ""
    return Text(", ".join(shown) + more + "; norms in brackets")


def _histogram(report: Report, console: Console) -> str:
    health = report.health
    bars = BARS if console.encoding.lower().startswith("utf") else PLAIN_BARS
    most = max(health.histogram, default=0) or 1
    # a bin that has any row shows
    drawn = "".join(bars[0 if not count else max(1, round(count / most * 8))] for count in health.histogram)
    past = f", longest {health.norm_most:.3g}" if (health.norm_most or 0) > (health.histogram_to or 0) else ""
    return (
        f"{health.histogram_from or 0:.3g} |{drawn}| {health.histogram_to or 0:.3g}, median "
        f"{health.norm_median or 0:.3g}{past}"
    )


def _untrained(report: Report) -> str:
    facts = report.health.untrained
    ways = [name for name, trusted in (("norm", facts.by_norm), ("cosine", facts.by_cosine)) if trusted]
    if not ways:
        few = facts.references < MIN_REFERENCES
        why = f"{facts.references:,} rows to compare with" if few else "they would look like the others"
        return f"cannot tell: {why}"
    return f"{facts.rows:,} rows look it, by {' and '.join(ways)} against {facts.references:,} that nothing trained"


def _finding_text(finding: Finding) -> Text:
    text = Text.assemble((finding.code, "bold"), f"  {finding.meaning}")
    if finding.examples:
        text.append(f"\n{_listed(finding.examples, finding.count)}")
    return text.append(f"\n-> {finding.advice}", "dim")


def _listed(examples: tuple[Example, ...], count: int) -> str:
    shown = [
        f"{example.id:,} {example.text}" if example.text is not None else f"{example.id:,}" for example in examples
    ]
    return ", ".join(shown) + (f" and {count - len(shown):,} more" if count > len(shown) else "")


def _verdict(report: Report) -> Text:
    counts = {name: sum(finding.severity == name for finding in report.findings) for name in STYLES}
    said = ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count)
    if report.exit_code == 0:
        return Text(f"healthy{f': {said}' if said else ''}")
    return Text(f"findings: {said}")


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"

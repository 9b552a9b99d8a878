"""The report on one screen: facts first, then findings, the most severe first.

source -> Model -> facts -> findings -> Report -> [terminal]
- readable without color: severities are words
- strings are escaped and shortened before printing, because most come from untrusted files
- lines wrap to the terminal's width; long lists show a few items and the number of others
- this module decides nothing: it only prints what the report contains
Tested at three widths in tests/inspection/test_command.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import StringIO

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from inlayer.inspection.findings import Example, shorten
from inlayer.inspection.report import NgramMemoryFacts, OtherTableFacts, Report, RotaryTypeFacts, SpecialToken
from inlayer.render.glyphs import glyphs_for
from inlayer.render.numbers import pluralize

LABEL_WIDTH = 14
MAX_SPECIAL = 6
MAX_TOKEN = 32  # columns
MAX_TABLES = 6
BARS = " ▁▂▃▄▅▆▇█"
ASCII_BARS = " .:-=+*#@"
_line = partial(shorten, max_length=1200)  # untrusted text as one line, which is wrapped when it is printed
STYLES = {"error": "bold red", "warning": "bold yellow", "note": "cyan"}


def print_report(report: Report, console: Console) -> None:
    """Print facts, findings, and a verdict."""
    for label, text in report_facts(report, console.encoding):
        print_labeled(console, Text(label, "bold"), Text(_line(text), "dim" if text == report.description else ""))
    console.print()
    for finding in report.findings:
        shown = Text.assemble((finding.code, "bold"), f"  {_line(finding.message)}")
        if finding.examples:
            ids = "id" if finding.count == 1 else "ids"
            shown.append(f"\n{_line(f'{ids} {_listed(finding.examples, finding.count, console.encoding)}')}")
        shown.append(f"\n-> {_line(finding.advice)}", "dim")
        print_labeled(console, Text(finding.severity, STYLES[finding.severity]), shown)
    if report.not_checked:
        print_labeled(console, Text("not checked", "yellow"), Text(_line("; ".join(report.not_checked))))
    console.print(report.verdict, style="bold")


def report_text(report: Report, width: int = 100) -> str:
    """Return the report as plain text."""
    text = StringIO()
    output = Console(file=text, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    print_report(report, output)
    return text.getvalue().rstrip()


def print_labeled(console: Console, label: Text, text: Text) -> None:
    """Print a label and, to its right, text wrapped to the remaining columns."""
    label.pad_right(LABEL_WIDTH - len(label))
    for index, line in enumerate(text.wrap(console, max(16, console.width - LABEL_WIDTH))):
        line.rstrip()
        console.print(Text.assemble(label if index == 0 else " " * LABEL_WIDTH, line), no_wrap=True, overflow="crop")


def report_facts(report: Report, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yield the facts as labels and lines of text, also for the page; a line with an empty label continues a fact."""
    table, rows = report.table, report.rows
    yield "source", report.source
    if report.description:
        yield "", report.description
    if report.quick or rows.rows_read < table.rows:
        label = "quick" if report.quick else "stopped"
        yield label, f"read headers and {rows.rows_read:,} of {table.rows:,} rows; all counts refer to these"
    has_config = any(finding.code == "unknown-model-type" for finding in report.findings)
    model_type = table.model_type or ("unknown model type" if has_config else "no config")
    yield "table", f"{model_type}: {table.rows:,} x {table.width:,} {table.dtype}, {decimal(table.nbytes)}"
    yield "", f"{table.tensor} in {table.file} at byte {table.offset:,}"
    if table.model_parameters is not None and table.parameter_share is not None:
        yield "", f"{table.parameter_share:.1%} of the model's {table.model_parameters:,} parameters"
    yield "positions", _positions(report)
    if table.scale is not None:
        yield "scale", "none" if table.scale == 1 else f"rows x {table.scale:g}"
    yield "head", _head(report)
    yield from _tables(report.tables)
    for memory in report.ngrams:
        yield "n-grams", _ngrams(memory)
    yield "tokens", _tokens(report)
    vocabulary = report.vocabulary
    if vocabulary.n_reusable_ids:
        listed = _listed(vocabulary.reusable_examples, vocabulary.n_reusable_ids, encoding)
        reserved = f"({vocabulary.n_reserved_tokens:,} reserved)"
        yield "reusable", f"{pluralize(vocabulary.n_reusable_ids, 'id')} that text never produces {reserved}: {listed}"
    if vocabulary.special_tokens:
        yield "special", _special(vocabulary.special_tokens, vocabulary.tokenizer is not None, encoding)
    unusual = f"{rows.nan_rows:,} with NaN, {rows.inf_rows:,} with infinity, {rows.zero_rows:,} all zero"
    yield "rows", f"{unusual}, {pluralize(rows.duplicate_rows, 'duplicate')}"
    if rows.norm_median is not None:
        yield "norms", _histogram(report, encoding)
    if report.training is not None and report.training.input_scale not in (None, 1):
        scale = f"{report.training.input_scale:g}"
        yield "", f"inlayer train multiplied the rows by {scale} when it saved them; its report shows them unscaled"
    if rows.padding_id is not None and rows.padding_norm is not None:
        norm = "zero" if rows.padding_norm == 0 else f"norm {rows.padding_norm:.3g}"
        yield "padding", f"row {rows.padding_id}: {norm}"
    yield "undertrained", _undertrained(report)


def _positions(report: Report) -> str:
    positions = report.positions
    limit = "no length limit" if positions.context_length is None else f"context length {positions.context_length:,}"
    if positions.kind == "unknown":
        return "unknown (no config of a supported model type)"
    relative = f"; {positions.relative}" if positions.relative else ""
    if positions.kind == "none":
        return f"none added to the rows{relative}"
    if positions.kind == "sinusoidal":
        return f"sinusoidal: computed, {limit}"
    if positions.kind == "learned":
        return f"learned: {positions.tensor_rows or 0:,} rows in {positions.tensor}, {limit}{relative}"
    return f"rotary: {'; '.join(_rotary(rotary) for rotary in positions.rotary)}; {limit}"


def _rotary(rotary: RotaryTypeFacts) -> str:
    theta = f"theta {rotary.rope_theta:,.10g}"
    text = theta if rotary.layer_type in (None, theta) else f"{rotary.layer_type}: {theta}"
    if rotary.partial_rotary_factor != 1:
        text += f" on {rotary.partial_rotary_factor:g} of each head"
    if rotary.factor is None:
        return text
    original = rotary.original_max_position_embeddings
    return f"{text}, {rotary.rope_type} x {rotary.factor:g}" + (f" from {original:,}" if original else "")


def _head(report: Report) -> str:
    head, is_known = report.head, report.positions.kind != "unknown"
    by = "by GGUF convention" if report.kind == "gguf" else "according to the config"
    tied = {None: "tie_word_embeddings is not given", True: f"tied {by}", False: "untied"}
    text = tied[head.tie_word_embeddings]
    if head.tensor is None and head.config_expects_head is False:
        return "none: the model class has no head"
    if head.tensor is None and head.tie_word_embeddings:  # in an unknown family, a head may have any name
        return "tied: the table is also the head" if is_known else f"{text}; no tensor has the name of a head"
    if head.tensor is None:
        return f"{text}; the files have no head"
    shape = shorten(" x ".join(f"{size:,}" for size in head.shape or ()))
    sample = " in the sampled rows" if report.quick else ""
    equal = {None: "not fully compared", True: f"equals the table{sample}", False: "differs from the table"}
    return f"{text}; {head.tensor} {shape} {equal[head.equals_table]}"


def _ngrams(memory: NgramMemoryFacts) -> str:
    where = "in the hidden states" if memory.layer is None else f"in layer {memory.layer}"
    sizes = f"{memory.min_modulus:,} to {memory.max_modulus:,} rows"
    text = f"{where}: {memory.heads} hash heads of {sizes} for n = {memory.orders[0]}..{memory.orders[-1]}"
    text += f", {memory.rows:,} x {memory.width:,}"
    found = f" in {pluralize(memory.n_tensors, 'tensor')}"
    text += found if memory.n_tensors else ", but the files do not match the config"
    return text + (f"; {memory.compressed_vocab_size:,} normalized tokens" if memory.compressed_vocab_size else "")


def _tables(tables: tuple[OtherTableFacts, ...]) -> Iterator[tuple[str, str]]:
    for index, table in enumerate(tables[:MAX_TABLES]):
        share = "" if table.parameter_share is None else f", {table.parameter_share:.1%} of the parameters"
        size = f"{table.rows:,} x {table.width:,} {table.dtype}, {decimal(table.nbytes)}{share}"
        yield "" if index else "tables", f"{table.role}: {table.tensor}, {size}"
        parts = [f"in {table.file} at byte {table.offset:,}", f"{pluralize(table.zero_rows, 'zero row')}"]
        parts += [f"rows x {table.scale:g}"] if table.scale is not None else []
        parts += [f"norm {table.norm_median:.3g}"] if table.norm_median is not None else []
        parts += [f"equals {table.copy_of}"] if table.copy_of is not None else []
        parts += [f"{pluralize(table.rows_read, 'row')} read"] if table.rows_read < table.rows else []
        yield "", "; ".join(parts)
    if len(tables) > MAX_TABLES:
        yield "", f"and {len(tables) - MAX_TABLES:,} more (--json lists them)"


def _tokens(report: Report) -> str:
    facts = report.vocabulary
    text = f"{facts.table_rows:,} rows"
    if facts.config_vocab_size is not None:
        text += f", vocab_size {facts.config_vocab_size:,}"
    if facts.n_tokens is None:
        unreadable = any(finding.code == "tokenizer-unreadable" for finding in report.findings)
        return f"{text}; {'the tokenizer cannot be read' if unreadable else 'no tokenizer'}"
    text += f", {facts.n_tokens:,} tokens ({facts.tokenizer}); "
    text += f"{pluralize(facts.n_trailing_rows or 0, 'row')} after the last token"
    return text + (f", {pluralize(facts.n_gaps, 'gap')}" if facts.n_gaps else "")


def _token(text: str, encoding: str) -> str:
    """Return a token with visible spaces and escapes."""
    return glyphs_for(encoding, color=False).truncate(text, MAX_TOKEN) or '""'


def _special(tokens: tuple[SpecialToken, ...], has_tokenizer: bool, encoding: str) -> str:
    shown = []
    for token in tokens[:MAX_SPECIAL]:
        text = [] if token.text is None else [_token(token.text, encoding)]
        notes = ["no token"] if token.text is None and has_tokenizer else []
        notes += [] if token.norm is None else [f"norm {token.norm:.3g}"]
        shown.append(" ".join([*token.roles, str(token.id), *text]) + (f" ({', '.join(notes)})" if notes else ""))
    return ", ".join(shown) + (f" and {len(tokens) - MAX_SPECIAL:,} more" if len(tokens) > MAX_SPECIAL else "")


def _histogram(report: Report, encoding: str) -> str:
    rows = report.rows
    bars = BARS if encoding.lower().startswith("utf") else ASCII_BARS
    largest = max(rows.norm_histogram, default=0) or 1
    # every bin that is not empty is visible
    drawn = "".join(bars[0 if not n else max(1, round(n / largest * 8))] for n in rows.norm_histogram)
    low, high, top = rows.histogram_min or 0, rows.histogram_max or 0, rows.norm_max or 0
    beyond = f", largest {top:.3g}" if top > high else ""
    return f"{low:.3g} |{drawn}| {high:.3g}, median {rows.norm_median or 0:.3g}{beyond}"


def _undertrained(report: Report) -> str:
    rows = report.rows
    thresholds = {"norm": rows.norm_threshold, "cosine similarity": rows.cosine_threshold}
    if rows.undertrained_skip_reason:
        no_tokenizer = " (no tokenizer)" if report.vocabulary.tokenizer is None else ""
        return f"unknown: {rows.undertrained_skip_reason}{no_tokenizer}"
    criteria = " and ".join(name for name, threshold in thresholds.items() if threshold is not None)
    references = pluralize(rows.reference_rows, "reference token")
    return f"{pluralize(rows.undertrained_rows, 'row')} resembling {references}, judged by {criteria}"


def _listed(examples: tuple[Example, ...], total: int, encoding: str) -> str:
    shown = [str(row.id) + ("" if row.text is None else f" {_token(row.text, encoding)}") for row in examples]
    return ", ".join(shown) + (f" and {total - len(shown):,} more" if total > len(shown) else "")

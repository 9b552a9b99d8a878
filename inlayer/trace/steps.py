"""The eight steps in words: a title, what happened in one line, and the one line of PyTorch that does it.

The line of code uses the names of the page and of docs/trace.md: `text` or `texts`, `tokenizer`, `ids` (B, T), `mask`,
`E` (the table), `P` (position vectors), `S` (segment vectors), `layer`, `head`. Checked by running each in
tests/trace/test_steps.py.
"""

from __future__ import annotations

from inlayer.trace.facts import Step, Trace

__all__ = ["describe_steps"]

TITLES = (
    "text to bytes",
    "bytes to pieces",
    "pieces to ids",
    "id to row",
    "rows gathered",
    "positions",
    "hidden states",
    "backwards",
)


def describe_steps(trace: Trace) -> list[Step]:
    """The steps of a trace that holds everything else already."""
    notes = (
        _bytes(trace),
        _pieces(trace),
        _ids(trace),
        _row(trace),
        _gathered(trace),
        _order(trace),
        _hidden(trace),
        _backwards(trace),
    )
    return [
        Step(number=number, title=title, note=note, code=code)
        for number, (title, (note, code)) in enumerate(zip(TITLES, notes, strict=True), start=1)
    ]


NO_TEXT = "vectors came in place of a text: this step was not taken"


def _bytes(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    size, characters = (sum(getattr(text, name) for text in trace.texts) for name in ("n_bytes", "n_characters"))
    return f"{_count(characters, 'character')} as {_count(size, 'byte')} of UTF-8", _of_each(
        trace, "list(text.encode())"
    )


def _pieces(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    pieces = sum(text.n_splits for text in trace.texts)
    note = f"{_count(pieces, 'piece')}; no token reaches across their edges"
    if all(text.splits is None for text in trace.texts):
        note = f"no split of this text before the tokens is known of {trace.tokenizer}"
    return note, _of_each(trace, "tokenizer.splits(text)")


def _ids(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    tokens = sum(text.n_tokens for text in trace.texts)
    made_by = f"{trace.tokenizer} with {trace.vocab_size:,} in its vocabulary"
    return f"{_count(tokens, 'token')} by {made_by}", _ids_code(trace)


def _of_each(trace: Trace, code: str) -> str:
    return code if len(trace.texts) == 1 else f"[{code} for text in texts]"


def _ids_code(trace: Trace) -> str:
    change, padding = trace.change, trace.padding.id
    if len(trace.texts) == 1:
        code = "ids = torch.tensor([tokenizer.encode(text)])"
    else:
        code = f"ids, mask = tokenizer.encode_batch(texts).padded({padding or 0})"
    if change.swap is not None:
        first, second = change.swap
        code += f"; ids[0, [{first}, {second}]] = ids[0, [{second}, {first}]]"
    if change.pad:
        real = "torch.ones_like(ids)" if len(trace.texts) == 1 else "mask.long()"
        code += f"; mask = F.pad({real}, (0, {change.pad})); ids = F.pad(ids, (0, {change.pad}), value={padding})"
    return code


def _row(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return NO_TEXT, ""
    rows, width = trace.table.shape
    place = "in memory" if trace.table.file is None else f"in {trace.table.file}"
    return f"each id is the number of a row of {trace.table.name}, {rows:,} x {width:,} {trace.table.dtype}, {place}", (
        "E[ids[0, 0]]"
    )


def _gathered(trace: Trace) -> tuple[str, str]:
    batch, tokens, width = trace.gather.shape
    if trace.entered != "text":
        return f"({batch}, {tokens}, {width}): {trace.gather.note}", "rows = inputs_embeds"
    return f"({batch}, {tokens}, {width}): batch, tokens, width of a row", "rows = F.embedding(ids, E)"


def _order(trace: Trace) -> tuple[str, str]:
    positions = trace.positions
    notes = {
        "none": "none: the rows do not know their order",
        "learned": "learned: one vector a position, added to the row",
        "sinusoidal": "sinusoidal: waves of the position, added to the row",
        "rotary": "rotary: nothing is added here; a turn is prepared for the attention",
    }
    note = notes[positions.scheme] + (f" ({positions.note})" if positions.note else "")
    if positions.scheme == "rotary":
        which = positions.turnings[0].layer_type
        asked = "" if which is None else f", {which!r}"
        return note, f"cos, sin = layer.rotary(torch.arange(ids.shape[1]){asked})"
    return note, f"x = {_sum(trace)}"


def _sum(trace: Trace) -> str:
    """What becomes of the rows up to the positions, as Python has it."""
    said = "rows"
    for stage in trace.stages:
        if stage.name == "position":
            return f"{said} + P[position_ids]"
        if stage.name == "token type":
            said = f"{said} + S[0]"
        elif stage.name == "projection" and trace.positions.scheme != "none":
            said = f"layer.projection({said})"
        elif stage.name in ("scale", "multiplier"):
            said = f"{said} * layer.{stage.name}"
        else:
            break
    return said


def _hidden(trace: Trace) -> tuple[str, str]:
    batch, tokens, width = trace.shape
    padded = sum(text.n_padding for text in trace.texts)
    said = f"({batch}, {tokens}, {width}): batch, tokens, width"
    if padded:
        said += f"; {_count(padded, 'place')} filled with padding, mask 0"
    return said, f"hidden = {_layer(trace)}"


def _layer(trace: Trace) -> str:
    if trace.entered != "text":
        return "layer(inputs_embeds=inputs_embeds)"
    return "layer(ids, attention_mask=mask)" if any(text.n_padding for text in trace.texts) else "layer(ids)"


def _backwards(trace: Trace) -> tuple[str, str]:
    if trace.entered != "text":
        return "vectors came in: no row of the table was looked up, so none learns", ""
    back = trace.backward
    if back is None:
        return "there is no token to learn from", ""
    receive = "receives" if back.touched == 1 else "receive"
    learning = f"{_count(back.touched, 'row')} of {trace.table.shape[0]:,} {receive} a gradient"
    padded = any(text.n_padding for text in trace.texts)
    if back.loss == "sum":
        counted = " * mask[..., None]" if padded and not trace.padding.is_row else ""
        total = f"({_layer(trace)}{counted}).sum()" if counted else f"{_layer(trace)}.sum()"
        return f"{learning}; the loss is {back.note}", f"{total}.backward(); E.grad[ids]"
    targets = "ids[:, 1:].where(mask[:, 1:] > 0, -100)" if padded else "ids[:, 1:]"
    code = f"head.loss({_layer(trace)}[:, :-1], {targets}).backward(); E.grad[ids]"
    return f"{learning}; {back.note} (in float32)", code


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")

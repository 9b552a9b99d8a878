"""The eight steps in words: a title, a one-line summary, and the line of PyTorch that performs each step.

Each line uses names from the lines before it; `setup_code` writes the first lines: imports, text, model, tokenizer,
layer, and head. They run as printed, in this order (tests/trace/test_steps.py). A long text is cut, with a comment.
"""

from __future__ import annotations

import unicodedata

from inlayer.render.numbers import pluralize
from inlayer.trace.facts import StepFacts, Trace
from inlayer.trace.family_facts import RelativeFacts

MAX_CODE_TEXT = 240  # characters; longer texts are cut to CUT_TEXT each in the printed code
CUT_TEXT, CUT_TEXTS = 60, 4
CLEARLY = 0.1  # a loss this many nats above a uniform guess is worth explaining; random rows are closer
SKIPPED = "skipped: the walk starts from vectors"


def describe_steps(trace: Trace) -> list[StepFacts]:
    steps = {
        "bytes": _bytes,
        "pre-tokens": _pre_tokens,
        "token ids": _ids,
        "table rows": _row,
        "embedding lookup": _lookup,
        "positions": _positions,
        "hidden states": _hidden,
        "backward pass": _backward,
    }
    described = []
    for number, (title, describe) in enumerate(steps.items(), start=1):
        note, code = (SKIPPED, "") if trace.input != "text" and number <= 4 else describe(trace)
        described.append(StepFacts(number=number, title=title, note=note, code=code))
    return described


def _bytes(trace: Trace) -> tuple[str, str]:
    characters, size = (sum(getattr(text, name) for text in trace.texts) for name in ("n_characters", "n_bytes"))
    note = f"{pluralize(characters, 'character')}, {pluralize(size, 'byte')} in UTF-8"
    return note, _for_each(trace, "list(text.encode())")


def _pre_tokens(trace: Trace) -> tuple[str, str]:
    number = sum(text.n_pre_tokens for text in trace.texts)
    note = pluralize(number, "pre-token")
    note += f"; no token crosses {'its' if number == 1 else 'their'} boundaries" if number else ""
    if all(text.pre_tokens is None for text in trace.texts):
        note = f"{trace.tokenizer} does not split this text into pre-tokens, or does not report them"
    if trace.tokenizer == "ByteTokenizer":
        note = "a byte tokenizer has no pre-tokens"
    return note, _for_each(trace, "tokenizer.pre_tokens(text)")


def _ids(trace: Trace) -> tuple[str, str]:
    change, padding = trace.change, str(trace.padding.id or 0)
    if trace.tokenizer == "WordTokenizer" and trace.source == "random":
        padding = "len(E) - 1"  # the table has a row per word, and a shortened text has fewer words
    tokens = sum(text.n_tokens for text in trace.texts)
    note = f"{pluralize(tokens, 'token')} from {trace.tokenizer}, vocabulary size {trace.vocab_size:,}"
    if len(trace.texts) == 1:
        dtype = "" if any(token.mask for token in trace.texts[0].tokens) else ", dtype=torch.long"  # the list is empty
        code = f"ids = torch.tensor([tokenizer.encode(text)]{dtype})"
    else:
        code = f"ids, mask = tokenizer.encode_batch(texts).padded({padding})"
    if change.swap is not None and trace.first_token <= min(change.swap):  # otherwise it is outside the shown part
        first, second = (index - trace.first_token for index in change.swap)
        code += f"; ids[0, [{first}, {second}]] = ids[0, [{second}, {first}]]"
    if change.pad:
        real = "torch.ones_like(ids)" if len(trace.texts) == 1 else "mask.long()"
        code += f"; mask = F.pad({real}, (0, {change.pad})); ids = F.pad(ids, (0, {change.pad}), value={padding})"
    return note, code


def _row(trace: Trace) -> tuple[str, str]:
    table = trace.table
    rows, width = table.shape
    location = "in memory" if table.file is None else f"in {table.file}"
    note = f"each id selects a row of {table.name}, {rows:,} x {width:,} {table.dtype}, {location}"
    if trace.padding.is_padding_idx:
        extra = "an additional row for" if trace.padding.id == trace.vocab_size else "for"
        note += f"; row {trace.padding.id} is {extra} padding"
    return note, "E[ids[0, 0]]" if trace.shape[1] else "E[ids[0]]"


def _lookup(trace: Trace) -> tuple[str, str]:
    batch, tokens, width = trace.gather.shape
    if trace.input != "text":
        return f"({batch}, {tokens}, {width}): {trace.gather.note}", "rows = inputs_embeds"
    return f"({batch}, {tokens}, {width}): batch, tokens, row width", "rows = F.embedding(ids, E)"


def _positions(trace: Trace) -> tuple[str, str]:
    positions = trace.positions
    note = {
        "none": "none: the vectors carry no information about order",
        "learned": "learned: an embedding of the position is added to the row",
        "sinusoidal": "sinusoidal: a fixed encoding of the position is added to the row",
        "rotary": "RoPE adds nothing to the embeddings; it prepares the cos/sin tables that attention uses to "
        "rotate queries and keys",
    }[positions.scheme]
    if positions.relative is not None and positions.scheme == "none":
        return _relative(trace, positions.relative)
    note += f" ({positions.note})" if positions.note else ""
    if positions.scheme == "rotary":
        layer_type = positions.rotary[0].layer_type
        argument = "" if layer_type is None else f", {layer_type!r}"
        return note, f"cos, sin = layer.rotary(torch.arange({_rows(trace)}.shape[1]){argument})"
    code = _sum(trace)
    return note, f"position_ids = {_position_ids(trace)}; x = {code}" if "position_ids" in code else code


def _relative(trace: Trace, relative: RelativeFacts) -> tuple[str, str]:
    """Describe a model that has only relative positions, which add nothing to the rows."""
    at = f"torch.arange({_rows(trace)}.shape[1])"
    if relative.kind == "alibi":
        note = "ALiBi: nothing is added to the embeddings; attention adds slope x position to its scores"
        at = f"{at}[None]" + (f" - {_rows(trace)}.shape[1] + 1" if relative.counts_from_end else "")
        return note, f"slopes, bias = inlayer.positions.alibi_from_spec(layer.relative, {at}, layer.dtype)"
    note = "relative: nothing is added to the embeddings; attention uses a learned row per distance between two tokens"
    return note, f"at = {at}; buckets = inlayer.positions.relative_rows(layer.relative, at - at[:, None])"


def _position_ids(trace: Trace) -> str:
    """Return the position ids: a range, or the layer's rule if they depend on the padding."""
    rows = [[token.position for token in text.tokens] for text in trace.texts]
    start = rows[0][0] if rows and rows[0] else 0
    if any(row != list(range(start, start + len(row))) for row in rows):
        mask = "None" if len(rows) == 1 and not trace.change.pad else "mask"
        return f"inlayer.positions.make_position_ids(layer.position_id_rule, ids.shape, ids.device, ids, {mask})"
    start, end = start - trace.first_token, f"{_rows(trace)}.shape[1]"
    return f"torch.arange({start}, {start} + {end})" if start else f"torch.arange({end})"


def _rows(trace: Trace) -> str:
    return "ids" if trace.input == "text" else "rows"


def _sum(trace: Trace) -> str:
    """Write the stages up to the positions as a Python expression."""
    code = "rows"
    for stage in trace.stages:
        if stage.name == "position":
            return f"{code} + layer.position_embedding(position_ids)"
        if stage.name == "token type":
            code = f"{code} + layer.token_type_embedding.weight[0]"
        elif stage.name == "projection" and trace.positions.scheme != "none":
            code = f"layer.projection({code})"
        elif stage.name == "n-grams":
            code = f"layer.add_ngrams({code}, ids)"
        elif stage.name == "scale":
            code = f"{code} * layer.scale"
        elif stage.name == "multiplier":
            code = f"{code} * layer.input_multiplier"
        else:
            break
    return code


def _hidden(trace: Trace) -> tuple[str, str]:
    batch, tokens, width = trace.shape
    padding = sum(text.n_padding for text in trace.texts)
    note = f"({batch}, {tokens}, {width}): batch, tokens, width"
    if padding:
        note += f"; {pluralize(padding, 'padding token')} with mask 0"
    if trace.n_streams > 1:
        note += f"; the model repeats each vector in {trace.n_streams} streams"
    return note, f"hidden = {_layer(trace)}"


def _layer(trace: Trace) -> str:
    if trace.input != "text":
        return "layer(inputs_embeds=inputs_embeds)"
    return "layer(ids, attention_mask=mask)" if any(text.n_padding for text in trace.texts) else "layer(ids)"


def _backward(trace: Trace) -> tuple[str, str]:
    if trace.input != "text":
        return "no table row was looked up, so none receives a gradient", ""
    back = trace.backward
    if back is None:
        return "the text has no tokens to compute a gradient for", ""
    verb = "receives" if back.n_rows_with_gradient == 1 else "receive"
    reached = f"{back.n_rows_with_gradient:,} of {pluralize(trace.table.shape[0], 'row')} {verb} a gradient"
    note = f"{reached}; the loss is the {back.note}"
    padded = any(text.n_padding for text in trace.texts)
    if back.loss_kind == "sum":
        masked = f"({_layer(trace)} * mask[..., None])" if padded and not trace.padding.is_padding_idx else ""
        return note, f"{masked or _layer(trace)}.sum().backward(); E.grad[ids]"
    targets = "ids[:, 1:].where(mask[:, 1:] > 0, -100)" if padded else "ids[:, 1:]"
    above = back.uniform_loss is not None and back.loss > back.uniform_loss + CLEARLY
    why = ", which is why it is above the uniform guess" * above
    return (
        f"{note}{why}. It is computed in float32",
        f"head.loss({_layer(trace)}[:, :-1], {targets}).backward(); E.grad[ids]",
    )


def setup_code(
    trace: Trace, step: int | None = None, tokenizer: str | None = None, embeds: str | None = None
) -> list[str]:
    """Write the lines that come before step 1, or before a step that is shown alone.

    `tokenizer` is the path of a tokenizer that replaced the model's, and `embeds` the path of the vectors. Empty if
    the walk used a layer or a tokenizer that was made in Python.
    """
    is_random = trace.table.file is None
    texts = "[text]" if len(trace.texts) == 1 else "texts"
    constructors = {
        "ByteTokenizer": "inlayer.ByteTokenizer()",
        "WordTokenizer": f'inlayer.WordTokenizer.from_text("\\n".join({texts}))',
    }
    opened = f"inlayer.open_tokenizer({_literal(tokenizer)})" if tokenizer else "" if is_random else "model.tokenizer"
    chosen = constructors.get(trace.tokenizer or "", opened)
    if is_random and (trace.source != "random" or not chosen):
        return []
    module = "inlayer" if trace.positions.from_model else "inlayer.trace"
    has_layer = step is None or step > 3  # earlier steps need only a tokenizer
    has_head = has_layer and "head." in trace.steps[7].code
    parts = ["tokenizer", "layer", "head"][: 1 + has_layer + has_head]
    functions = "; F = torch.nn.functional" if has_layer else ""
    lines = [f"import {module}, torch{functions}", *_given(trace, embeds)]
    if not is_random:
        lines += _loaded_model(trace, chosen, parts)
    elif trace.positions.from_model:
        lines += _random_layer(trace, chosen, parts)
    else:
        lines += _random_pipeline(trace, texts, chosen, parts)
    if not has_layer:
        return lines
    if not trace.positions.from_model:
        pipeline = "model" if is_random else "inlayer.trace.Pipeline(model)"
        lines.append(f"layer = {pipeline}.active_layer({trace.change.positions!r}, {trace.change.theta!r}).layer")
    lines.append("E = layer.token_embedding.weight")
    if step is not None and step > 3 and trace.input == "text":
        lines += trace.steps[2].code.split("; ")
    return [*lines, trace.steps[4].code] if step == 6 else lines


def _loaded_model(trace: Trace, tokenizer: str, parts: list[str]) -> list[str]:
    """Load the model of the walk."""
    trainable = ", trainable=True" if "layer" in parts else ""
    values = [tokenizer, "model.embeddings.eval()", "model.head"][: len(parts)]
    return [f"model = inlayer.load({_literal(trace.source)}{trainable})", f"{', '.join(parts)} = {', '.join(values)}"]


def _random_layer(trace: Trace, tokenizer: str, parts: list[str]) -> list[str]:
    """Create a layer with random weights, and a head tied to it."""
    rows, width = trace.table.shape
    lines = [f"tokenizer = {tokenizer}"]
    if "layer" not in parts:
        return lines
    length = f", block_size={trace.positions.block_size}" if trace.positions.block_size else ""
    settings = f"positions={trace.positions.scheme!r}, padding_idx={rows - 1}, seed={trace.note.split()[-1]}"
    lines.append(f"layer = inlayer.Embeddings(vocab_size={rows}, n_embd={width}{length}, {settings})")
    lines.append(f"head = inlayer.Head(n_embd={width}, vocab_size={rows}, padding_idx={rows - 1}); layer.tie(head)")
    return lines


def _random_pipeline(trace: Trace, texts: str, tokenizer: str, parts: list[str]) -> list[str]:
    """Create random weights for a walk with other positions: those that were replaced are not part of the trace."""
    settings = f"width={trace.table.shape[1]}, positions={trace.positions.scheme!r}, seed={trace.note.split()[-1]}"
    values = ", ".join(f"model.{part}" for part in parts)
    return [
        f"model = inlayer.trace.Pipeline.random({texts}, {tokenizer}, {settings})",
        f"{', '.join(parts)} = {values}",
    ]


def _given(trace: Trace, embeds: str | None) -> list[str]:
    """Write the input of the walk, or its beginning."""
    if embeds is not None:
        vectors = f"torch.from_numpy(numpy.load({_literal(embeds)}))"
        return ["import numpy", f"inputs_embeds = {vectors}.reshape{trace.gather.shape}"]
    if trace.input != "text":
        return ["# your vectors", f"inputs_embeds = torch.zeros{trace.gather.shape}"]
    texts, comment = [text.text or "" for text in trace.texts], []
    characters = sum(text.n_characters for text in trace.texts)
    if characters > MAX_CODE_TEXT:
        cut = CUT_TEXT
        if trace.change.swap is not None:  # the swapped tokens, and some more
            tokens, first = trace.texts[0].tokens, trace.first_token
            spans = [tokens[index - first].span for index in trace.change.swap if 0 <= index - first < len(tokens)]
            cut += max((span[1] for span in spans if span is not None), default=0)
        texts = [text[:cut] for text in texts[:CUT_TEXTS]]
        amount = f"{len(texts)} of {len(trace.texts)} texts" if len(trace.texts) > 1 else f"{characters:,} in your text"
        comment = [f"# only the first {max(map(len, texts))} characters of {amount}"]
    if trace.first_token or (not comment and sum(map(len, texts)) < characters):
        comment = ["# only a part of your text"]
    written = ", ".join(map(_literal, texts))
    return [*comment, f"text = {written}" if len(trace.texts) == 1 else f"texts = [{written}]"]


def _literal(text: str) -> str:
    """Return a Python string literal; right-to-left characters are escaped, because a terminal would reorder them."""
    return "".join(
        ascii(char)[1:-1] if unicodedata.bidirectional(char) in ("R", "AL", "AN") else char for char in repr(text)
    )


def _for_each(trace: Trace, code: str) -> str:
    return code if len(trace.texts) == 1 else f"[{code} for text in texts]"

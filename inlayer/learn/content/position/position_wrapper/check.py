"""Checks for the task "A wrapper with optional positions"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CallResult, CheckFailed, GradingSession, RemoteObject, check_raised
from inlayer.positions import sinusoidal_encoding

NAME = "PositionWrapper"
PARAMETERS = ("vocab_size", "n_embd", "block_size", "positions", "dtype")
FORBIDDEN = ("inlayer",)

CLOSE = 2e-3  # tolerance between the learner's float32 angles and ours
CLOSER = 2e-5  # the same for the first few dozen positions
TABLE = "token_embedding.weight"


def table(session: GradingSession) -> None:
    """has an embedding with vocab_size rows of width n_embd"""
    rows, width = session.random_int(20, 30), 2 * session.random_int(2, 5)
    wrapper = session.construct(rows, width, 8)
    weight = table_of(wrapper)
    check_shape(
        weight,
        (rows, width),
        "V D",
        mistakes={"swapped-sizes": ((width, rows), "the table's sizes are swapped: it has one row per id")},
    )
    ids = session.random_ids(rows, (2, 3))
    answer = ask(wrapper, "token_embedding", ids)
    if answer.raised is not None:
        raise CheckFailed(
            "not-an-embedding", f"token_embedding is not an nn.Embedding: called with ids, it raised {answer.raised}"
        )
    check_values(
        answer.value,
        weight[ids],
        rule="not-an-embedding",
        message="token_embedding is not an nn.Embedding: called with ids, it does not return the rows of its weight",
    )


def shape(session: GradingSession) -> None:
    """returns one vector per token"""
    wrapper, ids, width = draw(session)
    check_shape(wrapper.call(input_ids=ids), (*ids.shape, width), "B T D")


def untouched(session: GradingSession) -> None:
    """modifies neither the table nor the caller's vectors"""
    wrapper, ids, width = draw(session)
    before = table_of(wrapper)
    wrapper.call(input_ids=ids)
    if not torch.equal(before, table_of(wrapper)):
        raise CheckFailed("table-edited", "the table changed during a call: your code wrote positions into its rows")
    vectors = session.random_normal(*ids.shape, width)
    answer = wrapper.try_call(inputs_embeds=vectors)
    if answer.raised is None and any(not torch.equal(vectors, after) for after in answer.tensor_arguments):
        message = "the vectors passed as inputs_embeds changed during a call: your code added to them in place"
        raise CheckFailed("input-edited", message)


def values(session: GradingSession) -> None:
    """adds the encoding to the rows of every text in the batch"""
    wrapper, ids, width = draw(session)
    batch, length = ids.shape
    rows, encoding = table_of(wrapper)[ids], sinusoidal_encoding(torch.arange(length), width)
    halves = sinusoidal_encoding(torch.arange(length), width, layout="half")
    first = rows.clone()
    first[0] += encoding
    check_values(
        wrapper.call(input_ids=ids),
        rows + encoding,
        mistakes={
            "no-positions": (rows, "these are the rows alone: positions are on, but nothing was added"),
            "concatenated": (
                rows + halves,
                "the encoding has all sines first, then all cosines; place each sine next to its cosine",
            ),
            "off-by-one": (
                rows + sinusoidal_encoding(torch.arange(1, length + 1), width),
                "every token has the encoding of the next position: positions start at 0",
            ),
            "missing-broadcast": (first, "only the first text of the batch got positions; all texts get the same ones"),
            "wrong-axis": (
                rows + sinusoidal_encoding(torch.arange(batch), width)[:, None],
                "all tokens of a text got the same encoding: you applied it along the batch, not along the text",
            ),
            "multiplied": (rows * encoding, "you multiplied the rows and the encoding; add them"),
        },
        message="the values are not the rows plus the interleaved encoding",
        atol=CLOSE,
    )


def ready_vectors(session: GradingSession) -> None:
    """also adds positions to inputs_embeds"""
    wrapper, ids, width = draw(session)
    vectors = session.random_normal(*ids.shape, width)
    check_values(
        wrapper.call(inputs_embeds=vectors),
        vectors + sinusoidal_encoding(torch.arange(ids.shape[1]), width),
        mistakes={
            "embeds-without-positions": (
                vectors,
                "vectors passed as inputs_embeds come back without positions; add positions to them as to rows",
            )
        },
        message="the result is not inputs_embeds plus the encoding",
        atol=CLOSE,
    )


def one_input(session: GradingSession) -> None:
    """raises ValueError for both inputs or neither"""
    wrapper, ids, width = draw(session)
    vectors = session.random_normal(*ids.shape, width)
    message = "input_ids and inputs_embeds together are an error, because it is unclear which one is meant"
    wrapper.assert_raises("both-inputs", input_ids=ids, inputs_embeds=vectors, message=message)
    wrapper.assert_raises("neither-input", message="a call without input_ids and without inputs_embeds is an error")


def switch(session: GradingSession) -> None:
    """adds nothing and has no length limit if positions=False"""
    width, block_size = 2 * session.random_int(2, 5), session.random_int(4, 6)
    wrapper = session.construct(20, width, block_size, positions=False)
    off = "with positions=False"
    for length, long in ((block_size - 1, False), (block_size + session.random_int(1, 4), True)):
        ids, vectors = session.random_ids(20, (2, length)), session.random_normal(2, length, width)
        rows = table_of(wrapper)[ids]
        tokens = f"{length} tokens (block_size {block_size})"
        as_they_are(
            wrapper.try_call(input_ids=ids),
            rows,
            rule="limit-without-positions" if long else "switch-ignored",
            raised=f"{off} a text of {tokens}",
            message="with positions=False, return the rows unchanged",
        )
        as_they_are(
            wrapper.try_call(inputs_embeds=vectors),
            vectors,
            rule="embeds-limit-when-off" if long else "embeds-when-off",
            raised=f"{off} inputs_embeds of {tokens}",
            message=f"{off} inputs_embeds must come back unchanged",
        )


def before_and_after(session: GradingSession) -> None:
    """before_and_after returns the rows, and the rows with positions"""
    wrapper, ids, width = draw(session)
    before, after = two_tensors(wrapper.method("before_and_after", ids))
    rows, encoding = table_of(wrapper)[ids], sinusoidal_encoding(torch.arange(ids.shape[1]), width)
    check_values(
        before,
        rows,
        mistakes={
            "before-changed": (
                rows + encoding,
                "the 'before' tensor already has positions: both results are one tensor that was modified in place",
            )
        },
        message="the 'before' tensor is not the rows of the table",
        atol=CLOSE,
    )
    check_values(
        after, rows + encoding, rule="after", message="the 'after' tensor is not the rows plus the encoding", atol=CLOSE
    )
    length, off = ids.shape[1], "with positions=False"
    for block_size in (length + 1, length - 1):
        without = session.construct(40, width, block_size, positions=False)
        answer = ask(without, "before_and_after", ids)
        if answer.raised is not None:
            message = f"{off} before_and_after with {length} tokens (block_size {block_size}) raised {answer.raised}"
            raise CheckFailed("before-and-after-when-off", message)
        for part in two_tensors(answer.value):
            message = f"{off} both results of before_and_after must be the rows"
            check_values(part, table_of(without)[ids], rule="before-and-after-when-off", message=message)


def gradient(session: GradingSession) -> None:
    """lets the gradient reach the rows that were looked up and the input vectors"""
    wrapper, _, width = draw(session)
    ids = session.random_ids(6, (2, 5))  # some of them several times
    weight = session.random_normal(2, 5, width)
    got = wrapper.gradients(input_ids=ids, weight=weight).get(TABLE)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches the table, so it could not be trained")
    want = torch.zeros_like(got)
    want.index_add_(0, ids.flatten(), weight.flatten(0, 1))
    check_values(got, want, rule="gradient", message="the rows do not get the gradients of their positions", atol=1e-4)
    back = ask(wrapper, "", None, session.random_normal(2, 5, width), of=1, weight=weight)
    if back.raised is not None:
        raise CheckFailed(
            "embeds-detached", f"your code raised {back.raised} for inputs_embeds that require a gradient"
        )
    if (vector_gradient := back.gradients.get(1)) is None:
        raise CheckFailed(
            "embeds-detached", "no gradient reaches inputs_embeds, so whatever produced them could not be trained"
        )
    check_values(
        vector_gradient,
        weight,
        rule="embeds-gradient",
        message="positions are only added, so inputs_embeds must get the gradient of the result unchanged",
        atol=1e-4,
    )


def registered(session: GradingSession) -> None:
    """has the table as its only parameter and the encoding as a buffer"""
    width, block_size = 2 * session.random_int(4, 6), session.random_int(30, 60)
    wrapper, ids = session.construct(20, width, block_size), session.random_ids(20, (2, 6))
    more = sorted(set(wrapper.tensors("parameters")) - {TABLE})
    if more:
        raise CheckFailed(
            "parameter-not-buffer",
            f"{more[0]} is a parameter, so an optimizer would train it; the encoding is not trained",
        )
    encoding = wrapper.tensors("buffers").get("encoding")
    if encoding is None:
        raise CheckFailed(
            "not-a-buffer", "the module has no buffer 'encoding'; a plain attribute does not move with the module"
        )
    if encoding.shape != (block_size, width):
        raise CheckFailed(
            "placeholder-buffer",
            f"the buffer 'encoding' has shape {tuple(encoding.shape)}; it must be (block_size, n_embd) = "
            f"({block_size}, {width})",
        )
    check_dtype(encoding, torch.float32, rule="buffer-dtype")
    check_values(
        encoding,
        sinusoidal_encoding(torch.arange(block_size), width),
        rule="buffer-values",
        message="the buffer 'encoding' does not contain the values of the formula",
        atol=CLOSER,
    )
    if ask(wrapper, "encoding.zero_").raised is None:  # from now on, the buffer contributes nothing
        check_values(
            wrapper.call(input_ids=ids),
            table_of(wrapper)[ids],
            rule="buffer-unused",
            message="the encoding that is added does not come from the buffer, so it would not move with the module",
            atol=CLOSE,
        )


def saved(session: GradingSession) -> None:
    """has only the table in its state_dict, which loads into a new module"""
    wrapper, ids, width = draw(session)
    state = wrapper.tensors("state_dict")
    if set(state) != {TABLE}:
        raise CheckFailed(
            "state-dict-keys", f"the state_dict contains {', '.join(sorted(state))}; it must contain only {TABLE}"
        )
    rows = state[TABLE].shape[0]
    fresh = session.construct(rows, width, ids.shape[1] + 1)
    fresh.call(input_ids=ids)
    fresh.method("load_state_dict", state)
    check_values(
        fresh.call(input_ids=ids),
        wrapper.call(input_ids=ids),
        rule="round-trip",
        message="a new module that loaded the state_dict gives different hidden states from the original",
    )


def limit(session: GradingSession) -> None:
    """accepts block_size tokens and raises ValueError for one more"""
    width, block_size = 2 * session.random_int(2, 5), session.random_int(4, 8)
    wrapper = session.construct(20, width, block_size)
    ids = session.random_ids(20, (2, block_size))
    fits = f"{block_size} tokens fit block_size {block_size}, but"
    answer = wrapper.try_call(input_ids=ids)
    if answer.raised is not None:
        raise CheckFailed("full-length-refused", f"{fits} your code raised {answer.raised}")
    answer = wrapper.try_call(inputs_embeds=session.random_normal(2, block_size, width))
    if answer.raised is not None:
        raise CheckFailed("embeds-full-length-refused", f"{fits} as inputs_embeds they raised {answer.raised}")
    answer = ask(wrapper, "before_and_after", ids)
    if answer.raised is not None:
        raise CheckFailed("before-and-after-full-length-refused", f"{fits} before_and_after raised {answer.raised}")
    longer = block_size + 1
    message = f"{longer} tokens do not fit block_size {block_size}; that is an error"
    wrapper.assert_raises("past-the-maximum", input_ids=session.random_ids(20, (2, longer)), message=message)
    wrapper.assert_raises("past-the-maximum", inputs_embeds=session.random_normal(2, longer, width), message=message)
    message = f"{longer} tokens do not fit block_size {block_size}; that is also an error in before_and_after"
    answer = ask(wrapper, "before_and_after", session.random_ids(20, (2, longer)))
    check_raised(answer, "before-and-after-past-the-maximum", ValueError, message)


def odd(session: GradingSession) -> None:
    """handles odd widths, where the last sine has no cosine"""
    width = 2 * session.random_int(2, 6) + 1
    try:
        wrapper = session.construct(20, width, 7)
    except CheckFailed as failed:
        raise CheckFailed("odd-width", f"with n_embd = {width}: {failed.message}") from None
    ids = session.random_ids(20, (2, 5))
    check_values(
        wrapper.call(input_ids=ids),
        table_of(wrapper)[ids] + sinusoidal_encoding(torch.arange(5), width),
        rule="odd-width",
        message=f"with n_embd = {width} the encoding does not match the formula",
        atol=CLOSE,
    )


def precision(session: GradingSession) -> None:
    """keeps the table and the encoding in bfloat16 but computes angles in float32"""
    width, length = 2 * session.random_int(3, 6), session.random_int(500, 700)
    wrapper = session.construct(20, width, length, dtype=torch.bfloat16)
    for name, tensor in (("table", table_of(wrapper)), ("buffer", wrapper.tensors("buffers").get("encoding"))):
        if tensor is None or tensor.dtype != torch.bfloat16:
            found = "missing" if tensor is None else f"{tensor.dtype}"
            raise CheckFailed(f"{name}-dtype", f"with dtype bfloat16 the {name} is {found}; keep it in the given dtype")
    ids = session.random_ids(20, (1, length))
    got = wrapper.call(input_ids=ids)
    check_dtype(got, torch.bfloat16)
    check_values(
        got,
        table_of(wrapper)[ids].float() + sinusoidal_encoding(torch.arange(length), width),
        rule="low-precision-angles",
        message="with bfloat16 the encoding of later positions is wrong; cast the finished encoding, not the angles",
        atol=0.06,
    )


CHECKS = (
    table,
    shape,
    untouched,
    values,
    ready_vectors,
    one_input,
    switch,
    before_and_after,
    gradient,
    registered,
    saved,
    limit,
    odd,
    precision,
)


def walk_output(session: GradingSession) -> Tensor:
    """Return hidden states for the walk's sentence from the learner's module, positions off, as in the sample."""
    weight, ids = sample()
    wrapper = session.construct(*weight.shape, 8, positions=False)
    wrapper.method("load_state_dict", {TABLE: weight})
    got: Tensor = wrapper.call(input_ids=ids)
    return got


def draw(session: GradingSession) -> tuple[RemoteObject, Tensor, int]:
    """Create a module with room for a few more tokens than the ids have; every id occurs once."""
    batch, length, width = session.random_int(2, 4), session.random_int(5, 7), 2 * session.random_int(4, 6)
    wrapper = session.construct(40, width, length + session.random_int(1, 3))
    ids = torch.randperm(40, generator=session.generator)[: batch * length].reshape(batch, length)
    return wrapper, ids, width


def ask(wrapper: RemoteObject, path: str, *args: Any, **further: Any) -> CallResult:
    """Call a part of the module, or the module itself if the path is empty, without judging the result."""
    return wrapper.session._call(wrapper.handle, path, args, {}, **further)


def as_they_are(answer: CallResult, want: Tensor, *, rule: str, raised: str, message: str) -> None:
    """Check vectors to which nothing should have been added."""
    if answer.raised is not None:
        raise CheckFailed(rule, f"{raised} raised {answer.raised}")
    check_values(answer.value, want, rule=rule, message=message)


def two_tensors(value: Any) -> tuple[Any, Any]:
    """Return the two results of before_and_after."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise CheckFailed(
            "two-tensors", "before_and_after must return two tensors, the rows and the rows with positions"
        )
    return value[0], value[1]


def table_of(wrapper: RemoteObject) -> Tensor:
    """Return the current table."""
    weight = wrapper.attribute(TABLE)
    if not isinstance(weight, Tensor):
        raise CheckFailed("missing", f"{TABLE} is not a tensor; token_embedding must be an nn.Embedding")
    return weight.detach()

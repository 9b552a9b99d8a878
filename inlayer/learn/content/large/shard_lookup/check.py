"""Checks for the task "A table sharded by rows"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, value_of

NAME = "shard_lookup"
PARAMETERS = ("table", "ids", "rank", "processes")


def borders(rows: int, processes: int) -> list[tuple[int, int]]:
    """Return the first row, and the one past the last, for each process."""
    each = -(-rows // processes)
    return [(min(rank * each, rows), min((rank + 1) * each, rows)) for rank in range(processes)]


def part(table: Tensor, ids: Tensor, first: int, last: int) -> Tensor:
    """Return the rows of ids in first..last - 1, with zeros elsewhere."""
    mine = (ids >= first) & (ids < last)
    return table[ids] * mine[..., None]


def every_id(session: GradingSession, rows: int) -> Tensor:
    """Return ids (2, V) in which each row occurs."""
    return torch.randperm(2 * rows, generator=session.generator).view(2, rows) % rows


def draw(session: GradingSession) -> tuple[Tensor, Tensor, int]:
    """Return a table whose rows do not divide evenly, all ids, and a number of processes."""
    processes = session.random_int(3, 5)
    rows = processes * session.random_int(3, 5) - session.random_int(1, 2)
    return session.random_normal(rows, session.random_int(6, 8)), every_id(session, rows), processes


def shape(session: GradingSession) -> None:
    """returns a vector for every id"""
    table, ids, processes = draw(session)
    first, last = borders(len(table), processes)[1]
    mine = int(((ids >= first) & (ids < last)).sum())
    got = session.call(table, ids, 1, processes)
    width = table.shape[1]
    only_own = "the result has only this shard's rows; keep every position, with zeros for rows of other shards"
    check_shape(got, (*ids.shape, width), "B T D", mistakes={"positions-lost": ((mine, width), only_own)})


def values(session: GradingSession) -> None:
    """returns its own rows, and zeros elsewhere"""
    table, ids, processes = draw(session)
    rows, each = len(table), -(-len(table) // processes)
    for rank in (1, processes - 1, 0):  # the middle one reveals the most
        first, last = borders(rows, processes)[rank]
        low, high = rank * (rows // processes), (rank + 1) * (rows // processes)
        own = table[first:last]
        clamped = own[(ids - first).clamp(0, len(own) - 1)]
        not_shifted = own[ids.clamp(max=len(own) - 1)] * ((ids >= first) & (ids < last))[..., None]
        check_values(
            session.call(table, ids, rank, processes),
            part(table, ids, first, last),
            mistakes={
                "whole-table": (table[ids], "the rows of all ids are there, including those that other processes hold"),
                "not-zeroed": (clamped, "an id of another process gets a row of this one; it must get zeros"),
                "wrapped": (own[ids % len(own)], "an id of another process is wrapped around to a row of this one"),
                "round-robin": (
                    table[ids] * (ids % processes == rank)[..., None],
                    "the rows are assigned round-robin; each process must hold a contiguous block",
                ),
                "not-shifted": (
                    not_shifted,
                    "you index this process's rows with unshifted ids; subtract its first row",
                ),
                "boundary-twice": (
                    part(table, ids, first, rank * each + each + 1),
                    "you included the row past the end; it belongs to the next process",
                ),
                "boundary-lost": (part(table, ids, first + 1, last), "the first row of this process is not found"),
                "rounded-down": (
                    part(table, ids, low, high),
                    "you rounded the number of rows per process down, so the last rows belong to no one; round up",
                ),
            },
            message=f"process {rank} of {processes} does not return what it holds of {rows} rows",
        )


def others_unread(session: GradingSession) -> None:
    """does not use values from other processes' rows"""
    table, ids, processes = draw(session)
    for rank, (first, last) in enumerate(borders(len(table), processes)):
        own = torch.full_like(table, float("nan"))
        own[first:last] = table[first:last]
        got = session.call(own, ids, rank, processes)
        if isinstance(got, Tensor) and bool(got.isnan().any()):
            raise CheckFailed(
                "reads-others",
                "a row of another process took part: such rows contain NaN here, and zero times NaN is NaN",
            )
        check_values(
            got, part(table, ids, first, last), message="the result is wrong when a process has only its own rows"
        )


def all_reduce_sum(session: GradingSession) -> None:
    """adds up to the lookup over all processes, for any number of rows"""
    for rows, processes in (
        (session.random_int(5, 9), 1),
        (session.random_int(2, 4) * 4, 4),
        (9, 4),
        (session.random_int(2, 3), 5),
    ):
        table, ids = session.random_normal(rows, 3), every_id(session, rows)
        total = torch.zeros(*ids.shape, 3)
        for rank in range(processes):
            answer = session.try_call(table, ids, rank, processes)
            first, last = borders(rows, processes)[rank]
            if answer.raised is not None and first == last:
                raise CheckFailed(
                    "empty-part",
                    f"with {rows} rows, process {rank} of {processes} holds none, and your code raised {answer.raised}",
                )
            got = value_of(answer)
            check_shape(got, (*ids.shape, 3), "B T D")
            total += got
        check_values(
            total, table[ids], rule="sum", message=f"{rows} rows over {processes} processes do not add up to the lookup"
        )


def gradient(session: GradingSession) -> None:
    """trains the rows of this process from all of their positions"""
    table, ids, processes = draw(session)
    first, last = borders(len(table), processes)[1]
    weight = session.random_normal(*ids.shape, table.shape[1])
    got = session.gradient(table, ids, 1, processes, of=0, weight=weight)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches the rows; they were copied as plain numbers")
    want = torch.zeros_like(table).index_add_(0, ids.flatten(), weight.flatten(0, 1))
    want[:first] = 0
    want[last:] = 0
    check_values(got, want, rule="gradient", message="the gradient of the rows is not that of a lookup", atol=1e-5)


CHECKS = (shape, values, others_unread, all_reduce_sum, gradient)


def walk_output(session: GradingSession) -> Tensor:
    """Return the rows of "I love dogs", summed over three processes that run the learner's code."""
    import inlayer

    model = inlayer.load("default")
    ids = torch.tensor([model.tokenizer.encode("I love dogs")])
    table = model.embeddings.token_embedding.weight.detach().float()
    total = torch.zeros(*ids.shape, table.shape[1])
    for rank in range(3):
        total += session.call(table, ids, rank, 3)
    return total

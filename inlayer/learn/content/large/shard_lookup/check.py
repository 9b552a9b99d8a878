"""Checks of "A table cut by rows"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, value_of

NAME = "shard_lookup"
PARAMETERS = ("table", "ids", "rank", "processes")


def borders(rows: int, processes: int) -> list[tuple[int, int]]:
    """First row and the one past the last, for each process."""
    each = -(-rows // processes)
    return [(min(rank * each, rows), min((rank + 1) * each, rows)) for rank in range(processes)]


def part(table: Tensor, ids: Tensor, first: int, last: int) -> Tensor:
    """The rows of ids in first..last - 1, zeros elsewhere."""
    mine = (ids >= first) & (ids < last)
    return table[ids] * mine[..., None]


def every_id(session: GradingSession, rows: int) -> Tensor:
    """Ids (2, V) in which each row stands, at some place."""
    return torch.randperm(2 * rows, generator=session.generator).view(2, rows) % rows


def draw(session: GradingSession) -> tuple[Tensor, Tensor, int]:
    """A table whose rows do not divide evenly, all ids, and a number of processes."""
    processes = session.random_int(3, 5)
    rows = processes * session.random_int(3, 5) - session.random_int(1, 2)
    return session.random_normal(rows, session.random_int(6, 8)), every_id(session, rows), processes


def shape(session: GradingSession) -> None:
    """every process has a place for every id"""
    table, ids, processes = draw(session)
    first, last = borders(len(table), processes)[1]
    mine = int(((ids >= first) & (ids < last)).sum())
    got = session.call(table, ids, 1, processes)
    width = table.shape[1]
    only_own = "only the rows that were found are there; every id keeps its place, with zeros where the row is not held"
    check_shape(got, (*ids.shape, width), "B T D", mistakes={"positions-lost": ((mine, width), only_own)})


def values(session: GradingSession) -> None:
    """a process finds its own rows, and zeros elsewhere"""
    table, ids, processes = draw(session)
    rows, each = len(table), -(-len(table) // processes)
    for rank in (1, processes - 1, 0):  # the middle one tells most
        first, last = borders(rows, processes)[rank]
        low, high = rank * (rows // processes), (rank + 1) * (rows // processes)
        own = table[first:last]
        clamped = own[(ids - first).clamp(0, len(own) - 1)]
        not_shifted = own[ids.clamp(max=len(own) - 1)] * ((ids >= first) & (ids < last))[..., None]
        check_values(
            session.call(table, ids, rank, processes),
            part(table, ids, first, last),
            mistakes={
                "whole-table": (table[ids], "the rows of all ids are there, also of those that other processes hold"),
                "not-zeroed": (clamped, "an id of another process gets a row of this one; it must get zeros"),
                "wrapped": (own[ids % len(own)], "an id of another process is wrapped around to a row of this one"),
                "round-robin": (
                    table[ids] * (ids % processes == rank)[..., None],
                    "the rows are dealt out one by one, in turn; each process holds a block of neighbors",
                ),
                "not-shifted": (
                    not_shifted,
                    "an id is used as it is to index the rows of this process; its row 0 is another",
                ),
                "boundary-twice": (
                    part(table, ids, first, rank * each + each + 1),
                    "the row past the end is taken as well; it is the next one's",
                ),
                "boundary-lost": (part(table, ids, first + 1, last), "the first row of this process is not found"),
                "rounded-down": (
                    part(table, ids, low, high),
                    "the number of rows for each process is rounded down; who has the rest? It is to be rounded up",
                ),
            },
            message=f"process {rank} of {processes} does not find what it holds of {rows} rows",
        )


def others_unread(session: GradingSession) -> None:
    """numbers of other processes' rows take no part"""
    table, ids, processes = draw(session)
    for rank, (first, last) in enumerate(borders(len(table), processes)):
        own = torch.full_like(table, float("nan"))
        own[first:last] = table[first:last]
        got = session.call(own, ids, rank, processes)
        if isinstance(got, Tensor) and bool(got.isnan().any()):
            raise CheckFailed(
                "reads-others", "a row of another process took part: here such rows hold NaN, and zero times NaN is NaN"
            )
        check_values(
            got, part(table, ids, first, last), message="with only its own rows at hand, a process finds something else"
        )


def sum_of_all(session: GradingSession) -> None:
    """the sum over all processes is the lookup, for any number of rows"""
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
                    f"of {rows} rows process {rank} of {processes} holds none; it raised {answer.raised}",
                )
            got = value_of(answer)
            check_shape(got, (*ids.shape, 3), "B T D")
            total += got
        check_values(
            total, table[ids], rule="sum", message=f"{rows} rows over {processes} processes do not add up to the lookup"
        )


def gradient(session: GradingSession) -> None:
    """the rows of this process learn, each from all of its places"""
    table, ids, processes = draw(session)
    first, last = borders(len(table), processes)[1]
    weight = session.random_normal(*ids.shape, table.shape[1])
    got = session.gradient(table, ids, 1, processes, of=0, weight=weight)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches the rows; they were copied as bare numbers")
    want = torch.zeros_like(table).index_add_(0, ids.flatten(), weight.flatten(0, 1))
    want[:first] = 0
    want[last:] = 0
    check_values(got, want, rule="gradient", message="the gradient of the rows is not that of a lookup", atol=1e-5)


CHECKS = (shape, values, others_unread, sum_of_all, gradient)


def walk_output(session: GradingSession) -> Tensor:
    """The rows of "I love dogs", added up over three processes of the learner's."""
    import inlayer

    model = inlayer.load("default")
    assert model.tokenizer is not None
    ids = torch.tensor([model.tokenizer.encode("I love dogs")])
    table = model.table.in_memory().weight.detach().float()
    total = torch.zeros(*ids.shape, table.shape[1])
    for rank in range(3):
        total += session.call(table, ids, rank, 3)
    return total

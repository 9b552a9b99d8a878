"""Everything a check can do with a learner's file, compared with the same computation in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

from inlayer.learn.course import open_course
from inlayer.learn.grader import grade
from inlayer.learn.session import CheckFailed, GradingSession, RemoteObject
from tests.learn.toy import SOLUTION, toy

SOURCE = """
import torch
from torch import nn

class Made(nn.Module):
    def __init__(self, rows, width=3):
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.register_buffer("offset", torch.ones(width))
        self.size = (rows, width)

    def forward(self, ids, scale=1.0):
        if ids.numel() == 0:
            raise LookupError("no ids")
        return self.table(ids) * scale + self.offset

    def first(self):
        return self.table

def edit(table, items):
    table[0] = 7
    items.append(1)
    return None

def unsendable():
    return object()
"""


FORBIDDEN = "import torch\nimport torch.nn.functional as F\ndef add(table, ids):\n    return {}.sum(0)\n"
THREAD = "import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor()\n"


@pytest.fixture
def session() -> Iterator[GradingSession]:
    with GradingSession("Made", seed=1) as made:
        assert made.load(SOURCE, "made.py") is None
        yield made


@pytest.fixture
def remote(session: GradingSession) -> RemoteObject:
    return session.construct(5)


def test_an_object_can_be_called_and_read(session: GradingSession, remote: RemoteObject) -> None:
    parameters, buffers = remote.tensors("parameters"), remote.tensors("buffers")
    assert list(parameters) == ["table.weight"]
    assert list(buffers) == ["offset"]
    assert set(remote.tensors("state_dict")) == {"table.weight", "offset"}
    ids = session.random_ids(5, (2, 4))
    ours = torch.nn.functional.embedding(ids, parameters["table.weight"]) * 2 + 1
    assert torch.equal(remote.call(ids, scale=2.0), ours)
    assert remote.attribute("size") == (5, 3)
    assert torch.equal(remote.attribute("table.weight"), parameters["table.weight"])
    assert isinstance(remote.method("first"), RemoteObject)
    with pytest.raises(CheckFailed, match=r"no table\.depth"):
        remote.attribute("table.depth")


def test_a_state_dict_can_be_loaded_into_another_object(session: GradingSession, remote: RemoteObject) -> None:
    other = session.construct(5)
    assert not torch.equal(other.tensors("parameters")["table.weight"], remote.tensors("parameters")["table.weight"])
    other.method("load_state_dict", remote.tensors("state_dict"))
    assert torch.equal(other.tensors("parameters")["table.weight"], remote.tensors("parameters")["table.weight"])
    with pytest.raises(CheckFailed, match="raises"):
        other.method("load_state_dict", {"unknown": torch.ones(1)})


def test_gradients_of_parameters(session: GradingSession, remote: RemoteObject) -> None:
    ids, weight = torch.tensor([1, 1, 4]), session.random_normal(3, 3)
    for _ in range(2):  # gradients are not accumulated
        ours = torch.zeros(5, 3).index_add_(0, ids, weight)
        theirs = remote.gradients(ids, weight=weight)["table.weight"]
        assert theirs is not None
        torch.testing.assert_close(theirs, ours)


def test_errors_are_reported_or_required(remote: RemoteObject) -> None:
    empty = torch.empty(0, dtype=torch.long)
    raised = remote.try_call(empty).raised
    assert raised is not None
    assert (raised.type, raised.message, raised.line) == ("LookupError", "no ids", 14)
    assert str(raised) == "LookupError: no ids (line 14 of your file)"
    with pytest.raises(CheckFailed) as failed:
        remote.call(empty)
    assert failed.value.rule == "raises"
    remote.assert_raises("empty", empty, error=LookupError)
    remote.assert_raises("empty", empty, error=Exception)
    for error, ids in ((ValueError, empty), (LookupError, torch.tensor([1]))):
        with pytest.raises(CheckFailed) as failed:
            remote.assert_raises("empty", ids, error=error)
        assert failed.value.rule == "empty"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_printing_never_raises_what_a_check_expects(stream: str) -> None:
    """A lone surrogate cannot be encoded, so printing one would raise the ValueError that this task requires."""
    source = f"""
import sys
def utf8_bytes(text):
    print("debug: €", text, file=sys.{stream})
    return list(text.encode("utf8", "ignore"))
"""
    verdict = grade(open_course().task("utf8_bytes"), source, seed=3)
    assert verdict.failure is not None
    assert verdict.failure.rule == "surrogate-swallowed"
    assert "debug: €" in verdict.printed
    assert "\\ud" in verdict.printed


def test_arguments_modified_in_place_are_returned(session: GradingSession) -> None:
    session.handle = "edit"
    table = session.random_normal(2, 2)
    answer = session.try_call(table, [])
    (after,) = answer.tensor_arguments
    assert answer.arguments[1] == [1]
    assert bool((after[0] == 7).all())
    assert torch.equal(after[1], table[1])
    assert not bool((table[0] == 7).any())  # ours is a copy


def test_other_functions_and_unsendable_results(session: GradingSession) -> None:
    assert session.call_other("unsendable") is not None
    assert isinstance(session.call_other("edit", torch.ones(1), []), type(None))
    with pytest.raises(CheckFailed):
        session.call_other("not_there")


def test_a_function_instead_of_a_class_fails() -> None:
    with GradingSession("Made", seed=0) as session:
        session.load("def Made(rows): return 3\n", "made.py")
        with pytest.raises(CheckFailed, match="must return an object"):
            session.construct(3)


def test_verdicts_count_passed_checks() -> None:
    verdict = grade(toy(), SOLUTION, seed=5)
    assert verdict.passed
    assert verdict.summary == "6 of 6 checks passed"
    assert verdict.walk_output is not None
    assert verdict.walk_output.tolist() == [1.0, 0.0, 1.0]
    failed = grade(toy(), "def add(table, ids):\n    return table[ids].mean(0)\n", seed=5)
    assert not failed.passed
    assert failed.summary == "4 of 6 checks passed; values failed, 1 was not run"
    assert [result.state for result in failed.results] == ["passed"] * 4 + ["failed", "not run"]
    assert (failed.failure.rule, failed.failure.message) == ("mean", "this is the mean")  # type: ignore[union-attr]
    assert failed.walk_output is None


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("def add(a, b): return 1\n", "parameters"),
        ("def add(ids, table): return 1\n", "parameters"),
        (FORBIDDEN.format("F.embedding(ids, table)"), "forbidden-name"),
        (FORBIDDEN.format("getattr(F, 'embed' + 'ding')(ids, table)"), "forbidden-name"),
        (FORBIDDEN.format("torch.ops.aten.embedding(table, ids)"), "forbidden-name"),
        (FORBIDDEN.format("torch.nn.EmbeddingBag.from_pretrained(table)(ids[None])"), "forbidden-name"),
        (THREAD + FORBIDDEN.format("pool.submit(F.embedding, ids, table).result()"), "forbidden-name"),
        (THREAD + "pool.submit(print)\n", "forbidden-name"),
        ("def add(table, ids):\n    return table[ids]\n", "not-added"),
        ("def add(table, ids):\n    return [1]\n", "not-a-tensor"),
        ("def add(table, ids):\n    return table[ids].sum(0).detach()\n", "no-gradient"),
        ("def add(table, ids):\n    return table[ids].sum(0) * float('nan')\n", "not-finite"),
        ("1 / 0\n", "raises"),
    ],
)
def test_rules_of_the_framework(source: str, rule: str) -> None:
    failure = grade(toy(), source).failure
    assert failure is not None
    assert failure.rule == rule


def test_an_error_inside_a_check_is_a_failure() -> None:
    task = toy()

    def careless(session: GradingSession) -> None:
        """does not expect a list"""
        session.call(session.random_normal(2, 2), session.random_ids(2, (1,))).sum().item()

    sys.modules["inlayer.learn.content.toys.add.check"].__dict__["CHECKS"] = (careless,)
    failure = grade(task, "def add(table, ids):\n    return [1]\n").failure
    assert failure is not None
    assert failure.rule == "unexpected"
    assert grade(task, SOLUTION).passed


def test_an_invalid_seed_is_an_error() -> None:
    with pytest.raises(ValueError, match="seed is -1"):
        grade(toy(), SOLUTION, seed=-1)

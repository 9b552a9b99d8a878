"""look_up: bit-identical to torch's embedding on every path, and its errors."""

from __future__ import annotations

import copy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import cycle, product

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from inlayer.errors import DtypeError, IdRangeError, InlayerError, InputError, ShapeError
from inlayer.tables import look_up
from inlayer.tables import table as table_module

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.fixture(params=["pooled", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both paths through look_up, for any size."""
    monkeypatch.setattr(table_module, "MIN_BUFFERED_BYTES", 1 if request.param == "pooled" else 2**60)
    return str(request.param)


def same(ours: Tensor, theirs: Tensor) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    torch.testing.assert_close(
        ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("dtype", "shape", "id_dtype"),
    [
        (*case, id_dtype)
        for case, id_dtype in zip(
            product(DTYPES, [(), (7,), (3, 5), (2, 3, 4), (0,), (2, 0), (0, 3)]),
            cycle([torch.int64, torch.int32, torch.int16, torch.uint8]),
            strict=False,
        )
    ],
)
def test_bit_equal_to_embedding(path: str, dtype: torch.dtype, shape: tuple[int, ...], id_dtype: torch.dtype) -> None:
    weight = torch.randn(11, 6).to(dtype)
    ids = torch.randint(0, 11, shape)
    ours, theirs = look_up(ids.to(id_dtype), weight), functional.embedding(ids, weight)
    same(ours, theirs)
    if ids.numel():  # control
        with pytest.raises(AssertionError):
            same(look_up((ids + 1) % 11, weight), theirs)


def test_equals_a_plain_loop(path: str) -> None:
    weight = torch.randn(9, 4)
    ids = torch.tensor([[8, 0, 3], [3, 3, 1]])
    theirs = torch.stack([torch.stack([weight[int(i)] for i in row]) for row in ids])
    same(look_up(ids, weight), theirs)


def test_nan_and_infinity_are_copied_bit_for_bit(path: str) -> None:
    weight = torch.tensor([[float("nan"), float("inf")], [-0.0, 1e-45]])
    same(look_up(torch.tensor([1, 0]), weight), weight.flip(0))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes_match_embedding(path: str, mode: type[AbstractContextManager[None]]) -> None:
    weight = torch.nn.Parameter(torch.randn(9, 4))
    ids = torch.tensor([[1, 2]])
    with mode():
        ours, theirs = look_up(ids, weight), functional.embedding(ids, weight)
        same(ours.detach(), theirs.detach())
    assert (ours.requires_grad, ours.is_inference()) == (theirs.requires_grad, theirs.is_inference())


def test_gradient_matches_embedding_and_skips_the_padding_row(path: str) -> None:
    ours, theirs = (torch.nn.Parameter(torch.arange(20.0).view(5, 4)) for _ in range(2))
    ids = torch.tensor([[0, 3, 3], [2, 0, 4]])
    (look_up(ids, ours, 0) ** 2).sum().backward()
    (functional.embedding(ids, theirs, 0) ** 2).sum().backward()
    same(ours.grad, theirs.grad)
    assert bool((ours.grad[0] == 0).all())
    assert bool((ours.grad[3] != 0).all())  # control


def test_non_contiguous_table_and_ids(path: str) -> None:
    weight = torch.randn(4, 9).t()
    ids = torch.randint(0, 9, (5, 6)).t()
    same(look_up(ids, weight), functional.embedding(ids, weight))


def test_result_can_join_a_graph_later(path: str) -> None:
    weight = torch.randn(9, 4)
    hidden = look_up(torch.tensor([1, 2]), weight).requires_grad_()
    loss = (hidden * 3).sum()
    for _ in range(5):
        look_up(torch.tensor([3, 4]), weight)
    loss.backward()
    assert torch.equal(hidden.grad, torch.full((2, 4), 3.0))
    same(hidden.detach(), weight[1:3])


def keeps_results(weight: Tensor) -> bool:
    """Look up in eight threads, keep results for a while, compare them with the table."""

    def work(seed: int) -> bool:
        generator = torch.Generator().manual_seed(seed)
        kept: list[tuple[Tensor, Tensor]] = []
        for step in range(100):
            ids = torch.randint(0, len(weight), (40,), generator=generator)
            kept.append((ids, look_up(ids, weight)))
            if len(kept) > 8:
                kept.pop(step % 8)
        return all(torch.equal(rows, weight[ids]) for ids, rows in kept)

    with ThreadPoolExecutor(8) as threads:
        return all(threads.map(work, range(8)))


def test_many_results_are_unchanged_across_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MIN_BUFFERED_BYTES", 1)
    weight = torch.randn(500, 16)
    assert keeps_results(weight)
    single = torch.empty(40, 16)
    monkeypatch.setattr(table_module._BUFFERS, "lease", lambda *_: single)  # one buffer for everybody
    assert not keeps_results(weight)


def test_only_large_results_use_the_pool() -> None:
    weight = torch.randn(100, 1024)
    large = torch.randint(0, 100, (table_module.MIN_BUFFERED_BYTES // 4096 + 1,))
    with torch.no_grad():
        rows = look_up(large, weight)
        address = rows.data_ptr()
        del rows
        again = look_up(large, weight)
        assert again.data_ptr() == address
        with pytest.raises(RuntimeError, match="not resizable"):  # pooled: the storage is not its own
            again.resize_(10**9)
        look_up(large[:3], weight).resize_(100_000)


def test_deepcopy_of_a_result(path: str) -> None:
    weight = torch.randn(9, 4)
    rows = look_up(torch.tensor([1, 2]), weight)
    copied = copy.deepcopy(rows)
    assert copied.data_ptr() != rows.data_ptr()
    same(copied, rows)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(
    ("ids", "bad", "place"),
    [
        (torch.tensor([[0, 1, 2, 3], [4, 5, 1, 9]]), "id 9", "[1, 3]"),
        (torch.tensor([[0, 1], [-1, 2]]), "id -1", "[1, 0]"),
        (torch.tensor(9), "id 9", ""),
        (torch.tensor([1, 2**40]), f"id {2**40}", "[1]"),
        (torch.tensor([-(2**63), 0]), f"id {-(2**63)}", "[0]"),
        (torch.tensor([3, 200], dtype=torch.uint8), "id 200", "[1]"),
        (torch.tensor([1, -5], dtype=torch.int32), "id -5", "[1]"),
    ],
)
def test_id_outside_the_table_is_reported(path: str, frozen: bool, ids: Tensor, bad: str, place: str) -> None:
    weight = torch.randn(9, 4, requires_grad=not frozen)
    with pytest.raises(IdRangeError) as caught:
        look_up(ids, weight)
    message = str(caught.value)
    assert f"{bad}{place and f' at {place}'} is outside 0..8; " in message
    assert isinstance(caught.value, IndexError)
    assert isinstance(caught.value, InlayerError)


def test_number_of_bad_ids_is_reported() -> None:
    with pytest.raises(IdRangeError, match=r"id 9 at \[1\] \(and 2 more\)"):
        look_up(torch.tensor([1, 9, 10, -1]), torch.randn(9, 4))


@pytest.mark.parametrize("ids", [torch.tensor([1.0]), torch.tensor([True]), [1, 2], 3, None, "a"])
def test_ids_of_the_wrong_type_are_an_error(path: str, ids: object) -> None:
    with pytest.raises(DtypeError):
        look_up(ids, torch.randn(9, 4))


def test_meta_and_fake_tensors_need_no_values() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    meta = look_up(torch.zeros(2, 3, dtype=torch.int64, device="meta"), torch.empty(9, 4, device="meta"))
    assert (meta.shape, meta.is_meta) == ((2, 3, 4), True)
    with FakeTensorMode():
        fake = look_up(torch.zeros(2, 3, dtype=torch.int64), torch.empty(9, 4))
    assert fake.shape == (2, 3, 4)


def test_ids_and_table_on_different_devices_are_an_error() -> None:
    with pytest.raises(InputError, match="move one of them"):
        look_up(torch.zeros(2, dtype=torch.int64), torch.empty(9, 4, device="meta"))


def test_vmap_and_func_grad(path: str) -> None:
    weight = torch.randn(9, 4)
    ids = torch.tensor([[1, 2], [3, 4]])
    with torch.no_grad():
        same(torch.vmap(lambda row: look_up(row, weight))(ids), weight[ids])
    grad = torch.func.grad(lambda table: look_up(ids, table).sum())(weight)
    assert torch.equal(grad[:, 0], torch.tensor([0.0, 1, 1, 1, 1, 0, 0, 0, 0]))


@pytest.mark.slow
def test_jit_trace_does_not_capture_a_buffer() -> None:
    """In its own process: while tracing, sizes are tensors, which pytest's type checks reject."""
    program = """
import torch
from inlayer.tables import table as table_module
table_module.MIN_BUFFERED_BYTES = 1
weight = torch.randn(9, 4)
traced = torch.jit.trace(lambda ids: table_module.look_up(ids, weight), torch.tensor([1, 2]))
first = traced(torch.tensor([3, 4]))
second = traced(torch.tensor([5, 6]))
assert torch.equal(first, weight[3:5]) and torch.equal(second, weight[5:7])
"""
    subprocess.run([sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program], check=True)


def test_table_with_the_wrong_number_of_axes_is_an_error() -> None:
    with pytest.raises((ShapeError, TypeError)):  # jaxtyping speaks first under pytest
        look_up(torch.tensor([1]), torch.randn(9))

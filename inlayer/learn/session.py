"""The exam: a task's check asks, the learner's process answers, and what is right stays here.

grader -> [exam] <-> learner's process
- arguments are drawn freshly for each exam from its seed; expected values never leave this process
- the time that answers take is limited; who takes longer, prints without end or does what is refused is ended
- what came back is data: nothing of it runs here
Checked in tests/learn/test_session.py and, with misbehaving code, tests/learn/test_misbehaving.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from inlayer.errors import InputError
from inlayer.learn.sandbox.fork_server import end, fork_server
from inlayer.learn.sandbox.protocol import Handle, Other, WireError, decode, encode, receive, send

__all__ = ["CallResult", "CheckFailed", "GradingSession", "Limits", "RaisedError", "RemoteObject"]

MAX_ANSWER = 256 << 20  # bytes of a message
SHOWN = 20_000  # characters of what was printed


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the learner's code may use."""

    seconds: float = 20.0  # for all answers of an exam together
    memory: int = 2 << 30  # bytes beyond what Python and torch take
    output: int = 1 << 20  # bytes that it prints


class CheckFailed(Exception):  # noqa: N818  # it is a verdict
    """A check that does not hold: the rule that is broken, by a short name, and what to do about it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(rule, message)
        self.rule, self.message = rule, message


@dataclass(frozen=True, kw_only=True)
class RaisedError:
    """An error of the learner's code: its type, the names of all its bases, its words, and the line it comes from."""

    type: str
    bases: tuple[str, ...]
    message: str
    line: int | None

    def __str__(self) -> str:
        where = "" if self.line is None else f" (line {self.line} of your file)"
        words = f": {self.message}" if self.message else ""
        return f"{self.type}{words}{where}"


@dataclass(frozen=True, kw_only=True)
class CallResult:
    """What a call gave: a value or an error; and, where watched, all arguments as they are afterwards."""

    value: Any = None
    raised: RaisedError | None = None
    arguments: tuple[Any, ...] = ()
    gradient: Tensor | None = None
    gradients: dict[str, Tensor | None] = field(default_factory=dict)

    @property
    def tensor_arguments(self) -> tuple[Tensor, ...]:
        """Those of them that are tensors."""
        return tuple(one for one in self.arguments if isinstance(one, Tensor))


class GradingSession:
    """One learner's file, open in a process of its own until the block ends."""

    def __init__(self, name: str, *, seed: int, limits: Limits | None = None) -> None:
        self.name, self.seed, self.limits = name, seed, limits or Limits()
        self.generator = torch.Generator().manual_seed(seed)
        if sys.platform == "win32":
            raise InputError("the grader needs Linux, macOS or WSL: it gives code a process with limits, by fork")
        self.scratch = Path(tempfile.mkdtemp(prefix="inlayer-"))
        self.printed = Printed(self.limits.output)
        with self.printed.writer() as output:
            self.channel, self.pid = fork_server().fork(
                output, scratch=self.scratch, memory=self.limits.memory, seconds=self.limits.seconds
            )
        self.channel.settimeout(0.1)
        self.left = self.limits.seconds

    def __enter__(self) -> GradingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all it started; remove its folder."""
        end(self.pid)
        self.channel.close()
        self.printed.close()
        try:
            shutil.rmtree(self.scratch, ignore_errors=True)
        except RecursionError:  # folders within folders within folders
            subprocess.run(["rm", "-rf", str(self.scratch)], check=False)

    # ---- drawing

    def random_normal(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers from N(0, 1)."""
        return torch.randn(*size, generator=self.generator).to(dtype)

    def random_ids(self, rows: int, size: tuple[int, ...], low: int = 0) -> Tensor:
        """Ids from `low` to `rows` - 1."""
        return torch.randint(low, rows, size, generator=self.generator)

    def random_int(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    # ---- asking

    def read(self, source: str) -> dict[str, int]:
        """The names a file uses, each with its line; a failure where it is no Python. Nothing of it runs."""
        found = self._ask(do="read", source=source)
        if "wrong" in found:
            raise CheckFailed("syntax", str(found["wrong"]))
        return dict(found.get("names") or {})

    def load(self, source: str, file: str) -> RaisedError | None:
        """Run the learner's file; the error it raised, if it did."""
        return self._answer(do="load", source=source, file=file).raised

    def signature(self) -> tuple[str, tuple[str, ...]]:
        """What `name` is in the learner's file ("function", "class", "nothing", a type), and its parameters."""
        found = self._ask(do="signature", name=self.name)
        return str(found.get("kind")), tuple(str(one) for one in found.get("parameters", ()))

    def try_call(self, *args: Any, return_arguments: bool = False, **kwargs: Any) -> CallResult:
        """Call the learner's function, and judge nothing."""
        return self._call(self.name, "", args, kwargs, return_arguments=return_arguments)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the learner's function; an error it raises is a failure."""
        return value_of(self.try_call(*args, **kwargs))

    def call_other(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call another function of the learner's file; a failure where it is not there."""
        if self._ask(do="signature", name=name).get("kind") not in {"function", "class"}:
            raise CheckFailed("missing", f"the file must define {name} as well")
        return value_of(self._call(name, "", args, kwargs))

    def gradient(
        self, *args: Any, of: int | str, weight: Tensor, item: int | None = None, **kwargs: Any
    ) -> Tensor | None:
        """The gradient of sum(result * weight) by an argument, by place or name; None where none arrives.

        Of a result that is a tuple, `item` says which part.
        """
        answer = self._call(self.name, "", args, kwargs, of=of, weight=weight, item=item)
        value_of(answer)
        return answer.gradient

    def must_raise(
        self, rule: str, *args: Any, error: type[Exception] = ValueError, message: str = "", **kwargs: Any
    ) -> None:
        """A call that must raise."""
        check_raised(self.try_call(*args, **kwargs), rule, error, message)

    def construct(self, *args: Any, **kwargs: Any) -> RemoteObject:
        """An object of the learner's class; it stays in his process."""
        value = value_of(self._call(self.name, "", args, kwargs))
        if not isinstance(value, Handle):
            raise CheckFailed("missing", f"{self.name}(...) gave {describe_value(value)} and no object of the class")
        return RemoteObject(self, value)

    def _call(
        self, target: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], **further: Any
    ) -> CallResult:
        return self._answer(do="call", target=target, path=path, args=args, kwargs=kwargs, **further)

    def _answer(self, **asked: Any) -> CallResult:
        answer = self._ask(**asked)
        try:
            raised = answer.get("raised")
            return CallResult(
                value=answer.get("value"),
                raised=None if raised is None else RaisedError(**raised),
                arguments=tuple(answer.get("arguments") or ()),
                gradient=answer.get("gradient"),
                gradients=dict(answer.get("gradients") or {}),
            )
        except (TypeError, ValueError, AttributeError):
            raise self._disturbed() from None

    def _ask(self, **asked: Any) -> dict[str, Any]:
        """Send a question and wait for its answer, as long as there is time; only waiting counts."""
        end = time.monotonic() + self.left

        def wait() -> None:
            if self.printed.too_much:
                raise CheckFailed("output", f"your code printed more than {self.limits.output:,} bytes; it was stopped")
            if time.monotonic() >= end:
                raise CheckFailed(
                    "timeout",
                    f"your code ran longer than {self.limits.seconds:g} seconds and was stopped; is there a loop "
                    "that never ends?",
                )

        try:
            send(self.channel, encode(asked), wait)
            answer = decode(receive(self.channel, MAX_ANSWER, wait))
            self.left = end - time.monotonic()
        except WireError:
            raise self._disturbed() from None
        except (EOFError, OSError):
            if self.printed.too_much:
                raise CheckFailed("output", f"your code printed more than {self.limits.output:,} bytes") from None
            raise CheckFailed(
                "ended", "the process of your code ended in the middle: a crash, or more memory than it may use"
            ) from None
        if not isinstance(answer, dict):
            raise self._disturbed()
        if "refused" in answer:
            raise CheckFailed(
                "refused", f"your code tried to {answer['refused']}; no task needs that, and it is refused"
            )
        if "memory" in answer:
            raise CheckFailed(
                "memory", f"your code asked for more than {self.limits.memory / (1 << 30):g} GiB of memory"
            )
        raised = answer.get("raised")
        if isinstance(raised, dict) and raised.get("type") in {"SystemExit", "KeyboardInterrupt"}:
            raise CheckFailed("ended", f"your code raised {raised['type']}: it must give a result, not end the program")
        return answer

    def _disturbed(self) -> CheckFailed:
        return CheckFailed("refused", "your code wrote into the grader's own channel; no task needs that")


@dataclass(frozen=True)
class RemoteObject:
    """An object in the learner's process."""

    session: GradingSession
    handle: Handle

    def try_call(self, *args: Any, return_arguments: bool = False, **kwargs: Any) -> CallResult:
        """Call it, and judge nothing."""
        return self.session._call(self.handle, "", args, kwargs, return_arguments=return_arguments)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; an error it raises is a failure."""
        return value_of(self.try_call(*args, **kwargs))

    def must_raise(
        self, rule: str, *args: Any, error: type[Exception] = ValueError, message: str = "", **kwargs: Any
    ) -> None:
        """A call that must raise."""
        check_raised(self.try_call(*args, **kwargs), rule, error, message)

    def method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call one of its methods, also of its parts: "token_embedding.reset_parameters"."""
        value = value_of(self.session._call(self.handle, name, args, kwargs))
        return RemoteObject(self.session, value) if isinstance(value, Handle) else value

    def attribute(self, path: str) -> Any:
        """One of its attributes, also of its parts; a failure where it is not there."""
        found = self.session._ask(do="look", target=self.handle, path=path)
        if "raised" in found or "missing" in found:
            raise CheckFailed("missing", f"the object has no {path}")
        value = found.get("value")
        return RemoteObject(self.session, value) if isinstance(value, Handle) else value

    def parameters(self) -> dict[str, Tensor]:
        return self._tensors("parameters")

    def buffers(self) -> dict[str, Tensor]:
        return self._tensors("buffers")

    def state_dict(self) -> dict[str, Tensor]:
        return self._tensors("state_dict")

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> None:
        """A failure where it does not take it."""
        value_of(self.session._call(self.handle, "load_state_dict", (dict(state),), {"strict": strict}))

    def gradients(self, *args: Any, weight: Tensor, **kwargs: Any) -> dict[str, Tensor | None]:
        """The gradients of sum(result * weight) by its parameters."""
        answer = self.session._call(self.handle, "", args, kwargs, weight=weight, parameters=True)
        value_of(answer)
        return answer.gradients

    def _tensors(self, which: str) -> dict[str, Tensor]:
        found = self.session._ask(do="tensors", target=self.handle, which=which)
        value = found.get("value")
        if not isinstance(value, dict):
            raise CheckFailed("missing", f"the object is no nn.Module: it has no {which}")
        return {str(name): tensor for name, tensor in value.items() if isinstance(tensor, Tensor)}


class Printed:
    """What the learner's process prints: the beginning is kept, the rest is counted."""

    def __init__(self, most: int) -> None:
        self.most, self.size, self.kept = most, 0, bytearray()
        self.reader, self._writer = os.pipe()
        self.thread = threading.Thread(target=self._read, name="inlayer-printed", daemon=True)

    @contextlib.contextmanager
    def writer(self) -> Any:
        try:
            yield self._writer
        finally:
            os.close(self._writer)
            self.thread.start()

    @property
    def too_much(self) -> bool:
        return self.size > self.most

    def text(self) -> str:
        """The beginning of it."""
        text = bytes(self.kept).decode("utf-8", "replace")[:SHOWN]
        return text + (f"\n... {self.size:,} bytes in all" if self.size > len(self.kept) else "")

    def _read(self) -> None:
        while data := os.read(self.reader, 65_536):
            self.size += len(data)
            self.kept += data[: max(0, SHOWN * 4 - len(self.kept))]
            if self.too_much:  # nobody reads on: the process waits until it is ended
                return

    def close(self) -> None:
        """To be called when the process has ended."""
        self.thread.join(1.0)
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1


def value_of(answer: CallResult) -> Any:
    """The value of a call that must not raise."""
    if answer.raised is not None:
        raise CheckFailed("raises", f"your code raised {answer.raised}")
    return answer.value


def check_raised(answer: CallResult, rule: str, error: type[Exception], message: str) -> None:
    wanted = message or f"this call must raise a {error.__name__}"
    if answer.raised is None:
        raise CheckFailed(rule, f"{wanted}; it gave {describe_value(answer.value)}")
    if error.__name__ not in answer.raised.bases:
        raise CheckFailed(rule, f"{wanted}, which is a {error.__name__}; it raised {answer.raised}")


def describe_value(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (Handle, Other)):
        return f"an object of type {value.kind}"
    return "None" if value is None else f"a value of type {type(value).__name__}"

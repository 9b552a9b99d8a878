"""A grading session: sends calls to the runner of a learner's file and returns their results.

check.py of a task -> [session] <-> sandbox runner
- arguments are random and depend on the session's seed; expected values never leave this process
- printed output goes to a temporary file, which the runner's file size limit bounds
- the runner is killed if it uses too much CPU time, memory, or output, or does something that is not allowed
- the time limit is in CPU time, so correct code does not fail on a busy machine; the wall clock is a backstop
- results are data: nothing that comes back is executed
Tested in tests/learn/test_session.py and, with misbehaving code, in tests/learn/test_misbehaving.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from inlayer.learn.assertions import CheckFailed, LearnerException, RecordedCall, describe_value
from inlayer.learn.sandbox.fork_server import fork_server
from inlayer.learn.sandbox.protocol import MAX_MESSAGE, ProtocolError, RemoteHandle, decode, encode, receive, send
from inlayer.learn.sandbox.restrict import GradingLimits

__all__ = [
    "CallResult", "CheckFailed", "GradingSession", "LearnerException", "RemoteObject", "check_raised",
    "describe_value", "value_of",
]  # fmt: skip

TAMPERED = "your code wrote to the grader's channel; no task requires this, and it is not allowed"
MAX_PRINTED = 20_000  # characters of printed output that are kept


@dataclass(frozen=True, kw_only=True)
class CallResult:
    """The result of a call: a value or an error, and on request the modified arguments or gradients."""

    value: Any = None
    raised: LearnerException | None = None
    arguments: tuple[Any, ...] = ()
    gradients: dict[int | str, Tensor | None] = field(default_factory=dict)

    @property
    def tensor_arguments(self) -> tuple[Tensor, ...]:
        return tuple(argument for argument in self.arguments if isinstance(argument, Tensor))


class CallTarget:
    """Something callable in the learner's code: a function or class by name, or an object by handle."""

    session: GradingSession
    handle: str | RemoteHandle

    def try_call(self, *args: Any, **kwargs: Any) -> CallResult:
        """Call the target; errors are part of the result."""
        return self.session._call(self.handle, "", args, kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the target; the check fails if it raises an error."""
        return value_of(self.try_call(*args, **kwargs))

    def assert_raises(
        self, rule: str, *args: Any, error: type[Exception] = ValueError, message: str = "", **kwargs: Any
    ) -> None:
        """Call the target; the check fails unless it raises `error`."""
        check_raised(self.try_call(*args, **kwargs), rule, error, message)


class GradingSession(CallTarget, AbstractContextManager["GradingSession"]):
    """A learner's file, loaded in a separate process until the session is closed."""

    def __init__(
        self, name: str, *, seed: int, limits: GradingLimits | None = None, parameters: tuple[str, ...] = ()
    ) -> None:
        self.session, self.handle, self.seed, self.parameters = self, name, seed, parameters
        self.limits = limits or GradingLimits()
        self.generator = torch.Generator().manual_seed(seed)
        self.calls: list[RecordedCall] = []  # calls of the current check
        self.server = fork_server()
        self.printed = ""  # the beginning of the printed output, once the session is closed
        with ExitStack() as stack:
            self.scratch = Path(tempfile.mkdtemp(prefix="inlayer-"))
            stack.callback(shutil.rmtree, self.scratch)
            self._output = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            self.channel, self.pid = self.server.fork(self._output.fileno(), scratch=self.scratch, limits=self.limits)
            stack.pop_all()  # __exit__ now does the cleanup
        self._end: tuple[int, float] | None = None
        self.channel.settimeout(0.1)
        self.wall_seconds_left = self.limits.wall_seconds

    def __exit__(self, *_: object) -> None:
        """Kill the process and its group, keep its printed output, and remove its scratch folder."""
        self._kill()
        self.channel.close()
        with self._output as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            self.printed = file.read(MAX_PRINTED * 4).decode("utf-8", "replace")[:MAX_PRINTED]
        if size > MAX_PRINTED * 4:
            self.printed += f"\n... {size:,} bytes in total"
        try:
            shutil.rmtree(self.scratch, ignore_errors=True)
        except RecursionError:  # very deeply nested folders
            subprocess.run(["rm", "-rf", str(self.scratch)], check=False)

    # ---- random arguments

    def random_normal(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw numbers from N(0, 1)."""
        return torch.randn(*size, generator=self.generator).to(dtype)

    def random_ids(self, rows: int, size: tuple[int, ...], low: int = 0) -> Tensor:
        """Draw ids from `low` to `rows` - 1."""
        return torch.randint(low, rows, size, generator=self.generator)

    def random_int(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    # ---- requests

    def parse(self, source: str) -> None:
        """Fail if a file is not valid Python. Does not run any code."""
        self._request(do="parse", source=source)

    def load(self, source: str, file: str, forbidden: tuple[str, ...] = ()) -> LearnerException | None:
        """Run the learner's file and return the error it raised, if any. Using `forbidden` names then fails a check."""
        return self._result(do="load", source=source, file=file, forbidden=forbidden).raised

    def signature(self) -> tuple[str, tuple[str, ...]]:
        """Return what `name` is in the file ("function", "class", "nothing", or a type name), and its parameters."""
        reply = self._request(do="signature", name=self.handle)
        return str(reply.get("kind")), tuple(str(name) for name in reply.get("parameters", ()))

    def call_other(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call another function of the file; the check fails if it does not exist."""
        if self._request(do="signature", name=name).get("kind") not in {"function", "class"}:
            raise CheckFailed("missing", f"the file must also define {name}")
        return value_of(self._call(name, "", args, kwargs))

    def gradient(
        self, *args: Any, of: int | str, weight: Tensor, item: int | None = None, **kwargs: Any
    ) -> Tensor | None:
        """Return the gradient of sum(result * weight) with respect to one argument, or None if there is none.

        `of` is the argument's position or name; `item` selects a part of a result that is a tuple.
        """
        result = self._call(self.handle, "", args, kwargs, of=of, weight=weight, item=item)
        value_of(result)
        return result.gradients.get(of)

    def construct(self, *args: Any, **kwargs: Any) -> RemoteObject:
        """Create an object of the learner's class; it stays in the runner."""
        value = self.call(*args, **kwargs)
        if not isinstance(value, RemoteHandle):
            message = f"{self.handle}(...) must return an object of the class; it returned {describe_value(value)}"
            raise CheckFailed("missing", message)
        return RemoteObject(self, value)

    def _call(
        self, target: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], **gradients: Any
    ) -> CallResult:
        name = ".".join(filter(None, [target.kind if isinstance(target, RemoteHandle) else target, path]))
        parameters = self.parameters if target == self.handle else ()
        call = RecordedCall(name=name, parameters=parameters, args=args, kwargs=kwargs)
        self.calls.append(call)
        result = self._result(do="call", target=target, path=path, args=args, kwargs=kwargs, **gradients)
        returned = result.gradients.get(gradients["of"]) if "of" in gradients else result.value
        call.output = returned if result.raised is None else result.raised
        return result

    def _result(self, **request: Any) -> CallResult:
        answer = self._request(**request)
        try:
            raised = answer.pop("raised", None)
            return CallResult(**answer, raised=None if raised is None else LearnerException(**raised))
        except TypeError:
            raise CheckFailed("refused", TAMPERED) from None

    def _request(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer within the limits; only waiting is included in the wall time."""
        end = time.monotonic() + self.wall_seconds_left

        def wait() -> None:
            self._check_output()
            if cpu_seconds(self.pid) >= self.limits.seconds:
                raise self._too_slow()
            if time.monotonic() >= end:
                limit = f"{self.limits.wall_seconds:g} seconds and was stopped; does it wait for something?"
                raise CheckFailed("timeout", f"your code ran longer than {limit}")

        encoded = encode(request)
        try:
            send(self.channel, encoded, wait)
            answer = decode(receive(self.channel, MAX_MESSAGE, wait))
            self.wall_seconds_left = end - time.monotonic()
            if not isinstance(answer, dict):
                raise ProtocolError("an answer without names")
        except ProtocolError:
            raise CheckFailed("refused", TAMPERED) from None
        except (EOFError, OSError):
            self._check_output()
            number, seconds = self._kill()
            # On a busy machine, the kernel may be first to stop a slow runner. The kernel counts ticks, so the CPU time
            # that it reports can be much less.
            if number == signal.SIGXCPU or (number == signal.SIGKILL and seconds >= self.limits.seconds / 2):
                raise self._too_slow() from None
            message = "the process of your code ended unexpectedly: it crashed or used too much memory"
            raise CheckFailed("ended", message) from None
        if "rule" in answer:
            raise CheckFailed(str(answer["rule"]), str(answer.get("message")))
        return answer

    def _check_output(self) -> None:
        if os.fstat(self._output.fileno()).st_size > self.limits.output:
            raise CheckFailed("output", f"your code printed more than {self.limits.output:,} bytes and was stopped")

    def _too_slow(self) -> CheckFailed:
        limit = f"{self.limits.seconds:g} seconds of CPU time and was stopped; is there an endless loop?"
        return CheckFailed("timeout", f"your code ran longer than {limit}")

    def _kill(self) -> tuple[int, float]:
        """Kill the process and its group. Return the signal that ended it and its CPU seconds."""
        if self._end is None:
            self._end = self.server.kill(self.pid)
        return self._end


def cpu_seconds(pid: int) -> float:
    """Return the CPU time used by a process, or 0 if it is unknown (the process has ended, or this is not Linux)."""
    with suppress(OSError):
        if sys.platform == "linux":  # elsewhere RLIMIT_CPU and the wall clock apply
            return time.clock_gettime((~pid << 3) | 2)  # the kernel's id for the CPU clock of another process
    return 0.0


@dataclass(frozen=True)
class RemoteObject(CallTarget):
    """An object of the learner's class that stays in the runner."""

    session: GradingSession
    handle: RemoteHandle

    def method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the object or of a part of it: "token_embedding.reset_parameters"."""
        return self._local(value_of(self.session._call(self.handle, name, args, kwargs)))

    def attribute(self, path: str) -> Any:
        """Return an attribute of the object or of a part of it; the check fails if it does not exist."""
        reply = self.session._request(do="attribute", target=self.handle, path=path)
        if "raised" in reply:
            raise CheckFailed("missing", f"the object has no {path}")
        return self._local(reply.get("value"))

    def _local(self, value: Any) -> Any:
        return RemoteObject(self.session, value) if isinstance(value, RemoteHandle) else value

    def gradients(self, *args: Any, weight: Tensor, **kwargs: Any) -> dict[int | str, Tensor | None]:
        """Return the gradients of sum(result * weight) with respect to the parameters."""
        result = self.session._call(self.handle, "", args, kwargs, weight=weight)
        value_of(result)
        return result.gradients

    def tensors(self, which: Literal["parameters", "buffers", "state_dict"]) -> dict[str, Tensor]:
        """Return the named tensors of an nn.Module; the check fails if the object is not one."""
        value = self.session._request(do="tensors", target=self.handle, which=which).get("value")
        if not isinstance(value, dict):
            raise CheckFailed("missing", f"the object must be an nn.Module; it has no {which}")
        return {str(name): tensor for name, tensor in value.items() if isinstance(tensor, Tensor)}


def value_of(result: CallResult) -> Any:
    """Return a call's value; the check fails if it raised."""
    if result.raised is not None:
        raise CheckFailed("raises", f"your code raised {result.raised}")
    return result.value


def check_raised(result: CallResult, rule: str, error: type[Exception], message: str) -> None:
    """Fail the check unless a call raised `error`."""
    requirement = message or f"this call must raise {error.__name__}"
    expected = f"error: {error.__name__}"
    if result.raised is None:
        raise CheckFailed(rule, f"{requirement}; it returned {describe_value(result.value)}", expected)
    if error.__name__ not in result.raised.bases:
        raise CheckFailed(rule, f"{requirement}; your code raised {result.raised}, not {error.__name__}", expected)

"""The runner: the process that loads a learner's file and calls its functions and classes, one message at a time.

fork server -> [runner] <-> session
- it has no expected values and does not grade, so code that changes this process only changes its own results
- it has resource limits (restrict.py) and a separate process group, so all of it can be killed
- an audit hook, which Python code cannot remove, blocks operations that no task needs: starting processes, sending
  signals, using the network, changing files outside the scratch folder, and reading the course's files. The first
  refusal ends the session
- the kernel stops code that gets around the hook (restrict.py). The sandbox is not a security boundary: docs/learn.md
Tested with misbehaving code in tests/learn/test_misbehaving.py.
"""

from __future__ import annotations

import _thread
import ast
import builtins
import inspect
import linecache
import os
import shutil
import socket
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils._python_dispatch import TorchDispatchMode

from inlayer.learn.sandbox.protocol import ProtocolError, RemoteHandle, decode, encode, receive, send
from inlayer.learn.sandbox.restrict import GradingLimits, restrict, set_limits

PRIVATE = str(Path(__file__).parents[1])  # inlayer/learn
MAX_LINE_CHARACTERS = 120  # limit for a line that is not valid Python
MAX_ERROR_CHARACTERS = 2_000  # limit for an error message

# Audit events that no task needs, by their description in a refusal: "your code tried to ...".
REFUSED = {event: action for action, events in {
    "start another process": "os.fork os.forkpty os.posix_spawn",
    "start another program": "os.exec os.system os.spawn os.startfile subprocess.Popen pty.spawn",
    "send a signal": "os.kill os.killpg signal.pthread_kill",
    "change its limits": "resource.setrlimit resource.prlimit",
    "use the network": "socket.connect socket.bind socket.getaddrinfo socket.sendto",
    "call native code (ctypes)": "ctypes.dlopen ctypes.dlsym ctypes.call_function",
    "add an audit hook": "sys.addaudithook",
    "search the process's memory": "gc.get_objects gc.get_referrers gc.get_referents sys._current_frames",
}.items() for event in events.split()}  # fmt: skip
CHANGE_EVENTS = {  # events that change files, and which of their arguments are paths
    "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.mkdir": (0,), "os.link": (0, 1), "os.symlink": (1,),
    "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,), "shutil.rmtree": (0,),
    "sqlite3.connect": (0,),
}  # fmt: skip


def run(channel: socket.socket, scratch: str, limits: GradingLimits) -> NoReturn:
    """Answer requests until the channel closes; called in the forked process."""
    os.chdir(scratch)
    os.environ.update(HOME=scratch, TMPDIR=scratch)
    tempfile.tempdir = scratch  # importing torch may have cached a different one
    for stream in (sys.stdout, sys.stderr):  # printing must not raise: a check may expect a ValueError
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    runner = Runner(channel, scratch, limits)
    set_limits(limits)
    # A traceback may show this file, which cannot be read after restrict().
    linecache.cache[__file__] = (0, None, linecache.getlines(__file__), __file__)
    builtin_exit = os._exit
    for name in [name for name in sys.modules if name.split(".")[:2] == ["inlayer", "learn"]]:
        del sys.modules[name]
    sys.path[0:0] = [scratch]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # rmtree would open folders, which the hook refuses
    restrict(scratch, PRIVATE)
    sys.addaudithook(runner.audit)
    os._exit = runner.refuse_exit  # type: ignore[assignment]
    # These open files without an audit event.
    refuse_from_file = lambda *_, **__: runner.refuse("open a file without Python's file API")  # noqa: E731
    torch.from_file = torch.UntypedStorage.from_file = refuse_from_file  # type: ignore
    if sys.version_info < (3, 12):  # threads start without an audit event
        start_new_thread = _thread.start_new_thread

        def audited(*args: Any) -> int:
            runner.audit("_thread.start_new_thread", args)
            return start_new_thread(*args)

        _thread.start_new_thread = _thread.start_new = threading._start_new_thread = audited  # type: ignore
    try:
        while True:
            runner.answer(receive(channel, sys.maxsize))
    finally:  # the channel is closed, or the learner's code broke Python itself
        builtin_exit(0)


class ForbiddenOperations(TorchDispatchMode):
    """Reports tensor operations whose names start with a forbidden name, such as embedding or embedding_bag."""

    def __init__(self, names: tuple[str, ...], report: Callable[[str], NoReturn]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = {name: name for name in names}
        if "autograd" in names:  # forward mode does not use the autograd engine, and only it uses this operation
            self.names["has_same_storage"] = "autograd"
        self.report = report

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping imports torch._dynamo, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operation = func._schema.name.partition("::")[2].lstrip("_")
        for prefix, name in self.names.items():
            if operation.startswith(prefix):
                self.report(name)
        return func(*args, **(kwargs or {}))


class Runner:
    """The learner's module and the objects it created, answering one request at a time."""

    def __init__(self, channel: socket.socket, scratch: str, limits: GradingLimits) -> None:
        self.send: Callable[[bytes], None] = partial(send, channel)
        self.scratch = os.path.realpath(scratch)
        self.module = ModuleType("learner")
        self.objects: list[Any] = []
        self.threads, self.max_threads = 0, limits.threads
        gigabytes = f"{limits.memory / (1 << 30):g} GiB"
        self.too_much_memory = failure("memory", f"your code used more than {gigabytes} of memory")
        self.streams = (sys.stdout, sys.stderr)  # the code may replace them in sys
        self.on_refusal, self.realpath, self.is_folder = self.refuse, os.path.realpath, os.path.isdir
        self.pid, self.builtin_hash = str(os.getpid()), hash
        self.forbidden: tuple[str, ...] = ()

    # ---- requests

    def answer(self, message: bytes) -> None:
        request = decode(message, self.find)
        handler: Callable[..., dict[str, Any]] = getattr(self, "do_" + request.pop("do"))
        try:
            answer = handler(**request)
        except BaseException as error:
            answer = self.raised(error)
        for stream in self.streams:
            with suppress(OSError, ValueError):
                stream.flush()
        try:
            message = encode(answer, self.keep)
        except (MemoryError, ProtocolError) as error:
            message = encode(self.raised(error))
        self.send(message)

    def do_parse(self, source: str) -> dict[str, Any]:
        """Return the failure if the source is not valid Python, or {} if it is."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(source)
        except SyntaxError as error:
            line = (error.text or "").strip()[:MAX_LINE_CHARACTERS]
            position = f"line {error.lineno}: " if error.lineno else ""
            return failure("syntax", f"{position}{error.msg}" + (f"\n    {line}" if line else ""))
        except (ValueError, RecursionError, MemoryError) as error:  # a NUL, a lone surrogate, endless brackets
            return failure("syntax", f"the file cannot be parsed as Python: {error or type(error).__name__}")
        return {}

    def do_load(self, source: str, file: str, forbidden: tuple[str, ...]) -> dict[str, Any]:
        path = f"{self.scratch}/{file}"
        Path(path).write_text(source, encoding="utf-8")  # for inspect and tracebacks
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        self.module.__dict__.update(__file__=path, __name__=file.removesuffix(".py"))
        sys.modules[self.module.__name__] = self.module
        self.forbidden = forbidden
        for name in [name for name in sys.modules if name.partition(".")[0] in forbidden]:
            del sys.modules[name]  # importing it raises an audit event again
        if "hash" in forbidden:
            builtins.hash = self.hash
        exec(compile(source, path, "exec", dont_inherit=True), self.module.__dict__)
        return {}

    def do_signature(self, name: str) -> dict[str, Any]:
        member = self.module.__dict__.get(name)
        if not callable(member):
            return {"kind": "nothing" if name not in self.module.__dict__ else type(member).__name__, "parameters": ()}
        kind = "class" if isinstance(member, type) else "function"
        parameters: tuple[str, ...] = ()
        with suppress(TypeError, ValueError):
            parameters = tuple(map(str, inspect.signature(member).parameters))
        return {"kind": kind, "parameters": parameters}

    def do_call(
        self, target: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any],
        of: int | str | None = None, item: int | None = None, weight: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Call `target` or its attribute `path`; with `weight`, also differentiate sum(result * weight).

        `of` is the argument to differentiate with respect to; by default, these are the parameters of a module.
        """
        function = self.module.__dict__[target] if isinstance(target, str) else target
        if path:
            function = attrgetter(path)(function)
        leaf: Any = None if of is None else (kwargs[of] if isinstance(of, str) else args[of]).requires_grad_()
        if of is None and weight is not None:
            target.zero_grad(set_to_none=True)
        with self.forbidding():
            value = function(*args, **kwargs)
        if weight is None:
            return {"value": value, "arguments": (*args, *kwargs.values())}
        value = value if item is None else value[item]
        if not isinstance(value, Tensor) or not value.requires_grad or value.shape != weight.shape:
            return {"value": value}
        (value * weight.to(value.dtype)).sum().backward()
        leaves = target.named_parameters() if of is None else [(of, leaf)]
        return {"value": value, "gradients": {name: leaf.grad for name, leaf in leaves}}

    def do_attribute(self, target: Any, path: str) -> dict[str, Any]:
        return {"value": attrgetter(path)(target)}

    def do_tensors(self, target: Any, which: str) -> dict[str, Any]:
        if not isinstance(target, nn.Module):
            return {"missing": True}
        tensors = target.state_dict().items() if which == "state_dict" else getattr(target, f"named_{which}")()
        return {"value": {str(name): tensor for name, tensor in tensors}}

    # ---- objects and errors

    def keep(self, value: Any) -> int:
        self.objects.append(value)
        return len(self.objects) - 1

    def find(self, handle: RemoteHandle) -> Any:
        return self.objects[handle.number]

    def raised(self, error: BaseException) -> dict[str, Any]:
        """Return the answer for an error in the learner's code, or for a result that cannot be sent."""
        if isinstance(error, ProtocolError):
            return failure("too-large", f"your code returned too much: {error}")
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
            return self.too_much_memory
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            name = type(error).__name__
            return failure("ended", f"your code raised {name}; it must return a result, not end the program")
        frames = traceback.walk_tb(error.__traceback__)  # not extract_tb, which reads every file
        own = [line for frame, line in frames if frame.f_code.co_filename == self.module.__file__]
        line = own[-1] if own else None
        try:
            message = str(error)[:MAX_ERROR_CHARACTERS]
        except BaseException:  # __str__ itself may raise
            message = "(its message cannot be shown)"
        bases = tuple(str(base.__name__) for base in type(error).__mro__)
        return {"raised": {"type": bases[0], "bases": bases, "message": message, "line": line}}

    # ---- forbidden names and operations

    @contextmanager
    def forbidding(self) -> Iterator[None]:
        """Detect forbidden tensor operations and autograd when they are executed, however the code obtained them."""
        if not self.forbidden:
            yield
            return
        engine = Variable._execution_engine
        if "autograd" in self.forbidden:
            refusing: Any = SimpleNamespace(run_backward=lambda *_, **__: self.forbid("autograd"))
            Variable._execution_engine = refusing
        try:
            with ForbiddenOperations(self.forbidden, self.forbid):
                yield
        finally:
            Variable._execution_engine = engine

    def hash(self, value: Any) -> int:
        if sys._getframe(1).f_code.co_filename == self.module.__file__:
            self.forbid("hash")
        return self.builtin_hash(value)

    def forbid(self, name: str) -> NoReturn:
        """Fail the check because of a forbidden name, with the line that uses it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.module.__file__:
            frame = frame.f_back
        used_in = f"; line {frame.f_lineno} uses it" if frame else ""
        self.fail("forbidden-name", f"this task must be solved without {name}{used_in}")

    # ---- refusals

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an audit event: block operations that no task needs."""
        if event in REFUSED:
            self.on_refusal(REFUSED[event])
        elif event == "import" and str(args[0]).startswith("inlayer.learn"):
            self.on_refusal("import the grader")
        elif event == "import" and str(args[0]).partition(".")[0] in self.forbidden:
            self.forbid(str(args[0]).partition(".")[0])
        elif event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
            path, mode, flags = (*args, 0, 0)[:3]
            writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            )
            self.check_path(path, bool(writes), opens=True)
        elif event in CHANGE_EVENTS:
            for index in CHANGE_EVENTS[event]:
                self.check_path(args[index], True)
        elif event in ("_thread.start_new_thread", "_thread.start_joinable_thread"):  # joinable since Python 3.13
            if self.forbidden:  # operations are only detected in the thread that the grader calls
                self.forbid("threads")
            self.threads += 1
            if self.threads > self.max_threads:
                self.on_refusal(f"start more than {self.max_threads} threads")

    def check_path(self, path: Any, writes: bool, opens: bool = False) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):  # a file descriptor
            return
        real = self.realpath(os.fsdecode(path))
        if writes and real != os.devnull and not (real + os.sep).startswith(self.scratch + os.sep):
            self.on_refusal(f"change a file outside its scratch folder ({os.fsdecode(path)[:120]})")
        if real == PRIVATE or real.startswith(PRIVATE + os.sep):
            self.on_refusal("read files of the course")
        if real.startswith("/proc/") and real.split("/")[2].isdigit() and real.split("/")[2] != self.pid:
            self.on_refusal("look into other processes")
        if opens and self.is_folder(real):
            self.on_refusal("open a folder as a file")

    def refuse(self, action: str) -> NoReturn:
        self.fail("refused", f"your code tried to {action}; no task requires this, and it is not allowed")

    def refuse_exit(self, code: int = 0) -> NoReturn:
        self.refuse(f"end its process (os._exit({code!r:.20}))")

    def fail(self, rule: str, message: str) -> NoReturn:
        """Report the failure, then raise: the code may catch the error."""
        self.send(encode(failure(rule, message)))
        raise PermissionError(message)


def failure(rule: str, message: str) -> dict[str, Any]:
    """Return the answer that ends the session: the check fails by this rule."""
    return {"rule": rule, "message": message}

"""Limits and kernel restrictions for the runner, which apply even if the learner's code disables the audit hook.

fork server -> runner -> [restrict] -> the learner's file
- limits on CPU time, memory, and files; the session limits wall time and output, and the runner limits threads
- the process has no capabilities, so even root cannot read the grader's environment in /proc
- Landlock (Linux 5.13 and later) permits reading everything except the course and other processes' data, and writing
  only in the scratch folder; newer kernels also block the network and signals to other processes
- seccomp (Linux on x86-64 and ARM) blocks new processes, new programs, and changes of the process group. Only
  this stops a process from outliving the grading: without it, four cases in tests/learn/test_restrict.py fail
- both work without privileges and cannot be undone; on other systems, only the audit hook in runner.py applies
Tested by disabling the hook in tests/learn/test_restrict.py, and with misbehaving code in
tests/learn/test_misbehaving.py.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import platform
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2  # for prctl
CAPABILITIES_VERSION = 0x20080522
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system call numbers, the same on every architecture

# Landlock rights by bit: 0 execute, 1 write, 2 read, 3 list a folder, 4 and 5 remove, 6 to 12 create. Later versions
# added 13 (link or rename across folders) and 14 (truncate).
EXECUTE, WRITE, READ, LIST = (1 << bit for bit in range(4))
CHANGE_RIGHTS = WRITE | sum(1 << bit for bit in range(4, 15))
NETWORK, SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals

THREAD = 0x10000  # the clone flag for a thread instead of a process
ARCHITECTURES = {  # audit number, the number of clone, and the numbers of denied calls
    "x86_64": (0xC000003E, 56, (
        57, 58, 59, 322,  # fork, vfork, execve, execveat
        62, 200, 234, 129, 297, 424,  # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal
        109, 112, 101, 310, 311, 438, 425,  # setpgid, setsid, ptrace, process_vm_readv, _writev, pidfd_getfd, io_uring
    )),
    "aarch64": (0xC00000B7, 220, (221, 281, 129, 130, 131, 138, 240, 424, 154, 157, 117, 270, 271, 438, 425)),
}  # fmt: skip
CLONE3 = 435  # a filter cannot read its flags; if the call is missing, libc creates threads with clone


@dataclass(frozen=True, kw_only=True)
class GradingLimits:
    """Resources that a learner's file may use."""

    seconds: float = 5.0  # CPU time for all checks together
    wall_seconds: float = 120.0
    memory: int = 2 << 30  # bytes in addition to Python and torch
    output: int = 1 << 20  # printed bytes
    file_bytes: int = 64 << 20  # maximum size of each file
    open_files: int = 256
    threads: int = 16


def set_limits(limits: GradingLimits) -> None:
    import resource

    # Ends an endless loop even if the grader is gone: SIGXCPU (the reason), then SIGKILL (cannot be caught).
    cpu_limit = 1 + math.ceil(limits.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files))
    if sys.platform == "linux":  # in addition to the memory mapped before the learner's code runs
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + limits.memory, mapped + limits.memory))


def restrict(scratch: str, private: str) -> None:
    """Restrict this process: it can write only in `scratch` and cannot read anything under `private`."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    library.capset(struct.pack("<Ii", CAPABILITIES_VERSION, 0), bytes(24))  # root may not inspect other processes
    restrict_files(library.syscall, scratch, private)
    if platform.machine() in ARCHITECTURES:
        restrict_calls(library.prctl, *ARCHITECTURES[platform.machine()])


def restrict_files(syscall: Callable[..., int], scratch: str, private: str) -> None:
    version = syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:  # not supported by this kernel
        return
    handled = (EXECUTE | READ | LIST | CHANGE_RIGHTS) & ((1 << min(12 + version, 15)) - 1)
    known = 24 if version >= 6 else 16 if version >= 4 else 8  # bytes of attributes
    attributes = struct.pack("<QQQ", handled, NETWORK, SCOPES)[:known]
    rules = syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)

    def allow(path: str, rights: int) -> None:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # deleted, or not readable anyway
            return
        if not os.path.isdir(path):  # noqa: PTH112
            rights &= EXECUTE | WRITE | READ | 1 << 14
        syscall(ADD_RULE, rules, 1, struct.pack("<Qi", rights & handled, handle), 0)
        os.close(handle)

    allow("/", LIST)
    allow(scratch, handled)
    allow(os.devnull, READ | WRITE)
    processes = {"/proc": [f"/proc/{os.getpid()}", "/proc/cpuinfo", "/proc/meminfo", "/proc/sys"]}
    for path in readable_siblings(private):
        for part in processes.get(path, [path]):  # other processes' environments may contain secrets
            allow(part, READ | EXECUTE)
    if syscall(RESTRICT_SELF, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "Landlock could not be enabled")
    os.close(rules)


def readable_siblings(private: str) -> list[str]:
    """List the siblings of a folder and of each of its ancestors, without symbolic links."""
    paths = []
    inner = Path(private).resolve()
    for outer in inner.parents:
        with os.scandir(outer) as entries:
            paths += [entry.path for entry in entries if entry.name != inner.name and not entry.is_symlink()]
        inner = outer
    return paths


def restrict_calls(prctl: Callable[..., int], architecture: int, clone: int, denied: tuple[int, ...]) -> None:
    """Install a BPF filter. An instruction is (code, jump if true, jump if false, value)."""
    load, equal, any_bit, finish = 0x20, 0x15, 0x45, 0x06
    deny, unknown, allow = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x7FFF0000
    instructions = [(load, 0, 0, 4), (equal, 1, 0, architecture), (finish, 0, 0, deny), (load, 0, 0, 0)]
    instructions += [(equal, 0, 1, CLONE3), (finish, 0, 0, unknown)]
    for number in denied:
        instructions += [(equal, 0, 1, number), (finish, 0, 0, deny)]
    instructions += [(equal, 0, 4, clone), (load, 0, 0, 16), (any_bit, 1, 0, THREAD), (finish, 0, 0, deny)]
    instructions += [(finish, 0, 0, allow), (finish, 0, 0, allow)]
    program = b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("<HxxxxxxQ", len(instructions), ctypes.addressof(buffer))
    prctl(SECCOMP, FILTER, header, 0, 0)  # fails without effect if the kernel does not support it

"""The fence: what the kernel itself refuses the learner's process from here on, whatever its code does to Python.

nursery -> run -> [fence] -> the learner's file
- Landlock (Linux 5.13 and later): it reads everything but the course, writes in its scratch folder alone, and where the
  kernel can, uses no network and sends no signal to others
- seccomp (Linux on x86-64 and ARM): no new process or program, no signal, no leaving of its group
- neither needs any right, and nothing takes them off again; where the kernel lacks them, the hook of run.py is left
- not here: memory, time and output (run.py, exam.py)
Checked by going around the hook in tests/learn/test_restrict.py.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["fence"]

NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2  # of prctl
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every machine

# Rights of Landlock's first version, by bit: 0 execute, 1 write a file, 2 read a file, 3 list a folder, 4 and 5 remove,
# 6 to 12 make. 13 to link or move across folders and 14 to truncate came later.
EXECUTE, WRITE, READ, LIST = (1 << bit for bit in range(4))
CHANGES = WRITE | sum(1 << bit for bit in range(4, 15))
NETWORK, SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals

THREAD = 0x10000  # the flag of clone that makes a thread, not a process
MACHINES = {  # the number of the architecture, of clone, and of the calls that no task needs
    "x86_64": (0xC000003E, 56, (
        57, 58, 59, 322,  # fork, vfork, execve, execveat
        62, 200, 234, 129, 297, 424,  # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal
        109, 112, 101, 310, 311, 438, 425,  # setpgid, setsid, ptrace, process_vm_readv, _writev, pidfd_getfd, io_uring
    )),
    "aarch64": (0xC00000B7, 220, (221, 281, 129, 130, 131, 138, 240, 424, 154, 157, 117, 270, 271, 438, 425)),
}  # fmt: skip
CLONE3 = 435  # its flags lie in memory, where a filter cannot look: without it, threads are made by clone


def fence(scratch: str, private: str) -> None:
    """Fence this process in: it writes in `scratch` only, and reads nothing under `private`."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    restrict_files(library.syscall, scratch, private)
    if platform.machine() in MACHINES:
        restrict_calls(library.prctl, *MACHINES[platform.machine()])


def restrict_files(syscall: Callable[..., int], scratch: str, private: str) -> None:
    version = syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:  # a kernel without it
        return
    changes = CHANGES & ((1 << (13 if version < 2 else 14 if version < 3 else 15)) - 1)
    handled = EXECUTE | READ | LIST | changes
    attributes = struct.pack("<Q", handled)
    if version >= 4:
        attributes += struct.pack("<Q", NETWORK)
    if version >= 6:
        attributes += struct.pack("<Q", SCOPES)
    rules = syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)

    def allow(path: str, rights: int) -> None:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # gone, or not for us anyway
            return
        if not os.path.isdir(path):  # noqa: PTH112
            rights &= EXECUTE | WRITE | READ | 1 << 14
        syscall(ADD_RULE, rules, 1, struct.pack("<Qi", rights & handled, handle), 0)
        os.close(handle)

    allow("/", LIST)
    allow(scratch, handled)
    allow(os.devnull, READ | WRITE)
    for path in beside(private):
        allow(path, READ | EXECUTE)
    if syscall(RESTRICT_SELF, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "Landlock refused its rules")
    os.close(rules)


def beside(private: str) -> list[str]:
    """Everything but a folder: what lies beside it, beside its parent, and so on up; no links, which lead to these."""
    found = []
    inner = Path(private).resolve()
    for outer in inner.parents:
        with os.scandir(outer) as entries:
            found += [entry.path for entry in entries if entry.name != inner.name and not entry.is_symlink()]
        inner = outer
    return found


def restrict_calls(prctl: Callable[..., int], machine: int, clone: int, refused: tuple[int, ...]) -> None:
    """A filter in the kernel's own small language: (code, jump if so, jump if not, value)."""
    load, equal, some, give = 0x20, 0x15, 0x45, 0x06
    deny, unknown, allow = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x7FFF0000
    steps = [(load, 0, 0, 4), (equal, 1, 0, machine), (give, 0, 0, deny), (load, 0, 0, 0)]
    steps += [(equal, 0, 1, CLONE3), (give, 0, 0, unknown)]
    for number in refused:
        steps += [(equal, 0, 1, number), (give, 0, 0, deny)]
    steps += [(equal, 0, 4, clone), (load, 0, 0, 16), (some, 1, 0, THREAD), (give, 0, 0, deny), (give, 0, 0, allow)]
    steps += [(give, 0, 0, allow)]
    program = b"".join(struct.pack("<HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(held))
    prctl(SECCOMP, FILTER, header, 0, 0)  # a kernel without it says so, and nothing is lost

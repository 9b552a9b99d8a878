"""Base module: paths in messages, kinds of paths, untrusted JSON, atomic writes, and locks.

- messages show a path as the user gave it, on one line; untrusted text is quoted and shortened
- a file is written under a temporary name, synced, and renamed, so a crash leaves either the old or the new content
- a lock is released when its process ends, even if it is killed; on file systems without locks, nothing is locked
- a new folder is written the same way; an existing folder is never replaced, unless it is empty
Tested in tests/test_files.py and, with killed processes, in tests/test_new_folder.py and in
tests/learn/test_progress_file.py.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from inlayer.errors import DtypeError, InlayerError, InputError, MissingFileError, type_name

LFS_POINTER = b"version https://git-lfs"  # first bytes of a file that git-lfs has not downloaded
LOCK_INTERVAL = 0.02  # seconds between two attempts to get a lock
JSON_KINDS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string"}


def printable(text: str) -> str:
    """Return the text on one line: whitespace becomes a space, and other unprintable characters become escapes."""
    return "".join(
        character if character.isprintable() else " " if character.isspace() else ascii(character)[1:-1]
        for character in text
    )


def format_path(path: str | os.PathLike[str]) -> str:
    """Return a path for a message: as it was given, on one line, shortened in the middle."""
    text = os.fspath(path)
    return printable(text if len(text) <= 300 else f"{text[:60]}...{text[-60:]}")


def quote(value: object) -> str:
    """Return an untrusted value for a message: in quotes, on one line, at most 80 characters."""
    text = repr(value[:81] if isinstance(value, str) else value)
    return printable(text if len(text) <= 80 else text[:80] + "...")


def join_names(names: Iterable[str], limit: int = 8, *, in_order: bool = False) -> str:
    """Return the first few of some untrusted names for a message, sorted unless `in_order` is set."""
    names = list(names) if in_order else sorted(names)
    first = ", ".join(printable(name[:80]) for name in names[:limit])
    return f"{first}, and {len(names) - limit} more" if len(names) > limit else first or "nothing"


def check_path(path: object, name: str = "path") -> Path:
    """Check a path given by the user. An empty path is an error, because it would refer to the current folder."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        kind = type_name(path) + (" of bytes" if text is not None else "")
        raise DtypeError(f"{name} is {kind}; it must be a str or a pathlib.Path")
    if not text:
        raise InputError(f'{name} is empty; for the current folder, use "."')
    return Path(text)


def check_paths(files: object) -> list[Path]:
    """Check a path, or several paths, given by the user."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    if isinstance(files, bytes) or not isinstance(files, Iterable):
        raise DtypeError(f"files is {type_name(files)}, not a path or a list of paths")
    return [check_path(file, f"file {index}") for index, file in enumerate(files)]


def expand_home(path: Path) -> Path:
    """Return a path with "~" expanded. "~name" is a file name if there is no such user."""
    with suppress(RuntimeError):
        return path.expanduser()
    return path


def path_kind(path: Path) -> str:
    """Return the kind of a path: "file", "folder", "missing", or "special" (a device, pipe, or socket)."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise MissingFileError(f"{format_path(path)} cannot be accessed: {error.strerror}") from error
    except ValueError:  # a NUL, or a character that the file system's encoding does not have
        raise MissingFileError(f"{format_path(path)} contains a character that is not allowed in a path") from None
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "special"


def not_a_file_error(path: Path, kind: str) -> MissingFileError:
    """Return the error for a path that should be a file; `kind` is as returned by `path_kind`."""
    problems = {"missing": ": not found", "folder": " is a folder, not a file"}
    problem = problems.get(kind, " is not a regular file (it is a device, pipe, or socket)")
    return MissingFileError(f"{format_path(path)}{problem}")


def check_kind(path: Path, *kinds: str, advice: str = "") -> str:
    """Return the kind of a path if it is one of these. Otherwise, raise an error that ends in `advice`."""
    if (kind := path_kind(path)) not in kinds:
        error = not_a_file_error(path, kind)
        raise MissingFileError(f"{error}; {advice}") if advice else error
    return kind


def check_is_file(path: Path, advice: str = "") -> Path:
    """Return the path if it is a regular file. Otherwise, raise an error that ends in `advice`."""
    check_kind(path, "file", advice=advice)
    return path


@contextmanager
def file_errors(
    path: str | os.PathLike[str], problem: str = "cannot be read", kind: type[InlayerError] = InputError
) -> Iterator[None]:
    """Turn an OSError inside the block into one line: the path, the problem, and the system's reason."""
    try:
        yield
    except InlayerError:  # MissingFileError is also an OSError
        raise
    except OSError as error:
        raise kind(f"{format_path(path)} {problem}: {error.strerror or error}") from error


def utf8_problem(error: UnicodeDecodeError, start: int = 0) -> str:
    """Describe where bytes are not valid UTF-8; `start` is the offset of the decoded block."""
    return f"not valid UTF-8: byte 0x{error.object[error.start]:02x} at offset {start + error.start:,}"


def read_limited(path: Path, limit: int, kind: type[InlayerError], what: str) -> bytes:
    """Read an untrusted file of at most `limit` bytes; `what` is the kind of file, for errors, such as "an index"."""
    with file_errors(check_is_file(path), kind=MissingFileError), path.open("rb") as stream:
        if (size := os.fstat(stream.fileno()).st_size) > limit:
            raise kind(f"{format_path(path)} is {size:,} bytes; the limit for {what} is {limit:,}")
        data = stream.read(size)
    if data.startswith(LFS_POINTER):
        raise kind(f"{format_path(path)} is a git-lfs pointer; download the file with `git lfs pull`")
    return data


def read_json(path: Path, limit: int, kind: type[InlayerError], what: str) -> dict[str, Any]:
    """Read an untrusted JSON object from a file of at most `limit` bytes."""
    return parse_json(read_limited(path, limit, kind, what), format_path(path), kind)


def parse_json(
    data: bytes, name: str, kind: type[InlayerError], pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> dict[str, Any]:
    """Parse an untrusted JSON object. `name` is the name of its source, for errors."""
    if not data.strip():
        raise kind(f"{name} is empty")
    try:
        text = data.decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=pairs_hook)
    except UnicodeDecodeError as error:
        raise kind(f"{name} is not valid JSON ({utf8_problem(error)})") from None
    except ValueError as error:  # JSONDecodeError, or a number with thousands of digits
        truncated = getattr(error, "pos", 0) >= len(text.rstrip()) or str(error).startswith("Unterminated string")
        hint = "; is the file truncated?" if truncated else ""
        raise kind(f"{name} is not valid JSON ({printable(str(error))[:160]}){hint}") from None
    except RecursionError:
        raise kind(f"{name} is nested too deeply") from None
    if not isinstance(value, dict):
        raise kind(f"{name} contains {JSON_KINDS.get(type(value), 'a list')}, not a JSON object")
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object without duplicate keys. Raises ValueError if there are any. A hook for `parse_json`."""
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise ValueError(f"{quote(name)} occurs twice")
        entries[name] = value
    return entries


def base_name(path: Path) -> str:
    """Return the last component of a path, even for "." and ".."."""
    return path.name if path.name not in {"", ".."} else path.resolve().name or str(path)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file in one step; for files with a single writer."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user requested. Several writers are safe. Raises InputError if it cannot be written."""
    import secrets  # slow to import

    with file_errors(path, "cannot be written"), atomic_path(path, secrets.token_hex(4)) as temporary:
        temporary.write_bytes(data)


def temporary_path(path: Path, ending: str) -> Path:
    """Return a hidden path next to a path. File systems limit names to 255 bytes, so a long name is truncated."""
    name = path.name if len(os.fsencode(path.name)) <= 240 else path.name[:60]
    return path.with_name(f".{name}{ending}")


@contextmanager
def atomic_path(path: Path, unique: str = "") -> Iterator[Path]:
    """A temporary path to write to. It replaces `path` when the block succeeds and is deleted when it fails.

    Without `unique`, every attempt uses the same temporary name, so a killed process leaves at most one stale file.
    Concurrent writers need different `unique` suffixes.
    """
    temporary = temporary_path(path, f".{unique}.part" if unique else ".saving")
    try:
        yield temporary
        if not unique:
            temporary.chmod(0o644)  # safetensors writes files that only their owner can read
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to write to. It becomes `folder` if the block succeeds, and is removed if it fails."""
    import shutil  # slow to import

    target = folder.resolve()
    if path_kind(target) != "missing" and (path_kind(target) != "folder" or any(target.iterdir())):
        raise InputError(f"{format_path(folder)} cannot be written: it already exists; choose another folder")
    staging = temporary_path(target, ".saving")
    try:
        with file_errors(folder, "cannot be written"):
            shutil.rmtree(staging, ignore_errors=True)  # left by a process that was killed
            staging.mkdir(parents=True)
            yield staging
            for path in (*staging.iterdir(), staging):
                sync(path)
            staging.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def locked(path: Path, busy: str, *, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock file during the block. Raises InputError with `busy` if it is not free within `wait` seconds."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with file_errors(path, "cannot be locked"):
        file = path.open("ab")
    with file:
        end = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise InputError(f"{format_path(path.parent)} is in use: {busy}") from None
                time.sleep(LOCK_INTERVAL)
            except OSError:  # a file system without locks
                break
        yield


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, have reached the disk."""
    folder = path.is_dir()
    with suppress(OSError) if folder else nullcontext():  # some systems cannot sync a folder, and do not need to
        handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

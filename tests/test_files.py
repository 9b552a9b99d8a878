"""Base module files: paths in messages, what a path refers to, and atomic writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import inlayer
from inlayer.errors import ConfigError, DtypeError, InputError, MissingFileError
from inlayer.files import (
    atomic_path,
    base_name,
    check_path,
    expand_home,
    format_path,
    join_names,
    locked,
    not_a_file_error,
    path_kind,
    printable,
    quote,
    read_json,
    read_limited,
    write_atomic,
    write_output,
)


def test_untrusted_text_is_shown_on_one_short_line() -> None:
    assert printable("a\nb\tc\x00\ud800") == "a b c\\x00\\ud800"
    assert quote("x" * 200) == "'" + "x" * 79 + "..."
    assert quote({"a": [1]}) == "{'a': [1]}"
    assert format_path("a\nb") == "a b"
    assert len(format_path("x" * 5000)) == 123
    assert join_names(["b", "a"]) == "a, b"
    assert join_names(str(number) for number in range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, and 2 more"
    assert join_names([]) == "nothing"


def test_kinds_of_paths(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kinds = {tmp_path / "file": "file", tmp_path: "folder", tmp_path / "no": "missing", Path(os.devnull): "special"}
    assert {path: path_kind(path) for path in kinds} == kinds
    assert path_kind(tmp_path / "file" / "below") == "missing"
    messages = {kind: str(not_a_file_error(Path("x"), kind)) for kind in ("missing", "folder", "special")}
    assert messages == {
        "missing": "x: not found",
        "folder": "x is a folder, not a file",
        "special": "x is not a regular file (it is a device, pipe, or socket)",
    }
    with pytest.raises(MissingFileError, match="not allowed in a path"):
        path_kind(Path("a\0b"))


def test_paths_from_the_user_are_checked() -> None:
    assert check_path("a/b") == Path("a/b")
    with pytest.raises(InputError, match="source is empty"):
        check_path("", "source")
    for value in (None, 3, b"x"):
        with pytest.raises(DtypeError, match="must be a str"):
            check_path(value)
    assert (base_name(Path("a/b")), base_name(Path("a/.."))) == ("b", Path.cwd().name)


def test_tilde_is_the_home_folder_or_part_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_home(Path("~/x")) == tmp_path / "x"
    for name in ("~nosuchuser/x", "~backup.gguf", "a/~"):
        assert expand_home(Path(name)) == Path(name)
    with pytest.raises(MissingFileError, match=r"~nosuchuser/x: not found"):
        inlayer.load("~nosuchuser/x")


def test_untrusted_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(b'{"a": 1}')
    assert read_limited(file, 8, ConfigError, "a config") == b'{"a": 1}'
    assert read_json(file, 8, ConfigError, "a config") == {"a": 1}
    with pytest.raises(ConfigError, match=r"x\.json is 8 bytes; the limit for a config is 7"):
        read_json(file, 7, ConfigError, "a config")
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(ConfigError, match=r"x\.json is a git-lfs pointer"):
        read_json(file, 100, ConfigError, "a config")
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "no", "not found"),
        (Path(os.devnull), "not a regular"),
    ):
        with pytest.raises(MissingFileError, match=message):
            read_limited(path, 100, ConfigError, "a config")


@pytest.mark.parametrize("write", [write_atomic, write_output])
@pytest.mark.parametrize("name", ["x", "x" * 255, "🙂" * 63 + "xxx"])
def test_writes_replace_the_file_and_leave_nothing_else(tmp_path: Path, write: object, name: str) -> None:
    write(tmp_path / name, b"old")  # type: ignore[operator]
    write(tmp_path / name, b"new")  # type: ignore[operator]
    assert (tmp_path / name).read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "x", b"old")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644
    with pytest.raises(TypeError), atomic_path(tmp_path / "x") as temporary:
        temporary.write_bytes("not bytes")  # type: ignore[arg-type]
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    with pytest.raises(InputError, match="cannot be written"):
        write_output(tmp_path / "no" / "x", b"")


def test_lock_is_exclusive(tmp_path: Path) -> None:
    lock, busy = tmp_path / "lock", "another test holds it"
    with locked(lock, busy), pytest.raises(InputError, match=f"is in use: {busy}"), locked(lock, busy):
        pass
    with locked(lock, busy):
        pass

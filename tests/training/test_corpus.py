"""Corpus files are read exactly, whatever their lines look like; Python's own text is found without importing it."""

from __future__ import annotations

import gzip
import inspect
import json
import os
import statistics
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.errors import DtypeError, InputError, MissingFileError, TextError
from inlayer.tokenizers.bpe_training import READ_SIZE
from inlayer.training import corpus
from inlayer.training.corpus import CHUNK, Chunk, cut, python_chunks, read_chunks

TEXTS = {
    "one character": "x",
    "one line end": "\n",
    "no line end at the end": "one\ntwo",
    "an endless line": "abc" * CHUNK,
    "an endless line, then others": "x" * (2 * CHUNK) + "\nshort\n" * CHUNK,
    "many lines": "".join(f"line {number}\n" for number in range(20_000)),
    "lines of a chunk": ("x" * (CHUNK - 1) + "\n") * 5,
    "lines of a chunk and one": ("x" * CHUNK + "\n") * 5,
    "windows": "one\r\n\r\ntwo\r\n" * 5_000,
    "a line end between two chunks": "x" * (CHUNK - 1) + "\r\n" + "y" * CHUNK,
    "old mac": "one\rtwo\r" * 5_000,
    "a mark inside": "one\ufefftwo\n\ufeff",
    "two marks": "\ufeff\ufefftwo",
    "NULs and other line ends": "\x00\x0b\x0c\x1c\x85\u2028\u2029\x00" * 5_000,
    "emoji": "👩‍👩‍👧‍👦 é ü 日本語\n" * 9_000,
    **{f"an emoji {before} bytes before a block's end": "x" * (READ_SIZE - before) + "🙂\n" for before in range(5)},
}


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# ---- files


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_chunks_join_to_the_text(text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", text)
    chunks = list(read_chunks([file]))
    assert "".join(chunk.text for chunk in chunks) == file.read_bytes().decode("utf-8-sig")
    assert [chunk.starts_file for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    assert all(0 < len(chunk.text) <= CHUNK for chunk in chunks)
    for chunk in chunks[:-1]:  # ends at a line break if there is one
        assert chunk.text.endswith("\n") or ("\n" not in chunk.text and len(chunk.text) == CHUNK)


@given(texts=st.lists(st.text(st.sampled_from("a\n\r🙂é\ufeff\x00"), max_size=40), min_size=1, max_size=4))
def test_chunks_match_a_plain_loop(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """With tiny chunks and blocks, so boundaries fall everywhere."""
    folder = tmp_path_factory.mktemp("files")
    files = [write(folder / f"{number}.txt", text) for number, text in enumerate(texts)]
    theirs: list[Chunk] = []
    for text in texts:
        rest, starts = text.removeprefix("\ufeff"), True
        while rest:
            ends = [place for place in range(1, 8) if rest[place - 1 : place] == "\n"]
            end = 7 if len(rest) <= 7 or not ends else ends[-1]
            theirs.append(Chunk(rest[:end], starts))
            rest, starts = rest[end:], False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "CHUNK", 7)
        patch.setattr("inlayer.tokenizers.bpe_training.READ_SIZE", 5)
        if theirs:
            assert list(read_chunks(files)) == theirs
        else:
            with pytest.raises(InputError, match="no text to train on"):
                list(read_chunks(files))


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    assert list(read_chunks([write(tmp_path / "a", "\ufeffHi")])) == [Chunk("Hi", True)]


def test_file_order_and_empty_files(tmp_path: Path) -> None:
    names = {"b": "second", "empty": "", "mark": "\ufeff", "a": "first"}
    files = [write(tmp_path / name, text) for name, text in names.items()]
    assert list(read_chunks([*files, files[0]])) == [Chunk(text, True) for text in ("second", "first", "second")]
    assert list(read_chunks(str(files[0]))) == list(read_chunks(files[0])) == [Chunk("second", True)]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"good\n\xe9t\xe9",  # Latin-1
        b"x" * READ_SIZE + b"\x80",
        b"x" * (READ_SIZE - 1) + b"\xf0\x9f\x99\n",  # an emoji that is cut short over the end of a block
        b"x" * (READ_SIZE - 2) + b"\xf0\x9f\x99\x82\xc3(",
        b"\xef\xbb\xbf\xff",
        b"\xef\xbb",  # half a byte order mark
        b"x" * 3 * READ_SIZE + b"\xf0\x9f",  # the file ends within a character
        b"\xed\xa0\x80",  # a lone surrogate
        b"\xc0\x80",  # NUL in two bytes
        "Hi\n".encode("utf-16"),
        gzip.compress(b"Hi\n"),
    ],
    ids=range(12),
)
def test_invalid_utf8_is_reported_with_its_position(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnicodeDecodeError) as theirs:
        data.decode()
    place = theirs.value.start
    message = rf"bad\.txt is not valid UTF-8: byte 0x{data[place]:02x} at offset {place:,}"
    with pytest.raises(TextError, match=message):
        list(read_chunks([write(tmp_path / "good.txt", "x"), write(tmp_path / "bad.txt", data)]))


def test_bad_files_are_reported_immediately(tmp_path: Path) -> None:
    good = write(tmp_path / "good", "x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MissingFileError, match=r"missing: not found; a corpus consists of text files"):
        read_chunks([good, tmp_path / "missing"])
    with pytest.raises(MissingFileError, match="is a folder, not a file"):
        read_chunks([good, tmp_path])
    with pytest.raises(MissingFileError, match="not a regular file"):
        read_chunks([tmp_path / "pipe"])
    with pytest.raises(InputError, match="files is empty"):
        read_chunks([])
    with pytest.raises(InputError, match="file 0 is empty"):
        read_chunks([""])
    with pytest.raises(DtypeError, match="file 0 is a Named of bytes"):
        read_chunks([Named()])


class Named(os.PathLike[Any]):
    def __fspath__(self) -> bytes:
        return b"a.txt"


@pytest.mark.parametrize(
    ("texts", "message"), [([""], "no text to train on: .*0 is empty"), (["", "\ufeff"], "0 and 1 more are empty")]
)
def test_files_without_text(texts: list[str], message: str, tmp_path: Path) -> None:
    files = [write(tmp_path / str(number), text) for number, text in enumerate(texts)]
    with pytest.raises(InputError, match=message):
        list(read_chunks(files))


def test_file_removed_while_reading(tmp_path: Path) -> None:
    files = [write(tmp_path / name, "x") for name in "ab"]
    chunks = read_chunks(files)
    next(chunks)
    files[1].unlink()
    with pytest.raises(MissingFileError, match="b cannot be read: No such file"):
        next(chunks)


def test_cut_worked_values() -> None:
    text = "one\ntwo\nthree"
    assert [cut(text, 0, size) for size in (2, 4, 7, 8, 9, 13)] == [2, 4, 4, 8, 8, 13]
    assert [cut(text, 4, size) for size in (2, 3, 4, 8, 9)] == [6, 7, 8, 8, 13]


# ---- text from Python's standard library


@pytest.fixture(scope="module")
def own() -> tuple[list[Chunk], set[str]]:
    """Python's text, and the modules that were imported to get it."""
    before = set(sys.modules)
    return list(python_chunks()), set(sys.modules) - before


def files_of(chunks: list[Chunk]) -> Iterator[str]:
    text = ""
    for chunk in chunks:
        if chunk.starts_file and text:
            yield text
            text = ""
        text += chunk.text
    yield text


@pytest.mark.slow
def test_python_text_is_a_few_megabytes_of_english(own: tuple[list[Chunk], set[str]]) -> None:
    text = "".join(chunk.text for chunk in own[0])
    assert 1_000_000 < len(text) < 10_000_000
    assert sum(character.isascii() for character in text) > 0.999 * len(text)
    words = text.lower().split()
    assert words.count("the") > 0.03 * len(words)  # as in English
    assert 3 < statistics.mean(map(len, words)) < 9
    assert all(0 < len(chunk.text) <= CHUNK for chunk in own[0])


@pytest.mark.slow
def test_python_text_contains_docstrings_and_topics(own: tuple[list[Chunk], set[str]]) -> None:
    files = list(files_of(own[0]))
    for thing in (textwrap.TextWrapper, json, json.dump, json.JSONDecoder, statistics.NormalDist.overlap):
        docstring = inspect.getdoc(thing)
        assert docstring is not None
        assert any(docstring in file for file in files), thing
    assert any(file.startswith('The "assert" statement\n') for file in files)


@pytest.mark.slow
def test_python_text_imports_no_modules(own: tuple[list[Chunk], set[str]]) -> None:
    assert {name for name in own[1] if not name.startswith(("pydoc_data", "encodings."))} == set()


@pytest.mark.slow
def test_python_text_contains_no_paths(own: tuple[list[Chunk], set[str]]) -> None:
    text = "".join(chunk.text for chunk in own[0])
    for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parent)):
        assert path not in text


@pytest.mark.slow
def test_long_paragraphs_do_not_repeat(own: tuple[list[Chunk], set[str]]) -> None:
    paragraphs = [part.strip() for file in files_of(own[0]) for part in file.split("\n\n")]
    longer = [part for part in paragraphs if len(part) >= corpus.MIN_QUOTE]
    assert len(longer) > 5_000
    assert len(set(longer)) == len(longer)
    assert len(set(paragraphs)) < len(paragraphs)  # short ones may


SOURCES = {
    "textwrap.py": '"""Wrap.\n\n    Text.\n    """\nraise SystemExit("it ran")\n',
    "json/__init__.py": 'class A:\n    """Class A."""\n    def f(self):\n        """Function f."""\n        def g():\n'
    '            "Inner g."\n    async def h(self): "Async h."\n',
    "json/tool.py": 'try:\n    def a(): "In try."\nexcept E:\n    def b(): "In except."\n'
    'else:\n    def c(): "In else."\nfinally:\n    def c(): "In finally."\nwith x:\n    def c(): "In with."\n'
    'if x:\n    pass\nelif y:\n    def d(): "In elif."\nmatch z:\n    case 1:\n        def e(): "In case."\n'
    'def f():\n    x = "no docstring"\ndef g(): f"none {1}"\ndef h(): b"none"\n"nor this"\n',
    "bdb.py": '"""Lone \\ud800 surrogate."""\n',
    "ast.py": "# no docstring at all\nx = 1\n",
    "abc.py": '"""Old escapes: \\d."""\n',
    "io.py": '"""Not Python" !\n',
    "os.py": b'# coding: latin-1\n"""Caf\xe9."""\n',
    "re.py": b'"""Bad \xff bytes."""\n',
    "csv.py": b'"""A NUL."""\x00\n',
    "json/tests/test_it.py": '"""A test."""\n',
    "idlelib/idle_test/test_it.py": '"""A test."""\n',
    "test/support.py": '"""A test."""\n',
    "site-packages/other.py": '"""Another\'s."""\n',
    "site-packages/json/__init__.py": '"""Another\'s."""\n',
    "sitecustomize.py": '"""This machine\'s."""\n',
    "config-3.11-x86_64-linux-gnu/python-config.py": '"""This machine\'s."""\n',
    "json/data.txt": '"""No module."""\n',
    "zipfile.py": '"""In short."""\ndef a():\n    """'
    + "Quoted " * 20
    + '."""\ndef b():\n    """'
    + "Quoted " * 20
    + '."""\n',
}


@pytest.fixture
def small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of a few files, in folders listed in reverse order, without topics."""
    for name, data in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, data)
    walk = os.walk

    def backwards(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for parent, folders, names in walk(top):
            folders.sort(reverse=True)
            yield parent, folders, sorted(names, reverse=True)

    monkeypatch.setattr(os, "walk", backwards)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    return tmp_path


def test_docstrings_of_a_small_library(small_library: Path) -> None:
    quoted = ("Quoted " * 20 + ".").strip()
    assert list(python_chunks()) == [
        Chunk("Old escapes: \\d.", True),
        Chunk("Lone  surrogate.", True),
        Chunk("Café.", True),
        Chunk("Wrap.\n\nText.", True),
        Chunk(f"In short.\n\n{quoted}", True),
        Chunk("Class A.\n\nFunction f.\n\nInner g.\n\nAsync h.", True),
        Chunk("In try.\n\nIn except.\n\nIn else.\n\nIn finally.\n\nIn with.\n\nIn elif.\n\nIn case.", True),
    ]


def test_python_without_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "python.zip"))
    files = list(files_of(list(python_chunks())))
    assert len(files) > 50
    assert sum(map(len, files)) > 200_000
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(MissingFileError, match=r"no documentation topics or sources .* pass text files"):
        list(python_chunks())

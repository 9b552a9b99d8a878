"""Remote checkpoints: the content of the local files, few bytes, one commit, and no network the second time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inlayer.checkpoint import shard_index, store
from inlayer.checkpoint.open import find_sample, open_store
from inlayer.checkpoint.remote import UnreachableError, open_remote, transfer
from inlayer.checkpoint.remote import source as remote_source
from inlayer.errors import CheckpointError, DtypeError, InlayerError, InputError, MissingExtraError, MissingFileError
from inlayer.formats.row_reader import FileRows
from tests.checkpoint.remote.models import (
    HEAD,
    KIMI_ROWS,
    KIMI_WIDTH,
    NORM,
    ROWS,
    SHARDS,
    TABLE,
    WIDTH,
    make_kimi,
    make_small,
    write_byte_ranks,
    write_json,
    write_safetensors,
)
from tests.checkpoint.remote.server import Hub

REPO = "org/name"
IDS = np.array([0, 4095, 7, 7, 8, 2000, 1, 4095])
INDEX = "model.safetensors.index.json"
TINY = {"a": ("F32", np.arange(400, dtype=np.float32).reshape(100, 4))}


@pytest.fixture
def folder(hub: Hub, tmp_path: Path) -> Path:
    make_small(tmp_path / "repo")
    hub.add(REPO, tmp_path / "repo")
    return tmp_path / "repo"


def add(hub: Hub, folder: Path, files: dict[str, Any]) -> Path:
    """Serve a folder with these files: tensors, bytes or JSON."""
    folder.mkdir()
    for name, content in files.items():
        if name.endswith(".safetensors"):
            write_safetensors(folder / name, content)
        elif isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            write_json(folder / name, content)
    hub.add(REPO, folder)
    return folder


def read_rows(opened: Any, name: str = TABLE, ids: Any = IDS) -> np.ndarray:
    rows = opened.table(name).source
    out = np.empty((len(ids), rows.row_bytes), np.uint8)
    rows.read(np.asarray(ids), out)
    return out


def as_bytes(tensor: Any) -> bytes:
    return np.asarray(tensor).tobytes()


def sources(hub: Hub) -> dict[str, str]:
    return {"hub": REPO, "hf": f"hf://{REPO}@main", "url": f"{hub.endpoint}/{REPO}/resolve/main/"}


@pytest.mark.parametrize("kind", ["hub", "hf", "url"])
def test_config_tensors_and_tokenizer(hub: Hub, folder: Path, kind: str) -> None:
    opened = open_store(sources(hub)[kind])
    assert opened.config == json.loads((folder / "config.json").read_text())
    assert sorted(opened.names()) == [HEAD, TABLE, NORM]
    stored = opened.find(TABLE)
    assert (stored.file, stored.shape, stored.dtype) == (SHARDS[0], (ROWS, WIDTH), "BF16")
    assert as_bytes(opened.read(NORM)) == (folder / SHARDS[0]).read_bytes()[-4 * WIDTH :]
    tokenizer = opened.open_tokenizer()
    assert tokenizer is not None
    assert tokenizer.encode("Hé") == [72, 195, 169]
    assert (opened.kind, opened.remote) == ("url" if kind == "url" else "hub", True)
    assert opened.source == {"hub": REPO, "hf": f"{REPO}@main"}.get(kind, sources(hub)[kind])
    requested = {Path(request.path).name for request in hub.requests}
    assert not requested & {"modeling_evil.py", "generation_config.json", SHARDS[1]}


@pytest.mark.parametrize("kind", ["hub", "url"])
def test_second_use_needs_no_server(hub: Hub, folder: Path, kind: str) -> None:
    first = open_remote(sources(hub)[kind])
    expected, tokenizer, norm = read_rows(first), first.open_tokenizer(), first.read(NORM)
    hub.stop()
    again = open_remote(sources(hub)[kind])
    assert np.array_equal(read_rows(again), expected)
    assert as_bytes(again.read(NORM)) == as_bytes(norm)
    assert again.open_tokenizer().encode("ab") == tokenizer.encode("ab")  # type: ignore[union-attr]
    assert again.find_first(["nowhere", TABLE]) == TABLE
    with pytest.raises(
        UnreachableError, match=r"cannot read bytes .*model-00001-of-00002.safetensors.*cannot connect to "
    ):
        read_rows(again, ids=[3000])  # control: this row was never read


def test_offline_mode_names_what_is_missing(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="org/name is not in the local cache, and HF_HUB_OFFLINE is set"):
        open_remote(REPO)
    assert not hub.requests


def test_unreachable_hub_is_one_line(hub: Hub, folder: Path) -> None:
    hub.stop()
    with pytest.raises(CheckpointError, match=r"cannot look up org/name after 4 attempts: ConnectError"):
        open_remote(REPO)
    with pytest.raises(CheckpointError, match="check your network, and note that org/name is not a local folder"):
        open_store(REPO)


def test_failing_hub_is_retried(hub: Hub, folder: Path) -> None:
    hub.fail("status", "api", times=2, status=503)
    open_remote(REPO)
    hub.fail("status", "api", status=503)
    assert open_remote(REPO).files.commit == hub.revisions[REPO, "main"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("stopped", [True, False])
def test_files_that_another_library_downloaded_are_used(hub: Hub, folder: Path, stopped: bool) -> None:
    from huggingface_hub import hf_hub_download

    expected = read_rows(open_store(folder))
    for name in (INDEX, SHARDS[0], "config.json", "tiktoken.model", "pat_str.txt"):
        hf_hub_download(REPO, name)
    hub.reset()
    if stopped:
        hub.stop()
    opened = open_remote(REPO)
    assert np.array_equal(read_rows(opened), expected)
    assert isinstance(opened.table(TABLE).source, FileRows)
    assert opened.open_tokenizer() is not None
    if not stopped:
        assert {request.path.split("/")[1] for request in hub.requests} == {"api"}


def test_incomplete_download_of_another_library_is_not_taken_for_the_whole(hub: Hub, folder: Path) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download(REPO, SHARDS[1])
    hub.stop()
    with pytest.raises(CheckpointError, match="cannot look up org/name"):
        open_remote(REPO)


def test_download_of_another_commit_is_not_used(hub: Hub, tmp_path: Path) -> None:
    from huggingface_hub import hf_hub_download

    tables = {name: make_small(tmp_path / name, seed=seed) for seed, name in enumerate(("main", "new"))}
    for name in tables:
        hub.add(REPO, tmp_path / name, revision=name)
    hf_hub_download(REPO, SHARDS[0])
    for name, table in tables.items():
        assert np.array_equal(read_rows(open_remote(f"{REPO}@{name}")), table[IDS])


def test_server_that_is_not_a_hub(hub: Hub, folder: Path) -> None:
    hub.omit_commit = True
    with pytest.raises(CheckpointError, match="did not return a commit; does HF_ENDPOINT point to a hub"):
        open_remote(REPO)


def test_revision_is_resolved_to_a_commit_once(hub: Hub, tmp_path: Path) -> None:
    tables = {name: make_small(tmp_path / name, seed=seed) for seed, name in enumerate(("old", "refs/pr/1"))}
    commits = {name: hub.add(REPO, tmp_path / name, revision=name) for name in tables}
    hub.revisions[REPO, "main"] = commits["old"]
    opened = open_remote(REPO)
    hub.revisions[REPO, "main"] = commits["refs/pr/1"]  # someone pushes
    assert np.array_equal(read_rows(opened), tables["old"][IDS])
    assert not np.array_equal(read_rows(opened), tables["refs/pr/1"][IDS])  # control: they differ
    assert np.array_equal(read_rows(open_remote(REPO)), tables["refs/pr/1"][IDS])
    for name, commit in commits.items():
        for revision in (name, commit):
            for prefix in ("", "hf://"):
                opened = open_remote(f"{prefix}{REPO}@{revision}")
                assert opened.source == f"{REPO}@{revision}"
                assert np.array_equal(read_rows(opened), tables[name][IDS])
    hub.stop()
    assert np.array_equal(read_rows(open_remote(f"{REPO}@old")), tables["old"][IDS])


@pytest.mark.parametrize("config", [True, False])
@pytest.mark.parametrize("kind", ["hub", "url"])
def test_single_file_without_index(hub: Hub, tmp_path: Path, config: bool, kind: str) -> None:
    table = make_small(tmp_path / "one", index=False)
    if not config:
        (tmp_path / "one" / "config.json").unlink()
    hub.add(REPO, tmp_path / "one")
    opened = open_remote(sources(hub)[kind])
    assert np.array_equal(read_rows(opened), table[IDS])
    assert (opened.config is not None) == config
    assert opened.parameters() == ROWS * WIDTH + WIDTH
    assert (opened.find_first(["no", TABLE]), opened.find_first(["no"])) == (TABLE, None)
    hub.stop()
    assert np.array_equal(read_rows(open_remote(sources(hub)[kind])), table[IDS])


def test_files_of_any_name_without_index(hub: Hub, tmp_path: Path) -> None:
    other = {"b": TINY["a"]}
    folder = add(hub, tmp_path / "odd", {"first.safetensors": TINY, "second.safetensors": other})
    (folder / "deep").mkdir()
    write_safetensors(folder / "deep" / "third.safetensors", {"c": TINY["a"]})
    write_byte_ranks(folder)
    (folder / "tiktoken.model").rename(folder / "some.tiktoken")
    opened = open_remote(REPO)
    assert sorted(opened.names()) == ["a", "b"]
    assert as_bytes(opened.read("b")) == TINY["a"][1].tobytes()
    assert opened.open_tokenizer().encode("\0\1") == [0, 1]  # type: ignore[union-attr]
    hub.stop()
    assert sorted(open_remote(REPO).names()) == ["a", "b"]
    with pytest.raises(CheckpointError, match="'c'"):
        opened.find("c")


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"x.safetensors": TINY, "y.safetensors": TINY}, CheckpointError, "'a' .*x.safetensors.*y.safetensors"),
        ({"pytorch_model.bin": b"x"}, CheckpointError, "only pytorch_model.bin, which cannot be read by byte range"),
        ({"a.gguf": b"x", "b.gguf": b"x"}, CheckpointError, r"hf://org/name/ has several .gguf files.*: a.gguf, b"),
        ({"README.md": b"x"}, MissingFileError, "has no weights"),
        ({f"{n}.safetensors": {n: TINY["a"]} for n in "abc"}, CheckpointError, "3 safetensors files but no model"),
        (
            {INDEX: {"weight_map": {"a": "x.safetensors"}, "pad": "x" * 2000}},
            CheckpointError,
            "limit for an index is 1,000",
        ),
        ({"model.safetensors": TINY, "config.json": {"x": "y" * 2000}}, CheckpointError, "at most 1,500 are read"),
    ],
)
def test_unsuitable_folder_is_one_line(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.setattr(store, "MAX_SHARDS", 2)
    monkeypatch.setattr(shard_index, "MAX_INDEX", 1000)
    monkeypatch.setattr(remote_source, "MAX_SMALL_FILE", 1500)
    add(hub, tmp_path / "other", files)
    with pytest.raises(error, match=message) as caught:
        open_remote(REPO)
    assert "\n" not in str(caught.value)


def test_refused_tokenizer_file_is_an_error(hub: Hub, folder: Path) -> None:
    opened = open_remote(REPO)
    hub.fail("status", "pat_str.txt", status=403)
    with pytest.raises(CheckpointError, match=r"pat_str.txt in org/name@\w+ cannot be read: .* status 403"):
        opened.open_tokenizer()


def test_tensors_of_any_shape_are_read_and_integers_refused(hub: Hub, tmp_path: Path) -> None:
    tensors = {
        "empty": ("F32", np.zeros((0, 3), np.float32)),
        "one": ("F32", np.array(2.5, np.float32)),
        "integers": ("I64", np.arange(3)),
    }
    add(hub, tmp_path / "odd", {"model.safetensors": tensors})
    opened = open_remote(REPO)
    for name in ("empty", "one"):
        assert opened.read(name).shape == tensors[name][1].shape
        assert as_bytes(opened.read(name)) == tensors[name][1].tobytes()
    with pytest.raises(DtypeError, match="I64"):
        opened.read("integers")
    assert opened.open_tokenizer() is None


@pytest.mark.parametrize("count", [3, 5000])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
def test_name_is_found_anywhere_in_the_index(hub: Hub, folder: Path, count: int, where: float) -> None:
    names = [f"model.layers.{number}.weight" for number in range(count)]
    names.insert(int(where * count), TABLE)
    weight_map = dict.fromkeys(names, SHARDS[1]) | {TABLE: SHARDS[0]}
    write_json(folder / INDEX, {"weight_map": weight_map, "metadata": {"total_size": 17}})
    opened = open_remote(REPO)
    assert opened.find_first(["nowhere", TABLE]) == TABLE
    assert (opened.find(TABLE).shape, opened.find(TABLE).file) == ((ROWS, WIDTH), SHARDS[0])
    size = (folder / INDEX).stat().st_size
    fetched = sum(min(last + 1, size) - first for first, last in hub.ranges(INDEX))
    assert (fetched >= size) == (count == 3 or where == 0.5)  # the middle takes the whole index
    assert opened.find_first(["nowhere"]) is None
    assert opened.find_first([]) is None
    assert sorted(opened.names()) == sorted(names)
    assert opened.find_first([names[1], TABLE]) == names[1]


@pytest.mark.parametrize("where", [0.0, 0.5])
def test_packed_table_is_found_in_the_index(hub: Hub, folder: Path, where: float) -> None:
    names = [f"model.layers.{number}.weight" for number in range(5000)]
    names.insert(int(where * 5000), f"{TABLE}_packed")
    write_json(folder / INDEX, {"weight_map": dict.fromkeys(names, SHARDS[0])})
    opened = open_remote(REPO)
    assert opened.find_first(["nowhere", TABLE]) == TABLE
    size = (folder / INDEX).stat().st_size
    fetched = sum(min(last + 1, size) - first for first, last in hub.ranges(INDEX))
    assert (fetched >= size) == (where == 0.5)
    assert TABLE in opened.names()


def test_header_decides_if_the_index_is_wrong(hub: Hub, folder: Path) -> None:
    write_json(folder / INDEX, {"weight_map": {TABLE: SHARDS[1], "other": SHARDS[0]}})
    with pytest.raises(CheckpointError, match=f"the index .*'{TABLE}' .*{SHARDS[1]}"):
        open_remote(REPO).table(TABLE)
    with pytest.raises(CheckpointError, match="'more'"):
        open_remote(REPO).find("more")


@pytest.mark.parametrize("file", ["../../secret.safetensors", "/etc/passwd", "a/b.safetensors", "x.py", ""])
@pytest.mark.parametrize("filler", [0, 3000])
@pytest.mark.parametrize("kind", ["hub", "url"])
def test_index_cannot_name_files_outside_the_folder(hub: Hub, folder: Path, kind: str, file: str, filler: int) -> None:
    names = {TABLE: file} | {f"model.layers.{number}.weight": SHARDS[0] for number in range(filler)}
    write_json(folder / INDEX, {"weight_map": names})
    hub.reset()
    with pytest.raises(CheckpointError, match="plain file name"):
        open_remote(sources(hub)[kind]).table(TABLE)
    assert {Path(request.path).name for request in hub.requests} <= {"config.json", INDEX, "main"}


def test_truncated_shard_is_an_error(hub: Hub, folder: Path) -> None:
    (folder / SHARDS[0]).write_bytes((folder / SHARDS[0]).read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"cut short|truncated|incomplete"):
        open_remote(REPO).table(TABLE)


def test_long_header_is_read_to_its_end(hub: Hub, tmp_path: Path) -> None:
    many = {f"tensor {number}": ("F32", np.full(1, number, np.float32)) for number in range(3000)}
    add(hub, tmp_path / "long", {"model.safetensors": many})
    assert open_remote(REPO).read("tensor 2999").tolist() == [2999]
    assert len(hub.ranges("model.safetensors")) == 3


@pytest.mark.parametrize(
    ("metadata", "config", "expected"),
    [
        ({"total_parameters": 1000, "total_size": 2000}, {}, 1000),
        ({"total_size": 2000}, {"torch_dtype": "bfloat16"}, 1000),
        ({"total_size": 2000}, {"dtype": "float32"}, 500),
        ({"total_size": 2000}, {"dtype": "bfloat16", "quantization_config": {}}, None),
        ({"total_size": 2000}, {"dtype": "load"}, None),
        ({"total_size": "2000"}, {"dtype": "float32"}, None),
        ({}, {}, None),
    ],
)
def test_parameter_count_from_the_index(
    hub: Hub, folder: Path, metadata: dict[str, object], config: dict[str, object], expected: int | None
) -> None:
    write_json(folder / INDEX, {"metadata": metadata, "weight_map": {TABLE: SHARDS[0]}})
    write_json(folder / "config.json", {"model_type": "llama"} | config)
    assert open_remote(REPO).parameters() == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org/na me", "is not a hub id"),
        ("a/b/c", "is not a hub id"),
        ("..", "is not a hub id"),
        ("a--b/c", "is not a hub id: "),
        ("hf://datasets/org/name", "is not a hub id"),
        ("org/name@", "is not a hub id"),
        ("org/name@../../x", "is not a hub id"),
        ("org/name@a b", "is not a hub id"),
        ("file:///etc", "unknown scheme file://; use hf://, https://, http://, s3://, gs://"),
        ("ftp://host/x", "unknown scheme ftp://"),
        ("https://", "is not a valid URL"),
        ("https://host/a b", "is not a valid URL"),
        ("https::file://etc", "unknown scheme"),
        ("s3://bucket/x::file:///etc", "is not a valid URL"),
        ("https://host/pytorch_model.bin", "cannot be read by byte range; download it"),
    ],
)
def test_invalid_source_is_one_line(name: str, message: str) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(InputError, match=message) as caught:
        open_remote(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [("org/nobody", "the hub has no such repository, or it is private"), (f"{REPO}@no", "no such revision")],
)
def test_missing_repository_is_one_line(hub: Hub, folder: Path, name: str, message: str) -> None:
    with pytest.raises(MissingFileError, match=message) as caught:
        open_remote(name)
    assert "\n" not in str(caught.value)


def test_gated_repository_opens_with_a_token(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.gated[REPO] = "hf_secret"
    with pytest.raises(InlayerError, match="org/name is gated"):
        open_remote(REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    read_rows(open_remote(REPO))
    assert {request.token for request in hub.requests if request.origin == "cdn"} == {None}


@pytest.mark.parametrize("package", ["huggingface_hub", "fsspec"])
def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'inlayer\[hub\]'"):
        open_remote(REPO)


def test_secrets_in_a_url_are_not_shown(hub: Hub, folder: Path) -> None:
    url = hub.endpoint.replace("://", "://user:password@") + f"/{REPO}/resolve/main/{SHARDS[0]}?signature=secret"
    opened = open_remote(url)
    assert opened.source == f"{hub.endpoint}/{REPO}/resolve/main/{SHARDS[0]}"
    hub.fail("status", SHARDS[0], status=404)
    with pytest.raises(MissingFileError) as caught:
        read_rows(opened)
    assert "secret" not in str(caught.value)
    assert "password" not in str(caught.value)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> Any:
    """fsspec's in-memory file system, accepted as a source for this test."""
    import fsspec

    monkeypatch.setitem(transfer.PACKAGES, "memory", "")
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def test_any_fsspec_file_system(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_small(tmp_path / "repo")
    memory.put(str(tmp_path / "repo"), "/bucket/model", recursive=True)
    opened = open_remote("memory://bucket/model")
    assert (opened.kind, opened.source) == ("url", "memory://bucket/model/")
    assert np.array_equal(read_rows(opened), table[IDS])
    assert opened.open_tokenizer().encode("Hi") == [72, 105]  # type: ignore[union-attr]
    single = open_remote(f"memory://bucket/model/{SHARDS[0]}")
    assert np.array_equal(read_rows(single), table[IDS])

    memory.pipe_file(f"/bucket/model/{SHARDS[0]}", bytes(100))
    with pytest.raises(CheckpointError, match="changed on the server"):
        read_rows(opened, ids=[3000])
    memory.pipe_file(f"/bucket/model/{SHARDS[0]}", (tmp_path / "repo" / SHARDS[0]).read_bytes())
    expected = read_rows(open_remote("memory://bucket/model"))
    monkeypatch.setattr(
        memory.__class__, "info", broken := lambda *_, **__: (_ for _ in ()).throw(OSError("no network"))
    )
    monkeypatch.setattr(memory.__class__, "ls", broken)
    assert np.array_equal(read_rows(open_remote("memory://bucket/model")), expected)
    with pytest.raises(UnreachableError, match="OSError: no network"):
        read_rows(open_remote("memory://bucket/model"), ids=[3000])


def test_file_behind_a_url_that_changes_is_noticed(hub: Hub, folder: Path, tmp_path: Path) -> None:
    opened = open_remote(sources(hub)["url"])
    before = read_rows(opened)
    table = make_small(tmp_path / "other", seed=1)
    (tmp_path / "other" / SHARDS[0]).replace(folder / SHARDS[0])
    with pytest.raises(CheckpointError, match=r"changed on the server .*open it again"):
        read_rows(opened, ids=[3000])
    again = read_rows(open_remote(sources(hub)["url"]))
    assert np.array_equal(again, table[IDS])
    assert not np.array_equal(again, before)  # control


def test_missing_folder_of_an_fsspec_file_system(memory: Any) -> None:
    with pytest.raises(MissingFileError, match="memory://bucket/nothing/ does not exist"):
        open_remote("memory://bucket/nothing")


@pytest.mark.parametrize("kind", ["hub", "hf", "url"])
@pytest.mark.parametrize("parts", [1, 2])
def test_gguf_file(hub: Hub, tmp_path: Path, kind: str, parts: int) -> None:
    from tests.checkpoint.make_gguf import fields_of_json, write_gguf

    fields = fields_of_json((find_sample("default")[0] / "tokenizer.json").read_bytes(), "gpt-2")
    (tmp_path / "gguf").mkdir()
    table = np.random.default_rng(0).standard_normal((300, 64), np.float32)
    names = [f"model-{number + 1:05}-of-{parts:05}.gguf" for number in range(parts)]
    for number, name in enumerate(names):
        tensors = {"token_embd.weight": (table, None)} if number == 0 else {"other": (table[:3], None)}
        values = {"split.no": number, "split.count": parts}
        path = tmp_path / "gguf" / name
        write_gguf(path, architecture="mamba", values=values, tokenizer={} if number else fields, tensors=tensors)
    hub.add(REPO, tmp_path / "gguf")
    urls = {"hub": REPO, "hf": f"hf://{REPO}/{names[0]}", "url": f"{hub.endpoint}/{REPO}/resolve/main/{names[0]}"}
    ours, theirs = open_remote(urls[kind]), open_store(tmp_path / "gguf" / names[0])
    assert (ours.kind, ours.remote, ours.config) == ("gguf", True, theirs.config)
    assert ours.source == (urls[kind] if kind == "url" else f"hf://{REPO}/{names[0]}")
    assert list(ours.names()) == list(theirs.names())
    assert ours.parameters() == theirs.parameters()
    tokenizer = ours.open_tokenizer()
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode("I love dogs")) == "I love dogs"
    ids = [0, 299, 7]
    assert read_rows(ours, "token_embd.weight", ids).tobytes() == table[ids].tobytes()
    assert as_bytes(ours.read("token_embd.weight")) == table.tobytes()
    hub.stop()
    again = open_remote(urls[kind])
    assert read_rows(again, "token_embd.weight", ids).tobytes() == table[ids].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(("table_at", "limit"), [("start", 4_000_000), ("middle", 20_000_000)])
def test_ten_tokens_of_kimi_k2_move_few_bytes(hub: Hub, tmp_path: Path, table_at: str, limit: int) -> None:
    """The real shapes: 139,644 tensors in 61 shards and a table of 2.35 GB. The issue allows 20 MB."""
    ids = sorted(np.random.default_rng(0).choice(KIMI_ROWS, 10, replace=False).tolist())
    rows = {row: np.random.default_rng(row).bytes(2 * KIMI_WIDTH) for row in ids}
    assert make_kimi(tmp_path / "kimi", rows, table_at=table_at) == 139_644
    hub.add("moonshotai/Kimi-K2-Instruct", tmp_path / "kimi")
    opened = open_remote("moonshotai/Kimi-K2-Instruct")
    name = opened.find_first([TABLE, "transformer.wte.weight"])
    assert name == TABLE
    assert opened.open_tokenizer() is not None
    assert opened.find(name).shape == (KIMI_ROWS, KIMI_WIDTH)
    assert read_rows(opened, ids=ids).tobytes() == b"".join(rows.values())
    assert not read_rows(opened, ids=[ids[0] + 1]).any()  # control: the rows between are zero
    assert opened.parameters() is None  # 8-bit weights with scales: the size does not reveal it
    moved = sum(hub.sent.values())
    print(f"{table_at}: {moved:,} bytes in {len(hub.requests)} requests")  # noqa: T201
    assert moved < limit

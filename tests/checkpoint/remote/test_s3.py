"""S3 buckets, against a local server of moto's. Skipped without s3fs and moto, which the extra `dev` installs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inlayer.checkpoint.open import open_store
from inlayer.checkpoint.remote import transfer
from inlayer.errors import CheckpointError, MissingFileError
from tests.checkpoint.remote.models import SHARDS, TABLE, make_small
from tests.checkpoint.remote.server import Hub

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
IDS = np.array([0, 4095, 7])


@pytest.fixture
def bucket(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import s3fs

    server = moto_server.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    transfer.open_filesystem.cache_clear()
    filesystem = s3fs.S3FileSystem(skip_instance_cache=True)
    filesystem.mkdir("bucket")
    yield filesystem
    server.stop()


def read_rows(source: str, ids: np.ndarray = IDS) -> np.ndarray:
    rows = open_store(source).table(TABLE).source
    out = np.empty((len(ids), rows.row_bytes), np.uint8)
    rows.read(ids, out)
    return out


def test_rows_equal_the_local_file_and_changes_are_noticed(bucket: Any, tmp_path: Path) -> None:
    table = make_small(tmp_path / "repo")
    for file in (tmp_path / "repo").iterdir():
        bucket.put_file(os.fspath(file), f"bucket/model/{file.name}")
    assert np.array_equal(read_rows("s3://bucket/model"), table[IDS])
    assert np.array_equal(read_rows(f"s3://bucket/model/{SHARDS[0]}"), table[IDS])
    opened = open_store("s3://bucket/model")
    tokenizer = opened.open_tokenizer()
    assert tokenizer is not None
    assert tokenizer.encode("Hi") == [72, 105]
    opened.table(TABLE)
    other = make_small(tmp_path / "other", seed=1)
    bucket.put_file(os.fspath(tmp_path / "other" / SHARDS[0]), f"bucket/model/{SHARDS[0]}")
    with pytest.raises(CheckpointError, match="changed on the server"):
        opened.table(TABLE).source.read(np.array([3000]), np.empty((1, 512), np.uint8))
    assert np.array_equal(read_rows("s3://bucket/model"), other[IDS])
    with pytest.raises(MissingFileError, match="s3://bucket/nothing/ does not exist"):
        open_store("s3://bucket/nothing")

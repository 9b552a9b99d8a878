"""`inlayer embed --engine ray` on a real local cluster with three workers: a killed worker, an interrupt, bad rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlayer.cli import main

pytestmark = pytest.mark.slow
GROUPS, ROWS, BAD = 60, 1000, 45_678
TIMEOUT = 900
SECONDS = (
    "raylet_start_wait_time_s", "gcs_rpc_server_connect_timeout_s", "py_gcs_connect_timeout_s",
    "gcs_server_request_timeout_seconds", "worker_register_timeout_seconds",
)  # fmt: skip
MILLISECONDS = ("agent_register_timeout_ms", "health_check_timeout_ms")
# A busy machine is slower than Ray's own timeouts.
PATIENT = {f"RAY_{name}": "600" for name in SECONDS} | {f"RAY_{name}": "600000" for name in MILLISECONDS}
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a user of a running cluster with three CPUs."""
    temporary = tmp_path_factory.mktemp("r")
    environment = os.environ | PATIENT | {"RAY_AUTH_MODE": "disabled"}  # it listens on loopback only
    options = ["--num-cpus=3", "--port=0", "--node-ip-address=127.0.0.1", "--include-dashboard=false"]
    start = [*RAY, "start", "--head", *options, f"--temp-dir={temporary}"]
    done = subprocess.run(start, check=False, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    yield environment | {"RAY_ADDRESS": done.stdout.split("--address='")[1].split("'")[0]}
    subprocess.run([*RAY, "stop", "--force"], capture_output=True, check=True, timeout=TIMEOUT)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of many row groups with a second column, and what one process makes of them."""
    folder = tmp_path_factory.mktemp("texts")
    texts = [f"row {number} of the table: dogs, cats and {number % 7} fish" for number in range(GROUPS * ROWS)]
    for name, rows in (("a", texts[: len(texts) // 2]), ("b", texts[len(texts) // 2 :])):
        table = pa.table({"number": range(len(rows)), "text": rows})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=ROWS)
    texts[BAD] = None  # type: ignore[call-overload]
    pq.write_table(pa.table({"text": texts}), folder / "bad.parquet", row_group_size=ROWS)
    done = embed(folder, dict(os.environ), "a.parquet", "b.parquet", "--out", "local.parquet", "--normalize")
    assert done == (0, f"local.parquet: {GROUPS * ROWS:,} x 128 float32 from 2 files\n", "")
    return folder


def embed(folder: Path, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "inlayer", "embed", *arguments]
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )
    return done.returncode, done.stdout, ours(done.stderr)


def ours(err: str) -> str:
    """Standard error without the messages of Ray."""
    return "".join(f"{line}\n" for line in err.splitlines() if line.startswith(("inlayer", "skipped", "interrupted")))


@contextmanager
def started(folder: Path, environment: dict[str, str], out: str) -> Iterator[subprocess.Popen[str]]:
    """A run with some parts written, but not all."""
    command = [sys.executable, "-m", "inlayer", "embed", *arguments(out)]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (parts := list(folder.glob(f".{out}.part/0*"))):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        assert len(parts) < GROUPS
        yield process
        process.kill()


def arguments(out: str) -> list[str]:
    return ["a.parquet", "b.parquet", "--out", out, "--normalize", "--engine", "ray"]


def workers() -> list[int]:
    """The processes of the actors that embed."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::") and b"GroupWorker" in name:
            found.append(int(process.name))
    return found


def killed_worker_loses_and_repeats_nothing(folder: Path, environment: dict[str, str]) -> None:
    with started(folder, environment, "killed.parquet") as process:
        while not (actors := workers()):
            assert process.poll() is None
        os.kill(actors[0], signal.SIGKILL)
        out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, ours(err)) == (
        0,
        f"killed.parquet: {GROUPS * ROWS:,} x 128 float32 from 2 files\n",
        "",
    )
    assert pq.read_table(folder / "killed.parquet").equals(pq.read_table(folder / "local.parquet"))
    assert not (folder / ".killed.parquet.part").exists()


def interrupted_run_resumes_and_checks_its_input(folder: Path, environment: dict[str, str]) -> None:
    with started(folder, environment, "resumed.parquet") as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert ours(err) == f"interrupted; to resume, run: inlayer embed {' '.join(arguments('resumed.parquet'))}\n"
    facts = (folder / "a.parquet").stat()
    os.utime(folder / "a.parquet", (0, 0))
    code, _, err = embed(folder, environment, *arguments("resumed.parquet"))
    assert code == 2
    assert "the input has changed since the interrupted run" in err
    os.utime(folder / "a.parquet", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert embed(folder, environment, *arguments("resumed.parquet"))[::2] == (0, "")
    assert pq.read_table(folder / "resumed.parquet").equals(pq.read_table(folder / "local.parquet"))


def bad_rows_stop_the_run_or_are_skipped(folder: Path, environment: dict[str, str]) -> None:
    given = ["bad.parquet", "--out", "skipped.parquet", "--engine", "ray"]
    code, out, err = embed(folder, environment, *given)
    assert (code, out) == (2, "")
    assert f"bad.parquet, row {BAD}: column 'text' is None, not a str; to skip bad records, use --on-error skip" in err
    assert err.count("\n") == 1
    code, out, err = embed(folder, environment, *given, "--on-error", "skip")
    assert (code, err) == (0, f"skipped bad.parquet, row {BAD}: column 'text' is None, not a str\n")
    assert out == f"skipped.parquet: {GROUPS * ROWS - 1:,} x 128 float32, 1 bad record skipped\n"


def missing_column_is_reported(folder: Path, environment: dict[str, str]) -> None:
    given = ["a.parquet", "--out", "t.npy", "--field", "nosuch", "--engine", "ray"]
    code, out, err = embed(folder, environment, *given)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "a.parquet has no column 'nosuch'" in err
    assert not (folder / ".t.npy.part").exists()


def test_cluster_that_does_not_start_is_one_line(tmp_path, monkeypatch, capsys):
    import ray

    def fail(**_: object) -> None:
        raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setattr(ray, "init", fail)
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["one"]}), "a.parquet")
    monkeypatch.setattr(sys, "argv", ["inlayer", "embed", "a.parquet", "--out", "v.parquet", "--engine", "ray"])
    with pytest.raises(SystemExit) as stopped:
        main()
    expected = "inlayer: the Ray cluster failed: The current node timed out during startup.\n"
    assert (stopped.value.code, capsys.readouterr().err) == (2, expected)


def test_cluster(folder: Path, environment: dict[str, str]) -> None:
    """One test, so that one process of a test run starts the cluster."""
    killed_worker_loses_and_repeats_nothing(folder, environment)
    interrupted_run_resumes_and_checks_its_input(folder, environment)
    bad_rows_stop_the_run_or_are_skipped(folder, environment)
    missing_column_is_reported(folder, environment)

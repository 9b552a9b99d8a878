"""`inlayer inspect`: the report as JSON and in the terminal, the command, its time and memory."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

import inlayer
from inlayer.cli import main
from inlayer.inspection import Report, inspect, scan
from inlayer.inspection.check_tokens import classify_ids
from inlayer.inspection.findings import Example, Finding
from inlayer.inspection.terminal import print_report
from tests.inspection.healthy import TABLE, set_config, set_rows

# -- JSON and terminal --


def test_json_contains_plain_values(tmp_path: Path, report: Report) -> None:
    plain = report.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert list(plain) == [
        "source", "kind", "description", "quick", "strict", "table", "positions", "head", "tables", "ngrams",
        "vocabulary", "rows", "training", "findings", "not_checked", "exit_code",
    ]  # fmt: skip
    save_file({TABLE: torch.full((4, 4), float("nan"))}, tmp_path / "model.safetensors")
    broken = inspect(tmp_path).to_dict()
    assert json.loads(json.dumps(broken, allow_nan=False)) == broken
    assert (broken["rows"]["norm_median"], broken["rows"]["nan_rows"]) == (None, 4)


def printed(report: Report, width: int) -> str:
    console = Console(width=width, highlight=False, file=io.StringIO(), record=True)
    print_report(report, console)
    return console.export_text()


@pytest.mark.parametrize("width", [40, 80, 140])
def test_report_fits_on_one_screen(report: Report, width: int) -> None:
    lines = printed(report, width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    if width == 80:
        assert len(lines) <= 24
    text = " ".join(" ".join(lines).split())
    for word in ("640 x 64 F32", "theta 10,000", "untied", "median", "healthy"):
        assert word in text


def test_facts_without_a_tokenizer(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").unlink()
    set_config(tmp_path, bos_token_id=639, eos_token_id=630, pad_token_id=629)
    set_rows(tmp_path, 7, float("nan"))
    text = printed(inspect(tmp_path), 120)
    assert "undertrained  unknown: no reference tokens (no tokenizer)" in text
    assert re.search(r"special       pad 629 \(norm [\d.]+\), eos 630 \(norm [\d.]+\), bos 639 \(norm [\d.]+\)\n", text)
    assert "(no token)" not in text
    assert "\n              id 7\n" in text
    set_rows(tmp_path, 9, float("nan"))
    assert "\n              ids 7, 9\n" in printed(inspect(tmp_path), 120)


def test_report_as_text(report: Report) -> None:
    assert repr(report) == f"<Report on {report.source}: 640 x 64 F32; healthy>"
    assert str(report).splitlines() == printed(report, 100).rstrip().splitlines()


def test_ascii_terminal(report: Report) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_report(report, Console(file=file, width=80, highlight=False))  # raises if a character cannot be encoded
    file.flush()
    assert "@" in file.buffer.getvalue().decode()  # type: ignore[attr-defined]


def test_hostile_text_is_escaped(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "[bold red]\x1b[31m\u202e" + "x" * 500
    finding = Finding(
        severity="warning",
        code="a",
        message="[/]m",
        advice="[b]",
        count=9,
        examples=(Example(id=1, text="[red]x[/red]"),),
    )
    shown = printed(Report(**{**vars(report), "findings": (finding,), "source": "[blink]"}), 80)
    assert "[blink]" in shown
    assert "[red]x[/red] and 8 more" in shown
    assert "needs attention: 1 warning" in shown
    tokenizer = inlayer.WordTokenizer.from_text("a b")
    monkeypatch.setattr(tokenizer, "token_bytes", lambda _: hostile.encode())
    example = classify_ids(tokenizer, 2).examples([0])
    finding = Finding(severity="warning", code="a", message="m", advice="b", examples=example)
    shown = printed(Report(**{**vars(report), "findings": (finding,)}), 80)
    assert "0 [bold␣red]\\x1b[31m\\u202exxxxxxx…\n" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_names_of_sources_and_samples_are_not_shortened(report: Report) -> None:
    long = "a sample of words " * 20
    shown = printed(Report(**{**vars(report), "source": "/path" * 40, "description": long}), 80)
    assert "/path" * 40 in "".join(line.strip() for line in shown.splitlines())
    assert long.strip() in " ".join(shown.split())


# -- the command --


def run(
    arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, str, str]:
    monkeypatch.setattr(sys, "argv", ["inlayer", "inspect", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capfd.readouterr()
    return stopped.value.code, captured.out, captured.err


def test_command_prints_a_report(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run([str(folder)], capfd, monkeypatch)
    assert (code, err) == (0, "")
    assert "healthy" in out
    assert "\x1b[" not in out
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    set_config(tmp_path, tie_word_embeddings=True)
    code, out, err = run([str(tmp_path), "--json"], capfd, monkeypatch)
    assert (code, err) == (1, "")
    assert json.loads(out)["findings"][0]["code"] == "tied-head-differs"
    code, out, _ = run([str(folder), "--quick"], capfd, monkeypatch)
    assert code == 0
    assert "640 of 640 rows" in out


@pytest.mark.parametrize("arguments", [[], ["--quick"]])
def test_default_source_is_the_bundled_sample(
    arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(arguments, capfd, monkeypatch)
    assert (code, err) == (0, "")
    assert "sample" in out


def test_bad_source_is_a_one_line_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    for source in (str(tmp_path / "nothing"), str(tmp_path / "empty"), "no\nsuch", "", "/dev/null"):
        code, out, err = run([source], capfd, monkeypatch)
        assert (code, out) == (2, "")
        assert re.fullmatch(r"inlayer: [^\n]+\n", err)


def test_interrupt_exits_with_130(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inlayer.inspection.undertrained.scan_rows", interrupt)
    assert run([str(folder)], capfd, monkeypatch) == (130, "", "")


def test_ids_are_printed_one_per_line(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    damaged = [3, *range(40, 60), 500]
    set_rows(tmp_path, damaged, float("nan"))
    code, out, err = run([str(tmp_path), "--ids", "nan-rows"], capfd, monkeypatch)
    assert (code, err, out) == (1, "", "".join(f"{one}\n" for one in damaged))
    code, out, _ = run([str(tmp_path), "--json"], capfd, monkeypatch)
    (found,) = (one for one in json.loads(out)["findings"] if one["code"] == "nan-rows")
    assert (code, found["ids"], found["count"], len(found["examples"])) == (1, damaged, len(damaged), 5)
    assert run([str(tmp_path), "--ids", "zero-rows"], capfd, monkeypatch) == (1, "", "")  # a code without a finding
    code, out, err = run([str(tmp_path), "--ids", "no-such"], capfd, monkeypatch)
    assert (code, out) == (2, "")
    assert "nan-rows" in err
    assert run([str(tmp_path), "--ids", "nan-rows", "--json"], capfd, monkeypatch)[0] == 2


def test_strict_fails_what_was_not_checked_or_trained(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run([str(folder), "--strict"], capfd, monkeypatch)[0] == 0
    assert run([str(folder), "--strict", "--quick"], capfd, monkeypatch)[0] == 2
    shutil.copytree(folder, tmp_path / "random")
    set_rows(tmp_path / "random", slice(None), 0.02 * torch.randn(640, 64, generator=torch.Generator().manual_seed(3)))
    shutil.copytree(folder, tmp_path / "bare")
    (tmp_path / "bare" / "config.json").unlink()
    for name in ("random", "bare"):
        assert run([str(tmp_path / name)], capfd, monkeypatch)[0] == 0
        assert run([str(tmp_path / name), "--strict"], capfd, monkeypatch)[0] == 1
    _, out, _ = run([str(tmp_path / "bare")], capfd, monkeypatch)
    assert "no config.json" in out
    assert "table         no config: 640" in out
    assert "healthy" not in out


def test_interrupt_reports_what_was_found_so_far(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    set_rows(tmp_path, [0, 639], float("nan"))
    monkeypatch.setattr(scan, "BLOCK_VALUES", 64 * 100)  # 100 rows per block
    original, calls = scan.hash_rows, []

    def interrupted(rows: Any) -> Any:
        calls.append(len(rows))
        if len(rows) == 100:
            signal.raise_signal(signal.SIGINT)
        return original(rows)

    monkeypatch.setattr(scan, "hash_rows", interrupted)
    code, out, _ = run([str(tmp_path), "--json"], capfd, monkeypatch)
    report = json.loads(out)
    assert code == 130
    assert (report["rows"]["rows_read"], report["rows"]["nan_rows"]) == (100, 1)
    assert "540 of 640 rows (stopped)" in report["not_checked"]
    assert report["head"]["equals_table"] is None
    assert calls.count(100) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_long_reading_is_announced(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = import_module("inlayer.cli.inspect")
    monkeypatch.setattr(scan, "BLOCK_VALUES", 64 * 100)
    monkeypatch.setattr(command, "MEASURE_SECONDS", 0)
    for limit, lines in ((-1, 1), (10**6, 0)):
        monkeypatch.setattr(command, "LONG_SECONDS", limit)
        _, out, err = run([str(folder)], capfd, monkeypatch)
        assert (err.count("\n"), "--quick" in err) == (lines, bool(lines))
        assert "healthy" in out


def test_progress_bar_only_on_a_terminal(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    _, _, err = run([str(folder)], capfd, monkeypatch)
    assert "reading rows" in err
    _, _, err = run([str(folder), "--quick"], capfd, monkeypatch)
    assert err == ""


def test_help_imports_neither_torch_nor_numpy() -> None:
    code = "import sys; sys.argv = ['inlayer', 'inspect', '--help']\nfrom inlayer.cli import main\ntry: main()\n"
    code += "finally: assert 'torch' not in sys.modules and 'numpy' not in sys.modules, 'heavy'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout
    assert "Exit code" in done.stdout


def test_inspect_does_not_import_torch() -> None:
    code = "import sys; sys.argv = ['inlayer', 'inspect', '--json']\nfrom inlayer.cli import main\ntry: main()\n"
    code += "except SystemExit as end: sys.exit(end.code or int('torch' in sys.modules) * 3)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["table"]["rows"] == 6144


MEASURE = """
import resource, sys
from inlayer.inspection import inspect
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
inspect(sys.argv[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def write_sparse(folder: Path, rows: int, width: int) -> None:
    """Write a table of zeros as a sparse file that takes no disk space."""
    size = rows * width * 2
    header = json.dumps({TABLE: {"dtype": "BF16", "shape": [rows, width], "data_offsets": [0, size]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)


def test_table_with_too_many_rows_is_rejected(tmp_path: Path) -> None:
    write_sparse(tmp_path, 2**40, 1)
    with pytest.raises(inlayer.InlayerError, match="1,099,511,627,776 x 1; inspect supports up to"):
        inspect(tmp_path)
    assert inspect(tmp_path, quick=True).rows.zero_rows == 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """Inspecting a table of 256 MB takes less than half of that."""
    write_sparse(tmp_path, 32768, 4096)
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 128

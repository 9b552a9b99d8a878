"""`inlayer inspect`: the doctor's report as JSON and on the screen, the command, and what it costs."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

import inlayer
from inlayer.cli import main
from inlayer.inspection import Report, inspect
from inlayer.inspection.report import Example, Finding
from inlayer.inspection.survey import survey_ids
from inlayer.inspection.terminal import show
from tests.inspection.healthy import TABLE, set_config

# -- the forms of a report --


def test_json_is_plain(tmp_path: Path, report: Report) -> None:
    plain = report.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert list(plain) == [
        "source", "kind", "sample", "quick", "layer", "positions", "head", "vocabulary", "health", "findings",
        "exit_code",
    ]  # fmt: skip
    save_file({TABLE: torch.full((4, 4), float("nan"))}, tmp_path / "model.safetensors")
    broken = inspect(tmp_path).to_dict()
    assert json.loads(json.dumps(broken, allow_nan=False)) == broken
    assert (broken["health"]["norm_median"], broken["health"]["nan_rows"]) == (None, 4)


def drawn(report: Report, width: int) -> str:
    console = Console(width=width, highlight=False, file=io.StringIO(), record=True)
    show(report, console)
    return console.export_text()


@pytest.mark.parametrize("width", [40, 80, 140])
def test_one_screen(report: Report, width: int) -> None:
    lines = drawn(report, width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    if width == 80:
        assert len(lines) <= 24
    text = " ".join(" ".join(lines).split())
    for word in ("640 x 64 F32", "theta 10,000", "untied", "median", "healthy"):
        assert word in text


def test_a_terminal_without_blocks(report: Report) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    show(report, Console(file=file, width=80, highlight=False))  # would raise on a character it cannot encode
    file.flush()
    assert "@" in file.buffer.getvalue().decode()  # type: ignore[attr-defined]


def test_hostile_texts_stay_on_their_line(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "[bold red]\x1b[31m\u202e" + "x" * 500
    finding = Finding(
        severity="warning",
        code="a",
        meaning="[/]m",
        advice="[b]",
        count=9,
        examples=(Example(id=1, text="[red]x[/red]"),),
    )
    shown = drawn(Report(**{**vars(report), "findings": (finding,), "source": "[blink]"}), 80)
    assert "[blink]" in shown
    assert "[red]x[/red] and 8 more" in shown
    assert "findings: 1 warning" in shown
    tokenizer = inlayer.WordTokenizer.from_text("a b")
    monkeypatch.setattr(tokenizer, "token_bytes", lambda _: hostile.encode())
    survey = survey_ids(tokenizer, 2)
    text = survey.text(0)
    assert text is not None
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text) < 40


# -- the command --


def run(
    arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, str, str]:
    monkeypatch.setattr(sys, "argv", ["inlayer", "inspect", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capfd.readouterr()
    return stopped.value.code, captured.out, captured.err


def test_the_command(
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
def test_without_a_source_it_is_the_sample_inlayer_carries(
    arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(arguments, capfd, monkeypatch)
    assert (code, err) == (0, "")
    assert "sample" in out


def test_bad_sources_are_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    for source in (str(tmp_path / "nothing"), str(tmp_path / "empty"), "no\nsuch", "", "/dev/null"):
        code, out, err = run([source], capfd, monkeypatch)
        assert (code, out) == (2, "")
        assert re.fullmatch(r"inlayer: [^\n]+\n", err)


def test_ctrl_c(folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inlayer.inspection.scan_rows", interrupt)
    assert run([str(folder)], capfd, monkeypatch) == (130, "", "")


def test_a_bar_only_where_somebody_watches(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    _, _, err = run([str(folder)], capfd, monkeypatch)
    assert "reading rows" in err
    _, _, err = run([str(folder), "--quick"], capfd, monkeypatch)
    assert err == ""


def test_help_is_light() -> None:
    code = "import sys; sys.argv = ['inlayer', 'inspect', '--help']\nfrom inlayer.cli import main\ntry: main()\n"
    code += "finally: assert 'torch' not in sys.modules and 'numpy' not in sys.modules, 'heavy'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout
    assert "Exit code" in done.stdout


MEASURE = """
import resource, sys
from inlayer.inspection import inspect
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
inspect(sys.argv[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def write_sparse(folder: Path, rows: int, width: int) -> None:
    """A table of zeros that takes no space on the disk."""
    size = rows * width * 2
    header = json.dumps({TABLE: {"dtype": "BF16", "shape": [rows, width], "data_offsets": [0, size]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)


def test_a_table_of_absurd_length_is_refused(tmp_path: Path) -> None:
    write_sparse(tmp_path, 2**40, 1)
    with pytest.raises(inlayer.InlayerError, match="1,099,511,627,776 x 1; up to"):
        inspect(tmp_path)
    assert inspect(tmp_path, quick=True).health.zero_rows == 1024


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """A table of 256 MB adds less than half of that."""
    write_sparse(tmp_path, 32768, 4096)
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 128

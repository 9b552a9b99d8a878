"""Every seeded fault is reported under its code; undamaged checkpoints have no findings."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

import inlayer.inspection
from inlayer.cli import main
from inlayer.errors import InlayerError
from inlayer.inspection import inspect
from inlayer.inspection.findings import ADVICE
from inlayer.inspection.terminal import print_report
from tests.inspection.faults import FAULTS, Fault
from tests.inspection.healthy import MAKERS, tokenizer_bytes

FOUND = [fault for fault in FAULTS if fault.severity != "unreadable"]
UNREADABLE = [fault for fault in FAULTS if fault.severity == "unreadable"]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("healthy")
    tokenizer = tokenizer_bytes(tmp_path_factory.mktemp("tokenizer"))
    for name, make in MAKERS.items():
        (home / name).mkdir()
        make(home / name, tokenizer)
    return home


def damaged(fault: Fault, healthy: Path, home: Path) -> Path:
    folder = home / fault.base
    shutil.copytree(healthy / fault.base, folder)
    fault.damage(folder)
    return folder


def by_name(fault: Fault) -> str:
    return fault.name


LARGE = "a_million_token_types"  # 256 MB are read


@pytest.mark.parametrize("base", MAKERS)
def test_undamaged_checkpoints_have_no_findings(healthy: Path, base: str) -> None:
    """The control: without it, an inspection that always complains would pass."""
    for quick in (False, True):
        report = inspect(healthy / base, quick=quick)
        assert [(finding.code, finding.message) for finding in report.findings] == []
        assert report.exit_code == 0


def test_faults_have_distinct_names() -> None:
    assert len(FAULTS) >= 90
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[pytest.mark.slow] * (one.name == LARGE)) for one in FOUND], ids=by_name
)
def test_fault_is_reported(healthy: Path, tmp_path: Path, fault: Fault) -> None:
    report = inspect(damaged(fault, healthy, tmp_path))
    assert (fault.severity, fault.expects) in {(finding.severity, finding.code) for finding in report.findings}
    assert report.exit_code == int(any(finding.severity != "note" for finding in report.findings))
    if fault.severity != "note":
        assert report.exit_code == 1
    for finding in report.findings:
        assert finding.message
        assert finding.advice
        assert "\n" not in finding.message + finding.advice


@pytest.mark.parametrize("fault", UNREADABLE, ids=by_name)
def test_unreadable_checkpoint_is_a_one_line_error(
    healthy: Path, tmp_path: Path, fault: Fault, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = damaged(fault, healthy, tmp_path)
    with pytest.raises(InlayerError, match=fault.expects):
        inspect(folder)
    monkeypatch.setattr(sys, "argv", ["inlayer", "inspect", str(folder)])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capfd.readouterr()
    assert (stopped.value.code, captured.out) == (2, "")
    assert captured.err.startswith("inlayer: ")
    assert captured.err.count("\n") == 1
    assert fault.expects in captured.err


@pytest.mark.slow
def test_random_damage_gives_a_report_or_a_typed_error(healthy: Path, tmp_path: Path) -> None:
    """Bytes changed anywhere, files truncated anywhere: the answer is plain JSON or an InlayerError."""
    rng = random.Random(0)
    answers = set()
    for number in range(120):
        folder = tmp_path / str(number)
        shutil.copytree(healthy / rng.choice(list(MAKERS)), folder)
        file = rng.choice(sorted(folder.iterdir()))
        data = bytearray(file.read_bytes())
        for _ in range(rng.choice([1, 3, 20])):
            data[rng.randrange(min(len(data), rng.choice([400, len(data)])))] = rng.randrange(256)
        file.write_bytes(data[: rng.randrange(len(data))] if number % 5 == 0 else data)
        try:
            report = inspect(folder, quick=number % 3 == 0)
        except InlayerError:
            answers.add(2)
        else:
            answers.add(report.exit_code)
            json.dumps(report.to_dict(), allow_nan=False)
            print_report(report, Console(file=io.StringIO(), width=80))
        shutil.rmtree(folder)
    assert answers == {0, 1, 2}


def test_every_listed_code_is_reported_by_a_check() -> None:
    modules = "".join(
        path.read_text(encoding="utf-8") for path in Path(inlayer.inspection.__file__).parent.glob("*.py")
    )
    assert [code for code in ADVICE if modules.count(f'"{code}"') < 2] == []  # once in ADVICE, once where it is used
    assert {fault.expects for fault in FOUND} <= set(ADVICE)

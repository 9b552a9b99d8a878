"""docs/learn.md matches the code: commands, limits, rules, and what the grader does not prevent."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from inlayer.cli.learn import learn
from inlayer.learn import batch, session, task_files
from inlayer.learn.course import Task
from inlayer.learn.grader import grade
from inlayer.learn.sandbox import protocol
from inlayer.learn.sandbox import restrict as resource_limits
from tests.learn.toy import SOLUTION, toy

DOC = (Path(__file__).parents[2] / "docs" / "learn.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", DOC, flags=re.MULTILINE | re.DOTALL))
GRADER = SECTIONS["How the grader works, and its limits"]


def test_every_command_is_documented_and_exists() -> None:
    commands = {command.name for command in learn.registered_commands}
    documented = set(re.findall(r"inlayer learn ([a-z-]+)", DOC)) - {"teaches"}
    assert documented <= commands
    assert commands - documented == set()


def test_documented_limits_match_the_code() -> None:
    limits = dict(re.findall(r"^\| ([^|]+) \| (\d[^|]*) \|", GRADER, flags=re.MULTILINE))
    assert limits == {
        "CPU time for all checks of a file": f"{resource_limits.GradingLimits().seconds:g} s",
        "wall-clock time, as a backstop": f"{resource_limits.GradingLimits().wall_seconds:g} s",
        "memory on top of Python and torch (Linux)": f"{resource_limits.GradingLimits().memory >> 30} GiB",
        "printed output": f"{resource_limits.GradingLimits().output >> 20} MiB",
        "size of a file": f"{resource_limits.GradingLimits().file_bytes >> 20} MiB",
        "open files": str(resource_limits.GradingLimits().open_files),
        "size of a result without its tensors": f"{protocol.MAX_TREE >> 20} MiB",
        "tensors of a result": f"{protocol.MAX_TENSORS >> 20} MiB",
        "threads": str(resource_limits.GradingLimits().threads),
    }
    source = Path(resource_limits.__file__).read_text(encoding="utf-8")
    assert "RLIMIT_FSIZE, (limits.file_bytes," in source
    assert "RLIMIT_NOFILE, (limits.open_files," in source
    assert (task_files.MAX_SOURCE_BYTES, batch.MAX_NOTEBOOK_BYTES) == (1 << 20, 32 << 20)
    assert f"more than {batch.MAX_COPIES} files of one task, or {batch.MAX_ENTRIES:,} files" in DOC


def test_every_submission_rule_is_documented() -> None:
    sources = [Path(module.__file__ or "").read_text(encoding="utf-8") for module in (task_files, batch)]
    raised = set(re.findall(r'"([a-z]+(?:-[a-z0-9]+)+|link|unreadable)"', "\n".join(sources)))
    rows = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \| ", SECTIONS["For teachers: a class"], flags=re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)}
    assert raised - {"utf-8", "utf-8-sig", "site-packages", "inlayer-course"} == documented


def test_every_grader_rule_is_documented() -> None:
    folder = Path(session.__file__).parent
    texts = [
        (folder / name).read_text(encoding="utf-8")
        for name in ("session.py", "grader.py", "assertions.py", "sandbox/runner.py")
    ]
    raised = set(re.findall(r'(?:CheckFailed\(\s*|fail(?:ure)?\(|rule: str = )"([a-z-]+)"', "\n".join(texts)))
    assert len(raised) > 8
    assert {rule for rule in raised if f"`{rule}`" not in GRADER} == set()


def test_documented_columns_match_the_report() -> None:
    first = batch.BatchReport(rows=(), seed=0).to_csv().strip().split(",")
    documented = SECTIONS["For teachers: a class"].split("CSV has the columns")[1]
    assert re.findall(r"`([a-z_]+)`", documented)[: len(first)] == first


NOT_STOPPED = {
    "reading a file": "print(open('/etc/passwd').read(4))\n",
}


@pytest.mark.parametrize("what", NOT_STOPPED)
def test_documented_gaps_of_the_sandbox_exist(what: str) -> None:
    """If one of these gaps is closed, the docs must change."""
    verdict = grade(toy(), NOT_STOPPED[what] + SOLUTION)
    assert verdict.passed
    assert verdict.printed


def test_documented_example_of_a_check_works(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOC, flags=re.DOTALL)
    module = ModuleType("inlayer.learn.content.toys.example.check")
    exec(compile(code, "learn.md", "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    task = Task(id="example", lesson="toys", folder=tmp_path)
    good = "def gather(table, ids):\n    return table[ids]\n"
    assert grade(task, good).summary == "5 of 5 checks passed"
    failures = [grade(task, good.replace("[ids]", wrong)).failure for wrong in ("[(ids + 1) % len(table)]", "[ids].mT")]
    assert [failure.rule for failure in failures if failure] == ["off-by-one", "shape"]

"""docs/learn.md keeps its word: verbs, limits, rules, and what the grader does not stop."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from inlayer.cli.learn.commands import learn
from inlayer.learn import batch, session, submission
from inlayer.learn.course import Task
from inlayer.learn.grader import grade
from inlayer.learn.sandbox import runner
from tests.learn.toy import SOLUTION, toy

DOC = (Path(__file__).parents[2] / "docs" / "learn.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", DOC, flags=re.MULTILINE | re.DOTALL))
GRADER = SECTIONS["How the grader works, and what it is not"]


def test_every_verb_is_told_and_is_one() -> None:
    verbs = {command.name for command in learn.registered_commands}
    told = set(re.findall(r"inlayer learn ([a-z-]+)", DOC)) - {"teaches"}
    assert told <= verbs
    assert verbs - told == set()


def test_the_limits_are_those_of_the_code() -> None:
    limits = dict(re.findall(r"^\| ([^|]+) \| (\d[^|]*) \|", GRADER, flags=re.MULTILINE))
    assert limits == {
        "time, for all checks of a file": f"{session.Limits().seconds:g} s",
        "memory, beyond Python and torch (Linux)": f"{session.Limits().memory >> 30} GiB",
        "printed output": f"{session.Limits().output >> 20} MiB",
        "one file": "64 MiB",
        "open files": "256",
        "threads": str(runner.MAX_THREADS),
    }
    source = Path(runner.__file__).read_text(encoding="utf-8")
    assert "RLIMIT_FSIZE, (64 << 20," in source
    assert "RLIMIT_NOFILE, (256," in source
    assert (submission.MAX_CODE, submission.MAX_NOTEBOOK) == (1 << 20, 32 << 20)
    assert f"more than {submission.MAX_COPIES} files of one task, or {submission.MAX_ENTRIES:,} files" in DOC


def test_every_rule_of_a_class_is_told() -> None:
    rooms = [Path(room.__file__ or "").read_text(encoding="utf-8") for room in (submission, batch)]
    raised = set(re.findall(r'"([a-z]+(?:-[a-z0-9]+)+|link|unreadable)"', "\n".join(rooms)))
    rows = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \| ", SECTIONS["For teachers: a class"], flags=re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)}
    assert raised - {"utf-8-sig", "site-packages"} == told


def test_every_rule_of_the_grader_is_told() -> None:
    room = Path(session.__file__).parent
    texts = [(room / name).read_text(encoding="utf-8") for name in ("session.py", "grader.py", "checks.py")]
    raised = set(re.findall(r'(?:Failed\(\s*|rule = "failed", |rule: str = )"([a-z-]+)"', "\n".join(texts)))
    assert len(raised) > 8
    assert {rule for rule in raised if f"`{rule}`" not in GRADER} == set()


def test_its_columns_are_those_of_the_report() -> None:
    first = batch.Report(rows=(), seed=0).to_csv().strip().split(",")
    said = SECTIONS["For teachers: a class"].split("CSV has the columns")[1]
    assert re.findall(r"`([a-z]+)`", said)[: len(first)] == first


NOT_STOPPED = {
    "reading a file": "print(open('/etc/passwd').read(4))\n",
}


@pytest.mark.parametrize("what", NOT_STOPPED)
def test_what_it_does_not_stop_is_not_stopped(what: str) -> None:
    """If it were one day, the page would have to say so."""
    verdict = grade(toy(), NOT_STOPPED[what] + SOLUTION)
    assert verdict.passed
    assert verdict.printed


def test_the_example_of_a_check_checks(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOC, flags=re.DOTALL)
    module = ModuleType("inlayer.learn.content.toys.example.check")
    exec(compile(code, "learn.md", "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    task = Task(id="example", lesson="toys", folder=tmp_path)
    good = "def gather(table, ids):\n    return table[ids]\n"
    assert grade(task, good).summary == "5 of 5 checks"
    failures = [grade(task, good.replace("[ids]", wrong)).failure for wrong in ("[(ids + 1) % len(table)]", "[ids].mT")]
    assert [failure.rule for failure in failures if failure] == ["off-by-one", "shape"]

"""The files in .github/ are valid, run only commands that exist, and cannot write to the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.console import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(path.name for path in FOLDER.glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([\w-]+):", MAKEFILE, flags=re.MULTILINE))
VARIABLES = set(re.findall(r"^(\w+) \??:?=", MAKEFILE, flags=re.MULTILINE))
WRITES = {  # trusted publishing: no token is stored
    ("release.yml", "publish"): {"id-token": "write"},
    ("release.yml", "site"): {"id-token": "write", "pages": "write"},
}


def read(name: str) -> dict[str, Any]:
    """A file of .github/; YAML 1.1 reads the key `on` as true."""
    content: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / name).read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in content.items()}


def test_the_workflows() -> None:
    assert WORKFLOWS == ["ci.yml", "newest.yml", "release.yml"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_is_bounded_and_may_only_read(name: str) -> None:
    workflow = read(f"workflows/{name}")
    assert set(workflow) - {"concurrency"} == {"name", "on", "permissions", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}
    for job_name, job in workflow["jobs"].items():
        assert job.get("permissions", {}) == WRITES.get((name, job_name), {})
        assert 0 < job["timeout-minutes"] <= 90
        assert job["runs-on"]
        assert set(job.get("needs", "").split()) <= set(workflow["jobs"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_steps_run_commands_that_exist(name: str) -> None:
    steps = [step for job in read(f"workflows/{name}")["jobs"].values() for step in job["steps"]]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[\w/.]+", step["uses"]) for step in steps if "uses" in step)
    made = re.findall(r"^make (.+)$", "\n".join(step.get("run", "") for step in steps), flags=re.MULTILINE)
    assert made
    for target, *settings in map(str.split, made):
        assert target in TARGETS
        assert {setting.partition("=")[0] for setting in settings} <= VARIABLES


def test_newest_libraries_are_tested_every_week_without_pins() -> None:
    workflow = read("workflows/newest.yml")
    ((schedule,),) = (one.values() for one in workflow["on"]["schedule"])
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", schedule)
    runs = [step["run"] for step in workflow["jobs"]["newest"]["steps"] if "run" in step]
    installing = [run for run in runs if run.startswith("make ") and run != "make browser"]
    assert len(installing) == 3
    assert all(run.endswith(" CONSTRAINTS=") for run in installing)
    assert "--constraint" not in MAKEFILE.replace("CONSTRAINTS := --constraint", "")  # the variable is the only place


def test_dependencies_are_updated() -> None:
    updates = read("dependabot.yml")["updates"]
    assert [one["package-ecosystem"] for one in updates] == ["github-actions", "pip"]
    assert all(one["directory"] == "/" and one["schedule"]["interval"] == "monthly" for one in updates)


def test_release_checks_what_it_uploads() -> None:
    commands = [step.get("run", "") for step in read("workflows/release.yml")["jobs"]["build"]["steps"]]
    (built,) = (number for number, run in enumerate(commands) if "-m build" in run)
    (checked,) = (number for number, run in enumerate(commands) if "twine check --strict dist/*" in run)
    assert built < checked


FILLED_IN = {
    "pyproject.toml": 'Repository = "https://host/inlayer"',
    "CITATION.cff": 'repository-code: "https://host/inlayer"',
    "mkdocs.yml": "edit_uri: https://host/inlayer/edit/main/docs/",
}


@pytest.mark.parametrize("missing", [*FILLED_IN, None])
def test_release_stops_without_the_url_of_the_repository(missing: str | None, tmp_path: Path) -> None:
    for name, line in FILLED_IN.items():
        (tmp_path / name).write_text(f"# {line}\n" if name == missing else f"first: 1\n{line}\n", encoding="utf-8")
    steps = read("workflows/release.yml")["jobs"]["build"]["steps"]
    (script,) = (step["run"] for step in steps if "URL" in step.get("name", ""))
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (missing is not None), done.stderr
    assert (f"{missing} lacks the repository's URL: see Releasing" in done.stdout) == (missing is not None)
    assert "\n## Releasing\n" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_site_is_published_after_the_release() -> None:
    jobs = read("workflows/release.yml")["jobs"]
    assert jobs["site"]["needs"] == "publish"
    assert [step.get("run", step.get("uses")) for step in jobs["build"]["steps"]][-2:] == [
        "make docs-site", "actions/upload-pages-artifact@v3",
    ]  # fmt: skip

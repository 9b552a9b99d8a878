"""The wheel alone is enough: built from this tree, installed into an empty environment, used from an empty folder.

The environment gets the wheel and, through a .pth file, the dependencies installed here. Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).parents[1]
ENV = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
ENV |= {"PYTHONUTF8": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
PIP = [sys.executable, "-m", "pip", "--quiet"]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", env=ENV, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    (wheel,) = folder.glob("inlayer-*.whl")
    return wheel


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, with the dependencies of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    run(*PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return python.parent


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(ENV, "INLAYER_DATA", str(tmp_path / "data"))
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_wheel_has_data_files_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    here = [path for path in (ROOT / "inlayer").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(ROOT)) for path in here} <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"inlayer"}


def test_pypi_shows_a_readme_without_broken_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name), policy=default)
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = str(metadata.get_payload())
    assert "See and use the first layer of a language model" in text
    assert "a classifier with scikit-learn" in text  # a link, at least its text
    assert not [target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith("https://")]


def test_links_of_the_readme_point_to_the_repository_of_the_version() -> None:
    absolute_links = pytest.importorskip("scripts.pypi_readme").absolute_links
    readme = "See [the docs](docs/index.md#a), [torch](https://pytorch.org), and ![the page](docs/page.png)."
    assert absolute_links(readme, None, "1.0") == "See the docs, [torch](https://pytorch.org), and ."
    assert absolute_links(readme, "https://host/inlayer/", "1.0") == (
        "See [the docs](https://host/inlayer/blob/v1.0/docs/index.md#a), [torch](https://pytorch.org), "
        "and ![the page](https://host/inlayer/raw/v1.0/docs/page.png)."
    )


def test_package_is_imported_from_the_wheel(bin_folder: Path, empty: Path) -> None:
    found = run(bin_folder / "python", "-c", "import inlayer; print(inlayer.__file__, inlayer.__version__)", cwd=empty)
    assert Path(found.split()[0]).is_relative_to(bin_folder.parent)
    assert run(bin_folder / "inlayer", "--version", cwd=empty).split()[1] == found.split()[1]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["walk", "I love dogs"], "backward"),
        (["walk", "I love dogs", "--html", "-"], "<!doctype html>"),
        (["inspect"], "healthy"),
        (["learn"], "forward"),
        (["learn", "read", "forward", "--no-pager"], "row"),
        (["learn", "dev-check", "gather"], "gather"),  # grades solutions in a sandbox
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_run(command: list[str], shown: str, bin_folder: Path, empty: Path) -> None:
    assert shown in run(bin_folder / "inlayer", *command, cwd=empty)
    assert not list(empty.iterdir())


def test_server_answers(bin_folder: Path, empty: Path) -> None:
    command = [bin_folder / "inlayer", "serve", "--json"]
    with subprocess.Popen(command, cwd=empty, env=ENV, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            with urlopen(Request(url), timeout=300) as response:
                assert response.read().startswith(b"<!doctype html>")
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 130

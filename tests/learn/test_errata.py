"""The errata: every proof proves, by itself, and prints what stands below it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import inlayer
from tests.shared_data import shared

CONTENT = Path(inlayer.__file__).parent / "learn" / "content"
ERRATA = (CONTENT / "errata.md").read_text(encoding="utf-8")

# what the design lists, by the names the lessons link to
LISTED = {"init_std", "padding_row", "sizes", "tied_kimi", "index_select", "mean_pooling", "unstable_tying"}


def entries() -> dict[str, str]:
    """slug -> what stands below its heading."""
    _, *parts = re.split(r"^## ", ERRATA, flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


ENTRIES = entries()
SLUGS = pytest.mark.parametrize("slug", ENTRIES)


def fences(slug: str, word: str) -> list[str]:
    return re.findall(rf"^```{word}\n(.*?)^```$", ENTRIES[slug], flags=re.MULTILINE | re.DOTALL)


def proof(slug: str) -> str:
    (code,) = fences(slug, "python")
    return str(code)


def run(code: str | ast.Module, slug: str) -> dict[str, Any]:
    """In a namespace of its own: an entry leans on no other one."""
    space: dict[str, Any] = {"__name__": slug}
    exec(compile(code, f"<errata: {slug}>", "exec"), space)
    return space


def test_what_the_design_lists_is_there() -> None:
    assert set(ENTRIES) >= LISTED
    assert len(ENTRIES) == ERRATA.count("\n## ")  # no name twice


@SLUGS
def test_an_entry_names_its_document_and_says_what_is_so(slug: str) -> None:
    assert re.fullmatch(r"[a-z][a-z_]+", slug)
    prose = ENTRIES[slug].split("```")[0].strip().split("\n\n")
    assert re.match(r"\*\*Documents? 00[0-4]( and 00[0-4])?\*\*[,.] ", prose[0]), prose[0]
    assert len(prose) >= 2


@SLUGS
def test_the_proof_holds_and_prints_what_is_shown(slug: str, capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = fences(slug, "text")
    run(proof(slug), slug)
    assert capsys.readouterr().out == shown
    assert shown.count("\n") == 1


class TurnedRound(ast.NodeTransformer):
    """One assert of a proof says the contrary; `places` counts those there are."""

    def __init__(self, turned: int) -> None:
        self.turned, self.places = turned, 0

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:  # the name ast calls
        if self.places == self.turned:
            node.test = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=node.test), node.test)
        self.places += 1
        return node


@SLUGS
def test_the_proof_can_fail(slug: str) -> None:
    """Every assert is reached and decides: turned round, it stops the proof."""
    count = TurnedRound(-1)
    count.visit(ast.parse(proof(slug)))
    assert count.places > 0
    for turned in range(count.places):
        code = ast.fix_missing_locations(TurnedRound(turned).visit(ast.parse(proof(slug))))
        with pytest.raises(AssertionError):
            run(code, slug)


def test_a_false_statement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were nn.Embedding as the document says, its entry would fail."""
    from torch import nn

    monkeypatch.setattr(nn.Embedding, "reset_parameters", lambda self: nn.init.normal_(self.weight, std=0.02))
    with pytest.raises(AssertionError):
        run(proof("init_std"), "init_std")


@pytest.mark.parametrize("name", ["DeepSeek-V3", "Kimi-K2-Instruct"])
def test_what_is_said_of_real_models_is_in_their_configs(name: str) -> None:
    config = json.loads(shared("data", "configs", f"{name}.config.json").read_text(encoding="utf-8"))
    sizes = run(proof("sizes"), "sizes")["published"]
    assert sizes[name.removesuffix("-Instruct")].items() <= config.items()
    assert config["tie_word_embeddings"] is False
    assert config["torch_dtype"] == "bfloat16"
    assert config["initializer_range"] == 0.02
    assert "pad_token_id" not in config
    if name == "DeepSeek-V3":
        assert (config["bos_token_id"], config["eos_token_id"]) == (0, 1)


def test_links_into_the_errata_arrive() -> None:
    linked = {
        (path.parent.name, slug)
        for path in CONTENT.rglob("*.md")
        for slug in re.findall(r"\(errata:([^)]*)\)", path.read_text(encoding="utf-8"))
    }
    assert {slug for _, slug in linked} <= set(ENTRIES), sorted(linked)

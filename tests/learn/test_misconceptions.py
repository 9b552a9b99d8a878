"""Common misconceptions: the page matches the boxes, and every proof runs alone, asserts its claim and can fail."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest

from inlayer.learn.content import LESSONS
from scripts.make_misconceptions import CONTENT, PAGE, boxes, page
from tests.shared_data import shared

TEXT = PAGE.read_text(encoding="utf-8")
REQUIRED = {"init_std", "padding_row", "sizes", "tied_kimi", "index_select", "mean_pooling", "unstable_tying"}


def entries() -> dict[str, str]:
    """Map each slug to the text below its heading."""
    _, *parts = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


ENTRIES = entries()
SLUGS = pytest.mark.parametrize("slug", ENTRIES)


def fences(slug: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", ENTRIES[slug], flags=re.MULTILINE | re.DOTALL)


def proof(slug: str) -> str:
    (code,) = fences(slug, "python")
    return str(code)


def run(code: str | ast.Module, slug: str) -> dict[str, Any]:
    """Run a proof in its own namespace, so it cannot depend on another entry."""
    namespace: dict[str, Any] = {"__name__": slug}
    exec(compile(code, f"<misconception: {slug}>", "exec"), namespace)
    return namespace


def test_page_matches_the_boxes_in_the_lessons() -> None:
    assert page() == TEXT, "run python -m scripts.make_misconceptions"
    slugs = [slug for lesson in LESSONS for slug, _, _ in boxes(lesson)]
    assert slugs == list(ENTRIES)
    assert len(set(slugs)) == len(slugs)
    assert set(slugs) >= REQUIRED


@SLUGS
def test_entry_has_belief_explanation_and_lesson(slug: str) -> None:
    assert re.fullmatch(r"[a-z][a-z_]+", slug)
    belief, *explanation = ENTRIES[slug].split("```")[0].strip().split("\n\n")
    assert re.fullmatch(r"\*\*Common misconception: .+\*\*", belief)
    assert explanation
    assert re.search(r"^Lesson: \[.+\]\(lesson:[a-z_]+\)$", ENTRIES[slug], flags=re.MULTILINE)


@SLUGS
def test_proof_holds_and_prints_the_shown_output(slug: str, capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = fences(slug, "text")
    run(proof(slug), slug)
    assert capsys.readouterr().out == shown
    assert shown.count("\n") == 1


class NegateAssert(ast.NodeTransformer):
    """Negate the assert with the given number and count all asserts."""

    def __init__(self, number: int) -> None:
        self.number, self.count = number, 0

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:  # the method name is defined by ast
        if self.count == self.number:
            node.test = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=node.test), node.test)
        self.count += 1
        return node


@SLUGS
def test_proof_fails_if_any_assert_is_negated(slug: str) -> None:
    counter = NegateAssert(-1)
    counter.visit(ast.parse(proof(slug)))
    assert counter.count > 0
    for number in range(counter.count):
        code = ast.fix_missing_locations(NegateAssert(number).visit(ast.parse(proof(slug))))
        with pytest.raises(AssertionError):
            run(code, slug)


def test_proof_fails_if_the_belief_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nn.Embedding did draw with std 0.02, the entry about it would fail."""
    from torch import nn

    monkeypatch.setattr(nn.Embedding, "reset_parameters", lambda self: nn.init.normal_(self.weight, std=0.02))
    with pytest.raises(AssertionError):
        run(proof("init_std"), "init_std")


@pytest.mark.parametrize("name", ["DeepSeek-V3", "Kimi-K2-Instruct"])
def test_claims_about_real_models_match_their_configs(name: str) -> None:
    config = json.loads(shared("data", "configs", f"{name}.config.json").read_text(encoding="utf-8"))
    sizes = run(proof("sizes"), "sizes")["published"]
    assert sizes[name.removesuffix("-Instruct")].items() <= config.items()
    assert config["tie_word_embeddings"] is False
    assert config["torch_dtype"] == "bfloat16"
    assert config["initializer_range"] == 0.02
    assert "pad_token_id" not in config
    if name == "DeepSeek-V3":
        assert (config["bos_token_id"], config["eos_token_id"]) == (0, 1)


def test_course_does_not_mention_unseen_documents() -> None:
    for path in sorted(CONTENT.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"errat|[Dd]ocuments? 00\d|the documents|^seed:", text, flags=re.MULTILINE), path

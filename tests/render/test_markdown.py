"""Markdown parses once into a tree; terminal, page and notebook render the same callouts, code and links."""

from __future__ import annotations

import io

from rich.console import Console

from inlayer.render.markdown import parse, print_markdown, to_elements, to_notebook

CODE = f"print({' + '.join('1' * 30)})"
CALLOUT = """> **Common misconception: `index_select` takes a 2-D index**
> It takes a 1-D index.
>
> ```python
> CODE
> ```
""".replace("CODE", CODE)


def printed(text: str) -> str:
    stream = io.StringIO()
    print_markdown(Console(file=stream, width=70, color_system=None), parse(text), lambda address: f"open {address}")
    return stream.getvalue()


def elements(text: str) -> list[object]:
    return to_elements(parse(text), lambda _: None, lambda _: None)


def test_a_callout_is_text_between_rules_an_aside_and_a_quote() -> None:
    (node,) = parse(CALLOUT)
    assert (node.kind, node.text) == ("callout", "index_select takes a 2-D index")
    lines = printed(CALLOUT).splitlines()
    assert lines[0] == lines[-2] == "─" * 70
    assert lines[1] == "Common misconception: index_select takes a 2-D index"
    assert f"    {CODE}" in lines  # not wrapped, so it can be copied
    (aside,) = elements(CALLOUT)
    assert aside[0] == "aside"  # type: ignore[index]
    assert ["pre", {"kind": "python"}] in [element[:2] for element in aside[2]]  # type: ignore[index]
    (part,) = to_notebook(CALLOUT, lambda _, words, address: f"{words} {address}", lambda _: None)
    assert (part.kind, part.text) == ("text", CALLOUT.rstrip("\n"))


def test_two_callouts_in_a_row_share_a_rule() -> None:
    lines = printed(f"{CALLOUT}\n{CALLOUT}").splitlines()
    assert lines.count("─" * 70) == 3


def test_another_quote_is_not_a_callout() -> None:
    assert [node.kind for node in parse("> **Note: this**\n> text")] == ["blockquote"]


def test_links_become_commands_outside_code() -> None:
    code = "```python\nx = '[a](walk:1)'\n```"
    text = f"before [a](walk:1)\n\n{code}\n\n![one\ntwo](pictures/x.svg)\n\n- item\n\n| a |\n|--:|\n| 1 |"
    out = printed(text)
    assert out.startswith("before a\n\n")
    assert out.endswith("  open walk:1\n\n")  # at the end of the section
    sections = printed("# One\n\nSee [a](walk:1):\n\n1\n\n# Two\n\n[a](walk:1) and [b](walk:2)").split("Two")
    assert sections[0].endswith("1\n\n  open walk:1\n\n")
    assert sections[1].endswith("a and b\n  open walk:2  # b\n\n")  # each command once
    both = printed("See [this *one*](x:1), [that](task:gather) and [gather](task:gather).")
    assert both.splitlines()[1:3] == ["  open x:1          # this one", "  open task:gather  # that"]
    assert printed(f"[{'long ' * 30}](a:b)").splitlines()[-2].endswith("long long …")
    assert "    x = '[a](walk:1)'\n" in out
    assert "│ one two " in out
    assert " • item" in out
    assert "pictures/x.svg" not in out


def test_long_code_lines_are_not_wrapped() -> None:
    line = "x = " + "1 + " * 40 + "1"
    assert f"    {line}\n" in printed(f"```python\n{line}\n```")


def test_output_fences_follow_python() -> None:
    kinds = [node.info for node in parse("```python\n1\n```\n\n```text\n1\n```\n\nx\n\n```text\n2\n```") if node.info]
    assert kinds == ["python", "output", "plain"]

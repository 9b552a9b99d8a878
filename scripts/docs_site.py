"""Hook of the documentation site (mkdocs.yml): fill pages from what they describe, the commands and the examples.

Tested in tests/test_docs.py, which builds the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    for place, parts in (("<!-- commands -->", command_pages), ("<!-- examples -->", example_sections)):
        if place in markdown:
            markdown = markdown.replace(place, "\n".join(parts()))
    return markdown


def example_sections() -> Iterator[str]:
    """Every example script with its code."""
    for script in sorted(EXAMPLES.glob("*.py")):
        yield f"\n## {script.name}\n\n```python\n{script.read_text(encoding='utf-8')}```\n"


def command_pages() -> Iterator[str]:
    """The help of every command as Markdown."""
    import typer

    from inlayer.cli import COMMANDS
    from inlayer.cli.app import app

    for module in COMMANDS.values():
        import_module(f"inlayer.cli.{module}")
    for name, command in list(walk(typer.main.get_command(app), "inlayer"))[1:]:
        yield f"\n{'#' * (name.count(' ') + 1)} {name}\n\n{plain(command.help)}\n"
        rows = [(parameter, f"{plain(parameter.help)}") for parameter in command.params if parameter.name != "help"]
        if rows:
            yield "| argument | meaning |\n|---|---|"
            yield from (f"| {spelled(parameter)} | {text} |" for parameter, text in rows)
        lines = [line for line in (command.epilog or "").splitlines()[1:] if line]
        examples = [line for line in lines if line.startswith(("inlayer ", "torchrun "))]
        yield "\n```sh\n" + "\n".join(examples) + "\n```\n"
        yield from (f"{plain(line)}\n" for line in lines if line not in examples)


def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and its subcommands with their full names."""
    yield name, command
    for child, subcommand in getattr(command, "commands", {}).items():
        yield from walk(subcommand, f"{name} {child}")


def spelled(parameter: Any) -> str:
    """An argument or option as typed."""
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    return ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))


def plain(text: str | None) -> str:
    """Help text without rich's escapes, in one paragraph per paragraph, safe inside a table."""
    paragraphs = re.split(r"\n\s*\n", (text or "").replace("\\[", "["))
    return "\n\n".join(" ".join(one.split()).replace("|", "\\|") for one in paragraphs)

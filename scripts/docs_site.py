"""Hook of the documentation site (mkdocs.yml): fill pages from what they describe: commands, routes and examples.

Tested in tests/test_docs.py, which builds the site.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    markdown = re.sub(r"<!-- (\w+\.md) -->", lambda match: root_document(match[1]), markdown)
    for place, parts in (
        ("<!-- commands -->", command_pages),
        ("<!-- examples -->", example_sections),
        ("<!-- routes -->", route_sections),
    ):
        if place in markdown:
            markdown = markdown.replace(place, "\n".join(parts()))
    return markdown


def root_document(name: str) -> str:
    """A document of the repository's root, with links to pages of the site."""
    return (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")


def example_sections() -> Iterator[str]:
    """Every example script with its code."""
    for script in sorted((ROOT / "examples").glob("*.py")):
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
        rows = [(parameter, described(parameter)) for parameter in command.params if parameter.name != "help"]
        if rows:
            yield "| argument | meaning |\n|---|---|"
            yield from (f"| {spelled(parameter)} | {text} |" for parameter, text in rows)
        lines = [line for line in (command.epilog or "").splitlines()[1:] if line]
        examples = [line for line in lines if line.startswith(("inlayer ", "torchrun "))]
        yield "\n```sh\n" + "\n".join(examples) + "\n```\n"
        yield from (f"{plain(line)}\n" for line in lines if line not in examples)


def route_sections() -> Iterator[str]:
    """Every route of the server with its parameters, as /api/openapi.json describes them."""
    from inlayer.cli.serve import open_pipelines
    from inlayer.web.app import make_app

    api: Any = make_app(open_pipelines(("default",)), token="").app
    document = api.openapi()
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            yield f"\n### {method.upper()} {path}\n\n{plain(route['description'])}\n"
            fields = {one["name"]: one["schema"] | {"required": one["required"]} for one in route.get("parameters", [])}
            if "requestBody" in route:
                name = route["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                body = document["components"]["schemas"][name]
                needed = body.get("required", ())
                fields |= {key: field | {"required": key in needed} for key, field in body["properties"].items()}
            if fields:
                yield "| field | type | default | meaning |\n|---|---|---|---|"
                yield from (f"| `{key}` | {' | '.join(field_cells(field))} |" for key, field in fields.items())


def field_cells(field: dict[str, Any]) -> tuple[str, str, str]:
    """Type with limits, default and meaning of a field in a JSON schema."""
    kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
    default = "required" if field["required"] else f"`{json.dumps(field.get('default'))}`"
    return " or ".join(map(type_of, kinds)), default, plain(field.get("description", ""))


def type_of(kind: dict[str, Any]) -> str:
    """A type with its limits; integers up to 2^63 count as unlimited."""
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {type_of(kind['items'])}"
    low, high = kind.get("minimum", kind.get("exclusiveMinimum")), kind.get("maximum")
    limits = [f"from {low:,.0f}" if low is not None and low > -1e18 else ""]
    limits += [f"to {high:,.0f}" if high is not None and high < 1e18 else ""]
    return " ".join([kind.get("type", "any"), *filter(None, limits)])


def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and its subcommands with their full names."""
    yield name, command
    for child, subcommand in getattr(command, "commands", {}).items():
        yield from walk(subcommand, f"{name} {child}")


def described(parameter: Any) -> str:
    """What an argument or option means, with its default as in --help."""
    text, default = plain(parameter.help), parameter.default
    if parameter.is_flag if hasattr(parameter, "is_flag") else default is None:
        return text
    is_known = default is None or callable(default) or "[default:" in text
    return text if is_known else f"{text} [default: {getattr(default, 'value', default)}]"


def spelled(parameter: Any) -> str:
    """An argument or option as typed."""
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    return ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))


def plain(text: str | None) -> str:
    """Help text without rich's escapes, in one paragraph per paragraph, safe inside a table."""
    paragraphs = re.split(r"\n\s*\n", (text or "").replace("\\[", "["))
    return "\n\n".join(" ".join(one.split()).replace("|", "\\|") for one in paragraphs)

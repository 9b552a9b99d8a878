"""Generates inlayer/trace/schema.json from the dataclasses of trace/facts.py: `python -m tests.trace.schema`.

pydantic reads the annotations; it is a development dependency only. A test compares the file with the dataclasses, and
every kind of trace with the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from inlayer.trace import facts
from inlayer.trace.token_facts import InitializationFacts

FILE = Path(facts.__file__).parent / "schema.json"
ROOTS = (facts.Trace, facts.TokenFacts, InitializationFacts, facts.ModelFacts)


def schema() -> dict[str, Any]:
    """JSON Schema of all facts; the root is a Trace."""
    adapters = [(root.__name__, "serialization", TypeAdapter(root)) for root in ROOTS]
    _, made = TypeAdapter.json_schemas(adapters)  # type: ignore[arg-type]
    definitions = {name: _strict(part) for name, part in sorted(made["$defs"].items())}
    definitions["Number"] = {
        "description": "A number; NaN and infinities are strings.",
        "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "inlayer trace, format 3",
        "$ref": "#/$defs/Trace",
        "$defs": definitions,
    }


def _strict(part: Any) -> Any:
    """Numbers may be the strings above, objects have no other fields, and what is redundant is removed."""
    if isinstance(part, list):
        return [_strict(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":
        return {"$ref": "#/$defs/Number"}
    kept = {key: _strict(value) for key, value in part.items() if key != "title" or isinstance(value, dict)}
    if kept.get("type") == "object":
        kept["additionalProperties"] = False
        kept["description"] = kept["description"].partition("\n\nAttributes:")[0]  # the properties say the rest
    return kept


def main() -> None:
    FILE.write_text(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

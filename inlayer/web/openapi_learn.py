"""The course's part of the API's description: what each address takes, from its own table, and what it answers.

learn.ADDRESSES -> [openapi_learn] -> openapi
Answers are held against these schemas in tests/web/test_learn.py.
"""

from __future__ import annotations

from typing import Any

from inlayer.web.course import MAX_CODE
from inlayer.web.learn import ADDRESSES, Asking
from inlayer.web.schemas import Field

__all__ = ["FIELDS", "SCHEMAS", "errors_of"]

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
FLAG = {"type": "boolean"}
STEP = {"type": "integer", "minimum": 1, "maximum": 8}
SUM = {"type": ["string", "null"], "description": "SHA-256 of the learner's file; null where there is none."}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "additionalProperties": False, "properties": properties}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


NODES = _reference("Nodes")
EXERCISE = {
    "id": TEXT, "title": TEXT, "kind": {"enum": ["number", "choice", "free"]}, "seed": COUNT, "text": NODES,
    "unit": TEXT, "shape": FLAG, "options": _list(NODES),
}  # fmt: skip
QUESTION = _object(id=TEXT, lesson=TEXT, seed=COUNT, text=NODES, options=_list(NODES), due=COUNT)
STATE = {"enum": ["open", "tried", "skipped", "passed"]}
FILE = {"code": TEXT, "sum": SUM, "saved": FLAG, "path": TEXT}

SCHEMAS: dict[str, Any] = {
    "Nodes": {
        "description": "A text as elements: strings, and [tag, attributes, children].",
        "type": "array",
        "items": {
            "anyOf": [
                TEXT,
                {
                    "type": "array",
                    "prefixItems": [TEXT, {"type": "object"}, _reference("Nodes")],
                    "minItems": 3,
                    "maxItems": 3,
                },
            ]
        },
    },
    "Course": _object(
        lessons=_list(
            _object(
                id=TEXT, number=COUNT, title=TEXT, step=STEP, read=FLAG,
                tasks=_list(_object(id=TEXT, title=TEXT, state=STATE)),
                exercises=_object(done=COUNT, total=COUNT),
                quiz=_object(done=COUNT, total=COUNT, due=COUNT),
            )
        ),
        next=_or_null(_object(lesson=TEXT, task=_or_null(TEXT), part={"enum": [None, "exercises", "quiz"]}, name=TEXT)),
        runs=FLAG,
        refusal=TEXT,
        notices=_list(TEXT),
    ),
    "Lesson": _object(
        id=TEXT, number=COUNT, title=TEXT, step=STEP, text=NODES,
        tasks=_list(
            _object(id=TEXT, title=TEXT, step=STEP, text=NODES, state=STATE, hints=_list(NODES), n_hints=COUNT)
        ),
        exercises=_list(_object(**EXERCISE, done=FLAG)),
        questions=_list(QUESTION),
    ),
    "Misconceptions": _object(title=TEXT, text=NODES),
    "Exercise": _object(**EXERCISE),
    "LearnerFile": _object(**FILE),
    "Anew": _object(**FILE, kept=TEXT),
    "Saved": _object(sum=SUM),
    "Verdict": _object(
        task=TEXT, passed=FLAG, summary=TEXT,
        results=_list(
            _object(name=TEXT, what=TEXT, state={"enum": ["passed", "failed", "not run"]}, rule=TEXT, message=TEXT)
        ),
        printed=TEXT, line=_or_null(COUNT), step=STEP, why=_or_null(NODES), sum=SUM,
        own=_or_null(
            _object(
                shape=_list(COUNT), dtype=TEXT, whole=FLAG, heads=_list(TEXT), more=COUNT, note=TEXT,
                rows=_list(_list({"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]})),
            )
        ),
    ),
    "Hints": _object(hints=_list(NODES)),
    "Solution": _object(solution=NODES, why=NODES),
    "Judged": {
        "anyOf": [
            _object(right=FLAG, readable=FLAG, message=NODES),
            _object(right={"type": "null"}, model_answer=NODES, points=_list(NODES)),
            _object(
                right={"type": "null"}, given=NODES, message=NODES, marks=_list(FLAG), whys=_list(NODES)
            ),
            _object(right={"const": True}),
            _object(right=FLAG, marks=_list(_or_null(FLAG)), whys=_list(_or_null(NODES)), again=_or_null(QUESTION)),
        ]
    },
    "Nothing": _object(),
}  # fmt: skip


def _field(name: str, field: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": field.kind if field.needed else [field.kind, "null"]}
    if field.needed:
        schema["examples"] = [field.example]
    else:
        schema["default"] = field.default
    if field.kind == "integer":
        schema |= {"minimum": 0, "maximum": field.most}
    return schema | ({"maxLength": MAX_CODE} if name == "code" else {})


FIELDS: dict[str, dict[str, Any]] = {
    one.path: {
        "type": "object",
        "required": [name for name, field in one.fields.items() if field.needed],
        "additionalProperties": False,
        "properties": {name: _field(name, field) for name, field in one.fields.items()},
    }
    for one in ADDRESSES
}


def errors_of(asking: Asking) -> tuple[str, ...]:
    """The statuses it may answer with, beside those that every address has."""
    body = ("408", "413", "415") if asking.method == "POST" else ()
    return ("400", "503", *body, *(("409",) if "loaded" in asking.fields else ()))

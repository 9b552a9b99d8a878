"""The API described by itself: OpenAPI 3.1, made from the limits in force and the schema of the facts.

trace/schema.json, openapi_learn -> [openapi] -> GET /api/openapi.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import inlayer
from inlayer import trace
from inlayer.web.learn import ADDRESSES, PAGE, Asking
from inlayer.web.openapi_learn import FIELDS, SCHEMAS, errors_of
from inlayer.web.schemas import POSITIONS, Limits

__all__ = ["describe"]

ERRORS = {
    "400": "A value that cannot be used; the message says which and why.",
    "401": "The token is missing or wrong.",
    "403": "A Host or Origin that is not this server's own; or code, where others than this machine can ask.",
    "405": "A method that this address does not take.",
    "409": "The learner's file was changed elsewhere since it was loaded; nothing is overwritten.",
    "408": "The body did not arrive in time.",
    "413": "The body or its texts are too large.",
    "415": "The body is no application/json.",
    "500": "A fault of the server; its own output says more.",
    "503": "Too many requests are waiting.",
}
ALWAYS = ("401", "403", "405", "500")


def describe(limits: Limits, models: list[str]) -> dict[str, Any]:
    """The whole document, for these limits and models."""
    model = {"type": "string", "enum": models, "default": models[0], "description": "One of those named at start."}
    dims = _integer(1, limits.dims, 8, "How many channels of a vector to show.")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "inlayer",
            "version": inlayer.__version__,
            "summary": "Text through the embedding layer of a language model, every step with its numbers.",
            "description": 'Every error is one line: {"error": "..."}.',
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"query": []}],
        "paths": _with_heads(_paths(limits, model, dims)),
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "The token that the server printed."},
                "query": {"type": "apiKey", "in": "query", "name": "token"},
            },
            "schemas": {
                "Walk": _walk(limits, model, dims),
                "Models": {
                    "type": "object",
                    "required": ["models"],
                    "additionalProperties": False,
                    "properties": {"models": {"type": "array", "items": _reference("ModelFacts"), "minItems": 1}},
                },
                "Error": {
                    "type": "object",
                    "required": ["error"],
                    "additionalProperties": False,
                    "properties": {"error": {"type": "string", "pattern": "^[^\\n]+$"}},
                },
                **SCHEMAS,
                **_facts(),
            },
        },
    }


def _paths(limits: Limits, model: dict[str, Any], dims: dict[str, Any]) -> dict[str, Any]:
    return {
        "/": {"get": _operation("page", "The page.", _content("text/html", {"type": "string"}))},
        "/api/models": {"get": _operation("models", "The models that can be walked.", _answer("Models"))},
        "/api/walk": {
            "post": _operation(
                "walk",
                "One batch of texts through a model: every step, forwards and backwards.",
                _answer("Trace"),
                errors=("400", "408", "413", "415", "503"),
                requestBody={"required": True, **_content("application/json", _reference("Walk"))},
            )
        },
        "/api/token": {
            "get": _operation(
                "token",
                "One id: what it stands for, its row, its neighbors.",
                _answer("TokenFacts"),
                errors=("400", "503"),
                parameters=[
                    _parameter("id", {"type": "integer", "minimum": 0}, required=True),
                    _parameter("model", model),
                    _parameter("k", _integer(1, limits.k, 8, "How many neighbors.")),
                ],
            )
        },
        "/api/initialization": {
            "get": _operation(
                "initialization",
                "How a table like the model's is initialized, step by step.",
                _answer("InitializationFacts"),
                errors=("400", "503"),
                parameters=[
                    _parameter("model", model),
                    _parameter("seed", _integer(0, limits.integer, 0, "Where its random rows come from.")),
                    _parameter("dims", dims),
                ],
            )
        },
        "/api/openapi.json": {
            "get": _operation("openapi", "This document.", _content("application/json", {"type": "object"}))
        },
        PAGE: {"get": _operation("learnPage", "The course.", _content("text/html", {"type": "string"}))},
        **{one.path: {one.method.lower(): _of_the_course(one)} for one in ADDRESSES},
    }


def _of_the_course(asking: Asking) -> dict[str, Any]:
    fields = FIELDS[asking.path]
    takes: dict[str, Any] = {"requestBody": {"required": True, **_content("application/json", fields)}}
    if asking.method == "GET":
        needed = fields["required"]
        takes = {
            "parameters": [
                _parameter(name, schema, required=name in needed) for name, schema in fields["properties"].items()
            ]
        }
    name = f"learn{asking.name.title()}"
    return _operation(name, asking.summary, _answer(asking.schema), errors=errors_of(asking), **takes)


def _with_heads(paths: dict[str, Any]) -> dict[str, Any]:
    """Whatever GET is answered, HEAD is too: the same, without its body."""
    return {path: item | ({"head": _head(item["get"])} if "get" in item else {}) for path, item in paths.items()}


def _head(operation: dict[str, Any]) -> dict[str, Any]:
    responses = {
        status: {key: value for key, value in response.items() if key != "content"}
        for status, response in operation["responses"].items()
    }
    return {**operation, "operationId": f"{operation['operationId']}Head", "responses": responses}


def _walk(limits: Limits, model: dict[str, Any], dims: dict[str, Any]) -> dict[str, Any]:
    place = {"type": "integer", "minimum": 0, "maximum": limits.integer}
    return {
        "type": "object",
        "description": f"texts x tokens is at most {limits.places:,}, texts x tokens x dims at most {limits.values:,}, "
        f"and all texts together have at most {limits.characters:,} characters.",
        "required": ["texts"],
        "additionalProperties": False,
        "properties": {
            "texts": {
                "type": "array",
                "items": {"type": "string", "maxLength": limits.characters},
                "minItems": 1,
                "maxItems": limits.texts,
                "examples": [["I love dogs"]],
            },
            "model": {**model, "type": ["string", "null"], "enum": [*model["enum"], None]},
            "dims": dims,
            "tokens": _integer(1, limits.tokens, 64, "How many tokens of a text to show."),
            "positions": {
                "type": ["string", "null"],
                "enum": [*POSITIONS, None],
                "default": None,
                "description": "Positions to put in the place of the model's own.",
            },
            "theta": {
                "type": ["number", "null"],
                "exclusiveMinimum": 0,
                "maximum": limits.theta,
                "default": None,
                "description": "The base of rotary positions.",
            },
            "swap": {
                "type": ["array", "null"],
                "items": place,
                "minItems": 2,
                "maxItems": 2,
                "default": None,
                "description": "Places of two tokens of the first text that change places.",
            },
            "pad": _integer(0, limits.pad, 0, "How many pad tokens to add."),
        },
    }


def _facts() -> dict[str, Any]:
    """The schema of the facts, moved to where OpenAPI keeps schemas."""
    text = (Path(trace.__file__).parent / "schema.json").read_text(encoding="utf-8")
    moved: dict[str, Any] = json.loads(text.replace("#/$defs/", "#/components/schemas/"))["$defs"]
    return moved


def _operation(
    name: str, summary: str, answer: dict[str, Any], *, errors: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    responses = {status: {"description": ERRORS[status], **_answer("Error")} for status in sorted((*errors, *ALWAYS))}
    responses["401"]["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return {
        "operationId": name,
        "summary": summary,
        **more,
        "responses": {"200": {"description": summary, **answer}, **responses},
    }


def _parameter(name: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def _integer(least: int, most: int, default: int, description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default, "description": description}


def _answer(schema: str) -> dict[str, Any]:
    return _content("application/json", _reference(schema))


def _content(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


def _reference(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}

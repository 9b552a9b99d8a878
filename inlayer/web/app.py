"""The web application: routes for the page, the walk, and its models; course.py adds the course's routes.

browser -> guard -> [app] -> Pipeline -> facts -> JSON
- only the models specified at startup can be used; nothing in a request is opened, looked up, or fetched by name
- work runs in threads (worker_threads.py); a library error becomes status 400 with its one-line message,
  without local paths
- FastAPI validates requests and writes /api/openapi.json from the models in schemas.py
Tested with a real server on loopback in tests/web/test_app.py and tests/web/test_redact.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

import inlayer
from inlayer.errors import InlayerError, InputError
from inlayer.files import base_name, format_path, quote
from inlayer.geometry.background_maps import BackgroundMaps
from inlayer.geometry.map_page import MapFacts
from inlayer.inspection import inspect as inspect_model
from inlayer.inspection.html import inspect_facts, inspect_page, inspect_policy
from inlayer.tables import StoredEmbedding
from inlayer.trace import Change, Pipeline, Trace
from inlayer.trace.backward import MAX_HEAD_VALUES
from inlayer.trace.facts import ModelFacts, TokenFacts
from inlayer.trace.gradient_step import GradientStepFacts, take_gradient_step
from inlayer.trace.html import content_security_policy, page
from inlayer.trace.scene import SceneFacts, TableScene, describe_scene
from inlayer.trace.token_facts import InitializationFacts, describe_token, initialize
from inlayer.web.course import add_course
from inlayer.web.guard import INTERNAL_ERROR, GuardMiddleware, error_page, error_response, expects_page
from inlayer.web.openai import add_embeddings
from inlayer.web.request_body import JsonRoute
from inlayer.web.schemas import GradientStepRequest, InitializationQuery, MapQuery, ModelQuery, TokenQuery, WalkRequest
from inlayer.web.worker_threads import WorkerThreads, add_route

THREADS, QUEUE = 2, 512  # with more waiting requests, responses arrive too late to be useful
LARGE_WALK_VALUES = 2**31  # table values x tokens passed through the head; takes most of a second
MAX_INSPECTED = 2**29  # largest table, in values, that is read completely; takes a few seconds
SEARCH_TOKENS = 32  # a neighbor search takes as long as a walk of this many tokens


@dataclass(frozen=True)
class ModelList:
    """Response of GET /api/models."""

    models: list[ModelFacts]


class WalkService:
    """The models, and the threads that run them. Large walks use one thread, so small ones never wait for them."""

    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        if not pipelines:
            raise InputError("no model to serve; specify at least one")
        self.pipelines = dict(pipelines)
        self.paths = find_paths(self.pipelines.values())
        self.small, self.waiting = WorkerThreads(THREADS, QUEUE), WorkerThreads(THREADS, QUEUE)
        self.large = WorkerThreads(1, QUEUE)
        self.reports: dict[str, dict[str, Any]] = {}
        self.maps = {
            id(pipeline): BackgroundMaps(pipeline.stored_table, pipeline.vocabulary, remote=pipeline.table.remote)
            for pipeline in self.pipelines.values()
        }

    def models(self) -> ModelList:
        """List the models that were specified at startup."""
        named = self.pipelines.items()
        return ModelList([replace(model.facts(), name=name, source=model.title) for name, model in named])

    def find(self, name: str | None) -> Pipeline:
        """Return the model with this name, or the first model by default."""
        if name is None:
            return next(iter(self.pipelines.values()))
        if name not in self.pipelines:
            known = ", ".join(map(quote, self.pipelines))
            raise InputError(f"model {quote(name)} is not served here; available models: {known}")
        return self.pipelines[name]

    def threads(self, query: WalkRequest | ModelQuery, tokens: int = 0) -> WorkerThreads:
        """Choose the threads for a request that passes this many tokens through the head."""
        pipeline = self.find(query.model)
        is_large = pipeline.table.remote or pipeline.numel() * tokens > LARGE_WALK_VALUES
        return self.large if is_large else self.small

    def walk(self, query: WalkRequest) -> Trace:
        """Walk texts through a model; return a `Trace` (docs/trace.md)."""
        pipeline = self.find(query.model)
        trace = pipeline.walk(
            query.texts, dims=query.dims, max_tokens=query.max_tokens, first_token=query.first_token,
            first_channel=query.first_channel, change=_change(query),
        )  # fmt: skip
        return replace(trace, source=pipeline.title)

    def walk_threads(self, query: WalkRequest) -> WorkerThreads:
        """Choose the threads for a walk. Very large heads are skipped, so they add no work."""
        is_skipped = self.find(query.model).numel() > MAX_HEAD_VALUES
        return self.threads(query, 0 if is_skipped else len(query.texts) * query.max_tokens)

    def token(self, query: Annotated[TokenQuery, Query()]) -> TokenFacts:
        """Describe one token and the rows closest to its row."""
        return describe_token(self.find(query.model), query.id, k=query.k)

    def initialization(self, query: Annotated[InitializationQuery, Query()]) -> InitializationFacts:
        """Show how a table of this model's size is initialized."""
        return initialize(self.find(query.model), seed=query.seed, dims=query.dims)

    def scene(self, query: WalkRequest) -> SceneFacts:
        """Walk texts and return all tokens and channels as colors; `dims` and `max_tokens` are ignored."""
        return describe_scene(self.find(query.model), query.texts, change=_change(query), first_token=query.first_token)

    def table_scene(self, query: Annotated[ModelQuery, Query()]) -> TableScene:
        """Return the values of a model's table at evenly spaced rows and channels."""
        return self.find(query.model).table_scene

    def gradient_step(self, query: GradientStepRequest) -> GradientStepFacts:
        """Take one step of gradient descent on the table with each learning rate: the loss, next tokens, moved rows."""
        pipeline = self.find(query.model)
        return take_gradient_step(
            pipeline, query.texts, learning_rates=query.learning_rates, max_tokens=query.max_tokens,
            first_token=query.first_token, change=_change(query),
            projection=self.maps[id(pipeline)].projection(query.method),
        )  # fmt: skip

    def gradient_step_threads(self, query: GradientStepRequest) -> WorkerThreads:
        """Choose the threads for a step of gradient descent with each of the learning rates."""
        return self.threads(query, len(query.learning_rates) * len(query.texts) * query.max_tokens)

    def map(self, query: Annotated[MapQuery, Query()]) -> MapFacts:
        """Return coordinates for every row. If they are missing, they are still being computed; ask again later."""
        return self.maps[id(self.find(query.model))].get(query.method)

    def inspect(self, query: Annotated[ModelQuery, Query()]) -> dict[str, Any]:
        """Return the report of `inlayer inspect --json`, a histogram of norms, and the affected ids of each finding.

        For a very large or remote table, only a sample of rows is inspected. Each model is inspected once.
        """
        pipeline = self.find(query.model)
        if pipeline.model is None:
            raise InputError(f"{pipeline.title} was not loaded from a checkpoint, so there is nothing to inspect")
        if pipeline.name not in self.reports:
            quick = pipeline.table.remote or pipeline.numel() > MAX_INSPECTED
            report = replace(inspect_model(pipeline.model, quick=quick), source=pipeline.title)
            self.reports[pipeline.name] = json.loads(redact(json.dumps(inspect_facts(report)), self.paths))
        return self.reports[pipeline.name]


def _change(query: WalkRequest) -> Change:
    swap = None if query.swap is None else (query.swap[0], query.swap[1])
    return Change(positions=query.positions, theta=query.theta, swap=swap, pad=query.pad)


def make_app(
    pipelines: Mapping[str, Pipeline],
    *,
    token: str,
    hosts: tuple[str, ...] = (),
    allow_code_execution: bool = False,
    api_key: str | None = None,
) -> GuardMiddleware:
    """Build the ASGI application that serves these models to clients that present this token.

    Args:
        pipelines: The models by name.
        token: The token that every request must present.
        hosts: Host names to accept, in addition to localhost and IP addresses.
        allow_code_execution: Whether clients may run code on this machine, in the tasks of the course.
        api_key: A key that requests to /v1/ may present instead of the token.

    Returns:
        The application, behind the guard that checks every request.

    Raises:
        InputError: If there are no models.
    """
    service = WalkService(pipelines)
    app = FastAPI(
        title="inlayer", version=inlayer.__version__, summary="A text's walk through the embedding layer; the course.",
        docs_url=None, redoc_url=None, openapi_url="/api/openapi.json", redirect_slashes=False,
    )  # fmt: skip  # a redirect would repeat the token
    app.router.route_class = JsonRoute
    # This server may frame the walk next to a lesson; the walk page's policy says the same.
    framed = {"content-security-policy": content_security_policy(served=True), "x-frame-options": "SAMEORIGIN"}
    _add_page(app, "/", page(title="inlayer walk", data=None), framed)
    _add_page(app, "/inspect", inspect_page(), {"content-security-policy": inspect_policy()})
    add_route(app, "GET /api/models", service.models, service.small)
    add_route(app, "POST /api/walk", service.walk, service.walk_threads)
    add_route(app, "GET /api/token", service.token, lambda query: service.threads(query, SEARCH_TOKENS))
    add_route(app, "GET /api/initialization", service.initialization, service.small)
    add_route(app, "POST /api/scene", service.scene, service.threads)
    add_route(app, "GET /api/table-scene", service.table_scene, service.threads)
    add_route(app, "POST /api/gradient-step", service.gradient_step, service.gradient_step_threads)
    add_route(app, "GET /api/map", service.map, service.waiting)
    add_route(app, "GET /api/inspect", service.inspect, service.large)
    add_embeddings(app, service.pipelines, service.small)
    add_course(app, allow_code_execution=allow_code_execution)
    _add_errors(app, service)
    return GuardMiddleware(app, token=token, hosts=hosts, api_key=api_key)


def _add_page(app: FastAPI, path: str, document: str, headers: dict[str, str]) -> None:
    @app.get(path, include_in_schema=False)
    async def get_page() -> Response:
        return Response(document, media_type="text/html", headers=headers)


def _add_errors(app: FastAPI, service: WalkService) -> None:
    @app.exception_handler(InlayerError)
    async def bad_value(request: Request, error: Exception) -> Response:
        param = getattr(error, "param", None)
        return error_response(400, redact(str(error), service.paths), None, request.url.path, param)

    @app.exception_handler(RequestValidationError)
    async def bad_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problem = error.errors()[0]
        param = next((name for name in problem["loc"][1:2] if isinstance(name, str)), None)
        return error_response(400, _describe(problem), None, request.url.path, param)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = error.detail
        if error.status_code == 404 and message == "Not Found":
            if expects_page(request.scope):
                return error_page(404, f"{quote(request.url.path)} does not exist; go back, or open /")
            message = f"{quote(request.url.path)} does not exist; /api/openapi.json lists all routes"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "a different method")
            message = f"{quote(request.url.path)} does not accept {quote(request.method)}; use {allowed}"
        param = getattr(error, "param", None)
        return error_response(error.status_code, message, error.headers, request.url.path, param)

    @app.exception_handler(Exception)
    async def internal_error(request: Request, error: Exception) -> Response:
        del error  # Starlette raises it again after this response, and the guard logs it
        return error_response(500, INTERNAL_ERROR, None, request.url.path)


def find_paths(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Map each path that may appear in errors about these models to its last part, longest path first."""
    known: set[Path] = set()
    for pipeline in pipelines:
        if pipeline.title != pipeline.source:
            source = Path(pipeline.source)
            known |= {source, source.absolute(), source.resolve()}
        table = pipeline.layer.token_embedding
        if isinstance(table, StoredEmbedding) and isinstance(path := getattr(table.table.source, "path", None), Path):
            known.add(path)
    # A path with only one part, such as ".", reveals nothing and may occur in any message.
    paths = {format_path(path): base_name(path) for path in known if len(path.parts) > 1}
    return dict(sorted(paths.items(), key=lambda item: -len(item[0])))


def redact(message: str, paths: Mapping[str, str]) -> str:
    """Replace each of these paths in a message with its last part."""
    for path, last in paths.items():
        message = message.replace(path, last)
    return message


def _describe(problem: dict[str, Any]) -> str:
    """Turn a pydantic error into one line: the field, the problem, and the value if it is short."""
    field = ".".join(str(part) for part in problem["loc"][1:])
    if problem["type"] == "json_invalid":
        return f"the body is not valid JSON: {problem.get('ctx', {}).get('error', problem['msg'])}"
    if problem["type"] == "extra_forbidden":
        return f"unknown field {quote(field)}"
    message = problem["msg"].removeprefix("Value error, ")
    if message.startswith(("Input should ", "List should ")):
        message = message.split(" ", 1)[1].replace("should", "must", 1).replace(" after validation", "")
        message = re.sub(r"\d{5,19}", lambda digits: f"{int(digits[0]):,}", message)
        field = field or "the body"
    value = problem.get("input")
    shown = json.dumps(value) if value is None or isinstance(value, bool) else quote(value)
    received = "" if isinstance(value, (dict, list)) else f" (got {shown})"
    return f"{field}: {message}{received}" if field else message

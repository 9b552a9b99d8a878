"""The web application: routes for the page, the walk and its models; the course adds its own (course.py).

browser -> guard -> [app] -> Pipeline -> facts -> JSON
- a model is one of those named at start; nothing in a request is opened, looked up or fetched by name
- work runs in threads (jobs.py); an error of the library is status 400 with its one line, without local paths
- FastAPI validates requests and writes /api/openapi.json from the models in schemas.py
Tested with a real server on loopback in tests/web/test_app.py and tests/web/test_redact.py.
"""

from __future__ import annotations

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
from inlayer.files import base_name, quoted, shown
from inlayer.tables import StoredEmbedding
from inlayer.trace import Change, Pipeline, Trace
from inlayer.trace.backward import MAX_HEAD_VALUES
from inlayer.trace.facts import InitializationFacts, ModelFacts, TokenFacts, to_json
from inlayer.trace.html import content_security_policy, page
from inlayer.web.course import add_course
from inlayer.web.guard import INTERNAL_ERROR, Guard, error_response
from inlayer.web.jobs import Jobs
from inlayer.web.schemas import InitializationQuery, TokenQuery, WalkRequest

__all__ = ["make_app"]

THREADS, QUEUE = 2, 512  # with more requests waiting, a response would come too late to be useful
LARGE = 2**31  # table values x tokens that pass the head: most of a second
SEARCH_TOKENS = 32  # a neighbor search takes as long as a walk of this many tokens


@dataclass(frozen=True)
class ModelList:
    """Response of GET /api/models."""

    models: list[ModelFacts]


class WalkService:
    """The models, and the threads that run them. Large jobs use one thread, so that small ones never wait for them."""

    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        if not pipelines:
            raise InputError("there is no model to serve; name at least one")
        self.pipelines = dict(pipelines)
        self.paths = find_paths(self.pipelines.values())
        self.small, self.large = Jobs(THREADS, QUEUE), Jobs(1, QUEUE)

    def models(self) -> ModelList:
        """Describe the models by name."""
        return ModelList([replace(one.facts(), name=name, source=one.title) for name, one in self.pipelines.items()])

    def find(self, name: str | None) -> Pipeline:
        """Return the model of that name; the first one by default."""
        if name is None:
            return next(iter(self.pipelines.values()))
        if name not in self.pipelines:
            known = ", ".join(map(quoted, self.pipelines))
            raise InputError(f"model {quoted(name)} is not served here; available models: {known}")
        return self.pipelines[name]

    def jobs(self, pipeline: Pipeline, tokens: int) -> Jobs:
        """Choose the threads for a job that passes this many tokens through the head."""
        is_large = pipeline.table.remote or pipeline.values() * tokens > LARGE
        return self.large if is_large else self.small

    def walk(self, pipeline: Pipeline, query: WalkRequest) -> Trace:
        """Run a walk."""
        swap = None if query.swap is None else (query.swap[0], query.swap[1])
        change = Change(positions=query.positions, theta=query.theta, swap=swap, pad=query.pad)
        trace = pipeline.walk(query.texts, dims=query.dims, tokens=query.tokens, change=change)
        return replace(trace, source=pipeline.title)


def make_app(
    pipelines: Mapping[str, Pipeline], *, token: str, hosts: tuple[str, ...] = (), runs_code: bool = False
) -> Guard:
    """Build the ASGI application that serves these models to clients with this token.

    Args:
        pipelines: The models by name.
        token: What every request must present.
        hosts: Host names to answer to, besides localhost and IP addresses.
        runs_code: Whether clients may run code on this machine, in the tasks of the course.
    """
    service = WalkService(pipelines)
    app = FastAPI(
        title="inlayer", version=inlayer.__version__, summary="A text's walk through the embedding layer; the course.",
        docs_url=None, redoc_url=None, openapi_url="/api/openapi.json", redirect_slashes=False,
    )  # fmt: skip  # a redirect would repeat the token
    _add_walk(app, service)
    add_course(app, runs_code=runs_code)
    _add_errors(app, service)
    return Guard(app, token=token, hosts=hosts)


def _add_walk(app: FastAPI, service: WalkService) -> None:
    document = page(title="inlayer walk", data=None)
    policy = content_security_policy(served=True)

    @app.get("/", include_in_schema=False)
    async def get_page() -> Response:
        # May be framed by this server, next to a lesson; the policy says the same.
        headers = {"content-security-policy": policy, "x-frame-options": "SAMEORIGIN"}
        return Response(document, media_type="text/html", headers=headers)

    @app.get("/api/models", responses={200: {"model": ModelList}})
    async def get_models() -> Response:
        """List the models that were named when the server started."""
        return _json(service.models())

    @app.post("/api/walk", responses={200: {"model": Trace}})
    async def post_walk(query: WalkRequest, request: Request) -> Response:
        """Walk texts through a model: a `Trace`, as in docs/trace.md."""
        pipeline = service.find(query.model)
        # Larger heads are skipped by the walk, so they cost nothing.
        tokens = len(query.texts) * query.tokens if pipeline.values() <= MAX_HEAD_VALUES else 0
        return await service.jobs(pipeline, tokens).run(lambda: _json(service.walk(pipeline, query)), request)

    @app.get("/api/token", responses={200: {"model": TokenFacts}})
    async def get_token(query: Annotated[TokenQuery, Query()], request: Request) -> Response:
        """Describe one token and the rows closest to its own."""
        pipeline = service.find(query.model)
        jobs = service.jobs(pipeline, SEARCH_TOKENS)
        return await jobs.run(lambda: _json(pipeline.token(query.id, k=query.k)), request)

    @app.get("/api/initialization", responses={200: {"model": InitializationFacts}})
    async def get_initialization(query: Annotated[InitializationQuery, Query()], request: Request) -> Response:
        """Show how a table of this model's size is initialized."""
        initialization = service.find(query.model).initialization
        return await service.small.run(lambda: _json(initialization(seed=query.seed, dims=query.dims)), request)


def _add_errors(app: FastAPI, service: WalkService) -> None:
    @app.exception_handler(InlayerError)
    async def bad_value(_: Request, error: Exception) -> Response:
        return error_response(400, redact(str(error), service.paths))

    @app.exception_handler(RequestValidationError)
    async def bad_request(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(400, _describe(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = error.detail
        if error.status_code == 404 and message == "Not Found":
            message = f"{quoted(request.url.path)} does not exist; /api/openapi.json lists all routes"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            message = f"{quoted(request.url.path)} does not accept {quoted(request.method)}; use {allowed}"
        return error_response(error.status_code, message, error.headers)

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> Response:
        del error  # Starlette raises it again after this response, and the guard logs it
        return error_response(500, INTERNAL_ERROR)


def find_paths(pipelines: Iterable[Pipeline]) -> dict[str, str]:
    """Map each path that errors of these models may contain to its last part, longest path first."""
    found: set[Path] = set()
    for pipeline in pipelines:
        if pipeline.title != pipeline.source:
            given = Path(pipeline.source)
            found |= {given, given.absolute(), given.resolve()}
        table = pipeline.layer.token_embedding
        if isinstance(table, StoredEmbedding) and isinstance(path := getattr(table.table.source, "path", None), Path):
            found.add(path)
    # A path of one part, such as ".", reveals nothing and may occur in any message.
    paths = {shown(path): base_name(path) for path in found if len(path.parts) > 1}
    return dict(sorted(paths.items(), key=lambda item: -len(item[0])))


def redact(message: str, paths: Mapping[str, str]) -> str:
    """Replace each of these paths in a message with its last part."""
    for path, last in paths.items():
        message = message.replace(path, last)
    return message


def _describe(problem: dict[str, Any]) -> str:
    """Turn a pydantic error into one line: the field, what is wrong, and the value if it is short."""
    where = ".".join(str(part) for part in problem["loc"][1:])
    if problem["type"] == "json_invalid":
        return f"the body is not valid JSON: {problem.get('ctx', {}).get('error', problem['msg'])}"
    if problem["type"] == "extra_forbidden":
        return f"unknown field {quoted(where)}"
    message = problem["msg"].removeprefix("Value error, ")
    value = problem.get("input")
    given = f" (got {quoted(value)})" if isinstance(value, (str, int, float)) else ""
    return f"{where}: {message}{given}" if where else message


def _json(facts: Any) -> Response:
    return Response(to_json(facts).encode("ascii"), media_type="application/json")

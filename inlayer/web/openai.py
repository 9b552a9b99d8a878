"""The embeddings API in OpenAI's format: POST /v1/embeddings, GET /v1/models.

request -> guard -> [input: texts or ids] -> Encoder -> vectors, as numbers or base64
- the API key is the page's token, or the key given at startup; requests with either pass the guard
- vectors have norm 1, like OpenAI's
- errors on these routes have OpenAI's format (guard.py)
Tested with the unmodified `openai` client in tests/web/test_openai.py.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from inlayer.encoding.encode import Encoder, EncodeSettings
from inlayer.errors import CheckpointError, InlayerError, InputError
from inlayer.files import join_names, quote
from inlayer.ragged import Ragged
from inlayer.trace import Pipeline
from inlayer.web.schemas import EmbeddingsRequest
from inlayer.web.worker_threads import WorkerThreads

MAX_INPUTS, MAX_INPUT_TOKENS = 2_048, 300_000


class UnknownModelError(HTTPException):
    """The requested model is not served."""

    param = "model"


@contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Mark errors raised inside the block as being about this field."""
    try:
        yield
    except CheckpointError:  # the error concerns a file, not this field
        raise
    except InlayerError as error:
        error.param = name  # type: ignore[attr-defined]  # read by the error handler (app.py)
        raise


def add_embeddings(app: FastAPI, pipelines: dict[str, Pipeline], threads: WorkerThreads) -> None:
    models = {name: pipeline.model for name, pipeline in pipelines.items() if pipeline.model is not None}

    def model_entry(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": 0, "owned_by": "inlayer"}

    def find(name: str) -> Encoder:
        if name not in models:
            message = f"model {quote(name)} is not served here; available models: {join_names(models)}"
            raise UnknownModelError(404, message)
        return models[name].encoder()

    @app.get("/v1/models")
    async def get_model_list() -> Response:
        """List the models, in OpenAI's format."""
        return JSONResponse({"object": "list", "data": [model_entry(name) for name in models]})

    @app.get("/v1/models/{name}")
    async def get_model(name: str) -> Response:
        """Describe a model, in OpenAI's format."""
        find(name)
        return JSONResponse(model_entry(name))

    @app.post("/v1/embeddings")
    async def post_embeddings(query: EmbeddingsRequest, request: Request) -> Response:
        """Turn texts or ids into vectors, in OpenAI's format."""
        return await threads.run(lambda: embed(find(query.model), query), request)


def embed(encoder: Encoder, query: EmbeddingsRequest) -> Response:
    """Return the vectors of a request in OpenAI's format."""
    with errors_about("dimensions"):
        if query.dimensions is not None and query.dimensions > encoder.width:
            limit = f"it must be at most {encoder.width}, the width of the vectors"
            raise InputError(f"dimensions is {query.dimensions}; {limit}")
    settings = EncodeSettings(normalize=True, dim=query.dimensions).validated(encoder.width)
    with errors_about("input"):
        ids = parse_input(encoder, query.input)
        if ids.flat.size > MAX_INPUT_TOKENS:
            raise InputError(f"input has {ids.flat.size:,} tokens; the limit is {MAX_INPUT_TOKENS:,} per request")
        vectors = encoder.pooled(encoder.without_special(ids), settings)
        if (bad := np.flatnonzero(~np.isfinite(vectors).all(axis=1))).size:
            raise InputError(f"the vector of input {bad[0]} is not finite: a token row contains NaN or infinity")
    as_text = query.encoding_format == "base64"
    values = (base64.b64encode(row).decode() if as_text else row.tolist() for row in vectors.astype("<f4"))
    # One by one, because writing all vectors together would hold the GIL and block other clients.
    data = [to_json({"object": "embedding", "index": index, "embedding": value}) for index, value in enumerate(values)]
    usage = {"prompt_tokens": int(ids.flat.size), "total_tokens": int(ids.flat.size)}
    rest = to_json({"object": "list", "model": query.model, "usage": usage})
    return Response(rest[:-1] + b',"data":[' + b",".join(data) + b"]}", media_type="application/json")


def parse_input(encoder: Encoder, value: Any) -> Ragged:
    """Return each input's ids."""
    items: Any = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise InputError("input must be a nonempty text, list of texts, list of ids, or list of lists of ids")
    if all(type(item) is int for item in items):
        items = [items]
    if len(items) > MAX_INPUTS:
        raise InputError(f"input has {len(items):,} items; the limit is {MAX_INPUTS:,} per request")
    if any(item in ("", []) for item in items):
        raise InputError("input contains an empty text or list; omit it")
    if all(isinstance(item, str) for item in items):
        return encoder.all_ids(items)
    if not all(isinstance(item, list) and all(type(token_id) is int for token_id in item) for item in items):
        raise InputError("input mixes texts, ids, and other values; all items must be of the same kind")
    return Ragged.from_lists(items)

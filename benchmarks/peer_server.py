"""An embedding server as one would write it with sentence-transformers and FastAPI: the peer of benchmarks/serve.py.

Prints its URL as JSON, like `inlayer serve --json`. One process per core.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel


class Query(BaseModel):
    """The part of OpenAI's request that the clients use."""

    model: str
    input: list[str]


def make_app() -> FastAPI:
    """The application of one process."""
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    import inlayer

    folder = Path(str(importlib.util.find_spec("wordllama").submodule_search_locations[0]))  # type: ignore[union-attr, index]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers/l2_supercat_tokenizer_config.json"))
    rows = np.asarray(inlayer.load("wordllama").table.weight).astype(np.float32)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=rows)], device="cpu")
    app = FastAPI()

    @app.post("/v1/embeddings")
    async def embeddings(query: Query) -> dict[str, Any]:
        vectors = await run_in_threadpool(model.encode, query.input, normalize_embeddings=True, show_progress_bar=False)
        data = [{"object": "embedding", "index": n, "embedding": one} for n, one in enumerate(vectors.tolist())]
        return {"object": "list", "data": data, "model": query.model}

    return app


def main() -> None:
    """Serve on a free port until stopped; connections wait in the socket until a process has started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threading.Timer(0, announce, [port]).start()
    uvicorn.run(
        "benchmarks.peer_server:make_app", factory=True, host="127.0.0.1", port=port, workers=os.cpu_count(),
        log_level="error",
    )  # fmt: skip


def announce(port: int) -> None:
    """Print the URL when the server accepts connections."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    print(json.dumps({"url": f"http://127.0.0.1:{port}/?token=none"}), flush=True)


if __name__ == "__main__":
    main()

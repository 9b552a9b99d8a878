from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import Response


def add_course(app: FastAPI, *, runs_code: bool) -> None:
    @app.get("/learn", include_in_schema=False)
    async def get_page() -> Response:
        return Response("x", media_type="text/html")

    @app.get("/api/course")
    async def get_course() -> Response:
        return Response("{}")

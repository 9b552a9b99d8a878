"""The web server behind `inlayer serve`: the page, the walk's API, and the course, on this machine.

browser -> guard -> app -> Pipeline -> Trace
- `server.py` listens and supervises workers; `guard.py` decides who may send requests; `app.py` has the walk's
  routes, and `course.py` the course's; `schemas.py` validates; `worker_threads.py` runs work in threads
Tested with a real server on loopback in tests/web/; the rules are listed in docs/web.md.
"""

from inlayer.errors import MissingExtraError

try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as missing:
    raise MissingExtraError("the web server needs FastAPI and uvicorn: pip install 'inlayer[torch,web]'") from missing

from inlayer.web.server import Address, serve

__all__ = ["Address", "serve"]

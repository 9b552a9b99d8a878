"""web: the local server behind the page. A door: nobody imports it but the command line.

browser -> [guard -> api -> threads] -> Line -> Trace
- `serve` runs it until Ctrl-C, `make_app` gives the ASGI application alone
- `server.py` binds, bounds connections and stops at once; `guard.py` decides who may ask; `asked.py` reads what is
  asked; `api.py` answers; `workers.py` does the work in threads; `openapi.py` describes it all, `places.py` keeps
  paths out of it; `learn.py` and `course.py` serve the course
Checked with a real server on loopback in tests/web/; the rules in words are in docs/web.md.
"""

from inlayer.errors import MissingExtraError

try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as missing:
    raise MissingExtraError("the server is starlette and uvicorn: pip install 'inlayer[web]'") from missing

from inlayer.web.api import make_app
from inlayer.web.schemas import Limits
from inlayer.web.server import Address, serve

__all__ = ["Address", "Limits", "make_app", "serve"]

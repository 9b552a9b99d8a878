"""Optional data outside the repository: `shared("data", "tokenizers", ...)` returns a path in it or skips the test.

The folder is ../shared, or the one named by INLAYER_SHARED. Call `shared` in the body of a test, not in a fixture:
pytest then reports all tests that need the folder in one summary line.
"""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("INLAYER_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def shared(*parts: str) -> Path:
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip("the shared data folder is not available (set INLAYER_SHARED)")
    return path

"""The console blocks of the documentation: each command's real output, compared by a test, or updated.

python -m tests.console                          # update the outputs on all pages
python -m tests.console docs/checkpoints.md      # update one page
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```console\n\$ (inlayer [^\n]*)\n(.*?)```", re.DOTALL)


def pages() -> list[str]:
    """The pages with console blocks, relative to the root."""
    found = [page for page in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]
    return [page.relative_to(ROOT).as_posix() for page in found]


def refreshed(text: str) -> str:
    """The text with the output of every `$ inlayer ...` block as it is now."""
    return BLOCK.sub(lambda block: f"```console\n$ {block[1]}\n{output(block[1])}```", text)


def output(command: str) -> str:
    """What a reader sees at 80 columns without color, and the exit code where it is not 0."""
    program, *arguments = shlex.split(command)
    assert program == "inlayer"
    env = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments], cwd=ROOT, capture_output=True, text=True, env=env, check=False
    )
    # Other messages on stderr, such as estimates, depend on the machine.
    shown = done.stdout + (done.stderr if done.returncode == 2 else "")
    lines = [line.rstrip() for line in shown.splitlines()]
    if done.returncode:
        lines.append(f"(exit code {done.returncode})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or pages():
        file = ROOT / name
        file.write_text(refreshed(file.read_text(encoding="utf-8")), encoding="utf-8")

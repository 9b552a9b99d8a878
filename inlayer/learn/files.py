"""Where the learner's own files lie: FOLDER/TASK.py, the same for the terminal and the page.

progress -> [files] -> doors
- the folder is chosen once and remembered in the progress; where none was, it is made where the program was started
- a task that is begun anew keeps the old file beside
Checked in tests/learn/test_cli.py.
"""

from __future__ import annotations

from pathlib import Path

from inlayer.learn.progress import State

__all__ = ["FOLDER", "learner_folder", "set_aside", "task_file"]

FOLDER = "inlayer-course"


def learner_folder(state: State) -> Path:
    return Path(state.folder) if state.folder else Path.cwd() / FOLDER


def task_file(state: State, task: str) -> Path:
    return learner_folder(state) / f"{task}.py"


def set_aside(path: Path) -> Path:
    """Give a file another name beside its own, which says where it is now."""
    number = 1
    while (kept := path.with_name(f"{path.name}.bak{number}")).exists():
        number += 1
    return path.rename(kept)

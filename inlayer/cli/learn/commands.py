"""`inlayer learn`: the course in the terminal; registers the commands of the other modules.

- without a command it lists the lessons, what is done and what is next
- torch is imported only when code is graded, so reading and answering are fast
Tested in tests/learn/test_cli.py and, from end to end, in tests/learn/test_course_taken.py.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from inlayer.cli.app import app
from inlayer.cli.learn import classroom, lessons, progress, questions, tasks, watch
from inlayer.cli.learn.common import examples

__all__ = ["learn"]


class DefaultToList(TyperGroup):
    """The command group; without a command it runs `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["list", *args] if args in ([], ["--json"]) else args)


learn = typer.Typer(
    cls=DefaultToList,
    rich_markup_mode="rich",
    epilog=examples("inlayer learn", "inlayer learn next", "inlayer learn check"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(learn, name="learn")


@learn.callback()
def learn_() -> None:
    """Take the course: lessons, graded tasks, exercises and quizzes. Lists them if no command is given."""


for name, command, epilog in (
    ("list", lessons.list_, lessons.LIST_EXAMPLES),
    ("read", lessons.read, lessons.READ_EXAMPLES),
    ("next", lessons.next_, lessons.NEXT_EXAMPLES),
    ("check", tasks.check, tasks.CHECK_EXAMPLES),
    ("watch", watch.watch, watch.WATCH_EXAMPLES),
    ("hint", tasks.hint, tasks.HINT_EXAMPLES),
    ("solution", tasks.solution, tasks.SOLUTION_EXAMPLES),
    ("skip", lessons.skip, lessons.SKIP_EXAMPLES),
    ("reset", tasks.reset, tasks.RESET_EXAMPLES),
    ("exercise", questions.exercise, questions.EXERCISE_EXAMPLES),
    ("quiz", questions.quiz, questions.QUIZ_EXAMPLES),
    ("progress", progress.progress, progress.PROGRESS_EXAMPLES),
    ("misconceptions", lessons.misconceptions, lessons.MISCONCEPTIONS_EXAMPLES),
    ("notebook", classroom.notebook, classroom.NOTEBOOK_EXAMPLES),
    ("grade", classroom.grade, classroom.GRADE_EXAMPLES),
    ("dev-check", classroom.dev_check, classroom.DEV_CHECK_EXAMPLES),
):
    learn.command(name, epilog=epilog)(command)

"""A small course of two lessons that replaces the real one in tests of its front ends.

Its tasks are graded by the checks of toy.py, for real.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from inlayer.learn.course import Course, Lesson
from inlayer.learn.questions import ChoiceQuestion, Exercise, FreeTextQuestion, NumberQuestion, Option

__all__ = ["SOLUTION", "WRONG", "make_course"]

SOLUTION = "def add(table, ids):\n    return table[ids].sum(0)\n"
WRONG = "def add(table, ids):\n    print('here')\n    return table[ids].mean(0)\n"
START = "def add(table, ids):\n    raise NotImplementedError\n"
LESSON = """# The {title}
walk: 5
tasks: {tasks}

Rows are gathered, see [step 5](walk:5?text=Hi) and [the task](task:add), [positions](lesson:second),
[why](misconceptions.md#index_select).

![A table of rows and an arrow to one of them.](pictures/rows.svg)

## A part

```formula
H = E[ids]
```

```python
print(1 + 1)
```

```text
2
```

| a | b |
|---|---|
| 1 | 2 |
"""
TASK = """# Add the rows
walk: 5

Write `add(table, ids)`, see [step 5](walk:5).

## Hint 1
A nudge.

## Hint 2
The idea.

## Hint 3
Nearly the line.

## Why it works
Because rows add up.
"""
QUIZ = """# Quiz

## {name}_one
How many rows?
- [x] Three
  Because three.
- [ ] Four
  Four is one too many.

## {name}_two
How wide?
- [ ] Narrow
  It is not narrow.
- [x] Wide
  It is wide.
- [ ] Neither
  It is one of them.
"""


def sum_of(draw: random.Random) -> NumberQuestion:
    """a sum"""
    one, two = draw.randint(2, 99), draw.randint(2, 99)
    return NumberQuestion(
        text=f"What is {one} + {two}?",
        answer=one + two,
        explanation="Added.",
        common_mistakes={one * two: "That is the product."},
    )


def which(draw: random.Random) -> ChoiceQuestion:
    """a choice"""
    del draw
    options = (
        Option(text="left", correct=True, reason="It is left."),
        Option(text="right", correct=False, reason="Not right."),
    )
    return ChoiceQuestion(text="Which side?", options=options, explanation="So it is.")


def words(draw: random.Random) -> FreeTextQuestion:
    """in words"""
    del draw
    return FreeTextQuestion(text="Why?", sample_answer="Because.", points=("it says because", "it is short"))


def toy_attribute(name: str) -> Any:
    """An attribute of the checks in toy.py, which need torch and are imported only when a file is graded."""
    if name.startswith("__"):  # Python looks these up in every module
        raise AttributeError(name)
    from tests.learn.toy import toy

    toy()
    return getattr(sys.modules["inlayer.learn.content.toys.add.check"], name)


def make_course(folder: Path) -> Course:
    """Two lessons: the first with two tasks, three exercises and a quiz, the second with a task and a quiz."""
    lessons = []
    for number, (name, tasks, drawn) in enumerate(
        [("first", ("add", "add_again"), (sum_of, which, words)), ("second", ("add_more",), (which,))], start=1
    ):
        place = folder / name
        for task in tasks:
            (place / task).mkdir(parents=True)
            (place / task / "task.md").write_text(TASK)
            (place / task / "start.py").write_text(START)
            (place / task / "solution.py").write_text(SOLUTION)
            checks = ModuleType(f"inlayer.learn.content.{name}.{task}.check")
            checks.__dict__["__getattr__"] = toy_attribute
            sys.modules[checks.__name__] = checks
        (place / "lesson.md").write_text(LESSON.format(title=f"{name} lesson", tasks=", ".join(tasks)))
        (place / "quiz.md").write_text(QUIZ.format(name=name))
        lesson = Lesson(id=name, number=number, folder=place)
        lesson.__dict__["exercises"] = tuple(
            Exercise(
                id=f"{name}/{draw.__name__}",
                lesson=name,
                title=draw.__doc__ or "",
                draw=draw,
            )
            for draw in drawn
        )
        lessons.append(lesson)
    return Course(lessons=tuple(lessons))

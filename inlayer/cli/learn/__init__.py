"""`inlayer learn`: the course in the terminal, one module per group of commands.

- without a command it lists the lessons, the progress, and the next step
- torch is imported only when code is graded, so reading and answering are fast
Tested in tests/learn/test_cli.py and, from end to end, in tests/learn/test_course_taken.py.
"""

from inlayer.cli.learn import classroom, lessons, questions, tasks, watch
from inlayer.cli.learn.common import learn

__all__ = ["classroom", "learn", "lessons", "questions", "tasks", "watch"]

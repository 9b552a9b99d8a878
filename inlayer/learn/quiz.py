"""Which question of a quiz comes next; a missed one comes back, in this sitting and in later ones.

progress -> [quizzing] -> doors
- a sitting asks what is due from earlier ones first, then the lesson's own: those never asked before the others, so
  that a sitting that was left goes on
- a question that is missed is put back behind the next two, with its options in another order, until it is right
- one that was missed is due in the next two sittings, and again in two more whenever it is missed there
Checked in tests/learn/test_quiz.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from inlayer.learn.course import Course, Lesson, Question
from inlayer.learn.progress import Questioned, State, Step, now
from inlayer.learn.questions import AnswerResult, ChoiceQuestion

__all__ = ["Sitting", "ask", "due", "lesson_for_quiz", "note_answer", "to_ask"]

BEHIND = 2  # questions between a miss and the next try
SITTINGS = 2  # in which a missed question comes back


def ask(question: Question, seed: int) -> ChoiceQuestion:
    """The question with its options in an order that the seed draws."""
    return ChoiceQuestion(text=question.text, options=question.options).shuffled(f"{question.id} {seed}")


def due(course: Course, state: State) -> list[Question]:
    """Questions missed in an earlier sitting that are to come back."""
    return [question for question in course.questions.values() if state.questions.get(question.id, Questioned()).due]


def lesson_for_quiz(course: Course, state: State) -> Lesson | None:
    """The first lesson whose quiz is not done."""
    for lesson in course.lessons:
        step = Step(kind="quiz", id=lesson.id, lesson=lesson)
        if not step.is_done(state):
            return lesson
    return None


def to_ask(course: Course, state: State, lesson: Lesson | None) -> list[Question]:
    """The questions of a sitting, in order: what is due, then the lesson's own, those never asked first."""
    first = due(course, state)
    own = [question for question in (lesson.questions if lesson else ()) if question not in first]
    return first + sorted(own, key=lambda question: state.questions.get(question.id, Questioned()).asked > 0)


def note_answer(state: State, question: str, *, correct: bool, again: bool = False) -> None:
    """Remember an answer. `again`: it was missed before in this sitting; being right now makes it no less due."""
    record = state.question(question)
    record.asked += 1
    if not correct:
        record.missed += 1
        record.due = SITTINGS
        return
    record.right = record.right or now()
    if record.due and not again:
        record.due -= 1


class Sitting:
    """One quiz from its first question to its last; `question` is the one to answer, None at the end."""

    def __init__(self, questions: Iterable[Question], seed: int) -> None:
        self.seed = seed
        self.missed: list[str] = []  # ids, in the order they were first missed
        self.asked = 0
        self._left = deque(questions)
        self.n_questions = len(self._left)

    @property
    def question(self) -> Question | None:
        return self._left[0] if self._left else None

    @property
    def again(self) -> bool:
        """Was the one at hand missed before in this sitting?"""
        return bool(self._left) and self._left[0].id in self.missed

    @property
    def choice(self) -> ChoiceQuestion:
        """The one at hand as it is shown now."""
        return ask(self._left[0], self.seed + self.asked)

    def answer(self, said: str) -> AnswerResult:
        """Judge an answer, a letter, and go on; InputError, and nothing has happened, where it is no option."""
        judged = self.choice.judge(said)
        question = self._left.popleft()
        self.asked += 1
        if not judged.correct:
            if question.id not in self.missed:
                self.missed.append(question.id)
            self._left.insert(min(BEHIND, len(self._left)), question)
        return judged

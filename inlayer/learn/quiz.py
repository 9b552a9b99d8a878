"""Quizzes: which questions are asked, in which order, and when a missed one returns.

progress -> [quiz] -> service
- questions due from earlier quizzes come first, then the lesson's own, new ones before those asked already
- a missed question returns after the next two, with its options shuffled, until it is answered correctly
- after a miss it is due in the next two quizzes, and in two more whenever it is missed there
Tested in tests/learn/test_quiz.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from inlayer.learn.course import Course, Lesson, Question
from inlayer.learn.course_steps import CourseStep
from inlayer.learn.progress import ProgressState, QuestionRecord, now
from inlayer.learn.questions import AnswerResult, ChoiceQuestion

__all__ = ["QuizRun", "due_questions", "note_answer", "quiz_questions", "shuffle_options", "unfinished_lesson"]

GAP = 2  # questions between a miss and the next try
REPEATS = 2  # quizzes in which a missed question returns


def shuffle_options(question: Question, seed: int) -> ChoiceQuestion:
    """The question with its options in an order that depends on the seed."""
    return ChoiceQuestion(text=question.text, options=question.options).shuffled(f"{question.id} {seed}")


def due_questions(course: Course, state: ProgressState) -> list[Question]:
    """Questions missed in an earlier quiz that must return."""
    return [one for one in course.questions.values() if state.questions.get(one.id, QuestionRecord()).due]


def unfinished_lesson(course: Course, state: ProgressState) -> Lesson | None:
    """The first lesson whose quiz is not done."""
    for lesson in course.lessons:
        if not CourseStep(kind="quiz", id=lesson.id, lesson=lesson).is_done(state):
            return lesson
    return None


def quiz_questions(course: Course, state: ProgressState, lesson: Lesson | None) -> list[Question]:
    """The questions of a quiz in order: due ones, then the lesson's own, new ones first."""
    first = due_questions(course, state)
    own = [question for question in (lesson.questions if lesson else ()) if question not in first]
    return first + sorted(own, key=lambda question: state.questions.get(question.id, QuestionRecord()).asked > 0)


def note_answer(state: ProgressState, question: str, *, correct: bool, repeated: bool = False) -> None:
    """Record an answer. `repeated`: it was missed earlier in this quiz, so a correct answer keeps it due."""
    record = state.question(question)
    record.asked += 1
    if not correct:
        record.missed += 1
        record.due = REPEATS
        return
    record.right = record.right or now()
    if record.due and not repeated:
        record.due -= 1


class QuizRun:
    """One quiz from its first question to its last; `question` is the current one, None at the end."""

    def __init__(self, questions: Iterable[Question], seed: int) -> None:
        self.seed = seed
        self.missed: list[str] = []  # ids, in the order they were first missed
        self.n_asked = 0
        self._left = deque(questions)
        self.n_questions = len(self._left)

    @property
    def question(self) -> Question | None:
        return self._left[0] if self._left else None

    @property
    def repeated(self) -> bool:
        """Whether the current question was missed earlier in this quiz."""
        return bool(self._left) and self._left[0].id in self.missed

    @property
    def choice(self) -> ChoiceQuestion:
        """The current question as it is shown."""
        return shuffle_options(self._left[0], self.seed + self.n_asked)

    def answer(self, letter: str) -> AnswerResult:
        """Grade an answer and advance; an InputError for an invalid letter changes nothing."""
        result = self.choice.grade(letter)
        question = self._left.popleft()
        self.n_asked += 1
        if not result.correct:
            if question.id not in self.missed:
                self.missed.append(question.id)
            self._left.insert(min(GAP, len(self._left)), question)
        return result

"""The learner's desk: the course, what he has done of it and his own files, as facts for the page.

course, progress, grader -> [desk] -> learn -> page
- progress and files are those of the terminal: one file of progress, one file a task, whichever door is used
- a file is written only over what the page had loaded: what was written elsewhere meanwhile is never lost
- code is run, and anything is written, only where nobody but this machine can ask; others may read, and be judged
- a right answer leaves this machine's memory only after it was given
Checked in tests/web/test_learn.py.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from inlayer.errors import InputError
from inlayer.learn.course import Course, Lesson, Question, Task, open_course
from inlayer.learn.files import learner_folder, set_aside, task_file
from inlayer.learn.markdown import render, render_line
from inlayer.learn.progress import Progress, Questioned, State, Step, Tasked, now, steps, what_next
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, read_letter
from inlayer.learn.quiz import ask, note_answer, to_ask
from inlayer.paths import quoted, shown
from inlayer.saving import put
from inlayer.web.schemas import RefusedError
from inlayer.web.verdict import verdict_told

__all__ = ["MAX_CODE", "REFUSAL", "Desk"]

MAX_CODE = 65_536  # characters of a file
MAX_SEED = 2**31
REFUSAL = (
    "Code is run only where nobody but this machine can ask: this server listens beyond loopback, so here you can read "
    "and answer, but nothing is run or kept. Start `inlayer serve` without --host."
)


class Desk:
    """What the page may ask for. Everything reads or writes a disk: not for the event loop."""

    def __init__(self, *, runs: bool, course: Course | None = None, progress: Progress | None = None) -> None:
        self.runs = runs
        self._course, self._progress = course, progress
        self.notices: list[str] = []  # of progress that was damaged and set aside
        self._warming: threading.Thread | None = None

    @property
    def course(self) -> Course:
        return self._course or open_course()

    @property
    def progress(self) -> Progress:
        """A file by its name: nothing of it is kept here."""
        return self._progress or Progress(tell=self.notices.append)

    def state(self) -> State:
        """What was done; nothing, to a guest."""
        return self.progress.read() if self.runs else State()

    # ---- reading

    def overview(self) -> dict[str, Any]:
        state = self.state()
        following = what_next(self.course, state)
        return {
            "lessons": [self._line(lesson, state) for lesson in self.course.lessons],
            "next": None if following is None else _place(following),
            "runs": self.runs,
            "refusal": "" if self.runs else REFUSAL,
            "notices": list(self.notices),
        }

    def _line(self, lesson: Lesson, state: State) -> dict[str, Any]:
        done = {step.key: step.is_done(state) for step in steps(lesson)}
        exercises = [done[f"exercise/{one.id}"] for one in lesson.exercises]
        asked = [state.questions.get(one.id, Questioned()) for one in lesson.questions]
        return {
            "id": lesson.id,
            "number": lesson.number,
            "title": lesson.title,
            "step": lesson.step,
            "read": done[f"read/{lesson.id}"],
            "tasks": [{"id": one.id, "title": one.title, "state": _state(one, state)} for one in lesson.tasks],
            "exercises": {"done": sum(exercises), "total": len(exercises)},
            "quiz": {
                "done": sum(bool(one.right) for one in asked),
                "total": len(asked),
                "due": sum(one.due > 0 for one in asked),
            },
        }

    def lesson(self, name: str) -> dict[str, Any]:
        lesson, state = self.course.lesson(name), self.state()
        return {
            "id": lesson.id,
            "number": lesson.number,
            "title": lesson.title,
            "step": lesson.step,
            "text": render(lesson.text),
            "tasks": [self._task(task, state) for task in lesson.tasks],
            "exercises": [
                self.exercise(one.id, _drawn())
                | {"done": bool(one.id in state.exercises and state.exercise(one.id).done)}
                for one in lesson.exercises
            ],
            "questions": [
                _question(one, _drawn(), state.questions.get(one.id, Questioned()).due)
                for one in to_ask(self.course, state, lesson)
            ],
        }

    def _task(self, task: Task, state: State) -> dict[str, Any]:
        record = state.tasks.get(task.id, Tasked())
        return {
            "id": task.id,
            "title": task.title,
            "step": task.step,
            "text": render(task.text),
            "state": _state(task, state),
            "hints": [render(text) for text in task.hints[: record.hints]],
            "n_hints": len(task.hints),
        }

    def errata(self) -> dict[str, Any]:
        errata = self.course.errata
        return {"title": errata.title, "text": render(errata.whole)}

    def exercise(self, name: str, seed: int) -> dict[str, Any]:
        """An exercise as this seed asks it, without its answer."""
        if name not in self.course.exercises:
            raise InputError(f"there is no exercise {quoted(name)}")
        exercise = self.course.exercises[name]
        asked = exercise.ask(seed)
        return {
            "id": exercise.id,
            "title": exercise.title,
            "kind": asked.kind,
            "seed": seed,
            "text": render(asked.text),
            "unit": asked.unit if isinstance(asked, NumberQuestion) else "",
            "shape": isinstance(asked, NumberQuestion) and isinstance(asked.answer, tuple),
            "options": [render_line(one.text) for one in asked.options] if isinstance(asked, ChoiceQuestion) else [],
        }

    # ---- answering

    def answer_exercise(self, name: str, seed: int, said: str) -> dict[str, Any]:
        self.exercise(name, seed)  # is it there?
        asked = self.course.exercises[name].ask(seed)
        if isinstance(asked, FreeTextQuestion):
            points = [render_line(one) for one in asked.points]
            return {"right": None, "model_answer": render(asked.model_answer), "points": points}
        try:
            judged = asked.judge(said)
        except InputError as error:  # a slip of the pen, which counts as no try
            return {"right": False, "readable": False, "message": [["p", {}, [str(error)]]]}
        if self.runs:
            with self.progress.changing() as state:
                state.note_exercise(name, correct=judged.correct)
        return {"right": judged.correct, "readable": True, "message": render(judged.message)}

    def give_away(self, name: str, seed: int) -> dict[str, Any]:
        """The answer is shown; a try, as in the terminal, and the exercise stays to be done with other numbers."""
        self.exercise(name, seed)
        asked = self.course.exercises[name].ask(seed)
        if isinstance(asked, FreeTextQuestion):
            raise InputError(f"{quoted(name)} is not judged here; its model answer comes with any answer")
        if self.runs:
            with self.progress.changing() as state:
                state.note_given_away(name)
        if isinstance(asked, NumberQuestion):
            given = render_line(asked.written)
            return {"right": None, "given": given, "message": render(asked.explanation), "marks": [], "whys": []}
        return {
            "right": None,
            "given": next(render_line(option.text) for option in asked.options if option.correct),
            "message": render(asked.explanation),
            "marks": [option.correct for option in asked.options],
            "whys": [render_line(option.reason) for option in asked.options],
        }

    def hold(self, name: str, seed: int) -> dict[str, Any]:
        """The learner says that his answer to a free question holds."""
        self.exercise(name, seed)
        if not isinstance(self.course.exercises[name].ask(seed), FreeTextQuestion):
            raise InputError(f"{quoted(name)} is judged here; give an answer")
        if self.runs:
            with self.progress.changing() as state:
                state.note_exercise(name, correct=True)
        return {"right": True}

    def answer_question(self, name: str, seed: int, said: str, *, again: bool) -> dict[str, Any]:
        """Judge an option: a wrong one gets its reason and the question as it comes back, a right one every reason."""
        if name not in self.course.questions:
            raise InputError(f"there is no question {quoted(name)}")
        question = self.course.questions[name]
        choice = ask(question, seed)
        chosen = read_letter(said, len(choice.options))
        right = choice.options[chosen].correct
        if self.runs:
            with self.progress.changing() as state:
                note_answer(state, name, correct=right, again=again)
        told = [option if right or number == chosen else None for number, option in enumerate(choice.options)]
        return {
            "right": right,
            "marks": [None if option is None else option.correct for option in told],
            "whys": [None if option is None else render_line(option.reason) for option in told],
            "again": None if right else _question(question, _drawn(), 0),
        }

    # ---- the learner's file

    def file(self, name: str) -> dict[str, Any]:
        task = self.course.task(name)
        if not self.runs:
            return {"code": task.start, "sum": None, "saved": False, "path": ""}
        self._warm()
        path = self._path(task, self.state())
        return {**_read_file(task, path), "path": shown(path)}

    def save(self, name: str, code: str, loaded: str | None) -> dict[str, Any]:
        self._need_to_run()
        task = self.course.task(name)
        data = _encoded(code)
        with self.progress.changing() as state:  # the lock is for the file too
            path = self._path(task, state)
            found = _read_file(task, path)
            if found["code"] != code:
                _need_same(found, loaded, path)
            if found["sum"] is None or found["code"] != code:
                state.folder = state.folder or str(learner_folder(state).absolute())
                _write_file(path, data)
            return {"sum": _read_file(task, path)["sum"]}

    def reset(self, name: str, loaded: str | None) -> dict[str, Any]:
        """The task's start again; the old file is kept beside."""
        self._need_to_run()
        task = self.course.task(name)
        with self.progress.changing() as state:
            path = self._path(task, state)
            found = _read_file(task, path)
            _need_same(found, loaded, path)
            kept = ""
            if found["saved"] and found["code"] != task.start:
                try:
                    kept = set_aside(path).name
                except OSError as error:
                    raise InputError(f"{shown(path)} cannot be set aside: {error.strerror}") from None
            if found["code"] != task.start:
                _write_file(path, _encoded(task.start))
        return {**self.file(name), "kept": kept}

    def check(self, name: str, code: str, loaded: str | None) -> dict[str, Any]:
        """Keep the code as the learner's file, grade it, remember how it came out."""
        from inlayer.learn.grader import grade

        saved = self.save(name, code, loaded)
        task = self.course.task(name)
        verdict = grade(task, code)
        with self.progress.changing() as state:
            state.note_check(task.id, passed=verdict.passed, summary=verdict.summary)
        return {**verdict_told(verdict, task), **saved}

    # ---- help

    def hint(self, name: str) -> dict[str, Any]:
        """The next hint, after those that were shown."""
        task = self.course.task(name)
        if not self.runs:
            return {"hints": [render(text) for text in task.hints]}
        with self.progress.changing() as state:
            level = state.note_hint(task.id)
        return {"hints": [render(text) for text in task.hints[:level]]}

    def solution(self, name: str) -> dict[str, Any]:
        task = self.course.task(name)
        if self.runs:
            with self.progress.changing() as state:
                state.note_solution(task.id)
        return {"solution": render(f"```python\n{task.solution}```"), "why": render(task.why)}

    def read(self, name: str) -> dict[str, Any]:
        """The text of a lesson was opened."""
        self._need_to_run()
        lesson = self.course.lesson(name)
        with self.progress.changing() as state:
            state.read.setdefault(lesson.id, now())
        return {}

    def skip(self, key: str) -> dict[str, Any]:
        self._need_to_run()
        known = {step.key for lesson in self.course.lessons for step in steps(lesson)}
        if key not in known:
            raise InputError(
                f"there is no step {quoted(key)}; a step is task/ID, exercise/ID, read/LESSON or quiz/LESSON"
            )
        with self.progress.changing() as state:
            state.skipped.setdefault(key, now())
        return {}

    def _warm(self) -> None:
        """Have the process that forks the learner's made while he still reads: that takes seconds, once."""
        if self._warming is None:
            self._warming = threading.Thread(target=_start_fork_server, name="inlayer-fork-server", daemon=True)
            self._warming.start()

    def _need_to_run(self) -> None:
        if not self.runs:
            raise RefusedError(403, REFUSAL)

    def _path(self, task: Task, state: State) -> Path:
        return task_file(state, task.id).resolve()


def _start_fork_server() -> None:
    from inlayer.learn.sandbox.fork_server import fork_server

    with suppress(Exception):  # the first check says what is wrong
        fork_server()


def _place(step: Step) -> dict[str, Any]:
    lesson = step.lesson
    if step.kind == "task":
        task = next(task for task in lesson.tasks if task.id == step.id)
        return {"lesson": lesson.id, "task": task.id, "part": None, "name": task.title}
    part = {"read": None, "exercise": "exercises", "quiz": "quiz"}[step.kind]
    of = f"{lesson.number}. {lesson.title}"
    return {"lesson": lesson.id, "task": None, "part": part, "name": of if part is None else f"{of}: {part}"}


def _state(task: Task, state: State) -> str:
    record = state.tasks.get(task.id, Tasked())
    if record.passed:
        return "passed"
    if f"task/{task.id}" in state.skipped:
        return "skipped"
    return "tried" if record.tries else "open"


def _question(question: Question, seed: int, due: int) -> dict[str, Any]:
    choice = ask(question, seed)
    return {
        "id": question.id,
        "lesson": question.lesson,
        "seed": seed,
        "text": render(choice.text),
        "options": [render_line(option.text) for option in choice.options],
        "due": due,
    }


def _drawn() -> int:
    return secrets.randbelow(MAX_SEED)


def _encoded(code: str) -> bytes:
    if len(code) > MAX_CODE:
        raise RefusedError(413, f"the code has {len(code):,} characters; a task needs no more than {MAX_CODE:,}")
    try:
        return code.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"character {error.start} of the code is half of a pair; no file can hold it") from None


def _read_file(task: Task, path: Path) -> dict[str, Any]:
    """The learner's file, or what it begins as; `sum` says which text it was."""
    try:
        with path.open("rb") as file:
            data = file.read(4 * MAX_CODE + 1)
    except FileNotFoundError:
        return {"code": task.start, "sum": None, "saved": False}
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}") from None
    try:
        code = data.decode("utf-8-sig")  # editors on Windows put a mark before the text
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} is no UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None
    if len(code) > MAX_CODE:
        raise InputError(f"{shown(path)} has more than {MAX_CODE:,} characters; a task needs no more")
    code = code.replace("\r\n", "\n").replace("\r", "\n")  # as an editor shows it
    return {"code": code, "sum": hashlib.sha256(data).hexdigest(), "saved": True}


def _need_same(found: dict[str, Any], loaded: str | None, path: Path) -> None:
    if found["sum"] != loaded:
        raise RefusedError(409, f"{path.name} was changed elsewhere since this page loaded it")


def _write_file(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, data)
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be written: {error.strerror}") from None

"""The course service: every operation a learner can perform, independent of how it is displayed.

course, progress, grader, quiz -> [service] -> terminal (cli/learn), page (web), notebook
- one progress file and one file per task are shared by all front ends
- operations return dataclasses; front ends only render them
- a read-only service (for a server reachable by other users) shows and grades answers but records and runs nothing
- a file is overwritten only if it still has the digest that the front end loaded, so no edit made elsewhere is lost
- torch is not imported until code is graded
Tested in tests/learn/test_cli.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from inlayer.errors import InputError
from inlayer.files import check_kind, check_path, expand_home, format_path, path_kind, quote
from inlayer.learn import course as course_module
from inlayer.learn import task_files
from inlayer.learn.course import Course, Lesson, Task, not_found_error
from inlayer.learn.course_steps import CourseOverview
from inlayer.learn.progress_file import ProgressFile, ProgressState, back_up_file, now
from inlayer.learn.questions import AnswerResult, Exercise, GradedQuestion, Question, TheoryQuestion, random_seed
from inlayer.learn.task_files import SourceFile, TaskFile, find_folder

if TYPE_CHECKING:
    from inlayer.learn.comparison import Comparison
    from inlayer.learn.grader import Verdict

LIST_EXERCISES = "to list a lesson's exercises: inlayer learn list LESSON"


class ReadOnlyError(InputError):
    """An operation that a read-only service does not perform."""


class CourseService:
    """Operations of the course for one learner.

    `folder` is a new folder for the learner's files; it is recorded in the progress once an operation has used it.
    """

    def __init__(
        self,
        progress: ProgressFile | None = None,
        *,
        course: Course | None = None,
        read_only: bool = False,
        folder: str | None = None,
    ) -> None:
        self.course, self.read_only, self.folder = course or course_module.open_course(), read_only, folder
        self.progress = ProgressFile(unsaved=ProgressState()) if read_only else progress or ProgressFile()

    def state(self) -> ProgressState:
        """Return the learner's progress, which is empty if the service is read-only."""
        return self.progress.read()

    def require_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError("this course is read-only: code is not run and nothing is saved")

    # ---- the course

    def overview(self) -> CourseOverview:
        return CourseOverview(self.course, self.state())

    def mark_read(self, lesson: Lesson) -> None:
        with self.progress.edit() as state:
            state.record("read", lesson.id).finish()

    def skip(self, name: str | None) -> str:
        """Skip a task, an exercise, a step key such as "quiz/forward", or the next step. Return its title."""
        self.require_writable()
        with self.progress.edit() as state:
            overview = CourseOverview(self.course, state)
            steps = {step.key: step for step in overview.steps}
            if name is not None:
                key = name if name in steps else f"exercise/{name}"
                if key not in steps and "/" in name:
                    raise not_found_error("exercise", name, [*self.course.exercises, *steps], LIST_EXERCISES)
                step = steps[key if key in steps else f"task/{self.course.task(name).id}"]
            elif (next_step := overview.next_step) is None:
                raise InputError("there is nothing to skip: you have finished the course")
            elif next_step.is_skipped:
                raise InputError(f"only skipped steps are left; the first is {next_step.title}")
            else:
                step = next_step
            state.record(step.kind, step.id).skipped_at = now()
            if step.key == f"task/{state.current}":
                state.current = ""
        return step.title

    # ---- tasks

    def find_task(self, name: str | None, *, or_next: bool = False) -> Task:
        """Return the named task, or the task in progress: the one started or checked last, even if it is passed.

        With `or_next`, return the next open task if no task is in progress or the current task is passed.
        """
        if name is not None:
            return self.course.task(name)
        state = self.state()
        current = self.course.tasks.get(state.current)
        if or_next and (current is None or state.record("task", current.id).done_at):
            remaining = CourseOverview(self.course, state).open_steps("task")
            if not remaining:
                raise InputError("you have passed every task; name one to open it again")
            return self.course.tasks[remaining[0].id]
        if current is None:
            raise InputError("no task is in progress; start one with inlayer learn next, or name it")
        return current

    def next_open_task(self, after: Task) -> Task | None:
        """Return the next task that you have not passed, continuing from the start after the last one."""
        state, tasks = self.state(), list(self.course.tasks.values())
        others = tasks[tasks.index(after) + 1 :] + tasks[: tasks.index(after)]
        return next((task for task in others if not state.record("task", task.id).done_at), None)

    def start_task(self, name: str) -> TaskFile:
        """Make a task the current one and create its file if it does not exist."""
        return self._open_file(self.course.task(name), create=True)

    def _open_file(self, task: Task, *, create: bool) -> TaskFile:
        """Make a task the current one. If its file does not exist, `create` writes the starter file."""
        with self.progress.edit() as state:
            state.current = task.id
            path = self._use_folder(state) / f"{task.id}.py"
            kind = check_kind(path, "file", "missing")
            if kind == "missing" and create:
                task_files.write_file(path, task.starter)
            elif kind == "missing":
                raise InputError(f"{format_path(path)} does not exist; open the task with inlayer learn next {task.id}")
        return TaskFile(task=task, path=path, is_new=kind == "missing")

    def _use_folder(self, state: ProgressState) -> Path:
        """Return the folder of the learner's files and record it."""
        folder = find_folder(state, self.folder)
        state.folder = str(folder)
        return folder

    def remember_folder(self) -> None:
        """Create the new folder for the learner's files and record it, if there is one."""
        if self.folder is not None:
            with self.progress.edit() as state:
                task_files.make_folder(self._use_folder(state))

    def find_task_file(self, name: str | None, task: str | None = None, *, create: bool = False) -> TaskFile:
        """Return the task and file to check; `name` is a task, or a file named after one unless `task` names it.

        Without a name, use the task started or checked last. With `create`, use the next open task if that one is
        passed, and create the file of a task that was not started yet.
        """
        if name is None or (task is None and name in self.course.tasks):
            return self._open_file(self.find_task(task if name is None else name, or_next=create), create=create)
        path = expand_home(check_path(name, "FILE"))
        kind = check_kind(path, "file", "missing", "special")
        if kind == "file" and task is None and path.stem not in self.course.tasks:
            raise InputError(f"{format_path(name)} is not named after a task; name the task with --task")
        chosen = self.course.task(path.stem if task is None else task)
        if kind == "missing" and task is None and path.parent == Path():
            # `check gather.py` works anywhere; `watch gather.py` waits for a file that does not exist yet.
            path = find_folder(self.state(), self.folder) / f"{chosen.id}.py"
            if not create or path_kind(path) == "file":
                return self._open_file(chosen, create=False)
        return TaskFile(task=chosen, path=path)

    def check(self, task: Task, source: str, *, seed: int | None = None) -> Verdict:
        from inlayer.learn.grader import grade

        self.require_writable()
        verdict = grade(task, source, seed=seed)
        with self.progress.edit() as state:
            state.record("task", task.id).record_check(passed=verdict.passed, summary=verdict.summary)
            state.current = task.id
        return verdict

    def compare_with_walk(self, verdict: Verdict) -> Comparison | None:
        """Compare the learner's tensor with the walk's, if the task has one."""
        if verdict.walk_output is None:
            return None
        from inlayer.learn.comparison import compare

        return compare(verdict.walk_output, self.course.task(verdict.task).step)

    def hint(self, task: Task, level: int | None = None) -> int:
        """Record that a hint is shown, by default the next one. Return its level, from 1."""
        with self.progress.edit() as state:
            state.current = task.id
            return state.record("task", task.id).record_hint(level)

    def may_see_solution(self, task: Task) -> bool:
        record = self.state().record("task", task.id)
        return bool(record.done_at or record.solution_seen_at)

    def record_solution(self, task: Task) -> bool:
        """Record that the solution is shown. Return whether the task had passed."""
        with self.progress.edit() as state:
            record = state.record("task", task.id)
            if not record.done_at:
                record.solution_seen_at = record.solution_seen_at or now()
            return bool(record.done_at)

    # ---- the learner's files

    def load_file(self, task: Task) -> tuple[Path, SourceFile | None]:
        """Return the path of the learner's file for a task, and its content if it exists."""
        path = (find_folder(self.state(), self.folder) / f"{task.id}.py").resolve()
        return path, None if path_kind(path) == "missing" else task_files.read_file(path)

    def save_file(self, task: Task, source: str, base_digest: str | None) -> str:
        """Write the learner's file if it still has `base_digest`. Return the new digest."""
        self.require_writable()
        with self.progress.edit() as state:  # its lock also protects the file
            path, current = self.load_file(task)
            if current is None or current.text != source:
                task_files.require_unchanged(path, current, base_digest)
                self._use_folder(state)
                task_files.write_file(path, source)
            return task_files.read_file(path).digest

    def reset_file(self, task: Task, *, base_digest: str | Literal[False] | None = False) -> Path | None:
        """Restore a task's starter file and return the old file's path. `base_digest` is checked unless False."""
        self.require_writable()
        with self.progress.edit() as state:
            self._use_folder(state)
            state.current = task.id
            path, current = self.load_file(task)
            if base_digest is not False:
                task_files.require_unchanged(path, current, base_digest)
            if current is not None and current.text == task.starter:
                return None
            backup = back_up_file(path, f"{path.name}.bak{{}}")
            task_files.write_file(path, task.starter)
        return backup

    # ---- exercises

    def find_exercises(self, name: str | None) -> list[Exercise]:
        """Return the named exercise, a lesson's open exercises (all, if none is open), or the next open exercise."""
        remaining = [self.course.exercises[step.id] for step in self.overview().open_steps("exercise")]
        if name is None:
            if not remaining:
                raise InputError("every exercise is done; name one to repeat it")
            return remaining[:1]
        query = name.strip()
        matches = [part for part in self.course.exercises.values() if query in (part.id, part.id.partition("/")[2])]
        if len(matches) > 1:
            raise InputError(f"{quote(name)} is in several lessons: {', '.join(part.id for part in matches)}")
        if matches:
            return matches
        for lesson in self.course.lessons:
            if query in (lesson.id, str(lesson.number)):
                return [exercise for exercise in lesson.exercises if exercise in remaining] or list(lesson.exercises)
        ids = [*self.course.exercises, *(lesson.id for lesson in self.course.lessons)]
        known = ids if "/" in query else [name.rpartition("/")[2] for name in ids]
        raise not_found_error("exercise or lesson", name, known, LIST_EXERCISES)

    def draw_exercise(self, exercise: Exercise, seed: int | None = None) -> TheoryQuestion:
        """Generate a question from the given seed, or repeat one that was asked but not answered."""
        with self.progress.edit() as state:
            record = state.record("exercise", exercise.id)
            if seed is None:
                seed = record.seed if record.seed is not None else random_seed()
            record.seed = seed
        return exercise.ask(seed)

    def record_exercise(self, name: str, *, correct: bool | None) -> None:
        """Record a result, such as the learner's assessment of a free-text answer. None: the answer was shown."""
        with self.progress.edit() as state:
            state.record("exercise", name).record_exercise(correct=correct)

    def reveal_answer(self, question: TheoryQuestion) -> GradedQuestion:
        """Record that the answer is shown. The exercise remains unfinished and gets other numbers."""
        graded = _require_graded(question)
        if question.id not in self.course.exercises:
            raise InputError(f"{question.id} is a quiz question; its answer is shown once you have answered it")
        self.record_exercise(question.id, correct=None)
        return graded

    # ---- exercises and quizzes

    def ask(self, name: str, seed: int) -> TheoryQuestion:
        return (self.course.exercises.get(name) or self.question(name)).ask(seed)

    def question(self, name: str) -> Question:
        if name not in self.course.questions:
            known = [*self.course.exercises, *self.course.questions]
            raise not_found_error("exercise or question", name, known, "inlayer learn quiz --json lists the questions")
        return self.course.questions[name]

    def answer(self, question: TheoryQuestion, answer: str, *, repeated: bool = False) -> AnswerResult:
        """Grade an answer and record it; raises InputError, without recording an attempt, if it cannot be parsed."""
        result = _require_graded(question).grade(answer)
        if question.id in self.course.exercises:
            self.record_exercise(question.id, correct=result.correct)
        else:
            self.record_answer(question.id, correct=result.correct, repeated=repeated)
        return result

    def quiz_questions(self, lesson: str | None) -> list[Question]:
        """Return the questions of a lesson's quiz, or of the next quiz, in order."""
        overview = self.overview()
        questions = overview.quiz(self.course.lesson(lesson) if lesson is not None else overview.next_quiz)
        if not questions:
            raise InputError("every quiz is done and no question is due; name a lesson to repeat its quiz")
        return questions

    def record_answer(self, question: str, *, correct: bool, repeated: bool = False) -> tuple[int, int]:
        """Record an answer. Return how often the question was due before, and how often it still is."""
        with self.progress.edit() as state:
            record = state.record("question", question)
            before = record.due
            record.record_answer(correct=correct, repeated=repeated)
            return before, record.due


def _require_graded(question: TheoryQuestion) -> GradedQuestion:
    if not isinstance(question, GradedQuestion):
        raise InputError(f"{question.id} is not graded; its sample answer is shown after any answer")
    return question

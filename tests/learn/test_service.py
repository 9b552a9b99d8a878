"""The course service: what all front ends share, read-only use, and files that are never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlayer.errors import InputError
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import NumberQuestion
from inlayer.learn.service import CourseService, ReadOnlyError
from inlayer.learn.task_files import FileConflictError
from tests.learn.small import SOLUTION, START, make_course


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CourseService:
    monkeypatch.chdir(tmp_path)
    return CourseService(ProgressFile(tmp_path / "data"), course=make_course(tmp_path / "content"))


def test_overview_counts_and_names_the_next_step(service: CourseService) -> None:
    overview = service.overview()
    assert overview.counts == {"read": (0, 2), "task": (0, 3), "exercise": (0, 4), "quiz": (0, 4)}
    assert overview.next_step is not None
    assert overview.next_step.command == "inlayer learn read first"
    service.mark_read(service.course.lessons[0])
    step = service.overview().next_step
    assert step is not None
    assert step.title == "the task add, Add the rows"


def test_skipped_steps_return_at_the_end(service: CourseService) -> None:
    assert service.skip("quiz/first") == "the quiz of lesson 1, The first lesson"
    assert service.skip("add") == "the task add, Add the rows"
    assert service.skip("first/which").startswith("the exercise first/which")
    with pytest.raises(InputError, match="unknown task 'nope'"):
        service.skip("nope")
    skipped = {key for key, record in service.state().records.items() if record.skipped}
    assert skipped == {"quiz/first", "task/add", "exercise/first/which"}
    assert service.overview().next_quiz is service.course.lessons[1]
    assert service.find_exercises(None)[0].id not in skipped
    for step in service.overview().open_steps():
        service.skip(step.key)
    assert service.overview().next_quiz is service.course.lessons[0]
    assert service.find_task(None, or_next=True).id == "add"


def test_a_file_changed_elsewhere_is_not_overwritten(service: CourseService) -> None:
    file = service.start_task("add")
    assert (file.is_new, file.path.read_text()) == (True, START)
    path, found = service.load_file(file.task)
    assert found is not None
    digest = service.save_file(file.task, "mine = 1\n", found.digest)
    path.write_text("theirs = 2\n")
    for base_digest in (digest, None):
        with pytest.raises(FileConflictError, match=r"add\.py was changed elsewhere"):
            service.save_file(file.task, "mine = 3\n", base_digest)
    assert service.save_file(file.task, "theirs = 2\n", None)  # saving the same text never conflicts
    kept = service.reset_file(file.task)
    assert kept is not None
    assert (path.read_text(), kept.read_text()) == (START, "theirs = 2\n")
    assert service.reset_file(file.task) is None


def test_a_check_is_recorded(service: CourseService) -> None:
    task = service.course.task("add")
    verdict = service.check(task, SOLUTION)
    assert verdict.passed
    assert service.record_solution(task)
    assert service.state().record("task", "add").done
    assert not service.state().record("task", "add").solution_seen  # not recorded after passing
    assert not service.record_solution(service.course.task("add_again"))
    assert service.state().record("task", "add_again").solution_seen
    assert service.next_open_task(task) is service.course.task("add_again")
    comparison = service.compare_with_walk(verdict)
    assert comparison is not None
    assert comparison.message == "The walk has no tensor of this shape to compare with."


def test_an_unanswered_exercise_keeps_its_question(service: CourseService) -> None:
    exercise = service.course.exercises["first/sum_of"]
    drawn = service.draw_exercise(exercise)
    assert service.draw_exercise(exercise) == drawn
    assert isinstance(drawn, NumberQuestion)
    with pytest.raises(InputError):
        service.answer(drawn, "many")
    assert service.state().record("exercise", exercise.id).tries == 0
    assert service.answer(drawn, str(drawn.answer)).correct
    assert service.state().record("exercise", exercise.id).seed is None


def test_a_read_only_service_records_nothing_and_runs_nothing(service: CourseService, tmp_path: Path) -> None:
    guest = CourseService(service.progress, course=service.course, read_only=True)
    task = guest.course.task("add")
    assert guest.hint(task) == 1
    guest.answer(guest.ask("first/sum_of", 1), "1")
    for refused in (lambda: guest.check(task, SOLUTION), lambda: guest.skip(None), lambda: guest.reset_file(task)):
        with pytest.raises(ReadOnlyError):
            refused()
    with pytest.raises(ReadOnlyError):
        guest.save_file(task, "x", None)
    assert not (tmp_path / "data").exists()

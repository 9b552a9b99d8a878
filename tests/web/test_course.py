"""The course over HTTP: what it shows, how it grades, which files it writes, and what it rejects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inlayer.learn.course import open_course
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import NumberQuestion
from inlayer.trace import Pipeline
from inlayer.web.course import page_policy
from inlayer.web.guard import GuardMiddleware
from inlayer.web.schemas import MAX_CODE
from inlayer.web.server import is_loopback, worker_app
from tests.web.client import TOKEN, Client, Response, learner, running

PAGE = Path(__file__).parents[2] / "inlayer" / "learn" / "page"
SOLUTION = open_course().task("gather").solution
WRONG = open_course().task("gather").wrong_solutions["flat"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The learner's files; their progress is in the same folder."""
    with learner(tmp_path) as files:
        yield files


@pytest.fixture
def local(pipeline: Pipeline, home: Path) -> Iterator[Client]:
    """A server on loopback: it runs code and writes files."""
    with running({"default": pipeline}, allow_code_execution=True) as made:
        yield made


@pytest.fixture
def remote(pipeline: Pipeline, home: Path) -> Iterator[Client]:
    """A server that others can reach: the course is read-only."""
    with running({"default": pipeline}, allow_code_execution=False) as made:
        yield made


def post(client: Client, name: str, **body: Any) -> Response:
    return client.send(f"/api/course/{name}", body)


def by_id(items: list[Any], name: str) -> Any:
    return next(item for item in items if item["id"] == name)


def plain_text(elements: list[Any]) -> str:
    return "".join(node if isinstance(node, str) else plain_text(node[2]) for node in elements)


# ---- reading


def test_course_and_lessons(local: Client) -> None:
    course = local.send("/api/course").json
    assert [lesson["id"] for lesson in course["lessons"]] == [lesson.id for lesson in open_course().lessons]
    assert (course["next"]["kind"], course["next"]["id"], course["next"]["lesson"]) == ("read", "text", "text")
    lesson = local.send("/api/course/lesson?id=forward").json
    assert "hidden states" in plain_text(lesson["text"])
    assert [task["id"] for task in lesson["tasks"]] == [task.id for task in open_course().lesson("forward").tasks]
    assert "Common misconception" in str(local.send("/api/course/lesson?id=table").json["text"])
    assert plain_text(local.send("/api/course/misconceptions").json["text"])
    assert local.send("/api/course/exercise?id=forward/hidden_shape&seed=3").json["is_shape"]
    assert local.send("/api/course/file?task=gather").json["digest"] is None
    assert post(local, "read", lesson="forward").status == 200
    assert post(local, "skip", step="quiz/forward").status == 200
    free = next(exercise for exercise in lesson["exercises"] if exercise["kind"] == "free")
    assert post(local, "answer", exercise=free["id"], seed=free["seed"]).json["sample_answer"]
    assert post(local, "answer", exercise=free["id"], seed=free["seed"], matches_sample=True).json == {"correct": True}
    after = by_id(local.send("/api/course").json["lessons"], "forward")
    assert (after["read"], after["counts"]["exercise"]["done"]) == (True, 1)


def test_answers_are_not_sent_before_one_was_given(local: Client) -> None:
    lesson = local.send("/api/course/lesson?id=forward")
    for secret in (b'"correct":', b'"answer":', b"sample_answer", b'"reasons":', b'"explanation":'):
        assert secret not in lesson.body
    for question in open_course().lesson("forward").questions:
        assert all(json.dumps(option.reason)[1:40] not in lesson.body.decode() for option in question.options)
    assert by_id(lesson.json["tasks"], "gather")["hints"] == []


def test_the_page_and_its_policy(local: Client) -> None:
    first, second = local.send("/learn"), local.send("/learn")
    policies = [response.headers["Content-Security-Policy"] for response in (first, second)]
    nonces = [policy.partition("'nonce-")[2].partition("'")[0] for policy in policies]
    assert len(set(nonces)) == 2
    for page, policy, nonce in zip((first, second), policies, nonces, strict=True):
        assert policy == page_policy(nonce)
        assert "unsafe" not in policy
        assert f'<style id="style" nonce="{nonce}">'.encode() in page.body
        assert page.body.count(b"<script") == page.body.count(b"</script>") == 2
        assert TOKEN.encode() not in page.body


def test_the_editor_is_the_committed_build() -> None:
    bundle = (PAGE / "editor.js").read_bytes()
    assert len(bundle) < 600_000
    assert (PAGE / "editor.sha256").read_text() == f"{hashlib.sha256(bundle).hexdigest()}  editor.js\n"
    assert bundle.isascii()
    assert not any(mark in bundle for mark in (b"</script", b"<!--", b"{{", b"sourceMappingURL"))
    licenses = (PAGE / "editor.LICENSE.txt").read_text(encoding="utf-8")
    for name in ("@codemirror/view", "@codemirror/lang-python", "@lezer/python", "style-mod", "w3c-keyname"):
        assert f"\n{name} " in licenses
    lock = json.loads((PAGE.parents[2] / "scripts" / "editor" / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/@codemirror/view"]["version"] in licenses
    assert not any("resolved" in package for package in lock["packages"].values())  # npm uses its configured registry


# ---- grading


def test_an_exercise_is_graded_by_its_seed_and_recorded(local: Client, home: Path) -> None:
    name = "forward/hidden_shape"
    question = open_course().exercises[name].ask(7)
    assert isinstance(question, NumberQuestion)
    wrong = post(local, "answer", exercise=name, seed=7, answer="(1, 2, 3)").json
    assert (wrong["correct"], wrong["is_valid"]) == (False, True)
    typo = post(local, "answer", exercise=name, seed=7, answer="about seven").json
    assert (typo["correct"], typo["is_valid"]) == (False, False)
    assert post(local, "answer", exercise=name, seed=7, answer=str(question.answer)).json["correct"] is True
    record = ProgressFile().read().record("exercise", name)
    assert record.done_at
    assert record.attempts == 2  # an unreadable answer does not count


def test_a_revealed_answer_leaves_the_exercise_open(local: Client) -> None:
    name = "forward/hidden_shape"
    shown = post(local, "answer", exercise=name, seed=7, reveal=True).json
    assert plain_text(shown["answer"]) == str(open_course().exercises[name].ask(7).answer)
    record = ProgressFile().read().record("exercise", name)
    assert (record.attempts, record.done_at, record.seed) == (1, "", None)
    lesson = local.send("/api/course/lesson?id=forward").json
    choice, free = (next(item for item in lesson["exercises"] if item["kind"] == kind) for kind in ("choice", "free"))
    shown = post(local, "answer", exercise=choice["id"], seed=choice["seed"], reveal=True).json
    assert shown["answer"] == choice["options"][shown["option_results"].index(True)]
    assert "sample answer" in post(local, "answer", exercise=free["id"], reveal=True).error


def test_a_quiz_answer_is_not_revealed(local: Client) -> None:
    course = open_course()
    quiz, exercise = course.lesson("forward").questions[0].id, "forward/hidden_shape"
    assert "shown once you have answered it" in post(local, "answer", question=quiz, seed=1, reveal=True).error
    assert f"{quiz} must be sent as question" in post(local, "answer", exercise=quiz, seed=1, reveal=True).error
    assert f"{exercise} must be sent as exercise" in post(local, "answer", question=exercise, answer="(1, 2)").error
    state = ProgressFile().read()
    assert state.record("exercise", quiz).attempts == state.record("question", quiz).attempts == 0


def test_a_missed_question_comes_back(local: Client) -> None:
    question = open_course().lesson("forward").questions[0]
    options = question.ask(5).options
    correct = next(number for number, option in enumerate(options) if option.correct)
    wrong = (correct + 1) % len(options)
    missed = post(local, "answer", question=question.id, seed=5, answer="abcdef"[wrong]).json
    assert missed["correct"] is False
    assert [reason is not None for reason in missed["reasons"]] == [number == wrong for number in range(len(options))]
    assert missed["next_try"]["id"] == question.id
    assert ProgressFile().read().record("question", question.id).due == 2
    other = local.send("/api/course/lesson?id=text").json["questions"]
    assert other[0]["id"] == question.id  # in whichever quiz comes next
    hit = post(local, "answer", question=question.id, seed=5, answer="abcdef"[correct], repeated=True).json
    assert hit["option_results"] == [option.correct for option in options]
    assert [plain_text(reason) for reason in hit["reasons"]] != []
    assert "is not one of the options" in post(local, "answer", question=question.id, seed=5, answer="z").error


def test_hints_come_one_at_a_time_and_the_solution_is_recorded(local: Client) -> None:
    assert [len(post(local, "hint", task="gather").json["hints"]) for _ in range(4)] == [1, 2, 3, 3]
    assert len(by_id(local.send("/api/course/lesson?id=forward").json["tasks"], "gather")["hints"]) == 3
    assert "reshape" in plain_text(post(local, "solution", task="gather").json["solution"])
    assert ProgressFile().read().record("task", "gather").solution_seen_at


# ---- the learner's file


def test_a_check_writes_the_file_that_the_terminal_reads(local: Client, home: Path) -> None:
    verdict = post(local, "check", task="gather", code=WRONG).json
    assert (home / "gather.py").read_text(encoding="utf-8") == WRONG
    failed = next(check for check in verdict["checks"] if check["state"] == "failed")
    assert failed["rule"] == "flat"
    assert "expected" in failed["message"]
    assert verdict["summary"].startswith("3 of 7 checks")
    assert verdict["tensor"] is None
    passed = post(local, "check", task="gather", code=SOLUTION, base_digest=verdict["digest"]).json
    assert passed["passed"]
    assert passed["tensor"]["shape"][-1] == 128
    assert "the same numbers" in passed["tensor"]["note"]
    assert len(passed["tensor"]["rows"][0]) == 8
    state = ProgressFile().read()
    assert state.record("task", "gather").done_at
    assert state.record("task", "gather").attempts == 2


def test_integer_tensors_are_shown_as_integers(local: Client) -> None:
    own = post(local, "check", task="pad_batch", code=open_course().task("pad_batch").solution).json["tensor"]
    assert (own["dtype"], own["is_integer"]) == ("int64", True)
    assert all(type(value) is int for row in own["rows"] for value in row)
    assert own["note"].startswith("Its row 0 has the same numbers as the ids of the walk")


def test_an_edit_made_elsewhere_is_never_overwritten_silently(local: Client, home: Path) -> None:
    base_digest = post(local, "save", task="gather", code="mine = 1\n").json["digest"]
    (home / "gather.py").write_bytes(b"theirs = 1\r\n")
    for name in ("save", "check"):
        response = post(local, name, task="gather", code="mine = 2\n", base_digest=base_digest)
        assert response.status == 409
        assert "changed elsewhere" in response.error
    assert post(local, "reset", task="gather", base_digest=base_digest).status == 409
    assert (home / "gather.py").read_bytes() == b"theirs = 1\r\n"
    found = local.send("/api/course/file?task=gather").json
    assert found["code"] == "theirs = 1\n"
    assert (
        post(local, "save", task="gather", code="theirs = 1\n", base_digest="old").status == 200
    )  # the same text: no conflict
    assert (home / "gather.py").read_bytes() == b"theirs = 1\r\n"
    assert post(local, "save", task="gather", code="mine = 2\n", base_digest=found["digest"]).status == 200
    assert (home / "gather.py").read_text() == "mine = 2\n"


def test_a_reset_keeps_the_old_file(local: Client, home: Path) -> None:
    base_digest = post(local, "save", task="gather", code="mine = 1\n").json["digest"]
    fresh = post(local, "reset", task="gather", base_digest=base_digest).json
    assert fresh["code"] == open_course().task("gather").starter
    assert (home / fresh["kept"]).read_text() == "mine = 1\n"


def test_files_that_cannot_be_read(local: Client, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "gather.py").write_bytes(b"\xff\xfe")
    assert "UTF-8" in local.send("/api/course/file?task=gather").error
    (home / "one_hot.py").mkdir()
    assert local.send("/api/course/file?task=one_hot").status == 400
    assert post(local, "check", task="one_hot", code=SOLUTION).status == 400


# ---- rejecting

HOSTILE = [
    ("check", {"task": "gather", "code": "x" * (MAX_CODE + 1)}, "code: String should have at most 65536 characters"),
    ("check", {"task": "gather", "code": "\ud800"}, "does it contain a lone surrogate?"),
    ("check", {"task": "../gather", "code": ""}, "unknown task"),
    ("check", {"task": "gather\0", "code": ""}, "unknown task"),
    ("check", {"task": "gather"}, "code: Field required"),
    ("check", {"task": ["gather"], "code": ""}, "task: must be a valid string"),
    ("check", {"task": "gather", "code": 7}, "code: must be a valid string"),
    ("check", {"task": "gather", "code": "", "base_digest": 1}, "base_digest: must be a valid string"),
    ("check", {"task": "gather", "code": "", "seed": 1}, "unknown field 'seed'"),
    ("answer", {}, "specify either an exercise or a question"),
    ("answer", {"exercise": "forward/hidden_shape", "question": "x"}, "specify either an exercise or a question"),
    ("answer", {"exercise": "no/such", "answer": "1"}, "unknown exercise"),
    ("answer", {"question": "no_such", "answer": "a"}, "unknown exercise or question"),
    ("answer", {"exercise": "forward/hidden_shape", "seed": -1}, "seed: must be greater"),
    ("answer", {"exercise": "forward/hidden_shape", "seed": 2**31}, "seed: must be less"),
    ("answer", {"exercise": "forward/hidden_shape", "matches_sample": True}, "is graded; send an answer"),
    ("skip", {"step": "task/no_such"}, "unknown"),
    ("read", {"lesson": "no_such"}, "unknown lesson"),
    ("hint", {"task": ""}, "unknown task"),
    ("solution", {"task": "solution"}, "unknown task"),
]


@pytest.mark.parametrize(("name", "body", "error"), HOSTILE)
def test_invalid_requests(client: Client, name: str, body: Any, error: str) -> None:
    response = post(client, name, **body)
    assert (response.status, error in response.error) == (400, True), response.error


def test_invalid_queries(client: Client) -> None:
    for path in ("lesson", "lesson?id=", "lesson?id=../x", "file?task=%00", "exercise?id=x&seed=1", "file?x=1"):
        assert client.send(f"/api/course/{path}").status == 400
    assert client.send("/api/course/check").status == 405


def test_a_nul_byte_in_the_code_is_a_failed_check(local: Client) -> None:
    verdict = post(local, "check", task="gather", code="x = 1\0\n").json
    assert verdict["checks"][0]["state"] == "failed"
    assert verdict["checks"][0]["rule"] == "syntax"


@pytest.mark.parametrize("name", ["check", "save", "reset", "skip", "read"])
def test_a_read_only_course_runs_and_writes_nothing(remote: Client, home: Path, name: str) -> None:
    bodies = {"check": {"task": "gather", "code": SOLUTION}, "save": {"task": "gather", "code": SOLUTION},
            "reset": {"task": "gather"}, "skip": {"step": "quiz/forward"}, "read": {"lesson": "forward"}}  # fmt: skip
    before = ProgressFile().path.read_bytes()
    response = post(remote, name, **bodies[name])
    assert response.status == 403
    assert "does not run code" in response.error
    assert not home.exists()
    assert ProgressFile().path.read_bytes() == before


def test_a_read_only_course_grades_without_recording_and_hides_progress(remote: Client) -> None:
    with ProgressFile().edit() as state:
        state.record("task", "gather").record_check(passed=True, summary="")
    before = ProgressFile().path.read_bytes()
    course = remote.send("/api/course").json
    assert course["runs_code"] is False
    assert "does not run code" in course["read_only_message"]
    assert by_id(by_id(course["lessons"], "forward")["tasks"], "gather")["state"] == "open"
    assert post(remote, "answer", exercise="forward/hidden_shape", answer="(1, 2, 3)").status == 200
    assert len(post(remote, "hint", task="gather").json["hints"]) == 3
    assert remote.send("/api/course/file?task=gather").json["path"] == ""
    assert ProgressFile().path.read_bytes() == before


@pytest.mark.parametrize(
    ("host", "runs"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("my-box", False), ("localhost.example", False)],
)  # fmt: skip
def test_code_runs_only_on_loopback(host: str, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def fake_app(*_: Any, **settings: Any) -> GuardMiddleware:
        given.update(settings)
        return GuardMiddleware(running, token="x")  # type: ignore[arg-type]  # never called

    monkeypatch.setattr("inlayer.web.app.make_app", fake_app)
    worker_app(dict, "x", host)
    assert given["allow_code_execution"] is is_loopback(host) is runs

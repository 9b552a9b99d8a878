"""The course over HTTP: what it tells, what it judges, whose file it writes, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from inlayer.learn.course import open_course
from inlayer.learn.html import learn_policy
from inlayer.learn.progress import Progress
from inlayer.learn.questions import NumberQuestion
from inlayer.learn.quiz import shuffle_options as draw
from inlayer.trace import Pipeline
from inlayer.web.api import Api
from inlayer.web.course import MAX_CODE, CoursePages
from inlayer.web.learn import ADDRESSES
from inlayer.web.schemas import Limits
from inlayer.web.server import serve
from tests.web.client import PATIENCE, TOKEN, Answer, Place, learner, running

PAGE = Path(__file__).parents[2] / "inlayer" / "learn" / "page"
SOLUTION = open_course().task("gather").solution
WRONG = open_course().task("gather").wrong["flat"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The learner's files; his progress is beside them."""
    with learner(tmp_path) as files:
        yield files


@pytest.fixture
def desk(line: Pipeline, home: Path) -> Iterator[Place]:
    with running({"default": line}, runs_code=True) as (made, _):
        yield made


@pytest.fixture
def abroad(line: Pipeline, home: Path) -> Iterator[Place]:
    """A server that others can reach: it reads the course to them, and no more."""
    with running({"default": line}, runs_code=False) as (made, _):
        yield made


def post(place: Place, name: str, **said: Any) -> Answer:
    return place.ask(f"/api/learn/{name}", said)


def of(many: list[Any], name: str) -> Any:
    return next(one for one in many if one["id"] == name)


def words(nodes: list[Any]) -> str:
    return "".join(one if isinstance(one, str) else words(one[2]) for one in nodes)


# ---- reading


def test_answers_are_as_described(desk: Place) -> None:
    description = desk.ask("/api/openapi.json").json
    schemas = {one.name: one.schema for one in ADDRESSES}

    def valid(name: str, answer: Answer) -> Any:
        assert answer.status == 200, answer.body
        whole = {"$ref": f"#/components/schemas/{schemas[name]}", "components": description["components"]}
        Draft202012Validator(whole).validate(answer.json)
        return answer.json

    course = valid("course", desk.ask("/api/learn"))
    assert [one["id"] for one in course["lessons"]] == [one.id for one in open_course().lessons]
    assert course["next"] == {"lesson": "text", "task": None, "part": None, "name": course["next"]["name"]}
    lesson = valid("lesson", desk.ask("/api/learn/lesson?id=forward"))
    assert "hidden states" in words(lesson["text"])
    assert [one["id"] for one in lesson["tasks"]] == [one.id for one in open_course().lesson("forward").tasks]
    valid("misconceptions", desk.ask("/api/learn/misconceptions"))
    valid("exercise", desk.ask("/api/learn/exercise?id=forward/hidden_shape&seed=3"))
    assert valid("file", desk.ask("/api/learn/file?task=gather"))["saved"] is False
    assert valid("check", post(desk, "check", task="gather", code=SOLUTION))["passed"] is True
    assert valid("check", post(desk, "check", task="one_hot", code="x ="))["passed"] is False
    loaded = valid("file", desk.ask("/api/learn/file?task=gather"))["sum"]
    valid("save", post(desk, "save", task="gather", code="x = 1\n", loaded=loaded))
    valid("hint", post(desk, "hint", task="gather"))
    valid("solution", post(desk, "solution", task="gather"))
    valid("read", post(desk, "read", lesson="forward"))
    valid("skip", post(desk, "skip", step="quiz/forward"))
    free = next(one for one in lesson["exercises"] if one["kind"] == "free")
    valid("answer", post(desk, "answer", exercise=free["id"], seed=free["seed"]))
    valid("answer", post(desk, "answer", exercise=free["id"], seed=free["seed"], held=True))
    for name in ("forward/hidden_shape", next(one["id"] for one in lesson["exercises"] if one["kind"] == "choice")):
        valid("answer", post(desk, "answer", exercise=name, seed=1, give_away=True))
    valid("answer", post(desk, "answer", question=lesson["questions"][0]["id"], seed=1, answer="a"))
    after = of(desk.ask("/api/learn").json["lessons"], "forward")
    assert (after["read"], after["exercises"]["done"], of(after["tasks"], "gather")["state"]) == (True, 1, "passed")


def test_no_answer_leaves_before_it_was_given(desk: Place) -> None:
    lesson = desk.ask("/api/learn/lesson?id=forward")
    for secret in (b'"right":', b'"answer":', b"model_answer", b'"why":', b"explain"):
        assert secret not in lesson.body
    for question in open_course().lesson("forward").questions:
        assert all(json.dumps(option.reason)[1:40] not in lesson.body.decode() for option in question.options)
    assert words(of(lesson.json["tasks"], "gather")["text"]) != ""
    assert of(lesson.json["tasks"], "gather")["hints"] == []


def test_the_page(desk: Place) -> None:
    first, second = desk.ask("/learn"), desk.ask("/learn")
    policies = [one.headers["Content-Security-Policy"] for one in (first, second)]
    nonces = [policy.partition("'nonce-")[2].partition("'")[0] for policy in policies]
    assert len(set(nonces)) == 2
    for page, policy, nonce in zip((first, second), policies, nonces, strict=True):
        assert policy == learn_policy(nonce)
        assert "unsafe" not in policy
        assert f'<style id="style" nonce="{nonce}">'.encode() in page.body
        assert page.body.count(b"<script") == page.body.count(b"</script>") == 2
        assert TOKEN.encode() not in page.body


def test_without_the_token_the_course_is_refused_as_the_walk_is(desk: Place) -> None:
    course, walk = (desk.ask(path, token=False) for path in ("/learn", "/"))
    assert (course.status, course.error) == (walk.status, walk.error)
    assert "open the whole address that the server printed" in course.error


def test_the_editor_is_the_one_that_was_built() -> None:
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
    assert not any("resolved" in one for one in lock["packages"].values())  # npm asks the registry it is told to


# ---- judging


def test_an_exercise_is_judged_by_its_seed_and_remembered(desk: Place, home: Path) -> None:
    name = "forward/hidden_shape"
    asked = open_course().exercises[name].ask(7)
    assert isinstance(asked, NumberQuestion)
    wrong = post(desk, "answer", exercise=name, seed=7, answer="(1, 2, 3)").json
    assert (wrong["right"], wrong["readable"]) == (False, True)
    slip = post(desk, "answer", exercise=name, seed=7, answer="about \ud800 seven").json
    assert (slip["right"], slip["readable"]) == (False, False)
    assert post(desk, "answer", exercise=name, seed=7, answer=str(asked.answer)).json["right"] is True
    record = Progress().read().exercise(name)
    assert record.done
    assert record.tries == 2  # a slip of the pen is none


def test_an_answer_given_away_leaves_the_exercise_open(desk: Place) -> None:
    name = "forward/hidden_shape"
    shown = post(desk, "answer", exercise=name, seed=7, give_away=True).json
    assert words(shown["given"]) == str(open_course().exercises[name].ask(7).answer)
    record = Progress().read().exercise(name)
    assert (record.tries, record.done, record.seed) == (1, "", None)
    lesson = desk.ask("/api/learn/lesson?id=forward").json
    choice, free = (next(one for one in lesson["exercises"] if one["kind"] == kind) for kind in ("choice", "free"))
    shown = post(desk, "answer", exercise=choice["id"], seed=choice["seed"], give_away=True).json
    assert shown["given"] == choice["options"][shown["marks"].index(True)]
    assert "model answer" in post(desk, "answer", exercise=free["id"], give_away=True).error


def test_a_question_that_was_missed_comes_back(desk: Place) -> None:
    question = open_course().lesson("forward").questions[0]
    options = draw(question, 5).options
    right = next(number for number, option in enumerate(options) if option.correct)
    wrong = (right + 1) % len(options)
    missed = post(desk, "answer", question=question.id, seed=5, answer="abcdef"[wrong]).json
    assert missed["right"] is False
    assert [why is not None for why in missed["whys"]] == [number == wrong for number in range(len(options))]
    assert missed["again"]["id"] == question.id
    assert Progress().read().question(question.id).due == 2
    other = desk.ask("/api/learn/lesson?id=text").json["questions"]
    assert other[0]["id"] == question.id  # in whichever quiz comes next
    hit = post(desk, "answer", question=question.id, seed=5, answer="abcdef"[right], again=True).json
    assert hit["marks"] == [option.correct for option in options]
    assert [words(why) for why in hit["whys"]] != []
    assert "none of the options" in post(desk, "answer", question=question.id, seed=5, answer="z").error


def test_hints_come_one_at_a_time_and_the_solution_is_remembered(desk: Place) -> None:
    assert [len(post(desk, "hint", task="gather").json["hints"]) for _ in range(4)] == [1, 2, 3, 3]
    assert len(of(desk.ask("/api/learn/lesson?id=forward").json["tasks"], "gather")["hints"]) == 3
    assert "reshape" in words(post(desk, "solution", task="gather").json["solution"])
    assert Progress().read().task("gather").solution_seen


# ---- the learner's file


def test_a_check_writes_the_file_that_the_terminal_reads(desk: Place, home: Path) -> None:
    verdict = post(desk, "check", task="gather", code=WRONG).json
    assert (home / "gather.py").read_text(encoding="utf-8") == WRONG
    failed = next(one for one in verdict["results"] if one["state"] == "failed")
    assert failed["rule"] == "flat"
    assert "expected" in failed["message"]
    assert verdict["summary"].startswith("3 of 7 checks")
    assert verdict["own"] is None
    passed = post(desk, "check", task="gather", code=SOLUTION, loaded=verdict["sum"]).json
    assert passed["passed"]
    assert passed["own"]["shape"][-1] == 128
    assert "the same numbers" in passed["own"]["note"]
    assert len(passed["own"]["rows"][0]) == 8
    state = Progress().read()
    assert state.task("gather").passed
    assert state.task("gather").tries == 2


def test_ids_of_the_learner_are_whole_numbers(desk: Place) -> None:
    own = post(desk, "check", task="pad_batch", code=open_course().task("pad_batch").solution).json["own"]
    assert (own["dtype"], own["whole"]) == ("int64", True)
    assert all(type(value) is int for row in own["rows"] for value in row)
    assert own["note"].startswith("Its row 0 is the same as the ids of the walk")


def test_an_edit_made_elsewhere_is_never_overwritten_in_silence(desk: Place, home: Path) -> None:
    loaded = post(desk, "save", task="gather", code="mine = 1\n").json["sum"]
    (home / "gather.py").write_bytes(b"theirs = 1\r\n")
    for name in ("save", "check"):
        answer = post(desk, name, task="gather", code="mine = 2\n", loaded=loaded)
        assert answer.status == 409
        assert "changed elsewhere" in answer.error
    assert post(desk, "reset", task="gather", loaded=loaded).status == 409
    assert (home / "gather.py").read_bytes() == b"theirs = 1\r\n"
    found = desk.ask("/api/learn/file?task=gather").json
    assert found["code"] == "theirs = 1\n"
    assert (
        post(desk, "save", task="gather", code="theirs = 1\n", loaded="old").status == 200
    )  # the same text: no conflict
    assert (home / "gather.py").read_bytes() == b"theirs = 1\r\n"
    assert post(desk, "save", task="gather", code="mine = 2\n", loaded=found["sum"]).status == 200
    assert (home / "gather.py").read_text() == "mine = 2\n"


def test_a_task_begun_anew_keeps_the_old_file(desk: Place, home: Path) -> None:
    loaded = post(desk, "save", task="gather", code="mine = 1\n").json["sum"]
    fresh = post(desk, "reset", task="gather", loaded=loaded).json
    assert fresh["code"] == open_course().task("gather").start
    assert (home / fresh["kept"]).read_text() == "mine = 1\n"


def test_files_that_cannot_be_shown(desk: Place, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "gather.py").write_bytes(b"\xff\xfe")
    assert "no UTF-8" in desk.ask("/api/learn/file?task=gather").error
    (home / "one_hot.py").mkdir()
    assert desk.ask("/api/learn/file?task=one_hot").status == 400
    assert post(desk, "check", task="one_hot", code=SOLUTION).status == 400


# ---- refusing

HOSTILE = [
    ("check", {"task": "gather", "code": "x" * (MAX_CODE + 1)}, 413, "characters"),
    ("check", {"task": "gather", "code": "\ud800"}, 400, "half of a pair"),
    ("check", {"task": "../gather", "code": ""}, 400, "there is no task"),
    ("check", {"task": "gather\0", "code": ""}, 400, "there is no task"),
    ("check", {"task": "gather"}, 400, "code is missing"),
    ("check", {"task": ["gather"], "code": ""}, 400, "task is a list; it is a string"),
    ("check", {"task": "gather", "code": 7}, 400, "code is a number"),
    ("check", {"task": "gather", "code": "", "loaded": 1}, 400, "loaded is"),
    ("check", {"task": "gather", "code": "", "seed": 1}, 400, "is not known here"),
    ("save", {"task": "\ud800", "code": ""}, 400, "there is no task"),
    ("answer", {}, 400, "one of the two"),
    ("answer", {"exercise": "forward/hidden_shape", "question": "x"}, 400, "one of the two"),
    ("answer", {"exercise": "no/such", "answer": "1"}, 400, "there is no exercise"),
    ("answer", {"question": "no_such", "answer": "a"}, 400, "there is no question"),
    ("answer", {"exercise": "forward/hidden_shape", "seed": -1}, 400, "seed is -1"),
    ("answer", {"exercise": "forward/hidden_shape", "seed": 2**31}, 400, "seed is"),
    ("answer", {"exercise": "forward/hidden_shape", "held": "yes"}, 400, "held is a string; it is true or false"),
    ("answer", {"exercise": "forward/hidden_shape", "held": True}, 400, "is judged here"),
    ("skip", {"step": "task/no_such"}, 400, "there is no step"),
    ("read", {"lesson": "no_such"}, 400, "there is no lesson"),
    ("hint", {"task": ""}, 400, "there is no task"),
    ("solution", {"task": "solution"}, 400, "there is no task"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said", "status", "why"), HOSTILE)
def test_what_cannot_be_used_is_refused_in_words(place: Place, name: str, said: Any, status: int, why: str) -> None:
    answer = post(place, name, **said)
    assert (answer.status, why in answer.error) == (status, True), answer.error


def test_queries_that_cannot_be_used(place: Place) -> None:
    for path in ("lesson", "lesson?id=", "lesson?id=../x", "file?task=%00", "exercise?id=x&seed=1", "file?x=1"):
        assert place.ask(f"/api/learn/{path}").status == 400
    assert place.ask("/api/learn/check").status == 405


def test_a_nul_in_the_code_is_a_failed_check_and_nothing_worse(desk: Place) -> None:
    verdict = post(desk, "check", task="gather", code="x = 1\0\n").json
    assert verdict["results"][0]["state"] == "failed"
    assert verdict["results"][0]["rule"] == "syntax"


@pytest.mark.parametrize("name", ["check", "save", "reset", "skip", "read"])
def test_others_may_read_but_nothing_is_run_or_written(abroad: Place, home: Path, name: str) -> None:
    said = {"check": {"task": "gather", "code": SOLUTION}, "save": {"task": "gather", "code": SOLUTION},
            "reset": {"task": "gather"}, "skip": {"step": "quiz/forward"}, "read": {"lesson": "forward"}}  # fmt: skip
    before = Progress().path.read_bytes()
    answer = post(abroad, name, **said[name])
    assert answer.status == 403
    assert "nobody but this machine" in answer.error
    assert not home.exists()
    assert Progress().path.read_bytes() == before


def test_others_are_judged_without_a_trace_and_see_nobodys_progress(abroad: Place) -> None:
    with Progress().edit() as state:
        state.note_check("gather", passed=True, summary="")
    before = Progress().path.read_bytes()
    course = abroad.ask("/api/learn").json
    assert course["runs"] is False
    assert "loopback" in course["refusal"]
    assert of(of(course["lessons"], "forward")["tasks"], "gather")["state"] == "open"
    assert post(abroad, "answer", exercise="forward/hidden_shape", answer="(1, 2, 3)").status == 200
    assert len(post(abroad, "hint", task="gather").json["hints"]) == 3
    assert abroad.ask("/api/learn/file?task=gather").json["path"] == ""
    assert Progress().path.read_bytes() == before


@pytest.mark.parametrize(
    ("host", "runs"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("my-box", False), ("localhost.example", False)],
)  # fmt: skip
def test_code_runs_only_where_nobody_else_can_ask(host: str, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: object, __: object, *, runs_code: bool) -> None:
        assert runs_code is runs
        raise InterruptedError

    monkeypatch.setattr("inlayer.web.server.Api", stop)
    with pytest.raises(InterruptedError):
        serve({}, host=host)


def test_code_runs_by_default_for_nobody(line: Pipeline) -> None:
    assert Api({"default": line}, Limits()).learn.desk.runs is False


# ---- at once


def test_checks_wait_for_one_another_and_not_without_end(
    line: Pipeline, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are graded, so many wait, the next is told; a client that goes leaves the line; reading goes on."""
    hold, seen = threading.Event(), []

    def check(_: CoursePages, name: str, code: str, loaded: str | None) -> dict[str, Any]:
        seen.append(code)
        hold.wait(PATIENCE)
        return {}

    monkeypatch.setattr(CoursePages, "check", check)
    monkeypatch.setattr("inlayer.web.learn.CHECKS_WAITING", 2)
    with running({"default": line}, runs_code=True) as (place, api):
        sockets = [begin(place, f"x = {number}") for number in range(2)]
        until(lambda: len(seen) == 2)
        sockets += [begin(place, f"x = {number}") for number in (2, 3)]
        until(lambda: len(api.learn.grading._line) == 2)
        refused = post(place, "check", task="gather", code="x = 4")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert post(place, "hint", task="gather").status == 200
        sockets.pop().close()
        until(lambda: len(api.learn.grading._line) == 1)
        hold.set()
        for one in sockets:
            assert one.recv(65_536).startswith(b"HTTP/1.1 200 ")
            one.close()
        assert sorted(seen) == ["x = 0", "x = 1", "x = 2"]


def begin(place: Place, code: str) -> socket.socket:
    body = json.dumps({"task": "gather", "code": code}).encode()
    made = socket.create_connection((place.host, place.port), timeout=PATIENCE)
    head = [
        "POST /api/learn/check HTTP/1.1", f"Host: 127.0.0.1:{place.port}", f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json", f"Content-Length: {len(body)}",
    ]  # fmt: skip
    made.sendall("\r\n".join([*head, "", ""]).encode() + body)
    return made


def until(true: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)

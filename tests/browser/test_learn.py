"""The course in a real browser: one lesson from its text to its quiz, and what the page must never do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inlayer.learn.course import Lesson, open_course
from inlayer.learn.progress_file import ProgressFile
from tests.browser.conftest import opening_pages
from tests.browser.test_look import CONTRAST, NAMELESS, keep
from tests.browser.watched_page import READY, Watched
from tests.web.client import Client, learner, running

pytestmark = pytest.mark.slow

GATHER = open_course().task("gather")


@pytest.fixture(scope="module")
def server(pipelines) -> Iterator[Client]:
    with running({"default": pipelines["default"]}, allow_code_execution=True) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A new learner: the folder of their files."""
    with learner(tmp_path) as files:
        yield files


@pytest.fixture
def open_lesson(browser, server: Client, home: Path) -> Iterator[Callable[..., Watched]]:
    with opening_pages(browser, server, "/learn") as opening:
        yield opening


def write(watched: Watched, code: str) -> None:
    """Replace the editor's text by pasting: no bracket is closed, no line indented."""
    watched.page.click(".cm-content")
    watched.page.keyboard.press("Control+a")
    watched.page.keyboard.press("Delete")
    watched.page.evaluate(
        """(text) => { const data = new DataTransfer(); data.setData("text/plain", text);
             document.querySelector(".cm-content").dispatchEvent(
               new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })); }""",
        code,
    )


def go(watched: Watched, link: str) -> None:
    watched.page.click(f"#lessons-list a:has-text('{link}')")
    watched.page.wait_for_selector("#stage:focus")
    watched.page.wait_for_selector(READY)


def answer(watched: Watched, *, right: bool) -> str:
    """Answer the current question; return its id."""
    page = watched.page
    name = page.get_attribute("#question section", "data-id")
    seed = page.get_attribute("#question form", "data-seed")
    options = open_course().questions[str(name)].ask(int(str(seed))).options
    page.check(f"#question input >> nth={[option.correct for option in options].index(right)}")
    page.click("#answer-question")
    page.wait_for_selector("#next-question")
    return str(name)


def test_one_lesson_from_its_text_to_its_quiz(open_lesson, home, pipelines):
    watched = open_lesson("text=I+love+dogs&step=5", path="/")
    page = watched.page

    # From the walk to the lesson for its step, with the walk next to it.
    page.click("#learn")
    page.wait_for_selector("#stage h1:has-text('The forward pass')")
    assert page.eval_on_selector_all("img.picture", "(all) => all.every((picture) => picture.naturalWidth > 0)")
    assert page.eval_on_selector(".prose aside", "(aside) => getComputedStyle(aside).borderLeftWidth") == "4px"
    page.click(".prose a.walk-link >> nth=0")
    walk = page.frame_locator("#pane iframe")
    walk.locator(".figure[data-step='5']").wait_for()
    assert walk.locator("#learn").is_hidden()
    page.click("[aria-label='Close the walk']")
    page.click(".try-here button")  # the same walk inside the lesson, with the lesson's text
    embedded = page.frame_locator(".try-here iframe")
    embedded.locator(".figure[data-step='5']").wait_for()
    assert embedded.locator("textarea").input_value() == "I love dogs"
    assert embedded.locator("#scene-canvas").is_visible()
    page.click(".try-here button")
    assert page.locator(".try-here iframe").count() == 0

    # An exercise: an unreadable, a wrong and a correct answer.
    go(watched, "Exercises")
    card = page.locator("section[data-id='forward/hidden_shape']")
    seed = int(str(card.locator("form").get_attribute("data-seed")))
    for given, shown in (
        ("12", "could not be parsed"),
        ("(1, 2)", "Your shape has the wrong number of axes: 2 instead of 3."),
        (None, "Correct!"),
    ):
        correct = str(open_course().exercises["forward/hidden_shape"].ask(seed).answer)
        card.locator("input").fill(correct if given is None else given)
        card.locator("input").press("Enter")
        card.locator(f".feedback:has-text('{shown}')").wait_for()

    # A revealed exercise remains unfinished; a free-text exercise is done when every point is checked.
    revealed = page.locator(".exercise:has(.reveal) >> nth=1")
    revealed.locator(".reveal").click()
    revealed.locator(".feedback:has-text('remains unfinished')").wait_for()
    free = page.locator(".exercise:has(textarea) >> nth=0")
    free.locator("text=Compare with").click()
    free.locator(".matches-sample").click()
    free.locator(".feedback.bad:has-text('0 of')").wait_for()
    count = len(open_course().lesson("forward").exercises)
    assert watched.text("#exercises-done").startswith(f"1 of {count}")
    for box in free.locator("[type=checkbox]").all():
        box.check()
    free.locator(".matches-sample").click()
    free.locator(".feedback.good").wait_for()
    assert watched.text("#exercises-done").startswith(f"2 of {count}")
    page.wait_for_selector(f"#lessons-list a:has-text('Exercises') >> text='2/{count}'")

    # A task: a wrong solution names its rule; a correct one is explained and shown next to the walk.
    go(watched, GATHER.title)
    write(watched, GATHER.wrong_solutions["flat"] + "print('a line of mine')\n")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".failure")
    assert page.inner_text(".failure .rule") == "flat"
    assert "expected" in page.inner_text(".drawing")
    assert page.inner_text("#results-title").startswith("3 of 7 checks")
    states = page.eval_on_selector_all(".result", "(all) => all.map((result) => result.dataset.state)")
    assert states == ["passed"] * 3 + ["failed"] + ["not-run"] * 3
    assert page.inner_text("[aria-label='What your code printed']").strip() == "a line of mine"
    page.click("#hint")
    page.wait_for_selector(".hint")
    page.click("#solution")
    assert page.locator("#solution-title").count() == 0  # the first click only asks for confirmation
    write(watched, GATHER.solution)
    page.wait_for_selector(".stale-results .stale-note-text:visible")  # the results belong to the old code
    page.click("#check")
    page.wait_for_selector("#results-title.good, #results .error")
    assert page.locator(".stale-note-text:visible").count() == 0
    assert page.inner_text("#results-title") == "Well done! 7 of 7 checks passed"
    assert "Why it works" in page.inner_text(".why")
    own = [float(cell["value"]) for cell in watched.shown(".tensor") if cell.get("t") == "1"]
    row = pipelines["default"].walk(["I love dogs"]).texts[0].tokens[1].row
    assert own == pytest.approx(row[: len(own)], abs=0)
    assert page.locator("#pane").is_hidden()  # not at this width by default
    page.click("#see-walk")
    walk.locator(".figure[data-step='5']").wait_for()
    in_walk = walk.locator("[data-field=row][data-t='1']").evaluate_all(
        "(all) => all.map((cell) => cell.dataset.value)"
    )
    assert [float(value) for value in in_walk] == own
    keep(watched, "learn-passed")

    # The quiz: a missed question comes back until it is answered correctly.
    go(watched, "Quiz")
    missed = answer(watched, right=False)
    assert "will come back" in page.inner_text("#question .graded")
    assert page.inner_text(".pick.chosen .pick-word") == "\u2717 Incorrect, your answer"
    page.wait_for_selector("#quiz-tally:has-text('1 to repeat')")
    tally = page.inner_text("#quiz-tally")
    done, total = page.inner_text("#lessons-list a:has-text('Quiz') .done-mark").split("/")
    assert tally == f"Lesson 3: {done} of {total} correct, 1 to repeat"  # the same counts in both places
    seen = []
    while page.locator("#next-question").count():
        page.click("#next-question")
        if page.locator("#question form").count():
            seen.append(answer(watched, right=True))
    assert seen.count(missed) == 1
    assert "correct on the first try" in page.inner_text("#quiz-end")

    # Everything is in the progress file that `inlayer learn` reads.
    state = ProgressFile().read()
    assert state.record("task", "gather").done_at
    assert state.record("task", "gather").hints == 1
    assert not state.record("task", "gather").solution_seen_at
    assert state.record("exercise", "forward/hidden_shape").done_at
    assert state.record("question", missed).due == 2
    assert state.record("read", "forward").done_at
    assert (home / "gather.py").read_text(encoding="utf-8") == GATHER.solution
    page.reload()
    page.wait_for_selector("#stage[aria-busy=false] h1")
    assert "done" in page.inner_text(f"#lessons-list a:has-text('{GATHER.title}')")


def test_a_passed_task_shows_its_tensor(open_lesson, pipelines):
    """The page draws it with the grid of the walk, so this fails if the two disagree."""
    watched = open_lesson("task=gather")
    write(watched, GATHER.solution)
    watched.page.click("#check")
    watched.page.wait_for_selector("#results-title.good, #results .error")
    shown = watched.shown(".tensor")
    assert {cell["field"] for cell in shown} == {"tensor"}
    row = pipelines["default"].walk(["I love dogs"]).texts[0].tokens[1].row
    own = [float(cell["value"]) for cell in shown if cell["t"] == "1"]
    assert own == pytest.approx(row[: len(own)], abs=0)


def test_the_editor_by_keyboard_and_a_file_changed_elsewhere(open_lesson, home):
    watched = open_lesson("task=gather")
    page = watched.page
    page.focus(".cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.type("def f(")  # over a selection: the browser would write styles into the markup
    assert page.inner_text(".cm-line >> nth=0") == "def f()"
    page.keyboard.press("End")
    page.keyboard.type(":")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("pass")
    page.wait_for_selector("#file-note:text-is('saved')")
    assert (home / "gather.py").read_text() == "def f():\n        pass"
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "check"

    (home / "gather.py").write_text("elsewhere = 1\n")
    watched.expected = ("409",)
    page.focus(".cm-content")
    page.keyboard.type("# more")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#conflict:not([hidden])")
    assert (home / "gather.py").read_text() == "elsewhere = 1\n"
    page.wait_for_selector("#conflict:focus")
    assert page.evaluate(
        "document.getElementById('conflict').nextElementSibling.contains(document.getElementById('check'))"
    )
    page.click("#load-file")
    assert page.inner_text(".cm-line >> nth=0") == "elsewhere = 1"
    page.keyboard.press("Control+z")  # undo brings back the old code
    page.wait_for_selector(".cm-content:has-text('# more')")

    # A server that is gone is reported next to Check, and to a screen reader.
    watched.expected = ("409", "ERR_FAILED")
    page.route("**/api/course/check", lambda route: route.abort())
    page.click("#check")
    page.wait_for_selector("#results .error:has-text('does not respond')")
    assert page.evaluate("document.getElementById('live').textContent") == "Not checked."

    page.focus("#stage")
    page.keyboard.press("w")
    page.frame_locator("#pane iframe").locator(".figure[data-step='5']").wait_for()
    width = page.evaluate("document.getElementById('pane').offsetWidth")
    page.focus("#divider")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.getElementById('pane').offsetWidth") == width + 32


HOSTILE = """## Hostile <script>window.hacked = 1</script>

<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 1"> <b style="color: red">bold</b>

[script](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>) [file](file:///etc/passwd)
[walk](walk:5?text=%3Cimg%20src=x%20onerror=window.hacked=1%3E) [out](walk:99) <javascript:window.hacked=1>

![<img onerror=window.hacked=1>](pictures/../../../secret.svg) ![remote](https://example.test/x.svg)

```python
</pre><script>window.hacked = 1</script>
```
"""


def test_the_tabs_lead_to_the_other_pages(open_lesson):
    watched = open_lesson()
    watched.page.click("nav.tabs >> text=Inspect")
    watched.page.wait_for_selector("#facts dd")
    watched.page.go_back()
    watched.page.click("nav.tabs >> text=Initialization")
    watched.page.wait_for_selector("#once")


def test_course_texts_never_become_scripts(open_lesson, monkeypatch):
    monkeypatch.setattr(Lesson, "text", property(lambda _: HOSTILE))
    watched = open_lesson("lesson=forward")
    page = watched.page
    assert "<script>window.hacked = 1</script>" in page.inner_text("#stage")
    assert page.locator("#stage :is(script, img, b, iframe, [style], [onerror])").count() == 0
    links = page.eval_on_selector_all("#stage .prose a", "(all) => all.map((link) => link.getAttribute('href'))")
    assert [link.split("#")[0].split("?")[0] for link in links] == ["/"]
    page.click("#stage .prose a")
    page.frame_locator("#pane iframe").locator(".figure").wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("frames[0].hacked") is None


def test_unknown_elements_are_dropped(open_lesson):
    """Even if the server itself sent them."""
    watched = open_lesson()
    nodes = [
        ["script", {}, ["window.hacked = 1"]],
        ["p", {"onclick": "hacked = 1"}, ["z"]],
        ["a", {"href": "javascript:window.hacked = 1"}, ["x"]],
        ["img", {"src": "https://example.test/x", "alt": "y"}, []],
    ]
    body = json.dumps({"title": "Common misconceptions", "text": nodes})
    answer = {"body": body, "content_type": "application/json"}
    watched.page.route("**/api/course/misconceptions", lambda route: route.fulfill(**answer))
    go(watched, "Common misconceptions")
    assert watched.page.locator("#stage :is(script, img, a, [onclick])").count() == 0
    assert watched.page.inner_text(".prose").split() == ["window.hacked", "=", "1", "z", "x", "y"]


def test_an_unknown_address_shows_the_course(open_lesson):
    watched = open_lesson("lesson=no_such")
    for fragment, shown in (
        ("", "no lesson no_such"), ("lesson=no-such%20<b>", "no lesson no-such\u2423<b>"),
        ("lesson=forward&task=x", "no task x"), ("lesson=forward&part=x", "no part x"), ("step=9", "for step 9"),
    ):  # fmt: skip
        if fragment:
            watched.page.evaluate("(fragment) => { location.hash = fragment; }", fragment)
        watched.page.wait_for_selector(f"#error:has-text('{shown}')")
        watched.page.wait_for_selector("#stage[aria-busy=false] h1")
        assert watched.page.locator(".overview > li").count() == len(open_course().lessons)


def test_every_step_of_the_walk_has_a_lesson(open_lesson):
    watched = open_lesson()
    ids = ["text", "text", "text", "table", "forward", "position", "padding", "learning"]
    for step, lesson in enumerate(ids, start=1):
        watched.page.evaluate("(step) => { location.hash = `step=${step}`; }", step)
        title = next(other.title for other in open_course().lessons if other.id == lesson)
        watched.page.wait_for_function("(title) => document.title === `${title}: inlayer learn`", arg=title)
        assert watched.page.is_hidden("#error")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_contrast_names_and_layout(scheme, width, open_lesson):
    """Contrast, names for screen readers, no horizontal scrolling, no motion if the user prefers none."""
    watched = open_lesson(color_scheme=scheme, width=width)
    page = watched.page
    still = "[...document.querySelectorAll('*')].every((node) => getComputedStyle(node).transitionDuration === '0s')"
    for fragment in ("", "lesson=forward", "task=gather", "lesson=forward&part=exercises", "lesson=forward&part=quiz"):
        page.evaluate("(fragment) => { location.hash = fragment; }", fragment)
        page.wait_for_timeout(50)
        page.wait_for_selector(READY)
        if fragment == "task=gather":
            page.wait_for_selector(".cm-content")
        if fragment == "lesson=forward":
            page.wait_for_selector(".picture")
            assert min(page.eval_on_selector_all(".picture", "(all) => all.map((img) => img.clientWidth)")) >= 600
            top = "scrollTo(0, 1000), document.getElementById('walk-toggle').getBoundingClientRect().top"
            assert 0 <= page.evaluate(top) < 60  # still there, far down the text
        assert page.evaluate(CONTRAST) == [], fragment
        assert page.evaluate(NAMELESS) == [], fragment
        assert page.evaluate("document.documentElement.scrollWidth") <= width, fragment
        keep(watched, f"learn-{scheme}-{fragment or 'overview'}")
    assert page.evaluate(still)


def test_the_course_page_on_a_phone(open_lesson):
    """One primary button, aligned titles, a menu with an arrow, and the header in the order of the other pages."""
    page = open_lesson(width=390, height=844).page
    style = "(element, name) => getComputedStyle(element).getPropertyValue(name)"
    filled = page.eval_on_selector(".next-link", style, "background-color")
    assert filled == page.eval_on_selector(
        ".tabs [aria-current]",
        "(element) => {"
        " const probe = document.createElement('i'); probe.style.color = 'var(--accent)'; element.append(probe);"
        " return getComputedStyle(probe).color; }",
    )
    edges = "(titles) => titles.map((title) => title.getBoundingClientRect().left)"
    assert len(set(page.eval_on_selector_all(".overview h2", edges))) == 1
    arrow = "(element) => getComputedStyle(element, '::after').rotate"
    closed = page.eval_on_selector("#lessons-toggle", arrow)
    page.click("#lessons-toggle")
    assert (closed, page.eval_on_selector("#lessons-toggle", arrow)) == ("45deg", "225deg")
    top = "(element) => element.getBoundingClientRect().top"
    brand, switches, tabs = (page.eval_on_selector(selector, top) for selector in (".brand", ".bar-end", ".tabs"))
    assert abs(brand - switches) < 10 < tabs - brand

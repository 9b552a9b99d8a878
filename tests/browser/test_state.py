"""The address stores the view, typing is debounced, late responses are ignored, errors are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.watched_page import READY, TIMEOUT, watch

pytestmark = pytest.mark.slow

VIEWS = [
    "text=I+love+dogs&model=default&step=5",
    "text=I+love+dogs&text=Hi&model=default&step=7&dims=4",
    "text=I+love+dogs&model=default&step=7&positions=learned&swap=0%2C2&pad=1",
    "text=I+love+dogs&model=stages&step=6&positions=sinusoidal&theta=100",
    "text=I+love+dogs&model=default&step=1&view=initialization&seed=3",
    "text=I+love+dogs&model=default&step=5&token=812",
    "text=I+love+dogs&model=default&step=5&predict=1",
    "text=%3Cb%3E%26+%25+%2B+%23+%22%27+%F0%9F%98%80%0Anew+line&model=default&step=3",
]


@pytest.mark.parametrize("view", VIEWS)
def test_a_link_reproduces_the_view(view, open_page):
    watched = open_page(view)
    seen: list[Any] = []
    while len(seen) < 2:
        if seen:
            watched.page.goto("about:blank")
            watched.open()
        if "token=" in view:
            watched.page.wait_for_selector("#token h3")
        fields = watched.page.eval_on_selector_all(
            "#input textarea, #input select", "(all) => all.map((one) => one.value)"
        )
        watched.page.evaluate("document.getElementById('map-pane').hidden = true")  # its layout arrives at any time
        seen.append((watched.fragment(), watched.text("body"), watched.shown("body"), fields))
    assert seen[0] == seen[1]
    assert seen[0][0] == view


def test_controls_update_the_address(open_page):
    watched = open_page("text=I+love+dogs")
    page = watched.page
    page.click("#step-7")
    page.click("#pad-more")
    page.click("label:has(#positions-sinusoidal)")
    page.select_option("#dims", "4")
    watched.settle()
    assert watched.fragment() == "text=I+love+dogs&model=default&step=7&dims=4&positions=sinusoidal&pad=1"
    page.fill("#theta", "500")
    page.keyboard.press("Enter")
    watched.settle()
    assert "theta=500" in watched.fragment()
    page.select_option("#model", "stages")
    watched.settle()
    assert watched.fragment() == "text=I+love+dogs&model=stages&step=7&dims=4"  # another model, without changes


def test_back_and_forward(open_page):
    watched = open_page("text=I+love+dogs&step=1")
    page = watched.page
    page.click("#step-5")
    page.click("#pad-more")
    page.wait_for_selector("#changed-note")
    page.go_back()
    page.wait_for_selector("#changed-note", state="detached")
    assert "step=5" in watched.fragment()
    page.go_back()
    page.wait_for_selector(".figure[data-step='1']")
    page.go_forward()
    page.go_forward()
    page.wait_for_selector("#changed-note")
    assert watched.text("#pad-count") == "1 padding token"


def test_typing_sends_one_request_and_adds_one_history_entry(open_page):
    watched = open_page("text=I+love+dogs&step=3")
    page = watched.page
    entries = page.evaluate("history.length")
    before = sum(url.endswith("/api/walk") for url in watched.requests)
    page.focus("#texts textarea")
    page.eval_on_selector(  # key by key, without pauses that a busy machine could extend
        "#texts textarea",
        """(field) => { field.value = ""; for (const key of "The cat sat") {
             field.value += key; field.dispatchEvent(new Event("input", { bubbles: true })); } }""",
    )
    page.wait_for_selector(".token-card:has-text('cat')")
    assert sum(url.endswith("/api/walk") for url in watched.requests) == before + 1
    assert page.evaluate("history.length") == entries + 1
    assert "text=The+cat+sat" in watched.fragment()
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.go_back()
    page.wait_for_selector(".token-card:has-text('dog')")  # the text before, not the page before


@pytest.mark.parametrize(("pause", "entries"), [(500, 1), (1500, 2)])
def test_typing_after_a_pause_adds_a_history_entry(pause, entries, open_page):
    page = open_page("text=I+love+dogs&step=3").page
    before = page.evaluate("history.length")
    page.evaluate("performance.now = () => window.now ?? 5000")
    page.fill("#texts textarea", "The cat")
    page.wait_for_selector(".token-card:has-text('cat')")
    page.evaluate("(pause) => { window.now = 5000 + pause; }", pause)
    page.fill("#texts textarea", "The king")
    page.wait_for_selector(".token-card:has-text('king')")
    assert page.evaluate("history.length") == before + entries
    page.go_back()
    page.wait_for_selector(f".token-card:has-text('{'dog' if entries == 1 else 'cat'}')")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("model=nope", "model=nope (unknown; showing default)"),
        ("other=nope", "other=nope (unknown model)"),
        ("pad=100000", "pad=100000 (0 to 64)"),
        ("step=99", "step=99 (1 to 8)"),
        ("positions=foo", "positions=foo (one of none, learned, sinusoidal, rotary)"),
        ("theta=-1", "theta=-1 (a number above 0, at most 1e12)"),
        ("theta=1e300", "theta=1e300 (a number above 0, at most 1e12)"),
        ("swap=1,1", "swap=1,1 (two different tokens, such as 0,1)"),
        ("from=-5", "from=-5 (a whole number)"),
    ],
)
def test_what_an_address_cannot_show_is_named(part, words, open_page):
    watched = open_page(f"text=I+love+dogs&{part}")
    assert watched.text("#ignored-words") == f"Ignored in this link: {words}."
    assert watched.page.is_hidden("#error")
    assert part not in watched.fragment()
    watched.page.click("#ignored-close")
    assert watched.page.is_hidden("#ignored")
    assert open_page("text=I+love+dogs&step=6&theta=500&swap=0,1&pad=1").page.is_hidden("#ignored")


def test_late_responses_are_ignored(open_page, pipelines):
    watched = open_page("text=I+love+dogs&step=3")
    page = watched.page

    held: list[Any] = []

    def hold(route: Any) -> None:
        slow = json.loads(route.request.post_data)["texts"] == ["slow"]
        held.append(route) if slow else route.continue_()

    page.route("**/api/walk", hold)
    with page.expect_request("**/api/walk"):
        page.fill("#texts textarea", "slow")
    page.fill("#texts textarea", "quick")
    page.wait_for_selector(".token-card:has-text('qu')")
    held[0].fulfill(json=pipelines["default"].walk(["slow"]).to_dict())
    page.wait_for_timeout(200)
    assert "qu" in watched.text(".tokens")
    assert "slow" not in watched.text(".tokens")


def test_errors_are_shown_and_input_is_kept(open_page):
    watched = open_page("text=I+love+dogs&step=5&swap=0,99")
    watched.expected = ("400",)
    assert watched.page.get_attribute("#error", "role") == "alert"
    assert "token 99 cannot be swapped" in watched.text("#error")
    assert watched.page.input_value("#texts textarea") == "I love dogs"
    watched.page.click("#reset")
    watched.page.wait_for_selector("#error", state="hidden")
    assert len(watched.shown()) > 0
    watched.step(6)
    watched.page.fill("#theta", "minus one")
    watched.page.keyboard.press("Enter")
    assert "theta must be a number above 0" in watched.text("#theta-error")
    watched.page.fill("#theta", "1e300")
    watched.page.keyboard.press("Enter")
    assert watched.text("#theta-error") == "theta must be a number above 0, at most 1e12, such as 10000."
    assert len(watched.shown()) > 0  # the walk is still shown


def test_unreachable_server_is_reported(open_page):
    watched = open_page("text=I+love+dogs&step=5")
    watched.expected = ("Failed to load",)
    watched.page.route("**/api/**", lambda route: route.abort())
    watched.page.fill("#texts textarea", "Hello again")
    watched.page.wait_for_selector("#error:not([hidden])")
    assert "The server does not respond" in watched.text("#error")
    assert watched.page.input_value("#texts textarea") == "Hello again"
    watched.page.unroute("**/api/**")
    watched.page.fill("#texts textarea", "Hello again!")
    watched.page.wait_for_selector("#error", state="hidden")


def test_wrong_token_is_rejected(browser, client):
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT)
    answer = page.goto(f"http://127.0.0.1:{client.port}/?token=wrong")
    assert answer is not None
    assert answer.status == 401
    page.close()


def test_loading_indicator(open_page):
    watched = open_page("text=I+love+dogs&step=5")
    page = watched.page

    held: list[Any] = []
    page.route("**/api/walk", lambda route: held.append(route))  # noqa: PLW0108  # playwright marks its handlers
    page.fill("#texts textarea", "Hello")
    page.wait_for_selector("#progress:not([hidden])", state="attached")
    assert page.get_attribute("#stage", "aria-busy") == "true"
    held[0].continue_()
    page.wait_for_selector(READY)
    assert page.is_hidden("#progress")


def test_adding_and_removing_texts(open_page):
    watched = open_page("text=I+love+dogs&step=7")
    page = watched.page
    page.click("#add-text")
    page.keyboard.type("The cats and the dogs")
    page.wait_for_selector("section[aria-label=Mask]")
    assert watched.fragment().count("text=") == 2
    assert set(page.locator(".text-name").all_text_contents()) == {"text 1", "text 2"}
    assert page.locator(".masks tbody .row-head").all_text_contents() == ["1", "2"]
    page.click("[aria-label='Remove text 1']")
    page.wait_for_selector("section[aria-label=Mask]", state="detached")
    assert "text=The+cats+and+the+dogs&" in watched.fragment()


def test_back_and_forward_update_a_focused_field(open_page):
    watched = open_page("text=I+love+dogs&step=1")
    page = watched.page
    page.click("#step-2")
    page.fill("#texts textarea", "cats sleep")
    page.wait_for_selector(".pre-token:has-text('cats')")
    page.focus("#texts textarea")
    page.go_back()
    page.wait_for_selector(".pre-token:has-text('dogs')")
    page.go_back()
    page.wait_for_selector(".figure[data-step='1']")
    assert page.input_value("#texts textarea") == "I love dogs"
    page.go_forward()
    page.go_forward()
    page.wait_for_selector(".pre-token:has-text('cats')")
    assert page.input_value("#texts textarea") == "cats sleep"


def test_back_while_typing_keeps_the_older_entry(open_page):
    watched = open_page("text=I+love+dogs&step=3")
    page = watched.page
    watched.step(4)
    page.evaluate(
        """() => { const field = document.querySelector("#texts textarea"); field.focus(); field.value += " zz";
             field.dispatchEvent(new Event("input", { bubbles: true })); history.back(); }"""
    )
    page.wait_for_selector(".figure[data-step='3']")
    page.wait_for_timeout(500)
    assert watched.fragment() == "text=I+love+dogs&model=default&step=3"
    assert page.input_value("#texts textarea") == "I love dogs"


def test_custom_dims_are_added_to_the_list(open_page):
    watched = open_page("text=I+love+dogs&step=5&dims=5")
    watched.page.evaluate("location.hash = location.hash.replace('dims=5', 'dims=7')")
    watched.page.wait_for_selector(".caption:has-text('Channels 0 to 6')")
    assert watched.page.input_value("#dims") == "7"


@pytest.mark.parametrize(
    ("change", "step"),
    [(lambda page: page.evaluate("location.hash = 'text=Hi&step=6'"), 6), (lambda page: page.click("#predict"), 5)],
)
def test_changes_before_the_models_are_loaded(change, step, browser, client):
    watched = watch(browser.new_context(), f"http://127.0.0.1:{client.port}/?token={client.token}#text=Hi&step=5")
    held: list[Any] = []
    watched.page.route("**/api/models", lambda route: held.append(route))  # noqa: PLW0108
    with watched.page.expect_request("**/api/models"):
        watched.page.goto(watched.address)
    change(watched.page)
    watched.page.wait_for_timeout(100)
    held[0].continue_()
    watched.page.wait_for_selector(f".figure[data-step='{step}'], .question")
    assert watched.page.input_value("#texts textarea") == "Hi"
    assert f"step={step}" in watched.page.url
    watched.finish()

"""Failed requests: the page reports them, marks the previous walk, and offers what to do next."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from inlayer.trace.token_facts import describe_token
from tests.browser.watched_page import watch

pytestmark = pytest.mark.slow

LONG = "word " * 90  # more than the 64 positions of "stages"


def test_previous_walk_is_marked_after_a_failed_request(open_page):
    watched = open_page("text=I+love+dogs&model=stages&step=5")
    watched.expected = ("400",)
    page = watched.page
    page.fill("#texts textarea", LONG)
    page.wait_for_selector("#stale-note")
    assert "outside 0..63" in watched.text("#error")
    assert "\u201cI\u2423love\u2423dogs\u201d, with model stages" in watched.text("#stale-note")
    page.click("#step-7")
    page.wait_for_selector(".stale .figure[data-step='7']")  # the step of the step bar and the address
    assert watched.text("#steps [aria-current=step] .step-button-number") == "7"
    assert watched.page.evaluate("getComputedStyle(document.querySelector('.stale .figure')).filter") == "grayscale(1)"
    assert page.input_value("#texts textarea") == LONG
    page.click("#restore")
    page.wait_for_selector("#stale-note", state="detached")
    assert page.is_hidden("#error")
    assert page.locator(".stale").count() == 0
    assert page.input_value("#texts textarea") == "I love dogs"
    assert "step=7" in watched.fragment()


def test_failing_link_suggests_what_to_do(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=5&swap=0,99")
    watched.expected = ("400",)
    page = watched.page
    page.wait_for_selector("#reset-experiment")
    assert "Change the text, choose another model" in watched.text("#stage")
    assert page.get_attribute("#stage", "aria-busy") == "false"
    page.click("#reset-experiment")
    page.wait_for_selector(".figure[data-step='5']")
    assert page.is_hidden("#error")
    assert "swap" not in watched.fragment()


def test_failing_link_can_start_over(open_page):
    watched = open_page("text=" + LONG.replace(" ", "+") + "&model=stages&step=5")
    watched.expected = ("400",)
    watched.page.click("#start-over")
    watched.page.wait_for_selector(".figure[data-step='1']")
    assert watched.page.input_value("#texts textarea").startswith("The king left London")


def test_unusable_model_is_not_selected(open_page):
    watched = open_page("text=" + LONG.replace(" ", "+") + "&model=default&step=6&pad=1")
    watched.expected = ("400",)
    page = watched.page
    page.select_option("#model", "stages")
    page.wait_for_selector("#error:not([hidden])")
    assert watched.text("#error").startswith("stages was not selected: ")
    assert page.input_value("#model") == "default"
    assert "model=default" in watched.fragment()
    assert watched.text("#pad-count") == "1 padding token"
    assert page.is_checked("#positions-rotary")
    assert "(model)" in watched.text("label:has(#positions-rotary)")
    assert page.locator("#stale-note").count() == 0
    assert watched.page.is_visible("#changed-note")


def test_token_panel_belongs_to_the_previous_walk(open_page, pipelines):
    watched = open_page("text=I+love+dogs&model=default&step=3")
    watched.expected = ("400",)
    page = watched.page
    page.evaluate("location.hash = 'text=' + 'word+'.repeat(90) + '&model=stages&step=3'")
    page.wait_for_selector("#stale-note")
    page.click(".token-card >> nth=1")
    page.wait_for_selector("#token h3")
    shown = [float(cell["value"]) for cell in watched.shown("#token") if cell.get("field") == "channel"]
    assert shown == describe_token(pipelines["default"], 812).row


def test_missing_models_are_reported(browser, client):
    watched = watch(browser.new_context(), f"http://127.0.0.1:{client.port}/?token={client.token}#step=5")
    watched.expected = ("Failed to load",)
    page = watched.page
    page.route("**/api/models", lambda route: route.abort())
    watched.open()
    assert "The server does not respond" in watched.text("#error")
    assert watched.text("#start-over") == "Reload the page"
    page.evaluate("location.hash = 'step=6'")  # must not fail before the models are known
    page.unroute("**/api/models")
    page.click("#start-over")
    page.wait_for_selector(".figure[data-step='6']")
    assert urlsplit(page.url).fragment.endswith("step=6")
    watched.finish()

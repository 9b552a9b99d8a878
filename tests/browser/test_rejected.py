"""A request that is refused: the page says so, shows the walk before as such, and offers a way on."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.browser.watching import watch

LONG = "word " * 90  # more than the 64 positions of "stages"


def test_what_is_drawn_is_marked_as_the_walk_before(open_page):
    watched = open_page("text=I+love+dogs&model=stages&step=5")
    watched.expected = ("400",)
    page = watched.page
    page.fill("#texts textarea", LONG)
    page.wait_for_selector("#stale-note")
    assert "outside 0..63" in watched.text("#error")
    assert "\u201cI\u2423love\u2423dogs\u201d, through stages" in watched.text("#stale-note")
    page.click("#step-7")
    page.wait_for_selector(".stale .figure[data-step='7']")  # the step that the path and the address name
    assert watched.text("#steps [aria-current=step] .step-button-number") == "7"
    assert watched.page.evaluate("getComputedStyle(document.querySelector('.stale .figure')).filter") == "grayscale(1)"
    assert page.input_value("#texts textarea") == LONG
    page.click("#go-back")
    page.wait_for_selector("#stale-note", state="detached")
    assert page.is_hidden("#error")
    assert page.locator(".stale").count() == 0
    assert page.input_value("#texts textarea") == "I love dogs"
    assert "step=7" in watched.fragment()


def test_a_link_that_fails_says_what_to_do(open_page):
    watched = open_page("text=I+love+dogs&model=default&step=5&swap=0,99")
    watched.expected = ("400",)
    page = watched.page
    page.wait_for_selector("#leave-out")
    assert "Change the text, take another model" in watched.text("#stage")
    assert page.get_attribute("#stage", "aria-busy") == "false"
    page.click("#leave-out")
    page.wait_for_selector(".figure[data-step='5']")
    assert page.is_hidden("#error")
    assert "swap" not in watched.fragment()


def test_a_link_that_fails_can_start_over(open_page):
    watched = open_page("text=" + LONG.replace(" ", "+") + "&model=stages&step=5")
    watched.expected = ("400",)
    watched.page.click("#start-over")
    watched.page.wait_for_selector(".figure[data-step='1']")
    assert watched.page.input_value("#texts textarea") == "I love dogs"


def test_a_model_that_refuses_is_not_taken(open_page):
    watched = open_page("text=" + LONG.replace(" ", "+") + "&model=default&step=6&pad=1")
    watched.expected = ("400",)
    page = watched.page
    page.select_option("#model", "stages")
    page.wait_for_selector("#error:not([hidden])")
    assert watched.text("#error").startswith("stages was not taken: ")
    assert page.input_value("#model") == "default"
    assert "model=default" in watched.fragment()
    assert watched.text("#pad-count") == "1 pad token"
    assert page.is_checked("#positions-rotary")
    assert "(own)" in watched.text("label:has(#positions-rotary)")
    assert page.locator("#stale-note").count() == 0
    assert watched.page.is_visible("#changed-note")


def test_a_token_of_the_walk_before_is_its_models(open_page, lines):
    watched = open_page("text=I+love+dogs&model=default&step=3")
    watched.expected = ("400",)
    page = watched.page
    page.evaluate("location.hash = 'text=' + 'word+'.repeat(90) + '&model=stages&step=3'")
    page.wait_for_selector("#stale-note")
    page.click(".token-card >> nth=1")
    page.wait_for_selector("#token h3")
    shown = [float(cell["value"]) for cell in watched.shown("#token") if cell.get("field") == "channel"]
    assert shown == lines["default"].token(812).row


def test_without_the_models_the_page_says_so(browser, place):
    watched = watch(browser.new_context(), f"http://127.0.0.1:{place.port}/?token={place.token}#step=5")
    watched.expected = ("Failed to load",)
    page = watched.page
    page.route("**/api/models", lambda route: route.abort())
    watched.open()
    assert "The server does not answer" in watched.text("#error")
    assert watched.text("#start-over") == "Load the page again"
    page.evaluate("location.hash = 'step=6'")  # nothing is known yet, and nothing may fail of it
    page.unroute("**/api/models")
    page.click("#start-over")
    page.wait_for_selector(".figure[data-step='6']")
    assert urlsplit(page.url).fragment.endswith("step=6")
    watched.finish()

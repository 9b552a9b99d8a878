"""No request leaves loopback, no text becomes markup, and the content security policy holds; each check can fail."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from inlayer.trace.html import content_security_policy, export, page
from tests.browser.watched_page import leaves_loopback, watch

pytestmark = pytest.mark.slow

HOSTILE = [
    "</script><img src=x onerror=window.hacked=1>",
    "<!--<script>window.hacked=1</script>",
    "{{script}}{{data}}\u2028\u2029]]>",
    "\u202egnp.exe\u0000\u0007 & &lt;b&gt; \"quoted\" 'text'",
    "javascript:window.hacked=1 \U0001f600",
]


def test_hostile_texts_stay_text_on_the_served_page(open_page):
    watched = open_page(urlencode([*(("text", text) for text in HOSTILE), ("step", 3)]))
    for step in (1, 2, 8, 5, 3):
        watched.step(step)
        assert "\ufffd" not in watched.text("#stage")
    watched.page.click(".token-card >> nth=0")
    watched.page.wait_for_selector("#token h3")
    assert watched.page.evaluate("window.hacked") is None
    assert watched.page.locator("img").count() == 0
    texts = watched.page.eval_on_selector_all("#texts textarea", "(all) => all.map((one) => one.value)")
    assert texts == HOSTILE


def test_hostile_texts_stay_text_in_the_exported_file(open_file, pipelines, tmp_path):
    file = tmp_path / "hostile.html"
    texts = [
        "<b",
        "".join(HOSTILE[:3]),
    ]  # the first text is short, because an export contains every swap of its first tokens
    file.write_text(export(pipelines["random"], texts), encoding="utf-8")
    watched = open_file(file)
    for step in (1, 2, 3, 5):
        watched.step(step)
    assert watched.page.evaluate("window.hacked") is None
    assert watched.page.locator("img").count() == 0
    shown = watched.page.eval_on_selector_all("#texts textarea", "(all) => all.map((one) => one.value)")
    assert shown == texts
    assert watched.page.title() == "5 Lookup: <b \u2013 inlayer"


def test_requests_to_other_hosts_are_detected(browser, client):
    """Control for the other tests: a request to another host is caught."""
    watched = watch(browser.new_context(), f"http://127.0.0.1:{client.port}/?token={client.token}#step=5")
    watched.page.route("http://example.test/**", lambda route: route.fulfill(body=""))
    watched.open()
    watched.page.context.new_page()
    watched.page.evaluate("fetch('http://example.test/').catch(() => 0)")
    watched.page.wait_for_timeout(100)
    caught = watched.outside() or watched.violations()
    assert caught
    with pytest.raises(AssertionError):
        watched.finish()


def test_which_requests_leave_loopback():
    assert leaves_loopback("https://example.test/x")
    assert leaves_loopback("http://127.0.0.1.example.test:80/")
    assert not leaves_loopback("http://127.0.0.1:8000/api/walk")
    assert not leaves_loopback("data:image/svg+xml,x")


ATTEMPTS = {
    "script": "document.body.append(Object.assign(document.createElement('script'), {textContent: 'hacked = 1'}))",
    "handler": "document.body.insertAdjacentHTML('beforeend', '<img src=data:, onerror=\"hacked = 1\">')",
    "style": "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')",
    "fetch": "fetch('http://127.0.0.1:9/').catch(() => 0)",
    "frame": "document.body.insertAdjacentHTML('beforeend', '<iframe src=\"http://127.0.0.1:9/\"></iframe>')",
}


def test_policy_blocks_injected_code(open_page):
    watched = open_page("text=Hi&step=5")
    watched.expected = ("Content Security Policy", "Refused", "violates")
    for seen, attempt in enumerate(ATTEMPTS.values()):
        watched.page.evaluate(f"() => {{ {attempt} }}")
        watched.page.wait_for_timeout(80)
        assert len(watched.violations()) > seen, attempt
    assert watched.page.evaluate("window.hacked") is None


def test_exported_page_contains_its_policy(open_file, pipelines, tmp_path):
    file = tmp_path / "walk.html"
    file.write_text(export(pipelines["random"], ["Hi"]), encoding="utf-8")
    watched = open_file(file)
    watched.expected = ("Content Security Policy", "Refused", "violates", "Failed to fetch")
    watched.page.evaluate("fetch('http://127.0.0.1:9/').catch(() => 0)")
    watched.page.wait_for_timeout(100)
    assert any("connect-src" in one or "default-src" in one for one in watched.violations())


# ---- the document, without a browser


def test_data_cannot_break_out():
    made = page(title=HOSTILE[0], data={"text": HOSTILE})
    inside = made.split('id="facts">')[1]
    assert inside.index("</script>") == inside.index("<")  # the first bracket ends the data
    assert made.isascii() or all(line.isascii() for line in inside.split("</script>")[0].splitlines())
    assert "<title>&lt;/script&gt;" in made
    assert "\u2028" not in made


def test_policy_allows_one_script_and_one_style():
    for served in (True, False):
        policy = content_security_policy(served=served)
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert policy.count("sha256-") == 2
        assert ("connect-src 'self'" in policy) == served
    assert content_security_policy(served=True) not in page(title="", data=None)  # sent as a header
    assert content_security_policy(served=False) in page(title="", data={})


def test_page_refers_to_no_other_host():
    made = page(title="", data=None)
    assert "https://" not in made
    addresses = {part.split("'")[0].split('"')[0] for part in made.split("http://")[1:]}
    assert addresses <= {"www.w3.org/2000/svg"}  # a namespace, not an address
    for forbidden in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", ' style="', "onclick="):
        assert forbidden not in made

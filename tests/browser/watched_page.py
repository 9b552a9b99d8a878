"""A browser page that records its requests, errors and policy violations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

READY = "#stage[aria-busy=false] h1, #error:not([hidden])"
TIMEOUT = 300_000  # milliseconds: the machine may be busy
# Pages stand still: a test reads the same text however busy the machine is. MOVING is for tests of the motion itself.
STILL, MOVING = {"reduced_motion": "reduce"}, {"reduced_motion": "no-preference"}
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}
# Reported by the browser itself, so the page cannot hide it.
REPORT_VIOLATIONS = """
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) =>
    window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass
class Watched:
    """A page in its own browser context. `expected` lists errors that the test causes on purpose."""

    page: Page
    address: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def open(self) -> None:
        self.page.goto(self.address)
        self.page.wait_for_selector(READY)

    def outside(self) -> list[str]:
        """Requests that leave this machine."""
        return [url for url in self.requests if leaves_loopback(url)]

    def violations(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.violations")
        return found

    def finish(self) -> None:
        """Close the page, and fail if it did something unexpected."""
        violations = self.violations()
        self.page.context.close()
        errors = [one for one in self.errors if not any(known in one for known in self.expected)]
        assert self.outside() == []
        assert errors == []
        if not self.expected:
            assert violations == []

    def settle(self) -> None:
        """Wait until the current request is drawn."""
        self.page.wait_for_timeout(20)
        self.page.wait_for_selector(READY)

    def step(self, number: int) -> None:
        self.page.click(f"#step-{number}")
        self.page.wait_for_selector(f".figure[data-step='{number}'], .question")

    def shown(self, inside: str = "#stage") -> list[dict[str, Any]]:
        """Every number shown, with its place and its text."""
        found: list[dict[str, Any]] = self.page.evaluate(
            """(inside) => [...document.querySelectorAll(inside + " [data-value]")].map((element) => ({
                 ...element.dataset, written: element.firstChild?.nodeType === 3 ? element.firstChild.data : "",
                 classes: element.className }))""",
            inside,
        )
        return found

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def inspector(self) -> str:
        return self.page.inner_text("#inspector")

    def fragment(self) -> str:
        return urlsplit(self.page.url).fragment


def watch(context: BrowserContext, address: str) -> Watched:
    context.set_default_timeout(TIMEOUT)
    context.add_init_script(REPORT_VIOLATIONS)
    page = context.new_page()
    watched = Watched(page, address)
    page.on("request", lambda request: watched.requests.append(request.url))
    page.on("pageerror", lambda error: watched.errors.append(f"error: {error}"))
    page.on(
        "console",
        lambda message: (
            watched.errors.append(f"console: {message.text}") if message.type in ("error", "warning") else None
        ),
    )
    return watched


def leaves_loopback(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme in ("data", "blob", "about", "file"):
        return False
    return parts.netloc.rpartition(":")[0] not in LOOPBACK

"""A page with a witness: what it asked for, what it complained of, what numbers it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

READY = "#stage[aria-busy=false] h1, #error:not([hidden])"
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}
# Reported by the browser itself, so that nothing the page does can hide it.
WITNESS = """
  window.breaches = [];
  document.addEventListener("securitypolicyviolation", (event) =>
    window.breaches.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass
class Watched:
    """A page of its own context. `expected` holds complaints that the test brings about on purpose."""

    page: Page
    address: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def open(self) -> None:
        self.page.goto(self.address)
        self.page.wait_for_selector(READY)

    def outside(self) -> list[str]:
        """Requests that a network would see."""
        return [url for url in self.requests if leaves_loopback(url)]

    def breaches(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.breaches")
        return found

    def finish(self) -> None:
        """Close it, and fail for what it did in silence."""
        breaches = self.breaches()
        self.page.context.close()
        complaints = [one for one in self.complaints if not any(known in one for known in self.expected)]
        assert self.outside() == []
        assert complaints == []
        if not self.expected:
            assert breaches == []

    def settle(self) -> None:
        """Until a request that was asked for is drawn."""
        self.page.wait_for_timeout(20)
        self.page.wait_for_selector(READY)

    def step(self, number: int) -> None:
        self.page.click(f"#step-{number}")
        self.page.wait_for_selector(f".figure[data-step='{number}'], .question")

    def shown(self, inside: str = "#stage") -> list[dict[str, Any]]:
        """Every number on show, with its place and how it is written."""
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
    context.add_init_script(WITNESS)
    page = context.new_page()
    watched = Watched(page, address)
    page.on("request", lambda request: watched.requests.append(request.url))
    page.on("pageerror", lambda error: watched.complaints.append(f"error: {error}"))
    page.on(
        "console",
        lambda said: watched.complaints.append(f"console: {said.text}") if said.type in ("error", "warning") else None,
    )
    return watched


def leaves_loopback(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme in ("data", "blob", "about", "file"):
        return False
    return parts.netloc.rpartition(":")[0] not in LOOPBACK

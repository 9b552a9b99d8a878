"""The search of the documentation site, opened as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_docs import Links, site  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.html", "howto/layer.html"])
def test_search_works_without_a_server(browser: Browser, site: dict[Path, Links], name: str) -> None:  # noqa: F811
    folder = next(page.parent for page in site if page.name == "tour.html")
    requests: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.goto((folder / name).as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type("padding_idx")
    links = page.locator(".md-search-result__link")
    links.first.wait_for(state="attached")
    found = {Path(str(link.get_attribute("href")).partition("?")[0]).name for link in links.all()}
    assert found >= {"layers.html", "layer.html"}
    assert all(url.startswith(("file:", "about:")) for url in requests)
    page.close()

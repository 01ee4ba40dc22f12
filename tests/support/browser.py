"""Debian's Chromium, headless, watched: what it says, and whom it asks."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips where there is none, but never where the tests are to be whole."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is missing: make test installs it where it may.")
        pytest.skip("Chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and everything that it should not have done."""

    def __init__(self, page: Page, own: str):
        self.page, self.wrong = page, []
        page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self._dialog(dialog))
        page.on("request", lambda request: self._request(request.url, own))

    def _dialog(self, dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str, own: str) -> None:
        if not url.startswith((own, "data:")):
            self.wrong.append(f"request: {url}")


@contextmanager
def opened(browser: Browser, address: str, own: str = "file:///", **how) -> Iterator[Page]:
    """The page, loaded; in the end it must have done nothing wrong."""
    context = browser.new_context(**({"viewport": DESKTOP} | how))
    watched = Watched(context.new_page(), own)
    try:
        watched.page.goto(address)
        yield watched.page
    finally:
        context.close()
    assert watched.wrong == []


def barriers(page: Page) -> list[str]:
    """What axe-core finds that would keep people out, as the page stands."""
    found = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]

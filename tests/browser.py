"""A real Chromium for tests of the page: of files, and of what `agentv view` serves."""

import asyncio
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

INSTALL = "install it with `apt-get install -y chromium-headless-shell`, or name it in CHROMIUM"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first one has no window, and takes a third less time."""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
INSTALL_AXE = (
    "axe-core is not installed: run `npm install --prefix FOLDER axe-core` and name its axe.min.js in AXE_CORE"
)


@pytest.fixture(scope="session")
def browser_program():
    """The path of Chromium; skip the tests if it or Playwright, which drives it, is not installed."""
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install 'agentv[dev]'")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"Chromium is not installed: {INSTALL}")
    return program


@pytest.fixture(scope="session")
def shared_browser(browser_program):
    """A real Chromium, started once, and the event loop of its driver."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_program, args=FLAGS)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def browser(shared_browser):
    """The browser. Its event loop counts as running only in modules that use it: others have loops of their own."""
    browser, loop = shared_browser
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def tabs():
    """Blank tabs for files and for served pages: to start a tab costs more than to show a page in it."""
    return {"file": [], "http": []}


@pytest.fixture
def chromium(browser, tabs):
    """Open files and served pages in the browser, without the storage, cookies and history of the pages before."""

    @contextmanager
    def opened(place, fragment="", *, width=1440, height=900, scheme="light"):
        """A page of a file (a Path) or an address (a string). Errors and requests to other hosts are failures."""
        is_file = isinstance(place, Path)
        url = place.as_uri() if is_file else place
        problems = []
        listeners = {
            "pageerror": lambda error: problems.append(str(error)),
            "console": lambda line: problems.append(line.text) if line.type == "error" else None,
            "request": lambda sent: None if is_own(sent.url, url) else problems.append(sent.url),
        }
        blank = tabs[url.partition(":")[0]]
        page = blank.pop() if blank else browser.new_context(offline=is_file).new_page()
        context = page.context
        try:
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme, reduced_motion="no-preference")
            page.set_default_timeout(90_000)
            for event, listener in listeners.items():
                page.on(event, listener)
            page.goto(f"{url}{fragment}", wait_until="commit")
            page.wait_for_selector("html[data-ready]")
            yield page
            if not page.is_closed():
                for event, listener in listeners.items():
                    page.remove_listener(event, listener)
                clear(page)
                blank.append(page)
        finally:
            if page not in blank:
                context.close()
        assert problems == []

    return opened


def clear(page):
    """Make a tab as good as new."""
    page.unroute_all()
    page.evaluate("localStorage.clear()")
    page.goto("about:blank")
    page.context.clear_cookies()
    for other in page.context.pages:
        if other is not page:
            other.close()
    session = page.context.new_cdp_session(page)
    session.send("Page.resetNavigationHistory")
    session.detach()


def is_own(url, opened):
    """Whether a request stays in the page: data in it, the file itself, or the server that it came from."""
    if url.startswith(("data:", "blob:")):
        return True
    found, own = urlsplit(url), urlsplit(opened)
    return found.scheme == own.scheme and found.netloc == own.netloc


@pytest.fixture(scope="session")
def axe():
    """The text of axe-core, which finds accessibility problems; skip the tests if it is not installed."""
    path = os.environ.get("AXE_CORE")
    if not path or not Path(path).is_file():
        pytest.skip(INSTALL_AXE)
    return Path(path).read_text(encoding="utf-8")

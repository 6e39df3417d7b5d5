"""A Chromium that is signed in to a running portal; where there is none, one line says so."""

from __future__ import annotations

import shutil
import sys
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from tests.live_portal import LivePortal, running_portal

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DIST = Path(__file__).resolve().parents[2] / "frontend" / "dist" / "index.html"
PATIENCE_MS = 30_000
OUTCOME = pytest.StashKey[pytest.TestReport]()


expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: the pages are not tested")
    if not DIST.is_file():
        pytest.skip("the front end is not built: run `make frontend`")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, live_portal: LivePortal) -> Iterator[BrowserContext]:
    """One session for all tests: signing in is limited to a few attempts a minute."""
    context = browser.new_context(base_url=live_portal.base_url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Email").fill(live_portal.admin_email)
    page.get_by_label("Password").fill(live_portal.admin_password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("region", name="Accelerators").wait_for()
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(signed_in: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page whose script errors fail the test; where that fails, what the page says and what it waits for is shown."""
    opened = signed_in.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    asked: deque[Request] = deque(maxlen=25)
    opened.on("request", lambda one: asked.append(one))  # a builtin has no signature
    yield opened
    if (report := request.node.stash.get(OUTCOME, None)) is not None and report.failed:
        sys.stdout.write(f"--- the page\n{opened.inner_text('body')}\n--- what it asked for last\n")
        sys.stdout.writelines(f"{_answer(one)}\n" for one in list(asked))
    opened.close()
    assert errors == []


def _answer(asked: Request) -> str:
    if (timing := asked.timing)["responseEnd"] < 0:
        return f"{asked.method} {asked.url}: {asked.failure or 'no answer yet'}"
    answer = asked.response()
    return f"{asked.method} {asked.url}: {answer.status if answer else 'none'} after {timing['responseEnd']:.0f} ms"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[OUTCOME] = report
    return report

"""A Chromium that is signed in to a running portal; where there is none, one line says so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

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
def page(signed_in: BrowserContext) -> Iterator[Page]:
    """A page whose script errors fail the test."""
    opened = signed_in.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert errors == []

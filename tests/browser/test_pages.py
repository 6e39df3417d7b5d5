"""Every page, at both widths and in both themes: it fits, is accessible and does not jump."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.checks import check_fits_and_is_accessible, check_is_accessible
from tests.browser.conftest import DIST, PATIENCE_MS
from tests.live_portal import LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]

PAGES = [
    "/", "/jobs", "/jobs/{job}", "/jobs/compare?jobs={job},{other}", "/submit", "/projects", "/projects/default",
    "/shares", "/fairness", "/usage", "/limits", "/cluster", "/cluster/throughput", "/notifications", "/tokens",
    "/policy", "/admin/people", "/admin/prices", "/admin/audit",
]  # fmt: skip
#: Cumulative Layout Shift: up to a tenth a page is called stable.
MOST_SHIFT = 0.1
MOST_SCRIPT_KB = 300
_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture(scope="module")
def some_jobs(live_portal: LivePortal) -> tuple[int, int]:
    one, other = (live_portal.submit(name=name, total_steps=60)["number"] for name in ("for-all-pages", "beside-it"))
    for number in (one, other):
        live_portal.wait_state(number, "succeeded")
    return int(one), int(other)


@pytest.fixture
def some_job(some_jobs: tuple[int, int]) -> int:
    return some_jobs[0]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_every_page_fits_is_accessible_and_does_not_jump(
    page: Page, some_jobs: tuple[int, int], path: str, width: int, theme: Any
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)
    page.add_init_script(_SHIFTS)
    page.goto(path.format(job=some_jobs[0], other=some_jobs[1]))
    page.locator(".page section, .page form").first.wait_for()
    check_fits_and_is_accessible(page)
    assert page.evaluate("window.shift") <= MOST_SHIFT
    page.emulate_media(color_scheme="light" if theme == "dark" else "dark")
    check_is_accessible(page, "color-contrast")


def test_the_first_page_needs_little_script() -> None:
    html = DIST.read_text()
    scripts = re.findall(r'(?:src|href)="/static/([^"]+\.js)"', html)
    assert scripts
    size_kb = sum(len(gzip.compress((DIST.parent / name).read_bytes())) for name in scripts) / 1000
    assert size_kb < MOST_SCRIPT_KB


def test_a_job_is_submitted_by_keyboard_alone(page: Page) -> None:
    page.goto("/")
    page.get_by_role("region", name="Accelerators").wait_for()
    page.keyboard.press("c")
    page.get_by_role("radio", name=re.compile("digits_mlp")).wait_for()
    tab_to(page, "document.activeElement.role === 'radio' && document.activeElement.innerText.startsWith('digits_mlp')")
    page.keyboard.press("Space")
    tab_to(page, "document.activeElement.labels?.[0]?.innerText === 'Steps'")
    page.keyboard.press("Control+a")
    page.keyboard.type("40")
    tab_to(
        page, "document.activeElement.innerText.startsWith('Submit job') && document.activeElement.type === 'submit'"
    )
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs/\d+$"))


def tab_to(page: Page, there: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(there):
            return
    raise AssertionError(f"not reached with the key Tab: {there}")


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def away(
    request: Any, browser: Browser, signed_in: BrowserContext, live_portal: LivePortal
) -> Iterator[tuple[str, Page]]:
    """The same person in another time zone."""
    context = browser.new_context(
        base_url=live_portal.base_url, storage_state=signed_in.storage_state(), timezone_id=request.param
    )
    context.set_default_timeout(PATIENCE_MS)
    yield request.param, context.new_page()
    context.close()


def test_times_are_those_of_where_one_is(away: tuple[str, Page], live_portal: LivePortal, some_job: int) -> None:
    zone, page = away
    submitted = datetime.fromisoformat(live_portal.job(some_job)["submitted_at"]).astimezone(ZoneInfo(zone))
    page.goto(f"/jobs/{some_job}")
    expect(page.locator(".page").get_by_text(re.compile(f"{submitted:%H:%M}")).first).to_be_visible()

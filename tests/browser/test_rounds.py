"""Kept rounds and what-ifs in a browser: a round is opened and planned again; a job and a node are asked about."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import WIDE, WIDTHS, asked, open_page, panel
from tests.live_portal import LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]
#: A worker has to take it, maybe after others.
WORKED_OUT_MS = 90_000


@pytest.fixture(scope="module")
def waiting(live_portal: LivePortal) -> int:
    """One has all GPUs, and this one waits for it."""
    live_portal.submit(name="has-all", **WIDE)
    number = int(live_portal.submit(name="waits", **WIDE)["number"])
    for _ in range(100):
        if asked(live_portal, "rounds?moved=true")["results"]:
            break
    return number


@WIDTHS
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_round_is_opened_and_planned_again(
    page: Page, live_portal: LivePortal, waiting: int, width: int, scheme: str
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    open_page(page, "/lab", width)
    page.get_by_role("link", name="Rounds").click()
    link = panel(page, "Rounds").get_by_role("link", name=re.compile("^Round ")).first
    expect(link).to_be_visible()
    check_fits_and_is_accessible(page)
    link.click()
    newest = asked(live_portal, "rounds?moved=true")["results"][0]
    round_ = asked(live_portal, f"rounds/{newest['round']}")
    for job in round_["jobs"]:
        expect(panel(page, "Jobs")).to_contain_text(job["reason"]["text"])
    expect(panel(page, "GPUs").get_by_role("img").first).to_be_visible()
    again = panel(page, "Run again under…")
    again.get_by_role("button", name="Run again").click()
    expect(again.get_by_role("status")).to_contain_text("The same plan", timeout=WORKED_OUT_MS)
    again.get_by_label("Policy").select_option("fifo_gang")
    again.get_by_role("button", name="Run again").click()
    expect(again.get_by_role("status")).to_contain_text("Planned in", timeout=WORKED_OUT_MS)
    again.get_by_role("button", name="All").click()
    expect(again.get_by_role("row").filter(has_text="has-all").first).to_be_visible()
    check_fits_and_is_accessible(page)


def test_the_reason_of_a_job_leads_to_its_round(page: Page, live_portal: LivePortal, waiting: int) -> None:
    why = asked(live_portal, f"jobs/{waiting}/explanation")
    open_page(page, f"/jobs/{waiting}", 1440)
    panel(page, "Why it waits").get_by_role("link", name=re.compile("^round ")).click()
    expect(page).to_have_url(re.compile(f"/lab/rounds/{why['round']}$"))


@WIDTHS
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_job_is_compared_on_other_gpus(
    page: Page, live_portal: LivePortal, waiting: int, width: int, scheme: str
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    open_page(page, f"/jobs/{waiting}", width)
    what_if = panel(page, "What if…")
    what_if.get_by_label("Numbers of GPUs").fill("2, 64")
    what_if.get_by_label("Numbers of GPUs").press("Enter")
    table = what_if.get_by_role("table")
    expect(table).to_contain_text("There are", timeout=WORKED_OUT_MS)
    expect(table).to_have_js_property("isConnected", True)
    expect(what_if.locator(".tw")).to_have_attribute("aria-busy", "false", timeout=WORKED_OUT_MS)
    expect(what_if.get_by_role("alert")).to_have_count(0)
    check_fits_and_is_accessible(page)
    what_if.get_by_label("Numbers of GPUs").fill("none")
    what_if.get_by_role("button", name="Compare").click()
    expect(what_if.get_by_label("Numbers of GPUs")).to_have_attribute("aria-invalid", "true")


def test_a_draft_is_compared_beside_its_form(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/submit", 1440)
    what_if = panel(page, "What if…")
    what_if.get_by_role("button", name="Compare").click()
    expect(what_if.get_by_role("row")).not_to_have_count(0, timeout=WORKED_OUT_MS)
    expect(what_if.locator(".tw")).to_have_attribute("aria-busy", "false", timeout=WORKED_OUT_MS)
    expect(page).to_have_url(re.compile("/submit$"))


@WIDTHS
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_more_node_is_asked_about(
    page: Page, live_portal: LivePortal, waiting: int, width: int, scheme: str
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    open_page(page, "/lab", width)
    page.get_by_role("link", name="One more node").click()
    page.get_by_role("button", name="What if…").focus()
    page.keyboard.press("Enter")
    expect(panel(page, "A node")).to_contain_text("One more node of", timeout=WORKED_OUT_MS)
    expect(panel(page, "Jobs that wait")).to_contain_text("waits", timeout=WORKED_OUT_MS)
    expect(panel(page, "Jobs that run")).to_contain_text("has-all")
    check_fits_and_is_accessible(page)

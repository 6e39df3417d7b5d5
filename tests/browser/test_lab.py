"""The policy lab in a browser: jobs are chosen, simulated by the portal's own worker, and compared."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import WIDTHS, asked, open_page, panel
from tests.live_portal import LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]
#: The worker has to notice it, start two processes and simulate.
SIMULATED_MS = 120_000


def ask(page: Page, jobs: str) -> None:
    page.get_by_role("button", name="Synthetic mix").click()
    page.get_by_label("Number of jobs").fill(jobs)
    page.get_by_label("Try several values of").nth(0).wait_for()


@WIDTHS
def test_policies_are_compared_on_a_synthetic_mix(page: Page, live_portal: LivePortal, width: int) -> None:
    open_page(page, "/lab", width)
    page.get_by_role("link", name="New simulation").click()
    ask(page, "30")
    page.get_by_role("button", name="Add a policy").click()
    last = page.get_by_label("Policy", exact=True).nth(2)
    last.select_option("f_scheduling")
    page.get_by_label("Try several values of").last.select_option("v_bound")
    page.get_by_label("Values", exact=True).fill("0.05, 0.25")
    page.get_by_label("Name of the simulation").fill(f"A mix at {width}")
    check_fits_and_is_accessible(page)
    page.get_by_role("button", name="Simulate 4 trials").click()
    table = panel(page, "Results").get_by_role("row")
    expect(table).to_have_count(5, timeout=SIMULATED_MS)
    key = page.url.rsplit("/", 1)[1].split("?")[0]
    for row in asked(live_portal, f"simulations/{key}/table")["rows"]:
        expect(panel(page, "Results")).to_contain_text(row["label"])
    expect(panel(page, "Results").get_by_text("best:").first).to_be_attached()
    expect(page.get_by_role("img", name=re.compile("^Completion times"))).to_be_visible()
    expect(panel(page, "Winners and losers").get_by_role("row")).to_have_count(2)  # the head and one project
    panel(page, "Winners and losers").get_by_role("button", name="Jobs").click()
    expect(panel(page, "Winners and losers").get_by_role("row").nth(5)).to_be_visible()
    check_fits_and_is_accessible(page)


def test_one_may_do_it_all_with_the_keyboard(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/lab/new", 1440)
    page.get_by_role("button", name="Synthetic mix").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Number of jobs").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("20")
    page.keyboard.press("Enter")
    cursor = page.get_by_role("group", name=re.compile("^Allocations over time"))
    expect(cursor).to_be_visible(timeout=SIMULATED_MS)
    cursor.focus()
    page.keyboard.press("ArrowRight")
    expect(cursor.get_by_text(re.compile("^after "))).to_have_count(2)
    page.get_by_label("Compared with it").focus()
    page.keyboard.press("ArrowUp")
    expect(page).to_have_url(re.compile("other="))


def test_what_is_wrong_is_said_where_it_was_typed(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/lab/new", 1440)
    ask(page, "30000")
    page.get_by_role("button", name=re.compile("^Simulate")).click()
    field = page.get_by_label("Number of jobs")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("10")
    page.get_by_role("button", name="Other nodes").click()
    page.get_by_label("Nodes", exact=True).first.fill("0")
    page.get_by_role("button", name=re.compile("^Simulate")).click()
    expect(panel(page, "Hardware").get_by_role("alert")).to_be_visible()

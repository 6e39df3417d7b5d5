"""The pages of projects, people, prices and the audit log: what is done there is done, and each fits and reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import WIDTHS, asked, open_page, panel
from tests.live_portal import LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


@WIDTHS
def test_a_project_is_made_filled_archived_and_restored(page: Page, live_portal: LivePortal, width: int) -> None:
    key = f"lidar-{width}"
    open_page(page, "/projects", width)
    expect(page.locator("h1.say")).to_contain_text("this month")
    page.get_by_role("button", name="New project").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("Lidar")
    dialog.get_by_label("Key").fill("default")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is taken")
    check_fits_and_is_accessible(page)
    dialog.get_by_label("Key").fill(key)
    dialog.get_by_label("Below").select_option("default")
    dialog.get_by_role("button", name="Create").click()
    expect(page).to_have_url(re.compile(rf"/projects/{key}$"))
    expect(page.locator("h1.say")).to_contain_text("Lidar has 0 GPUs")
    page.get_by_role("button", name="Add a member").click()
    dialog.get_by_label("E-mail").fill(f"new{width}@example.org")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("region", name="The invitation")).to_contain_text("/invitation#")
    expect(panel(page, "Invitations")).to_contain_text("open until")
    check_fits_and_is_accessible(page)
    page.get_by_role("button", name="Archive the project").click()
    dialog.get_by_role("button", name="Archive the project").click()
    expect(page.locator("h1.say")).to_contain_text("is archived")
    assert asked(live_portal, f"projects/{key}")["archived_at"] is not None
    page.get_by_role("button", name="Restore the project").click()
    expect(page.locator("h1.say")).to_contain_text("Lidar has")


@pytest.fixture
def budget(live_portal: LivePortal) -> Iterator[None]:
    wish = {"project": "default", "kind": "money", "period": "month", "limit": "100"}
    with live_portal.api() as api:
        made = api.post("limits", json=wish).raise_for_status().json()
    yield
    with live_portal.api() as api:
        api.delete(f"limits/{made['id']}").raise_for_status()


@WIDTHS
@pytest.mark.parametrize(
    "path", ["/projects", "/projects/default", "/usage", "/admin/people", "/admin/prices", "/admin/audit"]
)
def test_every_page_fits_and_can_be_read(page: Page, budget: None, path: str, width: int) -> None:
    open_page(page, path, width)
    expect(page.locator("h1.say")).to_be_visible()
    expect(page.locator(".sk")).to_have_count(0)
    check_fits_and_is_accessible(page)
    page.reload()  # the address is served, not only routed to
    expect(page.locator("h1.say")).to_be_visible()


def test_a_budget_says_how_it_stands(page: Page, budget: None) -> None:
    open_page(page, "/usage", 1440)
    row = panel(page, "Budgets").get_by_role("row").filter(has_text="Money per month")
    expect(row).to_contain_text("of $100.00")
    expect(row).to_contain_text(re.compile("at its end|used up|too early to say"))


def test_a_price_is_set_from_now_on_and_never_in_the_past(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/admin/prices", 1440)
    page.get_by_role("button", name="New price").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Accelerator type").select_option("another type")
    dialog.get_by_label("Name of the type").fill("h300")
    dialog.get_by_label("Price").fill("0.05")
    dialog.get_by_label("From").fill("2020-01-01T00:00")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is past")
    dialog.get_by_label("From").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(panel(page, "Prices").get_by_role("row").filter(has_text="H300")).to_contain_text("$0.05")
    assert asked(live_portal, "prices?accelerator_type=h300&ended=false")["results"][0]["price_per_hour"] == "0.050000"


def test_the_audit_log_shows_what_was_done(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/admin/audit?action=session.", 1440)
    expect(panel(page, "Entries").locator("tbody tr").first).to_contain_text("session.create")
    page.get_by_label("Action").select_option("rate.")
    expect(page).to_have_url(re.compile(r"action=rate\."))

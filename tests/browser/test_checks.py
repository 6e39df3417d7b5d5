"""A node that fails its check: its page says why, and an administrator gives it work all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible, nodes_of
from tests.browser.test_what_pages_say import WIDTHS, asked, open_page, panel
from tests.live_portal import GENTLE, LivePortal, running_portal
from tests.supervisor.running import overriding

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    """Its disk is too full, by the bound that it was given."""
    with running_portal(**overriding(NODE_CHECK_FREE_MIB=10**9)) as portal:
        portal.wait_for("the check", lambda: [n["check"]["state"] for n in nodes_of(portal)] == ["failed"])
        yield portal


@WIDTHS
def test_a_failed_check_says_what_to_do_and_can_be_waived(page: Page, live_portal: LivePortal, width: int) -> None:
    number = live_portal.submit(**GENTLE | {"total_steps": 1_000_000})["number"]
    open_page(page, "/cluster", width)
    checks = panel(page, "Checks")
    found = checks.get_by_role("list", name="What the last check found")
    expect(found.get_by_role("listitem").first).to_contain_text("free space")
    expect(found.get_by_role("listitem").first).to_contain_text("make room")
    expect(panel(page, "Nodes").locator("tbody tr").first).to_contain_text("failed its check")
    check_fits_and_is_accessible(page)
    checks.get_by_role("button", name="Use anyway").click()
    live_portal.wait_state(number, "running")
    expect(checks.get_by_role("button", name="Use anyway")).to_have_count(0)
    check_fits_and_is_accessible(page)
    open_page(page, f"/cluster/nodes/{nodes_of(live_portal)[0]['name']}", width)
    panel(page, "Check").get_by_role("button", name="Check now").click()
    expect(panel(page, "Check").get_by_role("button", name="Use anyway")).to_be_visible()
    assert asked(live_portal, f"jobs/{number}")["state"] == "running"  # what runs there goes on
    check_fits_and_is_accessible(page)
    with live_portal.api() as api:
        api.post(f"jobs/{number}/cancel").raise_for_status()

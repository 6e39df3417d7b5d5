"""The page Limits: limits and guarantees are set, changed and taken back there, and refusals are shown."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import WIDTHS, asked, open_page, panel
from tests.live_portal import LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


@WIDTHS
def test_a_limit_is_set_changed_and_removed(page: Page, live_portal: LivePortal, width: int) -> None:
    open_page(page, "/limits", width)
    limits = panel(page, "What binds your jobs")
    expect(limits).to_contain_text("Nothing limits your jobs")
    page.get_by_role("button", name="New limit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Limits").select_option("gpu_hours")
    dialog.get_by_label("Per", exact=True).select_option("week")
    dialog.get_by_label("At most").fill("12.5")
    dialog.get_by_label("Of one person").fill("nobody@example.org")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is not a member of this project")
    dialog.get_by_label("Of one person").fill("")
    check_fits_and_is_accessible(page)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(limits.get_by_role("row").filter(has_text="GPU-hours per week")).to_contain_text("jobs wait")
    row = panel(page, "Limits that you may change").get_by_role("row").filter(has_text="GPU-hours per week")
    (made,) = asked(live_portal, "projects/default/limits")["results"]
    assert (made["limit"], made["hard"], made["project"]) == ("12.5", False, "default")
    row.get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Per", exact=True)).to_be_disabled()
    dialog.get_by_label("At most").fill("20")
    dialog.get_by_label("Hard").check()
    dialog.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("suspends jobs")
    expect(row).to_contain_text("20")
    expect(limits).to_contain_text("suspends jobs")
    check_fits_and_is_accessible(page)
    row.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove it").click()
    expect(limits).to_contain_text("Nothing limits your jobs")
    assert asked(live_portal, "projects/default/limits")["results"] == []


def test_gpus_are_guaranteed_and_no_more_than_there_are(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/limits", 1440)
    page.get_by_role("button", name="Guarantee GPUs").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("GPUs", exact=True).fill("7")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("6")
    dialog.get_by_label("GPUs", exact=True).fill("4")
    dialog.get_by_label("Of these Titan XP").fill("3")
    dialog.get_by_label("Back within seconds").fill("60")
    check_fits_and_is_accessible(page)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    row = panel(page, "Guaranteed GPUs").get_by_role("row").filter(has_text="default")
    expect(row).to_contain_text("3 Titan XP")
    expect(row).to_contain_text("1 min")
    assert asked(live_portal, "projects/default/guarantee")["gpus"] == 4
    row.get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Of these Titan XP")).to_have_value("3")
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.get_by_role("button", name="Guarantee GPUs")).to_have_count(0)
    row.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove it").click()
    expect(panel(page, "Guaranteed GPUs")).to_contain_text("None of your projects is guaranteed GPUs")

"""The page of usage: what it shows is what the API says, and what it is asked lives in its address."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import WIDTHS, asked, open_page, panel
from tests.live_portal import GENTLE, LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def holder(live_portal: LivePortal) -> Iterator[dict[str, Any]]:
    """A job that holds two accelerators all the time."""
    job = live_portal.submit(name="uses-two", **GENTLE, total_steps=1_000_000, gpus={"min": 2, "max": 2})
    live_portal.wait_state(job["number"], "running")
    path = f"jobs/{job['number']}/cost"
    live_portal.wait_for("its use", lambda: (asked(live_portal, path)["used_gpu_hours"] or 0) > 0)
    yield job
    with live_portal.api() as api:
        api.post(f"jobs/{job['number']}/cancel").raise_for_status()


@WIDTHS
def test_it_shows_what_was_used_by_whom(
    page: Page, live_portal: LivePortal, holder: dict[str, Any], width: int
) -> None:
    open_page(page, "/usage", width)
    expect(page.locator("h1.say")).to_contain_text("Your projects occupied")
    expect(page.get_by_label("Period")).to_have_value("30d")
    chart = panel(page, "GPU-hours").get_by_role("img", name=re.compile("by accelerator type"))
    expect(chart.locator("canvas")).to_be_visible()
    (row,) = asked(live_portal, "usage?group_by=project")["results"]
    expect(panel(page, "By project").locator("[data-row]")).to_contain_text(row["label"])
    expect(panel(page, "By project").locator("[data-row]")).to_contain_text("emulated")
    check_fits_and_is_accessible(page)
    page.get_by_role("group", name="By", exact=True).get_by_role("button", name="Job", exact=True).click()
    expect(page).to_have_url(re.compile(r"[?&]by=job"))
    expect(panel(page, "By job").locator("[data-row]").filter(has_text="uses-two")).to_contain_text(
        str(holder["number"])
    )
    page.reload()
    expect(panel(page, "By job")).to_be_visible()
    check_fits_and_is_accessible(page)


def test_the_csv_is_of_what_is_shown(page: Page, holder: dict[str, Any], tmp_path: Path) -> None:
    open_page(page, "/usage?by=job&period=7d", 1440)
    with page.expect_download() as download:
        panel(page, "By job").get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "usage.csv")
    with (tmp_path / "usage.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows if row["key"] == str(holder["number"])] == ["uses-two"]


@WIDTHS
def test_a_time_in_which_nothing_was_used_says_so(page: Page, holder: dict[str, Any], width: int) -> None:
    open_page(page, "/usage?from=2024-01-01&to=2024-01-31", width)
    expect(page.locator("h1.say")).to_contain_text("used no GPU")
    expect(panel(page, "GPU-hours")).to_contain_text("Nothing was used from 1 Jan to 31 Jan")
    expect(page.get_by_label("First day")).to_have_value("2024-01-01")
    check_fits_and_is_accessible(page)
    page.get_by_label("Period").select_option("7d")
    expect(page).to_have_url(re.compile(r"period=7d"))
    expect(page.locator("h1.say")).to_contain_text("last 7 days")

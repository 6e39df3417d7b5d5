"""The cluster's page: partitions and windows are made there, and shown with the nodes that they are on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import WIDTHS, asked, open_page, panel
from tests.live_portal import GENTLE, LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


def test_a_partition_is_made_offered_and_removed(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/cluster", 1440)
    expect(panel(page, "Partitions")).to_contain_text("every job may use every node")
    page.get_by_role("button", name="New partition").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("main")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("name nodes, accelerator types, or both")
    dialog.get_by_role("group", name="All nodes of").get_by_role("checkbox").first.check()
    dialog.get_by_label("GPUs of one job").fill("2")
    dialog.get_by_label("Jobs that name none").check()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    row = panel(page, "Partitions").get_by_role("row").filter(has_text="main")
    expect(row).to_contain_text("default")
    expect(row).to_contain_text("2 GPUs")
    expect(panel(page, "Nodes").locator("tbody tr").first).to_contain_text("main")
    assert asked(live_portal, "partitions/main")["max_gpus"] == 2
    open_page(page, "/submit", 1440)
    expect(page.get_by_label("Partition")).to_contain_text("main, the default")
    open_page(page, "/cluster", 1440)
    row.get_by_role("button", name="Remove").click()
    expect(panel(page, "Partitions")).to_contain_text("every job may use every node")


@WIDTHS
def test_a_window_is_set_shown_with_its_nodes_and_taken_back(page: Page, live_portal: LivePortal, width: int) -> None:
    open_page(page, "/cluster", width)
    page.get_by_role("button", name="New window").click()
    dialog = page.get_by_role("dialog")
    begins = datetime.now(UTC).astimezone() + timedelta(days=1)
    dialog.get_by_label("Reason").fill("new switches")
    dialog.get_by_label("Begins").fill(begins.strftime("%Y-%m-%dT%H:%M"))
    dialog.get_by_label("Ends").fill(begins.strftime("%Y-%m-%dT%H:%M"))
    dialog.get_by_role("button", name="Set window").click()
    expect(dialog.get_by_role("alert")).to_contain_text("after start_at")
    dialog.get_by_label("Ends").fill((begins + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M"))
    dialog.get_by_role("button", name="Set window").click()
    expect(dialog).to_have_count(0)
    windows = panel(page, "Windows")
    expect(windows.locator("tbody tr")).to_contain_text("new switches")
    expect(windows.locator("tbody tr")).to_contain_text("6 h")
    expect(panel(page, "Nodes").locator("tbody tr").first).to_contain_text("maintenance")
    check_fits_and_is_accessible(page)
    windows.get_by_role("button", name="Take back").click()
    expect(windows).to_contain_text("No maintenance and no reservation is to come")
    windows.get_by_role("button", name="Past").click()
    expect(windows.locator("tbody tr").first).to_contain_text(re.compile("removed"))


@WIDTHS
def test_a_node_is_drained_by_a_deadline_and_taken_back(page: Page, live_portal: LivePortal, width: int) -> None:
    open_page(page, "/cluster", width)
    panel(page, "Nodes").get_by_role("button", name="Drain").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile("No job is there|jobs? there"))
    dialog.get_by_role("button", name="Within 4 h").click()
    dialog.get_by_label("Reason").fill("new fans")
    check_fits_and_is_accessible(page)
    dialog.get_by_role("button", name=re.compile("^Drain")).click()
    expect(dialog).to_have_count(0)
    drains = panel(page, "Drains")
    expect(drains).to_contain_text("new fans")
    expect(panel(page, "Nodes").locator("tbody tr").first).to_contain_text(re.compile("drain(ed|ing)"))
    check_fits_and_is_accessible(page)
    with live_portal.api() as api:
        assert api.get("nodes").json()[0]["drain"]["reason"] == "new fans"
    drains.get_by_role("button", name=re.compile("Cancel drain|Resume")).click()
    expect(drains).to_have_count(0)
    with live_portal.api() as api:
        assert api.get("nodes").json()[0]["drain"] is None


@pytest.fixture(scope="module")
def jobs_of_a_node(live_portal: LivePortal) -> Iterator[tuple[int, int]]:
    """One that trains, and one that failed."""
    failed = live_portal.submit(name="fails-there", command="exit 3", model_type=None, retry={"limit": 0})["number"]
    live_portal.wait_state(failed, "failed")
    running = live_portal.submit(name="trains-there", **GENTLE | {"total_steps": 1_000_000})["number"]
    live_portal.wait_state(running, "running")
    yield running, failed
    with live_portal.api() as api:
        api.post(f"jobs/{running}/cancel").raise_for_status()


@WIDTHS
def test_a_node_has_a_page_with_its_jobs_its_use_and_what_went_wrong(
    page: Page, live_portal: LivePortal, jobs_of_a_node: tuple[int, int], width: int
) -> None:
    running, failed = jobs_of_a_node
    open_page(page, "/cluster", width)
    link = panel(page, "Nodes").get_by_role("link").first
    name = link.inner_text()
    link.click()
    expect(page).to_have_url(re.compile(f"/cluster/nodes/{re.escape(name)}$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"of {name} ")
    expect(page.locator("a.nav.on")).to_have_text("Cluster")
    expect(page.get_by_role("region", name="Figures")).to_contain_text("of 6")
    expect(panel(page, "Jobs").get_by_role("link", name=re.compile("trains-there"))).to_be_visible()
    expect(panel(page, "Accelerators").locator(f'a[href="/jobs/{running}"]').first).to_be_visible()
    expect(
        panel(page, "GPUs allocated").get_by_role("img", name=re.compile("GPUs allocated in each half hour"))
    ).to_be_visible()
    faults = panel(page, "Failed runs")
    expect(faults.get_by_role("link", name=re.compile("fails-there"))).to_have_attribute("href", f"/jobs/{failed}")
    expect(faults).to_contain_text("user error")
    expect(panel(page, "Events")).to_contain_text(f"{name} joined with 6")
    expect(page.locator(".fault")).to_have_count(0)
    check_fits_and_is_accessible(page)
    page.get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("new fans")
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Drain")).click()
    expect(panel(page, "Drains")).to_contain_text("new fans")
    expect(panel(page, "Events")).to_contain_text(f"{name} is drained (new fans)")
    check_fits_and_is_accessible(page)
    panel(page, "Drains").get_by_role("button", name="Resume").click()
    expect(panel(page, "Drains")).to_have_count(0)
    check = panel(page, "Check")
    expect(check.get_by_role("listitem")).to_contain_text(["devices", "job directory", "free space", "runner"])
    expect(check).to_contain_text(re.compile("(it joined|asked for)"))
    check.get_by_role("button", name="Check now").click()
    expect(check).to_contain_text(re.compile(r"Passed .*\(asked for by "), timeout=30_000)
    expect(panel(page, "Events")).to_contain_text(f"{name} was checked (it was requested): passed")
    open_page(page, "/cluster/nodes/nothing", width)
    expect(page.get_by_role("heading", level=1)).to_contain_text("There is no node nothing")


@WIDTHS
def test_throughputs_are_shown_with_their_sources_and_open_their_curve(
    page: Page, live_portal: LivePortal, width: int
) -> None:
    open_page(page, "/cluster/throughput", width)
    expect(page.locator("h1")).to_contain_text("on 1 GPU of each type")
    check_fits_and_is_accessible(page)
    page.get_by_label("Programs by name").fill("resnet50")
    rows = panel(page, "Steps per second").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("catalogue")
    rows.first.get_by_role("button").first.click()
    expect(page.get_by_role("dialog").get_by_role("img", name=re.compile("Steps per second"))).to_be_visible()
    check_fits_and_is_accessible(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="By GPU count").click()
    expect(page.locator("h1")).to_contain_text("on ")
    page.get_by_label("Programs by name").fill("nothing like it")
    page.get_by_role("button", name="Show all").click()
    expect(rows.first).to_be_visible()

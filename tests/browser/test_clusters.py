"""The switcher of clusters: pages follow it, it is remembered and stands in the address; jobs say their cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import open_page, panel
from tests.flows.test_clusters import JOB, two_clusters
from tests.live_portal import LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with two_clusters() as portal:
        with portal.api() as api:
            portal.wait_for("nodes of both", lambda: api.get("nodes").json() and api.get("nodes?cluster=fast").json())
        yield portal


def test_pages_follow_the_switcher_and_remember_it(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/cluster", 1440)
    switch = page.get_by_label("Cluster shown")
    expect(switch).to_have_value("slow")
    expect(page).to_have_url(re.compile("cluster=slow"))
    expect(panel(page, "Nodes")).to_contain_text("slow-node")
    switch.select_option("fast")
    expect(panel(page, "Nodes")).to_contain_text("fast-node")
    expect(panel(page, "Nodes")).not_to_contain_text("slow-node")
    expect(page).to_have_url(re.compile("cluster=fast"))
    open_page(page, "/", 1440)
    expect(switch).to_have_value("fast")
    expect(panel(page, "Accelerators")).to_contain_text("fast-node")
    check_fits_and_is_accessible(page)
    open_page(page, "/?cluster=slow", 1440)
    expect(switch).to_have_value("slow")
    expect(panel(page, "Accelerators")).to_contain_text("slow-node")


def test_a_job_is_submitted_to_a_cluster_and_says_so(page: Page, live_portal: LivePortal) -> None:
    chosen = live_portal.submit(**JOB, total_steps=100)
    open_page(page, "/submit", 1440)
    cluster = page.get_by_label("Cluster", exact=True)
    expect(cluster).to_have_value("")
    cluster.select_option("slow")
    open_page(page, "/jobs", 1440)
    row = page.get_by_role("row").filter(has_text=str(chosen["number"]))
    expect(row).to_contain_text("fast")
    open_page(page, f"/jobs/{chosen['number']}", 1440)
    expect(page.get_by_text(chosen["cluster"]["choice"])).to_be_visible()


def test_prices_and_weights_of_one_cluster_are_set_by_their_forms(page: Page, live_portal: LivePortal) -> None:
    open_page(page, "/admin/prices", 1440)
    page.get_by_role("button", name="New price").click()
    page.get_by_label("Cluster", exact=True).select_option("fast")
    page.get_by_label("Price", exact=True).fill("3.25")
    page.get_by_role("button", name="Save").click()
    expect(panel(page, "Prices")).to_contain_text(re.compile(r"on fast.*\$3\.25"))
    check_fits_and_is_accessible(page)
    open_page(page, "/projects/default", 1440)
    page.get_by_label("Weight on fast").fill("2.5")
    panel(page, "Settings").get_by_role("button", name="Save").click()
    expect(panel(page, "Settings")).to_contain_text("Saved.")
    check_fits_and_is_accessible(page)
    with live_portal.api() as api:
        assert api.get("projects/default").json()["cluster_shares"] == {"fast": 2.5}
        assert [rate["cluster"] for rate in api.get("prices").json()["results"] if rate["cluster"]] == ["fast"]

"""A node whose Slurm daemon is killed: what its pages and its job's page say meanwhile, and when it is back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from scripts.slurm_cluster import SlurmCluster
from tests.browser.checks import check_fits_and_is_accessible, nodes_of
from tests.browser.test_what_pages_say import asked, open_page, panel
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import GENTLE, LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def live_portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(slurm)
    with engine_portal(slurm, **settings) as portal:
        portal.wait_for("its nodes", lambda: nodes_of(portal))
        yield portal


def test_a_node_is_lost_and_returns(page: Page, live_portal: LivePortal, slurm: SlurmCluster) -> None:
    job = GENTLE | {"total_steps": 1_000_000, "throughput": {"a100": [0.4, 0.7]}, "gpus": {"min": 1, "max": 1}}
    number = live_portal.submit(**job, name="moves-on")["number"]
    live_portal.wait_state(number, "running", timeout_s=240)
    live_portal.wait_for("a checkpoint", lambda: live_portal.rows("SELECT 1 FROM jobs_run WHERE checkpoint_step > 0"))
    node = _node_of(live_portal)
    open_page(page, "/cluster", 1440)
    row = panel(page, "Nodes").get_by_role("row").filter(has_text=node)
    expect(row).not_to_contain_text("lost")
    os.kill(slurm.pid(f"slurmd.{node}"), signal.SIGKILL)
    try:
        expect(row).to_contain_text("lost", timeout=PATIENCE_MS)
        check_fits_and_is_accessible(page)
        live_portal.wait_for("it to go on elsewhere", lambda: _node_of(live_portal) not in (node, ""), 240)
        live_portal.wait_state(number, "running", timeout_s=240)
        open_page(page, f"/cluster/nodes/{node}", 1440)
        expect(page.get_by_role("main")).to_contain_text("lost")
        expect(panel(page, "Jobs")).not_to_contain_text("moves-on")
        check_fits_and_is_accessible(page)
    finally:
        slurm.start_node(node)
    expect(page.get_by_role("main")).to_contain_text("in service", timeout=PATIENCE_MS)
    events = [event["kind"] for event in asked(live_portal, f"nodes/{node}")["events"]]
    assert {"node_lost", "node_back"} <= set(events)
    open_page(page, f"/jobs/{number}", 1440)
    expect(page.get_by_role("main")).to_contain_text(node)
    check_fits_and_is_accessible(page)


def _node_of(portal: LivePortal) -> str:
    """Where something is held now."""
    held = portal.rows(
        "SELECT n.name FROM jobs_hold h JOIN jobs_accelerator a ON a.id = h.accelerator_id "
        "JOIN jobs_node n ON n.id = a.node_id WHERE upper_inf(h.during)"
    )
    return held[0][0] if held else ""

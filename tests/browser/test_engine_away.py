"""What pages say while a real Slurm's controller is away, and of a node that it knows nothing of."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings
from tests.executors.slurm import slurm as slurm  # a fixture
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def live_portal(slurm: SlurmCluster) -> Iterator[LivePortal]:
    settings = portal_settings(slurm)
    with engine_portal(slurm, **settings) as portal:
        yield portal


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_says_since_when_the_engine_is_away(
    page: Page, live_portal: LivePortal, slurm: SlurmCluster, width: int, theme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="light" if theme == "light" else "dark")
    if not live_portal.rows("SELECT 1 FROM jobs_cluster WHERE engine_away_since IS NOT NULL"):
        live_portal.wait_for("its nodes", lambda: live_portal.rows("SELECT 1 FROM jobs_node"))
        os.kill(slurm.pid("slurmctld"), signal.SIGKILL)
        away = "SELECT 1 FROM jobs_cluster WHERE engine_away_since IS NOT NULL"
        live_portal.wait_for("the note that it is away", lambda: live_portal.rows(away), 90)
    for path in ("/", "/jobs", "/cluster", "/submit"):
        page.goto(path)
        bar = page.get_by_test_id("engine-away")
        expect(bar).to_contain_text("Slurm has not answered since")
        expect(bar).to_contain_text("nothing is started, stopped or resized until it answers")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("TEST_PICTURES"):
            page.screenshot(path=f"{folder}/away-{path.strip('/') or 'overview'}-{theme}-{width}.png")

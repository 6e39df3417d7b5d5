"""An idle job on its page and on the overview; the button that gives it time; the rule's form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import WIDTHS, open_page, panel
from tests.live_portal import LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]
SLEEPER = """
import time, evenkeel
with evenkeel.training() as run:
    for step in run.steps():
        time.sleep(0.05 if step < 5 else 3_000)
"""


@pytest.fixture(scope="module")
def sleeper(live_portal: LivePortal) -> Iterator[dict[str, Any]]:
    program = live_portal.data / "sleeper.py"
    program.write_text(SLEEPER)
    program.chmod(0o644)
    with live_portal.api() as api:
        api.put("idle-rule", json={"warn_after_s": 3, "release_after_s": 3_600}).raise_for_status()
    job = live_portal.submit(name="sleeps", model_type=None, command=f"python {program}", gpus={"min": 1, "max": 1})
    live_portal.wait_for("the warning", lambda: live_portal.job(job["number"])["idle"])
    yield job
    with live_portal.api() as api:
        api.post(f"jobs/{job['number']}/cancel").raise_for_status()


@WIDTHS
def test_its_page_says_what_follows_and_puts_it_off(
    page: Page, live_portal: LivePortal, sleeper: dict[str, Any], width: int
) -> None:
    before = live_portal.job(sleeper["number"])["idle"]
    open_page(page, f"/jobs/{sleeper['number']}", width)
    note = page.get_by_role("status", name="Idle")
    expect(note).to_contain_text(re.compile("It is suspended with a checkpoint in .* unless it uses its GPUs again"))
    check_fits_and_is_accessible(page)
    note.get_by_role("button", name="Keep the GPUs").click()
    left = before["extensions_left"] - 1
    live_portal.wait_for("it", lambda: live_portal.job(sleeper["number"])["idle"]["extensions_left"] == left)
    expect(note).to_contain_text(re.compile(r"in (3|4)\s?h"))


def test_the_overview_marks_it(page: Page, sleeper: dict[str, Any]) -> None:
    open_page(page, "/", 1440)
    row = panel(page, "Running").get_by_role("row").filter(has_text="sleeps")
    expect(row).to_contain_text(re.compile("idle \\d+"))
    expect(panel(page, "Events").get_by_text(re.compile("almost unused|no step", re.IGNORECASE)).first).to_be_visible()


@WIDTHS
def test_the_rule_is_a_form_in_minutes_and_percent(page: Page, live_portal: LivePortal, width: int) -> None:
    open_page(page, "/policy", width)
    form = page.get_by_role("form", name="Idle GPUs")
    form.get_by_label("Warn after, min").fill("45")
    form.get_by_label("Suspend after, min").fill("30")
    form.get_by_role("button", name="Save").click()
    expect(form).to_contain_text("must be at least warn_after_s")
    form.get_by_label("Suspend after, min").fill("")
    form.get_by_label("Idle below, %").fill("10")
    form.get_by_role("button", name="Save").click()
    expect(form).to_contain_text("In force, for what is idle already too.")
    check_fits_and_is_accessible(page)
    with live_portal.api() as api:
        rule = api.get("idle-rule").json()
        assert (rule["warn_after_s"], rule["release_after_s"], rule["utilisation_below"]) == (2_700, None, 0.1)
        api.put("idle-rule", json={"warn_after_s": 3, "release_after_s": 3_600}).raise_for_status()

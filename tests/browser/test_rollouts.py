"""From a result into force in a browser: shadow, promote, roll back; by hand, by the portal, by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.browser.test_what_pages_say import asked, open_page, panel
from tests.live_portal import GENTLE, LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(1_200)]
SIMULATED_MS, JUDGED_MS = 480_000, 300_000
GREEDY = "fifo_gang (gang=max)"
SPEC: dict[str, Any] = {
    "workload": {"kind": "synthetic", "jobs": 20, "jobs_per_hour": 60.0},
    "policies": [{"name": "fifo_gang", "parameters": {"gang": "max"}}, {"name": "f_scheduling"}],
}


def call(portal: LivePortal, method: str, path: str, body: Any = None) -> Any:
    with portal.api() as api:
        return api.request(method, path, json=body).raise_for_status().json()


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal(EVENKEEL_VIRTUAL_ACCELERATORS="titan_xp:3") as portal:
        yield portal


@pytest.fixture(autouse=True)
def sharing(live_portal: LivePortal) -> Iterator[None]:
    """Two jobs that share the cluster under the live policy; afterwards nothing is left of them and of rollouts."""
    call(live_portal, "PUT", "policy", {"name": "f_scheduling", "parameters": {"v_bound": 0.2}})
    yield
    for row in call(live_portal, "GET", "rollouts?open=true")["results"]:
        step = "cancel" if row["phase"] == "shadow" else "roll-back"
        call(live_portal, "POST", f"rollouts/{row['id']}/{step}")
    for job in call(live_portal, "GET", "jobs?state=running,queued,starting,rescaling")["results"]:
        call(live_portal, "POST", f"jobs/{job['number']}/cancel")


def train(portal: LivePortal) -> int:
    return int(portal.submit(**GENTLE, total_steps=10**6, gpus={"min": 1, "max": 3})["number"])


def rollout_of(page: Page) -> str:
    page.wait_for_url(re.compile("/lab/rollouts/"))
    return page.url.rsplit("/", 1)[1]


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_the_whole_way_of_a_policy(page: Page, live_portal: LivePortal, width: int, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    # choose, run, compare
    open_page(page, "/lab/new", width)
    page.get_by_role("button", name="Synthetic mix").click()
    page.get_by_label("Number of jobs").fill("20")
    first = page.get_by_label("Policy", exact=True).nth(0)
    first.select_option("fifo_gang")
    page.get_by_label("Try several values of").first.select_option("gang")
    page.get_by_label("Values", exact=True).first.fill("max")
    page.get_by_role("button", name=re.compile("^Simulate")).click()
    into = panel(page, "Apply")
    expect(into).to_be_visible(timeout=SIMULATED_MS)
    expect(panel(page, "Winners and losers").get_by_role("row").nth(1)).to_be_visible()
    check_fits_and_is_accessible(page)
    # shadow
    into.get_by_role("button", name=f"Try in the shadow… {GREEDY}").click()
    asking = page.get_by_role("dialog")
    expect(asking).to_contain_text("nothing of it is done")
    check_fits_and_is_accessible(page)
    asking.get_by_role("button", name="Try in the shadow").click()
    key = rollout_of(page)
    expect(page.get_by_role("heading", level=1)).to_contain_text("decides in the shadow of f_scheduling")
    running = train(live_portal)
    live_portal.wait_state(running, "running", timeout_s=300)
    train(live_portal)
    decisions = panel(page, "Decisions")
    expect(decisions).to_contain_text("would have other GPUs", timeout=JUDGED_MS)
    decisions.get_by_text("would have other GPUs").last.click()
    expect(panel(page, "In the shadow")).to_contain_text("It has looked on at")
    check_fits_and_is_accessible(page)
    assert asked(live_portal, "policy")["name"] == "f_scheduling"
    # promote
    page.get_by_role("button", name="Promote…", exact=True).click()
    form = page.get_by_role("dialog")
    expect(form.get_by_text(re.compile("^Predicted: ")).first).to_be_visible()
    expect(form.get_by_label("p95 wait, at most (minutes)")).not_to_have_value("")
    check_fits_and_is_accessible(page)
    form.get_by_label("Watch it for (hours)").fill("0.05")
    form.get_by_label("Judge from so many jobs on").fill("1")
    form.get_by_label("p95 wait, at most (minutes)").fill("0.2")
    form.get_by_label("Variance of slowdown, at most").fill("")
    form.get_by_label("Utilisation while jobs wait").fill("")
    form.get_by_role("button", name="Put in force under guard").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("is in force under guard")
    assert asked(live_portal, "policy")["name"] == "fifo_gang"
    expect(panel(page, "Guard")).to_contain_text("at most 12 s")
    expect(panel(page, "Guard")).to_contain_text("not watched")
    open_page(page, "/policy", width)
    expect(page.get_by_role("status").filter(has_text=GREEDY)).to_contain_text("comes back by itself")
    check_fits_and_is_accessible(page)
    page.get_by_role("link", name="Look at it").click()
    if theme == "light":  # by the portal itself: whoever comes now waits for all GPUs
        train(live_portal)
        measured = panel(page, "Guard").get_by_role("img", name=re.compile("^p95 wait since"))
        expect(measured).to_be_visible(timeout=JUDGED_MS)
    else:
        page.get_by_role("button", name="Roll back now").click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("was rolled back to f_scheduling", timeout=JUDGED_MS)
    steps = panel(page, "Steps")
    expect(steps.get_by_role("row").last).to_contain_text(
        "the portal itself" if theme == "light" else "Rolled back by hand."
    )
    check_fits_and_is_accessible(page)
    policy = asked(live_portal, "policy")
    assert (policy["name"], policy["parameters"]["v_bound"]) == ("f_scheduling", 0.2)
    assert asked(live_portal, f"rollouts/{key}")["phase"] == "rolled_back"
    open_page(page, "/lab", width)
    expect(panel(page, "Rollouts").get_by_role("row").filter(has_text=GREEDY).first).to_contain_text("rolled back")
    check_fits_and_is_accessible(page)


def test_one_may_do_it_all_with_the_keyboard(page: Page, live_portal: LivePortal) -> None:
    made = call(live_portal, "POST", "simulations", SPEC)["id"]
    open_page(page, f"/lab/{made}", 1440)
    promote = panel(page, "Apply").get_by_role("button", name=f"Promote… {GREEDY}")
    expect(promote).to_be_visible(timeout=SIMULATED_MS)
    # What is wrong is said at its field, and nothing was done.
    promote.focus()
    page.keyboard.press("Enter")
    form = page.get_by_role("dialog")
    expect(form.get_by_text(re.compile("^Predicted: ")).first).to_be_visible()
    share = form.get_by_label("Utilisation while jobs wait")
    share.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("140")
    page.keyboard.press("Enter")
    expect(share).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Escape")
    expect(form).to_have_count(0)
    assert asked(live_portal, "policy")["name"] == "f_scheduling"
    # Into the shadow: the dialog begins at what changes nothing, and the button after it does it.
    panel(page, "Apply").get_by_role("button", name=f"Try in the shadow… {GREEDY}").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Not now")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    key = rollout_of(page)
    page.get_by_role("button", name="Promote…", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_text(re.compile("^Predicted: ")).first).to_be_visible()
    page.get_by_label("Watch it for (hours)").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("is in force under guard")
    page.get_by_role("button", name="Keep now").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Leave it")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("stays in force")
    assert asked(live_portal, f"rollouts/{key}")["phase"] == "kept"

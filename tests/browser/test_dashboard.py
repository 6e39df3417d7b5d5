"""What people do in the pages, in a real browser against a real portal."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.live_portal import GENTLE, LivePortal

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

LONG_JOB: dict[str, Any] = {**GENTLE, "total_steps": 50_000, "gpus": {"min": 1, "max": 2}}


def cancel(portal: LivePortal, number: int) -> None:
    with portal.api() as api:
        api.post(f"jobs/{number}/cancel")


@pytest.fixture(scope="module")
def ended_job(live_portal: LivePortal) -> int:
    """One that is there whatever other tests did."""
    number = live_portal.submit(name="has-ended", **LONG_JOB)["number"]
    cancel(live_portal, number)
    live_portal.wait_state(number, "cancelled")
    return int(number)


def test_a_wrong_password_is_refused_in_words(browser: Browser, live_portal: LivePortal) -> None:
    page = browser.new_page(base_url=live_portal.base_url)
    page.goto("/jobs")
    page.get_by_label("Email").fill(live_portal.admin_email)
    page.get_by_label("Password").fill("not-the-password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    expect(page.get_by_label("Email")).to_be_visible()
    page.close()


def test_the_overview_follows_without_reloading(page: Page, live_portal: LivePortal) -> None:
    page.goto("/")
    expect(page.get_by_test_id("live").first).to_contain_text("Live")
    number = live_portal.submit(name="seen-live", **LONG_JOB)["number"]
    running = page.get_by_role("region", name="Running")
    expect(running.get_by_text("seen-live")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("region", name="Events").get_by_text("seen-live").first).to_be_visible()
    expect(page.get_by_role("region", name="Accelerators").get_by_text("seen-live").first).to_be_visible()
    cancel(live_portal, number)
    expect(running.get_by_text("seen-live")).to_have_count(0, timeout=60_000)


def test_a_job_is_submitted_by_form_watched_and_cancelled(page: Page, live_portal: LivePortal) -> None:
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("digits_mlp")).click()
    page.get_by_label("Name", exact=True).fill("by-form")
    page.get_by_label("Steps", exact=True).fill("50,000")
    expect(page.get_by_role("region", name="Time and cost")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/jobs/\d+$"))
    number = int(page.url.rsplit("/", 1)[1])
    expect(page.get_by_role("heading", level=1)).to_contain_text("by-form")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Running", timeout=90_000)
    expect(page.get_by_label("Log of rank 0")).to_contain_text("step", timeout=60_000)
    expect(page.get_by_role("img", name="Loss over time")).to_be_visible(timeout=60_000)
    page.get_by_role("button", name="Cancel job").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("does not start again")
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cancelled", timeout=60_000)
    assert live_portal.wait_state(number, "cancelled")["spec"]["total_steps"] == 50_000


def test_the_preview_says_what_the_scheduler_would_do(page: Page) -> None:
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("digits_mlp")).click()
    page.get_by_label("Steps", exact=True).fill("50,000")
    said = page.get_by_role("region", name="What it would do")
    expect(said.get_by_role("heading")).to_have_text(re.compile("^Starts in"), timeout=15_000)
    expect(said).not_to_contain_text("replaying the queue", timeout=30_000)
    expect(said).to_contain_text("if it keeps those")
    expect(page.get_by_role("region", name="Effect on others")).to_be_visible()
    check_fits_and_is_accessible(page)


def test_a_preview_that_is_worked_out_anew_stays_readable(page: Page) -> None:
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("digits_mlp")).click()
    expect(page.get_by_role("region", name="Time and cost")).to_be_visible()
    page.route("**/jobs/preview", lambda _: None)  # never answered
    page.get_by_label("Steps", exact=True).fill("60,000")
    expect(page.locator("[aria-busy=true]")).to_contain_text("at today's prices")
    check_fits_and_is_accessible(page)
    page.unroute_all(behavior="ignoreErrors")


def test_an_error_stands_at_its_field_and_its_line(page: Page) -> None:
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("digits_mlp")).click()
    page.get_by_label("Steps", exact=True).fill("many")
    page.get_by_role("button", name=re.compile("Submit job")).click()
    expect(page.get_by_label("Steps", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_role("tab", name="YAML").click()
    expect(page.get_by_text(re.compile(r"^Line \d+: total_steps: "))).to_be_attached()
    page.get_by_label("Job file in YAML").fill("name: [unfinished\n")
    expect(page.get_by_text(re.compile(r"^Line \d+: "))).to_be_attached()
    expect(page.get_by_role("button", name=re.compile("Submit job"))).to_be_disabled()


def test_a_lost_connection_is_said_and_mended(page: Page) -> None:
    sockets: list[WebSocketRoute] = []
    cut = False

    def connect(socket: WebSocketRoute) -> None:
        if cut:
            socket.close()
        else:
            socket.connect_to_server()
            sockets.append(socket)

    page.route_web_socket(re.compile("/ws/v1/live"), connect)
    page.goto("/")
    expect(page.get_by_test_id("live").first).to_contain_text("Live")
    cut = True
    for socket in sockets:
        socket.close()
    bar = page.get_by_test_id("connection-lost")
    expect(bar).to_contain_text("Connection lost at")
    expect(page.get_by_role("region", name="Accelerators")).to_be_visible()
    cut = False
    bar.get_by_role("button", name="Try now").click()
    expect(bar).to_have_count(0)
    expect(page.get_by_test_id("live").first).to_contain_text("Live")


def test_keys_lead_everywhere(page: Page, ended_job: int) -> None:
    page.goto("/")
    page.get_by_role("region", name="Accelerators").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("/jobs$"))
    page.get_by_role("region", name="Jobs").get_by_role("link", name=re.compile("has-ended")).first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/jobs/\d+$"))
    page.keyboard.press("c")
    expect(page).to_have_url(re.compile("/submit$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_a_policy_shows_its_effect_before_it_is_applied(page: Page) -> None:
    page.goto("/policy")
    effect = page.get_by_role("region", name="Effect on the present queue")
    page.get_by_role("radio", name=re.compile("Max-min fairness max_min_fairness ")).click()
    expect(effect).to_contain_text(re.compile(r"would|The next round would give all jobs"), timeout=15_000)
    page.get_by_label("Round seconds").fill("-5")
    expect(effect.get_by_role("status")).to_contain_text("round_seconds", timeout=15_000)
    check_fits_and_is_accessible(page)
    page.get_by_role("radio", name=re.compile("in force")).click()
    expect(effect).to_have_count(0)


def test_the_policy_is_changed_and_the_change_undone(page: Page) -> None:
    page.goto("/policy")
    bound = page.get_by_label("V bound")
    before = bound.input_value()
    bound.fill("0.031")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("region", name="Changes")).to_contain_text("0.031")
    page.get_by_role("button", name="Undo the last change").click()
    expect(bound).to_have_value(before)


@pytest.mark.whole
def test_an_array_is_submitted_shown_and_cancelled_as_one(page: Page, live_portal: LivePortal) -> None:
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("digits_mlp")).click()
    page.get_by_label("Name", exact=True).fill("swept")
    page.get_by_label("Steps", exact=True).fill("50,000")
    page.get_by_text("Array, code, software").click()
    page.get_by_label("Array", exact=True).fill("0-5%1")
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/jobs\?array=\d+$"))
    number = page.url.rsplit("=", 1)[1]
    panel = page.get_by_role("region", name=f"Array {number}")
    expect(panel).to_contain_text("swept, indices 0-5")
    expect(page.get_by_text(f"{number}_5")).to_be_visible()
    panel.get_by_label("At once").fill("2")
    panel.get_by_role("button", name="Set").click()
    expect(panel.get_by_role("button", name="Set")).to_have_count(0)
    check_fits_and_is_accessible(page)
    panel.get_by_role("button", name="Cancel all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel all").click()
    expect(panel).to_contain_text("6 Cancelled", timeout=60_000)
    panel.get_by_role("button", name="Show all jobs").click()
    expect(page.get_by_role("row").filter(has_text=number).filter(has_text="array of 6 jobs")).to_contain_text(
        "6 Cancelled"
    )


def test_what_a_site_does_not_offer_is_refused_at_its_field_though_that_was_folded_away(page: Page) -> None:
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("digits_mlp")).click()
    page.get_by_label("Name", exact=True).fill("modular")
    folded = page.get_by_text("Array, code, software")
    folded.click()
    modules = page.get_by_label("Modules", exact=True)
    modules.fill("cuda/12.4 nccl")
    folded.click()
    expect(modules).to_be_hidden()
    page.keyboard.press("Control+Enter")
    expect(modules).to_be_visible()
    refusal = "cluster local does not offer the site's modules"
    expect(page.get_by_text(refusal, exact=True)).to_be_visible()
    expect(modules).to_have_attribute("aria-invalid", "true")
    check_fits_and_is_accessible(page)
    modules.fill("")
    page.get_by_label("Packages, a line each").fill("einops==0.8.1")
    page.get_by_role("tab", name="YAML").click()
    expect(page.get_by_label("Job file in YAML")).to_have_value(
        re.compile("environment:\n +requirements: einops==0.8.1\n")
    )


@pytest.mark.whole
def test_a_part_of_a_gpu_is_asked_for_drawn_and_explained(page: Page, live_portal: LivePortal) -> None:
    other = live_portal.submit(name="beside", **GENTLE, total_steps=50_000, gpus=0.25)["number"]
    live_portal.wait_state(other, "running")
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("digits_mlp")).click()
    page.get_by_label("Name", exact=True).fill("half")
    page.get_by_label("Steps", exact=True).fill("50,000")
    page.get_by_text("Part of one GPU").click()
    page.get_by_role("textbox", name="Share of one GPU").fill("120")
    expect(page.get_by_text(re.compile("^A whole number of percent, from 1 to 99"))).to_be_visible()
    page.get_by_role("textbox", name="Share of one GPU").fill("50")
    page.get_by_label("GPU memory").fill("900GiB")
    expect(page.get_by_text(re.compile("no type of GPU that the job may use has"))).to_be_visible()
    page.get_by_label("GPU memory").fill("4GiB")
    expect(page.get_by_role("region", name="What it would do")).to_contain_text("50")
    check_fits_and_is_accessible(page)
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/jobs/\d+$"))
    number = int(page.url.rsplit("/", 1)[1])
    card = page.get_by_role("region", name="Shares its GPU")
    expect(card).to_contain_text("4 GiB", timeout=60_000)
    expect(card.get_by_role("link", name=re.compile(f"{other}"))).to_be_visible()
    expect(card).to_contain_text("2.00")  # half as fast as alone, as planned
    check_fits_and_is_accessible(page)
    page.goto("/")
    grid = page.get_by_role("region", name="Accelerators")
    expect(grid.get_by_role("group", name=re.compile(rf"#{number} 50.%, #{other} 25.%, 25.% free"))).to_be_visible()
    check_fits_and_is_accessible(page)
    for one in (number, other):
        cancel(live_portal, one)

"""Numbers, reasons and pictures of a cluster in which one job runs and one waits; invitations; the mode it runs in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.checks import check_fits_and_is_accessible
from tests.live_portal import GENTLE, LivePortal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]
WIDTHS = pytest.mark.parametrize("width", [1440, 390])
#: Each needs all six accelerators, so that one waits for the other.
WIDE: dict[str, Any] = {**GENTLE, "total_steps": 1_000_000, "gpus": {"min": 6, "max": 6}}


@dataclass(frozen=True)
class Jobs:
    running: int
    waiting: int
    last: int


@pytest.fixture(scope="module")
def jobs(live_portal: LivePortal) -> Iterator[Jobs]:
    running = live_portal.submit(name="holds-all", **WIDE)["number"]
    live_portal.wait_state(running, "running")
    waiting = live_portal.submit(name="waits-behind", **WIDE)["number"]
    last = live_portal.submit(name="waits-last", **WIDE)["number"]
    # Out of protection nothing changes any more: reasons stay as they are.
    live_portal.wait_for("the last reason", lambda: live_portal.job(running)["reason"]["code"] == "keeps")
    live_portal.wait_for("a place", lambda: live_portal.job(last)["reason"]["code"] == "no_room")
    yield Jobs(running, waiting, last)
    with live_portal.api() as api:
        for number in (last, waiting, running):
            api.post(f"jobs/{number}/cancel").raise_for_status()


def asked(portal: LivePortal, path: str) -> dict[str, Any]:
    with portal.api() as api:
        return dict(api.get(path).raise_for_status().json())


def open_page(page: Page, path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(path)


def panel(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title)


def hover_text(place: Locator, text: str) -> Locator:
    return place.locator("svg title").filter(has_text=text).first


@WIDTHS
def test_the_overview_says_what_the_cluster_does(page: Page, live_portal: LivePortal, jobs: Jobs, width: int) -> None:
    tiles = asked(live_portal, "live/cluster")["state"]["tiles"]
    open_page(page, "/", width)
    names = ("Utilisation", "Queue", "Slowdown variance", "Spend")
    tile = {name: page.get_by_role("group", name=name) for name in names}
    expect(tile["Utilisation"].locator(".v")).to_have_text("100%")
    expect(tile["Utilisation"]).to_contain_text("6 of 6 GPUs have a job")
    expect(tile["Queue"].locator(".v")).to_have_text("2jobs")
    expect(tile["Queue"]).to_contain_text("oldest waits")
    expect(tile["Slowdown variance"].locator(".v")).to_have_text("0.000")
    assert float(tiles["spend_per_hour"]) > 0
    expect(tile["Spend"].locator(".v")).to_contain_text(tiles["spend_per_hour"])
    queue = panel(page, "Queue").get_by_role("listitem")
    expect(queue).to_have_count(2)
    for row, name, number in zip(queue.all(), ("waits-behind", "waits-last"), (jobs.waiting, jobs.last), strict=True):
        job = live_portal.job(number)
        expect(row.locator(".p")).to_have_text(str(job["queue_position"]))
        expect(row).to_contain_text(name)
        assert job["reason"]["text"]
        expect(row.locator(".why")).to_have_text(job["reason"]["text"])
    expect(panel(page, "Running").get_by_text("holds-all")).to_be_visible()
    picture = panel(page, "Allocation")
    expect(picture.get_by_role("img", name=re.compile("Which job had which GPU"))).to_be_visible()
    expect(hover_text(picture, f"#{jobs.running} holds-all: ")).to_be_attached()
    expect(page.locator(".fault")).to_have_count(0)
    check_fits_and_is_accessible(page)


@WIDTHS
def test_the_page_of_a_running_job_says_why_and_what_it_costs(
    page: Page, live_portal: LivePortal, jobs: Jobs, width: int
) -> None:
    why = asked(live_portal, f"jobs/{jobs.running}/explanation")
    price = asked(live_portal, f"jobs/{jobs.running}/cost")["price_per_gpu_hour"]
    open_page(page, f"/jobs/{jobs.running}", width)
    expect(page.get_by_role("heading", level=1)).to_contain_text("holds-all")
    life = panel(page, "Life of this job")
    expect(life.get_by_role("img", name=re.compile("States and GPUs of this job"))).to_be_visible()
    expect(hover_text(life, "Running (RUNNING")).to_be_attached()
    expect(hover_text(life, "6 GPUs: ")).to_be_attached()
    expect(panel(page, "Why 6 GPUs now")).to_contain_text(why["text"])
    cost = panel(page, "Cost")
    expect(cost).to_contain_text("GPU-hours of")
    expect(cost).to_contain_text(f"{float(price):.2f} per GPU-hour")
    expect(cost).to_contain_text("Estimated from")
    for used in ("GPU use", "GPU memory"):
        expect(panel(page, used).get_by_role("img", name=f"{used} over time")).to_be_visible()
    expect(page.locator(".fault")).to_have_count(0)
    check_fits_and_is_accessible(page)


@WIDTHS
def test_the_page_of_a_waiting_job_says_what_is_ahead_of_it(
    page: Page, live_portal: LivePortal, jobs: Jobs, width: int
) -> None:
    why = asked(live_portal, f"jobs/{jobs.last}/explanation")
    open_page(page, f"/jobs/{jobs.last}", width)
    card = panel(page, "Why it waits")
    expect(card).to_contain_text(why["text"])
    expect(card).to_contain_text(why["would_change"])
    ahead = card.get_by_role("row").filter(has_text="waits-behind")
    expect(ahead).to_contain_text("Queued")
    expect(ahead.get_by_role("cell").nth(1)).to_have_text("6")
    expect(hover_text(panel(page, "Life of this job"), "Queued (")).to_be_attached()
    expect(panel(page, "Cost")).to_contain_text("no limit")
    expect(page.locator(".fault")).to_have_count(0)
    check_fits_and_is_accessible(page)


def file_shares(portal: LivePortal) -> None:
    """A history as of a portal that has run for a day."""
    code = (
        "from datetime import timedelta; from django.utils import timezone; from accounts.models import Project; "
        "from portal.jobs.models import ShareSample; p = Project.objects.get(key='default'); "
        "from portal.jobs.clusters import default_cluster; cluster = default_cluster(); "
        "[ShareSample.objects.get_or_create(cluster=cluster, project=p, at=timezone.now().replace(second=0,"
        " microsecond=0) - timedelta(hours=h + 1), defaults=dict(norm_shares=1, usage_gpu_s=h,"
        " effective_usage=h / 30, factor=0.5))"
        " for h in range(24)]"
    )
    portal.manage("shell", "-v", "0", "-c", code)


@WIDTHS
def test_the_fair_share_page_says_who_used_what_and_who_is_next(
    page: Page, live_portal: LivePortal, jobs: Jobs, width: int
) -> None:
    file_shares(live_portal)
    open_page(page, "/shares", width)
    mine = next(row for row in asked(live_portal, "shares")["results"] if row["is_user"])
    expect(page.locator("h1.say")).to_contain_text("Another policy decides at present")
    expect(page.locator("h1.say")).to_contain_text("100.0\u2009% of what was used")
    tree = panel(page, "Shares and use")
    expect(tree.get_by_role("row").filter(has_text=mine["user"]["name"])).to_contain_text("100.0")
    over = panel(page, "Over time")
    expect(over.get_by_role("button", name="14 days")).to_have_attribute("aria-pressed", "true")
    expect(over.get_by_role("img", name=re.compile("Effective use, share and fair-share factor"))).to_be_visible()
    rows = panel(page, "Waiting jobs by priority").locator("[data-row]")
    expect(rows).to_have_count(2)
    for row, name, place in zip(rows.all(), ("waits-behind", "waits-last"), "12", strict=True):
        expect(row).to_contain_text(name)
        expect(row.get_by_role("cell").first).to_have_text(place)
        expect(row.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"waiting \d+, fair share \d+"))
    expect(page.locator(".fault")).to_have_count(0)
    check_fits_and_is_accessible(page)


@WIDTHS
def test_under_multifactor_a_waiting_job_shows_its_points(
    page: Page, live_portal: LivePortal, jobs: Jobs, width: int
) -> None:
    with live_portal.api() as api:
        before = api.get("policy").json()
        wish = {"name": "multifactor", "parameters": {"weight_job_size": 500}}
        api.put("policy", json=wish).raise_for_status()
    try:
        live_portal.wait_for("points", lambda: live_portal.job(jobs.last)["reason"]["code"] == "priority")
        open_page(page, f"/jobs/{jobs.last}", width)
        card = panel(page, "Priority")
        expect(card).to_contain_text("place 2 of 2 jobs")
        expect(card.get_by_role("row").filter(has_text="size")).to_contain_text("500.0")
        expect(card).to_contain_text("If it keeps waiting")
        course = card.get_by_role("img", name=re.compile("Priority over the next days, made of waiting"))
        expect(course.locator("canvas")).to_be_visible()
        expect(panel(page, "Why it waits")).to_contain_text(f"#{jobs.waiting}")
        check_fits_and_is_accessible(page)
    finally:
        with live_portal.api() as api:
            restored = {"name": before["name"], "parameters": before["parameters"]}
            api.put("policy", json=restored).raise_for_status()
        live_portal.wait_for("the rest", lambda: live_portal.job(jobs.last)["reason"]["code"] == "no_room")


@WIDTHS
def test_an_invitation_says_by_whom_to_what_and_makes_the_account(
    browser: Browser, live_portal: LivePortal, width: int
) -> None:
    email = f"guest{width}@example.org"
    with live_portal.api() as api:
        made = api.post("projects/default/invitations", json={"email": email, "role": "viewer"}).raise_for_status()
    context = browser.new_context(base_url=live_portal.base_url, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto("/invitation#made-up")
    expect(page.get_by_role("heading", level=1)).to_have_text("This link does not work")
    expect(page.get_by_role("alert")).to_contain_text("unknown, used, expired or revoked")
    page.goto("about:blank")  # another # alone loads nothing anew
    page.goto(made.json()["link"])
    form = page.get_by_role("form", name="Accept the invitation")
    name = asked(live_portal, "projects/default")["name"]
    expect(form).to_contain_text(f"{live_portal.admin_email} invites {email} to {name} as viewer")
    check_fits_and_is_accessible(page)
    form.get_by_label("Name").fill("Gast")
    form.get_by_label("Password").fill("correct-horse-battery")
    form.get_by_role("button", name="Make the account").click()
    panel(page, "Accelerators").wait_for()
    assert page.request.get("/api/v1/session").json()["user"]["email"] == email
    members = asked(live_portal, "projects/default/members")["results"]
    assert [row["role"] for row in members if row["user"]["email"] == email] == ["viewer"]
    page.goto("about:blank")
    page.goto(made.json()["link"])
    expect(page.get_by_role("alert")).to_contain_text("used, expired")
    context.close()


@WIDTHS
@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/submit", "/policy", "/tokens", "/shares", "/fairness", "/usage", "/nowhere"]
)
def test_single_trust_mode_is_said_on_every_page(page: Page, path: str, width: int) -> None:
    """Whoever runs the tests, the answer is that of an installation that nobody started as root."""

    def in_single_trust_mode(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"single_trust_mode": True})

    page.route("**/api/v1/session", in_single_trust_mode)
    open_page(page, path, width)
    expect(page.get_by_text("single-trust mode").filter(visible=True)).to_have_count(1)
    expect(page.get_by_label("Search jobs by number or name")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

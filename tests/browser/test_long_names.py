"""Names as long as they may be, without a blank, and names in a script that runs from right to left: no page grows
wider than its window, and what stands beside a name keeps its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_what_pages_say import open_page
from tests.live_portal import GENTLE, LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


def _of(characters: int) -> str:
    return ("WithoutAnyBlank" * 8)[:characters]


JOB, PROJECT, PERSON, NODE, PARTITION = _of(120), _of(80), _of(60), _of(60), _of(40).lower()
HOOK = f"https://example.org/{_of(100)}"
EMAIL = f"{'address' * 8}@example.org"
HEBREW, ARABIC = "אימון מודל 7", "تدريب النموذج"
PAGES = [
    "/", "/jobs", "/jobs/{running}", "/jobs/{waiting}", "/jobs/{failed}", "/jobs/{hebrew}",
    "/jobs/compare?jobs={running},{failed}", "/submit", "/projects", "/projects/long", "/projects/arabic", "/shares",
    "/fairness", "/usage", "/usage?by=user", "/usage?by=job", "/limits", "/cluster", "/cluster/nodes/{node}",
    "/cluster/throughput", "/lab", "/lab/new", "/lab/rounds", "/policy", "/notifications", "/tokens", "/admin/people",
    "/admin/rates", "/admin/audit",
]  # fmt: skip
_PEOPLE = """
from accounts.models import User
from accounts.tokens import create_token
User.objects.filter(is_superuser=True).update(first_name={person!r}, last_name="")
admin = User.objects.get(is_superuser=True)
User.objects.create_user({email!r}, first_name={person!r}, invited_by=admin)
User.objects.create_user("arabic@example.org", first_name={arabic!r})
create_token(user=admin, name={job!r}[:80], scopes=["jobs:read"])
"""
_LINKS = """
from portal.jobs.models import Run
Run.objects.filter(job__number={number}).update(links={{{name!r}: {url!r}, "TensorBoard": "http://localhost:6006/#scalars"}})
"""


@dataclass(frozen=True)
class Names:
    running: int
    waiting: int
    failed: int
    hebrew: int
    capped: int


def name_everything(portal: LivePortal) -> Names:
    """Everything that somebody may name has as long a name as it may have."""
    portal.manage("shell", "-v", "0", "-c", _PEOPLE.format(person=PERSON, email=EMAIL, arabic=ARABIC, job=JOB))
    wishes = [
        ("projects", {"key": "long", "name": PROJECT}),
        ("projects", {"key": "arabic", "name": ARABIC}),
        ("projects/long/members", {"email": EMAIL, "confirm_unproved": True}),
        ("projects/arabic/members", {"email": "arabic@example.org", "confirm_unproved": True}),
        ("projects/long/invitations", {"email": f"invited-{EMAIL}"}),
        ("projects/long/service-accounts", {"name": _of(40).lower()}),
        ("quotas", {"project": "long", "kind": "money", "period": "month", "limit": "100"}),
        ("quotas", {"project": "arabic", "kind": "gpus", "limit": "2"}),
        ("quotas", {"user": EMAIL, "kind": "gpus", "limit": "4"}),
        ("templates", {"name": _of(60), "project": "long", "file": {"model_type": "digits_mlp", "total_steps": 9}}),
        ("notifications/destinations", {"name": _of(60), "kind": "webhook", "url": HOOK, "events": ["job.failed"]}),
    ]
    with portal.api() as api:
        for path, wish in wishes:
            answer = api.post(path, json=wish)
            assert answer.is_success, (path, answer.text)
        answer = api.put(
            f"partitions/{PARTITION}", json={"nodes": [NODE], "projects": ["long", "arabic"], "is_default": True}
        )
        assert answer.is_success, answer.text
    endless = GENTLE | {"total_steps": 1_000_000}
    failed = portal.submit(name=JOB, project="long", command=f"echo {_of(100)}; exit 3", model_type=None)["number"]
    portal.wait_state(failed, "failed")
    two = endless | {"gpus": {"min": 2, "max": 2}}
    running = portal.submit(name=JOB, project="long", labels={"for": _of(60)}, **two)["number"]
    hebrew = portal.submit(name=HEBREW, project="arabic", **two)["number"]
    for number in (running, hebrew):
        portal.wait_state(number, "running")
    portal.manage("shell", "-v", "0", "-c", _LINKS.format(number=running, name=_of(60), url=HOOK))
    capped = portal.submit(name=HEBREW, project="arabic", **two)["number"]
    portal.wait_for("why it waits", lambda: ARABIC in portal.job(capped)["reason"]["text"])
    waiting = portal.submit(name=JOB, project="long", **endless, gpus={"min": 6, "max": 6})["number"]
    return Names(running, waiting, failed, hebrew, capped)


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal(EVENKEEL_VIRTUAL_ACCELERATORS=f"{NODE}=titan_xp:6") as portal:
        yield portal


@pytest.fixture(scope="module")
def names(live_portal: LivePortal) -> Names:
    return name_everything(live_portal)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_grows_wider_than_its_window(page: Page, names: Names, path: str) -> None:
    page.goto(path.format(**vars(names), node=NODE))
    for width in (1440, 1100, 390):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator(".page section, .page form").first).to_be_visible()
        expect(page.locator(".sk")).to_have_count(0)
        page.wait_for_timeout(300)
        assert too_wide(page) == [], width


def test_no_dialog_grows_wider_than_its_window(page: Page, names: Names) -> None:
    open_page(page, "/admin/people", 390)
    row = page.get_by_role("row").filter(has_text=EMAIL)
    row.get_by_role("button", name="Make administrator").click()
    expect(page.get_by_role("dialog")).to_contain_text("The account was made by invitation")
    check_dialog_fits(page)
    open_page(page, "/projects/arabic", 390)
    page.get_by_role("button", name="Add somebody").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("E-mail").fill(EMAIL)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("checkbox", name="I asked them")).to_be_visible()
    check_dialog_fits(page)
    dialog.get_by_label("E-mail").fill(f"another-{EMAIL}")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("region", name="The invitation")).to_be_visible()
    assert too_wide(page) == []
    open_page(page, f"/jobs/{names.running}", 390)
    page.get_by_role("button", name="Cancel job").click()
    expect(dialog).to_contain_text(JOB)
    check_dialog_fits(page)


def check_dialog_fits(page: Page) -> None:
    content = page.locator(".mantine-Modal-content")
    expect(content.get_by_role("button", name="Close").first).to_be_in_viewport(ratio=1)
    assert content.evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0
    assert too_wide(page) == []


def test_a_name_keeps_its_direction_to_itself(page: Page, names: Names) -> None:
    """What stands after a name in Hebrew is seen to the right of it, also where the server wrote the sentence."""
    page.goto(f"/jobs/{names.hebrew}")
    expect(page.locator(".title bdi")).to_have_text(HEBREW)
    left = "(e) => e.getBoundingClientRect().left"
    assert page.locator(".title .num").evaluate(left) < page.locator(".title bdi").evaluate(left)
    assert page.locator(".title bdi").evaluate(left) < page.locator(".title .st").evaluate(left)
    page.goto("/projects/arabic")
    expect(page.locator("h1.say")).to_contain_text(f"{ARABIC} holds")
    assert page.locator("h1.say").evaluate(_FIRST_IS_LEFT, [ARABIC, "holds"])
    page.goto(f"/jobs/{names.capped}")
    reason = page.locator("header p").first
    expect(reason).to_contain_text(f"{ARABIC}\u2069 may hold 2 GPUs")
    assert reason.evaluate(_FIRST_IS_LEFT, [ARABIC, "may hold"])
    assert reason.evaluate(_FIRST_IS_LEFT, ["may hold", "2 GPUs"])


#: Whether the first of two parts of a sentence is seen left of the other.
_FIRST_IS_LEFT = """(sentence, [one, other]) => {
  const texts = document.createTreeWalker(sentence, NodeFilter.SHOW_TEXT);
  const leftOf = {};
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    for (const word of [one, other]) {
      const at = text.data.indexOf(word);
      if (at < 0 || word in leftOf) continue;
      const range = document.createRange();
      range.setStart(text, at);
      range.setEnd(text, at + word.length);
      leftOf[word] = range.getBoundingClientRect().left;
    }
  }
  return leftOf[one] < leftOf[other];
}"""


_TOO_WIDE = """() => {
  const wide = document.documentElement.clientWidth, scrolls = document.documentElement.scrollWidth;
  if (scrolls <= wide) return [];
  const found = [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > wide + 1);
  return [`${scrolls} px of ${wide}`, ...found.slice(0, 5).map((e) => e.outerHTML.slice(0, 160))];
}"""


def too_wide(page: Page) -> list[str]:
    """How wide the page is, and what reaches out of it; empty where it fits."""
    return list(page.evaluate(_TOO_WIDE))

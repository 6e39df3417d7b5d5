"""Names as long as they may be, without a blank, and names in a script that runs from right to left: no page grows
wider than its window, and what stands beside a name keeps its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.directions import turned_texts
from tests.browser.named import ARABIC, EMAIL, HEBREW, JOB, NODE, OUTSIDE, PAGES, TURNED, Names, name_everything
from tests.browser.test_rounds import WORKED_OUT_MS
from tests.browser.test_what_pages_say import open_page, panel
from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    sign_in = {"EVENKEEL_OIDC_ISSUER": "https://id.example.org", "EVENKEEL_OIDC_CLIENT_ID": "evenkeel"}
    with running_portal(
        EVENKEEL_VIRTUAL_ACCELERATORS=f"{NODE}=titan_xp:6", EVENKEEL_OIDC_NAME=TURNED[0], **sign_in
    ) as portal:
        yield portal


@pytest.fixture(scope="module")
def names(live_portal: LivePortal) -> Names:
    return name_everything(live_portal)


@pytest.fixture(scope="module")
def outside(browser: Browser, live_portal: LivePortal) -> Iterator[BrowserContext]:
    """A browser in which nobody has signed in."""
    context = browser.new_context(base_url=live_portal.base_url)
    yield context
    context.close()


def _what_if(page: Page) -> None:
    page.get_by_label("Project").select_option("long")
    page.get_by_role("button", name="What if…").click()
    expect(panel(page, "Jobs that run")).to_contain_text(JOB, timeout=WORKED_OUT_MS)


def _again(page: Page) -> None:
    again = panel(page, "Run again under…")
    again.get_by_role("button", name="Run again").click()
    expect(again.get_by_role("status")).to_contain_text("Planned in", timeout=WORKED_OUT_MS)
    again.get_by_role("button", name="All").click()
    expect(again.get_by_role("row").filter(has_text=JOB).first).to_be_visible()


def _compare(page: Page) -> None:
    expect(panel(page, "Winners and losers").get_by_role("row").nth(1)).to_be_visible()


#: What is asked for before a page shows names.
ASK: dict[str, Callable[[Page], None]] = {"/lab/what-if": _what_if, "/lab/rounds/:number": _again, "/lab/:id": _compare}


@pytest.mark.parametrize(("route", "path"), [(route, path) for route, paths in PAGES.items() for path in paths])
def test_no_page_grows_wider_than_its_window(page: Page, names: Names, route: str, path: str) -> None:
    page.goto(path.format(**vars(names)))
    expect(page.locator(".page section, .page form").first).to_be_visible()
    if ask := ASK.get(route):
        ask(page)
    check_every_width(page, ".page section, .page form")


@pytest.mark.parametrize("path", [path for paths in OUTSIDE.values() for path in paths])
def test_no_page_before_the_sign_in_grows_wider_than_its_window(
    outside: BrowserContext, names: Names, path: str
) -> None:
    page = outside.new_page()
    page.goto(path.format(**vars(names)))
    check_every_width(page, "main section, main form")
    page.close()


def check_every_width(page: Page, there: str) -> None:
    for width in (1440, 1100, 390):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator(there).first).to_be_visible()
        expect(page.locator(".sk")).to_have_count(0)
        page.wait_for_timeout(300)
        assert too_wide(page) == [], width
        assert turned_texts(page, TURNED) == [], width


def test_no_dialog_grows_wider_than_its_window(page: Page, names: Names) -> None:
    open_page(page, "/admin/people", 390)
    row = page.get_by_role("row").filter(has_text=EMAIL)
    row.get_by_role("button", name="Make administrator").click()
    expect(page.get_by_role("dialog")).to_contain_text("The account was made by invitation")
    check_dialog_fits(page)
    open_page(page, "/projects/arabic", 390)
    page.get_by_role("button", name="Add a member").click()
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
    expect(page.locator("h1.say")).to_contain_text(f"{ARABIC} has")
    assert page.locator("h1.say").evaluate(_FIRST_IS_LEFT, [ARABIC, "has"])
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

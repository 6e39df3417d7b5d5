"""The API's documentation in a real browser: under the policy, light and dark, and able to ask."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, expect

pytestmark = [pytest.mark.whole, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_renders_under_the_policy(signed_in: BrowserContext, scheme: str) -> None:
    page = signed_in.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if _is_refusal(message) else None)
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto("/api/docs")
    expect(page.locator("#operations-jobs-submit_job")).to_be_visible(timeout=60_000)
    assert page.evaluate("document.documentElement.classList.contains('dark-mode')") == (scheme == "dark")
    assert said == []
    page.close()


def test_it_asks_as_whoever_is_signed_in(signed_in: BrowserContext) -> None:
    page = signed_in.new_page()
    page.goto("/api/docs#/policy/get_policy")
    operation = page.locator("#operations-policy-get_policy")
    operation.get_by_role("button", name="Try it out").click(timeout=60_000)
    operation.get_by_role("button", name="Execute").click()
    status = operation.locator(".live-responses-table .response-col_status:not(.col_header)")
    expect(status.first).to_contain_text("200")
    page.close()


def _is_refusal(message: ConsoleMessage) -> bool:
    return message.type == "error" or "Content Security Policy" in message.text

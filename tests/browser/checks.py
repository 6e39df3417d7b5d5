"""What holds of every page, whatever is on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.live_portal import LivePortal

AXE = Path(__file__).resolve().parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"


def check_fits_and_is_accessible(page: Page) -> None:
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    check_is_accessible(page)


def check_is_accessible(page: Page, *rules: str) -> None:
    """By axe; `rules`: these only."""
    page.evaluate(f"{AXE.read_text()}; null")  # a script tag is refused by our Content-Security-Policy
    wanted = list(rules) or ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    found = page.evaluate("(wanted) => axe.run({runOnly: wanted})", wanted)
    broken = [(v["id"], v["nodes"][0]["html"][:160]) for v in found["violations"]]
    assert broken == [], broken


def nodes_of(portal: LivePortal) -> list[dict[str, Any]]:
    with portal.api() as api:
        return list(api.get("nodes").raise_for_status().json())

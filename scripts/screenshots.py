"""Photograph a running portal for the README: `screenshots.py http://127.0.0.1:8800 --email admin@evenkeel.local`.

The password is read from standard input. Overview, a job (the running one that was rescaled most, unless --job says
which) and the filled-in form are saved in both themes as docs/pictures/NAME-light.png and -dark.png.
"""

from __future__ import annotations

import argparse
import getpass
import re
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, StorageState, expect, sync_playwright

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH, HEIGHT = 1440, 900
PATIENCE_MS = 30_000
ARGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    options = arguments()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        sys.exit("There is no Chromium here; scripts/ensure_chromium.sh installs one.")
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    expect.set_options(timeout=PATIENCE_MS)
    options.to.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGS)
        session = sign_in(browser, options.url, options.email, password)
        for theme in ("light", "dark"):
            context = browser.new_context(
                base_url=options.url,
                viewport={"width": WIDTH, "height": HEIGHT},
                color_scheme="light" if theme == "light" else "dark",
                reduced_motion="reduce",
                storage_state=session,
            )
            context.set_default_timeout(PATIENCE_MS)
            take_all(context, options, theme)
            context.close()
        browser.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of the portal")
    parser.add_argument("--email", required=True)
    parser.add_argument("--job", type=int, metavar="NUMBER", help="whose page is taken")
    parser.add_argument("--to", type=Path, default=PICTURES, metavar="DIR")
    return parser.parse_args()


def sign_in(browser: Browser, url: str, email: str, password: str) -> StorageState:
    """One session for both themes: sign-ins are counted."""
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("region", name="Accelerators").wait_for()
    state = context.storage_state()
    context.close()
    return state


def take_all(context: BrowserContext, options: argparse.Namespace, theme: str) -> None:
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_test_id("live").first).to_contain_text("Live")
    save(page, options.to / f"overview-{theme}.png")
    page.goto(f"/jobs/{options.job or telling_job(page)}")
    expect(page.get_by_role("img", name="Loss over time")).to_be_visible()
    save(page, options.to / f"job-{theme}.png")
    page.goto("/submit")
    page.get_by_role("radio", name=re.compile("resnet50")).click()
    page.get_by_label("Steps", exact=True).fill("2,000")
    expect(page.get_by_role("region", name="Time and cost")).to_be_visible()
    save(page, options.to / f"submit-{theme}.png")


def telling_job(page: Page) -> int:
    """Of the jobs that train, else of all, the one that was resized most often."""
    for query in ("state=running&", ""):
        found = page.request.get(f"/api/v1/jobs?{query}limit=50").json()["results"]
        if found:
            return int(max(found, key=lambda job: (job["resizes"], job["step"]))["number"])
    sys.exit("The portal has no job yet: submit one, or run `make demo`.")


def save(page: Page, path: Path) -> None:
    page.wait_for_timeout(2_500)  # charts draw after their data
    page.screenshot(path=path)
    with Image.open(path) as picture:
        smaller = picture.convert("RGB").quantize(256)
    smaller.save(path, optimize=True)
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()

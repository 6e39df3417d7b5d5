"""What docs/start.md and docs/api.md show, done with a portal."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]
DOCS = Path(__file__).parents[2] / "docs"
PATIENCE_S = 180


@pytest.fixture(scope="module")
def live_portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


def block(name: str, language: str) -> str:
    """The document's only one in that language."""
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def environment(portal: LivePortal, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENKEEL_")}
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return kept | {"XDG_CONFIG_HOME": str(home), "HOME": str(home)}


def done(command: list[str], portal: LivePortal, home: Path, stdin: str = "") -> str:
    with_token = environment(portal, home) | {"EVENKEEL_URL": portal.base_url, "EVENKEEL_TOKEN": portal.token}
    ran = subprocess.run(
        command, cwd=home, env=with_token, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl and jq are not there")
def test_the_example_with_curl_runs(live_portal: LivePortal, tmp_path: Path) -> None:
    said = done(["bash", "-euo", "pipefail", "-c", block("api.md", "sh")], live_portal, tmp_path)
    assert said.startswith(live_portal.admin_email)
    assert "step 200 of 200" in said
    assert re.search(r"^\d+ first$", said, re.MULTILINE)
    assert live_portal.token not in said


def test_the_example_in_python_runs(live_portal: LivePortal, tmp_path: Path) -> None:
    said = done([sys.executable, "-c", block("api.md", "python")], live_portal, tmp_path)
    assert re.search(r"^succeeded \d+\.\d+ USD$", said, re.MULTILINE)
    assert re.search(r"^\d+ second$", said, re.MULTILINE)
    assert "400 [('gpus', 'max (2) must not be below min (4)')]" in said


def test_the_problem_shown_is_what_is_answered(live_portal: LivePortal) -> None:
    wish = {"project": "default", "model_type": "digits_mlp", "total_steps": 1, "gpus": {"min": 4, "max": 2}}
    with live_portal.api() as api:
        answer = api.post("jobs", json=wish)
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert answer.json() == json.loads(block("api.md", "json"))


def steps() -> list[tuple[str, list[str]]]:
    """The commands of the first guide, each with the lines that it shows below."""
    found: list[tuple[str, list[str]]] = []
    for line in re.findall(r"^    (.*)$", (DOCS / "start.md").read_text(), re.MULTILINE):
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif found:
            found[-1][1].append(line)
    return found


def shape(line: str) -> str:
    """A line without what differs each time: times, spans, amounts and the width of columns."""
    line = re.sub(r"^Reason .*; ", "Reason ", line)  # while the other job is protected it says so in other words
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( [A-Z]{3,5})?", "WHEN", line)
    line = re.sub(r"(\d+[smhd] ?)+\b", "SPAN ", line)
    line = re.sub(r"[\d,.]*\d", "N", line)
    return " ".join(line.split())


class Session:
    """Somebody who follows the guide. Jobs have other numbers here than there."""

    def __init__(self, portal: LivePortal, home: Path) -> None:
        self.portal, self.home, self.environment = portal, home, environment(portal, home)
        self.numbers: dict[str, str] = {}

    def run(self, command: str) -> list[str]:
        words = [self.numbers.get(word, word) for word in shlex.split(command)]
        stdin = ""
        if words[1] == "login":
            words[2] = self.portal.base_url
            words.append("--password-stdin")
            stdin = self.portal.admin_password
        ran = subprocess.run(
            words, env=self.environment, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
        said = ran.stdout.replace(socket.gethostname(), "node1").replace(str(self.home), "/home/ada/.config")
        return said.splitlines()

    def follow(self, command: str, shown: list[str]) -> None:
        """Once more where the portal is not yet as far as the guide; but nothing is submitted twice."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            said = self.run(command)
            if missing := [line for line in expected(shown) if line not in expected(said)]:
                assert " submit " not in command, said
                assert time.monotonic() < give_up_at, f"{command}: {missing} is not in {said}"
                time.sleep(0.5)
                continue
            if submitted := re.match(r"Job (\d+) submitted", said[0]):
                [shown_number] = re.findall(r"Job (\d+) submitted", shown[0])
                self.numbers[shown_number] = submitted[1]
            return


def expected(lines: list[str]) -> list[str]:
    """Of a table the heads, and of each row what names it; of all else whole lines."""
    lines = [shape(line) for line in lines if line and line != "Password:"]
    is_table = bool(lines) and lines[0].isupper()
    return [" ".join(line.split()[:4]) if is_table and n else line for n, line in enumerate(lines)]


def test_the_first_five_minutes(live_portal: LivePortal, tmp_path: Path) -> None:
    session = Session(live_portal, tmp_path)
    followed = steps()
    assert len(followed) >= 10
    for command, shown in followed:
        session.follow(command, shown)

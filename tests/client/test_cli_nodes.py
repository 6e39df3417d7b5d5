"""Partitions and windows from the command line, against a running portal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.client.test_cli_portal import Shell
from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(300)]


def test_partitions_and_windows_from_the_command_line(tmp_path: Path) -> None:
    with running_portal() as portal:
        _run(Shell(tmp_path, portal), portal)


def _run(evenkeel: Shell, portal: LivePortal) -> None:
    evenkeel.log_in("--admin")
    assert "no partitions" in evenkeel("partition", "ls")
    with portal.api() as api:
        node = portal.wait_for("its node", lambda: api.get("nodes").json())[0]
    assert evenkeel.json("partition", "set", "main", "--type", node["type"], "--default")["is_default"] is True
    evenkeel("partition", "set", "debug", "--node", node["name"], "--priority", "100", "--max-gpus", "1")
    assert "debug" in evenkeel("partition", "ls")
    assert "nodes" in evenkeel("partition", "set", "empty", code=1)
    job = ("submit", "--project", "default", "--model", "digits_mlp", "--steps", "1000000000")
    assert "default may use debug, main" in evenkeel(*job, "--partition", "nothing", code=1)
    begins = datetime.now(UTC) + timedelta(hours=1)
    span = (begins.isoformat(), (begins + timedelta(hours=2)).isoformat())
    made = evenkeel.json("window", "add", "maintenance", *span, "--all", "--reason", "new switches")
    assert "new switches" in evenkeel("window", "ls")
    assert "overlap" in evenkeel("window", "add", "maintenance", *span, "--node", node["name"], code=1)
    number = evenkeel.json(*job, "--partition", "debug")["number"]
    assert [row["number"] for row in evenkeel.json("ls", "--partition", "debug")] == [number]
    portal.wait_for("the reason", lambda: "maintenance window" in evenkeel("show", str(number)))
    assert "debug" in evenkeel("partition", "rm", "debug", code=1)
    evenkeel("window", "rm", str(made["id"]))
    portal.wait_state(number, "running")
    assert "removed" in evenkeel("window", "ls", "--past")
    evenkeel("cancel", str(number))
    evenkeel("partition", "rm", "debug")

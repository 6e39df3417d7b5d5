"""What `evenkeel shares` prints."""

from __future__ import annotations

from typing import Any

from tests.client.test_cli_resources import PAGE, Run, Scripted
from tests.client.test_cli_resources import portal as portal
from tests.client.test_cli_resources import run as run

VISION: dict[str, Any] = {
    "project": {"key": "vision", "name": "Vision"},
    "user": None,
    "is_user": False,
    "level": 0,
    "shares": 1.0,
    "norm_shares": 0.5,
    "usage_gpu_hours": 8.0,
    "norm_usage": 0.25,
    "effective_usage": 0.25,
    "level_fs": 2.0,
    "factor": None,
}
ANA = VISION | {"user": {"name": "Ana", "email": "ana@example.org"}, "is_user": True, "level": 1, "factor": 0.75}


def test_a_factor_that_does_not_exist_is_blank(portal: Scripted, run: Run) -> None:
    portal["GET shares"] = PAGE | {"results": [VISION, ANA], "in_force": True}
    head, project, person = run("shares").output.splitlines()
    assert head.split()[-2:] == ["FACTOR", "LEVEL_FS"]
    assert project.split()[-2:] == ["0.250000", "2.0000"]
    assert person.split()[-2:] == ["0.750000", "2.0000"]

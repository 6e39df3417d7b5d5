"""What doctor says of a /proc that shows every project's commands to all."""

from __future__ import annotations

import pytest

from scheduling.executors.local.machine import procfs

LINE = "22 28 0:20 / /proc rw,nosuid shared:5 - proc proc rw{options}"


@pytest.mark.parametrize("option", ["hidepid=2", "hidepid=invisible", "hidepid=1", "hidepid=noaccess"])
def test_hidden_processes_are_as_they_should_be(option: str) -> None:
    found = procfs.examine(LINE.format(options=f",{option},gid=4"))
    assert (found.ok, found.warning, option in found.seen) == (True, False, True)


@pytest.mark.parametrize(
    "mountinfo",
    [
        LINE.format(options=""),
        LINE.format(options=",hidepid=0"),
        LINE.format(options=",hidepid=off"),
        LINE.format(options=",hidepid=2") + "\n" + LINE.format(options=""),  # the last one is seen
        "22 28 0:20 / /other/proc rw - proc proc rw,hidepid=2",
        "",
    ],
)
def test_what_everybody_can_read_is_to_be_put_right(mountinfo: str) -> None:
    found = procfs.examine(mountinfo)
    assert (found.ok, found.warning) == (True, True)
    assert "remount,hidepid=invisible" in found.fix

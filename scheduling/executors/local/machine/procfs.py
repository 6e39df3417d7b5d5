"""Whether a job can read the command lines of other projects' jobs: by default /proc shows all processes to
everybody."""

from __future__ import annotations

from pathlib import Path

from scheduling.executors.base import Finding

#: As numbers, and in the form of Linux 5.8 and later. With "noaccess" processes are still listed, without command
#: lines.
_HIDING = frozenset(
    {"hidepid=1", "hidepid=2", "hidepid=4", "hidepid=noaccess", "hidepid=invisible", "hidepid=ptraceable"}
)
FIX = (
    "`mount -o remount,hidepid=invisible /proc`, and for good in /etc/fstab; where systemd-logind or polkit run, with"
    " `gid=` of a group that they are in (docs/executors.md, Who jobs run as)"
)


def examine(mountinfo: str | None = None) -> Finding:
    """`mountinfo`: content of /proc/self/mountinfo."""
    text = mountinfo if mountinfo is not None else Path("/proc/self/mountinfo").read_text()
    hides = [_HIDING.intersection(options) for options in _options(text)]
    if hides and hides[-1]:
        return Finding("process list", True, f"/proc is mounted with {min(hides[-1])}")
    seen = "every job can read the commands of other projects' jobs in /proc"
    return Finding("process list", True, seen, FIX, warning=True)


def _options(mountinfo: str) -> list[list[str]]:
    """Options of the file system mounted at /proc; the last one is visible."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, source = before.split(" "), after.split(" ")
        if len(fields) > 5 and fields[4] == "/proc" and source[0] == "proc":
            found.append([*fields[5].split(","), *source[-1].split(",")])
    return found

"""Real modules and a real image for tests: Debian's Environment Modules and Charliecloud, a small root file system."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

#: Which an image has to have, for nothing is made in it: where tests keep their files.
MOUNT_POINTS = ("dev", "proc", "sys", "tmp", "root", "home", "etc", "run", "var/tmp")
MODULE = """#%Module
setenv SITE_LIBRARY "of {name}"
prepend-path PATH {place}/{name}/bin
setenv EVENKEEL_TOTAL_STEPS 1
"""


@cache
def _installed(package: str, program: str) -> str:
    """Empty, or why it is not there."""
    if Path(program).exists():
        return ""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"only root can install {package}, on Debian"
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    said = ""
    with Path("/var/lock/evenkeel-tests-apt").open("w") as lock:  # other test processes want the same
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
            done = subprocess.run(
                ["apt-get", "-q", *command], env=quiet, check=False, timeout=300, capture_output=True, text=True,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            said = done.stderr
    return "" if Path(program).exists() else f"{package} cannot be installed: {said.strip()[-300:]}"


def need_modules() -> None:
    """Skips, and says why, where they cannot be installed."""
    if reason := _installed("environment-modules", "/usr/share/modules/init/bash"):
        pytest.skip(f"SKIPPED: no Environment Modules here: {reason}")


def need_pasta() -> None:
    """Skips, and says why, where it cannot be installed."""
    if reason := _installed("passt", "/usr/bin/pasta"):
        pytest.skip(f"SKIPPED: no pasta here: {reason}")


def need_container_tool(name: str) -> None:
    """Skips, and says why, where it cannot be installed, or may not make its namespaces."""
    package = {"ch-run": "charliecloud-runtime", "bwrap": "bubblewrap"}[name]
    for wanted, program in ((package, f"/usr/bin/{name}"), ("busybox-static", "/bin/busybox")):
        if reason := _installed(wanted, program):
            pytest.skip(f"SKIPPED: no {package} here: {reason}")
    if name == "bwrap":
        done = subprocess.run([name, "--ro-bind", "/", "/", "/bin/true"], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"SKIPPED: bwrap may make no namespaces here: {done.stderr.strip()[-300:]}")


def need_charliecloud() -> None:
    need_container_tool("ch-run")


def make_modules(place: Path, *names: str) -> Path:
    """A MODULEPATH with these, each with a program `tell` that says which it is of."""
    for name in names:
        tell = place / name / "bin" / "tell"
        tell.parent.mkdir(parents=True)
        tell.write_text(f"#!/bin/sh\necho told by {name}\n")
        tell.chmod(0o755)
        file = place / "modulefiles" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MODULE.format(name=name, place=place))
    return place / "modulefiles"


def make_image(place: Path, *mount_points: str) -> Path:
    """With a shell, this machine's Python and its standard library, and no more. `mount_points`: directories that are
    bound into it beside /tmp, which is the machine's."""
    for name in (
        *MOUNT_POINTS,
        "bin",
        "lib",
        "lib64",
        "usr/bin",
        "usr/lib",
        *(one.lstrip("/") for one in mount_points),
    ):
        (place / name).mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (place / "etc" / name).touch()
    (place / "etc" / "which-image").write_text("the test's\n")
    shutil.copy("/bin/busybox", place / "bin" / "busybox")
    for name in ("sh", "cat", "env", "sleep", "ls", "id", "echo", "test"):
        (place / "bin" / name).symlink_to("busybox")
    python = Path(os.path.realpath(f"{sys.base_prefix}/bin/python3"))
    shutil.copy(python, place / "usr" / "bin" / "python3")
    (place / "usr" / "bin" / "python").symlink_to("python3")
    library = Path(os.__file__).parent
    wanted = place / library.relative_to("/")
    shutil.copytree(
        library, wanted, ignore=shutil.ignore_patterns("__pycache__", "test", "dist-packages", "site-packages")
    )
    modules = [str(path) for path in (library / "lib-dynload").glob("*.so")]
    found = subprocess.run(["ldd", str(python), *modules], capture_output=True, text=True, check=False).stdout
    for word in found.split():
        if word.startswith("/") and not word.endswith(":"):
            target = place / word.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(word, target)
    return place

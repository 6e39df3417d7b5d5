"""A Slurm of another Debian release than this machine's, in a root file system of its own. Needs root, and Debian.

python -m scripts.slurm_chroot [--suite trixie]   prints the directory of its commands: put it first in PATH

Each command enters the root file system in a mount namespace of its own, so that nothing stays mounted. Processes,
networks, /tmp, this tree and its interpreter are those of the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

CACHE = Path("/var/cache/evenkeel-tests")
#: Releases of Debian, and the Slurm that they have.
SUITES = {"trixie": "24.11"}
#: Besides Slurm, what jobs of the tests use on nodes.
PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "slurmdbd", "slurm-wlm-mysql-plugin", "munge",
    "mount", "git", "bubblewrap", "charliecloud-runtime", "environment-modules",
)  # fmt: skip
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
COMMANDS = (
    "slurmctld", "slurmd", "slurmdbd", "sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sdiag", "sinfo",
    "squeue", "srun", "sshare",
)  # fmt: skip
#: Files and directories of the machine that are seen in it at the same place.
SHARED = ("/proc", "/dev", "/sys", "/run", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf")
MAKE_S = 600

ENTER = """\
#!/bin/sh
# Runs the command of its own name in {root}, as its whole root: below a chroot there are no user namespaces.
exec unshare --mount --propagation private sh -c '
  root={root} program=$1
  shift
  mount --rbind "$root" "$root" && cd "$root" || exit 125
  for path in {shared}; do
    mount --rbind "$path" "$root$path" || exit 125
  done
  pivot_root . mnt && cd / || exit 125
  export PATH=/usr/sbin:/usr/bin:/sbin:/bin
  umount --lazy /mnt || exit 125
  exec "$program" "$@"
' sh "${{0##*/}}" "$@"
"""


def commands_of(suite: str) -> Path | str:
    """The directory of its commands, made where it is not there yet; a text says why that failed."""
    root = CACHE / f"slurm-{suite}"
    if not root.exists() and (reason := _make(root, suite)):
        return reason
    shared = [*SHARED, *_of_this_tree()]
    for path in map(Path, shared):
        _make_place(root / path.relative_to("/"), path)
    _repeat_links(root, Path(sys.executable))
    commands = CACHE / f"slurm-{suite}-commands"
    commands.mkdir(exist_ok=True)
    script = commands / ".enter"
    script.write_text(ENTER.format(root=root, shared=" ".join(shared)))
    script.chmod(0o755)
    for name in COMMANDS:
        if not (commands / name).is_symlink():
            (commands / name).symlink_to(script.name)
    return commands


def _of_this_tree() -> list[str]:
    """Where jobs find their files, this code and the interpreter that runs it."""
    python = Path(sys.executable).resolve()
    own = [python, Path(sysconfig.get_path("stdlib"))] if sys.base_prefix == "/usr" else [Path(sys.base_prefix)]
    found = [Path(tempfile.gettempdir()), Path(__file__).resolve().parent.parent, *own]
    return [os.fspath(path) for path in found]


def _repeat_links(root: Path, interpreter: Path) -> None:
    """The links by which the environment of this tree leads to its interpreter."""
    while interpreter.is_symlink():
        target = interpreter.parent / interpreter.readlink()
        if target.is_symlink() and target.is_relative_to(sys.base_prefix):
            place = root / target.relative_to("/")
            place.unlink(missing_ok=True)
            place.symlink_to(target.readlink())
        interpreter = target


def _make_place(place: Path, like: Path) -> None:
    """Something to mount it on."""
    if like.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    elif not place.is_file():
        place.unlink(missing_ok=True)  # a link into the machine's own
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()


def _make(root: Path, suite: str) -> str | None:
    """Why it could not be made, or None."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "a root file system of another Debian needs root, and Debian"
    CACHE.mkdir(mode=0o755, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=CACHE))
    try:
        if shutil.which("mmdebstrap") is None:
            _run("apt-get", "-q", "update")
            _run("apt-get", "-q", "install", "-y", "--no-install-recommends", "mmdebstrap")
        told = _run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
        mirror = next((line for line in told.splitlines() if "security" not in line), "")
        source = f"deb [signed-by={KEYRING}] {mirror} {suite} main"
        draft.chmod(0o755)
        _run("mmdebstrap", "--variant=apt", f"--include={','.join(PACKAGES)}", suite, os.fspath(draft), source)
        draft.rename(root)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        words = (getattr(error, "stderr", None) or str(error)).strip()
        return f"no root file system of Debian's {suite}: {words[-300:]}"
    return None


def _run(*command: str) -> str:
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        command, env=quiet, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=MAKE_S
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="A Slurm of another Debian release.")
    parser.add_argument("--suite", choices=SUITES, default="trixie")
    found = commands_of(parser.parse_args().suite)
    print(found, file=sys.stderr if isinstance(found, str) else sys.stdout)
    return 1 if isinstance(found, str) else 0


if __name__ == "__main__":
    sys.exit(main())

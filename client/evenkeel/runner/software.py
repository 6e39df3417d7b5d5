"""The site's own software for a program: modules that are loaded, an image that it runs in.

Modules are those of Environment Modules or Lmod; they change the variables of the workers, and nothing of the runner's.
In an image the program finds its job's directories under the paths that they have outside, and the SDK of this runner.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import evenkeel
from evenkeel.program_output import shown_lines
from evenkeel.runner.bringing import GivenUp
from evenkeel.runner.spec import LaunchSpec
from evenkeel.runner.trees import remove_quietly

LOAD_S, LOOK_S = 120.0, 10.0
TOOLS = ("apptainer", "singularity", "ch-run", "bwrap")
#: Of the shell that loaded them, and of the portal: what modules say of these is not passed on.
_KEPT = ("EVENKEEL_", "CUDA_VISIBLE_DEVICES", "PWD", "OLDPWD", "SHLVL", "_=")
#: Of the site's own way, or where Lmod's and Environment Modules' packages put it.
_DEFINE = """
for init in "${MODULESHOME:-/nowhere}/init/bash" /etc/profile.d/lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do
  if [ -r "$init" ]; then . "$init" >/dev/null 2>&1; break; fi
done
type module >/dev/null 2>&1 || { echo "this node has no module command" >&2; exit 1; }
"""
#: Names are arguments: no shell reads them as text.
_LOAD = _DEFINE + 'module load "$@" >&2 && exec env -0'
_STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Of the host's software: in an image they name what is not there, or what is another's.
_OF_HOST = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_PATH", "PYTHONPATH", "PYTHONHOME")


#: Of the machine, in images that bwrap runs: by these programs find names of hosts and of people.
_OF_MACHINE = ("/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group")
_OF_KERNEL = (Path("/dev"), Path("/proc"), Path("/sys"), Path("/tmp"))  # noqa: S108  # nosec B108


class SoftwareUnavailable(Exception):
    """A module or image cannot be had; in words for people. `permanent`: nor will it be the next time."""

    def __init__(self, words: str, *, permanent: bool = True) -> None:
        super().__init__(words)
        self.permanent = permanent


def with_software(spec: LaunchSpec, epoch_dir: Path, is_over: Callable[[], bool] = lambda: False) -> LaunchSpec:
    """What the job asked for is loaded, or will be around its program. `is_over` is asked about once a second; where
    it is, GivenUp is raised. Raises SoftwareUnavailable."""
    if spec.modules:
        spec = replace(spec, environment=_loaded(spec, is_over), modules=(), starts_cold=True)
    if spec.image:
        spec = _in_image(spec, spec.image, epoch_dir)
    return spec


def _loaded(spec: LaunchSpec, is_over: Callable[[], bool]) -> dict[str, str]:
    names = " ".join(spec.modules)
    try:
        done = _bash(_LOAD, list(spec.modules), spec.environment, LOAD_S, is_over)
    except subprocess.TimeoutExpired:
        raise SoftwareUnavailable(f"loading {names} took more than {LOAD_S:g} s", permanent=False) from None
    except OSError as error:
        raise SoftwareUnavailable(f"{names} cannot be loaded: {error}", permanent=False) from None
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())[-400:]
        raise SoftwareUnavailable(f"{names} cannot be loaded: {said or f'exit code {done.returncode}'}")
    pairs = (line.partition("=") for line in done.stdout.decode(errors="replace").split("\0") if line)
    found = {name: value for name, _, value in pairs if not f"{name}=".startswith(_KEPT)}
    asked = {name: value for name, value in spec.env.items() if name not in _OF_HOST}
    return spec.environment | found | asked


def _bash(
    script: str,
    arguments: list[str],
    environment: Mapping[str, str],
    limit_s: float,
    is_over: Callable[[], bool] = lambda: False,
) -> subprocess.CompletedProcess[bytes]:
    """It is alone in its process group: what it started ends with it. Raises TimeoutExpired and GivenUp."""
    kept = {name: os.environ[name] for name in ("MODULESHOME", "MODULEPATH") if name in os.environ}
    command = ["bash", "--noprofile", "--norc", "-c", script, "modules", *arguments]
    process = subprocess.Popen(
        command, env=kept | dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, process_group=0,
    )  # fmt: skip
    give_up_at = time.monotonic() + limit_s
    with process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=1.0)
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
                if is_over():
                    raise GivenUp
                if time.monotonic() > give_up_at:
                    raise subprocess.TimeoutExpired(command, limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _in_image(spec: LaunchSpec, image: str, epoch_dir: Path) -> LaunchSpec:
    if image.startswith("/") and not Path(image).exists():
        raise SoftwareUnavailable(f"the image {image} is not on this node")
    if spec.container_tool == "bwrap" and not Path(image).is_dir():
        raise SoftwareUnavailable(f"the image {image} is not a directory, and bwrap runs unpacked images only")
    tool = shutil.which(spec.container_tool, path=spec.environment["PATH"])
    if tool is None:
        raise SoftwareUnavailable(f"{spec.container_tool or 'a tool for containers'} is not installed on this node")
    sdk = _copy_sdk(epoch_dir)
    hosts = {name for name in _OF_HOST if name not in spec.env}
    environment = {name: value for name, value in spec.environment.items() if name not in hosts}
    environment = {"PATH": _STANDARD_PATH, "PYTHONPATH": str(sdk)} | environment
    places, gpus = _places(spec, epoch_dir), bool(spec.cuda_visible_devices)
    prefix = command_in(spec.container_tool, tool, image, spec.workdir, places, gpus=gpus)
    return replace(spec, environment=environment, container=prefix, image=None, starts_cold=True)


def _copy_sdk(epoch_dir: Path) -> Path:
    """The client alone, without what else lies beside it; the nodes of a run share the directory."""
    there, draft = epoch_dir / "python", epoch_dir / f".python-{socket.gethostname()}-{os.getpid()}"
    if not there.exists():
        unneeded = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(evenkeel.__file__).parent, draft / "evenkeel", ignore=unneeded)
        try:
            draft.rename(there)
        except OSError:  # another node was faster
            remove_quietly(draft)
    return there


def command_in(kind: str, tool: str, image: str, workdir: str, places: Iterable[str], *, gpus: bool) -> list[str]:
    """What stands before the program. `ch-run` executes the program in its own place, the others wait for it and hand
    its exit code on; bwrap hands no signals on (see Worker.send)."""
    if kind == "bwrap":
        return [tool, *_laid_out(Path(image), list(places)), "--die-with-parent", "--chdir", workdir, "--"]
    binds = [word for place in places for word in ("--bind", place)]
    if kind == "ch-run":
        return [tool, *binds, "--cd", workdir, image, "--"]
    return [tool, "exec", *(["--nv"] if gpus else []), "--no-home", *binds, "--pwd", workdir, image]


def _laid_out(image: Path, places: list[str]) -> Iterator[str]:
    """Arguments of bwrap: the image, read-only, with the machine's devices, and directories of the job at the paths
    that they have outside."""
    of_machine = [path for path in _OF_MACHINE if Path(path).exists() and not Path(f"{image}{path}").is_symlink()]
    yield from ("--tmpfs", "/")
    yield from _opened(image, Path("/"), [Path(place) for place in (*places, *of_machine)])
    yield from ("--dev-bind", "/dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys", "--tmpfs", "/tmp")  # noqa: S108  # nosec B108
    for path in of_machine:
        yield from ("--ro-bind", path, path)
    for place in places:
        yield from ("--bind", place, place)
    yield from ("--remount-ro", "/")


def _opened(image: Path, inside: Path, wanted: list[Path]) -> Iterator[str]:
    """What is in a directory of the image, each by itself where something is to be added for which it has no place:
    what is bound read-only cannot be added to."""
    for entry in sorted(image.iterdir()):
        there = inside / entry.name
        below = [place for place in wanted if there in place.parents]
        if entry.is_symlink():
            yield from ("--symlink", str(entry.readlink()), str(there))
        elif there in wanted or there in _OF_KERNEL:
            continue
        elif entry.is_dir() and any(not (image / place.relative_to(inside)).exists() for place in below):
            yield from ("--dir", str(there))
            yield from _opened(entry, there, below)
        else:
            yield from ("--ro-bind", str(entry), str(there))


def _places(spec: LaunchSpec, epoch_dir: Path) -> list[str]:
    """What the job is to see, none within another: its files, where it starts, and what EVENKEEL_ variables name."""
    named = [value for name, value in spec.environment.items() if name.startswith("EVENKEEL_")]
    there = {Path(value) for value in named if value.startswith("/") and Path(value).exists()}
    there |= {place.readlink() for place in there if place.is_symlink()}  # data that the job names
    there |= {Path(spec.workdir), epoch_dir}
    there |= {own for own in epoch_dir.parents if own.name == spec.job_id}  # with all of its code
    outer = [place for place in there if not any(other in place.parents for other in there)]
    return sorted(map(str, outer))


def installed() -> dict[str, str]:
    """What of all this a node has, with versions: `modules`, and the tools for images."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = _bash(_DEFINE + "module --version 2>&1", [], dict(os.environ), LOOK_S)
        if done.returncode == 0:
            found["modules"] = _first_line(done.stdout)
    for tool in TOOLS:
        if path := shutil.which(tool):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                environment = {"USER": "nobody"} | os.environ  # ch-run wants one, and daemons have none
                done = subprocess.run(
                    [path, "--version"],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=LOOK_S,
                    check=False,
                    env=environment,
                )
                found[tool] = _first_line((done.stdout or done.stderr) if done.returncode == 0 else b"")
    return found


def _first_line(said: bytes) -> str:
    lines = [line.strip() for line in shown_lines(said) if line.strip()]
    return lines[0][:100] if lines else "of an unknown version"

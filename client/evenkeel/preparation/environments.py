"""Builds a virtual environment from a requirements file on top of the portal's own packages."""

from __future__ import annotations

import itertools
import json
import os
import site
import venv
from pathlib import Path
from typing import Any

from evenkeel.preparation.bounded import Work, clear, directory_bytes


def build(work: Work, options: dict[str, Any]) -> dict[str, Any]:
    """`venv/`: its own packages first, then those of the interpreter that runs this (PyTorch, the SDK)."""
    place = work.directory / "venv"
    clear(place)
    venv.create(place, with_pip=False, symlinks=True)
    _put_base_below(place)
    requirements, constraints = work.directory / "requirements.txt", work.directory / "constraints.txt"
    requirements.write_text(str(options["requirements"]))
    constraints.write_text("\n".join(options.get("constraints", [])) + "\n")
    scratch = work.directory / "tmp"
    scratch.mkdir(mode=0o700, exist_ok=True)
    python = str(place / "bin" / "python")
    work.say("Installing:\n" + str(options["requirements"]))
    install = [python, "-m", "pip", "install", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    install += ["--progress-bar", "off", "--no-warn-script-location", "--prefer-binary", "--retries", "2"]
    install += ["--requirement", str(requirements), "--constraint", str(constraints)]
    if options.get("wheels_only"):
        install += ["--only-binary", ":all:"]
    try:
        work.run(
            install,
            env=_environment(options, scratch, place),
            cwd=work.directory,
            what="installing the requirements",
            fault_in=fault_of_pip,
        )
    finally:
        clear(scratch)
    size = directory_bytes(place)
    work.say(f"Ready: {size >> 20:,} MiB")
    return {"bytes": size}


_CONFLICT = "The conflict is caused by:"
_HASHES = "THESE PACKAGES DO NOT MATCH THE HASHES"
#: Of pip's lines those that say that it failed, not why.
_NO_CAUSE = ("ResolutionImpossible", "subprocess-exited-with-error", "metadata-generation-failed", "Cannot install")


def fault_of_pip(output: str) -> str:
    """The lines of pip's output that name the cause; nothing where none does."""
    lines = [line.strip() for line in output.split("\n")]
    if _CONFLICT in lines:
        start = lines.index(_CONFLICT) + 1
        causes = list(itertools.takewhile(bool, lines[start : start + 6]))
        return "the requirements conflict: " + "; ".join(_by_the_portal(line) for line in causes)
    for line in lines:
        if _HASHES in line:
            return "a package does not match its hash in the requirements; the log names it"
    errors = [line.partition(":")[2].strip() for line in lines if line.upper().startswith("ERROR:")]
    causes = [line for line in errors if line and not any(word in line for word in _NO_CAUSE)]
    return "; ".join(dict.fromkeys(line[:200] for line in causes[-2:]))


def _by_the_portal(line: str) -> str:
    """A constraint is the portal's own package, which no requirement may replace."""
    return line.replace("The user requested (constraint)", "the portal has").replace("The user", "the job")


def _put_base_below(place: Path) -> None:
    """A line of a .pth file that is Python: plain paths there would leave out the .pth files below them."""
    base = [path for path in site.getsitepackages() if Path(path).is_dir()]
    [own] = (place / "lib").glob("python*/site-packages")
    calls = "; ".join(f"site.addsitedir({json.dumps(path)})" for path in base)
    (own / "_evenkeel_base.pth").write_text(f"import site; {calls}\n")


def _environment(options: dict[str, Any], scratch: Path, place: Path) -> dict[str, str]:
    kept = ("SSL_CERT_FILE", "SSL_CERT_DIR", "LANG", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PIP_DEFAULT_TIMEOUT")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {
        "PATH": f"{place / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
    }
    if options.get("index_url"):
        # An address may hold a password: never among the arguments.
        env["PIP_INDEX_URL"] = str(options["index_url"])
    return env | {"PIP_CONFIG_FILE": os.devnull, "PYTHONNOUSERSITE": "1"}

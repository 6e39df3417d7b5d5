"""`python -m evenkeel.preparation`: one request as JSON on standard input (it may hold a secret); see the package."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from evenkeel.preparation import artifacts, bundles, environments, git
from evenkeel.preparation.bounded import Work, clear, directory_bytes
from evenkeel.preparation.errors import PreparationError
from evenkeel.runner.entry import detach
from evenkeel.runner.processes import forbid_new_privileges, limit_resources
from evenkeel.runner.redaction import Redactor
from evenkeel.runner.reports import write_atomically

MAX_REQUEST = 4 << 20


def _unpack(work: Work, options: dict[str, Any]) -> dict[str, Any]:
    tree = work.directory / "tree"
    clear(tree)
    tree.mkdir(mode=0o700)
    with os.fdopen(int(options["source_fd"]), "rb") as file:
        found = bundles.unpack(file, tree, max_files=options["max_files"], max_bytes=work.max_bytes)
    work.say(f"Unpacked {found.files:,} members, {directory_bytes(tree):,} bytes")
    return {"files": found.files, "bytes": found.bytes}


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """What comes of a request; never raises."""
    timeout_s = float(request["timeout_s"])
    secret = str(request.get("secret") or "")
    work = Work(
        Path(request["directory"]),
        time.monotonic() + timeout_s,
        int(request["max_bytes"]),
        Redactor([secret] if secret else []),
        timeout_s,
    )
    options = request["options"]
    try:
        match request["kind"]:
            case "environment":
                detail = environments.build(work, options)
            case "git":
                detail = git.fetch(work, options, secret)
            case "bundle":
                detail = _unpack(work, options)
            case "artifacts":
                detail = artifacts.list_files(work, options)
            case kind:
                raise PreparationError(f"{kind!r} is not a kind of preparation")
        return {"state": "done", "message": "", "detail": detail}
    except PreparationError as error:
        work.say(str(error))
        return {"state": "failed", "message": str(error), "detail": {}}
    except Exception as error:
        work.say(traceback.format_exc())
        return {"state": "failed", "message": f"{type(error).__name__}: {error}", "detail": {}}


def main() -> None:
    request = json.loads(sys.stdin.buffer.read(MAX_REQUEST))
    detach()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.umask(int(request["umask"]))
    forbid_new_privileges()
    limit_resources(request["limits"])
    os.chdir(request["directory"])
    result = perform(request)
    write_atomically(
        Path(request["directory"]) / "result.json", result | {"attempt": request["attempt"], "nonce": request["nonce"]}
    )


if __name__ == "__main__":
    main()

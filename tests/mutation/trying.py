"""A session of tests in a copy of the tree that tries mutants."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.mutation.kept import ROOT, Kept
from tests.mutation.operators import Mutant
from tests.mutation.targets import Group


def try_all(group: Group, kept: Kept, todo: dict[str, Mutant]) -> None:
    """Let the tests of a group look at mutants, and keep what they find at once."""
    place = Path(tempfile.mkdtemp(prefix="evenkeel-mutants-"))
    try:
        tree, known = _copy(place), kept.known()
        asked, results = place / "asked.json", place / "results.jsonl"
        results.touch()
        mutants = [_asked(key, one, kept, group) for key, one in todo.items()]
        said = {"results": str(results), "modules": group.modules, "known": known, "mutants": mutants}
        asked.write_text(json.dumps(said))
        files = _files(group, kept, mutants, known)
        begin = ["tests/mutation/ready.py"] if group.servers else []
        _read(_session(tree, begin + files, asked, results), kept, todo, asked.with_suffix(".log"))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _asked(key: str, one: Mutant, kept: Kept, group: Group) -> dict[str, Any]:
    return {
        "key": key,
        "module": one.module,
        "source": one.source,
        "lines": list(range(one.line, one.line + one.was.count("\n") + 1)),
        "apart": group.apart,
        "files": kept.to_ask(key) or None,
    }


def _files(group: Group, kept: Kept, mutants: list[dict[str, Any]], known: dict[str, Any]) -> list[str]:
    """Files of tests of which nothing is known, and those that reach a module."""
    modules = {one["module"] for one in mutants}
    reach = {file for file, tests in known.items() if any(modules & found["lines"].keys() for found in tests.values())}
    return [file for file in kept.files if group.apart or file not in known or file in reach]


def _copy(place: Path) -> Path:
    """The tree with what git does not ignore, and links to what was installed and built."""
    place.chmod(0o755)  # the servers' account passes through
    tree = place / "tree"
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    for name in (".venv", "frontend/dist", "frontend/node_modules"):
        if (ROOT / name).exists():
            (tree / name).symlink_to(ROOT / name)
    return tree


def _session(tree: Path, files: list[str], asked: Path, results: Path) -> Iterable[dict[str, Any]]:
    """What a session says, while it runs."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin"]
    environment = os.environ | {
        "MUTANTS_ASKED": str(asked),
        "PYTHONPATH": f"{tree}:{tree / 'client'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Who hangs is seen by how long it takes without the mistake, on a machine that is as busy.
    command += ["--timeout=0", *files]
    with asked.with_suffix(".log").open("w") as log, results.open() as lines:
        session = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log)
        ended = False
        while not ended:
            ended = session.poll() is not None
            yield from map(json.loads, lines)
            try:
                session.wait(0 if ended else 0.5)
            except subprocess.TimeoutExpired:
                continue


def _read(session: Iterable[dict[str, Any]], kept: Kept, todo: dict[str, Mutant], log: Path) -> None:
    count = 0
    for found in session:
        if "file" in found:
            print(f"{len(found['tests'])} tests of {found['file']} run without a mistake", flush=True)
            if not found["failed"]:
                kept.knows(found["file"], found["tests"])
                kept.write()
        elif "key" in found:
            count += 1
            key = found.pop("key")
            kept.found(key, found)
            kept.write()
            how = f"noticed by {found['by']}" if found["noticed"] else "NOT NOTICED"
            print(f"{count}/{len(todo)} {found['seconds']:5.1f} s {todo[key].name}: {how}", flush=True)
        else:
            _say_failed(found)
    if count < len(todo):
        print(log.read_text()[-4000:])
        raise SystemExit(f"The session of tests ended after {count} of {len(todo)} mutants.")


def _say_failed(found: dict[str, Any]) -> None:
    for test in found["flaky"]:
        print(f"  left out this time, it failed once without a mistake: {test}")
    if found["broken"]:
        raise SystemExit("Mend these first, they fail without a mistake:\n  " + "\n  ".join(found["broken"]))

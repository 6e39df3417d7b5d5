"""Makes mistakes in the core, one at a time, and counts those that the tests notice: `make mutants`.

Works on a copy of the tree. What is known of a mutant is kept (`.mutants/`) until its module or the tests of its group
change, so that a second run tries only what a change touches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mistakes import MISTAKES
from tests.mutation.operators import Mutant, mutants_of, one_line
from tests.mutation.targets import GROUPS, Group

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".mutants"
LEAST_PERCENT = 85
#: Generated mutants of a module that are tried where nothing is said.
USUAL = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    mutant: Mutant
    noticed: bool
    by: str


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--module", action="append", default=[], help="a part of a module's path; may be repeated")
    parser.add_argument("--changed", metavar="REV", help="lines changed since a revision only, all their mutants")
    parser.add_argument("--limit", type=int, default=USUAL, help=f"generated mutants of a module (default {USUAL})")
    parser.add_argument("--all", action="store_true", help="all generated mutants")
    parser.add_argument("--mistakes", action="store_true", help="the listed mistakes only")
    parser.add_argument("--again", action="store_true", help="also those that are known")
    parser.add_argument("--tests", nargs="+", help="other tests than the module's; what they notice is not kept")
    parser.add_argument("--list", action="store_true", help="say which, and try none")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    outcomes = []
    for name, group in GROUPS.items():
        chosen = [one for module in _modules(group, arguments) for one in _chosen(module, arguments)]
        if arguments.list:
            print(*(one.name for one in chosen), sep="\n")
        elif chosen:
            if arguments.tests:
                group = replace(group, tests=tuple(arguments.tests), without=())
            outcomes += _outcomes(name, group, chosen, again=arguments.again, keep=not arguments.tests)
    return _report(outcomes)


def _modules(group: Group, arguments: argparse.Namespace) -> list[str]:
    wanted = arguments.module
    return [module for module in group.modules if not wanted or any(part in module for part in wanted)]


def _chosen(module: str, arguments: argparse.Namespace) -> list[Mutant]:
    """The listed mistakes of a module and some of the generated ones, always the same while their text is the same."""
    source = (ROOT / module).read_text()
    listed = [one for mistake in MISTAKES if mistake[0] == module for one in _listed(*mistake, source)]
    listed = [one for one in listed if _key(one) not in EQUIVALENT]
    generated = [one for one in mutants_of(module, source) if _key(one) not in EQUIVALENT]
    if arguments.changed:
        lines = _changed_lines(module, arguments.changed)
        return [one for one in (*listed, *generated) if one.line in lines]
    if arguments.mistakes:
        return listed
    if not arguments.all:
        generated = sorted(generated, key=lambda one: _digest(_key(one)))[: arguments.limit]
    return listed + sorted(generated, key=lambda one: one.line)


def _listed(module: str, was: str, made: str, breaks: str, source: str) -> list[Mutant]:
    if source.count(was) != 1:
        print(f"{module}: {one_line(was)!r} is there {source.count(was)} times: mend tests/mutation/mistakes.py")
        return []
    line = source[: source.index(was)].count("\n") + 1
    return [Mutant(module, "", line, "mistake", was, made, source.replace(was, made), breaks)]


def _changed_lines(module: str, revision: str) -> set[int]:
    command = ["git", "-C", str(ROOT), "diff", "-U0", revision, "--", module]
    lines: set[int] = set()
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("@@"):
            first, _, count = line.split("+")[1].split(" ")[0].partition(",")
            lines |= set(range(int(first), int(first) + int(count or 1)))
    return lines


def _key(mutant: Mutant) -> tuple[str, str, str, str]:
    """What stays the same when lines move."""
    return mutant.module, mutant.function, one_line(mutant.was), one_line(mutant.made)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _outcomes(name: str, group: Group, mutants: Sequence[Mutant], *, again: bool, keep: bool) -> list[Outcome]:
    """From what is kept, and of the others from a run."""
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{name}.json"
    kept: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() and keep else {}
    tests = _digest(*(file.read_bytes() for file in _files(group.tests)))
    keys = {_digest(tests, (ROOT / one.module).read_bytes(), _key(one)): one for one in mutants}
    todo = {key: one for key, one in keys.items() if again or key not in kept}
    if todo:
        for found in _tried(group, todo):
            kept[found.pop("key")] = found
            if keep:
                path.write_text(json.dumps(kept))
    return [Outcome(one, kept[key]["noticed"], *kept[key]["by"] or [""]) for key, one in keys.items() if key in kept]


def _files(tests: Iterable[str]) -> list[Path]:
    """All Python files of the folders that the tests lie in: builders, worlds and fixtures, too."""
    folders = {ROOT / test if (ROOT / test).is_dir() else (ROOT / test).parent for test in tests}
    return sorted({file for folder in folders for file in folder.glob("*.py")})


def _tried(group: Group, todo: dict[str, Mutant]) -> Iterable[dict[str, Any]]:
    place = Path(tempfile.mkdtemp(prefix="evenkeel-mutants-"))
    try:
        tree = _copy(place)
        asked = place / "asked.json"
        results = place / "results.jsonl"
        results.touch()
        said = [
            {
                "key": key,
                "module": one.module,
                "source": one.source,
                "lines": list(range(one.line, one.line + one.was.count("\n") + 1)),
                "apart": group.apart,
            }
            for key, one in todo.items()
        ]
        asked.write_text(json.dumps({"results": str(results), "mutants": said}))
        yield from _session(tree, group, asked, results, todo)
    finally:
        shutil.rmtree(place, ignore_errors=True)


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


def _session(tree: Path, group: Group, asked: Path, results: Path, todo: dict[str, Mutant]) -> Iterable[dict[str, Any]]:
    tests = [test for test in group.tests if (tree / test).exists()] + [f"--ignore={one}" for one in group.without]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin"]
    environment = os.environ | {
        "MUTANTS_ASKED": str(asked),
        "PYTHONPATH": f"{tree}:{tree / 'client'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    log = asked.with_suffix(".log")
    with log.open("w") as out:
        session = subprocess.Popen(
            [*command, "tests/mutation/ready.py", *tests], cwd=tree, env=environment, stdout=out, stderr=out
        )
        count = 0
        with results.open() as lines:
            while True:
                ended = session.poll() is not None
                for line in lines:
                    found = json.loads(line)
                    if "key" not in found:
                        _say_first(found)
                        continue
                    count += 1
                    how = f"noticed by {found['by'][0]}" if found["noticed"] else "NOT NOTICED"
                    print(f"{count}/{len(todo)} {found['seconds']:5.1f} s {todo[found['key']].name}: {how}", flush=True)
                    yield found
                if ended:
                    break
                try:
                    session.wait(0.5)
                except subprocess.TimeoutExpired:
                    continue
    if count < len(todo):
        print(log.read_text()[-4000:])
        raise SystemExit(f"The session of tests ended after {count} of {len(todo)} mutants.")


def _say_first(found: dict[str, Any]) -> None:
    print(f"{found['tests']} tests run without a mistake", flush=True)
    for test in found["failed_without"]:
        print(f"  left out, it fails without one: {test}")


def _report(outcomes: Sequence[Outcome]) -> int:
    if not outcomes:
        return 0
    missed = [one.mutant for one in outcomes if not one.noticed]
    if missed:
        print("\nNot noticed:")
        for one in missed:
            print(f"  {one.name}" + (f"  ({one.breaks})" if one.breaks else ""))
    print("\nNoticed:")
    for module in dict.fromkeys(one.mutant.module for one in outcomes):
        _score(module, [one for one in outcomes if one.mutant.module == module])
    percent = _score("all", outcomes)
    return 0 if percent >= LEAST_PERCENT else 1


def _score(name: str, outcomes: Sequence[Outcome]) -> float:
    noticed = sum(one.noticed for one in outcomes)
    percent = 100 * noticed / len(outcomes)
    print(f"  {name:44}{noticed:5} of {len(outcomes):4}  {percent:4.0f} %")
    return percent


if __name__ == "__main__":
    sys.exit(main())

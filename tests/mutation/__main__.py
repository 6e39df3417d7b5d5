"""Makes mistakes in the core, one at a time, and counts those that the tests notice: `make mutants`.

Works on a copy of the tree. What is known of a mutant is kept (`.mutants/`) until its module or the tests of its group
change, so that a second run tries only what a change touches.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.kept import ROOT, Kept, digest, key_of
from tests.mutation.mistakes import MISTAKES
from tests.mutation.operators import Mutant, mutants_of, one_line
from tests.mutation.targets import GROUPS, Group
from tests.mutation.trying import try_all

LEAST_PERCENT = 85
#: Generated mutants of a module that are tried where nothing is said.
USUAL = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    mutant: Mutant
    noticed: bool


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--module", action="append", default=[], help="a part of a module's path; may be repeated")
    parser.add_argument("--changed", metavar="REV", help="lines changed since a revision only, all their mutants")
    parser.add_argument("--limit", type=int, default=USUAL, help=f"generated mutants of a module (default {USUAL})")
    parser.add_argument("--all", action="store_true", help="all generated mutants")
    parser.add_argument("--mistakes", action="store_true", help="the listed mistakes only")
    parser.add_argument("--again", action="store_true", help="also those that are known")
    parser.add_argument("--tests", nargs="+", help="some of the tests only, or others than the module's")
    parser.add_argument("--list", action="store_true", help="say which, and try none")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    outcomes: dict[str, list[Outcome]] = {}
    for name, group in GROUPS.items():
        chosen = [one for module in _modules(group, arguments) for one in _chosen(module, arguments)]
        if arguments.list:
            print(*(one.name for one in chosen), sep="\n")
        elif chosen:
            if arguments.tests:
                group = replace(group, tests=tuple(arguments.tests), without=())
            outcomes[name] = _outcomes(Kept.of(name, group), group, chosen, again=arguments.again)
    return _report(outcomes)


def _modules(group: Group, arguments: argparse.Namespace) -> list[str]:
    wanted = arguments.module
    return [module for module in group.modules if not wanted or any(part in module for part in wanted)]


def _chosen(module: str, arguments: argparse.Namespace) -> list[Mutant]:
    """The listed mistakes of a module and some of the generated ones, always the same while their text is the same."""
    source = (ROOT / module).read_text()
    listed = [one for mistake in MISTAKES if mistake[0] == module for one in _listed(*mistake, source)]
    listed = [one for one in listed if key_of(one) not in EQUIVALENT]
    generated = [one for one in mutants_of(module, source) if key_of(one) not in EQUIVALENT]
    if arguments.changed:
        lines = _changed_lines(module, arguments.changed)
        return [one for one in (*listed, *generated) if one.line in lines]
    if arguments.mistakes:
        return listed
    if not arguments.all:
        generated = sorted(generated, key=lambda one: digest(key_of(one)))[: arguments.limit]
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


def _outcomes(kept: Kept, group: Group, mutants: Sequence[Mutant], *, again: bool) -> list[Outcome]:
    """From what is kept, and of the others from a run."""
    keys = {kept.key(one): one for one in mutants}
    if again:
        kept.mutants = {key: found for key, found in kept.mutants.items() if key not in keys}
    if todo := {key: one for key, one in keys.items() if kept.to_ask(key)}:
        try_all(group, kept, todo)
    return [Outcome(one, kept.mutants[key]["noticed"]) for key, one in keys.items()]


def _report(outcomes: Mapping[str, Sequence[Outcome]]) -> int:
    """Each group has to reach the least for itself: 1 where one does not."""
    missed = [one.mutant for group in outcomes.values() for one in group if not one.noticed]
    if missed:
        print("\nNot noticed:")
        for one in missed:
            print(f"  {one.name}" + (f"  ({one.breaks})" if one.breaks else ""))
    low = []
    for name, group in outcomes.items():
        print(f"\nNoticed in {name}:")
        for module in dict.fromkeys(one.mutant.module for one in group):
            _score(module, [one for one in group if one.mutant.module == module])
        if _score("all", group) < LEAST_PERCENT:
            low.append(name)
    if low:
        print(f"\nLess than {LEAST_PERCENT} %: {', '.join(low)}.")
    return 1 if low else 0


def _score(name: str, outcomes: Sequence[Outcome]) -> float:
    noticed = sum(one.noticed for one in outcomes)
    percent = 100 * noticed / len(outcomes)
    print(f"  {name:44}{noticed:5} of {len(outcomes):4}  {percent:4.0f} %")
    return percent


if __name__ == "__main__":
    sys.exit(main())

"""What is known of the mutants and tests of a group, kept until a text changes that it follows from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutation.operators import Mutant, one_line
from tests.mutation.targets import Group

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".mutants"


def key_of(mutant: Mutant) -> tuple[str, str, str, str]:
    """What stays the same when lines move."""
    return mutant.module, mutant.function, one_line(mutant.was), one_line(mutant.made)


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


@dataclass
class Kept:
    """`tests`: of each file of tests what it reaches; `mutants`: what noticed each one, and the files that did not."""

    path: Path
    #: Digests of the modules, and of the files of tests with what stands beside them: builders, worlds and fixtures.
    modules: dict[str, str]
    files: dict[str, str]
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    mutants: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, group: Group) -> Kept:
        modules = {module: digest((ROOT / module).read_bytes()) for module in group.modules}
        kept = cls(KEPT / f"{name}.json", modules, dict(_digests(group)))
        if kept.path.exists():
            found = json.loads(kept.path.read_text())
            kept.tests, kept.mutants = found["tests"], found["mutants"]
        return kept

    def write(self) -> None:
        KEPT.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({"tests": self.tests, "mutants": self.mutants}))

    def key(self, mutant: Mutant) -> str:
        return digest(self.modules[mutant.module], key_of(mutant))

    def known(self) -> dict[str, dict[str, Any]]:
        """What the files of tests reach that have not changed, nor the modules that they reach."""
        return {file: found["tests"] for file, found in self.tests.items() if self._is_known(file, found)}

    def _is_known(self, file: str, found: dict[str, Any]) -> bool:
        now = {module: self.modules.get(module) for module in found["modules"]}
        return (self.files.get(file), now) == (found["digest"], found["modules"])

    def knows(self, file: str, tests: dict[str, Any]) -> None:
        reached = {module for found in tests.values() for module in found["lines"]}
        modules = {module: self.modules[module] for module in sorted(reached)}
        self.tests[file] = {"digest": self.files[file], "modules": modules, "tests": tests}

    def to_ask(self, key: str) -> list[str]:
        """The files of tests that have to be asked about a mutant: none where a test that stands noticed it, else
        those that have changed since all of them did not."""
        found = self.mutants.get(key)
        if found is None:
            return list(self.files)
        if not found["noticed"]:
            return [file for file, now in self.files.items() if found["files"].get(file) != now]
        by = found["by"].partition("::")[0]
        return [] if self.files.get(by) == found["files"].get(by) else list(self.files)

    def found(self, key: str, outcome: dict[str, Any]) -> None:
        before = self.mutants.get(key, {"noticed": True})
        missed_by = {} if before["noticed"] or outcome["noticed"] else before["files"]
        self.mutants[key] = outcome | {"files": missed_by | self.files}


def _digests(group: Group) -> Iterable[tuple[str, str]]:
    left_out = {ROOT / name for name in group.without}
    for test in group.tests:
        place = ROOT / test
        for file in sorted(place.rglob("test_*.py")) if place.is_dir() else [place]:
            if not left_out & {file, *file.parents}:
                beside = (one for one in sorted(file.parent.glob("*.py")) if not one.name.startswith("test_"))
                yield str(file.relative_to(ROOT)), digest(file.read_bytes(), *(one.read_bytes() for one in beside))

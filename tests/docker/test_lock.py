"""What is installed is what was locked, byte for byte, and the locks name everything."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
_ENTRY = re.compile(r"([a-z0-9][a-z0-9.-]*)==([^\s\\]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
_DIGEST = re.compile(r"[a-z/]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}")


def entries(lock: Path) -> list[str]:
    return [match[1] for match in _ENTRY.finditer(lock.read_text())]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_entry_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    assert _ENTRY.sub("", text) == ""
    assert entries(lock)
    assert "//" not in text


@pytest.mark.parametrize("version", ["3.11.2", "3.11.9", "3.12.1", "3.13.1", "3.14.0"])
@pytest.mark.parametrize(("platform", "system"), [("linux", "Linux"), ("darwin", "Darwin")])
def test_the_locks_name_whatever_any_of_it_needs(version: str, platform: str, system: str) -> None:
    """They are installed without resolving, so what is missing in one would be missing at a start."""
    names = {canonicalize_name(name) for lock in LOCKS for name in entries(lock)}
    place = {"python_version": version.rpartition(".")[0], "python_full_version": version, "sys_platform": platform}
    place |= {"platform_system": system, "os_name": "posix", "implementation_name": "cpython"}
    missing, seen, todo = set(), set(), [(name, "") for name in names]
    while todo:
        name, extra = one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # of an extra that is not installed here
            continue
        for need in map(Requirement, needs):
            if need.marker and not need.marker.evaluate(place | {"extra": extra}):
                continue
            wanted = canonicalize_name(need.name)
            missing |= set() if wanted in names else {f"{name} needs {wanted}"}
            todo += [(wanted, inner) for inner in need.extras]
    assert missing == set()


def test_whatever_installs_them_asks_for_hashes() -> None:
    for path in ("scripts/bootstrap_env.sh", "docker/Dockerfile"):
        text = (ROOT / path).read_text()
        assert "--no-deps --require-hashes" in text
        installs = [line for line in text.splitlines() if re.search(r"install.* -r requirements", line)]
        assert all("locked[@]" in line or "require-hashes" in line for line in installs), installs


def test_base_images_are_named_by_digest() -> None:
    docker = (ROOT / "docker" / "Dockerfile").read_text()
    images = re.findall(r"^FROM (\S+)", docker, re.MULTILINE)
    images += re.findall(r"^    image: (\S+)", (ROOT / "docker" / "compose.yaml").read_text(), re.MULTILINE)
    assert len(images) == 5
    assert [image for image in images if not _DIGEST.fullmatch(image)] == []

"""Requirements files: which lines are allowed, and errors of the others, which never contain a value.

An option may contain a password, for example in the address of an index, so only its name is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from portal.core.problems import FieldProblem, Problems

MAX_LINES = 500
FIELD = "environment.requirements"
_HASH = re.compile(r"\s--hash=sha(?:256|384|512):[0-9a-f]{64,128}(?=\s|$)")
_COMMENT = re.compile(r"(^|\s)#.*$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}(?=\s|[\[<>=!~;,(]|$)")
#: For a short option only the letter: its value may follow at once, as in -iADDRESS.
_OPTION = re.compile(r"(?:^|(?<=\s))(?:--[A-Za-z][A-Za-z-]{0,40}|-[A-Za-z])")
_OURS = frozenset({"evenkeel", "pip"})
#: How people call the packages that every environment contains.
_TITLES = {"torch": "PyTorch"}


@cache
def base_packages() -> tuple[str, ...]:
    """The packages below every environment, which it must not replace."""
    try:
        version = metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:  # it is an extra
        return ()
    return (f"torch=={version}",)


def normalise(text: str) -> str:
    """One requirement per line, sorted, without comments. Raises Problems with the line of the file."""
    lines: set[str] = set()
    problems = []
    for number, line in _logical_lines(text):
        try:
            lines.add(_requirement(line))
        except ValueError as error:
            problems.append(FieldProblem(FIELD, f"line {number}: {error}", "requirement"))
    if not lines and not problems:
        problems.append(FieldProblem(FIELD, "names no package", "empty"))
    if len(lines) > MAX_LINES:
        problems.append(FieldProblem(FIELD, f"may have {MAX_LINES} lines at most", "too_long"))
    if problems:
        raise Problems(problems[:20])
    return "".join(f"{line}\n" for line in sorted(lines))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined at a trailing backslash, as in pip, each with the number of its first line."""
    parts: list[str] = []
    first = 0
    for number, raw in enumerate([*text.replace("\r\n", "\n").split("\n"), ""], 1):
        first = first if parts else number
        comment = raw.lstrip().startswith("#")
        if raw.endswith("\\") and not comment:
            parts.append(raw[:-1])
            continue
        line = _COMMENT.sub("", " ".join([*parts, raw])).strip()
        parts = []
        if line:
            yield first, line
    if parts and (line := _COMMENT.sub("", " ".join(parts)).strip()):
        yield first, line


def _requirement(line: str) -> str:
    hashes = sorted(found.strip() for found in _HASH.findall(f" {line}"))
    plain = _HASH.sub("", f" {line}").strip()
    if option := _OPTION.search(plain):
        raise ValueError(_refused_option(option[0]))
    try:
        wanted = Requirement(plain)
    except InvalidRequirement:
        raise ValueError(_no_requirement(plain)) from None
    name = canonicalize_name(wanted.name)
    if wanted.url:
        raise ValueError(f"{wanted.name} must come from the package index, not from an address")
    if name in _OURS:
        raise ValueError(f"{wanted.name} is the portal's own")
    _check_base(name, wanted)
    wanted.name = name
    return " ".join([str(wanted), *hashes])


def _refused_option(name: str) -> str:
    if name == "--hash":
        return "--hash is not sha256, sha384 or sha512 with its whole value"
    return f"options are not allowed, only packages: {name}"


def _no_requirement(plain: str) -> str:
    name = _NAME.match(plain)
    what = f"what follows {name[0]!r} is no version" if name else "it does not begin with the name of a package"
    return f"it is no requirement: {what}; write a package, as einops==0.8.1"


def _check_base(name: str, wanted: Requirement) -> None:
    """Raises ValueError if the requirement asks for another version of a portal package."""
    for package in base_packages():
        own, _, version = package.partition("==")
        applies = wanted.marker is None or wanted.marker.evaluate()
        if name == own and applies and not wanted.specifier.contains(version, prereleases=True):
            title = _TITLES.get(own, own)
            raise ValueError(
                f"{name}{wanted.specifier}: {title} is the portal's, {version}; leave the line out, or bring an image"
            )

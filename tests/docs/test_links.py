"""What the documents name is there: files, headings, pages in the contents, and commands with their options."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import click
from evenkeel.cli.main import cli

from tests.cases import in_turn

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_COMMAND = re.compile(r"^(?: {4}\$? ?|.*&& )(?:\.venv/bin/)?(evenkeel .*)$", re.MULTILINE)
#: What a shell makes of the rest of a line.
_SHELL = re.compile(r"\s(#|\|\|?|&&|>|;)(\s.*|$)")


def documents() -> list[Path]:
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return sorted(ROOT / name for name in tracked.stdout.split())


DOCUMENTS = documents()
all_documents = in_turn("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text())


@cache
def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings: the words in small letters, joined by dashes; repeated ones are counted."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(prose(path)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@all_documents
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), f"{link}: there is no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


def test_the_contents_name_every_document() -> None:
    contents = (ROOT / "docs" / "README.md").read_text()
    missing = [path.name for path in sorted((ROOT / "docs").glob("*.md")) if f"({path.name}" not in contents]
    assert missing == ["README.md"]


def commands(path: Path) -> list[list[str]]:
    found = []
    for line in _COMMAND.findall(path.read_text()):
        words = shlex.split(_SHELL.sub("", line.replace("\\|", "|")), comments=True)
        found.append(words[1:])
    return found


@all_documents
def test_every_command_can_be_given(path: Path) -> None:
    """Parsed as the command line parses it, and not carried out."""
    for words in commands(path):
        group: click.Command = cli
        context = click.Context(cli, info_name="evenkeel")
        while isinstance(group, click.Group) and words:
            _, command, words = group.resolve_command(context, words)
            assert command is not None, words
            group = command
        group.make_context(group.name, list(words))


def test_commands_are_found() -> None:
    assert ["explain", "7"] in commands(ROOT / "docs" / "start.md")
    assert ["limit", "set", "queued_jobs", "500", "--project", "vision", "--hard"] in commands(
        ROOT / "docs" / "administrators.md"
    )

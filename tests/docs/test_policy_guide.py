"""docs/administrators.md has every policy, in words and in a picture that its script still draws."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from scheduling.policies import POLICIES
from tests.cases import in_turn

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "administrators.md").read_text()
PICTURES = ROOT / "docs" / "pictures"
#: Their answers follow from arithmetic alone; those of engines may differ in ties from machine to machine.
WITHOUT_ENGINE = ("f_scheduling", "fifo_gang", "static_partition", "multifactor")
MOST_BYTES = 30_000


def section(name: str) -> str:
    [found] = re.findall(rf"^#### `{name}`\n(.*?)(?=^#)", GUIDE, re.MULTILINE | re.DOTALL)
    return str(found)


def picture(name: str) -> Path:
    return PICTURES / f"policy-{name}.svg"


def figures(name: str) -> list[str]:
    """What the picture says under its chart."""
    title = ElementTree.parse(picture(name)).findtext("{http://www.w3.org/2000/svg}title")
    assert title is not None
    return re.findall(r"(?:slowdown|worst|after|restarts|cost) (\$?[\d.]*\d)", title)


@in_turn("name", POLICIES)
def test_every_policy_has_a_paragraph_and_a_picture(name: str) -> None:
    said = section(name)
    for part in ("**Suits**", "**People notice**", f"![{name}](pictures/policy-{name}.svg)", "**Round**"):
        assert part in " ".join(said.split())
    assert re.search(r"\*\*(Maximises|Minimises)\*\*", said)


@in_turn("name", POLICIES)
def test_the_table_says_what_the_picture_says(name: str) -> None:
    [row] = re.findall(rf"^\| \[`{name}`\]\(#{name}\) \|(.*)\|$", GUIDE, re.MULTILINE)
    assert [cell.strip().removesuffix(" min") for cell in row.split("|")] == figures(name)


def test_no_picture_is_left_of_a_policy_that_went() -> None:
    assert {path.name for path in PICTURES.glob("policy-*.svg")} == {picture(name).name for name in POLICIES}


@in_turn("name", POLICIES)
def test_pictures_are_small(name: str) -> None:
    assert picture(name).stat().st_size < MOST_BYTES


def test_pictures_are_drawn_again_to_the_byte(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/policy_pictures.py", "--to", str(tmp_path), *WITHOUT_ENGINE]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, stdout=subprocess.DEVNULL)
    for name in WITHOUT_ENGINE:
        assert (tmp_path / picture(name).name).read_bytes() == picture(name).read_bytes()

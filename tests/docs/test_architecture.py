"""docs/architecture.md shows the rooms, layers and files that there are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cases import in_turn

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text()
SCRIPT = ROOT / "scripts" / "draw_layers.py"
FILES = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
)
NAMES = {Path(name).name for name in FILES.stdout.splitlines()}
_DRAWN_LAYER = re.compile(r'^  L\d+\["(.*)"\]$', re.MULTILINE)


def section(heading: str) -> str:
    [found] = re.findall(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^\1 |^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return str(found[1])


def test_the_layers_are_those_of_the_contracts() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@in_turn(
    "package, rooms, layers",
    [("portal", "Rooms of the portal", "The portal"), ("scheduling", "Rooms of the scheduler", "The scheduler")],
)
def test_every_room_has_its_line_in_the_order_of_the_layers(package: str, rooms: str, layers: str) -> None:
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    rows = re.findall(r"^\| \[(\w+)\]\(", section(rooms), re.MULTILINE)
    assert sorted(rows) == sorted(folders)
    place = {
        name: number
        for number, layer in enumerate(_DRAWN_LAYER.findall(section(layers)))
        for name in layer.split(" &nbsp;·&nbsp; ")
    }
    assert [place[row] for row in rows] == sorted(place[row] for row in rows)


def test_what_it_names_in_code_is_there() -> None:
    """Files by their name alone, as their folder is linked, and paths from the root or from a linked folder."""
    named = re.findall(r"`([\w/.]+)`", TEXT)
    files = [name for name in named if re.search(r"\.(py|tsx?|md|toml)$", name)]
    assert [name for name in files if Path(name).name not in NAMES] == []
    assert len(files) > 5


def test_eight_changes_have_their_files() -> None:
    _, _, changes = TEXT.partition("## Where do I put a change")
    found = re.split(r"^### ", changes, flags=re.MULTILINE)[1:]
    assert len(found) == 8
    for change in found:
        name, _, steps = change.partition("\n")
        assert len(re.findall(r"\]\(\.\./", steps)) >= 3, f"{name}: which files?"

"""The documents name the settings that there are, and no others."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from portal.config.environment_notes import RUN_VARIABLES, TOOL_VARIABLES
from portal.config.settings_table import GROUPS, SETTINGS
from scripts.write_settings import blocks_of
from tests.cases import in_turn
from tests.docs.test_links import DOCUMENTS, ROOT

SCRIPT = ROOT / "scripts" / "write_settings.py"
#: It says what there was.
_HISTORY = ROOT / "CHANGELOG.md"
_NAME = re.compile(r"(?<![A-Z_])EVENKEEL_[A-Z0-9_]*[*<]?")
#: The last is an example of what a run finds that has data of this name.
_KNOWN = SETTINGS.keys() | RUN_VARIABLES | TOOL_VARIABLES | {"EVENKEEL_DATA_IMAGENET"}


def test_the_tables_are_those_of_the_code() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_has_its_row_in_one_table() -> None:
    pages = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
    tables = Counter(key for page in pages for key in blocks_of(page))
    assert tables == Counter([*(group.key for group in GROUPS), "keep"])
    rows = Counter(name for page in pages for name in re.findall(r"^\| `([A-Z_0-9]+)` \|", page, re.MULTILINE))
    assert {name: count for name, count in rows.items() if name in SETTINGS} == dict.fromkeys(SETTINGS, 1)


@in_turn("path", [path for path in DOCUMENTS if path != _HISTORY], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_in_a_document_is_one(path: Path) -> None:
    assert [name for name in _NAME.findall(path.read_text()) if not _is_known(name)] == []


def _is_known(name: str) -> bool:
    """EVENKEEL_SLURM_* and EVENKEEL_DATA_<NAME> are families."""
    family = name.rstrip("*<")
    return name in _KNOWN or (family.endswith("_") and any(one.startswith(family) for one in _KNOWN))

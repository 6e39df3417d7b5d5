"""Writes the tables of settings in docs/ from portal/config/settings_table.py and the keys of EVENKEEL_KEEP.

`scripts/write_settings.py` writes them between their markers; with `--check` it exits 1 where they are out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from portal.config.keep import KEYS, Kept  # noqa: E402
from portal.config.setting import Group, Setting  # noqa: E402
from portal.config.settings_table import GROUPS  # noqa: E402

DOCS = ROOT / "docs"
_BLOCK = re.compile(r"(<!-- settings of ([a-z-]+) -->)\n.*?(<!-- end of settings -->)", re.DOTALL)
_HEAD = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]


def table_of(key: str) -> str:
    if key == "keep":
        return "\n".join(["| key | default | meaning |", "|---|---|---|", *map(_kept, KEYS)])
    [group] = [group for group in GROUPS if group.key == key]
    return "\n".join([f"For {group.needed_by}{_per_cluster(group)}:", "", *_HEAD, *map(_row, group.settings)])


def _per_cluster(group: Group) -> str:
    return "; each [cluster](clusters.md#naming-them) of several may have its own" if group.per_cluster else ""


def _row(setting: Setting) -> str:
    return f"| `{setting.name}` | {_default(setting)} | {_allowed(setting)} | {setting.help} |"


def _default(setting: Setting) -> str:
    if setting.shown:
        return setting.shown
    return f"`{setting.raw_default}`" if setting.raw_default else "none"


def _allowed(setting: Setting) -> str:
    if setting.kind == "flag":
        return "`1` or `0`"
    if setting.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in setting.choices if choice)
    if "{" in setting.form:
        before, _, example = setting.form.partition(" {")
        return f"{before} `{{{example}`"
    return setting.allowed


def _kept(one: Kept) -> str:
    first = ", oldest dropped first" if one.by_size and "first" not in one.help else ""
    return f"| `{one.key}` | `{one.default}{one.unit}` | {one.help}{first} |"


def written(text: str) -> str:
    """The page with each table as the settings are now."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{table_of(block[2])}\n{block[3]}", text)


def blocks_of(text: str) -> list[str]:
    return [block[2] for block in _BLOCK.finditer(text)]


def main() -> None:
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        before = page.read_text()
        after = written(before)
        if before == after:
            continue
        stale.append(page.name)
        if "--check" not in sys.argv[1:]:
            page.write_text(after)
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"docs/{', docs/'.join(stale)}: other settings than the code's: run scripts/write_settings.py")


if __name__ == "__main__":
    main()

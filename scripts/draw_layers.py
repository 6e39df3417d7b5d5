"""Draws the layers of pyproject.toml's import contracts as Mermaid pictures in docs/architecture.md.

`scripts/draw_layers.py` writes them between their markers; with `--check` it exits 1 where they are out of date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"


def layers_of(container: str) -> list[list[str]]:
    """Top layer first; names in one layer do not import each other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [found] = [one["layers"] for one in contracts if container in one.get("containers", ())]
    return [[name.strip() for name in layer.split("|")] for layer in found]


def picture(layers: Sequence[Sequence[str]]) -> str:
    lines = ["```mermaid", "flowchart TB"]
    lines += [f'  L{place}["{" &nbsp;·&nbsp; ".join(names)}"]' for place, names in enumerate(layers)]
    lines += [f"  L{place} --> L{place + 1}" for place in range(len(layers) - 1)]
    return "\n".join([*lines, "```"])


def drawn(text: str) -> str:
    """The page with each picture as the contracts have it now."""

    def redraw(block: re.Match[str]) -> str:
        return f"{block[1]}\n{picture(layers_of(block[2]))}\n{block[3]}"

    pattern = r"(<!-- layers of ([a-z._]+) -->)\n.*?(<!-- end of layers -->)"
    return re.sub(pattern, redraw, text, flags=re.DOTALL)


def main() -> None:
    before = PAGE.read_text()
    after = drawn(before)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(after)
    elif before != after:
        sys.exit("docs/architecture.md shows other layers than pyproject.toml: run scripts/draw_layers.py")


if __name__ == "__main__":
    main()

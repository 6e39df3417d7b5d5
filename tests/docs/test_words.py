"""The documents use the words of docs/glossary.md."""

from __future__ import annotations

import re
from pathlib import Path

from evenkeel.renamed import ATTRIBUTES, COMMANDS

from portal.core.renamed import ADDRESSES, ANSWERS, INPUTS, UNTIL
from tests.cases import in_turn
from tests.docs.test_links import DOCUMENTS, ROOT, prose

GLOSSARY = ROOT / "docs" / "glossary.md"
_QUOTED = re.compile(r'`[^`\n]*`|"[^"\n]*"|\*[^*\n]+\*')
_REPLACED = re.compile(
    r"\b(whoever|who waits|nobody|everybody|puts? out|putting out|(is|are) told|given out|looks on"
    r"|vessels?|takings|parked)\b",
    re.IGNORECASE,
)


@in_turn("path", [path for path in DOCUMENTS if path != GLOSSARY], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_uses_a_word_that_was_replaced(path: Path) -> None:
    """Quotations of messages, code and names aside."""
    found = [
        f"line {number}: {word[0]}"
        for number, line in enumerate(prose(path).splitlines(), 1)
        for word in _REPLACED.finditer(_QUOTED.sub("", line))
    ]
    assert found == []


def test_every_word_of_the_glossary_is_explained_once() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)
    single = [word.strip() for entry in words for word in entry.split(",")]
    assert len(single) > 100
    assert [word for word in set(single) if single.count(word) > 1] == ["reservation"]  # of nodes, and of the queue


def test_the_documents_list_every_name_that_changed() -> None:
    api, cli = ((ROOT / "docs" / name).read_text() for name in ("api.md", "cli.md"))
    for shape, names in ANSWERS.items():
        for old, new in names.items():
            (row,) = [line for line in api.splitlines() if line.startswith(f"| `{old}` | `{new}` | answers: ")]
            assert f"`{shape}`" in row
    for old, new in [pair for names in INPUTS.values() for pair in names.items()]:
        assert f"| `{old}` | `{new}` | the filter " in api
    for old, new in ADDRESSES.items():
        assert f"| `/{old}` | `/{new}` | addresses |" in api
    assert f"{UNTIL.day} November {UNTIL.year}" in api
    for command, now in COMMANDS.items():
        assert f"| `evenkeel {command}` | `evenkeel {now}` |" in cli
    for (kind, attribute), now in ATTRIBUTES.items():
        assert f"| `{kind}.{attribute}` | `{kind}.{now}` |" in cli

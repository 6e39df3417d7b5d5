"""Documents, command line and pages use the words of docs/glossary.md."""

from __future__ import annotations

import re
from pathlib import Path

from evenkeel.renamed import ATTRIBUTES, COMMANDS

from portal.core.renamed import ADDRESSES, ANSWERS, INPUTS, UNTIL
from tests.cases import in_turn
from tests.docs.shown_strings import is_sentence, python_strings, typescript_strings
from tests.docs.test_links import DOCUMENTS, ROOT, prose

GLOSSARY = ROOT / "docs" / "glossary.md"
_QUOTED = re.compile(r'`[^`\n]*`|"[^"\n]*"|\*[^*\n]+\*')
_REPLACED = re.compile(
    r"\b(whoever|who waits|nobody|everybody|puts? out|putting out|(is|are) told|given out|looks on"
    r"|vessels?|takings|parked)\b",
    re.IGNORECASE,
)
#: In what the client and the pages show, these too.
_SHOWN = re.compile(
    rf"{_REPLACED.pattern}|\b(parks?|put (it |them )?out|(is|are|was) held|artefacts?|quotas?|levels? of service"
    r"|taken back|all else|anew|somebody|is no (number|file|directory|member|text|YAML))\b",
    re.IGNORECASE,
)
_CLIENT = sorted((ROOT / "client" / "evenkeel").rglob("*.py"))
_PAGES = [
    path
    for path in sorted((ROOT / "frontend" / "src").rglob("*.ts*"))
    if ".test." not in path.name and path.name != "schema.ts"
]


@in_turn("path", [path for path in DOCUMENTS if path != GLOSSARY], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_uses_a_word_that_was_replaced(path: Path) -> None:
    """Quotations of messages, code and names aside."""
    found = [
        f"line {number}: {word[0]}"
        for number, line in enumerate(prose(path).splitlines(), 1)
        for word in _REPLACED.finditer(_QUOTED.sub("", line))
    ]
    assert found == []


@in_turn("path", [*_CLIENT, *_PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_people_see_uses_a_word_that_was_replaced(path: Path) -> None:
    """The strings of the command line, the SDK, the runner and the pages."""
    strings = python_strings(path) if path.suffix == ".py" else typescript_strings(path)
    found = [
        f"line {number}: {word[0]}: {' '.join(text.split())[:120]}"
        for number, text in strings
        if is_sentence(text)
        for word in _SHOWN.finditer(text)
    ]
    assert found == []


def test_the_strings_that_people_see_are_found(tmp_path: Path) -> None:
    module, page = tmp_path / "a.py", tmp_path / "a.tsx"
    module.write_text('"""No."""\n@click.command()\ndef f():\n    """Help text."""\n    print(f"one {x} two")\n')
    assert list(python_strings(module)) == [(4, "Help text."), (5, "one "), (5, " two")]
    page.write_text('// nobody\nconst a = `of ${n} b`; /* put out */\nreturn <p title="A b">Two words</p>;\n')
    assert list(typescript_strings(page)) == [(2, "of  b"), (3, "A b"), (3, "Two words")]


def test_every_word_of_the_glossary_is_explained_once() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)
    single = [word.strip() for entry in words for word in entry.split(",")]
    assert len(single) >= 100
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

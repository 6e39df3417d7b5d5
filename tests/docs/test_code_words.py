"""Docstrings, comments and names in the code use the words of docs/glossary.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.cases import in_turn
from tests.docs.test_links import ROOT

PACKAGES = ("accounts", "client", "portal", "scheduling")
#: In docstrings and comments. Subjects are jobs, projects and nodes; the rest has a word in the glossary.
_PROSE = re.compile(
    r"\b(whoever|whomever|who waits|nobody|somebody|puts? out|putting out|(?:is|are|was|were|be) told|given out"
    r"|looks on|vessels?|takings|parked|all else|lest|for ever|rivals?|must be off|at it|seen from)\b",
    re.IGNORECASE,
)
#: Words that a name is made of.
_IN_NAMES = frozenset({"yard", "vessel", "takings", "told", "nobody", "somebody", "whoever", "rival", "rivals", "park"})
_IN_NAMES |= {"parked", "parks", "poured", "untied"}
_PART_OF_A_NAME = re.compile("|".join(sorted(_IN_NAMES)), re.IGNORECASE)
#: Names that are stored, that are part of the API, or that belong to Unix.
_KEPT = frozenset(
    {
        "parks",  # in stored snapshots
        "deadline_told",  # columns and tables
        "WaitingTold",
        "nobody",  # the Unix account
        "_nobody",
        "NOBODY",
    }
)


def _files() -> list[Path]:
    return [
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts and ".venv" not in path.parts
    ]


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every docstring and comment; code in backticks and quotations are left out."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def names_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that the source defines: classes, functions, parameters, variables, attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words_in(name: str) -> set[str]:
    return {word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", part)}


def wrong_words(source: str) -> list[str]:
    whole = " ".join(source.split())
    if not _PROSE.search(whole) and not _PART_OF_A_NAME.search(whole):
        return []  # as nearly always, and much faster
    found = [
        f"line {line}: {word[0]}"
        for line, text in prose_of(source)
        for word in _PROSE.finditer(re.sub(r"`[^`]*`|\"[^\"\n]*\"", "", " ".join(text.split())))
    ]
    return found + [
        f"line {line}: the name {name}"
        for line, name in names_of(source)
        if name not in _KEPT and words_in(name) & _IN_NAMES
    ]


@in_turn("path", _files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_code_uses_a_word_that_was_replaced(path: Path) -> None:
    assert wrong_words(path.read_text()) == []


def test_a_replaced_word_is_found_wherever_it_is_planted() -> None:
    assert wrong_words('"""Whoever waits is told."""\n') == ["line 1: Whoever", "line 1: is told"]
    assert wrong_words("x = 1  # nobody else\n") == ["line 1: nobody"]
    assert wrong_words("def told_of(yard):\n    self.vesselCount = 1\n") == [
        "line 1: the name told_of",
        "line 1: the name yard",
        "line 2: the name vesselCount",
    ]
    assert wrong_words('"""A job waits, "nobody" aside, for `nobody`."""\n') == []

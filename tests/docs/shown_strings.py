"""Strings of the client and of the front end that people may see, with the line that they begin on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

#: Text in quotes, or between tags; braces hold code.
_TYPESCRIPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"([^"\n]*)"|`([^`\n]*)`|(?<!=)>([^<>{}\n]+)(?=[<{\n])""",
    re.DOTALL,
)
_CODE = re.compile(r"\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


def python_strings(path: Path) -> Iterator[tuple[int, str]]:
    """Without docstrings, but with those of commands, which are their help."""
    tree = ast.parse(path.read_text())
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body:
            first = node.body[0]
            is_help = any(".command" in text or ".group" in text for text in map(ast.unparse, _decorators(node)))
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and not is_help:
                left_out.add(id(first.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def _decorators(node: ast.AST) -> list[ast.expr]:
    return list(getattr(node, "decorator_list", []))


def typescript_strings(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text()
    for found in _TYPESCRIPT.finditer(text):
        shown = next((part for part in found.groups() if part is not None), None)
        if shown is not None and re.search(r"[A-Za-z]", shown):
            yield text.count("\n", 0, found.start()) + 1, _CODE.sub("", shown)


def is_sentence(text: str) -> bool:
    """Names, keys and classes have no blank between words."""
    return re.search(r"[A-Za-z] +[A-Za-z]", text) is not None

"""Modules and what each of them imports, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    path: Path
    tree: ast.Module

    @property
    def folder(self) -> str:
        """The package that it stands in; a package stands in itself."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Import:
    """`target` is the module that is loaded; `name` is what is taken from it, empty for the module itself."""

    importer: Module
    line: int
    target: str
    name: str
    in_function: bool
    type_only: bool

    def __str__(self) -> str:
        return f"{self.importer.name}:{self.line} imports {self.target}" + (f".{self.name}" if self.name else "")


@dataclass(frozen=True)
class Source:
    modules: Mapping[str, Module]
    imports: tuple[Import, ...]  # of these modules alone; those inside functions too

    def folder_of(self, module: str) -> str:
        return self.modules[module].folder

    def circles(self, *, type_only: bool = False) -> set[frozenset[str]]:
        """Modules that import each other, directly or through others."""
        names = sorted(self.modules)
        place = {name: number for number, name in enumerate(names)}
        edges = [(place[one.importer.name], place[one.target]) for one in self.imports if type_only >= one.type_only]
        starts, ends = np.array(edges, dtype=int).reshape(-1, 2).T
        graph = coo_array((np.ones(len(edges)), (starts, ends)), shape=(len(names), len(names)))
        count, labels = connected_components(graph, connection="strong")
        groups = (frozenset(names[at] for at in np.flatnonzero(labels == label)) for label in range(count))
        itself = {names[start] for start, end in edges if start == end}
        return {group for group in groups if len(group) > 1 or group & itself}


@cache
def project() -> Source:
    packages = {name: ROOT / name for name in ("portal", "scheduling", "accounts")}
    return read(packages | {"evenkeel": ROOT / "client" / "evenkeel"})


def read(packages: Mapping[str, Path]) -> Source:
    modules = {}
    for package, base in packages.items():
        for path in sorted(base.rglob("*.py")):
            parts = [package, *path.relative_to(base).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = Module(name, path, ast.parse(path.read_text()))
    return Source(modules, tuple(one for module in modules.values() for one in _imports(module, modules)))


def _imports(module: Module, known: Mapping[str, Module]) -> Iterator[Import]:
    for node, in_function, type_only in _import_statements(module.tree, False, False):
        for target, name in _targets(module, node, known):
            yield Import(module, node.lineno, target, name, in_function, type_only)


def _import_statements(
    node: ast.AST, in_function: bool, type_only: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, in_function, type_only
    elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for statement in node.body:
            yield from _import_statements(statement, in_function, True)
        for statement in node.orelse:
            yield from _import_statements(statement, in_function, type_only)
    else:
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            yield from _import_statements(child, inside, type_only)


def _targets(
    module: Module, node: ast.Import | ast.ImportFrom, known: Mapping[str, Module]
) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names if alias.name in known)
        return
    base = node.module or ""
    if node.level:
        folder = module.folder.split(".")
        base = ".".join([*folder[: len(folder) + 1 - node.level], *filter(None, [base])])
    for alias in node.names:
        if f"{base}.{alias.name}" in known:
            yield f"{base}.{alias.name}", ""
        elif base in known:
            yield base, alias.name

"""The rules for modules and folders; each finds what breaks it and says where."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tests.architecture.source import Module, Source

_OF_A_POLICY = re.compile(
    r"(^|[._])(policy|policies|policy_class|params|parameters|capabilities)(\(.*\))?$", re.IGNORECASE
)
_TYPE_OF_A_POLICY = re.compile(r"\b(Policy|Capabilities|\w*Parameters)\b")


def import_circles(source: Source) -> list[str]:
    """At run time: imports inside functions count, those that only type checkers see do not."""
    return [" <-> ".join(sorted(circle)) for circle in sorted(source.circles(), key=sorted)]


def imports_in_functions(source: Source, reasons: Mapping[tuple[str, str], str]) -> list[str]:
    """`reasons`: why a module imports another inside a function. One that nothing needs any more is found, too."""
    found = {(one.importer.name, one.target): str(one) for one in source.imports if one.in_function}
    unused = [f"{importer} no longer imports {target} in a function" for importer, target in reasons.keys() - found]
    return sorted([text for key, text in found.items() if key not in reasons] + unused)


def private_names(source: Source) -> list[str]:
    """Modules and names with a leading underscore that another folder uses."""
    found = []
    for one in source.imports:
        parts = one.target.split(".")
        private = next((at for at, part in enumerate(parts) if part.startswith("_")), None)
        home = source.folder_of(one.target) if private is None else ".".join(parts[:private])
        if one.importer.folder != home and (private is not None or _is_private(one.name)):
            found.append(str(one))
    for module in source.modules.values():
        found += _private_attributes(source, module)
    return found


def _private_attributes(source: Source, module: Module) -> Iterator[str]:
    """`module._name`, where the module is imported from another folder."""
    local = {
        one.target.rpartition(".")[2]: one.target for one in source.imports if one.importer is module and not one.name
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and _is_private(node.attr):
            target = local.get(node.value.id)
            if target and source.folder_of(target) != module.folder:
                yield f"{module.name}:{node.lineno} reads {target}.{node.attr}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def full_folders(base: Path, most: int, exempt: Collection[str] = ()) -> list[str]:
    """Folders with more modules than `most`; `__init__.py` is none."""
    count = Counter(
        path.parent.relative_to(base.parent).as_posix() for path in base.rglob("*.py") if path.name != "__init__.py"
    )
    return [
        f"{folder}: {number} modules"
        for folder, number in sorted(count.items())
        if number > most and folder not in exempt
    ]


def folders_without_room(tests: Path, rooms: Path) -> list[str]:
    """Folders of tests, at any depth, that name no folder of the source."""
    folders = (path.parent.relative_to(tests) for path in tests.rglob("*.py"))
    return sorted({folder.as_posix() for folder in folders if not (rooms / folder).is_dir()})


def lookups_on_policies(source: Source) -> list[str]:
    """`getattr` and `hasattr` on a policy, its parameters or its capabilities."""
    return [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for module in source.modules.values()
        for node in _lookups(module.tree, frozenset())
    ]


def _lookups(node: ast.AST, policies: frozenset[str]) -> Iterator[ast.Call]:
    """`policies`: arguments that are annotated as such."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        policies |= {
            argument.arg
            for argument in arguments
            if argument.annotation and _TYPE_OF_A_POLICY.search(ast.unparse(argument.annotation))
        }
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr") and node.args:
        subject = ast.unparse(node.args[0])
        if subject in policies or _OF_A_POLICY.search(subject):
            yield node
    for child in ast.iter_child_nodes(node):
        yield from _lookups(child, policies)

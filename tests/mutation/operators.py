"""Small, realistic mistakes made in a module's functions: one changed place each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNITS = {60: 3600, 3600: 60, 100: 1000, 1000: 100, 10**6: 10**3}
_QUERIES = {"filter", "exclude", "get", "update", "get_or_create", "update_or_create", "move", "values"}
_LOGS = {"logger", "log", "logging"}
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: `was`, the text of one place, replaced by `made`."""

    module: str
    function: str
    line: int
    kind: str
    was: str
    made: str
    source: str
    breaks: str = ""

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.kind}: {one_line(self.was)} -> {one_line(self.made)}"


def one_line(text: str) -> str:
    return " ".join(text.split())


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All mistakes that the operators know for the functions of a module, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    found: dict[tuple[int, str], Mutant] = {}
    for function, node in _places(ast.parse(source), ""):
        for place, kind, made in _mistakes(node):
            start, end = _offset(lines, place.lineno, place.col_offset), _end(lines, place)
            was = source[start:end]
            changed = source[:start] + made + source[end:]
            if one_line(was) != one_line(made) and _compiles(changed):
                mutant = Mutant(module, function, place.lineno, kind, was, made, changed)
                found.setdefault((start, changed), mutant)
    return sorted(found.values(), key=lambda one: (one.line, one.kind, one.made))


def _offset(lines: list[str], line: int, column: int) -> int:
    """In characters; the tree counts bytes."""
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _end(lines: list[str], node: ast.expr | ast.stmt) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _offset(lines, node.end_lineno, node.end_col_offset)


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _places(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.AST]]:
    """Nodes of function bodies, with the qualified name of the outermost function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in child.body:
                yield from ((inside + child.name, each) for each in _walk(statement))
        elif isinstance(child, ast.ClassDef):
            yield from _places(child, f"{inside}{child.name}.")


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Without annotations, what a log says, and what is inside of texts, whose places are not known."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and not _is_log(child):
                yield from _walk(child)


#: The place, the kind of mistake, and the text that is made of the place.
Mistake = tuple[ast.expr | ast.stmt, str, str]


def _mistakes(node: ast.AST) -> Iterator[Mistake]:
    if isinstance(node, ast.expr):
        yield from _in_expression(node)
    match node:
        case ast.If() | ast.IfExp() | ast.While():
            leaves = isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVES)
            yield node.test, "guard", "False" if leaves else "True"
        case ast.comprehension():
            yield from ((test, "filter", "True") for test in node.ifs)
        case ast.Expr(value=ast.Call() | ast.Await() as call) if not _is_log(call):
            yield node, "call", "pass"
        case ast.With() | ast.AsyncWith():
            yield from _contexts(node)


def _in_expression(node: ast.expr) -> Iterator[Mistake]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            yield node, "comparison", _text(ast.Compare(node.left, [_COMPARED[type(op)]()], node.comparators))
        case ast.BoolOp():
            yield from _conditions(node)
        case ast.UnaryOp(op=ast.Not()):
            yield node, "negation", _text(node.operand)
        case ast.Call():
            yield from _calls(node)
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not _is_text(node):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield node, "arithmetic", _text(ast.BinOp(node.left, other, node.right))
        case ast.Constant(value=bool()):
            yield node, "truth", str(not node.value)
        case ast.Constant(value=int(number)):
            yield node, "number", str(_UNITS.get(number, number + 1))


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(each, ast.JoinedStr | ast.List | ast.Tuple) or _is_string(each) for each in ast.walk(node))


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_log(call: ast.AST) -> bool:
    root: ast.AST = call
    while isinstance(root, ast.Call | ast.Attribute | ast.Await):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in _LOGS


def _conditions(node: ast.BoolOp) -> Iterator[Mistake]:
    for left_out in range(len(node.values)):
        rest = [value for index, value in enumerate(node.values) if index != left_out]
        yield node, "condition", _text(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])


def _calls(node: ast.Call) -> Iterator[Mistake]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in _SWAPPED and isinstance(node.func, ast.Name):
        yield node.func, "bound", _SWAPPED[name]
        if name in ("min", "max") and len(node.args) == 2 and not node.keywords:
            yield from ((node, "bound", _text(each)) for each in node.args)
    if name == "select_for_update" and isinstance(node.func, ast.Attribute):
        yield node, "lock", ast.unparse(node.func.value)
    if name == "on_commit" and len(node.args) == 1:
        yield node, "commit", f"({ast.unparse(node.args[0])})()"
    if name in _QUERIES and isinstance(node.func, ast.Attribute | ast.Name):
        yield from _left_out(node)
    if name == "order_by" and len(node.args) > 1:
        changed = copy.deepcopy(node)
        changed.args = [*node.args[1:], node.args[0]]
        yield node, "order", ast.unparse(changed)
    if any(one.arg in ("key", "reverse") for one in node.keywords) and name in ("sorted", "sort", "min", "max"):
        changed = copy.deepcopy(node)
        changed.keywords = [one for one in node.keywords if one.arg not in ("key", "reverse")]
        yield node, "order", ast.unparse(changed)


def _left_out(node: ast.Call) -> Iterator[Mistake]:
    """A query, a guarded update or a move without one of its conditions or values."""
    for index in range(len(node.keywords)):
        if len(node.keywords) + len(node.args) > 1:
            changed = copy.deepcopy(node)
            del changed.keywords[index]
            yield node, "query", ast.unparse(changed)
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("filter", "exclude") and len(node.args) == 1:
        changed = copy.deepcopy(node)
        changed.args = []
        if not node.keywords:
            changed.func = ast.Attribute(node.func.value, "all", ast.Load())
        yield node, "query", ast.unparse(changed)


def _contexts(node: ast.With | ast.AsyncWith) -> Iterator[Mistake]:
    for item in node.items:
        text = ast.unparse(item.context_expr)
        if "lock" in text.lower() or "atomic" in text:
            yield item.context_expr, "lock", "__import__('contextlib').nullcontext()"

"""Mutants: what is made of a source, and that the loaded functions take it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.operators import mutants_of
from tests.mutation.plugin import put_in
from tests.mutation.targets import GROUPS

ROOT = Path(__file__).resolve().parents[2]


def made(body: str) -> set[tuple[str, str, str]]:
    return {(one.kind, one.was, one.made) for one in mutants_of("m.py", f"def f(a, b, rows, log):\n    {body}\n")}


@pytest.mark.parametrize(
    ("body", "mistake"),
    [
        ("return a < b", ("comparison", "a < b", "(a <= b)")),
        ("return a and b", ("condition", "a and b", "(b)")),
        ("return max(a, b)", ("bound", "max", "min")),
        ("return max(a, b)", ("bound", "max(a, b)", "(b)")),
        ("return a + 60", ("number", "60", "3600")),
        ("return [x for x in rows if x]", ("filter", "x", "True")),
        ("return rows.filter(a=1, b=2)", ("query", "rows.filter(a=1, b=2)", "rows.filter(b=2)")),
        ("return rows.select_for_update().get()", ("lock", "rows.select_for_update()", "rows")),
        ("rows.save()", ("call", "rows.save()", "pass")),
        ("rows.on_commit(log)", ("commit", "rows.on_commit(log)", "(log)()")),
        ("return rows.order_by('a', 'b')", ("order", "rows.order_by('a', 'b')", "rows.order_by('b', 'a')")),
    ],
)
def test_a_place_is_changed_as_by_a_slip(body: str, mistake: tuple[str, str, str]) -> None:
    assert mistake in made(body)


def test_what_a_log_says_and_what_is_inside_of_texts_is_left_alone() -> None:
    assert made("log.info('%s', a)\n    return f'{a + 1}'") == set()


def test_every_mutant_differs_in_its_place_and_compiles() -> None:
    source = (ROOT / "accounts/quotas.py").read_text()
    found = mutants_of("accounts/quotas.py", source)
    assert len(found) > 100
    for one in found:
        assert one.source != source
        compile(one.source, "m", "exec")
    assert len({one.source for one in found}) == len(found)


def test_the_modules_and_tests_that_are_named_are_there() -> None:
    for group in GROUPS.values():
        for name in (*group.modules, *group.tests, *group.without):
            assert (ROOT / name).exists(), name


def load(place: Path, source: str) -> ModuleType:
    path = place / "tried.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("tried", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tried"] = module
    spec.loader.exec_module(module)
    return module


def test_functions_that_others_hold_already_take_the_mistake(tmp_path: Path) -> None:
    source = "def f(n):\n    return n + 1\nclass A:\n    @property\n    def g(self):\n        return f(1) + 1\n"
    module = load(tmp_path, source)
    f, a = module.f, module.A()
    put_in(str(tmp_path / "tried.py"), source.replace("n + 1", "n - 1").replace("f(1) + 1", "f(1) + 5"))
    assert (f(3), a.g) == (2, 5)

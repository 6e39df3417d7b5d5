"""Mutants: what is made of a source, and that the loaded functions take it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.kept import Kept
from tests.mutation.mistakes import MISTAKES
from tests.mutation.operators import mutants_of, one_line
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
    assert made("log.info('%s', a, exc_info=True)\n    return f'{a + 1}'") == set()


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


def test_the_runner_and_the_sdk_are_tried_whole() -> None:
    named = {module for group in GROUPS.values() for module in group.modules}
    for place in ("client/evenkeel/runner", "client/evenkeel/sdk"):
        for path in (ROOT / place).glob("*.py"):
            module = str(path.relative_to(ROOT))
            assert module in named or path.name == "__main__.py" or not mutants_of(module, path.read_text()), module


def test_every_listed_mistake_can_be_made_today() -> None:
    modules = {module for group in GROUPS.values() for module in group.modules}
    for module, was, made, _ in MISTAKES:
        source = (ROOT / module).read_text()
        assert module in modules
        assert source.count(was) == 1, (module, was)
        compile(source.replace(was, made), module, "exec")


def test_what_is_equivalent_is_still_there_and_has_a_reason() -> None:
    for (module, function, was, _), why in EQUIVALENT.items():
        source = (ROOT / module).read_text()
        assert f"def {function.rpartition('.')[2]}(" in source or not function, (module, function)
        assert one_line(was) in one_line(source), (module, was)
        assert len(why) > 20


def kept(**files: str) -> Kept:
    return Kept(Path("none"), {"m.py": "1"}, {f"{name}.py": digest for name, digest in files.items()})


def test_what_a_test_noticed_stands_while_that_test_does() -> None:
    now = kept(a="1", b="1")
    assert now.to_ask("k") == ["a.py", "b.py"]
    now.found("k", {"noticed": True, "by": "a.py::test_x"})
    assert now.to_ask("k") == []
    now.files = {"a.py": "1", "b.py": "2", "c.py": "1"}
    assert now.to_ask("k") == []
    now.files = {"a.py": "2", "b.py": "1"}
    assert now.to_ask("k") == ["a.py", "b.py"]


def test_of_what_nobody_noticed_only_new_tests_are_asked_again() -> None:
    now = kept(a="1", b="1")
    now.found("k", {"noticed": False, "by": ""})
    assert now.to_ask("k") == []
    now.files = {"c.py": "1"}
    assert now.to_ask("k") == ["c.py"]
    now.found("k", {"noticed": False, "by": ""})
    now.files = {"a.py": "1", "b.py": "2", "c.py": "1"}
    assert now.to_ask("k") == ["b.py"]


def test_what_a_file_of_tests_reaches_is_known_until_it_or_what_it_reaches_changes() -> None:
    now = kept(a="1")
    now.knows("a.py", {"a.py::t": {"seconds": 0.1, "lines": {"m.py": [1]}}})
    assert list(now.known()) == ["a.py"]
    now.modules = {"m.py": "2"}
    assert now.known() == {}
    now.modules, now.files = {"m.py": "1"}, {"a.py": "2"}
    assert now.known() == {}


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


def test_a_function_that_needs_what_is_outside_takes_one_that_does_not(tmp_path: Path) -> None:
    source = "class A(Exception):\n    def __init__(self, n):\n        super().__init__(n + 1)\n"
    module = load(tmp_path, source)
    put_in(str(tmp_path / "tried.py"), source.replace("super().__init__(n + 1)", "pass"))
    assert str(module.A(3)) == "3"


def test_objects_that_warn_when_they_are_asked_for_their_class_are_left_alone(tmp_path: Path) -> None:
    class Odd:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise FutureWarning("ask somebody else")

    odd = [Odd()]
    module = load(tmp_path, "def f(n):\n    return n\n")
    put_in(str(tmp_path / "tried.py"), "def f(n):\n    return n + 1\n")
    assert (module.f(3), len(odd)) == (4, 1)

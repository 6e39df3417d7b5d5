"""What holds between the modules and folders of the project, computed from the source."""

from __future__ import annotations

from pathlib import Path

from tests.architecture import rules
from tests.architecture.source import ROOT, Source, project, read
from tests.cases import in_turn

APP_READY = "Django's apps are loaded before their models"
#: Why a module imports another inside a function. To dodge a circle is no reason.
IN_FUNCTIONS = {
    ("accounts.apps", "accounts.oidc"): APP_READY,
    ("accounts.apps", "accounts.sessions"): APP_READY,
    ("portal.notices.apps", "portal.notices.transport.connecting"): APP_READY,
    ("portal.rollouts.apps", "portal.rollouts.shadowing"): APP_READY,
    ("portal.rollouts.apps", "portal.rounds.committed"): APP_READY,
    ("accounts.migrations.0006_quotas_and_usage", "accounts.usage"): "only the step that runs once needs it",
    (
        "portal.operations.management.commands.simulate",
        "scheduling.simulator.output.plots",
    ): "matplotlib: for pictures",
    ("portal.operations.management.commands.train_placement", "scheduling.learning.training"): "torch: to train",
    ("scheduling.executors.ray.agent", "scheduling.executors.ray.calls"): "Ray need not be installed",
    ("evenkeel.cli", "evenkeel.cli.main"): "Ctrl-C while it is loaded ends the program without a traceback",
}
#: Closed by annotations alone, and so none at run time (docs/decisions/0032-rooms.md).
TYPE_ONLY_CIRCLES = {
    frozenset({"evenkeel.client", "evenkeel.fairness", "evenkeel.node_sets", "evenkeel.resources"}),
    frozenset({"portal.jobs.models.job", "portal.jobs.models.run"}),
    frozenset(
        {
            "scheduling.engine.constraints.gpu_sharing",
            "scheduling.engine.constraints.host_resources",
            "scheduling.engine.placement.choose_gpus",
            "scheduling.engine.reclaim.reclaim",
            "scheduling.engine.state",
        }
    ),
    frozenset({"scheduling.policies.learned.base", "scheduling.policies.learned.colocation"}),
    frozenset(
        {
            "scheduling.simulator.engine",
            "scheduling.simulator.failures",
            "scheduling.simulator.gpu_sharing.neighbours",
            "scheduling.simulator.skip_idle_rounds",
            "scheduling.simulator.snapshot",
        }
    ),
}
MOST_MODULES = 15


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert len(project().imports) > 3_000
    assert rules.import_circles(project()) == []


def test_circles_that_only_annotations_close_are_listed() -> None:
    found = project().circles(type_only=True)
    print(*(" <-> ".join(sorted(circle)) for circle in found), sep="\n")
    assert found == TYPE_ONLY_CIRCLES


def test_an_import_inside_a_function_has_a_reason() -> None:
    assert rules.imports_in_functions(project(), IN_FUNCTIONS) == []


def test_no_folder_uses_what_another_calls_private() -> None:
    assert rules.private_names(project()) == []


def test_no_folder_is_full() -> None:
    assert rules.full_folders(ROOT / "portal", MOST_MODULES, exempt=["portal/jobs/migrations"]) == []
    assert rules.full_folders(ROOT / "scheduling", MOST_MODULES) == []
    for top in ("scheduling", "scheduling/policies"):
        assert len(list((ROOT / top).glob("*.py"))) <= 6, top


@in_turn("room", ["portal", "scheduling"])
def test_folders_of_tests_are_named_as_the_rooms(room: str) -> None:
    assert rules.folders_without_room(ROOT / "tests" / room, ROOT / room) == []


def test_nothing_looks_up_attributes_of_a_policy() -> None:
    assert rules.lookups_on_policies(project()) == []


def source(tmp_path: Path, files: dict[str, str]) -> Source:
    for name, text in {"a/__init__.py": "", "b/__init__.py": "", **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read({"a": tmp_path / "a", "b": tmp_path / "b"})


@in_turn(
    "files, found",
    [
        ({"a/x.py": "import b.y", "b/y.py": "from a import x"}, ["a.x <-> b.y"]),
        ({"a/x.py": "from b.y import f", "b/y.py": "def f():\n    from a.x import g"}, ["a.x <-> b.y"]),
        (
            {"a/x.py": "from .z import f", "a/z.py": "import b", "b/__init__.py": "from a.x import g"},
            ["a.x <-> a.z <-> b"],
        ),
        ({"a/x.py": "import b.y", "b/y.py": "if TYPE_CHECKING:\n    from a import x"}, []),
        ({"a/x.py": "import b.y", "b/y.py": "if TYPE_CHECKING:\n    pass\nelse:\n    import a.x"}, ["a.x <-> b.y"]),
        ({"a/x.py": "import b.y", "b/y.py": "import json"}, []),
    ],
)
def test_a_planted_circle_is_found(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    assert rules.import_circles(source(tmp_path, files)) == found


def test_a_planted_import_in_a_function_is_found(tmp_path: Path) -> None:
    files = {"a/x.py": "class C:\n    async def f(self):\n        if self:\n            from b import y", "b/y.py": ""}
    planted = source(tmp_path, files)
    assert rules.imports_in_functions(planted, {}) == ["a.x:4 imports b.y"]
    assert rules.imports_in_functions(planted, {("a.x", "b.y"): "a reason"}) == []
    stale = {("a.x", "b.y"): "a reason", ("a.x", "b.z"): "one that went"}
    assert rules.imports_in_functions(planted, stale) == ["a.x no longer imports b.z in a function"]


@in_turn(
    "text, found",
    [
        ("from b._y import f", ["a.x:1 imports b._y.f"]),
        ("from b._in import y", ["a.x:1 imports b._in.y"]),
        ("from b.z import _f", ["a.x:1 imports b.z._f"]),
        ("from b import z\nz._f()", ["a.x:2 reads b.z._f"]),
        ("from a._near import _f", []),
        ("from b.z import f, __doc__", []),
    ],
)
def test_a_planted_use_of_private_names_is_found(tmp_path: Path, text: str, found: list[str]) -> None:
    files = {"a/x.py": text, "a/_near.py": "", "b/_y.py": "", "b/z.py": "", "b/_in/__init__.py": "", "b/_in/y.py": ""}
    assert rules.private_names(source(tmp_path, files)) == found


def test_a_planted_module_too_many_is_found(tmp_path: Path) -> None:
    source(tmp_path, {f"a/m/m{number}.py": "" for number in range(3)} | {"a/m/__init__.py": "", "a/m/deep/n.py": ""})
    assert rules.full_folders(tmp_path / "a", 3) == []
    assert rules.full_folders(tmp_path / "a", 2) == ["a/m: 3 modules"]
    assert rules.full_folders(tmp_path / "a", 2, exempt=["a/m"]) == []


def test_a_planted_folder_of_tests_without_a_room_is_found(tmp_path: Path) -> None:
    source(tmp_path, {"a/m/x.py": "", "b/m/test_x.py": "", "b/old/test_y.py": ""})
    assert rules.folders_without_room(tmp_path / "b", tmp_path / "a") == ["old"]


@in_turn(
    "text, found",
    [
        ("getattr(policy, 'kind', None)", 1),
        ("hasattr(self.policy.parameters, 'alpha')", 1),
        ("getattr(load_policy('x'), 'kind')", 1),
        ("def f(chosen: Policy | None) -> None:\n    getattr(chosen, 'kind', None)", 1),
        ("def f(p: ElasticParameters) -> None:\n    [hasattr(p, name) for name in ()]", 1),
        ("def f(run: Run) -> None:\n    getattr(run, 'kind', None)", 0),
    ],
)
def test_a_planted_lookup_on_a_policy_is_found(tmp_path: Path, text: str, found: int) -> None:
    assert len(rules.lookups_on_policies(source(tmp_path, {"a/x.py": text}))) == found

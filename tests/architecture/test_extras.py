"""A control plane that only schedules needs neither PyTorch, scikit-learn nor matplotlib."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from portal.material import requirements
from portal.operations import extras
from scheduling.executors.local.machine import checking
from tests.architecture.source import ROOT, project

#: What is imported for their sake alone, when a command asks for it, or is a program that jobs run.
_THEIRS = ("scheduling.learning.training", "scheduling.simulator.output.plots", "scheduling.simulator.output.gantt")
SAMPLE = [f"--{name}={ROOT}/examples/sample.{name}.json" for name in ("trace", "cluster")]
_PROGRAMS = "evenkeel.programs"
_CONTROL_PLANE = """
import sys, warnings
from importlib import import_module

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "sklearn", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
warnings.simplefilter("ignore")
import django
django.setup()
from django.urls import get_resolver
get_resolver().url_patterns
from portal.celery import app
app.loader.import_default_modules()
from scheduling.policies import POLICIES, load_policy
for name in POLICIES:
    load_policy(name, {"n": 2} if name == "static_partition" else {})
for name in sys.stdin.read().split():
    import_module(name)
print(len(app.tasks), len(POLICIES), *(name for name in ("torch", "sklearn", "matplotlib") if name in sys.modules))
"""


def test_a_control_plane_loads_without_them() -> None:
    """Settings, addresses, Celery's tasks and policies; then every module but those that are theirs."""
    names = [
        name
        for name in project().modules
        if name not in _THEIRS and not name.startswith(_PROGRAMS) and not name.startswith("scheduling.executors.ray")
    ]
    names = [name for name in names if name not in ("portal.asgi", "evenkeel.__main__") and "migrations" not in name]
    done = subprocess.run(
        [sys.executable, "-c", _CONTROL_PLANE],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "DJANGO_SETTINGS_MODULE": "tests.settings"},
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    tasks, policies, *loaded = done.stdout.split()
    assert int(tasks) > 20
    assert int(policies) >= 30
    assert loaded == []


@pytest.fixture
def _without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("_without")
def test_doctor_says_what_built_in_programs_lack() -> None:
    found = checking.built_in_programs()
    assert found.ok  # jobs that run commands of their own do without
    assert found.warning
    assert found.seen.startswith("torch and sklearn not found")
    assert "requirements-local.lock" in found.fix


def test_doctor_has_no_warning_where_they_are_there() -> None:
    assert not checking.built_in_programs().warning


@pytest.mark.usefixtures("_without")
def test_commands_name_the_extra_that_they_need(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"pip install -r requirements-plots\.lock"):
        call_command("simulate", *SAMPLE, "--policy", "f_scheduling", "--plots", tmp_path)
    with pytest.raises(CommandError, match=r"pip install -r requirements-local\.lock"):
        call_command("train_placement", "dqn_gpu", out=tmp_path / "model.npz")


def test_environments_of_jobs_are_bound_to_no_torch_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert requirements.base_packages.__wrapped__() == ()

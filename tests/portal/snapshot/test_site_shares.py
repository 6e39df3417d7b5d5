"""The fair share of a site's own Slurm in place of ours: whose factor is whose, and when ours holds."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Project, User
from accounts.services import create_project
from accounts.slurm_names import set_slurm
from portal.execution import executors
from portal.rounds import upkeep_tasks
from portal.snapshot import site_shares
from portal.snapshot.priority_inputs import gather_priority_inputs
from portal.snapshot.site_shares import factors_of
from portal.snapshot.take import take_snapshot
from scheduling.errors import ExecutorError
from scheduling.priority.fair_share import Leaf
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    cache.clear()
    world = World()
    world.cluster.policy_name, world.cluster.policy_parameters = "multifactor", {"site_fair_share": True}
    world.cluster.save()
    return world


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(executor="slurm", options={}, runs_as_person=False)
    monkeypatch.setattr(site_shares, "engine_of", lambda cluster_id: made)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name="portal"))
    return made


def named(project: str, account: str | None) -> None:
    root = User.objects.create_superuser(f"{project}-{account}@example.org", "x")
    set_slurm(actor=root, project=Project.objects.get(key=project), names={"account": account})


def test_a_project_has_the_factor_of_its_account_or_that_of_the_project_above(world: World, engine: Any) -> None:
    create_project(actor=None, key="detection", name="Detection", parent=Project.objects.get(key="vision"))
    create_project(actor=None, key="speech", name="Speech")
    named("vision", "cv")
    site_shares.note(world.cluster.pk, {("cv", "portal"): 0.25, ("cv", "ana"): 0.9, ("other", "portal"): 0.5})
    people = [("vision", "1"), ("detection", "2"), ("speech", "3")]
    assert factors_of(world.cluster, people) == {"vision": {"1": 0.25}, "detection": {"2": 0.25}}
    engine.options["account"] = "other"
    assert factors_of(world.cluster, people)["speech"] == {"3": 0.5}
    engine.options["account"] = "Other"
    assert factors_of(world.cluster, people)["speech"] == {"3": 0.5}


def test_without_an_account_the_only_one_that_the_user_has_counts(world: World, engine: Any) -> None:
    site_shares.note(world.cluster.pk, {("cv", "portal"): 0.25, ("cv", "ana"): 0.9})
    assert factors_of(world.cluster, [("vision", "1")]) == {"vision": {"1": 0.25}}


def test_where_jobs_run_as_people_each_has_a_factor_of_its_own(world: World, engine: Any) -> None:
    engine.runs_as_person = True
    named("vision", "cv")
    ana, bo = world.user, User.objects.create_user("bo@example.org", "x")
    User.objects.filter(pk=ana.pk).update(unix_account="ana")
    site_shares.note(world.cluster.pk, {("cv", "portal"): 0.25, ("cv", "ana"): 0.9})
    people = [("vision", str(ana.pk)), ("vision", str(bo.pk)), ("vision", "")]
    assert factors_of(world.cluster, people) == {"vision": {str(ana.pk): 0.9}}


@pytest.mark.parametrize(("parameters", "known"), [({}, True), ({"site_fair_share": True}, False)])
def test_ours_hold_unless_the_policy_asks_and_the_site_answered(
    world: World, engine: Any, parameters: Mapping[str, Any], known: bool
) -> None:
    world.cluster.policy_parameters = parameters
    if known:
        site_shares.note(world.cluster.pk, {("cv", "portal"): 0.25})
    assert factors_of(world.cluster, [("vision", "1")]) == {}


def test_rounds_and_pages_read_them(world: World, engine: Any) -> None:
    job = world.submit()
    site_shares.note(world.cluster.pk, {("cv", "portal"): 0.125})
    view = take_snapshot(world.cluster, timezone.now())
    assert view.snapshot.site_factors["vision"][str(job.owner_id)] == 0.125
    seen = gather_priority_inputs(world.cluster, timezone.now())
    standing = seen.policy.scores_of(seen.snapshot, seen.snapshot.jobs).standings[Leaf("vision", str(job.owner_id))]
    assert standing.factor == 0.125


def test_they_are_read_of_clusters_whose_policy_wants_them_and_kept_while_slurm_is_away(
    world: World, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Executor:
        away = False

        def site_shares(self) -> Mapping[tuple[str, str], float]:
            if self.away:
                raise ExecutorError("slurmdbd does not answer", permanent=False)
            return {("cv", "portal"): 0.75}

    executor = Executor()
    monkeypatch.setattr(executors, "executor_for", lambda cluster: executor)
    upkeep_tasks.read_site_shares()
    executor.away = True
    upkeep_tasks.read_site_shares()
    assert factors_of(world.cluster, [("vision", "1")]) == {"vision": {"1": 0.75}}
    world.cluster.policy_parameters = {}
    world.cluster.save()
    cache.clear()
    executor.away = False
    upkeep_tasks.read_site_shares()
    world.cluster.policy_parameters = {"site_fair_share": True}
    assert factors_of(world.cluster, [("vision", "1")]) == {}

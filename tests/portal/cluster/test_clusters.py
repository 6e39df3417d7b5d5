"""Several clusters: rows follow the file, rounds are independent, limits count what is held everywhere."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounts.models import Quota
from portal.cluster import inventory as administration
from portal.config.datasets import DataSettings
from portal.config.engines import Engine
from portal.core import wake
from portal.execution import executors
from portal.jobs import clusters
from portal.jobs.clusters import NoEngine, active_clusters, default_cluster, engine_of, files_of
from portal.jobs.models import Cluster, Command, FailingItem, Hold, Job, Partition
from portal.rounds import tasks
from scheduling.errors import ExecutorError
from scheduling.executors.base import AcceleratorInfo, NodeInfo
from tests.portal.world import World

pytestmark = pytest.mark.django_db


def engine(place: Path, name: str, executor: str = "local") -> Engine:
    return Engine(executor, {"data_dir": place / name}, place / name, None, DataSettings("", 0, 60.0, {}), True)


@pytest.fixture
def named(settings: Any, tmp_path: Path) -> Any:
    """The clusters of the file, by name."""

    def name(*names: str) -> str:
        settings.EVENKEEL_CLUSTERS = {one: engine(tmp_path, one) for one in names}
        said = StringIO()
        call_command("bootstrap", stdout=StringIO(), stderr=said)
        return said.getvalue()

    return name


def second(world: World, gpus: int = 4, kind: str = "k1", name: str = "other") -> Cluster:
    """One more cluster, whose node has the same name."""
    made = Cluster.objects.create(name=name, policy_name=world.cluster.policy_name, position=1)
    devices = tuple(AcceleratorInfo(i, kind, f"{name}-{i}", 1_000, True) for i in range(gpus))
    node = NodeInfo("a", devices, 8, 1_000)
    administration.record_inventory(cluster=made, nodes=[node], now=timezone.now())
    return made


# Rows ------------------------------------------------------------------------------------------------


def test_rows_follow_the_file_in_its_order(named: Any) -> None:
    assert "Cluster b is new" in named("b", "a")
    assert [row.name for row in active_clusters()] == ["b", "a"]
    assert default_cluster().name == "b"
    assert all(row.policy_changes.count() == 1 for row in active_clusters())
    named("a", "b")
    assert default_cluster().name == "a"


def test_one_that_left_the_file_is_retired_and_may_come_back(named: Any) -> None:
    named("a", "b")
    gone = Cluster.objects.get(name="b")
    assert "Cluster b is retired: the settings no longer name it" in named("a")
    assert [row.name for row in active_clusters()] == ["a"]
    with pytest.raises(NoEngine, match="cluster b is retired"):
        engine_of(gone.pk)
    assert files_of(gone.pk).name == "b"  # what its jobs wrote can still be read
    assert "Cluster b is back" in named("a", "b")
    assert engine_of(gone.pk).executor == "local"


def test_jobs_that_wait_for_a_retired_cluster_are_told(named: Any) -> None:
    named("b", "a")
    job = _job_on("b")
    assert "1 of its jobs wait" in named("a")
    job.refresh_from_db()
    assert job.run is not None
    assert job.run.reason_text == "Cluster b is retired: cancel the job, and submit it to another cluster."


def _job_on(name: str) -> Job:
    world = World()
    job = world.submit()
    world.cluster = Cluster.objects.get(name=name)
    Job.objects.filter(pk=job.pk).update(cluster=world.cluster)
    Cluster.objects.filter(name="test").update(retired_at=timezone.now())
    return Job.objects.get(pk=job.pk)


def test_one_whose_jobs_hold_gpus_is_not_retired(named: Any) -> None:
    world = World()
    world.submit()
    world.round()
    with pytest.raises(CommandError, match="Cluster test is to be retired, but its jobs still hold GPUs"):
        named("a")
    assert Hold.objects.exists()


def test_a_cluster_keeps_the_folder_of_its_jobs(settings: Any, tmp_path: Path, named: Any) -> None:
    named("a")
    job = _job_on("a")
    settings.EVENKEEL_CLUSTERS = {"a": engine(tmp_path / "elsewhere", "a")}
    with pytest.raises(CommandError, match="cluster a kept the files of its jobs in"):
        call_command("bootstrap", stdout=StringIO())
    assert files_of(job.cluster_id) == tmp_path / "elsewhere/a"


def _noted(made: list[Any], name: str, options: dict[str, Any]) -> object:
    made.append((name, options))
    return object()


def test_executors_are_made_per_cluster(named: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    named("a", "b")
    made: list[Any] = []
    monkeypatch.setattr(executors, "load_executor", lambda name, options: _noted(made, name, options))
    one, other = (executors.executor_for(row) for row in active_clusters())
    assert one is not other
    assert [options for _, options in made] == [engine.options for engine in settings.EVENKEEL_CLUSTERS.values()]


# Rounds ----------------------------------------------------------------------------------------------


class Silent:
    """An engine that answers, and has nothing."""

    supports_warm_start = False
    single_trust_mode = True
    isolation_problem = None

    def inventory(self) -> list[NodeInfo]:
        return []

    def refresh(self) -> bool:
        return False

    def observe(self, known: Any, renewed_at: Any) -> list[Any]:
        return []


class Dead(Silent):
    def inventory(self) -> list[NodeInfo]:
        raise ExecutorError("no answer", permanent=False)


class Broken(Silent):
    def inventory(self) -> list[NodeInfo]:
        raise RuntimeError("a bug")


def test_a_round_of_all_is_one_task_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    world = World()
    other = second(world)
    asked: list[Any] = []
    monkeypatch.setattr(wake, "schedule_round", lambda countdown_s=0.0, cluster_id=None: asked.append(cluster_id))
    assert tasks.run_round() == 0
    assert asked == [world.cluster.pk, other.pk]


@pytest.mark.parametrize("bad", [Dead(), Broken()])
def test_one_whose_engine_fails_holds_up_no_other(monkeypatch: pytest.MonkeyPatch, bad: Silent) -> None:
    cache.clear()
    world = World()
    other = second(world)
    monkeypatch.setattr(executors, "executor_for", lambda cluster: bad if cluster.pk == other.pk else Silent())
    tasks.run_round(other.pk)
    assert FailingItem.objects.exists() is isinstance(bad, Broken)
    assert tasks.run_round(world.cluster.pk) == 1
    other.refresh_from_db()
    world.cluster.refresh_from_db()
    assert world.cluster.rounds == 1
    assert world.cluster.last_error == ""
    assert (other.engine_away_since is None) is isinstance(bad, Broken)
    assert other.rounds == isinstance(bad, Broken)  # nothing is planned without an engine; with a fault of ours, it is


def test_a_retired_cluster_has_no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    Cluster.objects.update(retired_at=timezone.now())
    monkeypatch.setattr(tasks, "_round", lambda cluster: pytest.fail("a round"))
    assert tasks.run_round() == tasks.run_round(world.cluster.pk) == 0


def test_nodes_of_one_name_on_two_clusters_are_two(world: World) -> None:
    other = second(world)
    job = world.submit()
    Job.objects.filter(pk=job.pk).update(cluster=other)
    world.cluster, mine = other, world.cluster
    world.round()
    held = Hold.objects.filter(run__job=job)
    assert {hold.accelerator.node.cluster_id for hold in held} == {other.pk}
    assert Command.objects.get().run.job.cluster_id == other.pk
    assert mine.nodes.get(name="a").pk != other.nodes.get(name="a").pk


def test_limits_count_what_is_held_on_other_clusters(world: World) -> None:
    Quota.objects.create(project=world.project, kind=Quota.Kind.GPUS, limit=5, hard=True)
    other = second(world)
    here = world.submit(gpus={"min": 2, "max": 4})
    there = world.submit(gpus={"min": 2, "max": 4})
    Job.objects.filter(pk=there.pk).update(cluster=other)
    world.round()
    world.cluster = other
    world.round()
    assert (world.gpus(here), world.gpus(there)) == (3, 2)


def test_partitions_are_of_their_cluster(world: World) -> None:
    other = second(world)
    for cluster in (world.cluster, other):
        Partition.objects.create(cluster=cluster, name="day", nodes=["a"])
    Cluster.objects.filter(pk=other.pk).update(default_partition=other.partitions.get())
    assert world.submit(cluster="test").partition is None
    assert world.submit(cluster="other").partition == other.partitions.get()


def test_names_are_looked_up_once(named: Any, django_assert_num_queries: Any) -> None:
    named("a", "b")
    pk = Cluster.objects.get(name="b").pk
    clusters._name.cache_clear()
    engine_of(pk)
    with django_assert_num_queries(0):
        assert engine_of(pk).job_files.name == "b"

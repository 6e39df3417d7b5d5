"""Which executor a cluster has, what it is told, and what its engine says of nodes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from portal.cluster import drains, inventory
from portal.config import env
from portal.config.engines import read_engine, read_ray_options, read_slurm_options
from portal.execution import executors
from portal.jobs.models import Cluster, Hold, Job, JobEvent, Node
from scheduling.executors.base import NO_SOFTWARE, AcceleratorInfo, Finding, Kept, NodeInfo, Software
from scheduling.executors.ray.executor import RayExecutor
from scheduling.lifecycle import HOLDING
from tests.portal.world import World

ROOT = Path(__file__).parents[3]
NODE = NodeInfo("a", (AcceleratorInfo(0, "a100", "slurm-a-0", 0, False),), cpus=16, memory_mib=64_000)


def observe(cluster: Cluster, node: NodeInfo) -> Node:
    inventory.record_inventory(cluster=cluster, nodes=[node], now=timezone.now())
    return Node.objects.get(name=node.name)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.objects.create(name="slurm", executor="slurm")


@pytest.mark.django_db
def test_a_node_that_the_engine_has_lost_was_seen_last_before(cluster: Cluster) -> None:
    seen_at = observe(cluster, NODE).last_seen_at
    node = observe(cluster, replace(NODE, reachable=False))
    assert (node.lost, node.last_seen_at) == (True, seen_at)
    node = observe(cluster, NODE)
    assert not node.lost
    assert seen_at is not None
    assert node.last_seen_at is not None
    assert node.last_seen_at > seen_at


@pytest.mark.django_db
def test_a_node_that_its_engine_drains_is_drained_until_it_is_resumed_there(cluster: Cluster) -> None:
    assert not observe(cluster, NODE).drained
    node = observe(cluster, replace(NODE, drain_reason="fan broken"))
    assert (node.drained, node.drain_reason) == (True, "slurm: fan broken")
    assert observe(cluster, replace(NODE, drain_reason="fan and disk")).drain_reason == "slurm: fan and disk"
    assert not observe(cluster, NODE).drained


@pytest.mark.django_db
def test_what_people_drained_stays_drained_whatever_the_engine_says(cluster: Cluster) -> None:
    node = observe(cluster, NODE)
    drains.drain_node(actor=None, node=node, now=timezone.now(), reason="a new rack")
    assert observe(cluster, replace(NODE, drain_reason="fan broken")).drain_reason == "a new rack"
    assert observe(cluster, NODE).drained


@pytest.mark.django_db
def test_a_new_cluster_has_the_executor_of_the_settings(settings: Any) -> None:
    settings.EVENKEEL_EXECUTOR = "slurm"
    call_command("bootstrap", print_json=True, stdout=StringIO())
    assert Cluster.objects.get().executor == "slurm"
    settings.EVENKEEL_EXECUTOR = "local"
    call_command("bootstrap", print_json=True, stdout=StringIO())
    assert Cluster.objects.get().executor == "local"


@pytest.mark.django_db
def test_the_executor_is_not_changed_under_runs_that_hold_gpus(settings: Any) -> None:
    world = World({"a": 2})
    world.submit()
    world.round()
    settings.EVENKEEL_EXECUTOR = "slurm"
    with pytest.raises(CommandError, match="still hold GPUs"):
        call_command("bootstrap", print_json=True, stdout=StringIO())
    assert Cluster.objects.get().executor == "local"


class Examined:
    def __init__(self, *findings: Finding) -> None:
        self._findings = findings

    def examine(self, api_url: str, kept: Kept) -> tuple[Finding, ...]:
        return self._findings


@pytest.mark.django_db
@pytest.mark.parametrize("ok", [True, False])
def test_the_doctor_says_what_to_put_right(monkeypatch: pytest.MonkeyPatch, ok: bool) -> None:
    Cluster.objects.create(name="here")
    finding = Finding("clocks", ok, "at most 40.0 s apart", "run chrony")
    monkeypatch.setattr("portal.execution.executors.executor_for", lambda name: Examined(finding))
    said = StringIO()
    if ok:
        call_command("doctor", stdout=said)
    else:
        with pytest.raises(CommandError, match="1 to put right"):
            call_command("doctor", stdout=said)
    assert ("run chrony" in said.getvalue()) == (not ok)
    assert "clocks: at most 40.0 s apart" in said.getvalue()


@pytest.mark.django_db
def test_the_doctor_examines_the_local_executor(settings: Any, tmp_path: Path) -> None:
    local = {"data_dir": tmp_path, "virtual_accelerators": "titan_xp:2", "isolation": "none"}
    settings.EVENKEEL_EXECUTOR_OPTIONS = {"local": local}
    Cluster.objects.create(name="here")
    said = StringIO()
    call_command("doctor", stdout=said)
    assert "accelerators: 2 × titan_xp" in said.getvalue()
    assert "ok    code: by path, from git, uploaded bundles" in said.getvalue()
    assert "ok    environments: from requirements, kept by hash" in said.getvalue()
    assert "ok    modules: none" in said.getvalue() or "EVENKEEL_MODULES=1 offers it" in said.getvalue()
    assert "ok    images: n" in said.getvalue()


@pytest.mark.parametrize("executor", ["local", "ray", "slurm"])
def test_each_executor_may_offer_modules_and_images(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: str
) -> None:
    monkeypatch.setenv("EVENKEEL_RAY_ADDRESS", "head:6379")
    assert read_engine(executor, tmp_path, tmp_path / "accounts.json").software == NO_SOFTWARE
    monkeypatch.setenv("EVENKEEL_MODULES", "1")
    monkeypatch.setenv("EVENKEEL_CONTAINER_TOOL", "bwrap")
    assert read_engine(executor, tmp_path, tmp_path / "accounts.json").software == Software(True, "bwrap")
    monkeypatch.setenv("EVENKEEL_CONTAINER_TOOL", "docker")
    with pytest.raises(env.BadSetting, match="EVENKEEL_CONTAINER_TOOL"):
        read_engine(executor, tmp_path, tmp_path / "accounts.json")


@pytest.mark.parametrize("executor", ["local", "ray", "slurm"])
def test_the_one_cluster_of_the_environment_has_the_options_that_one_of_several_would_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: str
) -> None:
    """Modules and images with `local`, say."""
    said = {
        "EVENKEEL_DATA": str(tmp_path),
        "EVENKEEL_EXECUTOR": executor,
        "EVENKEEL_MODULES": "1",
        "EVENKEEL_CONTAINER_TOOL": "bwrap",
        "EVENKEEL_LEASE_S": "100",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    code = (
        "from portal import settings as s; print(sorted((key, str(value)) for key, value in"
        " s.EVENKEEL_EXECUTOR_OPTIONS[s.EVENKEEL_EXECUTOR].items()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    engine = read_engine(executor, tmp_path, tmp_path / "accounts.json")
    own = engine.options.items() - {("accounts_file", tmp_path / "accounts.json")}
    assert done.stdout.strip() == str(sorted((key, str(value)) for key, value in own))


@pytest.mark.parametrize(
    ("name", "value"),
    [("EVENKEEL_SLURM_PLACEMENT", "anywhere"), ("EVENKEEL_LEASE_S", "1"), ("EVENKEEL_EMULATED", "?")],
)
def test_settings_that_make_no_sense_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(env.BadSetting, match=name):
        read_slurm_options(tmp_path)


def test_the_shared_directory_is_the_data_directory_unless_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_slurm_options(tmp_path)["shared_dir"] == tmp_path
    monkeypatch.setenv("EVENKEEL_SHARED_DIR", str(tmp_path / "shared"))
    assert read_slurm_options(tmp_path)["shared_dir"] == tmp_path / "shared"


@pytest.mark.django_db
def test_options_reach_the_executor(
    cluster: Cluster, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = read_slurm_options(tmp_path)
    settings.EVENKEEL_EXECUTOR, settings.EVENKEEL_EXECUTOR_OPTIONS = "slurm", {"slurm": options}
    settings.EVENKEEL_JOB_FILES = options["shared_dir"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert executors.executor_for(cluster).name == "slurm"


@pytest.mark.django_db
def test_the_way_to_ray_reaches_the_executor(
    cluster: Cluster, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "EVENKEEL_RAY_ADDRESS": "10.0.0.1:6379",
        "EVENKEEL_RAY_NAMESPACE": "east",
        "EVENKEEL_RAY_NODE_ADDRESS": "10.0.0.7",
        "EVENKEEL_RAY_TLS_CERT": "/etc/ray/cert.pem",
        "EVENKEEL_RAY_TLS_KEY": "/etc/ray/key.pem",
        "EVENKEEL_RAY_TLS_CA": "/etc/ray/ca.pem",
        "EVENKEEL_RAY_TOKEN_FILE": "/etc/ray/token",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    settings.EVENKEEL_EXECUTOR, settings.EVENKEEL_EXECUTOR_OPTIONS = "ray", {"ray": read_ray_options(tmp_path)}
    settings.EVENKEEL_JOB_FILES = tmp_path
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    executor = executors.executor_for(cluster)
    assert isinstance(executor, RayExecutor)
    way = executor.connection
    assert (way.address, way.namespace, way.node_address) == ("10.0.0.1:6379", "east", "10.0.0.7")
    assert way.variables() == {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": "/etc/ray/cert.pem",
        "RAY_TLS_SERVER_KEY": "/etc/ray/key.pem",
        "RAY_TLS_CA_CERT": "/etc/ray/ca.pem",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/etc/ray/token",
    }


def test_without_a_word_of_them_ray_has_neither_tls_nor_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_RAY_ADDRESS", "10.0.0.1:6379")
    way = RayExecutor(**read_ray_options(tmp_path)).connection
    assert (way.namespace, way.variables()) == ("evenkeel", {})


def holding(world: World) -> Node:
    """The node on which a job of the world trains."""
    job = world.submit(gpus=1)
    world.train(job)
    hold = Hold.objects.select_related("accelerator__node").get(run__job=job)
    return hold.accelerator.node


def look(world: World, **changes: Any) -> None:
    nodes = [replace(info, **changes) for info in world.node_infos()]
    inventory.record_inventory(cluster=world.cluster, nodes=nodes, now=timezone.now())


@pytest.mark.django_db
@pytest.mark.parametrize("word", ["UNKNOWN", "NOT_RESPONDING", "SOMETHING_NEW"])
def test_a_node_of_which_the_engine_knows_nothing_keeps_its_jobs_and_gets_no_others(word: str) -> None:
    world = World({"a": 4})
    Cluster.objects.update(executor="slurm")
    world.cluster.refresh_from_db()
    node = holding(world)
    job = Job.objects.get()
    world.round()
    before = (world.state(job), world.run(job).epoch)
    other = world.submit(gpus=1)
    seen_at = node.last_seen_at
    look(world, unclear=word)
    Node.objects.update(unclear_since=timezone.now() - timedelta(days=1))  # however long: the job is there
    look(world, unclear=word)
    world.round()
    assert (world.state(job), world.run(job).epoch) == before
    assert world.state(other) not in HOLDING
    node = Node.objects.get()
    assert (node.lost, node.unclear, node.last_seen_at) == (False, word, seen_at)
    look(world)
    world.round()
    assert Node.objects.get().unclear == ""
    assert Node.objects.get().unclear_since is None
    assert world.state(other) in HOLDING
    assert not JobEvent.objects.filter(kind__in=["node_lost", "node_back", "REALLOCATED"]).exists()


@pytest.mark.django_db
def test_a_node_without_jobs_that_stays_unclear_is_lost(settings: Any, cluster: Cluster) -> None:
    settings.EVENKEEL_NODE_UNCLEAR_S = 900.0
    observe(cluster, NODE)
    assert not observe(cluster, replace(NODE, unclear="UNKNOWN")).lost
    Node.objects.update(unclear_since=timezone.now() - timedelta(seconds=890))
    assert not observe(cluster, replace(NODE, unclear="NOT_RESPONDING")).lost
    Node.objects.update(unclear_since=timezone.now() - timedelta(seconds=901))
    assert observe(cluster, replace(NODE, unclear="NOT_RESPONDING")).lost
    assert observe(cluster, replace(NODE, unclear="UNKNOWN")).lost  # it is back only when the engine says so
    assert not observe(cluster, NODE).lost


@pytest.mark.django_db
def test_a_node_that_is_down_is_lost_at_once_also_after_it_was_unclear(cluster: Cluster) -> None:
    observe(cluster, replace(NODE, unclear="NOT_RESPONDING"))
    node = observe(cluster, replace(NODE, reachable=False))
    assert (node.lost, node.unclear) == (True, "")


@pytest.mark.django_db
def test_a_node_that_is_no_longer_listed_is_lost_where_nothing_is_there(cluster: Cluster) -> None:
    world = World({"a": 4})
    Cluster.objects.filter(pk=world.cluster.pk).update(executor="slurm")
    world.cluster.refresh_from_db()
    holding(world)
    inventory.record_inventory(cluster=world.cluster, nodes=[], now=timezone.now())
    node = Node.objects.get(name="a")
    assert (node.lost, node.unclear) == (False, "not listed")
    Hold.objects.all().delete()
    inventory.record_inventory(cluster=world.cluster, nodes=[], now=timezone.now())
    assert Node.objects.get(name="a").lost


@pytest.mark.django_db
def test_an_unclear_node_that_was_drained_by_its_engine_stays_so(cluster: Cluster) -> None:
    observe(cluster, replace(NODE, drain_reason="fan broken"))
    assert observe(cluster, replace(NODE, unclear="UNKNOWN")).drained
    assert not observe(cluster, NODE).drained

"""GPUs that the engine's other jobs have: rounds leave them alone, all pages tell them apart, and nobody is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.cluster.drains import drain_node
from portal.forecasts import start_tasks
from portal.jobs.models import Assignment, Cluster, ClusterSample, Command, Hold, Job, JobEvent, Node, Run
from portal.lifecycle import engine_waits
from portal.rounds.pruning import sample
from portal.snapshot.engine_jobs import Place, spread, taken_gpus
from portal.snapshot.take import take_snapshot
from scheduling.domain import Beside
from scheduling.executors.base import Fact, Taken
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.forecasts.test_previews import preview
from tests.portal.live.test_live_exactly import stream
from tests.portal.web.test_monitoring import TOKEN, scrape, value
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
UNTIL = 4_004_950_800.0  # 2096-11-28 14:20 UTC


class Shared(World):
    """Nodes of which others have something. `taken`: by node."""

    def __init__(self, **taken: Taken) -> None:
        self.taken: dict[str, tuple[Taken, ...]] = {name: (one,) for name, one in taken.items()}
        super().__init__({"a": 4, "b": 4})
        Cluster.objects.update(executor="slurm")
        self.cluster.refresh_from_db()

    def node_infos(self) -> list[Any]:
        return [replace(info, taken=self.taken.get(info.name, ())) for info in super().node_infos()]


def others(gpus: int, until: float | None = UNTIL, **more: Any) -> Taken:
    return Taken(gpus, until=until, **{"blocks": gpus, **more})


def places(world: World, job: Job) -> set[str]:
    rows = Assignment.objects.filter(run=world.run(job), during__upper_inf=True)
    return {f"{node}{index}" for node, index in rows.values_list("accelerator__node__name", "accelerator__index")}


# Which GPUs -------------------------------------------------------------------------------------------------

A, B, OTHER = (1, 2, 3, 4), (5, 6, 7, 8), (9, 10)


@pytest.mark.parametrize(
    ("taken", "occupied", "waiting", "found"),
    [
        ({"a": [others(2)]}, (), (), {4: UNTIL, 3: UNTIL}),
        ({"a": [others(2)]}, (4, 2), (), {3: UNTIL, 1: UNTIL}),
        ({"a": [others(1), others(1, None)]}, (1, 2, 3), (2, 3), {4: None}),  # the rest waits there
        ({"a": [others(2)]}, (1, 2, 3), (1, 2, 3), {4: UNTIL}),
        ({"a": [others(2)]}, (1, 2, 3, 4), (), {8: UNTIL, 7: UNTIL}),  # the engine chose other nodes for ours
        ({"a": [others(2)], "b": [others(1, 5.0)]}, (1, 2, 3), (), {4: UNTIL, 8: 5.0, 7: UNTIL}),
        ({"a": [others(9)]}, (), (), {1: UNTIL, 2: UNTIL, 3: UNTIL, 4: UNTIL, **dict.fromkeys(B, UNTIL)}),
        ({"a": [others(0, cpus=4)]}, (), (), {}),
    ],
)
def test_they_are_gpus_that_none_of_ours_has(
    taken: dict[str, list[Taken]], occupied: tuple[int, ...], waiting: tuple[int, ...], found: dict[int, float | None]
) -> None:
    there = [Place("k", gpus, tuple(taken.get(name, ()))) for name, gpus in (("a", A), ("b", B))]
    assert spread([*there, Place("other", OTHER, ())], occupied, waiting) == found


# Rounds -----------------------------------------------------------------------------------------------------


def test_jobs_go_where_others_are_not_and_wait_with_the_reason_where_they_are() -> None:
    world = Shared(a=others(2, cpus=2, memory_mib=100))
    job, waits = world.submit(gpus=4), world.submit(gpus=4)
    world.round()
    assert places(world, job) == {"b0", "b1", "b2", "b3"}
    assert world.state(waits) is State.WAITING_FOR_INITIAL_RESOURCE
    text = Api(world.user).get(f"jobs/{waits.number}").json["reason"]["text"]
    assert "2 GPUs of a are used by other Slurm jobs until " in text
    world.taken.clear()
    world.inventory()
    world.round()
    assert places(world, waits) == {"a0", "a1", "a2", "a3"}
    check_invariants(world)


def test_a_round_sees_them_until_they_end() -> None:
    world = Shared(a=others(2, cpus=2, memory_mib=100), b=others(1, None))
    snapshot = take_snapshot(world.cluster, timezone.now()).snapshot
    node = {one.name: one for one in snapshot.nodes}
    assert node["a"].others == (Beside(2_000, 100, UNTIL),)
    assert node["b"].others == ()
    ends = {node["a"].gpu_ids[3]: UNTIL, node["a"].gpu_ids[2]: UNTIL, node["b"].gpu_ids[3]: None}
    assert (snapshot.others.gpus, snapshot.others.engine) == (ends, "Slurm")
    assert snapshot.blocked_gpu_ids == ends.keys()


def test_what_runs_keeps_its_gpus_and_grows_around_them() -> None:
    world = Shared()
    job = world.submit(gpus=4)
    world.train(job)
    held = places(world, job)
    [name] = {place[0] for place in held}
    world.taken[name] = (others(2),)  # the engine has put ours elsewhere
    world.inventory()
    world.round()
    assert places(world, job) == held
    assert len(taken_gpus([world.cluster.pk])) == 2
    newcomer = world.submit(gpus=4)
    world.round()
    assert world.state(newcomer) is State.WAITING_FOR_INITIAL_RESOURCE


def test_nodes_that_are_closed_take_no_part() -> None:
    world = Shared(a=others(2))
    drain_node(actor=None, node=Node.objects.get(name="a"), now=timezone.now())
    assert taken_gpus([world.cluster.pk]) == {}


def test_what_a_look_says_replaces_what_was_said_before() -> None:
    world = Shared(a=others(2))
    before = Node.objects.get(name="a").taken
    assert before == [{"gpus": 2, "cpus": 0, "memory_mib": 0, "until": UNTIL, "blocks": 2}]
    world.taken["a"] = (others(1),)
    world.inventory()
    assert Node.objects.get(name="a").taken[0]["gpus"] == 1


# A launch that waits ------------------------------------------------------------------------------------------


def waits_in_slurm(world: World, job: Job, since_s: float) -> None:
    run = world.run(job)
    engine_waits.note_waits(
        [Fact(str(run.pk), run.epoch, "alive", timezone.now().timestamp(), waits="waits in Slurm (Resources)")],
        world.cluster.pk,
    )
    Run.objects.filter(pk=run.pk).update(engine_waits_since=timezone.now() - timedelta(seconds=since_s))


def launching(world: World) -> tuple[Job, str]:
    job = world.submit(gpus=4)
    world.round()
    assert world.state(job) is State.LAUNCHING
    return job, next(iter(places(world, job)))[0]


def test_a_launch_whose_gpus_others_took_is_placed_anew() -> None:
    world = Shared()
    job, node = launching(world)
    waits_in_slurm(world, job, since_s=20)
    engine_waits.replace_blocked_launches(cluster_id=world.cluster.pk, now=timezone.now())
    assert world.state(job) is State.LAUNCHING  # as far as is known its GPUs are there
    world.taken[node] = (others(1),)
    world.inventory()
    engine_waits.replace_blocked_launches(cluster_id=world.cluster.pk, now=timezone.now())
    assert JobEvent.objects.filter(text__contains=f"GPUs of {node} are used by other Slurm jobs, so").count() == 1
    assert (Command.Verb.CHECKPOINT_AND_STOP.value, 1) in world.open_commands()
    world.processes_gone(world.run(job), None)
    world.round()
    other = "b" if node == "a" else "a"
    assert {place[0] for place in places(world, job)} == {other}
    assert world.run(job).attempt == 1
    check_invariants(world)


@pytest.mark.parametrize("case", ["just asked", "not waiting", "on another node", "trains"])
def test_other_launches_stay(case: str) -> None:
    world = Shared()
    job, node = launching(world)
    if case == "trains":
        world.ready(job)
    if case != "not waiting":
        waits_in_slurm(world, job, since_s=1 if case == "just asked" else 20)
    world.taken[("b" if node == "a" else "a") if case == "on another node" else node] = (others(1),)
    world.inventory()
    before = world.state(job)
    engine_waits.replace_blocked_launches(cluster_id=world.cluster.pk, now=timezone.now())
    assert world.state(job) is before
    assert Hold.objects.filter(run=world.run(job), during__upper_inf=True).count() == 4


# Pages ------------------------------------------------------------------------------------------------------


def test_pages_tell_them_apart_and_name_nobody() -> None:
    world = Shared(a=others(3, cpus=2, memory_mib=100))
    job = world.submit(gpus=1)
    world.train(job)
    api = Api(world.user)
    nodes = {node["name"]: node for node in api.get("nodes").json}
    assert [gpu["state"] for gpu in nodes["a"]["accelerators"]].count("others") == 3
    [one] = nodes["a"]["taken"]
    assert one == {"gpus": 3, "cpus": 2, "memory_mib": 100, "until_at": "2096-11-28T14:20:00.000Z"}
    assert nodes["b"]["taken"] == []
    assert api.get("nodes/a").json["taken"] == [one]
    live = stream()
    tiles = live["tiles"]
    assert (tiles["gpus_total"], tiles["gpus_others"], tiles["gpus_busy"]) == (5, 3, 1)
    assert tiles["utilisation"] == 0.2
    assert (live["nodes"]["a"]["others"], live["nodes"]["b"]["others"]) == (3, 0)
    assert live["nodes"]["a"]["others_until_at"] == "2096-11-28T14:20:00.000Z"


def test_they_are_none_of_our_capacity(settings: Any) -> None:
    settings.EVENKEEL_METRICS_TOKEN = TOKEN
    world = Shared(a=others(3))
    job = world.submit(gpus=1)
    world.train(job)
    sample(world.cluster, timezone.now())
    row = ClusterSample.objects.get()
    assert (row.gpus_total, row.gpus_held) == (5, 1)
    said = scrape()
    assert value(said, "evenkeel_gpus", type="k1", state="others") == 3
    assert value(said, "evenkeel_gpus", type="k1", state="free") == 4
    assert value(said, "evenkeel_gpu_allocation_ratio") == 0.2


def test_a_preview_does_not_start_on_them() -> None:
    world = Shared(a=others(2), b=others(1))
    said = preview(world, gpus={"min": 3, "max": 3})
    assert said["verdict"] == "now"
    assert {place["node"] for place in said["allocation"]["gpus"]} == {"b"}
    more = preview(world, gpus={"min": 6, "max": 6})
    assert (more["verdict"], more["allocation"]) == ("later", None)
    assert "3 GPUs of a and b are used by other Slurm jobs until" in more["reason"]["text"]


def test_expected_starts_know_when_they_end() -> None:
    now = timezone.now()
    world = Shared(a=others(2, (now + timedelta(hours=1)).timestamp()))
    first, waits = world.submit(gpus=4, steps=10**9), world.submit(gpus=4)
    world.round()
    assert world.state(first) is State.LAUNCHING
    start_tasks.foresee_cluster(world.cluster)
    said = Api(world.user).get(f"jobs/{waits.number}").json["expected_start"]
    assert said is not None
    assert abs(datetime.fromisoformat(said["p50_at"]) - now - timedelta(hours=1)) < timedelta(minutes=2)

"""Nodes that their engine has powered down: planned with, after those that are up, and with their wake-up foreseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.jobs.models import Assignment, Job, Run
from portal.lifecycle import engine_waits
from portal.readmodels.cluster.catalogue import describe_nodes
from scheduling.executors.base import POWERING_UP, Fact, NodeInfo
from scheduling.lifecycle import State
from tests.portal.forecasts.test_previews import forecast, preview
from tests.portal.world import World

pytestmark = pytest.mark.django_db

BOOT_S = 300.0


class Saving(World):
    """Of `a`, `b` and `c` those named are powered down."""

    def __init__(self, *asleep: str) -> None:
        self.asleep = asleep
        super().__init__({"a": 2, "b": 2, "c": 2})

    def node_infos(self) -> list[NodeInfo]:
        return [replace(info, boot_s=BOOT_S * (info.name in self.asleep)) for info in super().node_infos()]


def places(world: World, job: Job) -> set[str]:
    rows = Assignment.objects.filter(run=world.run(job), during__upper_inf=True)
    return set(rows.values_list("accelerator__node__name", flat=True))


@pytest.mark.parametrize(
    ("gpus", "expected"), [((1, 1, 2), ["c", "c", "b"]), ((2, 2, 2), ["b", "c", "a"]), ((4, 2), ["bc", "a"])]
)
def test_those_that_are_up_are_taken_first(gpus: Sequence[int], expected: list[str]) -> None:
    world = Saving("a")
    jobs = [world.submit(gpus=count) for count in gpus]
    world.round()
    assert ["".join(sorted(places(world, job))) for job in jobs] == expected


def test_a_preview_has_the_wake_up_and_says_for_which_node() -> None:
    world = Saving("c")
    for gpus, waits_s in ((4, 0.0), (6, BOOT_S)):
        said = preview(world, gpus={"min": gpus, "max": gpus})
        assert said["verdict"] == "now"
        words = "c is powered down: its start waits about 300 s until Slurm has powered up what it needs."
        assert (words in said["warnings"]) is (waits_s > 0)
        start = forecast(world, said)["start"]
        at, as_of = (datetime.fromisoformat(start[key]) for key in ("p50_at", "as_of"))
        assert (at - as_of).total_seconds() == waits_s


def test_a_launch_whose_nodes_come_up_is_not_placed_anew(settings: Any) -> None:
    settings.EVENKEEL_ENGINE_WAIT_S = 600.0
    world = Saving("a", "b", "c")
    job = world.submit(gpus=1)
    world.round()
    run, now = world.run(job), timezone.now()
    for waits, state in ((f"{POWERING_UP} (a)", State.LAUNCHING), ("waits in Slurm", State.CHECKPOINTING)):
        engine_waits.note_waits([Fact(str(run.pk), 1, "alive", now.timestamp(), waits=waits)], world.cluster.pk)
        Run.objects.filter(pk=run.pk).update(engine_waits_since=now - timedelta(seconds=1_000))
        engine_waits.end_long_waits(cluster_id=world.cluster.pk, now=now)
        assert world.state(job) is state


def test_what_slurm_still_has_to_do_once_its_nodes_are_up_has_its_own_time(settings: Any) -> None:
    settings.EVENKEEL_ENGINE_WAIT_S = 100.0
    world = Saving("a")
    job = world.submit(gpus=6)
    world.round()
    at = timezone.now()

    def look(seconds: float, waits: str) -> State:
        now = at + timedelta(seconds=seconds)
        fact = Fact(str(world.run(job).pk), 1, "alive", now.timestamp(), waits=waits)
        engine_waits.note_waits([fact], world.cluster.pk)
        engine_waits.end_long_waits(cluster_id=world.cluster.pk, now=now)
        return world.state(job)

    assert look(0, f"{POWERING_UP} (a)") is State.LAUNCHING
    assert look(500, f"{POWERING_UP} (a)") is State.LAUNCHING
    assert look(510, "waits in Slurm: configuring") is State.LAUNCHING
    assert look(609, "waits in Slurm: configuring") is State.LAUNCHING
    assert look(611, "waits in Slurm: configuring") is State.CHECKPOINTING


def test_its_page_says_so_and_that_a_launch_powers_it_up() -> None:
    world = Saving("c")

    def powers() -> dict[str, tuple[str | None, float | None]]:
        nodes = list(world.cluster.nodes.all())
        found = describe_nodes(nodes, set(), {}, {node.pk: {} for node in nodes})
        return {one["name"]: (one["power"], one["up_in_s"]) for one in found}

    up = {"a": (None, None), "b": (None, None)}
    assert powers() == up | {"c": ("powered_down", BOOT_S)}
    world.submit(gpus=6)
    world.round()
    assert powers() == up | {"c": ("powering_up", BOOT_S)}

"""Parts of GPUs from the job file to the bill."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.utils import timezone

from portal.accounting.hold_costs import held
from portal.cluster import policy as administration
from portal.config import env
from portal.core.problems import Problems
from portal.execution import launch_request
from portal.jobfile.parsing import parse_job_file
from portal.jobs.access import described_jobs
from portal.jobs.models import Accelerator, Assignment, Hold, Job, JobEvent, MetricPoint, Run, ThroughputSample
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.end_run import explain_exit
from portal.live.streams import build
from portal.readmodels.jobs.detail import describe_detail
from portal.readmodels.jobs.summary import describe_jobs
from portal.reporting import throughput
from scheduling.executors.base import ExitInfo
from scheduling.lifecycle import State
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db

WHOLE_POLICIES = ["f_scheduling", "fifo_gang", "multifactor", "max_min_fairness", "static_partition"]
PACKING = ["first_fit", "fgd"]


@pytest.fixture
def world() -> World:
    return World({"a": 2})


def described(job: Job) -> dict[str, object]:
    return describe_jobs([described_jobs().get(pk=job.pk)], timezone.now())[0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (0.5, {"min": 1, "types": [], "share": 0.5}),
        (2, {"min": 2, "max": 2, "types": []}),
        ({"share": 0.25, "memory": "2GiB"}, {"min": 1, "types": [], "share": 0.25, "memory": 2048}),
        ({"min": 2, "share": 1}, {"min": 2, "types": [], "share": 1.0}),
    ],
)
def test_a_job_file_names_a_part_or_a_number(given: object, kept: dict[str, object]) -> None:
    file = parse_job_file({"command": "x", "total_steps": 1, "gpus": given})
    assert file.gpus.model_dump(exclude_none=True) == kept


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        (1.5, "gpus", "whole GPUs, or a part of one as 0.5"),
        (0, "gpus", "whole GPUs"),
        (True, "gpus", ""),
        ({"share": 0.5, "min": 2}, "gpus", "part of one GPU"),
        ({"share": 0.5, "max": 2}, "gpus", "part of one GPU"),
        ({"share": 0.005}, "gpus.share", "greater than or equal to 0.01"),
        ({"share": 0.333}, "gpus", "steps of 0.01"),
        ({"share": 1.2}, "gpus.share", "less than or equal to 1"),
    ],
)
def test_what_is_no_part_of_a_gpu_is_refused_by_field(given: object, field: str, message: str) -> None:
    with pytest.raises(Problems) as refused:
        parse_job_file({"command": "x", "total_steps": 1, "gpus": given})
    [problem] = refused.value.problems
    assert problem.field == field
    assert message in problem.message


def test_memory_is_of_what_there_is(world: World) -> None:
    part = world.submit(gpus=0.25)
    assert (part.gpu_share_percent, part.gpu_memory_mib, part.max_gpus) == (25, 250, 1)
    assert world.submit(gpus={"share": 0.25, "memory": 900}).gpu_memory_mib == 900
    assert world.submit(gpus=1).gpu_memory_mib == 0
    with pytest.raises(Problems, match="no type of GPU that the job may use has 1,001 MiB: the largest has 1,000 MiB"):
        world.submit(gpus={"memory": 1001})


def test_types_may_be_divided_in_larger_steps(world: World, settings: Any) -> None:
    settings.EVENKEEL_SHARE_STEPS = {"": 1, "k1": 25}
    assert world.submit(gpus=0.75).gpu_share_percent == 75
    assert world.submit(gpus=2).gpu_share_percent == 100
    assert world.submit(gpus={"share": 0.3, "types": ["k2"]}, throughput={"k2": [1.0]}).gpu_share_percent == 30
    for share, near in ((0.3, "0.25 or 0.5"), (0.1, "0.25"), (0.9, "0.75 or 1")):
        with pytest.raises(
            Problems, match=f"k1 is divided in steps of 0.25: give {near}, or name other types"
        ) as refused:
            world.submit(gpus=share)
        assert refused.value.problems[0].field == "gpus.share"


@pytest.mark.parametrize("given", ["0", "3", "k1=101", "k1=x", "="])
def test_steps_that_do_not_divide_a_gpu_are_no_setting(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_SHARE_STEPS", given)
    with pytest.raises(env.BadSetting, match="divide 100"):
        env.share_steps("EVENKEEL_SHARE_STEPS")


def test_steps_are_given_for_all_types_and_for_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_SHARE_STEPS", "5, h100=10")
    assert env.share_steps("EVENKEEL_SHARE_STEPS") == {"": 5, "h100": 10}
    monkeypatch.delenv("EVENKEEL_SHARE_STEPS")
    assert env.share_steps("EVENKEEL_SHARE_STEPS") == {"": 1}


def reports(run: Run, now: datetime) -> None:
    """Ten steps a second."""
    points = ((10 * n, now + timedelta(seconds=n)) for n in range(8))
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, epoch=run.epoch, step=step, at=at, values={}) for step, at in points
    )


@pytest.mark.parametrize("policy", WHOLE_POLICIES + PACKING)
def test_halves_share_one_gpu_and_leave_the_other(world: World, policy: str) -> None:
    administration.set_policy(actor=None, cluster=world.cluster, name=policy, parameters={})
    halves = [world.submit(gpus=0.5) for _ in range(2)]
    whole = world.submit(gpus=1)
    for _ in range(2):
        world.round()
    assert [world.state(job) for job in (*halves, whole)] == [State.LAUNCHING] * 3
    assert Hold.objects.filter(run__job__in=halves).values("accelerator").distinct().count() == 1
    gpu = Accelerator.objects.get(holds__run__job=halves[0])
    assert (gpu.free_share_percent, gpu.held_memory_mib) == (0, 1000)
    check_invariants(world)


@pytest.mark.parametrize("policy", WHOLE_POLICIES + PACKING)
def test_whoever_comes_later_joins_and_whoever_leaves_makes_room(world: World, policy: str) -> None:
    administration.set_policy(actor=None, cluster=world.cluster, name=policy, parameters={})
    world.submit(gpus=1, restartable=False)
    world.round()
    first, second = world.submit(gpus=0.6), world.submit(gpus=0.6)
    for _ in range(2):
        world.round()
    assert [world.state(job) for job in (first, second)] == [State.LAUNCHING, State.WAITING_FOR_INITIAL_RESOURCE]
    third = world.submit(gpus=0.3, steps=100)  # over before the one that it joins
    world.round()
    assert world.state(third) is State.LAUNCHING
    world.ready(first)
    world.gone(first, "done", step=1000)
    world.round()
    assert world.state(second) is State.LAUNCHING
    assert Hold.objects.filter(during__upper_inf=True).values("accelerator").distinct().count() == 2
    check_invariants(world)


def test_too_little_memory_keeps_jobs_apart(world: World) -> None:
    for _ in range(2):
        world.submit(gpus={"share": 0.2, "memory": 600})
    world.round()
    assert Accelerator.objects.filter(held_memory_mib=600).count() == 2


def test_a_part_keeps_its_gpu_while_others_are_resized(world: World) -> None:
    elastic = world.submit()
    world.train(elastic)
    part = world.submit(gpus=0.5)
    world.round()  # the elastic job has both GPUs and gives one up
    assert world.state(part) is State.STANDBY
    world.checkpoint(elastic, 10, reason="request")
    world.gone(elastic)
    world.round()
    assert (world.state(part), world.gpus(elastic)) == (State.LAUNCHING, 1)
    world.ready(part)
    world.unprotect(part)
    run = world.run(part)
    world.submit(gpus=1)
    for _ in range(2):
        world.round()
    assert (world.run(part).epoch, world.state(part)) == (run.epoch, State.RUNNING)
    assert world.run(part).reason_text == "It has 50 % of a GPU and keeps it until it ends."
    check_invariants(world)


def test_a_drained_node_is_left(world: World) -> None:
    part = world.submit(gpus=0.5)
    world.train(part)
    world.nodes["b"] = 1
    world.reachable["b"] = True
    world.inventory()
    node = Accelerator.objects.get(holds__run__job=part).node
    node.drained = True
    node.save()
    world.round()
    assert world.state(part) is State.CHECKPOINTING
    gpu = Assignment.objects.get(run__job=part, during__upper_inf=True).accelerator
    assert gpu.node.name == "b"
    check_invariants(world)


def test_the_bill_is_of_the_share(world: World) -> None:
    part, whole = world.submit(gpus=0.25), world.submit(gpus=1)
    world.round()
    now = timezone.now() + timedelta(hours=1)
    shares = {one.job_id: one.gpu_hundredths for one in held(Hold.objects.all(), now)}
    assert shares == {part.pk: 25, whole.pk: 100}
    rate = {job.pk: Fraction(str(described(job)["cost"]["estimated"] or 0)) for job in (part, whole)}  # type: ignore[index]
    # a quarter of the GPU for four times as long
    assert rate[part.pk] / rate[whole.pk] == pytest.approx(1, rel=0.01)
    state = build(timezone.now(), only="cluster")["cluster"]
    assert state["tiles"]["spend_per_hour"] == str(round(1.25 * 1.234567, 2))


def test_the_launch_says_the_part_and_paces_it(world: World) -> None:
    part = world.submit(gpus=0.25)
    world.round()
    request = launch_request.launch_request(world.run(part), 1)
    assert (request.gpu_share_percent, request.gpu_memory_mib) == (25, 250)
    assert request.pace_steps_per_s == pytest.approx(10.0 / 4)
    assert "gets 25 % of 1 × k1" in JobEvent.objects.get(job=part, to_state=State.STANDBY).text


def test_what_runs_beside_others_says_nothing_of_a_whole_gpu(world: World) -> None:
    def measure(job: Job) -> None:
        world.ready(job)
        run, now = world.run(job), timezone.now()
        reports(run, now)
        throughput.update([run], now)

    part, whole = world.submit(gpus=0.5), world.submit(gpus=1)
    world.round()
    for job in (part, whole):
        measure(job)
    assert world.run(part).steps_per_s == pytest.approx(10.0)
    filed = dict(ThroughputSample.objects.values_list("run__job", "workload"))
    assert filed == {part.pk: f"job:{part.pk}@50%", whole.pk: f"job:{whole.pk}"}


def test_a_part_on_trial_is_known_once_it_was_measured() -> None:
    world = World({"a": 1}, emulated=False)
    part = world.submit(gpus=0.5, throughput={})
    world.round()
    world.ready(part)
    assert described(part)["throughput"]["predicted_steps_per_s"] is None  # type: ignore[index]
    run, now = world.run(part), timezone.now()
    reports(run, now)
    throughput.update([run], now)
    assert described(part)["throughput"]["predicted_steps_per_s"] == pytest.approx(10.0)  # type: ignore[index]


def test_the_page_of_a_job_names_its_neighbours(world: World) -> None:
    first, second = world.submit(gpus=0.5), world.submit(gpus=0.3)
    assert describe_detail(described_jobs().get(pk=first.pk), timezone.now())["sharing"] is None
    world.round()
    world.ready(first)
    Run.objects.filter(job=first).update(steps_per_s=8.0)
    said = describe_detail(described_jobs().get(pk=first.pk), timezone.now())["sharing"]
    assert said == {
        "share_percent": 50,
        "memory_mib": 500,
        "whole_steps_per_s": 10.0,
        "expected_slowdown": 2.0,
        "expected_source": "share",
        "measured_slowdown": 1.25,
        "neighbours": [
            {
                "number": second.number,
                "project": "Vision",
                "share_percent": 30,
                "state": "starting",
                "slowdown": None,
                "samples": 0,
            }
        ],
    }
    assert described(first)["gpus"]["share_percent"] == 50  # type: ignore[index]
    assert described(first)["allocation"]["share_percent"] == 50  # type: ignore[index]


def test_the_stream_shows_the_parts_of_a_gpu(world: World) -> None:
    first, second = world.submit(gpus=0.5), world.submit(gpus=0.3)
    world.round()
    cluster = build(timezone.now(), only="cluster")["cluster"]
    cells = [cell for cell in cluster["nodes"]["a"]["accelerators"].values() if cell["state"] == "held"]
    assert cells == [
        {
            "state": "held",
            "job": first.number,
            "kind": "launching",
            "next": None,
            "parts": [
                {"job": first.number, "kind": "launching", "share_percent": 50},
                {"job": second.number, "kind": "launching", "share_percent": 30},
            ],
            "free_percent": 20,
        }
    ]
    assert cluster["jobs"][str(second.number)]["share_percent"] == 30
    assert cluster["tiles"]["gpus_busy"] == 1


def test_who_exceeds_its_part_of_the_memory_is_told_how_much_that_is() -> None:
    full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB."
    limited = f"{full} GPU 0 has a total capacity of 79.18 GiB of which 78.65 GiB is free. 2.50 GiB allowed; Of the"
    told = explain_exit(ExitInfo("out_of_memory", message=limited), Run(job=Job(gpu_memory_mib=3_072)))
    assert told.startswith("It ran out of the 3,072 MiB that it may use of a GPU. More of it (gpus.memory) or")
    for message, mib in ((limited, 0), (full, 3_072), ("", 3_072)):  # without a limit, or others filled the device
        other = explain_exit(ExitInfo("out_of_memory", message=message), Run(job=Job(gpu_memory_mib=mib)))
        assert other.startswith("It ran out of memory. A smaller batch or more GPUs may help.")


def test_a_cancelled_part_leaves_the_other_alone(world: World) -> None:
    first, second = world.submit(gpus=0.5), world.submit(gpus=0.5)
    world.round()
    for job in (first, second):
        world.ready(job)
    cancel_job(user=world.user, job=first)
    world.gone(first, "signal", signal=9)
    assert world.state(second) in (State.RUNNING, State.RUNNING_PROTECTED)
    assert Accelerator.objects.get(holds__run__job=second).free_share_percent == 50
    check_invariants(world)

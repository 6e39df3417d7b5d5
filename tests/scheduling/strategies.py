"""Random snapshots that could have come from a cluster: gangs on real GPUs, no GPU held twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from scheduling.domain import Curve, Job, Limit, Node, Snapshot
from scheduling.lifecycle import LOCKED, State
from scheduling.policies import POLICIES, policy_class
from tests.builders import make_job, make_nodes, make_snapshot

#: Policies that answer with counts of GPUs.
COUNTING = sorted(
    name
    for name in POLICIES
    if not (policy_class(name).capabilities.shares_time or policy_class(name).capabilities.places_gpu_parts)
)
#: What the code around the policies asks of one: those with the same capabilities take the same ways through it.
_OF_KIND = {policy_class(name).capabilities: name for name in sorted(POLICIES)[::-1]}
#: One policy of each kind, for what is not the policies' own; every one of them is held to test_policy_contract.py.
ONE_OF_EACH_KIND = sorted(_OF_KIND.values())
HOLDERS = [State.RUNNING, State.RUNNING, State.RUNNING, State.RUNNING_PROTECTED, State.LAUNCHING, State.STANDBY,
           State.CHECKPOINTING, State.STOPPING]  # fmt: skip
QUEUERS = [State.WAITING_FOR_INITIAL_RESOURCE, State.WAITING_FOR_RESOURCE, State.WAITING_FOR_INITIAL_CONTACT]


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    steps = draw(st.lists(st.integers(0, 20), min_size=1, max_size=8))
    values, best = [], 0.0
    for step in steps:
        best += step / 4
        values.append(best)
    values[-1] += 0.25
    return Curve(tuple(values), spread_factor=draw(st.sampled_from([1.0, 0.7])))


@st.composite
def snapshots(draw: st.DrawFn, whole_nodes: bool = False) -> Snapshot:
    nodes = list(make_nodes(*draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)), type="a"))
    if draw(st.booleans()):
        nodes += make_nodes(*draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)), type="b", first_id=100)
    jobs = _holders(draw, nodes)
    jobs += [_queuer(draw, number) for number in range(100, 100 + draw(st.integers(0, 5)))]
    if not whole_nodes:
        kinds: list[dict[str, Any]] = [{}, {}, {}, {"schedulable": False}, {"schedulable": False, "lost": True}]
        changes = st.sampled_from(kinds)
        nodes = [Node(n.name, n.type, n.gpu_ids, **draw(changes)) for n in nodes]
    limits, jobs = _limits(draw, jobs)
    return make_snapshot(*jobs, nodes=nodes, limits=limits)


#: Levels that bind a job of each project: organisation, project and a person who works in both.
CHAINS = {"speech": ("all", "speech", "ana"), "vision": ("all", "vision", "ana")}


KINDS = {
    "gpus": Limit("gpus"),
    "a": Limit("gpus", type="a"),
    "running": Limit("running_jobs"),
    "queued": Limit("queued_jobs"),
    "spent": Limit("spent", text="The budget is used up."),
}


def _limits(draw: st.DrawFn, jobs: list[Job]) -> tuple[dict[str, Limit], list[Job]]:
    """Nested limits of every kind on some of the levels."""
    limits: dict[str, Limit] = {}
    for level in draw(st.lists(st.sampled_from(["all", "speech", "vision", "ana"]), unique=True)):
        for name in draw(st.lists(st.sampled_from(sorted(KINDS)), unique=True)):
            limits[f"{level}.{name}"] = replace(KINDS[name], most=draw(st.integers(0, 8)), level=level)
    bound = {
        project: tuple(key for level in levels for key, limit in limits.items() if limit.level == level)
        for project, levels in CHAINS.items()
    }
    return limits, [replace(job, limits=bound[job.project]) for job in jobs]


def _holders(draw: st.DrawFn, nodes: list[Node]) -> list[Job]:
    jobs: list[Job] = []
    for kind in ("a", "b"):
        free = [gpu for node in nodes if node.type == kind for gpu in node.gpu_ids]
        for _ in range(draw(st.integers(0, 3))):
            if not free:
                break
            count: int = draw(st.integers(1, len(free)))
            mine, free = free[:count], free[count:]
            jobs.append(_holder(draw, kind, mine, 1 + len(jobs)))
    return jobs


def _holder(draw: st.DrawFn, kind: str, gpus: list[int], number: int) -> Job:
    state = draw(st.sampled_from(HOLDERS))
    known = {name: draw(curves()) for name in ("a", "b")}
    return make_job(
        number=number,
        holds=gpus,
        type=kind,
        state=state,
        curves=known,
        min_gpus=draw(st.integers(1, len(gpus))),
        max_gpus=draw(st.sampled_from([None, len(gpus), len(gpus) + 2])),
        restartable=draw(st.sampled_from([True, True, True, False])),
        priority=draw(st.integers(0, 2)),
        project=draw(st.sampled_from(["speech", "vision"])),
        protected_until=1100.0 if state in LOCKED else None,
        restart_cost_s=draw(st.sampled_from([0.0, 20.0])),
    )


def _queuer(draw: st.DrawFn, number: int) -> Job:
    least = draw(st.integers(1, 4))
    return make_job(
        number=number,
        state=draw(st.sampled_from(QUEUERS)),
        curves={name: draw(curves()) for name in draw(st.sampled_from([("a",), ("b",), ("a", "b"), ()]))},
        types=draw(st.sampled_from([(), (), ("a",), ("b",)])),
        min_gpus=least,
        max_gpus=draw(st.sampled_from([None, least, least + 3])),
        priority=draw(st.integers(0, 2)),
        project=draw(st.sampled_from(["speech", "vision"])),
        held=draw(st.sampled_from([False, False, False, True])),
        not_before=draw(st.sampled_from([None, None, 900.0, 1060.0])),
        excluded_gpus=frozenset(draw(st.lists(st.integers(0, 3), max_size=2))),
    )

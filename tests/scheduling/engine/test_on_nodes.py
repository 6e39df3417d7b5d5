"""On how many nodes a job may be: whatever the policy, no plan passes it, and reasons say whose rule it is."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduling.domain import Gang, NodeBounds, Snapshot
from scheduling.engine.placement.choose_gpus import Board, Request
from scheduling.engine.rounds import plan_round
from scheduling.policies import POLICIES, load_policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

TWO = NodeBounds("partition main", 2)


def nodes_after(snapshot: Snapshot, name: str) -> dict[str, int]:
    plan = plan_round(snapshot, load_policy(name))
    held = {job.id: job.gpu_ids for job in snapshot.jobs} | {move.job_id: move.gpu_ids for move in plan.moves}
    node_of = {gpu: node.name for node in snapshot.nodes for gpu in node.gpu_ids}
    return {key: len({node_of[gpu] for gpu in gpus}) for key, gpus in held.items()}


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_gives_a_job_more_of_a_node_than_it_may_have(name: str) -> None:
    job = make_job(gpus=2, max_gpus=4, on_nodes=NodeBounds("QOS gold", of_each=1, of_each_where="QOS gold"))
    grows = make_job(gpus=1, holds=(4,), curve=make_curve(*range(1, 9)), on_nodes=job.on_nodes, has_trained=True)
    snapshot = make_snapshot(job, grows, nodes=make_nodes(2, 2, 2))
    plan = plan_round(snapshot, load_policy(name))
    node_of = {gpu: node.name for node in snapshot.nodes for gpu in node.gpu_ids}
    for move in plan.moves:
        assert max(Counter(node_of[gpu] for gpu in move.gpu_ids).values(), default=0) <= 1


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_puts_a_job_on_more_nodes_than_it_may_have(name: str) -> None:
    blocking = [make_job(gpus=1, max_gpus=1, holds=(at,), restartable=False) for at in (0, 2, 4, 6)]
    wide = make_job(gpus=3, max_gpus=3, on_nodes=TWO)
    snapshot = make_snapshot(*blocking, wide, nodes=make_nodes(2, 2, 2, 2))
    assert nodes_after(snapshot, name)[wide.id] <= 2


def test_it_waits_with_the_rule_until_so_few_nodes_have_room() -> None:
    blocking = [make_job(gpus=1, max_gpus=1, holds=(at,), restartable=False) for at in (0, 2, 4)]
    wide = make_job(gpus=3, max_gpus=3, on_nodes=TWO)
    snapshot = make_snapshot(*blocking, wide, nodes=make_nodes(2, 2, 2))
    reason = plan_round(snapshot, load_policy("f_scheduling")).reasons[wide.id]
    assert (reason.token, reason.text.partition(":")[0]) == ("no_layout", "partition main allows 2 nodes a job")
    [move] = plan_round(
        make_snapshot(*blocking[:2], wide, nodes=make_nodes(2, 2, 2)), load_policy("f_scheduling")
    ).moves
    assert set(move.gpu_ids) == {4, 5, 1} or set(move.gpu_ids) == {4, 5, 3}


def test_growth_stops_at_the_nodes_that_it_may_be_on() -> None:
    curve = make_curve(*range(1, 9))
    job = make_job(gpus=1, holds=(0, 1), curve=curve, on_nodes=NodeBounds("account sub", 1), has_trained=True)
    assert nodes_after(make_snapshot(job, nodes=make_nodes(2, 4)), "f_scheduling")[job.id] == 1


def test_where_no_nodes_are_ever_large_enough_it_is_told_so() -> None:
    job = make_job(gpus=5, max_gpus=5, on_nodes=TWO)
    reason = plan_round(make_snapshot(job, nodes=make_nodes(2, 2, 2)), load_policy("f_scheduling")).reasons[job.id]
    assert reason.token == "never"
    assert reason.text == (
        "partition main allows 2 nodes a job, and it needs at least 5 GPUs; that many nodes have 4 GPUs at most, "
        "so it cannot run here."
    )


@pytest.mark.parametrize(
    ("count", "bounds", "nodes"),
    [
        (2, NodeBounds("partition wide", None, 2), 2),
        (4, NodeBounds("partition wide", 2, 2), 2),
        (3, NodeBounds("partition wide", 3, 3), 3),
        (1, NodeBounds("partition wide", None, 2), None),
        (5, NodeBounds("partition wide", 2, 2), None),
        (2, NodeBounds("QOS gold", of_each=1, of_each_where="QOS gold"), 2),
        (3, NodeBounds("QOS gold", of_each=1, of_each_where="QOS gold"), 3),
        (4, NodeBounds("QOS gold", of_each=1, of_each_where="QOS gold"), None),
        (2, NodeBounds("QOS gold", of_each=2, of_each_where="QOS gold"), 1),
        (3, NodeBounds("QOS gold", of_each=2, of_each_where="QOS gold"), 2),
        (3, NodeBounds("partition narrow", 2, of_each=1, of_each_where="QOS gold"), None),
    ],
)
def test_at_least_so_many_nodes(count: int, bounds: NodeBounds, nodes: int | None) -> None:
    board = Board(make_nodes(2, 2, 2))
    found = board.place(Request(make_job(on_nodes=bounds), Gang("titan_xp", count)))
    assert (None if found is None else len({gpu // 2 for gpu in found})) == nodes
    assert found is None or len(found) == count


def test_a_job_that_needs_more_of_nodes_than_they_all_may_give_never_starts() -> None:
    job = make_job(gpus=4, max_gpus=4, on_nodes=NodeBounds("QOS gold", of_each=1, of_each_where="QOS gold"))
    reason = plan_round(make_snapshot(job, nodes=make_nodes(2, 2, 2)), load_policy("f_scheduling")).reasons[job.id]
    assert (reason.token, reason.text) == (
        "never",
        (
            "QOS gold allows 1 GPU of a node, and it needs at least 4 GPUs; that many nodes have 3 GPUs at most, "
            "so it cannot run here."
        ),
    )

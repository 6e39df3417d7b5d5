"""What jobs ask of nodes (`sbatch --constraint`): read as Slurm reads it, and kept by whatever policy."""

from __future__ import annotations

import pytest

from scheduling.capacity.engine_bounds import nodes_with
from scheduling.engine.rounds import plan_round
from scheduling.policies import POLICIES, load_policy
from tests.builders import make_job, make_nodes, make_snapshot

FEATURES = {"nvlink": ["a", "b"], "big": ["b", "c"], "rack1": ["a"], "rack2": ["b", "c"]}


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [
        ("nvlink", "ab"),
        ("nvlink&big", "b"),
        ("nvlink|big", "abc"),
        ("nvlink&big|rack1", "ab"),
        ("rack1|nvlink&big", "b"),  # from left to right
        ("rack1|(nvlink&big)", "ab"),
        ("[rack1|rack2]", "bc"),
        ("[rack1|rack2]&nvlink", "b"),
        ("gone", ""),
        ("nvlink*2", None),
        ("[rack1*2&rack2*4]", None),
        ("nvlink&", None),
        ("(nvlink", None),
        ("nvlink)", None),
        ("[]", None),
        ("a,b", None),
    ],
)
def test_constraints_are_read(constraint: str, nodes: str | None) -> None:
    assert nodes_with(constraint, FEATURES) == (None if nodes is None else frozenset(nodes))


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_starts_a_job_elsewhere(name: str) -> None:
    nodes = make_nodes(2, 2)
    asks, plain = make_job(gpus=2, max_gpus=2, constraint="nvlink"), make_job(gpus=1, max_gpus=1)
    there = {"nvlink": frozenset({nodes[1].name})}
    snapshot = make_snapshot(asks, plain, nodes=nodes, constraints=there)
    for move in plan_round(snapshot, load_policy(name)).moves:
        assert move.job_id != asks.id or set(move.gpu_ids) <= set(nodes[1].gpu_ids)


def test_reasons_name_the_constraint() -> None:
    nodes = make_nodes(2, 2)
    there = {"nvlink": frozenset({nodes[1].name}), "gone": frozenset[str]()}
    asks = make_job(gpus=2, max_gpus=2, constraint="nvlink")
    first = make_job(gpus=1, max_gpus=1, holds=(2,), restartable=False)
    never, large = make_job(gpus=1, constraint="gone"), make_job(gpus=3, constraint="nvlink")
    snapshot = make_snapshot(first, asks, never, large, nodes=nodes, constraints=there)
    reasons = plan_round(snapshot, load_policy("f_scheduling")).reasons
    assert reasons[asks.id].text.startswith(
        "Nodes with nvlink (its constraint) have 1 of their 2 GPUs free and it needs 2."
    )
    assert (reasons[never.id].token, reasons[large.id].token) == ("never", "never")
    assert "Nodes with nvlink (its constraint) have at most 2 GPUs" in reasons[large.id].text

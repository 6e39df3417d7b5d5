"""Gangs that span nodes are brought together where that saves more than it costs, and nobody loses a GPU by it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Gang, Move
from scheduling.engine.placement.choose_gpus import Board, Request
from scheduling.engine.placement.consolidation import consolidate_gangs
from scheduling.engine.rounds import plan_round
from scheduling.policies import load_policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

NODES = make_nodes(4, 4)  # GPUs 0 to 3 and 4 to 7


def running(*held: int, spread_factor: float = 0.25, steps: float = 100_000.0, **changes: Any) -> Request:
    curve = make_curve(*(1.0 for _ in range(8)), spread_factor=spread_factor)
    job = make_job(gpus=len(held), holds=held, curve=curve, remaining_steps=steps, **changes)
    return Request(job, Gang("titan_xp", len(held)), held)


def gathered(*requests: Request) -> list[tuple[int, ...]]:
    placed = {request.job.id: request.held for request in requests}
    board = Board(NODES, [gpu for request in requests for gpu in request.held])
    consolidate_gangs(board, requests, placed)
    everybody = [gpu for gpus in placed.values() for gpu in gpus]
    free = [gpu for gpus in board.free for gpu in gpus]
    assert sorted(everybody + free) == list(range(8))
    return [placed[request.job.id] for request in requests]


def test_a_gang_takes_what_is_free_beside_its_own() -> None:
    assert gathered(running(0, 4), running(1, 2, 3)) == [(4, 5), (1, 2, 3)]


def test_a_single_job_changes_places_with_it() -> None:
    gang, *others = gathered(running(0, 4), *(running(n) for n in (1, 2, 3, 5, 6, 7)))
    assert gang == (0, 1)
    assert others == [(4,), (2,), (3,), (5,), (6,), (7,)]


def test_larger_gangs_do_not_give_way() -> None:
    assert gathered(running(0, 4), running(1, 2, 3), running(5, 6, 7))[0] == (0, 4)


def test_no_job_moves_for_less_than_the_restarts() -> None:
    assert gathered(running(0, 4, steps=10.0, restart_cost_s=20.0)) == [(0, 4)]
    assert gathered(running(0, 4, steps=20.0, restart_cost_s=20.0)) == [(0, 1)]


def test_a_gang_that_is_as_fast_apart_stays() -> None:
    assert gathered(running(0, 4, spread_factor=1.0))[0] == (0, 4)


def test_no_job_gets_an_accelerator_that_is_excluded() -> None:
    others = [running(n) for n in (1, 2, 3, 5, 6, 7)]
    assert gathered(running(0, 4, excluded_gpus=frozenset({1, 2, 3})), *others)[0] == (4, 5)


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(8)), st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_every_job_keeps_its_number_of_accelerators(gpus: list[int], sizes: list[int]) -> None:
    requests, start = [], 0
    for size in sizes:
        if start + size <= 8:
            requests.append(running(*sorted(gpus[start : start + size])))
            start += size
    assert [len(ids) for ids in gathered(*requests)] == [len(request.held) for request in requests]


def moves_of(policy: str) -> tuple[Move, ...]:
    snapshot = make_snapshot(running(0, 4).job, nodes=NODES)
    return plan_round(snapshot, load_policy(policy, {})).moves


def test_only_policies_that_preempt_move_a_job_that_runs() -> None:
    (move,) = moves_of("shortest_remaining_time")
    assert move.gpu_ids in {(0, 1), (4, 5)}
    assert moves_of("fifo_gang") == ()

"""Counts to accelerators: nothing twice, nothing moved without need, gangs together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Gang
from scheduling.engine.placement.choose_gpus import Board, Request, lay_out
from tests.builders import make_curve, make_job, make_nodes


def place(
    sizes: list[int], requests: list[Request], taken: tuple[int, ...] = (), multi_node: bool = True
) -> list[object]:
    held = tuple(gpu for request in requests for gpu in request.held)
    board = Board(make_nodes(*sizes), (*taken, *held))
    placed = lay_out(board, requests, multi_node=multi_node)
    return [placed.get(request.job.id) for request in requests]


def start(count: int, **changes: object) -> Request:
    return Request(make_job(**changes), Gang("titan_xp", count))  # type: ignore[arg-type]


def resize(held: tuple[int, ...], count: int, spread_factor: float = 1.0) -> Request:
    job = make_job(holds=held, curve=make_curve(*range(1, 65), spread_factor=spread_factor))
    return Request(job, Gang("titan_xp", count), held)


def test_a_gang_goes_to_the_tightest_node_that_holds_it() -> None:
    assert place([4, 2, 3], [start(2)]) == [(4, 5)]
    assert place([4, 2, 3], [start(3)]) == [(6, 7, 8)]


def test_large_gangs_are_laid_out_first_so_that_they_find_whole_nodes() -> None:
    assert place([2, 4], [start(1), start(1), start(4)]) == [(0,), (1,), (2, 3, 4, 5)]


def test_an_unchanged_job_keeps_its_gpus() -> None:
    assert place([4, 4], [resize((1, 6), 2), start(4)])[0] == (1, 6)


def test_a_growing_job_keeps_its_gpus_and_its_node() -> None:
    assert place([4, 4], [resize((2,), 3)]) == [(1, 2, 3)]


def test_it_spans_nodes_only_when_no_node_has_room() -> None:
    assert place([2, 2, 2], [start(4)]) == [(0, 1, 2, 3)]
    assert place([2, 2], [resize((0,), 3)]) == [(0, 1, 2)]


def test_it_leaves_its_gpus_for_a_whole_node_only_where_spanning_is_slower() -> None:
    assert place([2, 4], [resize((0, 1), 4)]) == [(0, 1, 2, 3)]
    assert place([2, 4], [resize((0, 1), 4, spread_factor=0.5)]) == [(2, 3, 4, 5)]


def test_a_shrinking_job_leaves_the_node_where_it_has_least() -> None:
    assert place([2, 4], [resize((1, 2, 3, 4), 3)]) == [(2, 3, 4)]


def test_what_one_job_leaves_another_may_get() -> None:
    assert place([4], [resize((0, 1, 2, 3), 2), start(2)]) == [(0, 1), (2, 3)]


def test_excluded_gpus_are_avoided() -> None:
    assert place([4], [start(2, excluded_gpus=frozenset({0, 1}))]) == [(2, 3)]
    assert place([2], [start(2, excluded_gpus=frozenset({0}))]) == [None]


def test_without_multi_node_a_gang_is_laid_out_smaller_or_waits() -> None:
    smaller = Request(make_job(), Gang("titan_xp", 4), least=1)
    assert place([2, 2], [smaller], multi_node=False) == [(0, 1)]
    assert place([2, 2], [start(3)], multi_node=False) == [None]


def test_a_job_that_cannot_grow_keeps_what_it_holds() -> None:
    assert place([2, 2], [resize((0, 1), 3), start(1)], multi_node=False) == [(0, 1), (2,)]


@st.composite
def boards(draw: st.DrawFn) -> tuple[list[int], list[Request]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    free = draw(st.permutations(range(sum(sizes))))
    requests, total = [], 0
    for _ in range(draw(st.integers(0, 6))):
        held = tuple(sorted(free.pop() for _ in range(min(len(free), draw(st.integers(0, 4))))))
        count = draw(st.integers(1, 6))
        if total + max(count, len(held)) > sum(sizes):
            break
        total += max(count, len(held))
        factor = draw(st.sampled_from([1.0, 0.6]))
        requests.append(resize(held, count, factor) if held else start(count))
    return sizes, requests


@settings(max_examples=80, deadline=None)
@given(boards())
def test_every_gang_is_laid_out_once_and_unchanged_ones_stay(board: tuple[list[int], list[Request]]) -> None:
    sizes, requests = board
    placed = place(sizes, requests)
    used = [gpu for gpus in placed if isinstance(gpus, tuple) for gpu in gpus]
    assert len(used) == len(set(used))
    for request, gpus in zip(requests, placed, strict=True):
        assert isinstance(gpus, tuple)
        assert len(gpus) == request.gang.count
        if len(request.held) == len(gpus):
            assert gpus == request.held
        if len(request.held) > len(gpus):
            assert set(gpus) < set(request.held)
        elif request.held and request.job.curves["titan_xp"].spread_factor == 1.0:
            assert set(request.held) <= set(gpus)
    assert placed == place(sizes, requests)

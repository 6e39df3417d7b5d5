"""What rounds find again by the identity of what it was worked out from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from scheduling.capacity.memo import ShapeCache, cluster_index
from tests.builders import make_job, make_nodes


def test_excerpts_do_not_put_out_the_whole_cluster() -> None:
    whole = make_nodes(*[1] * 100)
    known = cluster_index(whole)
    for end in range(1, 60):
        assert cluster_index((*whole[:end],)).total == {"titan_xp": end}
    assert cluster_index(whole) is known
    assert cluster_index((*whole,)) is not known  # equal is not the same


def test_shapes_that_were_asked_for_last_are_kept() -> None:
    shapes: ShapeCache[int] = ShapeCache(most=8, shapes=2)
    job = make_job()
    first = shapes.of("a")
    assert first.get(job, lambda _: 1) == 1
    shapes.of("b")
    assert shapes.of("a") is first  # the last, now
    shapes.of("c")
    assert shapes.of("a") is first
    assert first.get(job, lambda _: 2) == 1


def test_threads_may_ask_at_once() -> None:
    every = [make_nodes(*[1] * n) for n in range(1, 200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(cluster_index, every * 5))
    assert [one.total["titan_xp"] for one in found] == list(range(1, 200)) * 5

"""Which accelerators a gang gets, what a failed placement leaves, and who is laid out before whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Curve, Gang, Job, Node
from scheduling.engine.placement.choose_gpus import Board, Request, lay_out
from tests.builders import make_job, make_nodes
from tests.cases import in_turn

GPU = "titan_xp"


def request(count: int, held: Sequence[int] = (), least: int = 0, **changes: Any) -> Request:
    return Request(make_job(holds=held, **changes), Gang(GPU, count), tuple(held), least)


def board(*sizes: int, taken: Sequence[int] = (), **changes: Any) -> Board:
    return Board(make_nodes(*sizes, **changes), taken)


# The board -------------------------------------------------------------------------------------------------


def test_a_board_has_what_is_usable_and_not_taken_in_order() -> None:
    nodes = (
        *make_nodes(2, 3),
        Node("drained", GPU, (20,), schedulable=False),
        Node("lost", GPU, (30,), lost=True),
        *make_nodes(1, type="b", first_id=40),
    )
    found = Board(nodes, (1, 3, 99))
    assert found.free == [[0], [2, 4], [40]]
    assert found.largest == 3
    assert Board(()).place(request(1)) is None


def test_what_is_given_back_is_in_order_again_and_found() -> None:
    found = board(4)
    found.take((0, 1, 2, 3))
    assert found.place(request(1)) is None
    found.give((2,))
    found.give((0,))
    assert found.free == [[0, 2]]
    assert found.place(request(2)) == (0, 2)


def test_who_vacates_leaves_all_and_who_occupies_has_it_again() -> None:
    one = make_job(holds=(0, 1), cpu_milli=3_000)
    found = Board(make_nodes(2, cpu_milli=4_000), (0, 1), [one])
    wants = Request(make_job(gpus=1, cpu_milli=2_000), Gang(GPU, 1))
    found.vacate([one])
    assert found.free == [[0, 1]]
    assert found.place(wants) == (0,)
    found.give((0,))
    assert found.hosts is not None
    found.hosts.move(wants.job, ())
    found.occupy([one])
    assert found.free == [[]]
    found.give((0,))
    assert found.place(wants) is None  # too few processors beside it
    assert found.free == [[0]]


def test_without_requests_for_processors_only_gpus_count() -> None:
    one = make_job(holds=(0, 1), cpu_milli=3_000)
    found = board(3, taken=(0, 1))
    found.vacate([one])
    assert found.free == [[0, 1, 2]]
    found.occupy([one])
    assert found.free == [[2]]


# One gang --------------------------------------------------------------------------------------------------


@in_turn(
    ("sizes", "taken", "count", "placed"),
    [
        ((4, 2), (), 2, (4, 5)),  # the tightest node
        ((4, 2), (), 3, (0, 1, 2)),
        ((2, 2), (), 2, (0, 1)),  # the first of equals
        ((2, 2), (0,), 1, (1,)),
        ((2, 2, 4), (), 4, (4, 5, 6, 7)),  # one node before several
        ((2, 2), (), 3, (0, 1, 2)),
        ((1, 3, 2), (), 5, (1, 2, 3, 4, 5)),  # the largest, then the tightest that has the rest
        ((1, 3, 2), (), 4, (0, 1, 2, 3)),
        ((2, 2), (), 4, (0, 1, 2, 3)),
        ((2, 2), (), 5, None),
        ((3,), (0, 1, 2), 1, None),
        ((3,), (), 3, (0, 1, 2)),
    ],
)
def test_where_a_new_gang_is_placed(
    sizes: tuple[int, ...], taken: tuple[int, ...], count: int, placed: tuple[int, ...] | None
) -> None:
    found = board(*sizes, taken=taken)
    before = [list(free) for free in found.free]
    assert found.place(request(count)) == placed
    gone = set(placed or ())
    assert found.free == [[gpu for gpu in free if gpu not in gone] for free in before]


@in_turn(
    ("sizes", "taken", "held", "count", "placed"),
    [
        ((6,), (), (2,), 3, (1, 2, 3)),  # the nearest
        ((6,), (3,), (2,), 2, (1, 2)),
        ((6,), (), (0, 5), 3, (0, 1, 5)),  # to any of its own; the lower of equals
        ((2, 4), (), (0,), 2, (0, 1)),
        ((2, 4), (), (0, 1), 3, (0, 1, 2)),  # beyond its node where that does not slow it down
        ((2, 4), (), (0, 2), 4, (0, 2, 3, 4)),  # on its own nodes, that with most room first
        ((3, 3, 3), (), (0, 3, 4), 5, (0, 1, 2, 3, 4)),
        ((2, 2), (), (0, 1), 5, None),
        ((4,), (), (0, 1, 2, 3), 2, (0, 1)),
        ((4, 4), (), (3, 4, 5), 2, (4, 5)),
        ((4, 4), (), (3, 4, 5), 1, (4,)),
        ((2, 2), (), (0, 2), 1, (0,)),
    ],
)
def test_where_a_gang_that_holds_gpus_goes(
    sizes: tuple[int, ...], taken: tuple[int, ...], held: tuple[int, ...], count: int, placed: tuple[int, ...] | None
) -> None:
    found = board(*sizes, taken=taken)
    before = [list(free) for free in found.free]
    assert found.place(request(count, held)) == placed
    gone = set(placed or ())
    assert found.free == [[gpu for gpu in free if gpu not in gone] for free in before]


@in_turn(("factor", "placed"), [(1.0, (0, 1, 2)), (0.9, (2, 3, 4)), (1.1, (0, 1, 2))])
def test_it_leaves_its_node_only_where_spanning_would_slow_it_down(factor: float, placed: tuple[int, ...]) -> None:
    curve = Curve((1.0, 2.0, 3.0), spread_factor=factor)
    assert board(2, 4).place(request(3, (0, 1), curve=curve)) == placed
    assert board(2, 4).place(request(3, (0, 1), curve=curve), multi_node=False) == (placed if factor < 1.0 else None)
    unknown = Request(make_job(holds=(0, 1), curves={}), Gang(GPU, 3), (0, 1))
    assert board(2, 4).place(unknown) == (0, 1, 2)


def test_accelerators_are_named_node_by_node() -> None:
    nodes = (Node("n0", GPU, (10, 11)), Node("n1", GPU, (0, 1)))
    assert Board(nodes).place(request(4)) == (10, 11, 0, 1)


def test_a_type_that_is_not_there_has_no_room() -> None:
    assert board(2).place(Request(make_job(gpus=1), Gang("b", 1))) is None
    mixed = Board((*make_nodes(1), *make_nodes(4, type="b", first_id=10)))
    assert mixed.place(request(2)) is None
    assert mixed.place(Request(make_job(gpus=2), Gang("b", 2))) == (10, 11)


def test_excluded_gpus_are_kept_from_it_alone() -> None:
    bad = frozenset({0, 1, 7, 99})
    found = board(3, 3, taken=(1,))
    assert found.place(request(2, excluded_gpus=bad)) == (3, 4)
    assert found.place(request(1, excluded_gpus=bad)) == (2,)
    assert found.place(request(2, excluded_gpus=bad)) is None
    assert found.free == [[0], [5]]
    assert found.place(request(2)) == (0, 5)
    runs = request(3, (0, 1), excluded_gpus=frozenset({0, 2}))  # it may stay where it is
    assert board(4).place(runs) == (0, 1, 3)


# Processors and memory -------------------------------------------------------------------------------------


@in_turn(("milli", "placed"), [(0, (0,)), (2_000, (0,)), (2_001, (2,)), (6_000, (2,)), (6_001, None)])
def test_nodes_with_too_few_processors_are_left_out(milli: int, placed: tuple[int, ...] | None) -> None:
    nodes = (Node("n0", GPU, (0, 1), cpu_milli=2_000), Node("n1", GPU, (2, 3, 4), cpu_milli=6_000))
    found = Board(nodes, staying=())
    assert found.place(request(1, cpu_milli=milli)) == placed
    assert sorted(gpu for free in found.free for gpu in free) == [gpu for gpu in range(5) if gpu not in (placed or ())]
    assert Board(nodes).place(request(1, cpu_milli=9_000)) == (0,)  # nobody's concern there


def test_what_is_placed_uses_up_what_its_node_has() -> None:
    nodes = (Node("n0", GPU, (0, 1, 2), memory_mib=1_000), Node("n1", GPU, (3,), memory_mib=1_000))
    found = Board(nodes, staying=())
    assert found.place(request(1, memory_mib=600)) == (3,)
    assert found.place(request(1, memory_mib=600)) == (0,)
    assert found.place(request(1, memory_mib=600)) is None
    assert found.place(request(1, memory_mib=400)) == (1,)
    assert found.free == [[2], []]


def test_who_asks_for_no_processors_starts_where_there_are_none_left() -> None:
    stays = make_job(holds=(0,), cpu_milli=9_000)  # the node was said to have more
    nodes = (Node("n0", GPU, (0, 1), cpu_milli=2_000),)
    assert Board(nodes, (0,), [stays]).place(request(1)) == (1,)
    assert Board(nodes, (0,), [stays]).place(request(1, cpu_milli=1)) is None


def test_who_stays_uses_what_it_asked_for_and_what_is_excluded_stays_so() -> None:
    stays = make_job(holds=(0,), cpu_milli=1_500)
    nodes = (Node("n0", GPU, (0, 1), cpu_milli=2_000), Node("n1", GPU, (2, 3), cpu_milli=2_000))
    wants: dict[str, Any] = {"cpu_milli": 1_000}
    assert Board(nodes, (0,), [stays]).place(request(1, **wants)) == (2,)
    both = Board(nodes, (0,), [stays])
    assert both.place(request(1, excluded_gpus=frozenset({1, 2}), **wants)) == (3,)
    assert both.free == [[1], [2]]
    other = Board((*nodes, *make_nodes(1, type="b", first_id=9, cpu_milli=0)), (0,), [stays])
    assert other.place(request(2, **wants)) == (2, 3)
    assert other.free == [[1], [], [9]]


# All gangs of a round --------------------------------------------------------------------------------------


def test_the_order_is_who_stays_then_who_shrinks_then_who_grows_then_who_starts() -> None:
    stays, shrinks, grows = request(1, (0,)), request(1, (1, 2)), request(3, (3, 4))
    starts = request(1)
    found = board(6, taken=(0, 1, 2, 3, 4))
    assert lay_out(found, [starts, grows, shrinks, stays]) == {
        stays.job.id: (0,),
        shrinks.job.id: (1,),
        grows.job.id: (2, 3, 4),
        starts.job.id: (5,),
    }
    assert found.free == [[]]


def test_what_one_that_grows_holds_no_other_gets() -> None:
    """The larger is laid out first and may not have what the smaller is on."""
    large, small = request(4, (0, 1)), request(2, (2,))
    placed = lay_out(board(5, taken=(0, 1, 2)), [small, large])
    assert placed == {large.job.id: (0, 1, 3, 4), small.job.id: (2,)}
    roomy = lay_out(board(6, taken=(0, 1, 2)), [small, large])
    assert roomy == {large.job.id: (0, 1, 3, 4), small.job.id: (2, 5)}


def test_larger_gangs_are_laid_out_before_smaller_ones_and_equals_in_queue_order() -> None:
    small, first, second = request(1), request(2), request(2)
    placed = lay_out(board(2, 2), [small, first, second], multi_node=False)
    assert placed == {first.job.id: (0, 1), second.job.id: (2, 3)}


@in_turn(
    ("count", "held", "least", "size", "kept"),
    [
        (4, (), 2, 3, 3),
        (4, (), 2, 2, 2),
        (4, (), 3, 2, None),
        (4, (), 0, 3, None),
        (4, (0,), 1, 3, 3),
        (4, (0,), 2, 1, 1),  # it keeps what it holds
        (4, (0,), 0, 3, 1),
        (4, (0, 1), 1, 2, 2),
        (4, (0, 1), 4, 3, 2),
    ],
)
def test_what_does_not_fit_is_laid_out_smaller_down_to_its_least_or_what_it_holds(
    count: int, held: tuple[int, ...], least: int, size: int, kept: int | None
) -> None:
    one = request(count, held, least)
    found = board(size, taken=held)
    placed = lay_out(found, [one])
    assert (len(placed[one.job.id]) if placed else None) == kept
    assert len(found.free[0]) == size - (kept or 0)


def test_who_shrinks_always_can() -> None:
    one = request(1, (0, 1, 2), 3)
    assert lay_out(board(3, taken=(0, 1, 2)), [one]) == {one.job.id: (0,)}


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[Request]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    gpus, requests = list(range(sum(sizes))), list[Request]()
    for _ in range(draw(st.integers(0, 5))):
        held = draw(st.lists(st.sampled_from(gpus), max_size=3, unique=True)) if gpus else []
        gpus = [gpu for gpu in gpus if gpu not in held]
        requests.append(request(draw(st.integers(1, 6)), sorted(held), draw(st.integers(0, 2))))
    return sizes, requests


@settings(max_examples=150, deadline=None)
@given(layout=layouts(), multi_node=st.booleans())
def test_a_layout_gives_each_gpu_once_and_the_board_has_the_rest(
    layout: tuple[list[int], list[Request]], multi_node: bool
) -> None:
    sizes, requests = layout
    held = [gpu for one in requests for gpu in one.held]
    found = board(*sizes, taken=held)
    placed = lay_out(found, requests, multi_node=multi_node)
    given_out = [gpu for gpus in placed.values() for gpu in gpus]
    assert len(given_out) == len(set(given_out))
    assert sorted([*given_out, *(gpu for free in found.free for gpu in free)]) == list(range(sum(sizes)))
    for one in requests:
        gpus = placed.get(one.job.id, ())
        assert len(gpus) in (0, *range(min(one.gang.count, len(one.held) or one.least or 9), one.gang.count + 1))
        if one.held:
            assert len(gpus) >= min(len(one.held), one.gang.count)
        if one.keeps:
            assert gpus == one.held
        if one.held and len(gpus) < len(one.held):
            assert set(gpus) < set(one.held)
    jobs: list[Job] = [one.job for one in requests if one.job.id not in placed]
    assert not any(job.gpu_ids for job in jobs)

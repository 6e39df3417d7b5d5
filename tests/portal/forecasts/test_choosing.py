"""On which cluster a job goes: named, by expected end, by cost, and where it does not fit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Rate
from portal.core.problems import Problems
from portal.forecasts import choose_cluster, cluster_figures, start_tasks
from portal.forecasts.choose_cluster import CHEAPEST, EARLIEST, Outlook, compare, why
from portal.jobs.models import Cluster, Job, Node
from tests.portal.api_calls import Api
from tests.portal.cluster.test_clusters import second
from tests.portal.world import World

pytestmark = pytest.mark.django_db
CURVES = {"k1": [10.0, 18.0], "k2": [40.0, 72.0]}
ONE = {"min": 1, "max": 1}


@pytest.fixture
def world() -> World:
    """Cluster `test` has four k1, cluster `other` two k2, which are four times as fast and ten times as dear."""
    cache.clear()
    world = World({"a": 4})
    second(world, gpus=2, kind="k2")
    Rate.objects.create(
        accelerator_type="k2", price_micro_per_hour=12_345_670, valid_from=datetime(2020, 1, 1, tzinfo=UTC)
    )
    return world


def submit(world: World, **keys: Any) -> Job:
    given: dict[str, Any] = {"steps": 100_000, "throughput": CURVES, "gpus": ONE}
    return world.submit(**given | keys)


def test_by_default_the_earliest_end(world: World) -> None:
    job = submit(world)
    assert (job.cluster.name, job.cluster_choice) == ("other", "Cluster other: would end 2 h earlier than on test.")
    assert submit(world, cluster="earliest").cluster.name == submit(world, cluster="auto").cluster.name == "other"


def test_the_lowest_cost(world: World) -> None:
    job = submit(world, cluster="cheapest")
    assert job.cluster.name == "test"
    assert job.cluster_choice.startswith("Cluster test: would cost 3.43 USD, 5.14 USD less than on other")


def test_one_that_is_full_ends_later(world: World) -> None:
    """Both k2 are taken for long: free k1, however slow, end it earlier."""
    here, world.cluster = world.cluster, Cluster.objects.get(name="other")
    busy = submit(world, cluster="other", steps=10**9, gpus={"min": 2, "max": 2})
    world.train(busy)
    world.cluster = here
    cache.clear()
    assert submit(world, steps=10_000).cluster.name == "test"


def test_a_named_one_is_no_choice(world: World) -> None:
    job = submit(world, cluster="test")
    assert (job.cluster.name, job.cluster_choice) == ("test", "")


@pytest.mark.parametrize(
    ("retired", "said"), [(False, "'third' is no cluster; there are test, other"), (True, "is retired")]
)
def test_one_that_is_not_there_is_named(world: World, retired: bool, said: str) -> None:
    if retired:
        Cluster.objects.create(name="third", retired_at=timezone.now())
    with pytest.raises(Problems, match=said):
        submit(world, cluster="third")


def test_one_whose_nodes_cannot_hold_it_is_never_chosen(world: World) -> None:
    job = submit(world, gpus={"min": 3, "max": 4})
    assert job.cluster.name == "test"
    assert job.cluster_choice.startswith("Cluster test: the only one that can run it. other: It needs at least 3")
    assert submit(world, gpus={"min": 1, "types": ["k2"]}).cluster.name == "other"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"gpus": {"min": 9}}, "test: It needs at least 9 .* other: It needs at least 9"),
        ({"gpus": {"min": 1, "types": ["k3"]}}, "test: This cluster has no k3 \\(it has 4 k1.* other: .* 2 k2"),
        ({"memory": "4GiB"}, "test: It needs 4,096 MiB on a node, and the largest has 1,000. other: It needs 4,096"),
        ({"cpus": 64}, "test: It needs 64 CPUs on a node"),
        ({"gpus": {"min": 1, "memory": "40GiB"}}, "test: gpus.memory no type of GPU"),
        ({"partition": "day"}, "test: partition is no partition .* other: partition is no partition"),
    ],
)
def test_where_none_can_hold_it_each_says_why(world: World, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(Problems, match=f"cluster: no cluster can run the job. {said}"):
        submit(world, **keys)


def test_memory_of_nodes_that_say_nothing_rules_none_out(world: World) -> None:
    Node.objects.filter(cluster__name="other").update(memory_mib=0)
    assert submit(world, memory="4GiB").cluster.name == "other"


def test_a_job_that_resumes_goes_where_its_checkpoint_lies(world: World) -> None:
    first = submit(world, cluster="test")
    world.train(first)
    world.checkpoint(first, 50)
    following = submit(world, resume_from={"job": first.number})
    assert following.cluster.name == "test"
    with pytest.raises(Problems, match=r"the checkpoint of #\d+ lies on cluster test, not on other"):
        submit(world, resume_from={"job": first.number}, cluster="other")


def test_with_one_cluster_there_is_nothing_to_choose(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster.objects.filter(name="other").update(retired_at=timezone.now())
    monkeypatch.setattr(choose_cluster, "_best", lambda *given: pytest.fail("a choice"))
    assert submit(world, cluster="cheapest", gpus={"min": 99}).cluster.name == "test"


def test_an_array_stays_on_one(world: World) -> None:
    submit(world, array="0-2")
    assert {job.cluster.name for job in Job.objects.all()} == {"other"}


def test_the_api_says_which_and_why(world: World) -> None:
    api = Api(world.user)
    file = {"command": "train", "total_steps": 100_000, "throughput": CURVES, "gpus": 1}
    said = api.post("jobs/preview", file)
    assert said.json["cluster"] == {"name": "other", "choice": "Cluster other: would end 2 h earlier than on test."}
    made = api.post("jobs", file)
    assert made.json["cluster"] == said.json["cluster"]
    assert api.post("jobs", file | {"cluster": "test"}).json["cluster"] == {"name": "test", "choice": None}
    assert [job["number"] for job in api.get("jobs?cluster=other").json["results"]] == [made.json["number"]]
    refused = api.post("jobs", file | {"gpus": {"min": 9}})
    assert (refused.status, refused.fields) == (400, ["cluster"])


@pytest.mark.parametrize("path", ["jobs", "jobs/export", "prices"])
def test_a_list_of_no_cluster_is_refused_and_one_of_a_retired_is_not(world: World, path: str) -> None:
    api = Api(world.user)
    refused = api.get(f"{path}?cluster=othr")
    assert (refused.status, refused.fields) == (400, ["cluster"])
    assert "unknown cluster; there are test, other" in refused.json["detail"]
    Cluster.objects.filter(name="other").update(retired_at=timezone.now())
    assert api.get(f"{path}?cluster=other").status == 200


def test_many_jobs_of_no_cluster_are_not_acted_on(world: World) -> None:
    refused = Api(world.user).post("jobs/bulk", {"action": "cancel", "filter": {"cluster": "othr"}})
    assert (refused.status, refused.fields) == (400, ["filter.cluster"])


# What the last round and the last forecast left ------------------------------------------------------


def rounds(world: World) -> None:
    """One of each cluster."""
    here = world.cluster
    for world.cluster in Cluster.objects.all():
        world.round()
    world.cluster = here


def test_rounds_leave_the_figures_and_nothing_is_read_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(world, cluster="other", steps=10**9, gpus={"min": 2, "max": 2})
    rounds(world)
    monkeypatch.setattr(cluster_figures, "take_snapshot", lambda *given: pytest.fail("read"))
    assert submit(world, steps=10_000).cluster.name == "test"
    for job in Job.objects.filter(cluster__name="other"):
        world.gone(job, "done")
    rounds(world)
    assert submit(world, steps=10_000).cluster.name == "other"


def test_with_one_cluster_rounds_leave_none(world: World) -> None:
    Cluster.objects.filter(name="other").update(retired_at=timezone.now())
    world.round()
    assert cache.get_many([f"round-figures/{pk}" for pk in Cluster.objects.values_list("pk", flat=True)]) == {}


def test_a_burst_between_two_rounds_is_spread(world: World) -> None:
    """A k2 is four times as fast: of ten jobs at once about eight end first on the two of them."""
    rounds(world)
    chosen = [submit(world).cluster.name for _ in range(14)]
    assert chosen[:3] == ["other"] * 3
    assert 2 <= chosen.count("test") <= 6


def test_the_forecast_of_a_queue_counts(world: World) -> None:
    for _ in range(4):
        submit(world, cluster="other", steps=40_000)
    other = Cluster.objects.get(name="other")
    rounds(world)
    start_tasks.foresee_cluster(other)
    figures = cluster_figures.figures_by_cluster([other])[other.pk]
    [(demand, expected_s)] = figures.expected_s(timezone.now()).items()
    assert demand == (("k2",), "", 1)
    assert 900 < expected_s < 1_100
    assert not figures.new


@pytest.mark.parametrize("by", ["earliest", "cheapest"])
def test_of_one_whose_engine_is_away_no_start_is_known(world: World, by: str) -> None:
    Cluster.objects.filter(name="other").update(engine_away_since=timezone.now())
    job = submit(world, cluster=by)
    assert job.cluster.name == "test"
    if by == "earliest":
        assert job.cluster_choice.endswith("when it would start on other is not known.")


A, B = Outlook("a", 60.0, 7_260.0, None), Outlook("b", 0.0, 3_600.0, None)


@pytest.mark.parametrize(
    ("outlooks", "by", "said"),
    [
        ([A, B], EARLIEST, "Cluster b: would end 61 min earlier than on a."),
        ([A, Outlook("b", 60.0, 7_260.0, None)], EARLIEST, "Cluster a: would end as early as on b."),
        ([Outlook("a", 0.0, None, None), B], EARLIEST, "Cluster b: would end in 60 min; how fast it runs on a is"),
        (
            [Outlook("a", 600.0, None, None), Outlook("b", 0.0, None, None)],
            EARLIEST,
            "Cluster b: would start 10 min earlier than on a; how fast it runs is not known.",
        ),
        ([Outlook("a", None, None, None), Outlook("b", 5.0, None, None)], EARLIEST, "Cluster b: when it would start"),
        ([Outlook("a", None, None, None), B], EARLIEST, "Cluster b: would end in 60 min; when it would start on a is"),
        (
            [Outlook("a", None, None, None, 2.0), Outlook("b", None, None, None, 0.5)],
            EARLIEST,
            "Cluster b: its queue is shorter than that of a; when the job would start is not known.",
        ),
        ([A, B], CHEAPEST, "Cluster b: would end 61 min earlier than on a."),
    ],
)
def test_why_is_said_against_the_second_best(outlooks: list[Outlook], by: str, said: str) -> None:
    assert why(compare(outlooks, by), by).startswith(said)

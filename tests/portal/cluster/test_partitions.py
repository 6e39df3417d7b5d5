"""Partitions: who may make and use them, and what they do to jobs and rounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEntry, Membership, Project, User
from portal.accounting import admission
from portal.cluster.policy import set_policy
from portal.jobs.models import Cluster, Job, Partition
from portal.submission import submit
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db

BODY = {"project": "vision", "command": "train", "total_steps": 1000, "throughput": {"k1": [10.0, 18.0, 24.0, 28.0]}}


@pytest.fixture
def world() -> World:
    return World({"a": 4, "b": 2})


@pytest.fixture
def admin() -> Api:
    return Api(User.objects.create_superuser("root@example.org", "x"))


@pytest.fixture
def parts(world: World, admin: Api) -> Api:
    assert admin.put("partitions/day", {"nodes": ["a"], "priority": 10}).status == 201
    assert admin.put("partitions/night", {"nodes": ["b"], "max_gpus": 1, "max_duration_s": 600}).status == 201
    return admin


class TestMaking:
    def test_it_is_made_changed_listed_and_removed(self, parts: Api, api: Api) -> None:
        assert [row["name"] for row in api.get("partitions").json["results"]] == ["night", "day"]
        day = api.get("partitions/day").json
        assert (day["node_count"], day["gpus"], day["is_default"]) == (1, 4, False)
        assert parts.put("partitions/day", {"accelerator_types": ["k1"], "is_default": True}).status == 200
        assert api.get("partitions/day").json["gpus"] == 6
        assert api.get("partitions/day").json["is_default"]
        assert parts.put("partitions/night", {"nodes": ["b"], "is_default": True}).json["is_default"]
        assert not api.get("partitions/day").json["is_default"]
        assert parts.delete("partitions/day").status == 204
        assert api.get("partitions/day").status == 404
        actions = list(AuditEntry.objects.filter(target="day").order_by("pk").values_list("action", flat=True))
        assert actions == ["partition.set", "partition.set", "partition.remove"]

    def test_every_error_names_its_field(self, parts: Api) -> None:
        assert parts.put("partitions/x", {}).fields == ["nodes"]
        unknown = parts.put("partitions/x", {"nodes": ["nothing"]})
        assert unknown.fields == ["nodes"]
        assert "there are a, b" in unknown.json["errors"][0]["message"]
        assert parts.put("partitions/x", {"accelerator_types": ["h9"]}).fields == ["accelerator_types"]
        assert parts.put("partitions/x", {"nodes": ["a"], "projects": ["nothing"]}).fields == ["projects"]
        restricted = {"nodes": ["a"], "for_everybody": False, "is_default": True}
        assert parts.put("partitions/x", restricted).fields == ["is_default"]
        assert parts.put("partitions/Not a name", {"nodes": ["a"]}).fields == ["partition"]
        assert parts.get("partitions/x").status == 404

    def test_what_other_projects_use_answers_as_if_it_were_not_there(self, parts: Api, world: World) -> None:
        speech = Project.objects.create(key="speech", name="Speech")
        stranger = User.objects.create_user("bo@example.org", "x")
        Membership.objects.create(project=speech, user=stranger)
        body = {"nodes": ["a"], "for_everybody": False, "projects": ["vision"]}
        parts.put("partitions/mine", body)
        other = Api(stranger)
        assert "mine" not in [row["name"] for row in other.get("partitions").json["results"]]
        assert other.get("partitions/mine").json == other.get("partitions/nothing").json
        mine = other.post("jobs", BODY | {"project": "speech", "partition": "mine"})
        nothing = other.post("jobs", BODY | {"project": "speech", "partition": "nothing"})
        assert mine.json == nothing.json
        assert "speech may use day, night" in mine.json["errors"][0]["message"]
        below = Project.objects.create(key="below", name="Below", parent=world.project)
        Membership.objects.create(project=below, user=stranger)
        assert other.post("jobs", BODY | {"project": "below", "partition": "mine"}).status == 201


@pytest.mark.django_db(transaction=True)
def test_one_is_removed_while_a_round_is_committed(parts: Api) -> None:
    """A round changes the cluster more than once, so that its commit looks at the default partition again."""
    parts.put("partitions/day", {"nodes": ["a"], "is_default": True})
    with transaction.atomic():
        for _ in range(2):
            Cluster.objects.update(rounds=F("rounds") + 1)
        removal = _removed_elsewhere(parts)
        _wait_until_somebody_waits_for_this()
    assert removal() == 204
    assert Cluster.objects.get().default_partition is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("named", [False, True])
def test_one_is_removed_while_a_job_is_submitted(
    parts: Api, api: Api, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    parts.put("partitions/day", {"nodes": ["a"], "is_default": True})
    admit, removed = admission.admit, list[int]()

    def removing(**given: Any) -> None:
        if not removed:
            removed.append(_removed_elsewhere(parts)())
        admit(**given)

    monkeypatch.setattr(submit, "admit", removing)
    made = api.post("jobs", BODY | ({"partition": "day"} if named else {}))
    assert removed == [204]
    if named:
        assert (made.status, made.fields) == (400, ["partition"])
    else:
        assert (made.status, made.json["partition"]) == (201, None)
    assert Job.objects.count() == (0 if named else 1)


def _removed_elsewhere(parts: Api) -> Callable[[], int]:
    """The default partition is being removed over another connection; what comes back waits for the answer."""
    statuses: list[int] = []

    def remove() -> None:
        try:
            statuses.append(parts.delete("partitions/day").status)
        finally:
            connection.close()

    thread = threading.Thread(target=remove)
    thread.start()

    def answer() -> int:
        thread.join(30)
        return statuses[0]

    return answer


def _wait_until_somebody_waits_for_this() -> None:
    for _ in range(1_000):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
            )
            if cursor.fetchone()[0]:
                return
        time.sleep(0.01)
    pytest.fail("nobody waits for this transaction")


class TestChoosing:
    def test_a_job_names_one_and_is_found_by_it(self, parts: Api, api: Api) -> None:
        made = api.post("jobs", BODY | {"partition": "day"}).json
        api.post("jobs", BODY)
        assert made["partition"] == "day"
        assert [row["number"] for row in api.get("jobs?partition=day").json["results"]] == [made["number"]]

    def test_the_default_one_is_that_of_jobs_that_name_none(self, parts: Api, api: Api) -> None:
        assert api.post("jobs", BODY).json["partition"] is None
        parts.put("partitions/day", {"nodes": ["a"], "is_default": True})
        assert api.post("jobs", BODY).json["partition"] == "day"

    def test_its_limits_bind_each_job(self, parts: Api, api: Api) -> None:
        night = BODY | {"partition": "night"}
        assert api.post("jobs", night | {"gpus": {"min": 2}}).fields == ["gpus.min"]
        assert api.post("jobs", night | {"gpus": {"min": 1, "max": 2}}).fields == ["gpus.max"]
        assert api.post("jobs", night | {"max_duration": "1h"}).fields == ["max_duration"]
        made = api.post("jobs", night).json
        assert (made["gpus"]["max"], made["max_duration_s"]) == (1, 600)

    def test_an_estimate_is_of_its_nodes_and_limits(self, parts: Api, api: Api) -> None:
        night = api.post("jobs/estimate", BODY | {"partition": "night"}).json
        assert {option["gpus"] for option in night["options"]} == {1}
        assert api.post("jobs/estimate", BODY).json["options"] == []  # every node is in a partition
        parts.delete("partitions/night")
        assert [option["gpus"] for option in api.post("jobs/estimate", BODY).json["options"]] == [1, 2]
        assert api.post("jobs/estimate", BODY | {"partition": "nothing"}).fields == ["partition"]

    def test_a_waiting_job_may_change_it(self, parts: Api, api: Api, world: World) -> None:
        job = world.submit(partition="day")
        answer = api.patch(f"jobs/{job.number}", {"partition": "night"})
        assert answer.json["partition"] == "night"
        assert answer.json["max_duration_s"] == 600
        assert api.patch(f"jobs/{job.number}", {"partition": "nothing"}).fields == ["partition"]
        assert api.patch(f"jobs/{job.number}", {"max_duration": 601}).fields == ["max_duration"]
        world.train(job)
        assert api.patch(f"jobs/{job.number}", {"partition": "day"}).status == 409

    def test_what_it_filled_in_is_not_taken_for_the_jobs_own(self, parts: Api, api: Api) -> None:
        parts.put("partitions/large", {"nodes": ["a"], "max_gpus": 4, "max_duration_s": 3600})
        made = api.post("jobs", BODY | {"partition": "large"}).json
        assert (made["gpus"]["max"], made["max_duration_s"]) == (4, 3600)
        assert "max_duration" not in api.get(f"jobs/{made['number']}").json["spec"]
        assert api.get(f"jobs/{made['number']}").json["spec"]["gpus"] == {"min": 1, "types": []}
        for name, limits in (("night", (1, 600)), ("day", (None, None)), ("large", (4, 3600))):
            now = api.patch(f"jobs/{made['number']}", {"partition": name})
            assert now.status == 200, now.json
            assert (now.json["gpus"]["max"], now.json["max_duration_s"]) == limits
        again = api.post(f"jobs/{made['number']}/resubmit", {"partition": "night"}).json
        assert (again["gpus"]["max"], again["max_duration_s"]) == (1, 600)
        shorter = api.patch(f"jobs/{made['number']}", {"max_duration": 60}).json["max_duration_s"]
        assert shorter == 60
        assert api.patch(f"jobs/{made['number']}", {"max_duration": None}).json["max_duration_s"] == 3600

    def test_jobs_keep_the_limits_that_they_were_given(self, parts: Api, api: Api) -> None:
        made = api.post("jobs", BODY | {"partition": "night"}).json
        parts.put("partitions/night", {"nodes": ["b"], "max_gpus": 2, "max_duration_s": 900})
        assert api.patch(f"jobs/{made['number']}", {"max_duration": 60}).json["gpus"]["max"] == 1

    def test_it_stays_while_jobs_of_it_have_not_ended(self, parts: Api, api: Api, world: World) -> None:
        job = world.submit(partition="night")
        assert parts.delete("partitions/night").status == 409
        api.post(f"jobs/{job.number}/cancel")
        assert parts.delete("partitions/night").status == 204

    def test_without_partitions_a_submission_asks_nothing_of_them(self, world: World, api: Api) -> None:
        with CaptureQueriesContext(connection) as captured:
            assert api.post("jobs", BODY).status == 201
        assert not [query for query in captured.captured_queries if 'FROM "jobs_partition"' in query["sql"]]


class TestRounds:
    @pytest.mark.parametrize("policy", ["f_scheduling", "multifactor", "fifo", "max_min_fairness"])
    def test_jobs_get_gpus_of_their_partition_only(self, parts: Api, api: Api, world: World, policy: str) -> None:
        set_policy(actor=None, cluster=Cluster.objects.get(), name=policy, parameters={})
        first = world.submit(gpus={"min": 2, "max": 4}, partition="day")
        second = world.submit(gpus={"min": 3, "max": 3}, partition="day")
        other = world.submit(gpus={"min": 1, "max": 1}, partition="night")
        world.round()
        assert self.nodes(other) == {"b"}
        running, waiting = (first, second) if self.nodes(first) else (second, first)
        assert self.nodes(running) == {"a"}
        assert self.nodes(waiting) == set()
        found = api.get(f"jobs/{waiting.number}/explanation").json
        assert (found["code"], found["slurm"]) == ("partition_full", "Resources")
        assert "Partition day has" in found["text"]
        assert "partition day are free" in found["would_change"]
        assert "\x1f" not in str(found)
        check_invariants(world)

    def test_one_that_is_too_small_is_said(self, parts: Api, api: Api, world: World) -> None:
        job = world.submit(gpus={"min": 5}, partition="day")
        world.round()
        found = api.get(f"jobs/{job.number}/explanation").json
        assert (found["code"], found["slurm"]) == ("partition_too_small", "PartitionNodeLimit")

    def test_one_that_no_pool_alone_can_run_is_said_and_starts(self, parts: Api, api: Api, world: World) -> None:
        """The nodes of `whole` are in other partitions, too."""
        parts.put("partitions/whole", {"accelerator_types": ["k1"]})
        first = world.submit(gpus={"min": 1, "max": 1}, partition="night")
        world.train(first)
        job = world.submit(gpus={"min": 6, "max": 6}, partition="whole")
        world.round()
        found = api.get(f"jobs/{job.number}/explanation").json
        assert (found["code"], found["slurm"]) == ("across_pools", "Resources")
        assert "5 of 6 are free" in found["text"]
        assert "6 × k1" in found["would_change"]
        api.post(f"jobs/{first.number}/cancel")
        world.gone(first)
        world.round()
        assert self.nodes(job) == {"a", "b"}

    def test_its_priority_counts_and_is_shown(self, parts: Api, api: Api, world: World) -> None:
        set_policy(actor=None, cluster=Cluster.objects.get(), name="multifactor", parameters={"weight_partition": 500})
        job = world.submit(gpus={"min": 4}, partition="day")
        rows = api.get("priorities").json["results"]
        factors = {factor["name"]: factor["points"] for factor in rows[0]["factors"]}
        assert (rows[0]["number"], factors["partition"]) == (job.number, 500)

    def nodes(self, job: Job) -> set[str]:
        run = Job.objects.get(pk=job.pk).run
        assert run is not None
        return set(run.assignments.filter(during__upper_inf=True).values_list("accelerator__node__name", flat=True))


def test_one_for_nodes_that_left_has_none(world: World) -> None:
    part = Partition.objects.create(cluster=world.cluster, name="gone", nodes=["x"])
    job = world.submit(partition=part.name)
    world.round()
    assert world.run(job).reason_token == "partition_too_small"

"""Kept rounds through the API: opened, planned again, exported as problems that `manage.py solve` answers."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command

from accounts.models import Quota, User
from portal.cluster.policy import set_policy
from portal.jobs.models import Decision, Job
from portal.lab import replays
from portal.lab.rounds import export_case
from portal.snapshot import decisions
from scheduling.policies.time_shares.programs.deficits import DeficitTable
from scheduling.policies.time_shares.programs.last_answer import MEMORY
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_old_answers() -> None:
    cache.clear()


@pytest.fixture
def world() -> World:
    world = World({"a": 4, "b": 2})
    for curve in ("fast", "slow"):
        world.train(world.submit(curve))
    return world


def newest() -> Decision:
    return Decision.objects.latest("round")


def replay(api: Api, number: int, **wish: Any) -> dict[str, Any]:
    asked = api.post(f"rounds/{number}/replay", wish)
    assert asked.status == 202, asked.text
    assert api.get(f"replays/{asked.json['replay']}").json["status"] == "pending"
    replays.replay_round(asked.json["replay"])
    answer = api.get(f"replays/{asked.json['replay']}").json
    assert (answer["status"], answer["error"]) == ("done", "")
    found: dict[str, Any] = answer["replay"]
    return found


def test_rounds_are_listed_newest_first_and_filtered(world: World, root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "EMPTY_EVERY_S", 0)
    world.round()
    first, *_, last = Decision.objects.order_by("round")
    rows = root.get("rounds").json["results"]
    assert [row["round"] for row in rows] == list(Decision.objects.values_list("round", flat=True))
    assert rows[-1]["moves"] == {"start": 1, "rescale": 0, "preempt": 0}
    assert rows[-1]["policy"] == "f_scheduling"
    assert [row["round"] for row in root.get("rounds?moved=false").json["results"]] == [last.round]
    assert last.round not in [row["round"] for row in root.get("rounds?moved=true").json["results"]]
    until = (first.at + timedelta(microseconds=1)).isoformat().replace("+", "%2B")
    assert [row["round"] for row in root.get(f"rounds?to_at={until}").json["results"]] == [first.round]
    page = root.get("rounds?limit=1").json
    assert root.get(page["next"].partition("/api/v1/")[2]).json["results"][0]["round"] == rows[1]["round"]


def test_a_round_says_what_it_saw_what_it_moved_and_why(world: World, root: Api) -> None:
    Quota.objects.create(project=world.project, kind="running_jobs", limit=2, hard=False)
    waiting = world.submit("slow")
    world.round()
    decision = newest()
    job = world.submit("fast")
    found = root.get(f"rounds/{decision.round}").json
    assert found["counts"]["jobs"] == len(found["jobs"]) == found["jobs_total"]
    assert job.number not in {entry["job"]["number"] for entry in found["jobs"]}
    moves = {move["job_id"]: move for move in decision.plan["moves"]}
    for entry in found["jobs"]:
        row = Job.objects.get(number=entry["job"]["number"])
        move = moves.get(str(row.pk))
        assert entry["move"] == (move["kind"] if move else None)
        assert entry["reason"]["text"] == decision.plan["reasons"][str(row.pk)]["text"]
        if move:
            assert entry["after"] == move["gang"]
    seen = {entry["job"]["number"]: entry for entry in found["jobs"]}
    if waiting.number in seen:
        assert seen[waiting.number]["limits"] == ["project Vision: 2 running jobs"]
    held = [number for node in found["nodes"] for jobs in node["after"] for number in jobs]
    wanted = {entry["job"]["number"]: entry["after"]["count"] for entry in found["jobs"] if entry["after"]}
    assert {number: held.count(number) for number in set(held)} == wanted


def test_a_round_under_its_own_policy_is_the_same_plan(world: World, root: Api) -> None:
    for decision in Decision.objects.all():
        found = replay(root, decision.round)
        assert found["same_plan"]
        assert found["same_gpus"]
        assert set(found["changes"]) == {"same"}
        assert [job["reason_recorded"] for job in found["jobs"]] == [job["reason_replayed"] for job in found["jobs"]]


def test_under_another_policy_it_says_who_gains_and_who_loses(world: World, root: Api) -> None:
    number = newest().round
    found = replay(root, number, policy="fifo_gang")
    assert not found["same_plan"]
    assert not found["same_gpus"]
    assert found["policy"] == "fifo_gang"
    assert sum(found["changes"].values()) == found["jobs_total"]
    for job in found["jobs"]:
        recorded, replayed = ((job[key] or {"count": 0})["count"] for key in ("recorded", "replayed"))
        assert job["change"] == ("gained" if replayed > recorded else "lost" if replayed < recorded else job["change"])
    assert found["changes"].get("gained", 0) + found["changes"].get("lost", 0) > 0
    tight = replay(root, number, parameters={**newest().policy_parameters, "v_bound": 1e-9})
    assert tight["parameters"]["v_bound"] == 1e-9


def test_nothing_changes_by_a_replay(world: World, root: Api) -> None:
    before = (Decision.objects.count(), [world.gpus(job) for job in Job.objects.order_by("number")])
    replay(root, newest().round, policy="fifo_gang")
    assert (Decision.objects.count(), [world.gpus(job) for job in Job.objects.order_by("number")]) == before


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"policy": "nothing"}, "policy"),
        ({"policy": "f_scheduling", "parameters": {"v_bound": "x"}}, "parameters.v_bound"),
    ],
)
def test_what_is_wrong_is_named(world: World, root: Api, wish: dict[str, Any], field: str) -> None:
    answer = root.post(f"rounds/{newest().round}/replay", wish)
    assert (answer.status, answer.fields) == (400, [field])


def test_rounds_are_for_administrators_and_replays_for_who_asked(world: World, root: Api) -> None:
    number, member = newest().round, Api(world.user)
    for path in ("rounds", f"rounds/{number}", f"rounds/{number}/case"):
        assert member.get(path).status == 403
    assert member.post(f"rounds/{number}/replay", {}).status == 403
    asked = root.post(f"rounds/{number}/replay", {}).json["replay"]
    other = Api(User.objects.create_superuser("other@example.org", "x"))
    assert other.get(f"replays/{asked}").status == 404
    assert root.get("rounds/999999").status == 404


def test_one_that_is_dropped_meanwhile_says_so(world: World, root: Api) -> None:
    asked = root.post(f"rounds/{newest().round}/replay", {}).json["replay"]
    Decision.objects.all().delete()
    replays.replay_round(asked)
    answer = root.get(f"replays/{asked}").json
    assert (answer["status"], answer["error"]) == ("failed", "The round is not kept any more.")


# Cases ------------------------------------------------------------------------------------------------------


def solve(case: dict[str, Any], policy: str, parameters: dict[str, Any], folder: Path) -> dict[str, Any]:
    path, out = folder / "case.json", StringIO()
    path.write_text(json.dumps(case))
    call_command("solve", str(path), "--policy", policy, "--params", json.dumps(parameters), stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


@pytest.mark.parametrize("policy", ["max_min_fairness", "finish_time_fairness", "min_makespan", "hierarchical", "fifo"])
def test_a_case_is_solved_to_the_shares_of_its_round(policy: str, tmp_path: Path) -> None:
    world = World({"a": 2, "b": 1})
    set_policy(actor=None, cluster=world.cluster, name=policy, parameters={})
    for n in range(5):
        world.submit("slow" if n % 2 else "fast", steps=1_000 * (n + 1), priority=n % 3, gpus={"min": 1, "max": 1})
    world.round()
    decision = newest()
    case = export_case(decision)
    answer = solve(case, policy, decision.policy_parameters, tmp_path)
    assert answer["status"] == "optimal"
    numbers = {str(job.pk): job.number for job in Job.objects.all()}
    promised = DeficitTable.load(decision.plan["memory"][MEMORY]["books"]).by_job()
    wanted = {numbers[key]: by_type for key, by_type in promised.items()}
    assert len(wanted) > 1
    assert {job: shares for job, _, shares in answer["allocation"]} == {
        number: pytest.approx(by_type, abs=1e-9) for number, by_type in wanted.items()
    }


def test_a_later_round_of_such_a_policy_knows_what_was_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "EMPTY_EVERY_S", 0)
    world = World({"a": 2})
    set_policy(actor=None, cluster=world.cluster, name="finish_time_fairness", parameters={"round_seconds": 1e-3})
    for n in range(3):
        world.submit("slow" if n else "fast", steps=1_000 * (n + 1), gpus={"min": 1, "max": 1})
    world.round()
    world.submit("fast", steps=9_000, gpus={"min": 1, "max": 1})
    world.train(Job.objects.earliest("number"))
    decision = newest()
    case = export_case(decision)
    assert case["memory"]["policy"]
    answer = solve(case, "finish_time_fairness", decision.policy_parameters, tmp_path)
    numbers = {str(job.pk): job.number for job in Job.objects.all()}
    promised = DeficitTable.load(decision.plan["memory"][MEMORY]["books"]).by_job()
    wanted = {numbers[key]: pytest.approx(by_type, abs=1e-6) for key, by_type in promised.items()}
    assert {job: shares for job, _, shares in answer["allocation"]} == wanted


def test_a_case_of_any_round_is_solved_by_all_whose_problem_it_is(world: World, root: Api, tmp_path: Path) -> None:
    answer = root.get(f"rounds/{newest().round}/case")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="round-{newest().round}.json"'
    case = answer.json
    assert case["cluster_spec"] == {"k1": 6}
    for policy in case["policies"]:
        assert solve(case, policy, {}, tmp_path)["policy"] == policy


def test_no_secret_is_in_a_case_or_in_a_round(world: World, root: Api) -> None:
    world.submit(env={"PASSWORD": "hunter2-from-env"}, name="with-secret")
    world.round()
    number = newest().round
    assert "hunter2" not in root.get(f"rounds/{number}").text
    assert "hunter2" not in root.get(f"rounds/{number}/case").text

"""Policies on their way into force: in the shadow, under guard, kept, rolled back, and overtaken."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import AuditEntry, User
from portal.cluster.policy import set_policy
from portal.jobs.models import Assignment, Cluster, ClusterSample, Command, Job, JobEvent, PolicyChange, Run
from portal.lab.models import Trial
from portal.lab.tasks import run_simulations
from portal.rollouts import guarding
from portal.rollouts.bounds import Bounds, broken, resolve
from portal.rollouts.indicators import Indicators, measure, predict
from portal.rollouts.models import GuardCheck, Rollout, ShadowDecision
from portal.rollouts.tasks import guard_rollouts, prune_rollouts, shadow_round
from portal.rounds.pruning import sample
from scheduling.errors import SolverError
from scheduling.lifecycle import State
from scheduling.policies.queue.fifo_gang import FifoGang
from tests.portal.api_calls import Api
from tests.portal.lab.test_simulations import MIX, run
from tests.portal.notices.outbox import destination, tell
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
FIFO = {"policy": "fifo_gang", "parameters": {"gang": "max"}}
#: A bound that is broken by the first job that waits for two minutes.
STRICT = {
    "guard_s": 7_200,
    "bounds": {"wait_p95_s": {"most": 120}, "slowdown_variance": None, "utilisation": None},
    "least_jobs": 1,
}
LONGEST_S = 14 * 86_400
NOTHING = Indicators(None, None, None, 0, 0, 0)


@pytest.fixture
def world() -> World:
    cache.clear()
    return World({"a": 4})


def start(api: Api, **keys: Any) -> dict[str, Any]:
    answer = api.post("rollouts", FIFO | keys)
    assert answer.status == 201, answer.text
    return dict(answer.json)


def waiting_since(job: Job, minutes: float) -> None:
    at = timezone.now() - timedelta(minutes=minutes)
    Job.objects.filter(pk=job.pk).update(submitted_at=at)
    queued = {"state": State.WAITING_FOR_INITIAL_RESOURCE, "state_since": at}
    Run.objects.filter(job=job).update(created_at=at, **queued)
    JobEvent.objects.filter(job=job).delete()


def promoted_ago(minutes: float) -> Rollout:
    """As if it had been put in force so long ago."""
    row = Rollout.objects.get(phase="live")
    row.promoted_at = timezone.now() - timedelta(minutes=minutes)
    row.guard_until = row.promoted_at + timedelta(seconds=row.guard_s)
    row.save()
    return row


def actions() -> list[str]:
    found = AuditEntry.objects.filter(action__startswith="rollout.").order_by("pk")
    return list(found.values_list("action", flat=True))


def allocation_state() -> list[Any]:
    runs = list(Run.objects.order_by("pk").values_list("pk", "state", "epoch", "reason_text"))
    return [runs, Assignment.objects.count(), Command.objects.count(), list(Cluster.objects.values())]


# Shadow --------------------------------------------------------------------------------------------


def test_a_shadow_decides_on_the_live_snapshot_and_changes_nothing(world: World, root: Api) -> None:
    made = start(root)
    assert (made["phase"], made["previous"], made["label"]) == ("shadow", None, "fifo_gang (gang=max)")
    first, second = world.submit(gpus={"min": 1, "max": 4}), world.submit(gpus={"min": 1, "max": 4})
    world.round()
    assert world.gpus(first) + world.gpus(second) == 4
    before = allocation_state()
    shadow_round(world.cluster.pk)
    assert allocation_state() == before
    found = root.get(f"rollouts/{made['id']}").json["shadow"]
    assert (found["rounds"], found["same"], found["failed"], found["skipped"]) == (1, 0, 0, 0)
    (decision,) = root.get(f"rollouts/{made['id']}/decisions").json["results"]
    assert decision["round"] == Cluster.objects.get().round_epoch
    told = {job["number"]: job for job in decision["jobs"]}
    # The gang of the first is all there is; the live policy gives each a part.
    assert told[first.number]["candidate"] == {"type": "k1", "count": 4}
    assert told[second.number]["candidate"] is None
    assert told[second.number]["live"]["count"] == world.gpus(second)
    assert "ahead" in told[second.number]["why"] or told[second.number]["why"]
    assert decision["candidate"]["starting"] == 1
    assert decision["live"]["starting"] == 2
    assert decision["moves"][0]["number"] == first.number
    check_invariants(world)


def test_rounds_alike_in_a_row_are_one_decision_and_missed_ones_are_counted(world: World, root: Api) -> None:
    key = start(root)["id"]
    for _ in range(2):
        world.round()
        shadow_round(world.cluster.pk)
    world.round()
    world.round()
    shadow_round(world.cluster.pk)
    shadow_round(world.cluster.pk)  # nothing new, and nothing had moved in the one before
    (decision,) = root.get(f"rollouts/{key}/decisions").json["results"]
    assert (decision["rounds"], decision["last_round"] - decision["round"], decision["different"]) == (3, 3, 0)
    totals = root.get(f"rollouts/{key}").json["shadow"]
    assert (totals["rounds"], totals["same"], totals["skipped"]) == (3, 3, 1)


def test_the_candidate_has_a_memory_of_its_own(world: World, root: Api) -> None:
    root.post("rollouts", {"policy": "max_min_fairness", "parameters": {}})
    for _ in range(2):
        world.submit()
        world.round()
        shadow_round(world.cluster.pk)
    row = Rollout.objects.get()
    assert row.totals["rounds"] == 2
    assert row.shadow_error == ""
    assert row.memory
    assert row.memory != Cluster.objects.get().policy_memory


def test_a_candidate_that_fails_is_counted_and_stops_nothing(
    world: World, root: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = start(root)["id"]

    def broken_down(*_: Any) -> Any:
        raise ZeroDivisionError("by nothing")

    job = world.submit()
    with monkeypatch.context() as patched:
        patched.setattr(FifoGang, "allocate", broken_down)
        world.round()
        shadow_round(world.cluster.pk)
    assert world.gpus(job) > 0
    found = root.get(f"rollouts/{key}").json
    assert (found["phase"], found["shadow"]["failed"], found["shadow"]["rounds"]) == ("shadow", 1, 0)
    assert "ZeroDivisionError: by nothing" in found["shadow"]["error"]
    world.round()
    shadow_round(world.cluster.pk)
    assert root.get(f"rollouts/{key}").json["shadow"]["rounds"] == 1


def test_a_round_whose_process_was_ended_is_counted_as_failed(world: World, root: Api) -> None:
    key = start(root)["id"]
    world.round()
    Rollout.objects.update(shadow_begun=Cluster.objects.get().round_epoch)
    shadow_round(world.cluster.pk)
    world.round()
    shadow_round(world.cluster.pk)
    found = root.get(f"rollouts/{key}").json["shadow"]
    assert (found["failed"], found["rounds"]) == (1, 1)
    assert "its process was ended" in found["error"]


def test_a_solver_that_gives_up_is_a_decision_too(world: World, root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    start(root)

    def none(*_: Any) -> Any:
        raise SolverError("no optimum")

    world.submit()
    monkeypatch.setattr(FifoGang, "allocate", none)
    world.round()
    shadow_round(world.cluster.pk)
    assert Rollout.objects.get().totals["rounds"] == 1


def test_nothing_is_put_down_where_no_shadow_looks_on(world: World, root: Api) -> None:
    world.round()
    assert cache.get(f"shadow/{world.cluster.pk}") is None
    key = start(root)["id"]
    root.post(f"rollouts/{key}/cancel")
    world.round()
    assert cache.get(f"shadow/{world.cluster.pk}") is None
    assert root.get(f"rollouts/{key}").json["outcome"] == "Taken out of the shadow."
    assert actions() == ["rollout.shadow", "rollout.cancel"]


def test_the_oldest_decisions_go_when_there_are_too_many(world: World, root: Api, settings: Any) -> None:
    start(root)
    for _ in range(2):  # the first differs, and in the second there is nothing left to decide
        world.submit(gpus={"min": 1, "max": 2})
        world.submit(gpus={"min": 1, "max": 4})
        world.round()
        shadow_round(world.cluster.pk)
    sizes = list(ShadowDecision.objects.order_by("-pk").values_list("pk", "size_bytes"))
    assert len(sizes) == 2
    settings.EVENKEEL_KEEP = replace(settings.EVENKEEL_KEEP, shadows_bytes=sizes[0][1])
    prune_rollouts()
    assert list(ShadowDecision.objects.values_list("pk", flat=True)) == [sizes[0][0]]


# Promotion -----------------------------------------------------------------------------------------


def test_promotion_is_a_change_of_policy_under_guard(world: World, root: Api) -> None:
    was = (world.cluster.policy_name, world.cluster.policy_parameters)
    key = start(root)["id"]
    found = root.post(f"rollouts/{key}/promote", STRICT).json
    cluster = Cluster.objects.get()
    assert (cluster.policy_name, cluster.policy_parameters["gang"]) == ("fifo_gang", "max")
    assert (found["phase"], found["previous"]) == ("live", {"policy": was[0], "parameters": was[1]})
    assert found["limits"] == {"wait_p95_s": 120.0, "slowdown_variance": None, "utilisation": None}
    assert [step["action"] for step in found["steps"]] == ["rollout.shadow", "rollout.promote"]
    assert AuditEntry.objects.filter(action="policy.set", actor__email="root@example.org").count() == 1
    assert root.post(f"rollouts/{key}/promote", STRICT).status == 409
    assert root.post(f"rollouts/{key}/cancel").status == 409
    assert root.post("rollouts", FIFO).status == 409


def test_a_policy_in_force_is_not_promoted_and_one_that_changed_meanwhile_neither(world: World, root: Api) -> None:
    set_policy(actor=None, cluster=world.cluster, name="fifo_gang", parameters={"gang": "max"})
    assert root.post("rollouts", FIFO | STRICT | {"mode": "live"}).status == 409
    read = root.get("policy").headers["ETag"]
    set_policy(actor=None, cluster=world.cluster, name="f_scheduling", parameters={})
    refused = root.post("rollouts", FIFO | STRICT | {"mode": "live"}, If_Match=read)
    assert refused.status == 412
    assert Rollout.objects.count() == 0
    read = root.get("policy").headers["ETag"]
    assert root.post("rollouts", FIFO | STRICT | {"mode": "live"}, If_Match=read).status == 201


def test_a_broken_bound_rolls_back_by_itself_and_administrators_are_told(world: World, root: Api) -> None:
    set_policy(actor=None, cluster=world.cluster, name="f_scheduling", parameters={"v_bound": 0.05})
    was = Cluster.objects.get().policy_parameters
    destination(User.objects.get(email="root@example.org"), events=["policy.rolled_back"])
    key = start(root, mode="live", **STRICT)["id"]
    promoted_ago(30)
    waiting_since(world.submit(gpus={"min": 4, "max": 4}), 3)
    guard_rollouts()
    assert Cluster.objects.get().policy_name == "fifo_gang"  # one check may be a fluke
    guard_rollouts()
    cluster = Cluster.objects.get()
    assert (cluster.policy_name, cluster.policy_parameters) == ("f_scheduling", was)
    found = root.get(f"rollouts/{key}").json
    assert (found["phase"], found["ended_by"]) == ("rolled_back", None)
    assert found["outcome"].startswith("The 95th percentile of waits was 1")
    assert found["outcome"].endswith("above 120 s.")
    assert found["steps"][-1] | {"at": ""} == {
        "at": "",
        "action": "rollout.roll_back",
        "by": None,
        "why": found["outcome"],
    }
    checks = root.get(f"rollouts/{key}/checks").json["checks"]
    assert [check["broken"] for check in checks] == [["wait_p95_s"]] * 2
    assert tell() == ["policy.rolled_back"]
    # The policy before is what stands, as after an undo.
    assert root.get("policy").json["can_undo"] is False
    guard_rollouts()
    assert GuardCheck.objects.count() == 2


def test_a_restart_loses_nothing(world: World, root: Api) -> None:
    """All that the guard knows is in the database: other processes go on where these stopped."""
    start(root, mode="live", **STRICT)
    promoted_ago(30)
    waiting_since(world.submit(gpus={"min": 4, "max": 4}), 10)
    guard_rollouts()
    cache.clear()
    guarding.check_all(timezone.now())
    assert Rollout.objects.get().phase == "rolled_back"


def test_too_little_is_no_reason(world: World, root: Api) -> None:
    start(root, mode="live", **STRICT | {"least_jobs": 2})
    promoted_ago(30)
    waiting_since(world.submit(gpus={"min": 4, "max": 4}), 10)
    for _ in range(3):
        guard_rollouts()
    row = Rollout.objects.get()
    assert (row.phase, row.checks.count()) == ("live", 3)
    waiting_since(world.submit(gpus={"min": 4, "max": 4}), 10)
    row.promoted_at = timezone.now() - timedelta(seconds=row.least_s - 5)
    row.save()
    guard_rollouts()
    assert row.checks.latest("at").broken == []


def test_it_is_kept_when_the_guard_time_is_over(world: World, root: Api) -> None:
    key = start(root, mode="live", **STRICT | {"guard_s": 600})["id"]
    promoted_ago(11)
    guard_rollouts()
    found = root.get(f"rollouts/{key}").json
    assert (found["phase"], found["outcome"]) == ("kept", "The guard time passed within the bounds.")
    assert Cluster.objects.get().policy_name == "fifo_gang"
    assert actions()[-1] == "rollout.keep"
    start(root, policy="f_scheduling", parameters={})


def test_what_somebody_else_chose_is_never_overwritten(world: World, root: Api) -> None:
    key = start(root, mode="live", **STRICT)["id"]
    promoted_ago(30)
    waiting_since(world.submit(gpus={"min": 4, "max": 4}), 10)
    guard_rollouts()
    assert root.put("policy", {"name": "multifactor", "parameters": {}}).status == 200
    assert root.post(f"rollouts/{key}/roll-back").status == 409
    assert root.post(f"rollouts/{key}/keep").status == 409
    guard_rollouts()
    found = root.get(f"rollouts/{key}").json
    assert found["phase"] == "superseded"
    assert "by root@example.org, to multifactor" in found["outcome"]
    assert Cluster.objects.get().policy_name == "multifactor"


def test_it_is_kept_or_rolled_back_by_hand(world: World, root: Api) -> None:
    first = start(root, mode="live", **STRICT)["id"]
    found = root.post(f"rollouts/{first}/roll-back").json
    assert (found["phase"], found["ended_by"]) == ("rolled_back", "root@example.org")
    assert Cluster.objects.get().policy_name == "f_scheduling"
    second = start(root, mode="live", **STRICT)["id"]
    assert root.post(f"rollouts/{second}/keep").json["phase"] == "kept"
    assert root.post(f"rollouts/{second}/roll-back").status == 409
    assert Cluster.objects.get().policy_name == "fifo_gang"


def test_a_guard_that_cannot_look_says_so_and_tries_again(
    world: World, root: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = start(root, mode="live", **STRICT)["id"]

    def cannot(*_: Any) -> Any:
        raise RuntimeError("no figures")

    with monkeypatch.context() as patched:
        patched.setattr(guarding, "measure", cannot)
        guard_rollouts()
    assert root.get(f"rollouts/{key}").json["problem"] == "RuntimeError: no figures"
    guard_rollouts()
    assert root.get(f"rollouts/{key}").json["problem"] == ""


def test_checks_are_thinned(world: World, root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    start(root, mode="live", **STRICT)
    monkeypatch.setattr(guarding, "MOST_CHECKS", 8)
    for _ in range(40):
        guard_rollouts()
    assert 4 <= GuardCheck.objects.count() <= 8


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policy": "nothing"}, "policy"),
        ({"parameters": {"gang": "half"}}, "parameters.gang"),
        ({"policy": None}, "trial"),
        ({"trial": str(uuid4())}, "trial"),
        ({"policy": None, "parameters": {}, "trial": str(uuid4())}, "trial"),
        ({"guard_s": 59}, "guard_s"),
        ({"guard_s": 600, "least_s": 600}, "least_s"),
        ({"least_jobs": 0}, "least_jobs"),
        ({"bounds": {"wait_p95_s": {"most": 1, "factor": 2}}}, "bounds.wait_p95_s"),
        ({"bounds": {"wait_p95_s": {"factor": 0.5}}}, "bounds.wait_p95_s.factor"),
        ({"bounds": {"utilisation": {"least": 1.5}}}, "bounds.utilisation.least"),
        ({"bounds": {"wait_p95_s": None, "slowdown_variance": None, "utilisation": None}}, "bounds"),
        ({"mode": "live"}, "bounds"),  # nothing to be a part of
        ({"mode": "maybe"}, "mode"),
    ],
)
def test_what_is_wrong_is_named(root: Api, change: dict[str, Any], field: str) -> None:
    answer = root.post("rollouts", FIFO | change)
    assert (answer.status, answer.fields) == (400, [field])


def test_only_administrators_know_of_rollouts(world: World, root: Api) -> None:
    key = start(root)["id"]
    mine = Api(world.user)
    assert {mine.get("rollouts").status, mine.get(f"rollouts/{key}").status, mine.post("rollouts", FIFO).status} == {
        403
    }
    assert [one["id"] for one in root.get("rollouts?open=true").json["results"]] == [key]
    assert root.get("rollouts?open=false").json["results"] == []


# From a result -------------------------------------------------------------------------------------


def test_a_trial_brings_its_policy_and_its_prediction(world: World, root: Api) -> None:
    spec = MIX | {"policies": [{"name": "fifo_gang", "parameters": {"gang": "max"}}], "repetitions": 2}
    simulation = run(root, spec)
    key = simulation["trials"][0]["id"]
    proposal = root.get(f"rollouts/proposal?trial={key}&guard_s={LONGEST_S}").json
    made = root.post("rollouts", {"trial": key, "mode": "live", "guard_s": LONGEST_S}).json
    assert (made["policy"], made["parameters"]["gang"]) == ("fifo_gang", "max")
    assert made["simulation"]["id"] == simulation["id"]
    assert made["prediction"] == proposal["prediction"]
    assert made["limits"] == proposal["limits"]
    predicted, metrics = made["prediction"], [trial["metrics"] for trial in simulation["trials"]]
    # No wait of the simulation is as long as the guard time: it is the figure of the results.
    assert predicted["wait_p95_s"] == pytest.approx(sum(one["wait_s"]["p95"] for one in metrics) / 2, abs=0.01)
    assert predicted["waits"] == 24
    assert made["limits"]["wait_p95_s"] == pytest.approx(max(60.0, 1.5 * predicted["wait_p95_s"]))
    root.delete(f"simulations/{simulation['id']}")
    found = root.get(f"rollouts/{made['id']}").json
    assert (found["simulation"], found["prediction"]) == (None, predicted)


def test_predictions_are_cut_to_the_guard_time(root: Api) -> None:
    run(root, MIX)
    trial = Trial.objects.get()
    whole, short = predict(trial, 10**9), predict(trial, 30)
    assert whole is not None
    assert short is not None
    assert trial.metrics is not None
    assert whole.slowdown_variance == pytest.approx(trial.metrics["slowdown"]["variance"], rel=1e-3)
    assert (short.wait_p95_s or 0.0) <= 30
    assert short.ended < whole.ended


# Indicators ----------------------------------------------------------------------------------------


def seen_since(world: World, minutes: float) -> Indicators:
    now = timezone.now() + timedelta(seconds=1)
    return measure(world.cluster, now - timedelta(minutes=minutes), now)


def test_waits_count_from_the_beginning_of_the_stretch_and_after_being_put_out(world: World) -> None:
    waits = world.submit(gpus={"min": 4, "max": 4})
    waiting_since(waits, 60)
    assert seen_since(world, 10).wait_p95_s == pytest.approx(600, abs=2)
    assert seen_since(world, 120).wait_p95_s == pytest.approx(3_600, abs=2)
    run, now = world.run(waits), timezone.now()
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING, state_since=now)

    def changed(from_state: State, to_state: State, minutes: float) -> None:
        at = now - timedelta(minutes=minutes)
        JobEvent.objects.create(kind="x", job=waits, run=run, from_state=from_state, to_state=to_state, at=at, text="")

    changed(State.WAITING_FOR_INITIAL_RESOURCE, State.STANDBY, 50)
    changed(State.STOPPING, State.WAITING_FOR_RESOURCE, 30)
    changed(State.WAITING_FOR_RESOURCE, State.STANDBY, 25)
    assert seen_since(world, 120).wait_p95_s == pytest.approx(15 * 60, abs=2)
    assert seen_since(world, 40).wait_p95_s == pytest.approx(5 * 60, abs=2)
    assert seen_since(world, 20).waits == 0


def test_held_jobs_and_dependencies_are_nobodys_wait(world: World) -> None:
    first = world.submit(gpus={"min": 4, "max": 4})
    held, after = world.submit(), world.submit(dependencies=[{"type": "afterany", "job": first.number}])
    for job in (held, after):
        waiting_since(job, 60)
    Job.objects.filter(pk=held.pk).update(hold_kind="user", held_at=timezone.now())
    world.round()
    for job in (held, after):
        JobEvent.objects.filter(job=job).delete()
    assert seen_since(world, 120).wait_p95_s == pytest.approx(0, abs=3)


def test_slowdown_is_of_jobs_that_came_and_went_in_the_stretch(world: World) -> None:
    for minutes, slowdown in ((5, 1.0), (4, 3.0), (90, 50.0)):
        job = world.submit()
        at = timezone.now() - timedelta(minutes=minutes)
        Job.objects.filter(pk=job.pk).update(submitted_at=at)
        Run.objects.filter(job=job).update(state=State.FINISHED, ended_at=timezone.now(), slowdown=slowdown)
    found = seen_since(world, 10)
    assert (found.slowdown_variance, found.ended) == (1.0, 2)


def test_utilisation_is_of_the_time_in_which_jobs_waited(world: World) -> None:
    now = timezone.now()

    def point(seconds: int, training: float | None, waiting: int | None) -> None:
        values = {"gpus_total": 4, "gpus_held": 4, "queued": waiting or 0}
        at: datetime = now - timedelta(seconds=seconds)
        ClusterSample.objects.create(cluster=world.cluster, at=at, gpus_training=training, waiting=waiting, **values)

    point(50, 2.0, 3)
    point(40, 4.0, 1)
    point(30, 0.0, 0)  # nobody wants them
    point(20, None, None)  # from before it was noted
    point(900, 0.0, 5)
    found = seen_since(world, 10)
    assert (found.utilisation, found.samples) == (0.75, 2)


def test_a_point_of_the_cluster_has_what_trains_and_who_could_start(world: World) -> None:
    running = world.submit(gpus={"min": 3, "max": 3})
    world.train(running)
    world.submit(gpus={"min": 2, "max": 2})
    held = world.submit()
    Job.objects.filter(pk=held.pk).update(hold_kind="user", held_at=timezone.now())
    world.round()
    sample(world.cluster, timezone.now())
    point = ClusterSample.objects.latest("at")
    assert (point.gpus_training, point.waiting) == (3.0, 1)


def test_bounds_come_from_the_prediction_and_else_from_before() -> None:
    predicted = Indicators(1_000.0, None, 0.7, 10, 0, 10)
    before = Indicators(10.0, 4.0, 0.1, 10, 10, 10)
    assert resolve(Bounds(), predicted, before) == {
        "wait_p95_s": 1_500.0,
        "slowdown_variance": 8.0,
        "utilisation": pytest.approx(0.5),
    }
    assert resolve(Bounds(), None, before)["wait_p95_s"] == 60.0  # the least
    assert resolve(Bounds(), None, NOTHING) == dict.fromkeys(("wait_p95_s", "slowdown_variance", "utilisation"))


def test_each_indicator_is_judged_by_its_own_sample() -> None:
    limits = {"wait_p95_s": 100.0, "slowdown_variance": 1.0, "utilisation": 0.5}
    bad = Indicators(101.0, 1.1, 0.4, 5, 5, 5)
    assert broken(limits, bad, least_jobs=5) == ["wait_p95_s", "slowdown_variance", "utilisation"]
    assert broken(limits, bad, least_jobs=6) == ["utilisation"]
    assert broken(limits, Indicators(101.0, 1.1, 0.4, 5, 5, 3), least_jobs=6) == []
    assert broken(limits, Indicators(100.0, 1.0, 0.5, 9, 9, 9), least_jobs=5) == []
    assert broken(dict.fromkeys(limits), bad, least_jobs=1) == []


def test_changes_of_policy_are_all_there(world: World, root: Api) -> None:
    key = start(root, mode="live", **STRICT)["id"]
    root.post(f"rollouts/{key}/roll-back")
    names = list(PolicyChange.objects.order_by("pk").values_list("name", "undone"))
    assert names == [("fifo_gang", True), ("f_scheduling", True)]
    assert AuditEntry.objects.filter(action="policy.undo").count() == 1


def test_the_signal_of_a_round_survives_who_listens(world: World, root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    start(root)

    def full(*_: Any) -> Any:
        raise OSError("no room")

    monkeypatch.setattr(cache, "set", full)
    job = world.submit()
    world.round()
    assert world.gpus(job) > 0


def test_a_simulation_that_has_not_finished_predicts_nothing(root: Api) -> None:
    made = root.post("simulations", MIX).json
    key = made["trials"][0]["id"]
    assert root.post("rollouts", {"trial": key}).fields == ["trial"]
    assert root.get(f"rollouts/proposal?trial={key}").fields == ["trial"]
    run_simulations()
    assert root.get(f"rollouts/proposal?trial={key}").status == 200


def test_one_that_falls_behind_still_sees_the_rounds_in_which_something_moved(world: World, root: Api) -> None:
    key = start(root)["id"]
    world.submit(gpus={"min": 1, "max": 2})
    world.submit(gpus={"min": 1, "max": 4})
    world.round()
    for _ in range(4):
        world.round()  # nothing moves
    for _ in range(6):
        shadow_round(world.cluster.pk)
    decisions = root.get(f"rollouts/{key}/decisions").json["results"]
    assert [one["different"] > 0 for one in decisions] == [False, True]
    totals = root.get(f"rollouts/{key}").json["shadow"]
    assert (totals["rounds"], totals["skipped"]) == (2, 3)


def test_one_that_is_watched_for_long_is_looked_at_less_often(world: World, root: Api) -> None:
    start(root, mode="live", **STRICT | {"guard_s": 10 * 86_400})
    for _ in range(3):
        guard_rollouts()
    assert GuardCheck.objects.count() == 1
    GuardCheck.objects.update(at=timezone.now() - timedelta(minutes=6))
    guard_rollouts()
    assert GuardCheck.objects.count() == 2

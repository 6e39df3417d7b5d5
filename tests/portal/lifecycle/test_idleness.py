"""Jobs that hold GPUs for nothing: who is warned, who is parked, who may put it off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import AuditEntry, Membership, User
from portal.jobs.models import Cluster, IdleRule, Job, JobEvent, Run, RunActivity
from portal.lifecycle.idle_jobs import enforce_idle_rule
from portal.lifecycle.idle_rule import idle_of, sentence
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

MINUTE = timedelta(minutes=1)
START = datetime(2026, 3, 1, tzinfo=UTC)
moments = st.integers(0, 10_000).map(lambda s: START + timedelta(seconds=s))
rules = st.builds(
    lambda warn, more, below: IdleRule(
        utilisation_below=below, warn_after_s=warn, release_after_s=None if more is None else warn + more
    ),
    st.floats(1, 5_000),
    st.none() | st.floats(0, 5_000),
    st.floats(0, 1),
)


@given(rules, moments, moments, moments, st.none() | moments, st.none() | moments, st.sampled_from([True, False, None]))
def test_idle_is_who_did_nothing_for_as_long_as_the_rule_says(
    rule: IdleRule, a: datetime, b: datetime, heard: datetime, warned: Any, postponed: Any, uses_sdk: bool | None
) -> None:
    stepped, busy = min(a, heard), min(b, heard)
    row = RunActivity(
        epoch=1, accelerator_type="k1", gpu_hundredths=200, heard_at=heard, stepped_at=stepped, busy_at=busy,
        warned_at=warned, postponed_until=postponed,
    )  # fmt: skip
    found = idle_of(row, rule, uses_sdk=uses_sdk)
    waits = timedelta(seconds=rule.warn_after_s)
    stuck, quiet = uses_sdk is True and heard - stepped >= waits, heard - busy >= waits
    assert (found is not None) is (stuck or quiet)
    if found is None:
        return
    assert found.since == min([stepped] * stuck + [busy] * quiet)
    assert found.for_s >= rule.warn_after_s - 1e-6
    assert "2 × k1" in sentence(row, found)
    if rule.release_after_s is None:
        assert found.release_at is None
    else:
        assert found.release_at is not None
        assert found.release_at >= found.since + timedelta(seconds=rule.release_after_s)
        assert postponed is None or found.release_at >= postponed
        assert warned is None or found.release_at - warned >= timedelta(
            seconds=rule.release_after_s - rule.warn_after_s
        )
    assert idle_of(row, rule, uses_sdk=uses_sdk, can_suspend=False).release_at is None  # type: ignore[union-attr]
    rule.enabled = False
    assert idle_of(row, rule, uses_sdk=uses_sdk) is None


@pytest.fixture
def job(world: World) -> Job:
    made = world.submit(gpus={"min": 2, "max": 2})
    world.train(made)
    world.checkpoint(made, 7)
    return made


def did(job: Job, *, step_ago: timedelta, busy_ago: timedelta | None = None, **values: Any) -> None:
    """What its reports came to."""
    now = timezone.now()
    run = Run.objects.get(job=job)
    values |= {"heard_at": now, "stepped_at": now - step_ago, "busy_at": now - (busy_ago or timedelta())}
    RunActivity.objects.filter(run=run).update(**values)


def look(world: World, later: timedelta = timedelta(), *, heard: bool = True) -> None:
    """`heard`: its reports went on to come, and said the same."""
    if later and heard:
        RunActivity.objects.update(heard_at=timezone.now() + later)
    enforce_idle_rule(cluster=Cluster.objects.get(pk=world.cluster.pk), now=timezone.now() + later)


def rule(world: World, **values: Any) -> None:
    IdleRule.objects.update_or_create(cluster=world.cluster, defaults=values)


def kinds(job: Job) -> list[str]:
    of_it = JobEvent.objects.filter(job=job, kind__in=["idle", "idle_extended", "held", "released"])
    return list(of_it.order_by("id").values_list("kind", flat=True))


def idle(world: World, job: Job) -> Any:
    return Api(world.user).get(f"jobs/{job.number}").json["idle"]


@pytest.mark.django_db
@pytest.mark.parametrize("busy_ago", [timedelta(), 40 * MINUTE])
def test_without_a_rule_of_an_administrators_it_warns_once_and_parks_nobody(
    world: World, job: Job, busy_ago: timedelta
) -> None:
    did(job, step_ago=29 * MINUTE)
    look(world)
    assert idle(world, job) is None
    did(job, step_ago=31 * MINUTE, busy_ago=busy_ago)
    look(world)
    look(world, timedelta(days=3))
    assert kinds(job) == ["idle"]
    found = idle(world, job)
    assert found["kind"] == ("low_utilisation" if busy_ago else "no_step")
    assert found["release_at"] is None
    assert found["extensions_left"] == 0
    assert "It will not be suspended" in found["text"]
    assert world.state(job) is State.RUNNING_PROTECTED or world.state(job) is State.RUNNING
    assert Api(world.user).post(f"jobs/{job.number}/extend").status == 409


@pytest.mark.django_db
def test_who_works_again_is_not_warned_any_more(world: World, job: Job) -> None:
    did(job, step_ago=31 * MINUTE)
    look(world)
    assert idle(world, job) is not None
    world.report(job, step=8)
    look(world)
    assert idle(world, job) is None
    did(job, step_ago=31 * MINUTE)
    look(world)
    assert kinds(job) == ["idle", "idle"], "a stretch of its own"


@pytest.mark.django_db
def test_it_is_parked_with_its_checkpoint_and_goes_on_from_there(world: World, job: Job) -> None:
    rule(world, release_after_s=3_600.0)
    did(job, step_ago=59 * MINUTE)
    look(world)
    found = idle(world, job)
    assert "It will be suspended with its checkpoint at" in found["text"]
    did(job, step_ago=61 * MINUTE)
    look(world)
    assert world.state(job) in (State.RUNNING, State.RUNNING_PROTECTED), "half an hour lies between warning and end"
    did(job, step_ago=91 * MINUTE, warned_at=timezone.now() - 31 * MINUTE)
    look(world)
    assert world.state(job) is State.CHECKPOINTING
    assert ("checkpoint_and_stop", 1) in world.open_commands()
    api = Api(world.user)
    answer = api.get(f"jobs/{job.number}").json
    assert answer["hold"]["kind"] == "idle"
    assert answer["idle"] is None
    assert "no step for 91 min while it holds 2 × k1" in answer["hold"]["text"]
    assert "resumes from its checkpoint (step 7 or later)" in answer["hold"]["text"]
    world.checkpoint(job, 9, reason="request")
    world.gone(job, "stopped", step=9)
    world.round()
    assert world.gpus(job) == 0
    answer = api.get(f"jobs/{job.number}").json
    assert "Parked as idle" in answer["reason"]["text"]
    assert "resumes from its checkpoint" in api.get(f"jobs/{job.number}/explanation").json["would_change"]
    assert api.post(f"jobs/{job.number}/release").status == 200
    world.round()
    assert world.state(job) is State.LAUNCHING
    assert world.run(job).step == 9
    assert kinds(job) == ["idle", "held", "released"]
    check_invariants(world)


@pytest.mark.django_db
def test_asking_for_more_time_puts_it_off_as_often_as_the_rule_says(world: World, job: Job) -> None:
    rule(world, release_after_s=3_600.0, extension_s=7_200.0, extensions_max=2)
    did(job, step_ago=2 * 60 * MINUTE)
    look(world)
    did(job, step_ago=2 * 60 * MINUTE, warned_at=timezone.now() - 60 * MINUTE)
    api = Api(world.user)
    first = api.post(f"jobs/{job.number}/extend")
    assert first.status == 200
    assert first.json["idle"]["extensions_left"] == 1
    assert first.json["idle"]["release_at"] == first.json["idle"]["extended_until_at"]
    look(world, 119 * MINUTE)
    assert world.state(job) in (State.RUNNING, State.RUNNING_PROTECTED)
    assert api.post(f"jobs/{job.number}/extend").json["idle"]["extensions_left"] == 0
    refused = api.post(f"jobs/{job.number}/extend")
    assert (refused.status, refused.json["errors"][0]["code"]) == (409, "extended_too_often")
    look(world, 121 * MINUTE)
    assert world.state(job) is State.CHECKPOINTING
    assert kinds(job) == ["idle", "idle_extended", "idle_extended", "held"]


@pytest.mark.django_db
def test_nobody_is_parked_for_a_time_in_which_nothing_was_heard(world: World, job: Job) -> None:
    rule(world, release_after_s=3_600.0)
    did(job, step_ago=40 * MINUTE, warned_at=timezone.now() - 10 * MINUTE)
    look(world, 60 * MINUTE, heard=False)
    assert world.state(job) in (State.RUNNING, State.RUNNING_PROTECTED)
    look(world, 60 * MINUTE)
    assert world.state(job) is State.CHECKPOINTING


@pytest.mark.django_db
@pytest.mark.parametrize("without", ["restartable", "sdk"])
def test_what_cannot_write_a_checkpoint_is_only_warned(world: World, without: str) -> None:
    rule(world, release_after_s=3_600.0)
    job = world.submit(gpus={"min": 1, "max": 1}, restartable=False if without == "restartable" else None)
    world.train(job)
    if without == "sdk":
        Run.objects.filter(job=job).update(uses_sdk=False)
    did(job, step_ago=600 * MINUTE, busy_ago=600 * MINUTE, warned_at=timezone.now() - 300 * MINUTE)
    look(world)
    assert world.state(job) in (State.RUNNING, State.RUNNING_PROTECTED)
    found = idle(world, job)
    assert (found["kind"], found["release_at"]) == ("low_utilisation" if without == "sdk" else "no_step", None)


@pytest.mark.django_db
def test_who_is_not_heard_of_is_not_idle(world: World, job: Job) -> None:
    rule(world, release_after_s=1_800.0)
    look(world, timedelta(days=2), heard=False)
    assert idle(world, job) is None
    assert kinds(job) == []


@pytest.mark.django_db
def test_a_new_launch_begins_anew_and_keeps_its_extensions(world: World, job: Job) -> None:
    rule(world, release_after_s=3_600.0)
    did(job, step_ago=31 * MINUTE, postponements=2)
    look(world)
    Run.objects.filter(job=job).update(epoch=5)
    world.report(job, step=8)
    row = RunActivity.objects.get()
    assert (row.epoch, row.warned_at, row.postponements) == (5, None, 2)
    assert row.stepped_at > timezone.now() - MINUTE


@pytest.mark.django_db
def test_looking_costs_the_same_however_many_train(world: World, django_assert_num_queries: Any) -> None:
    jobs = [world.submit(gpus={"min": 1, "max": 1}) for _ in range(4)]
    world.round()
    for one in jobs:
        world.ready(one)
        world.report(one, step=1)
    cluster = Cluster.objects.select_related("idle_rule").get()
    with django_assert_num_queries(2):
        enforce_idle_rule(cluster=cluster, now=timezone.now())


@pytest.mark.django_db
def test_the_rule_is_administrators_and_every_change_is_in_the_audit_log(world: World) -> None:
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    default = Api(world.user).get("idle-rule")
    assert default.json == {
        "enabled": True, "utilisation_below": 0.05, "warn_after_s": 1800.0, "release_after_s": None,
        "extension_s": 14400.0, "extensions_max": 3,
    }  # fmt: skip
    assert Api(world.user).put("idle-rule", {"release_after_s": 7200}).status == 403
    assert Api().get("idle-rule").status == 401
    changed = root.put("idle-rule", {"release_after_s": 7200, "utilisation_below": 0.1})
    assert changed.json == default.json | {"release_after_s": 7200.0, "utilisation_below": 0.1}
    assert Api(world.user).get("idle-rule").json == changed.json
    entry = AuditEntry.objects.get(action="idle_rule.set")
    assert entry.detail["before"]["release_after_s"] is None
    assert entry.detail["after"]["release_after_s"] == 7200.0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"release_after_s": 60}, "release_after_s"),
        ({"warn_after_s": 0}, "warn_after_s"),
        ({"utilisation_below": 1.5}, "utilisation_below"),
        ({"extensions_max": -1}, "extensions_max"),
        ({"minutes": 5}, "minutes"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_field(world: World, wish: dict[str, Any], field: str) -> None:
    root = Api(User.objects.create_superuser("root@example.org", "x"))
    answer = root.put("idle-rule", wish)
    assert (answer.status, answer.fields) == (400, [field])
    assert not IdleRule.objects.exists()


@pytest.mark.django_db
def test_more_time_is_asked_for_by_those_who_may_change_the_job(world: World, job: Job) -> None:
    rule(world, release_after_s=3_600.0)
    did(job, step_ago=31 * MINUTE)
    look(world)
    viewer, outsider, root = (User.objects.create_user(f"{name}@example.org", "x") for name in "vor")
    Membership.objects.create(project=world.project, user=viewer, role="viewer")
    User.objects.filter(pk=root.pk).update(is_superuser=True)
    assert Api(viewer).post(f"jobs/{job.number}/extend").status == 403
    assert Api(outsider).post(f"jobs/{job.number}/extend").status == 404
    assert Api(root).post(f"jobs/{job.number}/extend").status == 200
    assert AuditEntry.objects.filter(action="job.extend", target=f"job {job.number}").exists()

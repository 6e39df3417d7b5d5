"""What each part of a report becomes, what is woken by it and when; and a job file, column by column."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pydantic import ValidationError

from portal.core import wake
from portal.core.problems import Problems
from portal.jobfile.parsing import parse_job_file
from portal.jobs.models import Checkpoint, IdempotencyKey, Job, JobArray, JobEvent, MetricPoint, ModelType, Run
from portal.reporting import activity, reports, throughput
from portal.reporting.reports import MAX_SAMPLES, Report, record_report
from portal.submission.submit import IdempotencyConflict, body_digest, submit_job
from scheduling.lifecycle import State
from tests.portal.lifecycle.test_guards_exactly import job, launching
from tests.portal.lifecycle.test_moves_together import gpu_ids
from tests.portal.world import World

__all__ = ["job"]  # the fixture

Commits = Callable[..., Any]


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Seconds until what was woken, bytes by project, and that steps are to be told."""
    found: list[Any] = []
    monkeypatch.setattr(wake, "schedule_round", lambda seconds=0.0: found.append(seconds))
    monkeypatch.setattr(wake, "publish_steps", lambda: found.append("steps"))
    monkeypatch.setattr(reports, "note_written", lambda project, size: found.append((project, size)))
    return found


def said(run: Run, **body: Any) -> Report:
    return Report.model_validate({"epoch": run.epoch, "seq": run.last_report_seq + 1, "sent_at": 1.0} | body)


# What follows -----------------------------------------------------------------------------------------------


def test_the_end_of_a_protection_wakes_a_round(
    world: World, woken: list[Any], django_capture_on_commit_callbacks: Commits
) -> None:
    job = launching(world, gpu_ids()[0])
    run, now = world.run(job), timezone.now()
    Run.objects.filter(pk=run.pk).update(state_since=now - timedelta(seconds=10))
    with django_capture_on_commit_callbacks(execute=True):
        record_report(run_id=run.pk, report=said(run, ready_at=(now - timedelta(seconds=5)).timestamp()), now=now)
    # Trained after 5 s, so it is protected for 15 s, of which 5 s are over.
    assert woken == [pytest.approx(10.2), "steps"]


def test_an_exit_wakes_a_round_soon_and_written_checkpoints_are_counted(
    world: World, job: Job, woken: list[Any], django_capture_on_commit_callbacks: Commits
) -> None:
    run, now = world.run(job), timezone.now()
    checkpoint = {"step": 5, "at": now.timestamp(), "bytes": 700}
    with django_capture_on_commit_callbacks(execute=True):
        record_report(run_id=run.pk, report=said(run, checkpoint=checkpoint, exit={"reason": "done"}), now=now)
    assert woken == [0.2, (world.project.pk, 700), "steps"]
    woken.clear()
    with django_capture_on_commit_callbacks(execute=True):
        record_report(run_id=run.pk, report=said(run), now=now)  # a repeat
    assert woken == []


def test_what_fails_afterwards_does_not_undo_what_was_taken_in(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Commits
) -> None:
    def fail() -> None:
        raise OSError("Redis is away")

    monkeypatch.setattr(wake, "publish_steps", fail)
    run = world.run(job)
    with django_capture_on_commit_callbacks(execute=True):
        record_report(run_id=run.pk, report=said(run, step=7), now=timezone.now())
    assert world.run(job).step == 7


@pytest.mark.parametrize(("seconds", "woken_s"), [(0.0, 0.0), (0.01, 0.2), (0.2, 0.2), (0.21, 0.4), (3.0, 3.0)])
def test_what_is_woken_is_woken_in_fifths_of_a_second_and_once(
    seconds: float, woken_s: float, woken: list[Any]
) -> None:
    after = reports._Afterwards()
    for one in (seconds, seconds, 9.0):
        after.wake_in(one)
    after.do()
    assert woken == [pytest.approx(woken_s), 9.0, "steps"]


# Parts of a report ------------------------------------------------------------------------------------------


def test_notices_are_cut_and_told_in_the_name_of_the_job(world: World, job: Job) -> None:
    world.report(job, notices=["a", "x" * 500 + "\x1b[0m"])
    texts = JobEvent.objects.filter(kind="notice").order_by("pk").values_list("text", flat=True)
    assert texts[0] == f"#{job.number}: a"
    assert len(texts[1]) <= len(f"#{job.number}: ") + 400
    assert set(JobEvent.objects.filter(kind="notice").values_list("project", flat=True)) == {world.project.pk}


def test_a_path_that_grows_when_it_is_made_plain_is_cut_to_what_is_kept(world: World, job: Job) -> None:
    grows = "\u0958" * 300  # of each NFC makes two characters
    world.report(job, checkpoint={"step": 1, "at": timezone.now().timestamp(), "path": grows})
    assert len(Checkpoint.objects.get().path) == 300


def test_how_far_the_data_is_is_the_last_that_was_said(world: World) -> None:
    job = launching(world, gpu_ids()[0])
    world.report(job, fetching="3 of 9 GB")
    assert world.run(job).fetching == "3 of 9 GB"
    world.report(job, fetching="x" * 400)
    assert len(world.run(job).fetching) == 200
    world.report(job)
    assert world.run(job).fetching == ""


@pytest.mark.parametrize(("before", "told", "after"), [(None, None, None), (True, None, True), (True, False, False)])
def test_whether_a_program_has_the_sdk_is_the_last_word_on_it(
    world: World, job: Job, before: bool | None, told: bool | None, after: bool | None
) -> None:
    Run.objects.filter(job=job).update(uses_sdk=before)
    world.report(job, sdk=told)
    assert world.run(job).uses_sdk is after


@pytest.mark.parametrize(
    ("metric", "kept"),
    [
        ({"step": 3, "at": 5.0, "loss": 1.0}, True),
        ({"step": 0, "at": 5.0, "loss": 1.0}, True),
        ({"step": 3, "loss": 1.0}, False),
        ({"at": 5.0, "loss": 1.0}, False),
        ({"step": -1, "at": 5.0, "loss": 1.0}, False),
        ({"step": 10**13, "at": 5.0, "loss": 1.0}, True),
        ({"step": 10**13 + 1, "at": 5.0, "loss": 1.0}, False),
        ({"step": 3, "at": 0.0, "loss": 1.0}, False),
        ({"step": 3, "at": 4_102_444_801.0, "loss": 1.0}, False),
    ],
)
def test_a_metric_needs_a_step_and_a_time(world: World, job: Job, metric: dict[str, float], kept: bool) -> None:
    world.report(job, metrics=[metric])
    assert MetricPoint.objects.count() == int(kept)
    if kept:
        point = MetricPoint.objects.get()
        assert (point.epoch, point.step, point.at.timestamp(), point.values) == (1, metric["step"], 5.0, {"loss": 1.0})


def test_only_of_runs_that_train_it_is_noted_what_they_do(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, due = list[Any](), list[Any]()
    monkeypatch.setattr(activity, "note_activities", lambda heard, now: noted.append([run for run, _ in heard]))

    def is_due(run: Run, heard_at: Any, now: Any) -> bool:
        due.append(run)
        return False

    monkeypatch.setattr(throughput, "is_due", is_due)
    other = launching(world, gpu_ids()[1])
    for one in (other, job):
        world.report(one)
    assert noted == [[], [world.run(job)]]
    assert due == [world.run(job)]


def test_whether_a_run_moved_on_is_known_by_its_step(world: World, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = list[Any]()
    monkeypatch.setattr(activity, "note_activities", lambda found, now: heard.extend(one for _, one in found))
    for step in (0, 3, 3, None, 4):
        world.report(job, step=step)
    assert [one.stepped for one in heard] == [False, True, False, False, True]


BODY: dict[str, Any] = {"epoch": 1, "seq": 1, "sent_at": 1.0}


@pytest.mark.parametrize(
    ("part", "most"),
    [
        ("epoch", 2**31 - 1),
        ("seq", 2**62),
        ("sent_at", 4_102_444_800.0),
        ("step", 10**13),
        ("ready_at", 4_102_444_800.0),
    ],
)
def test_numbers_of_a_report_have_bounds(part: str, most: float) -> None:
    for value in (0, most):
        Report.model_validate(BODY | {part: value})
    for value in (-1, most + 1, float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            Report.model_validate(BODY | {part: value})


@pytest.mark.parametrize(
    ("part", "one", "most"),
    [
        ("notices", "x", 100),
        ("metrics", {"step": 1}, 500),
        ("gpu_utilisation", 0.5, 1_024),
    ],
)
def test_lists_of_a_report_have_bounds(part: str, one: Any, most: int) -> None:
    Report.model_validate(BODY | {part: [one] * most})
    with pytest.raises(ValidationError):
        Report.model_validate(BODY | {part: [one] * (most + 1)})


def test_parts_of_a_device_lie_between_nothing_and_all_of_it() -> None:
    def body(value: float, count: int = 1, interval_s: float = 5.0) -> dict[str, Any]:
        sample = [1.0, value, None, None, None]
        return BODY | {"resources": {"interval_s": interval_s, "source": "nvml", "samples": [sample] * count}}

    for good in (body(0), body(1), body(0.5, MAX_SAMPLES), body(0, interval_s=86_400)):
        Report.model_validate(good)
    for bad in (body(-0.01), body(1.01), body(0.5, MAX_SAMPLES + 1), body(0, interval_s=0), body(0, interval_s=86_401)):
        with pytest.raises(ValidationError):
            Report.model_validate(bad)


# Job files --------------------------------------------------------------------------------------------------


def test_a_job_is_stored_as_it_was_asked_for(world: World) -> None:
    kind = ModelType.objects.create(name="resnet", title="R", argv=["x"], default_batch_size=96, curves={})
    document = {"project": "vision", "total_steps": 50, "model_type": "resnet", "priority": 9, "nice": 4}
    document |= {"labels": {"a": "b"}, "retry": {"limit": 2}, "restartable": True, "gpus": {"min": 2, "max": 3}}
    found, made = submit_job(user=world.user, job_file=parse_job_file(document), source="cli")
    assert made
    stored = Job.objects.get(pk=found.pk)
    assert (stored.name, stored.model_type, stored.batch_size, stored.total_steps) == ("resnet", kind, 96, 50)
    assert (stored.priority, stored.labels, stored.retry_limit, stored.restartable) == (5, {"a": "b"}, 2, True)
    assert (stored.min_gpus, stored.max_gpus, stored.source, stored.owner) == (2, 3, "cli", world.user)
    assert (stored.array, stored.array_index, stored.resume_job, stored.cluster) == (None, None, None, world.cluster)
    run = stored.run
    assert run is not None
    assert (run.attempt, run.step, run.checkpoint_step, run.epoch) == (1, 0, 0, 0)
    assert (State(run.state), run.reason_token) == (State.WAITING_FOR_INITIAL_CONTACT, "NEW")
    assert JobEvent.objects.get(kind="submitted").text == f"#{stored.number} resnet submitted by {world.user}"
    plain = world.submit()
    assert (plain.name, plain.batch_size, plain.priority) == ("command", 1, 0)
    assert plain.number == stored.number + 1


def test_a_model_type_that_is_switched_off_is_unknown(world: World) -> None:
    for name, enabled in (("on", True), ("off", False)):
        ModelType.objects.create(
            name=name, title=name, argv=["x"], curves={"k1": {"steps_per_s": [1.0]}}, enabled=enabled
        )
    document = {"project": "vision", "total_steps": 5, "model_type": "off"}
    with pytest.raises(Problems, match=r"Unknown model type; there are on\."):
        submit_job(user=world.user, job_file=parse_job_file(document))


def test_an_array_has_a_number_of_its_own_and_one_for_each_job(world: World) -> None:
    before = world.submit()
    first = world.submit(array={"indices": "3, 5-6", "max_running": 2})
    array = JobArray.objects.get()
    assert (array.number, array.indices, array.size, array.first_index) == (before.number + 1, "3,5-6", 3, 3)
    assert array.max_running == 2
    rows = list(Job.objects.filter(array=array).order_by("number").values_list("number", "array_index"))
    assert rows == [(array.number + 1, 3), (array.number + 2, 5), (array.number + 3, 6)]
    assert (first.array_index, first.spec["array"]) == (3, {"indices": "3"})
    assert world.submit().number == array.number + 4


def test_a_key_stands_for_one_job_file_of_one_person(world: World) -> None:
    document = {"command": "x", "project": "vision", "total_steps": 5}
    file = parse_job_file(document)

    def submit(**change: Any) -> tuple[Job, bool]:
        return submit_job(user=world.user, job_file=parse_job_file(document | change), idempotency_key="k")

    first, made = submit()
    assert made
    assert submit() == (first, False)
    assert Job.objects.count() == IdempotencyKey.objects.count() == 1
    with pytest.raises(IdempotencyConflict, match=f"'k' was used for another job file \\(#{first.number}\\)"):
        submit(total_steps=6)
    text = json.dumps(file.model_dump(mode="json"), sort_keys=True)
    assert body_digest(file) == hashlib.sha256(text.encode()).hexdigest() == IdempotencyKey.objects.get().body_digest

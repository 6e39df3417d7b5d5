"""Artifacts and checkpoints: listed, downloaded, limited, and removed by rule."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Membership, User
from portal.execution import executors, material_tasks
from portal.jobs.models import Checkpoint, FailingItem, Job, JobEvent
from portal.material import artifacts, checkpoints
from portal.material.models import Artifact, RunMaterial, StorageQuota
from scheduling.errors import ExecutorError
from scheduling.executors.base import Preparation, Progress
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
CONTENT = bytes(range(256)) * 4


class Remover:
    """An executor as far as discarding goes; it refuses what it is told to, and all listing."""

    supports_artifacts = True

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.refused = "nothing"

    def prepare(self, preparation: Preparation) -> Progress:
        raise ExecutorError("Permission denied", permanent=False)

    def discard(self, owner: str, paths: list[str]) -> None:
        for path in paths:
            if path.startswith(self.refused):
                raise ExecutorError(f"cannot remove {path}", permanent=False)
            self.gone.append(path)
            place = Path(django_settings.EVENKEEL_DATA) / path
            if place.is_file():
                place.unlink()


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.EVENKEEL_DATA = tmp_path
    cache.clear()
    return World()


@pytest.fixture
def remover(monkeypatch: pytest.MonkeyPatch) -> Remover:
    made = Remover()
    monkeypatch.setattr(executors, "executor_for", lambda name: made)
    return made


def place(job: Job, world: World) -> Path:
    return Path(django_settings.EVENKEEL_DATA) / "jobs" / str(job.pk) / "runs" / str(world.run(job).pk) / "artifacts"


def finished(world: World, **keys: Any) -> Job:
    """A job that has ended, with one file listed."""
    job = world.submit(**keys)
    world.train(job)
    world.gone(job, "done")
    directory = place(job, world) / "plots"
    directory.mkdir(parents=True)
    (directory / "a b.bin").write_bytes(CONTENT)
    entry = {"path": "plots/a b.bin", "bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    artifacts.record(
        run=world.run(job), progress=Progress("done", "", {"files": [entry], "left_out": 0}), now=timezone.now()
    )
    return job


def body(answer: Any) -> bytes:
    async def collect() -> bytes:
        return b"".join([block async for block in answer.response])

    return asyncio.run(collect())


def test_a_file_is_listed_and_downloaded_as_an_attachment(world: World, api: Api) -> None:
    job = finished(world)
    listed = api.get(f"jobs/{job.number}/artifacts").json
    (row,) = listed["results"]
    assert (row["path"], row["bytes"], listed["collecting"]) == ("plots/a b.bin", len(CONTENT), False)
    answer = api.get(f"jobs/{job.number}/artifacts/{row['id']}")
    assert body(answer) == CONTENT
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20b.bin"
    assert answer.headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("wanted", "status", "start", "end"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=1000-", 206, 1000, 1024),
        ("bytes=-24", 206, 1000, 1024),
        ("bytes=0-99999", 200, 0, 1024),
        ("bytes=0-1,5-6", 200, 0, 1024),
        ("lines=1-2", 200, 0, 1024),
    ],
)
def test_a_part_can_be_had(world: World, api: Api, wanted: str, status: int, start: int, end: int) -> None:
    job = finished(world)
    answer = api.get(f"jobs/{job.number}/artifacts/{Artifact.objects.get().pk}", Range=wanted)
    assert (answer.status, body(answer)) == (status, CONTENT[start:end])
    if status == 206:
        assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/1024"


def test_a_range_outside_is_refused(world: World, api: Api) -> None:
    job = finished(world)
    assert api.get(f"jobs/{job.number}/artifacts/{Artifact.objects.get().pk}", Range="bytes=2000-").status == 416


def test_a_file_that_was_replaced_is_not_served(world: World, api: Api) -> None:
    job = finished(world)
    file = place(job, world) / "plots" / "a b.bin"
    path = f"jobs/{job.number}/artifacts/{Artifact.objects.get().pk}"
    file.unlink()
    assert api.get(path).status == 409
    file.symlink_to("/etc/passwd")
    assert api.get(path).status == 409
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to("/etc")
    assert api.get(path).status == 409


def test_only_the_project_gets_them(world: World, api: Api, remover: Remover) -> None:
    job = finished(world)
    other = finished(world)
    row = Artifact.objects.get(run__job=job)
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    for method in (stranger.get, stranger.delete):
        assert method(f"jobs/{job.number}/artifacts/{row.pk}").status == 404
    assert stranger.get(f"jobs/{job.number}/artifacts").status == 404
    assert api.get(f"jobs/{other.number}/artifacts/{row.pk}").status == 404
    Membership.objects.update(role="viewer")
    assert api.delete(f"jobs/{job.number}/artifacts/{row.pk}").status == 403
    Membership.objects.update(role="member")
    assert api.delete(f"jobs/{job.number}/artifacts/{row.pk}").status == 204
    assert api.get(f"jobs/{job.number}/artifacts/{row.pk}").status == 404
    material_tasks.remove_artifacts()
    assert not (place(job, world) / "plots" / "a b.bin").exists()
    assert not Artifact.objects.filter(pk=row.pk).exists()


def test_they_go_when_their_time_is_over(world: World, remover: Remover) -> None:
    job = finished(world, artifacts={"keep_days": 2})
    artifacts.expire(timezone.now() + timedelta(days=1))
    material_tasks.remove_artifacts()
    assert remover.gone == []
    artifacts.expire(timezone.now() + timedelta(days=3))
    material_tasks.remove_artifacts()
    assert remover.gone == [f"jobs/{job.pk}/runs/{world.run(job).pk}/artifacts/plots/a b.bin"]


def test_one_that_cannot_be_removed_holds_up_no_other(
    world: World, remover: Remover, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = finished(world), finished(world)
    Artifact.objects.update(removed_at=timezone.now() - timedelta(minutes=1))
    monkeypatch.setattr(material_tasks, "_BATCH", 1)
    remover.refused = f"jobs/{stuck.pk}/"
    for _ in range(2):
        material_tasks.remove_artifacts()
    assert list(Artifact.objects.values_list("run__job", flat=True)) == [stuck.pk]
    assert [path.split("/")[1] for path in remover.gone] == [str(other.pk)]
    remover.refused = "nothing"
    material_tasks.remove_artifacts()
    assert not Artifact.objects.exists()


def test_one_that_cannot_be_listed_is_passed_over_for_a_while(world: World, remover: Remover) -> None:
    job = world.submit()
    world.train(job)
    world.gone(job, "done")
    material_tasks.collect_artifacts()
    assert artifacts.uncollected(world.cluster.pk, timezone.now()) == []
    assert artifacts.uncollected(world.cluster.pk, timezone.now() + artifacts.PUT_OFF) == [world.run(job)]


def ended_job(world: World) -> Job:
    job = world.submit()
    world.train(job)
    world.gone(job, "done")
    return job


def told(job: Job) -> list[str]:
    return list(JobEvent.objects.filter(job=job, kind="notice").values_list("text", flat=True))


def test_one_that_can_never_be_listed_is_given_up_with_a_sentence(world: World, remover: Remover) -> None:
    run = world.run(job := ended_job(world))
    for _ in range(artifacts.MAX_LOOKS):
        assert told(job) == []
        RunMaterial.objects.filter(run=run).update(next_look_at=timezone.now())
        material_tasks.collect_artifacts()
    [said] = told(job)
    assert said.endswith("its artifacts cannot be listed, so none are kept: Permission denied")
    late = timezone.now() + timedelta(days=1)
    assert artifacts.uncollected(world.cluster.pk, late) == []
    artifacts.put_off(run, "once more", late)
    assert len(told(job)) == 1


@pytest.mark.parametrize("error", [RecursionError("too deep"), ValueError("odd"), ExecutorError("x", permanent=True)])
def test_whatever_goes_wrong_with_one_list_the_next_is_looked_at(
    world: World, remover: Remover, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    bad, good = world.run(ended_job(world)), world.run(ended_job(world))
    entry = {"path": "a", "bytes": 1, "sha256": "a" * 64}

    def prepare(preparation: Preparation) -> Progress:
        if preparation.key == str(bad.pk):
            raise error
        return Progress("done", "", {"files": [entry], "left_out": 0})

    monkeypatch.setattr(remover, "prepare", prepare)
    material_tasks.collect_artifacts()
    assert [artifact.run for artifact in Artifact.objects.all()] == [good]
    assert artifacts.uncollected(world.cluster.pk, timezone.now()) == []
    FailingItem.objects.all().delete()
    assert artifacts.uncollected(world.cluster.pk, timezone.now() + artifacts.PUT_OFF) == [bad]


@pytest.mark.parametrize("detail", [{"files": [5], "left_out": 0}, {"files": [], "left_out": -5}, {"files": {}}, {}])
def test_a_forged_list_fails_for_that_run_alone(world: World, detail: dict[str, Any]) -> None:
    run = world.run(job := ended_job(world))
    artifacts.record(run=run, progress=Progress("done", "", detail), now=timezone.now())
    assert RunMaterial.objects.get(run=run).collecting == RunMaterial.Collecting.FAILED
    assert "cannot be listed" in told(job)[0]
    assert artifacts.uncollected(world.cluster.pk, timezone.now()) == []


def test_lists_that_take_for_ever_hold_up_no_other(world: World) -> None:
    slow = [world.run(ended_job(world)) for _ in range(2)]
    for run in slow:
        artifacts.record(run=run, progress=Progress("working"), now=timezone.now())
    new = world.run(ended_job(world))
    assert artifacts.uncollected(world.cluster.pk, timezone.now())[0] == new


def test_limits_of_job_and_project_bound_a_collection(world: World, settings: Any) -> None:
    finished(world)
    job = world.submit(artifacts={"paths": ["*.csv"], "max_bytes": 2_000})
    assert artifacts.collection_of(world.run(job)).options["max_bytes"] == 2_000
    StorageQuota.objects.create(project=world.project, artifacts_bytes=1_500)
    assert artifacts.collection_of(world.run(job)).options["max_bytes"] == 1_500 - len(CONTENT)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a\x00b", "", 5, None])
def test_a_listing_that_makes_no_sense_is_passed_over(world: World, path: Any) -> None:
    job = world.submit()
    world.train(job)
    world.gone(job, "done")
    entry = {"path": path, "bytes": 1, "sha256": "a" * 64}
    artifacts.record(run=world.run(job), progress=Progress("done", "", {"files": [entry]}), now=timezone.now())
    assert not Artifact.objects.exists()


def test_what_has_ended_is_looked_through_once(world: World) -> None:
    job = world.submit()
    world.train(job)
    assert artifacts.uncollected(world.cluster.pk, timezone.now()) == []
    world.gone(job, "done")
    (run,) = artifacts.uncollected(world.cluster.pk, timezone.now())
    artifacts.record(run=run, progress=Progress("working"), now=timezone.now())
    assert artifacts.uncollected(world.cluster.pk, timezone.now()) == [run]
    artifacts.record(run=run, progress=Progress("done", "", {"files": []}), now=timezone.now())
    assert artifacts.uncollected(world.cluster.pk, timezone.now()) == []


# Checkpoints


def saved(world: World, *steps: int, size: int = 1_000, end: bool = False) -> Job:
    job = world.submit(checkpoint={"every_steps": 5, "keep": 2})
    world.train(job)
    for step in steps:
        world.checkpoint(job, step)
    Checkpoint.objects.filter(run__job=job).update(size_bytes=size)
    if end:
        world.gone(job, "done")
    return job


def limited(settings: Any, **changes: int) -> None:
    settings.EVENKEEL_MATERIAL = dataclasses.replace(settings.EVENKEEL_MATERIAL, **changes)


def test_only_what_is_kept_counts(world: World, api: Api) -> None:
    job = saved(world, 10, 20, 30)
    storage = api.get("projects/vision/storage").json["checkpoints"]
    assert storage["bytes"] == 2_000
    assert storage["jobs"] == [{"number": job.number, "bytes": 2_000, "kept": 2}]


def test_a_full_project_takes_no_job_and_loses_the_oldest_of_ended_ones(
    world: World, api: Api, settings: Any, remover: Remover
) -> None:
    old = saved(world, 10, 20, end=True)
    live = saved(world, 5, 15)
    limited(settings, checkpoint_soft_bytes=1_500, checkpoint_hard_bytes=3_500)
    refused = api.post("jobs", {"command": "train", "project": "vision", "total_steps": 5})
    assert refused.json["errors"][0]["code"] == "storage_quota"
    for _ in range(2):
        material_tasks.clean_material()
    assert [path for path in remover.gone if "checkpoints" in path] == [f"jobs/{old.pk}/checkpoints/step-10"]
    assert Checkpoint.objects.filter(run__job=live).count() == 2
    assert JobEvent.objects.filter(kind="storage_warning").count() == 1
    assert api.post("jobs", {"command": "train", "project": "vision", "total_steps": 5}).status == 201


def test_what_was_written_a_moment_ago_counts(
    world: World, api: Api, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    limited(settings, checkpoint_hard_bytes=3_500)
    wish = {"command": "train", "project": "vision", "total_steps": 5}
    live = saved(world, 5)
    checkpoints.recount(world.project)
    assert api.post("jobs", wish).status == 201
    with django_capture_on_commit_callbacks(execute=True):
        at = timezone.now().timestamp()
        made = {"step": 10, "at": at, "reason": "interval", "seconds": 0.1, "bytes": 3_000}
        world.report(live, step=10, checkpoint=made)
    assert api.post("jobs", wish).json["errors"][0]["code"] == "storage_quota"


def test_one_that_cannot_be_removed_is_not_taken_for_gone(world: World, settings: Any, remover: Remover) -> None:
    old = saved(world, 10, 20, end=True)
    saved(world, 5, 15)
    limited(settings, checkpoint_hard_bytes=3_500)
    remover.refused = f"jobs/{old.pk}/checkpoints/step-10"
    material_tasks.clean_material()
    assert [path for path in remover.gone if "checkpoints" in path] == [f"jobs/{old.pk}/checkpoints/step-20"]
    assert list(Checkpoint.objects.filter(run__job=old).values_list("step", flat=True)) == [10]


def test_the_last_one_is_kept_longer(world: World) -> None:
    job = saved(world, 10, 20, end=True)
    later = timezone.now() + timedelta(days=31)
    assert [one.step for one in checkpoints.going(world.project, later)] == [10]
    much_later = timezone.now() + timedelta(days=366)
    assert {one.step for one in checkpoints.going(world.project, much_later)} == {10, 20}
    assert checkpoints.kept(world.project)[0].job_id == job.pk


def test_only_administrators_set_limits(world: World, api: Api) -> None:
    Membership.objects.update(role="manager")
    assert api.put("projects/vision/storage", {"bundles_bytes": 5}).status == 403
    boss = Api(User.objects.create_superuser("root@example.org", "x"))
    assert boss.put("projects/vision/storage", {"bundles_bytes": 5}).json["bundles"]["quota_bytes"] == 5
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    assert stranger.get("projects/vision/storage").status == 404

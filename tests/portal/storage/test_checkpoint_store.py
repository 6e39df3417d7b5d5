"""A checkpoint store as the portal uses it: settings, launches, what is left there, moves between projects, doctor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.utils import timezone
from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.store import STORE_SECRET
from evenkeel.store.carrier import Address, Carrier

from accounts.models import Project
from portal.config import env, stores
from portal.execution import executors, handover, launch_request, material_tasks
from portal.jobs.models import Checkpoint, Job, Run
from portal.reporting import timeouts
from portal.storage import checkpoint_files, handovers
from scheduling.errors import ExecutorError
from scheduling.executors.base import Finding, Kept
from scheduling.executors.ray.examining import _driver as of_ray
from scheduling.lifecycle import State
from tests.client.s3 import KEY, S3, SECRET, s3_server
from tests.portal.world import World


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as made:
        yield made


@pytest.fixture
def s3(server: S3, settings: Any) -> Iterator[S3]:
    endpoint = {"endpoint_url": server.options["endpoint_url"]}
    credentials = {"key": KEY, "secret": SECRET}
    settings.EVENKEEL_CHECKPOINT_STORE = stores.StoreSettings(server.url, endpoint, credentials, "/c", 1, 60.0, 480.0)
    cache.clear()
    yield server
    server.door.shut = False
    if server.files().exists(f"{server.bucket}/evenkeel"):
        server.files().rm(f"{server.bucket}/evenkeel", recursive=True)


@dataclass
class Mounted:
    """A store by a mounted path: as good where nothing hangs on S3, and much sooner there."""

    place: Path
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"file://{self.place}"

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.place)) for path in self.place.rglob("*") if path.is_file())


@pytest.fixture
def mounted(tmp_path: Path, settings: Any) -> Mounted:
    made = Mounted(tmp_path / "store")
    settings.EVENKEEL_CHECKPOINT_STORE = stores.StoreSettings(made.url, {}, {}, "", 0, 60.0, 480.0)
    cache.clear()
    return made


@pytest.fixture
def world(db: None) -> World:
    return World()


def upload(store: S3 | Mounted, tmp_path: Path, job_id: UUID, *steps: int, project: str = "vision") -> None:
    """As the job's runner does."""
    here = CheckpointStore(tmp_path / str(job_id), 10)
    owner = {"run_id": "r", "epoch": 1}
    carrier = Carrier(Address(store.url, f"{project}/{job_id}", store.options))
    try:
        for step in steps:
            here.save(step, {"x": step})
            what = "settle" if step == steps[0] else "upload"
            carrier.ask(what, directory=str(tmp_path / str(job_id)), owner=owner, step=step, keep=10, expected_step=0,
                        otherwise=None, resume=None)  # fmt: skip
            carrier.wait(120)
    finally:
        carrier.close()


def trained(world: World, *steps: int) -> Job:
    job = world.submit(checkpoint={"every_steps": 5, "keep": 5})
    world.train(job)
    for step in steps:
        world.checkpoint(job, step)
    return job


def steps_in(store: S3 | Mounted, job: Job, project: str = "vision") -> list[int]:
    names = [
        name for name in store.names() if name.startswith(f"{project}/{job.pk}/") and name.endswith("complete.json")
    ]
    return sorted(int(name.split("/")[2].split("-")[1]) for name in names)


# What launches are told


def test_a_launch_is_told_where_checkpoints_go_and_the_key_comes_as_a_secret(world: World, s3: S3) -> None:
    job = world.submit(checkpoint={"every_steps": 5, "keep": 4})
    world.round()
    run = Run.objects.get(job=job)
    Run.objects.filter(pk=run.pk).update(checkpoint_step=30, step=30)
    run.refresh_from_db()
    request = launch_request.launch_request(run, run.epoch)
    store = request.checkpoint_store
    assert store is not None
    assert (store.url, store.prefix, store.keep) == (s3.url, f"vision/{job.pk}", 4)
    assert (store.expected_step, store.cache_dir, store.end_s) == (30, "/c", 60.0)
    [secret] = request.secrets
    assert (secret.name, secret.env, secret.file) == (STORE_SECRET, None, None)
    assert json.loads(secret.value)["credentials"] == {"key": KEY, "secret": SECRET}
    assert SECRET not in repr(request)


def test_without_a_store_nothing_is_told(world: World) -> None:
    job = world.submit()
    world.round()
    request = launch_request.launch_request(Run.objects.get(job=job), 1)
    assert (request.checkpoint_store, request.secrets) == (None, ())


def test_a_stop_may_take_as_long_as_its_upload(world: World, s3: S3) -> None:
    job = trained(world, 5)
    Run.objects.filter(job=job).update(state=State.CHECKPOINTING, state_since=timezone.now() - timedelta(seconds=150))
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    assert Run.objects.get(job=job).state == State.CHECKPOINTING
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now() + timedelta(seconds=40))
    assert Run.objects.get(job=job).state == State.STOPPING


# What is there


def test_a_checkpoint_counts_where_it_is_in_the_store(world: World, mounted: Mounted, tmp_path: Path) -> None:
    job = trained(world, 5, 10)
    upload(mounted, tmp_path, job.pk, 5)
    assert checkpoint_files.problem_with(job, 5) is None
    assert checkpoint_files.problem_with(job, 10) == "it is not in the store"


def test_nothing_is_said_against_a_checkpoint_while_the_store_is_away(world: World, s3: S3) -> None:
    s3.door.shut = True
    assert checkpoint_files.problem_with(trained(world, 5), 5) is None


class Discarding:
    def discard(self, project_key: str, paths: list[str]) -> None: ...

    def hand_over(self, project_key: str, job_id: str) -> None: ...


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Discarding:
    made = Discarding()
    monkeypatch.setattr(executors, "executor_for", lambda name: made)
    monkeypatch.setattr(executors, "executor_for", lambda name: made)
    return made


def test_what_no_rule_keeps_is_removed_from_the_store_too(
    world: World, mounted: Mounted, tmp_path: Path, executor: Discarding
) -> None:
    job, other = trained(world, 5, 10, 15), trained(world, 5)
    upload(mounted, tmp_path, job.pk, 5, 10, 15)
    upload(mounted, tmp_path, other.pk, 5)
    world.gone(job, "done")
    material_tasks.remove_checkpoints(world.project, timezone.now() + timedelta(days=31))
    assert steps_in(mounted, job) == [15], "the last one is kept longer"
    material_tasks.remove_checkpoints(world.project, timezone.now() + timedelta(days=366))
    assert [name for name in mounted.names() if str(job.pk) in name] == []
    assert not Checkpoint.objects.filter(run__job=job).exists()
    assert steps_in(mounted, other) == [5], "those of live jobs are never touched"


def test_what_cannot_be_removed_from_the_store_is_not_forgotten(
    world: World, s3: S3, tmp_path: Path, executor: Discarding
) -> None:
    job = trained(world, 5, 10)
    upload(s3, tmp_path, job.pk, 5, 10)
    world.gone(job, "done")
    s3.door.shut = True
    later = timezone.now() + timedelta(days=366)
    material_tasks.remove_checkpoints(world.project, later)
    assert Checkpoint.objects.filter(run__job=job).count() == 2
    s3.door.shut = False
    material_tasks.remove_checkpoints(world.project, later)
    assert Checkpoint.objects.filter(run__job=job).count() == 2, "one that is away is left alone for a while"
    cache.clear()
    material_tasks.remove_checkpoints(world.project, later)
    assert (steps_in(s3, job), Checkpoint.objects.filter(run__job=job).count()) == ([], 0)


# Moves between projects


def test_checkpoints_follow_a_job_that_is_moved(
    world: World, mounted: Mounted, tmp_path: Path, executor: Discarding
) -> None:
    job, other = trained(world, 5, 10), trained(world, 5)
    upload(mounted, tmp_path, job.pk, 5, 10)
    upload(mounted, tmp_path, other.pk, 5)
    Job.objects.filter(pk=job.pk).update(project=Project.objects.create(key="speech", name="Speech"))
    job.refresh_from_db()
    handovers.ask_for_handover(job, timezone.now())
    handover.hand_over(str(job.pk))
    assert steps_in(mounted, job, "speech") == [5, 10]
    assert steps_in(mounted, job, "vision") == []
    assert steps_in(mounted, other, "vision") == [5]
    assert handovers.due_handovers(timezone.now() + timedelta(days=1)) == []


def test_a_moved_job_is_not_launched_before_its_checkpoints_have_followed_it(
    world: World, s3: S3, tmp_path: Path, executor: Discarding
) -> None:
    job = trained(world, 5)
    handovers.ask_for_handover(job, timezone.now())
    s3.door.shut = True
    with pytest.raises(ExecutorError, match="its checkpoints have not followed it") as refused:
        handover.give_stored(job.pk)
    assert not refused.value.permanent


# Doctor


def examined(monkeypatch: pytest.MonkeyPatch) -> str:
    class Fine:
        def examine(self, api_url: str, kept: Kept) -> list[Finding]:
            return []

    monkeypatch.setattr("portal.execution.executors.executor_for", lambda name: Fine())
    said = StringIO()
    try:
        call_command("doctor", stdout=said)
    except CommandError as error:
        return f"{said.getvalue()}\n{error}"
    return said.getvalue()


def test_doctor_writes_reads_and_removes_an_object(world: World, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    said = examined(monkeypatch)
    assert "ok    checkpoints: s3://checkpoints/evenkeel: 8 MiB written at" in said
    assert "WRONG" not in said
    assert s3.names() == []


def test_doctor_says_how_to_put_a_store_right(
    world: World, s3: S3, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings.EVENKEEL_CHECKPOINT_STORE
    settings.EVENKEEL_CHECKPOINT_STORE = stores.StoreSettings(
        "s3://nobody-made-it/x", given.options, given.credentials, "", 0, 60.0, 480.0
    )
    said = examined(monkeypatch)
    assert "WRONG checkpoints: s3://nobody-made-it/x: FileNotFoundError: The specified bucket does not exist" in said
    assert "make the bucket, or name another in EVENKEEL_CHECKPOINT_URL" in said
    assert "1 to put right" in said
    assert SECRET not in said


@pytest.mark.parametrize(("drivers", "ok"), [(["fsspec", "s3fs"], True), (["fsspec"], False)])
def test_doctor_says_whether_a_node_of_ray_has_the_driver(drivers: list[str], ok: bool) -> None:
    found = of_ray({"name": "n1", "drivers": drivers}, "s3fs")
    assert (found.subject, found.ok) == ("checkpoint store", ok)
    assert ("not found" in found.seen) == (not ok)


# Settings


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    def give(executor: str = "slurm", **variables: str) -> stores.StoreSettings | None:
        for name, value in variables.items():
            monkeypatch.setenv(f"EVENKEEL_CHECKPOINT_{name}", value)
        return stores.read_checkpoint_store(executor)

    return give


def test_no_url_is_no_store(given: Any) -> None:
    assert given() is None
    assert given(URL="") is None


def test_a_store_is_read_from_the_environment(given: Any, tmp_path: Path) -> None:
    assert given(URL="file:///shared/checkpoints/").url == "file:///shared/checkpoints"
    pytest.importorskip("s3fs")
    found = given(URL="s3://b/p", ENDPOINT="https://s3.example.org", REGION="eu", KEY="k", SECRET="the-secret",
                  CACHE_DIR="/var/cache/evenkeel", CACHE_MIB="2")  # fmt: skip
    assert found.options == {"endpoint_url": "https://s3.example.org", "client_kwargs": {"region_name": "eu"}}
    assert (found.cache_dir, found.cache_bytes) == ("/var/cache/evenkeel", 2 << 20)
    assert found.credentials == {"key": "k", "secret": "the-secret"}
    assert "the-secret" not in repr(found)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"URL": "/shared"}, "must be a URL such as"),
        ({"URL": "s4://bucket"}, "fsspec knows no s4://"),
        ({"URL": "s3:///prefix"}, "names no bucket"),
        ({"URL": "file://shared"}, "nothing that all nodes see"),
        ({"URL": "memory://x"}, "nothing that all nodes see"),
        ({"URL": "sftp://u:p@host/x"}, "holds a password"),
        ({"URL": "dropbox://x"}, r"the driver of dropbox:// is not installed \(.*\): "),
        ({"URL": "file:///x", "KEY": "k"}, "given together"),
        ({"URL": "file:///x", "KEY": "k", "SECRET": "s"}, "is for s3://"),
        ({"URL": "file:///x", "ENDPOINT": "http://h"}, "are for s3:// only"),
        ({"URL": "file:///x", "CREDENTIALS_FILE": "/no/such"}, "cannot be read: No such file"),
        ({"URL": "file:///x", "CACHE_DIR": "here"}, "must be an absolute path"),
        (
            {"URL": "file:///x", "UPLOAD_S": "0"},
            "EVENKEEL_CHECKPOINT_UPLOAD_S must be a number of seconds from 1 to 3,600",
        ),
    ],
)
def test_what_cannot_be_used_stops_the_start(given: Any, variables: dict[str, str], said: str) -> None:
    with pytest.raises(env.BadSetting, match=said):
        given(**variables)


def test_a_driver_that_is_missing_says_how_to_install_it(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "find_spec", lambda name: None)
    with pytest.raises(env.BadSetting, match=r"s3:// is not installed .*: pip install -r requirements-s3.lock"):
        given(URL="s3://bucket")


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [('{"key": "k"}', 0o644, "may be read by others"), ("[]", 0o600, "a JSON object"), ("{", 0o600, "a JSON object")],
)
def test_a_file_of_credentials_is_the_portals_alone(
    given: Any, tmp_path: Path, text: str, mode: int, said: str
) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(env.BadSetting, match=said):
        given(URL="file:///x", CREDENTIALS_FILE=str(file))
    file.write_text('{"username": "u", "password": "the-password"}')
    file.chmod(0o600)
    assert given(CREDENTIALS_FILE=str(file)).credentials["password"] == "the-password"


@pytest.mark.parametrize(
    ("url", "module"), [("", ""), ("s3://b", "s3fs"), ("file:///x", "fsspec"), ("sftp://h/x", "paramiko")]
)
def test_what_nodes_must_have_follows_from_the_url(monkeypatch: pytest.MonkeyPatch, url: str, module: str) -> None:
    monkeypatch.setenv("EVENKEEL_CHECKPOINT_URL", url)
    assert stores.module_for_nodes() == module


def test_accounts_of_their_own_and_a_common_key_do_not_go_together(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(env.BadSetting, match="each project has an account of its own there"):
        given("local", URL="file:///x")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert given("local", URL="file:///x") is not None

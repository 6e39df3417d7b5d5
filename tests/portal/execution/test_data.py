"""Data that jobs name: what a job file may say, what launches are told, how far it is, how it ends, and doctor."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from evenkeel.store import DATA_SECRET
from evenkeel.store.offers import offers
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Membership, Project
from portal.config import datasets, env
from portal.config.datasets import DataSettings
from portal.core.problems import Problems
from portal.execution import launch_request, preparation
from portal.jobfile.parsing import parse_job_file
from portal.jobs.clusters import environment_engine
from portal.jobs.models import Job, Run
from portal.material import secrets
from portal.material.claims import belongs_to_project
from portal.reporting import timeouts
from scheduling.errors import ExecutorError
from scheduling.executors.base import NO_SOFTWARE, DataEntry
from scheduling.executors.offering import offer_findings
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.config.test_engines import Examined
from tests.portal.world import World

BUCKET = {"name": "images", "url": "s3://datasets/images"}
SHARED = {"name": "labels", "path": "/shared/labels"}


@pytest.fixture
def world(db: None) -> World:
    return World()


def problems_of(*entries: Any) -> list[tuple[str, str]]:
    try:
        parse_job_file({"command": "train", "project": "vision", "total_steps": 1, "data": list(entries)})
    except Problems as found:
        return [(problem.field, problem.message) for problem in found.problems]
    return []


def problem_of(**changes: Any) -> tuple[str, str]:
    [found] = problems_of(BUCKET | changes)
    return found


# The job file


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"url": "s3://key:secret@datasets/images"}, "data.0.url", "must contain neither user nor password"),
        ({"url": "sftp://ana@store/images"}, "data.0.url", "must contain neither user nor password"),
        ({"url": "https://example.org/x"}, "data.0.url", "must be a URL of file, s3,"),
        ({"url": "zip://x::s3://datasets/a.zip"}, "data.0.url", "must be a URL of"),
        ({"url": "file:relative"}, "data.0.url", "must be a URL of"),
        ({"url": "file://host/path"}, "data.0.url", "must be written as file:///path"),
        ({"url": "file:///"}, "data.0.url", "must be written as file:///path"),
        ({"url": "s3:///images"}, "data.0.url", "names no bucket or host"),
        ({"url": "s3://datasets/../others"}, "data.0.url", "no . and no .. in its path"),
        ({"url": "s3://datasets/images?signature=x"}, "data.0.url", "must have no ?"),
        ({"url": "s3://[datasets"}, "data.0.url", "is not a valid URL"),
        ({"url": None, "path": "images"}, "data.0.path", "must be an absolute path"),
        ({"url": None, "path": "/shared/../secret"}, "data.0.path", "must be an absolute path"),
        ({"path": "/shared"}, "data.0", "give either path or url"),
        ({"url": None}, "data.0", "give either path or url"),
        ({"read_only": False}, "data.0", "read_only: false is for a path"),
        ({"url": None, "path": "/shared", "secret": "KEY"}, "data.0", "secret is for the url of a store"),
        ({"name": "../images"}, "data.0.name", "String should match pattern"),
        ({"name": "dir"}, "data.0", "EVENKEEL_DATA_DIR is the folder of all of them"),
        ({"urll": "s3://x"}, "data.0.urll", "unknown key; did you mean url?"),
    ],
)
def test_what_a_job_file_may_not_say(changes: Any, field: str, said: str) -> None:
    at, message = problem_of(**changes)
    assert at == field
    assert said in message


def test_how_many_there_may_be_and_that_their_variables_differ() -> None:
    many = [BUCKET | {"name": f"d{number}"} for number in range(17)]
    assert problems_of(*many[:16]) == []
    assert problems_of(*many)[0][0] == "data"
    [(field, message)] = problems_of(BUCKET | {"name": "a-b"}, BUCKET | {"name": "a_B"})
    assert (field, message) == ("data", "EVENKEEL_DATA_A_B would be used for two of them")


@given(st.text(max_size=40), st.sampled_from(["s3://", "sftp://", "file:///", "gs://", ""]))
def test_a_url_that_is_taken_names_a_place_and_holds_no_credentials(text: str, start: str) -> None:
    url = (start + text).strip()
    if url and problems_of({"name": "a", "url": url}) == []:
        scheme, _, rest = url.partition("://")
        assert scheme in ("s3", "sftp", "file", "gs", "s3a", "ssh", "gcs", "abfs", "abfss", "az")
        assert "@" not in rest.partition("/")[0]
        assert not {".", ".."} & set(rest.split("/")[1:])


def test_a_secret_that_the_project_does_not_have_is_named(world: World) -> None:
    api = Api(world.user)
    body = {"command": "train", "project": "vision", "total_steps": 1, "data": [SHARED, BUCKET | {"secret": "STORE"}]}
    for path in ("jobs", "jobs/preview"):
        answer = api.post(path, body)
        assert (answer.status, answer.fields) == (400, ["data.1.secret"])
    with_secret(world)
    made = api.post("jobs", body).json
    assert api.get(f"jobs/{made['number']}").json["spec"]["data"] == [
        SHARED | {"read_only": True},
        BUCKET | {"secret": "STORE", "read_only": True},
    ]
    assert secrets.used_by(world.project, ["STORE"]) == {"STORE": [made["number"]]}
    again = api.post(f"jobs/{made['number']}/resubmit", {}).json
    assert Job.objects.get(number=again["number"]).spec["data"][1]["secret"] == "STORE"
    assert belongs_to_project(Job.objects.get(number=made["number"]).spec) == "secrets"


def test_all_jobs_of_an_array_have_it(world: World) -> None:
    world.submit(data=[BUCKET], array="0-2")
    assert [job.spec["data"][0]["url"] for job in Job.objects.all()] == [BUCKET["url"]] * 3


def with_secret(world: World, value: str = '{"key": "the-key", "secret": "the-secret"}') -> None:
    Membership.objects.filter(project=world.project).update(role=Membership.Role.MANAGER)
    secrets.set_secret(actor=world.user, project=world.project, name="STORE", value=value, description=None)


# What launches are told


def request_of(world: World, *entries: Any) -> Any:
    job = world.submit(data=list(entries))
    world.round()
    return launch_request.launch_request(world.run(job), 1)


def test_a_launch_is_told_where_data_is_and_the_key_comes_as_a_secret(world: World, settings: Any) -> None:
    shared = {"s3://datasets": {"key": "all"}, "s3://datasets/images": {"key": "some"}}
    settings.EVENKEEL_DATASETS = DataSettings("/c/%n", 5, 60.0, shared)
    with_secret(world)
    own = {"name": "own", "url": "s3://mine", "secret": "STORE"}
    wider = {"name": "wider", "url": "s3://datasets2/x"}
    other = {"name": "other", "url": "s3://datasets/audio/a"}
    request = request_of(world, BUCKET, SHARED | {"read_only": False}, own, wider, other)
    told = request.data
    assert (told.project_key, told.cache_dir, told.cache_bytes, told.fetch_s) == ("vision", "/c/%n", 5, 60.0)
    assert told.entries[:2] == (
        DataEntry("images", None, "s3://datasets/images"),
        DataEntry("labels", "/shared/labels", None, read_only=False),
    )
    [secret] = [one for one in request.secrets if one.name == DATA_SECRET]
    options = json.loads(secret.value)
    assert options == {
        "images": {"key": "some"},
        "own": {"key": "the-key", "secret": "the-secret"},
        "other": {"key": "all"},
    }
    assert "the-secret" not in repr(request)


def test_a_job_without_data_is_told_nothing(world: World) -> None:
    request = request_of(world)
    assert (request.data, request.secrets) == (None, ())


@pytest.mark.parametrize("value", ["no json at all", '["a", "list"]'])
def test_a_secret_that_holds_no_options_fails_the_launch_for_good(world: World, value: str) -> None:
    with_secret(world, value)
    with pytest.raises(ExecutorError, match="Secret 'STORE' of data images must hold a JSON object") as found:
        request_of(world, BUCKET | {"secret": "STORE"})
    assert found.value.permanent
    assert value not in str(found.value)


def test_without_a_cache_urls_are_not_accepted_and_paths_are(world: World, settings: Any) -> None:
    settings.EVENKEEL_DATASETS = DataSettings("", 0, 60.0, {})

    class Able:
        isolation_problem = None
        supports_git = supports_bundles = supports_environments = supports_secrets = supports_sharing = True
        supports_modules = supports_containers = False

    why = preparation.why_not(world.run(world.submit(data=[BUCKET])), Able())  # type: ignore[arg-type]
    assert why is not None
    assert why.text == "This cluster cannot give a job data by URL (EVENKEEL_DATA_CACHE_DIR is not set)."
    assert preparation.why_not(world.run(world.submit(data=[SHARED])), Able()) is None  # type: ignore[arg-type]


# While it comes, and how it ends


def launching_job(world: World) -> Job:
    job = world.submit(data=[BUCKET])
    world.round()
    assert world.state(job) is State.LAUNCHING
    return job


def test_how_far_it_is_can_be_seen_until_it_trains(world: World) -> None:
    job, api = launching_job(world), Api(world.user)
    world.report(job, fetching="fetching data images: 1.2 of 4.0 GiB")
    assert api.get(f"jobs/{job.number}").json["fetching"] == "fetching data images: 1.2 of 4.0 GiB"
    world.report(job)
    assert api.get(f"jobs/{job.number}").json["fetching"] is None
    world.report(job, fetching="fetching data images: 4.0 of 4.0 GiB")
    world.ready(job)
    found = api.get(f"jobs/{job.number}").json
    assert (found["state"], found["fetching"]) == ("running", None)
    assert found["times"]["launching_s"] > 0


def test_a_launch_may_take_long_as_long_as_its_runner_says_that_it_fetches(world: World) -> None:
    job = launching_job(world)
    world.report(job, fetching="fetching data images: 1.2 of 4.0 GiB")
    run, later = world.run(job), timezone.now()
    Run.objects.filter(pk=run.pk).update(state_since=later - timedelta(hours=3))
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=later)
    assert world.state(job) is State.LAUNCHING
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=later + timedelta(seconds=301))
    assert Run.objects.get(pk=run.pk).state == State.FAILED


@pytest.mark.parametrize(("permanent", "runs"), [(True, 1), (False, 2)])
def test_it_is_tried_again_where_that_may_help(world: World, permanent: bool, runs: int) -> None:
    job = launching_job(world)
    world.gone(job, "data_unavailable", message="data images: s3://datasets/images: gone", permanent=permanent)
    failed = Run.objects.filter(job=job).earliest("attempt")
    assert failed.reason_token == "DATA_UNAVAILABLE"
    assert failed.reason_text == "Its data cannot be had: data images: s3://datasets/images: gone"
    assert failed.exit is not None
    assert failed.exit["nodes_fault"] is False
    assert job.runs.count() == runs


def test_a_full_disk_counts_against_the_node(world: World) -> None:
    job = launching_job(world)
    world.gone(job, "data_unavailable", message="the node's disk is full", nodes_fault=True)
    failed = Run.objects.filter(job=job).earliest("attempt")
    assert failed.exit is not None
    assert failed.exit["nodes_fault"] is True


def test_a_job_with_a_path_may_be_moved_to_another_project(world: World) -> None:
    Project.objects.create(key="speech", name="Speech")
    assert belongs_to_project({"data": [SHARED]}) is None


# Settings and doctor


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def read(executor: str = "local", **variables: str) -> DataSettings:
        for name, value in variables.items():
            monkeypatch.setenv(f"EVENKEEL_DATA_{name}", value)
        return datasets.read_data_settings(executor, tmp_path)

    return read


def test_on_this_machine_the_cache_lies_with_the_data_directory(read: Any, tmp_path: Path) -> None:
    assert read() == DataSettings(str(tmp_path / "data_cache"), 102_400 << 20, 21_600.0, {})
    assert read("slurm").cache_dir == ""
    assert read("slurm", CACHE_DIR="/scratch/%n", CACHE_MIB="10", FETCH_S="9").cache_bytes == 10 << 20
    with pytest.raises(env.BadSetting, match="must be an absolute path"):
        read(CACHE_DIR="scratch")


def test_stores_of_all_projects_are_in_a_private_file(read: Any, tmp_path: Path) -> None:
    file = tmp_path / "stores.json"
    file.write_text('{"s3://datasets/": {"key": "k"}}')
    with pytest.raises(env.BadSetting, match="may be read by others"):
        read(STORES_FILE=str(file))
    file.chmod(0o600)
    assert read(STORES_FILE=str(file)).stores == {"s3://datasets": {"key": "k"}}
    for content, said in (("[]", "must hold a JSON object"), ('{"ftp://x": {}}', "by the beginning of URLs")):
        file.write_text(content)
        with pytest.raises(env.BadSetting, match=said):
            read(STORES_FILE=str(file))


def doctor(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("portal.execution.executors.executor_for", lambda name: Examined())
    said = StringIO()
    call_command("doctor", stdout=said)
    return said.getvalue()


def test_doctor_says_which_data_a_job_may_name(
    world: World, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    settings.EVENKEEL_DATASETS = DataSettings(str(tmp_path / "cache"), 10 << 30, 60.0, {})
    said = doctor(monkeypatch)
    assert "ok    data by path: any of this machine, as far as the job's account may read" in said
    assert "ok    data of a project: at most 10,240 MiB on each node" in said
    settings.EVENKEEL_DATASETS, settings.EVENKEEL_JOB_FILES = DataSettings("", 0, 60.0, {}), "/shared"
    settings.EVENKEEL_EXECUTOR = "slurm"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    said = doctor(monkeypatch)
    assert "data by path: any that nodes have; /shared is shared by all of them" in said
    assert "data of a project: as much as the disk has on each node" in said


def test_nodes_say_which_data_they_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"urls": [], "missing": ["fsspec"], "cache": "/scratch/n1", "free_mib": 3, "software": {}}
    *_, by_url, cache = offer_findings(full, NO_SOFTWARE, "n1: ")
    assert (by_url.subject, by_url.seen, by_url.ok) == ("n1: data by URL", "none; not installed: fsspec", True)
    assert (cache.seen, cache.ok) == ("/scratch/n1: 3 MiB are free", False)
    said = offers(f"{tmp_path}/%n/data", "n1")
    assert said["cache"] == f"{tmp_path}/n1/data"
    assert said["free_mib"] > 0
    monkeypatch.setattr("evenkeel.store.offers.find_spec", lambda name: name == "fsspec" or None)
    *_, by_url, cache = offer_findings(offers("", "n1"), NO_SOFTWARE)
    assert by_url.seen == "file://; not installed: adlfs, gcsfs, paramiko, s3fs"
    assert cache.seen == "none: jobs cannot name data by URL until EVENKEEL_DATA_CACHE_DIR is set"


def test_the_settings_are_those_of_the_portal() -> None:
    assert environment_engine().datasets.cache_dir.endswith("/data_cache")

"""What keeps jobs of Slurm and Ray from becoming the portal, or root: for the start, workers and doctor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from portal.cluster.engine_isolation import KEYS, job_accounts, refusals
from portal.config.clusters_file import read_clusters
from portal.config.engines import Engine, read_engine
from portal.config.layout import Layout
from portal.config.setup_errors import SetupError
from portal.execution import executors
from portal.execution.checks.access import examine_access, kept_from_jobs
from portal.jobs.clusters import engine_of
from portal.jobs.models import Cluster
from portal.supervisor.control_plane import check_engines
from scheduling.errors import ExecutorError
from tests.portal.world import World

ORDINARY = 2_000_003  # nobody's name


@pytest.fixture(autouse=True)
def ordinary(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: ORDINARY)
    settings.EVENKEEL_DATA = tmp_path / "data"
    settings.EVENKEEL_DATA.mkdir()


def engine(shared: Path | None, executor: str = "slurm", **variables: str) -> Engine:
    with pytest.MonkeyPatch.context() as patch:
        if shared is not None:
            patch.setenv("EVENKEEL_SHARED_DIR", str(shared))
        patch.setenv("EVENKEEL_RAY_ADDRESS", "head:6379")
        data = Path(variables["data"])
        return read_engine(executor, data, data / "accounts.json")


def refused(tmp_path: Path, shared: Path | None, executor: str = "slurm") -> list[str]:
    return refusals(engine(shared, executor, data=str(tmp_path / "data")))


@pytest.mark.parametrize("executor", ["slurm", "ray"])
@pytest.mark.parametrize(
    ("shared", "how"),
    [
        (None, "is that directory"),
        ("data", "is that directory"),
        ("data/", "is that directory"),
        ("other/../data", "is that directory"),
        ("to-data", "is that directory"),
        (".", "holds it"),
        ("to-all", "holds it"),
        ("data/jobs", "lies in it"),
        ("data/not/there/yet", "lies in it"),
        ("to-jobs", "lies in it"),
        ("to-data/anew", "lies in it"),
    ],
)
def test_the_shared_directory_is_apart_from_the_data(
    tmp_path: Path, executor: str, shared: str | None, how: str
) -> None:
    (tmp_path / "data" / "jobs").mkdir()
    for name, target in (("to-data", "data"), ("to-all", "."), ("to-jobs", "data/jobs")):
        (tmp_path / name).symlink_to(tmp_path / target)
    [said] = refused(tmp_path, None if shared is None else tmp_path / shared, executor)
    assert said.startswith("EVENKEEL_SHARED_DIR must be a directory apart from EVENKEEL_DATA")
    assert f"{how}: jobs could read the portal's keys" in said
    assert "such as /nfs/evenkeel-jobs" in said


@pytest.mark.parametrize("shared", ["data-2", "elsewhere", "not/there/yet"])
def test_directories_apart_are_taken(tmp_path: Path, shared: str) -> None:
    (tmp_path / "data-2").mkdir()
    assert refused(tmp_path, tmp_path / shared) == refused(tmp_path, tmp_path / shared, "ray") == []


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_were_left_in_the_shared_directory_are_seen(tmp_path: Path, name: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / name).touch()
    [said] = refused(tmp_path, shared)
    assert f"EVENKEEL_SHARED_DIR: {shared} holds {name} of a portal" in said


BOUND = """
import sys
from pathlib import Path
from portal.cluster import engine_isolation
print(engine_isolation._relation(Path(sys.argv[1]), Path(sys.argv[2])))
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root mounts")
@pytest.mark.parametrize(
    ("source", "shared", "how"),
    [
        ("data", "bound", "is that directory"),
        ("data", "bound/jobs", "lies in it"),
        ("data", "bound/not/there", "lies in it"),
        (".", "bound", "holds it"),
        (".", "bound/data", "is that directory"),
        (".", "bound/elsewhere", ""),
        ("elsewhere", "bound", ""),
    ],
)
def test_a_bind_mount_hides_nothing(tmp_path: Path, source: str, shared: str, how: str) -> None:
    for name in ("data/jobs", "bound", "elsewhere"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    mount = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$5" "$6"'
    words = [tmp_path / source, tmp_path / "bound", sys.executable, BOUND, tmp_path / shared, tmp_path / "data"]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", *map(str, words)],
        capture_output=True, text=True, check=False, env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
    )  # fmt: skip
    if "permission denied" in done.stderr.lower() or "not permitted" in done.stderr.lower():
        pytest.skip(f"SKIPPED: nothing can be mounted here: {done.stderr.strip()}")
    assert (done.stdout.strip(), done.returncode) == (how, 0), done.stderr


@pytest.mark.parametrize("executor", ["slurm", "ray"])
def test_a_portal_that_is_root_gets_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    [said] = refused(tmp_path, tmp_path / "shared", executor)
    assert said.startswith(f"The portal runs as root, and so would every job on {executor.capitalize()}: start it as")
    local = read_engine("local", tmp_path / "data", tmp_path / "accounts.json")
    assert refusals(local) == []


def as_only_engine(settings: Any, found: Engine) -> None:
    settings.EVENKEEL_EXECUTOR, settings.EVENKEEL_JOB_FILES = found.executor, found.job_files
    settings.EVENKEEL_EXECUTOR_OPTIONS = {found.executor: found.options}


def test_the_start_is_refused(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(tmp_path / "data")
    as_only_engine(settings, engine(tmp_path / "shared", data=data))
    check_engines()
    as_only_engine(settings, engine(None, data=data))
    with pytest.raises(SetupError, match=r"^EVENKEEL_SHARED_DIR must be .*docs/executors\.md#apart-from-the-data\)\.$"):
        check_engines()
    as_only_engine(settings, engine(tmp_path / "shared", data=data))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(SetupError, match=r"^The portal runs as root, .*docs/executors\.md#never-as-root\)\.$"):
        check_engines()


def test_of_several_clusters_the_one_is_named(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(**of_slurm: str) -> dict[str, Engine]:
        local = {"name": "here", "executor": "local", "settings": {"EVENKEEL_VIRTUAL_ACCELERATORS": "v100:1"}}
        document = {"clusters": [local, {"name": "site", "executor": "slurm", "settings": of_slurm}]}
        (tmp_path / "clusters.yaml").write_text(yaml.safe_dump(document))
        return read_clusters(tmp_path / "data")

    monkeypatch.setenv("EVENKEEL_CLUSTERS", str(tmp_path / "clusters.yaml"))
    settings.EVENKEEL_CLUSTERS = named(EVENKEEL_SHARED_DIR=str(tmp_path / "shared"))
    check_engines()
    settings.EVENKEEL_CLUSTERS = named()
    with pytest.raises(SetupError, match=r"^EVENKEEL_CLUSTERS: cluster 'site': EVENKEEL_SHARED_DIR .* lies in it"):
        check_engines()


@pytest.mark.django_db
@pytest.mark.parametrize("root", [True, False])
def test_workers_refuse_too_and_doctor_says_why(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, root: bool
) -> None:
    cluster = World().cluster
    Cluster.objects.filter(pk=cluster.pk).update(executor="slurm")
    executors.executor_for.cache_clear()
    as_only_engine(settings, engine(tmp_path / "shared" if root else None, data=str(tmp_path / "data")))
    if root:
        monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(ExecutorError, match="runs as root" if root else "EVENKEEL_SHARED_DIR") as raised:
        executors.executor_for(cluster)
    assert not raised.value.permanent, "what waits or runs is no worse for it"
    assert engine_of(cluster.pk).executor == "slurm"
    found = {one.subject: one for one in examine_access(cluster.pk)}
    assert [found[name].ok for name in ("jobs' account", "shared directory")] == [not root, root]
    assert "docs/executors.md" in found["jobs' account"].fix


@pytest.mark.django_db
def test_doctor_warns_that_jobs_share_an_account(tmp_path: Path, settings: Any) -> None:
    cluster = World().cluster
    as_only_engine(settings, engine(tmp_path / "shared", data=str(tmp_path / "data")))
    found = {one.subject: one for one in examine_access(cluster.pk)}
    account = found["jobs' account"]
    assert (account.ok, account.warning) == (True, True)
    assert account.seen.startswith(f"every job runs as account {ORDINARY}, as the portal does")
    assert (found["shared directory"].ok, found["shared directory"].warning) == (True, False)


def test_nodes_are_asked_for_keys_databases_and_the_program(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = settings.EVENKEEL_DATA
    for name in ("secret_key", "postgres_password", "notes"):
        (data / name).touch()
    monkeypatch.setattr(Layout, "sockets", data / "run")  # elsewhere where the path is long
    (data / "run" / "valkey").mkdir(parents=True)
    (data / "run" / "valkey" / "valkey.sock").touch()
    kept = kept_from_jobs()
    assert kept.files == (str(data / "secret_key"), str(data / "postgres_password"))
    assert kept.sockets == (str(data / "run" / "valkey" / "valkey.sock"),)
    assert str(settings.BASE_DIR / "manage.py") in [path for path, _, _ in kept.programs]


def test_the_start_says_of_each_executor_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("slurm", "local", "slurm", "ray")
    engines: list[Any] = [SimpleNamespace(executor=name, runs_as_person=False) for name in names]
    person: Any = SimpleNamespace(executor="slurm", runs_as_person=True)
    assert list(job_accounts([person])) == ["Jobs on Slurm run as the UNIX account of the person who submitted them."]
    assert len(list(job_accounts([person, *engines]))) == 4
    local, ray, slurm = job_accounts(engines)
    assert local.startswith(f"Jobs on this machine run as account {ORDINARY}, as the portal does")
    assert "portal's keys" in local
    assert "here too" in ray
    assert slurm.startswith("Jobs on Slurm run as account")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert list(job_accounts(engines[1:2])) == ["Jobs on this machine run as an account of their project's."]

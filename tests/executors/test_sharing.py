"""What a run on part of a device is given and told."""

from __future__ import annotations

import dataclasses
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.executors.base import AcceleratorInfo, LaunchRequest, NodeInfo
from scheduling.executors.local import launching
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.machine import sharing
from tests.executors.contract import ended, reason

REAL = tuple(AcceleratorInfo(i, "titan_xp", f"GPU-{i}", 12_196, emulated=False) for i in range(2))
EPOCH_DIR = Path("/data/jobs/a/runs/b/1")
ALONE = {"CUDA_MPS_PIPE_DIRECTORY": "/data/jobs/a/runs/b/1/no-mps"}
VIRTUAL = tuple(dataclasses.replace(device, emulated=True) for device in REAL)


def make_request(**changes: object) -> LaunchRequest:
    request = LaunchRequest(
        job_id="a" * 32,
        job_number=1,
        run_id="b" * 32,
        epoch=1,
        project_key="vision",
        argv=("python", "-c", "import os; print(sorted(n for n in os.environ if 'GPU' in n or 'MPS' in n))"),
        shell=False,
        workdir=None,
        placement={},
        env={},
        total_steps=1,
        batch_size=1,
        checkpoint_every_steps=1,
        checkpoint_keep=1,
        max_duration_s=None,
        memory_mib=None,
        cpus=None,
        api_url="http://127.0.0.1:9",
        token="token",
        report_interval_s=1.0,
    )
    return dataclasses.replace(request, **changes)  # type: ignore[arg-type]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a machine on which an MPS daemon listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control"))
        yield {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}


def told(request: LaunchRequest, devices: tuple[AcceleratorInfo, ...], environ: dict[str, str]) -> str:
    return sharing.in_words(request, devices, sharing.variables(request, devices, EPOCH_DIR, environ))


def test_a_whole_device_is_nothing_to_speak_of_and_its_run_joins_no_daemon(daemon: dict[str, str]) -> None:
    assert sharing.variables(make_request(), REAL, EPOCH_DIR, daemon) == ALONE
    assert sharing.variables(make_request(), VIRTUAL, EPOCH_DIR, daemon) == {}
    assert told(make_request(), REAL, daemon) == ""


def test_where_mps_listens_it_is_told_the_part(daemon: dict[str, str]) -> None:
    request = make_request(gpu_share_percent=50, gpu_memory_mib=4_096)
    assert sharing.variables(request, REAL[:1], EPOCH_DIR, daemon) == {
        "EVENKEEL_GPU_SHARE_PERCENT": "50",
        "EVENKEEL_GPU_MEMORY_MIB": "4096",
        "CUDA_MPS_PIPE_DIRECTORY": daemon["CUDA_MPS_PIPE_DIRECTORY"],
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    assert told(request, REAL[:1], daemon) == "Shares its GPU by MPS (at most 50 % of its threads)"


def test_each_device_that_the_job_sees_has_the_limit(daemon: dict[str, str]) -> None:
    request = make_request(gpu_share_percent=25, gpu_memory_mib=1_000)
    found = sharing.variables(request, REAL, EPOCH_DIR, daemon)
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1000M,1=1000M"
    found = sharing.variables(make_request(gpu_share_percent=25), REAL, EPOCH_DIR, daemon)
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in found
    assert told(request, REAL, daemon) == "Shares each of its GPUs by MPS (at most 25 % of its threads)"


def test_memory_of_a_device_that_is_not_shared_is_limited_too(daemon: dict[str, str]) -> None:
    request = make_request(gpu_memory_mib=4_096)
    found = sharing.variables(request, REAL[:1], EPOCH_DIR, daemon)
    assert found["EVENKEEL_GPU_MEMORY_MIB"] == "4096"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert "EVENKEEL_GPU_SHARE_PERCENT" not in found
    assert told(request, REAL[:1], daemon) == ""


def test_without_mps_devices_are_shared_by_time_slicing(tmp_path: Path) -> None:
    (tmp_path / "control").write_text("no socket, and no pipe")
    request = make_request(gpu_share_percent=50)
    for place in (tmp_path, tmp_path / "nowhere"):
        environ = {"CUDA_MPS_PIPE_DIRECTORY": str(place)}
        assert sharing.variables(request, REAL[:1], EPOCH_DIR, environ) == {"EVENKEEL_GPU_SHARE_PERCENT": "50"} | ALONE
        assert told(request, REAL[:1], environ).startswith("Shares its GPU by time slicing")


def test_emulated_devices_are_shared_by_their_pace(daemon: dict[str, str]) -> None:
    request = make_request(gpu_share_percent=50, pace_steps_per_s=2.0)
    assert sharing.variables(request, VIRTUAL[:1], EPOCH_DIR, daemon) == {"EVENKEEL_GPU_SHARE_PERCENT": "50"}
    assert told(request, VIRTUAL[:1], daemon) == "Shares its GPU, emulated: paced to 50 %"
    unpaced = dataclasses.replace(request, pace_steps_per_s=None)
    assert told(unpaced, VIRTUAL[:1], daemon) == "Shares its GPU, emulated: without a given pace"


@pytest.mark.parametrize("share", [100, 50])
def test_the_logs_say_how_the_device_is_shared(share: int) -> None:
    with tempfile.TemporaryDirectory(prefix="evenkeel-sharing-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        executor = LocalExecutor(place / "data", "titan_xp:1", warm_start=False)
        [node] = executor.inventory()
        request = make_request(
            placement={node.name: (0,)}, gpu_share_percent=share, gpu_memory_mib=512, pace_steps_per_s=4.0
        )
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        logs = place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "1" / "logs"
        first, *rest = (logs / "rank0.log").read_text().splitlines()
    line = "Shares its GPU, emulated: paced to 50 %"
    assert "at most 4 steps/s" in first, "the pace is what the caller said"
    if share == 100:
        assert rest == ["['EVENKEEL_GPU_MEMORY_MIB']"]
    else:
        assert rest == [f"[evenkeel] {line}", "['EVENKEEL_GPU_MEMORY_MIB', 'EVENKEEL_GPU_SHARE_PERCENT']"]


def test_a_daemon_that_the_job_cannot_reach_is_none(tmp_path: Path, daemon: dict[str, str]) -> None:
    if os.geteuid() == 0:
        from scheduling.executors.accounts import Account

        tmp_path.chmod(0o700)
        with Account(2_100_099).files():
            assert sharing.mps_directory(daemon) is None
    assert sharing.mps_directory(daemon) == str(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", [".", "control"])
def test_a_daemon_of_another_account_is_none(tmp_path: Path, daemon: dict[str, str], name: str) -> None:
    os.chown(tmp_path / name, 2_100_099, 2_100_099)
    assert sharing.mps_directory(daemon) is None
    assert "belongs to another account" in sharing.examine(daemon).seen


def test_a_daemon_where_anybody_may_write_is_none(tmp_path: Path, daemon: dict[str, str]) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert sharing.mps_directory({"CUDA_MPS_PIPE_DIRECTORY": str(link)}) is None
    assert "symbolic link" in sharing.examine({"CUDA_MPS_PIPE_DIRECTORY": str(link)}).seen
    tmp_path.chmod(0o777)  # as the daemon itself makes it
    assert sharing.mps_directory(daemon) is None
    found = sharing.examine(daemon)
    assert not found.ok
    assert "everybody may write there" in found.seen
    assert f"install -d -m 0755 {tmp_path}" in found.fix


def test_an_examination_says_how_parts_are_held_to(tmp_path: Path, daemon: dict[str, str]) -> None:
    nowhere = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "nowhere")}
    for environ, words in ((daemon, "by MPS"), (nowhere, "by time slicing: no MPS daemon listens")):
        found = sharing.examine(environ)
        assert (found.ok, found.seen.startswith(words)) == (True, True)


def test_an_examination_knows_whom_jobs_run_as(tmp_path: Path, daemon: dict[str, str]) -> None:
    tmp_path.chmod(0o700)
    assert sharing.examine(daemon).ok
    assert "the accounts of projects cannot reach it" in sharing.examine(daemon, accounts=True).seen
    tmp_path.chmod(0o755)
    (tmp_path / "control").chmod(0o666)  # as the daemon makes it
    assert sharing.examine(daemon, accounts=True).seen.startswith("by MPS")
    if os.geteuid() == 0:
        from scheduling.executors.accounts import Account

        tmp_path.chmod(0o700)
        with Account(2_100_099).files():
            assert "cannot be reached from here" in sharing.examine(daemon).seen


@pytest.mark.parametrize("devices", [REAL, VIRTUAL])
def test_an_executor_with_real_devices_says_how_parts_are_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: tuple[AcceleratorInfo, ...]
) -> None:
    executor = LocalExecutor(tmp_path, isolation="none", warm_start=False)
    monkeypatch.setattr(executor, "inventory", lambda: [NodeInfo("a", devices, cpus=1, memory_mib=1)])
    subjects = [finding.subject for finding in executor.examine("http://127.0.0.1:9")]
    assert ("parts of GPUs" in subjects) == (devices is REAL)


def test_a_job_names_no_daemon_of_its_own(tmp_path: Path) -> None:
    """What the executor says comes last."""
    env = {"CUDA_MPS_PIPE_DIRECTORY": "/somewhere"}
    for name in ("work", "1"):
        (tmp_path / name).mkdir()
    content = launching._launch_content(make_request(env=env), list(REAL), tmp_path, tmp_path / "work", tmp_path / "1")
    named = Path(content["environment"]["CUDA_MPS_PIPE_DIRECTORY"])
    assert named.parent == tmp_path / "1"
    assert not named.exists()

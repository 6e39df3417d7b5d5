"""The Slurm executor under the contract, on a real Slurm with three nodes on this host, and what is its alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.processes import all_processes

from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor, LaunchRequest, Secret
from scheduling.executors.local.processes.sweeping import sdk_dir_of
from scheduling.executors.slurm.executor import SlurmExecutor
from scripts.slurm_cluster import SlurmCluster
from tests.executors.contract import COUNTING, ExecutorContract, Requests, ended, reason, until
from tests.executors.contract_checks import ChecksContract, examined, wrong
from tests.executors.contract_checks import api_url as api_url
from tests.executors.contract_deaths import WAITING, DeathsContract
from tests.executors.contract_loss import LossContract
from tests.executors.contract_material import MaterialContract
from tests.executors.contract_nodes import ADDING, NodesContract
from tests.executors.contract_software import SOFTWARE, SoftwareContract
from tests.executors.slurm import slurm as slurm  # a fixture


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-slurm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def executor(place: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmExecutor]:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    made = SlurmExecutor(place / "data", conf=str(slurm.conf), emulated=True, software=SOFTWARE)
    yield made
    made.reap_orphans([], min_age_s=-2.0)


def epoch_dir(place: Path, request: LaunchRequest, epoch: int = 1) -> Path:
    return place / "data" / "jobs" / request.job_id / "runs" / request.run_id / str(epoch)


def said(place: Path, request: LaunchRequest, epoch: int = 1) -> list[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError):
        text = (epoch_dir(place, request, epoch) / "sdk" / "rank0.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return []


def processes_of(place: Path, request: LaunchRequest) -> list[int]:
    mark = str(place / "data" / "jobs" / request.job_id)
    return [found.pid for found in all_processes() if found.alive and (sdk_dir_of(found.pid) or "").startswith(mark)]


class OnSlurm(Requests):
    """What the suite asks of an executor's tests."""

    @pytest.fixture
    def executor(self, executor: SlurmExecutor, slurm: SlurmCluster) -> Executor:
        self.slurm = slurm
        return executor

    @pytest.fixture
    def place(self, place: Path) -> Path:
        self.where = place
        return place

    def epoch_dir(self, request: LaunchRequest, epoch: int = 1) -> Path:
        return epoch_dir(self.where, request, epoch)

    def another(self, executor: Executor) -> Executor:
        return SlurmExecutor(self.where / "data", conf=os.environ["SLURM_CONF"], emulated=True)

    def let_it_train(self, executor: Executor, request: LaunchRequest, epoch: int) -> None:
        until(lambda: sum(line["kind"] == "step" for line in said(self.where, request, epoch)) > 1, "a step")

    def last_state(self, request: LaunchRequest) -> dict[str, Any]:
        checkpoints = self.where / "data" / "jobs" / request.job_id / "checkpoints"
        newest = max(checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        state: dict[str, Any] = json.loads((newest / "state.json").read_text())["state"]
        return state


@pytest.mark.timeout(600)
class TestSlurmEachTime(OnSlurm):
    """Minutes are too much for each change; these are of the whole suite what most things pass through."""

    test_a_sound_node_passes = ChecksContract.test_a_sound_node_passes_its_check
    test_goes_to_its_end = ExecutorContract.test_a_run_goes_to_its_end
    test_launching_twice_starts_once = ExecutorContract.test_launching_twice_starts_once
    site = SoftwareContract.site
    test_a_program_trains_in_an_image = SoftwareContract.test_a_program_trains_in_an_image
    test_a_program_trains_in_an_unpacked_image = SoftwareContract.test_a_program_trains_in_an_unpacked_image_by_bwrap
    test_modules_are_loaded_for_the_program = SoftwareContract.test_modules_are_loaded_for_the_program
    test_a_job_trains_from_a_bundle = MaterialContract.test_a_job_trains_from_a_bundle
    _trains_from_its_code = MaterialContract._trains_from_its_code
    nodes = NodesContract.nodes
    test_trains_across_two_nodes = NodesContract.test_it_trains_across_two_nodes_of_unlike_size_and_then_on_another_node


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestSlurmExecutor(
    OnSlurm,
    ExecutorContract,
    NodesContract,
    LossContract,
    DeathsContract,
    ChecksContract,
    SoftwareContract,
    MaterialContract,
):
    # Slurm's own deaths

    lost_as = "stopped"  # the runner still sees the shared directory

    def lose(self, node: str, request: LaunchRequest) -> None:
        os.kill(self.slurm.pid(f"slurmd.{node}"), signal.SIGKILL)

    def bring_back(self, node: str) -> None:
        self.slurm.start_node(node)
        self.slurm.await_idle()

    def test_what_runs_on_a_lost_node_holds_its_gpus_until_its_lease_is_over(
        self, executor: Executor, request_for: Any, place: Path, slurm: SlurmCluster
    ) -> None:
        executor = SlurmExecutor(place / "data", emulated=True, lease_s=15.0, skew_s=1.0)
        request = request_for(WAITING, str(place), placement={"gpu3": (0,)})
        executor.launch(request)
        _, runner = self.pids(place, 0)
        os.kill(slurm.pid("slurmd.gpu3"), signal.SIGKILL)
        os.kill(runner, signal.SIGSTOP)  # as if the node were cut off: it does not see that it is asked to stop
        try:
            until(lambda: not reachable(executor, "gpu3"), "the loss of the node")
            asked_to_stop = epoch_dir(place, request) / "stop"
            until(lambda: executor.observe([(request.run_id, 1)]) and asked_to_stop.exists(), "the end of Slurm's job")
            with pytest.raises(ExecutorError, match="may still run") as refusal:
                executor.launch(dataclasses.replace(request, epoch=2, placement={"gpu1": (0,)}))
            assert not refusal.value.permanent
            fact = ended(executor, request.run_id)
            assert reason(fact) == "runner_lost"
            assert fact.exit
            assert "gpu3" in fact.exit.message
        finally:
            os.kill(runner, signal.SIGKILL)
            slurm.start_node("gpu3")
        slurm.await_idle()

    def test_a_controller_that_is_killed_leaves_runs_alone(
        self, executor: Executor, request_for: Any, place: Path, slurm: SlurmCluster
    ) -> None:
        request = request_for(COUNTING, str(place / "starts"), "0.05", total_steps=100_000)
        executor.launch(request)
        self.let_it_train(executor, request, 1)
        self.save_state(slurm, number_of(executor, request))
        os.kill(slurm.pid("slurmctld"), signal.SIGKILL)
        impatient = SlurmExecutor(place / "data", emulated=True, command_timeout_s=2.0)
        try:
            for call in (impatient.inventory, lambda: impatient.observe([(request.run_id, 1)])):
                with pytest.raises(ExecutorError) as refusal:
                    call()
                assert not refusal.value.permanent
            with pytest.raises(ExecutorError) as refusal:
                impatient.launch(request_for())
            assert not refusal.value.permanent
        finally:
            slurm.start_controller()
        assert executor.observe([(request.run_id, 1)])[0].kind == "alive"
        executor.checkpoint_and_stop(request.run_id, 1)
        assert reason(ended(executor, request.run_id)) == "stopped"
        assert (place / "starts").read_text() == "started\n"

    def save_state(self, slurm: SlurmCluster, number: str) -> None:
        """A start is written down with the next other change only; a controller that dies before has forgotten it."""
        file, now = slurm.root / "state" / "job_state", time.time()
        slurm._ask("scontrol", "update", f"jobid={number}", "comment=saved")
        until(lambda: file.exists() and file.stat().st_mtime > now)

    # Slurm's own ends

    def test_slurms_time_limit_is_announced_and_ends_it_with_a_checkpoint(
        self, slurm: SlurmCluster, request_for: Any, place: Path, executor: Executor
    ) -> None:
        limited = SlurmExecutor(place / "data", emulated=True, time_limit="1", end_signal_s=55)
        request = request_for(COUNTING, str(place / "starts"), "0.05", total_steps=100_000)
        limited.launch(request)
        fact = ended(limited, request.run_id)
        assert reason(fact) == "stopped"
        assert fact.exit
        assert self.last_state(request)["seen"] == list(range(fact.exit.step or 0))

    def test_what_an_operator_cancels_goes_on_from_its_last_checkpoint(
        self, executor: Executor, request_for: Any, place: Path, slurm: SlurmCluster
    ) -> None:
        request = request_for(COUNTING, str(place / "starts"), "0.05", total_steps=100_000, checkpoint_every_steps=1)
        executor.launch(request)
        self.let_it_train(executor, request, 1)
        slurm._ask("scancel", number_of(executor, request))
        assert reason(ended(executor, request.run_id)) == "stopped"
        seen = self.last_state(request)["seen"]
        assert seen == list(range(len(seen)))

    def test_what_an_operator_requeues_starts_once_and_goes_on_from_its_last_checkpoint(
        self, executor: Executor, request_for: Any, place: Path, slurm: SlurmCluster
    ) -> None:
        request = request_for(COUNTING, str(place / "starts"), "0.05", total_steps=100_000, checkpoint_every_steps=1)
        executor.launch(request)
        self.let_it_train(executor, request, 1)
        number = number_of(executor, request)
        about = ("--noheader", "--states=all", f"--jobs={number}")
        slurm._ask("scontrol", "requeue", number)
        assert slurm._ask("squeue", *about, "--format=%T").strip() == "RUNNING"  # sent with --no-requeue
        slurm._ask("scontrol", "update", f"jobid={number}", "requeue=1")
        slurm._ask("scontrol", "requeue", number)
        until(lambda: slurm._ask("squeue", *about, "--format=%T").strip() == "PENDING", "the requeued job")
        until(lambda: not processes_of(place, request), "the end of its first start")
        slurm._ask("scontrol", "update", f"jobid={number}", "starttime=now")
        until(lambda: slurm._ask("squeue", *about, "--format=%T").strip() in ("COMPLETED", "FAILED"), "its second end")
        assert reason(ended(executor, request.run_id)) == "stopped"
        assert (place / "starts").read_text() == "started\n"
        kept = len(self.last_state(request)["seen"])
        executor.launch(dataclasses.replace(request, epoch=2, total_steps=kept + 5))
        assert reason(ended(executor, request.run_id, 2)) == "done"
        assert self.last_state(request)["seen"] == list(range(kept + 5))

    def test_a_job_that_waits_in_slurm_is_alive_and_can_be_stopped_before_it_starts(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        holder = request_for(WAITING, str(place), workers=4)
        executor.launch(holder)
        waiting = request_for(None)
        executor.launch(waiting)
        assert executor.observe([(waiting.run_id, 1)])[0].kind == "alive"
        executor.checkpoint_and_stop(waiting.run_id, 1)
        assert reason(ended(executor, waiting.run_id)) == "stopped"
        assert not (place / "starts").exists()
        killed = request_for(None)
        executor.launch(killed)
        executor.kill(killed.run_id, 1)
        assert reason(ended(executor, killed.run_id)) == "signal"
        assert not (place / "starts").exists()
        executor.kill(holder.run_id, 1)

    # Once, whatever happens between

    def test_a_crash_between_sbatch_and_our_note_finds_the_job_again(
        self, executor: SlurmExecutor, request_for: Any, place: Path
    ) -> None:
        request = request_for()
        executor.launch(request)
        executor._notes.forget(request.run_id, 1)
        self.another(executor).launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        assert (place / "starts").read_text() == "started\n"

    def test_a_crash_before_sbatch_leaves_a_launch_that_can_be_repeated(
        self, executor: SlurmExecutor, request_for: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = request_for()
        with monkeypatch.context() as patch:
            patch.setattr(executor._commands, "submit", lambda arguments: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                executor.launch(request)
        assert executor.observe([(request.run_id, 1)])[0].kind == "absent"
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"

    def test_a_job_that_was_sent_twice_runs_once(
        self, executor: SlurmExecutor, request_for: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request, submit = request_for(None, str(place / "starts"), "0.05"), executor._commands.submit

        def twice(arguments: Any) -> int:
            submit(arguments)
            return submit(arguments)

        monkeypatch.setattr(executor._commands, "submit", twice)
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        assert (place / "starts").read_text() == "started\n"

    # Placement

    def test_slurm_may_choose_the_nodes(self, executor: Executor, request_for: Any, place: Path) -> None:
        holder = request_for(WAITING, str(place), placement={"gpu1": (0, 1, 2, 3)})
        executor.launch(holder)
        self.pids(place, 0)
        delegating = SlurmExecutor(place / "data", emulated=True, placement="delegate")
        request = request_for(ADDING, "0.01", placement={"gpu1": (0, 1), "gpu2": (0, 1)}, total_steps=8)
        delegating.launch(request)
        assert reason(ended(delegating, request.run_id)) == "done"
        assert self.last_state(request)["sums"] == [10.0] * 8
        executor.kill(holder.run_id, 1)

    def test_inventory_has_types_and_drain_states(self, executor: Executor, slurm: SlurmCluster) -> None:
        slurm._ask("scontrol", "update", "nodename=gpu2", "state=drain", "reason=fan broken")
        try:
            nodes = {node.name: node for node in executor.inventory()}
            assert (nodes["gpu2"].drain_reason, nodes["gpu1"].drain_reason) == ("fan broken", None)
            assert nodes["gpu2"].reachable
            assert [device.type for device in nodes["gpu1"].accelerators] == ["a100"] * 4
            assert (nodes["gpu1"].cpus, nodes["gpu1"].memory_mib) == (16, 64_000)
        finally:
            slurm._ask("scontrol", "update", "nodename=gpu2", "state=resume")

    def test_a_drained_node_fails_its_check_with_slurms_reason(
        self, executor: Executor, slurm: SlurmCluster, api_url: str
    ) -> None:
        slurm._ask("scontrol", "update", "nodename=gpu2", "state=drain", "reason=fan broken")
        try:
            found = examined(executor, api_url, node="gpu2")
            assert wrong(found) == {"state"}
            assert "fan broken" in found["state"].seen
        finally:
            slurm._ask("scontrol", "update", "nodename=gpu2", "state=resume")

    def test_a_node_that_jobs_take_all_of_is_not_known_to_be_unsound(
        self, executor: Executor, slurm: SlurmCluster, api_url: str
    ) -> None:
        line = ("--exclusive", "--nodelist=gpu1", "--parsable", "--output=/dev/null", "--chdir=/", "--wrap=sleep 300")
        job = slurm._ask("sbatch", *line).strip()
        try:
            until(lambda: "R" in slurm._ask("squeue", "-h", "-o", "%t", "-j", job), "the job to run")
            found = examined(executor, api_url, node="gpu1")
            assert wrong(found) == set()
            assert not found["probe"].known
        finally:
            slurm._ask("scancel", job)

    def test_nothing_secret_is_where_others_can_read_it(
        self, executor: Executor, request_for: Any, place: Path, slurm: SlurmCluster
    ) -> None:
        program = WAITING.replace("import os", "import os; assert len(os.environ['KEY']) == 8; import os", 1)
        secret = Secret("key", env="KEY", value="sesame-7")
        request = request_for(program, str(place), secrets=(secret,), placement={"gpu1": (0,), "gpu2": (0,)})
        executor.launch(request)
        self.pids(place, 1)
        told = slurm._ask("scontrol", "show", "job") + slurm._ask("squeue", "--json")
        for pid in processes_of(place, request):
            told += Path(f"/proc/{pid}/cmdline").read_text()
        for text in ("sesame-7", request.token):
            assert text not in told
        holding = [
            path for path in epoch_dir(place, request).rglob("*") if path.is_file() and holds(path, secret.value)
        ]
        assert [(path.name, path.stat().st_mode & 0o777) for path in holding] == [("secrets.json", 0o600)]
        executor.kill(request.run_id, 1)
        assert ended(executor, request.run_id).kind == "exited"
        assert not holding[0].exists()


def holds(path: Path, text: str) -> bool:
    return text.encode() in path.read_bytes()


def number_of(executor: Executor, request: LaunchRequest) -> str:
    """Of its job in Slurm."""
    assert isinstance(executor, SlurmExecutor)
    return str(executor._notes.job_id(request.run_id, 1))


def reachable(executor: Executor, name: str) -> bool:
    return next(node.reachable for node in executor.inventory() if node.name == name)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"placement": "anywhere"}, "placement"),
        ({"partition": "a b"}, "partition"),
        ({"time_limit": "soon"}, "time limit"),
        ({"python": "python3"}, "absolute"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ExecutorError, match=complaint) as refusal:
        SlurmExecutor(tmp_path, **options)
    assert refusal.value.permanent

"""The local executor under the contract, and what is its alone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evenkeel.runner.engine import TICK_S
from evenkeel.runner.files import read_object
from evenkeel.runner.processes import all_processes, read_process
from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError, InvalidInput
from scheduling.executors.accounts import Account
from scheduling.executors.base import AcceleratorInfo, Executor, ExitInfo, LaunchRequest, NodeCheck
from scheduling.executors.local import facts, launching
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.machine.inventory import declared_nodes, real_nodes, type_name
from scheduling.executors.local.processes.sweeping import sdk_dir_of
from scheduling.executors.local.spooling import spooled_reports
from tests.cases import in_turn
from tests.executors.contract import Requests, ended, reason, until
from tests.executors.contract_checks import ChecksContract, examined, wrong
from tests.executors.contract_checks import api_url as api_url
from tests.executors.contract_deaths import DeathsContract
from tests.executors.contract_loss import LossContract
from tests.executors.contract_material import MaterialContract
from tests.executors.contract_nodes import NodesContract
from tests.executors.contract_sharing import SharingContract
from tests.executors.contract_software import SOFTWARE, SoftwareContract

SLEEPER = "import time; time.sleep(600)"
HARM = {
    "no identity": "os.remove(d + '/runner.json')",
    "another identity": 'open(d + \'/runner.json\', \'w\').write(\'{"pid": 2, "start_ticks": 1, "boot_id": "x"}\')',
    "closed": "os.chmod(d, 0)",
    "gone": "shutil.rmtree(os.path.dirname(d))",
    "no exit record": "os.makedirs(d + '/exit.json/full')",
}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")


@pytest.fixture
def place() -> Iterator[Path]:
    """Pytest's own directories are closed to the accounts jobs run under."""
    with tempfile.TemporaryDirectory(prefix="evenkeel-local-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def executor(place: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(place / "data", "titan_xp:6", preload=("colorsys",), warm_idle_s=120, software=SOFTWARE)
    yield made
    assert not made.isolation_problem
    made.reap_orphans([], min_age_s=-2.0)
    made.stop_warm_start(["vision", "speech"])


def epoch_dir(place: Path, request: LaunchRequest, epoch: int = 1) -> Path:
    return place / "data" / "jobs" / request.job_id / "runs" / request.run_id / str(epoch)


def said(place: Path, request: LaunchRequest, epoch: int = 1) -> list[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError):
        text = (epoch_dir(place, request, epoch) / "sdk" / "rank0.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return []


def runner_pid(place: Path, request: LaunchRequest) -> int:
    return int(json.loads((epoch_dir(place, request) / "runner.json").read_text())["pid"])


def workers_of(runner: int) -> list[int]:
    return [process.pid for process in all_processes() if process.ppid == runner and process.alive]


def log_of(place: Path, request: LaunchRequest, rank: int = 0) -> str:
    """What the program wrote; devices that are emulated are named before it."""
    first, _, rest = (epoch_dir(place, request) / "logs" / f"rank{rank}.log").read_text().partition("\n")
    assert first.startswith(
        f"[evenkeel] emulated: {len(request.placement[next(iter(request.placement))])} × titan_xp, "
    )
    return rest


def restart_machine(place: Path, request: LaunchRequest) -> None:
    """As far as the run can tell: a restart leaves nobody who could write an exit record."""
    identity = place / "data" / "run" / "local" / f"{request.run_id}.1.runner"
    before = json.loads(identity.read_text())
    workers = workers_of(before["pid"])
    for pid in (before["pid"], *workers):
        os.kill(pid, signal.SIGKILL)
    identity.write_text(json.dumps(before | {"boot_id": "another boot"}))


class OnLocal(Requests):
    """What the suite asks of an executor's tests."""

    @pytest.fixture
    def executor(self, executor: LocalExecutor) -> Executor:
        return executor

    @pytest.fixture
    def place(self, place: Path) -> Path:
        self.where = place
        return place

    def epoch_dir(self, request: LaunchRequest, epoch: int = 1) -> Path:
        return epoch_dir(self.where, request, epoch)

    def let_it_train(self, executor: Executor, request: LaunchRequest, epoch: int) -> None:
        until(lambda: sum(line["kind"] == "step" for line in said(self.where, request, epoch)) > 1, "a step")

    def last_state(self, request: LaunchRequest) -> dict[str, Any]:
        checkpoints = self.where / "data" / "jobs" / request.job_id / "checkpoints"
        newest = max(checkpoints.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
        state: dict[str, Any] = json.loads((newest / "state.json").read_text())["state"]
        return state


class TestLocalNodes(OnLocal, NodesContract, LossContract):
    """Several virtual nodes, all of this machine."""

    @pytest.fixture
    def executor(self, place: Path) -> Iterator[Executor]:
        made = LocalExecutor(place / "data", "a=titan_xp:4,b=titan_xp:4,c=titan_xp:4", warm_start=False)
        yield made
        made.reap_orphans([], min_age_s=-2.0)

    def lose(self, node: str, request: LaunchRequest) -> None:
        """There is no daemon but the machine itself: it goes, and its processes with it."""
        restart_machine(self.where, request)

    def bring_back(self, node: str) -> None:
        """It is back by now."""


class TestLocalExecutor(OnLocal, SharingContract, DeathsContract, ChecksContract, SoftwareContract, MaterialContract):
    def another(self, executor: Executor) -> Executor:
        return LocalExecutor(self.where / "data", "titan_xp:6", warm_start=False)

    # Things that die

    def test_a_killed_worker_takes_the_others_along(self, executor: Executor, request_for: Any, place: Path) -> None:
        request = request_for(SLEEPER, workers=2)
        executor.launch(request)
        workers = until(lambda: (found := workers_of(runner_pid(place, request)))[1:] and found, "both workers")
        os.kill(workers[1], signal.SIGKILL)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "signal"
        assert fact.exit
        assert fact.exit.signal == signal.SIGKILL
        assert "worker" in fact.exit.message

    def test_a_killed_runner_is_noticed_and_its_workers_die(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for(SLEEPER, workers=2)
        executor.launch(request)
        runner = runner_pid(place, request)
        until(lambda: len(workers_of(runner)) == 2, "both workers")
        os.kill(runner, signal.SIGKILL)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "runner_lost"
        assert [process for process in all_processes() if process.session == runner and process.alive] == []

    def test_another_executor_finds_what_runs(self, executor: Executor, request_for: Any, place: Path) -> None:
        request = request_for(SLEEPER)
        executor.launch(request)
        later = LocalExecutor(place / "data", "titan_xp:6", warm_start=False)
        [fact] = later.observe([(request.run_id, 1)])
        assert fact.kind == "alive"
        later.kill(request.run_id, 1)
        assert reason(ended(executor, request.run_id)) == "signal"

    def test_a_restarted_machine_ends_its_runs(self, executor: Executor, request_for: Any, place: Path) -> None:
        request = request_for(SLEEPER)
        executor.launch(request)
        restart_machine(place, request)
        [fact] = executor.observe([(request.run_id, 1)])
        assert reason(fact) == "runner_lost"
        assert fact.exit
        assert "restarted" in fact.exit.message

    # Jobs that turn against their own directory

    @pytest.mark.parametrize("harm", HARM)
    @pytest.mark.parametrize("by_kill", [True, False])
    def test_harm_to_its_own_directory_frees_no_accelerator(
        self, executor: Executor, request_for: Any, place: Path, harm: str, by_kill: bool
    ) -> None:
        program = f"import os, shutil, time; d = os.path.dirname(os.environ['EVENKEEL_SDK_DIR']); {HARM[harm]}"
        program += f"; open('{place}/harmed', 'w').close(); time.sleep(600)"
        request = request_for(program)
        executor.launch(request)
        until((place / "harmed").exists, "the harm")
        [runner] = {found.ppid for found in all_processes() if request.run_id in (sdk_dir_of(found.pid) or "")}
        later = LocalExecutor(place / "data", "titan_xp:6", warm_start=False)
        assert later.observe([(request.run_id, 1)])[0].kind == "alive"
        time.sleep(4 * TICK_S)  # the runner has looked at its directory again
        assert later.observe([(request.run_id, 1)])[0].kind == "alive"
        if by_kill:
            later.kill(request.run_id, 1)
        else:
            os.kill(runner, signal.SIGKILL)
        fact = ended(later, request.run_id)
        assert fact.kind == "exited"
        assert not [found for found in all_processes() if found.alive and found.session == runner]

    def test_a_launch_whose_runner_was_never_learnt_is_ended_before_it_is_absent(
        self, executor: LocalExecutor, request_for: Any, place: Path
    ) -> None:
        request = request_for(SLEEPER)
        executor.launch(request)
        workers = until(lambda: workers_of(runner_pid(place, request)), "the worker")
        (epoch_dir(place, request) / "runner.json").unlink()
        (place / "data" / "run" / "local" / f"{request.run_id}.1.runner").write_text("")
        with executor._layout.locked(request.run_id):
            assert executor.observe([(request.run_id, 1)])[0].kind == "alive"
        assert executor.observe([(request.run_id, 1)])[0].kind == "absent"
        found = read_process(workers[0])
        assert found is None or not found.alive

    def test_a_directory_in_the_name_of_anothers_run_says_nothing_of_it(
        self, executor: LocalExecutor, request_for: Any, place: Path
    ) -> None:
        victim, forger = request_for(project_key="speech"), request_for("pass")
        crash_before_start(executor, victim)
        executor.launch(forger)
        ended(executor, forger.run_id)
        forged = epoch_dir(place, forger).parent.parent / victim.run_id / "1"
        forged.parent.mkdir()
        subprocess.run(["cp", "-a", str(epoch_dir(place, forger)), str(forged)], check=True)  # owned by the forger
        executor.launch(dataclasses.replace(forger, epoch=2))
        assert executor._layout.runner(victim.run_id, 1) is None
        executor.launch(victim)
        assert reason(ended(executor, victim.run_id)) == "done"

    def test_a_later_epoch_ends_one_whose_directory_is_gone(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for(SLEEPER)
        executor.launch(request)
        runner = runner_pid(place, request)
        shutil.rmtree(epoch_dir(place, request).parent)
        executor.launch(dataclasses.replace(request, epoch=2))
        found = read_process(runner)
        assert found is None or not found.alive

    def test_a_process_that_left_the_session_is_ended(self, executor: Executor, request_for: Any, place: Path) -> None:
        program = (
            "import os, subprocess; child = subprocess.Popen(['sleep', '600'], start_new_session=True);"
            f"open('{place}/daemon', 'w').write(str(child.pid)); os._exit(0)"
        )
        request = request_for(program)
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        assert not Path(f"/proc/{(place / 'daemon').read_text()}").exists()

    def test_orphans_are_reaped(self, executor: LocalExecutor, request_for: Any) -> None:
        known, unknown = request_for(SLEEPER), request_for(SLEEPER)
        executor.launch(known)
        executor.launch(unknown)
        assert executor.reap_orphans([(known.run_id, 1)]) == []  # too young to tell
        assert executor.reap_orphans([(known.run_id, 1)], min_age_s=-2.0) == [(unknown.run_id, 1)]
        kinds = [fact.kind for fact in executor.observe([(known.run_id, 1), (unknown.run_id, 1)])]
        assert kinds == ["alive", "exited"]

    # Launches that break off

    def test_a_crash_before_the_start_leaves_a_launch_that_can_be_repeated(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for()
        crash_before_start(executor, request)
        assert executor.observe([(request.run_id, 1)])[0].kind == "absent"
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        assert (place / "starts").read_text().count("started") == 1

    def test_a_launch_under_way_is_not_absent(self, executor: LocalExecutor, request_for: Any) -> None:
        request = request_for()
        crash_before_start(executor, request)
        with executor._layout.locked(request.run_id):  # as a starting runner holds it
            assert executor.observe([(request.run_id, 1)])[0].kind == "alive"

    def test_a_stop_between_the_directory_and_the_start_is_obeyed(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        request = request_for()
        crash_before_start(executor, request)
        executor.checkpoint_and_stop(request.run_id, 1)
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "stopped"
        assert not (place / "starts").exists()

    @pytest.mark.parametrize("placement", [{"elsewhere": (0,)}, {}, {"NODE": (17,)}])
    def test_a_placement_that_is_not_here_is_refused(
        self, executor: Executor, request_for: Any, placement: dict[str, tuple[int, ...]]
    ) -> None:
        here = {name.replace("NODE", executor.inventory()[0].name): indexes for name, indexes in placement.items()}
        with pytest.raises(ExecutorError) as refusal:
            executor.launch(request_for(placement=here))
        assert refusal.value.permanent

    # Memory

    def test_the_memory_limit_shows_as_out_of_memory(self, executor: Executor, request_for: Any) -> None:
        request = request_for("x = bytearray(2 << 30)", memory_mib=600)
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "out_of_memory"

    def test_memory_of_all_workers_together_is_limited(self, executor: Executor, request_for: Any) -> None:
        program = "import time; x = bytearray(b'x') * (250 << 20); time.sleep(600)"
        request = request_for(program, workers=2, memory_mib=400)
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "out_of_memory"
        assert fact.exit
        assert "400 MiB" in fact.exit.message

    # Output

    def test_the_message_is_the_exception(self, executor: Executor, request_for: Any) -> None:
        request = request_for("raise ValueError('seven is odd')")
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert fact.exit
        assert fact.exit.message == "worker 0 ended with code 1: ValueError: seven is odd"

    # Warm start

    def test_a_python_program_starts_in_a_fork_of_a_loaded_interpreter(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        program = place / "program.py"
        program.write_text(
            "import sys, os\n"
            "print('colorsys' in sys.modules, __name__, sys.argv, os.environ['RANK'], 'HOME' in os.environ)\n"
            "def fail(): raise KeyError('gone')\n"
            "if os.environ['RANK'] == '1': fail()\n"
        )
        request = request_for(argv=("python", str(program), "--x", "1"), workers=2)
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert fact.exit
        assert fact.exit.message == "worker 1 ended with code 1: KeyError: 'gone'"
        assert log_of(place, request, 0) == f"True __main__ ['{program}', '--x', '1'] 0 True\n"
        assert "runpy" not in log_of(place, request, 1)

    def test_a_shell_line_that_is_one_python_program_starts_warm_too(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        (place / "program.py").write_text("import sys; print('colorsys' in sys.modules); sys.exit('a last word')")
        request = request_for(argv=("python program.py --rate 0.1",), shell=True, workdir=str(place))
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "user_error"
        assert log_of(place, request) == "True\na last word\n"

    def test_a_module_starts_warm_and_a_program_with_its_own_python_path_cold(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        (place / "module.py").write_text("import sys; print('colorsys' in sys.modules, sys.path[0])")
        warm = request_for(argv=("python", "-m", "module"), workdir=str(place))
        cold = request_for(argv=("python", "-m", "module"), workdir=str(place), env={"PYTHONPATH": "/tmp"})
        for request, expected in ((warm, "True"), (cold, "False")):
            executor.launch(request)
            assert reason(ended(executor, request.run_id)) == "done"
            assert log_of(place, request).split()[0] == expected

    def test_a_dead_fork_server_is_replaced(self, executor: LocalExecutor, request_for: Any, place: Path) -> None:
        (place / "program.py").write_text("import sys; print('colorsys' in sys.modules)")
        for _ in range(2):
            request = request_for(argv=("python", str(place / "program.py")))
            executor.launch(request)
            assert reason(ended(executor, request.run_id)) == "done"
            assert log_of(place, request) == "True\n"
            executor.stop_warm_start(["vision"])

    # Accelerators

    def test_what_nvml_finds_is_the_inventory_and_what_a_job_sees(
        self, monkeypatch: pytest.MonkeyPatch, place: Path, request_for: Any
    ) -> None:
        pynvml = pytest.importorskip("pynvml")
        found = [("NVIDIA TITAN Xp", "GPU-aaaa", 12_196 << 20), ("NVIDIA TITAN Xp", "GPU-bbbb", 12_196 << 20)]
        shut_down = list[bool]()

        def no_mig(handle: int) -> list[int]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: shut_down.append(True),
            "nvmlDeviceGetCount": lambda: len(found),
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda handle: found[handle][0],
            "nvmlDeviceGetUUID": lambda handle: found[handle][1],
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=found[handle][2]),
            "nvmlDeviceGetMigMode": no_mig,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)
        real = LocalExecutor(place / "real", warm_start=False)
        [node] = real.inventory()
        assert node.accelerators == (
            AcceleratorInfo(0, "titan_xp", "GPU-aaaa", 12_196, emulated=False),
            AcceleratorInfo(1, "titan_xp", "GPU-bbbb", 12_196, emulated=False),
        )
        assert shut_down
        request = request_for(
            "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['OMP_NUM_THREADS'])",
            placement={node.name: (1,)},
            cpus=3,
            pace_steps_per_s=5.0,
        )
        real.launch(request)
        assert reason(ended(real, request.run_id)) == "done"
        log = place / "real" / "jobs" / request.job_id / "runs" / request.run_id / "1" / "logs" / "rank0.log"
        assert log.read_text() == "GPU-bbbb 3\n"

    # Isolation

    @as_root
    def test_projects_run_under_accounts_of_their_own(self, executor: Executor, request_for: Any, place: Path) -> None:
        program = "import os; print(os.getuid(), os.getgroups(), open('/proc/self/status').read())"
        mine, theirs = request_for(program, project_key="vision"), request_for(program, project_key="speech")
        uids = []
        for request in (mine, theirs):
            executor.launch(request)
            assert reason(ended(executor, request.run_id)) == "done"
            uid, groups, *_ = log_of(place, request).split(maxsplit=2)
            assert groups == "[]"
            assert "NoNewPrivs:\t1" in log_of(place, request)
            uids.append(int(uid))
        assert uids[0] != uids[1]
        assert 0 not in uids
        secret = epoch_dir(place, mine) / "token"
        for account, code in ((uids[0], 0), (uids[1], 1)):
            result = subprocess.run(
                ["cat", str(secret)], user=account, group=account, extra_groups=[], capture_output=True
            )
            assert result.returncode == code

    @as_root
    def test_files_that_a_restored_backup_made_roots_are_the_accounts_again(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        keep = "import os; open(os.path.join(os.environ['EVENKEEL_CHECKPOINT_DIR'], 'kept'), 'a').write('x')"
        before = request_for(keep)
        executor.launch(before)
        assert reason(ended(executor, before.run_id)) == "done"
        job_dir = epoch_dir(place, before).parents[2]
        for path in (job_dir, *job_dir.rglob("*")):
            os.chown(path, 0, 0, follow_symlinks=False)
        again = dataclasses.replace(request_for(keep), job_id=before.job_id)
        executor.launch(again)
        assert reason(ended(executor, again.run_id)) == "done"
        assert (job_dir / "checkpoints" / "kept").read_text() == "xx"

    @as_root
    def test_a_job_cannot_lead_us_to_files_it_may_not_read(
        self, executor: LocalExecutor, request_for: Any, place: Path
    ) -> None:
        secret = place / "secret.json"
        secret.write_text(json.dumps({"reason": "done", "message": "secret"}))
        secret.chmod(0o600)
        request = request_for("pass")
        executor.launch(request)
        ended(executor, request.run_id)
        target = epoch_dir(place, request) / "exit.json"
        target.unlink()
        target.symlink_to(secret)
        [fact] = executor.observe([(request.run_id, 1)])
        assert fact.exit is None or fact.exit.message != "secret"

    @as_root
    def test_a_job_cannot_name_processes_of_others_as_its_own(
        self, executor: LocalExecutor, request_for: Any, place: Path
    ) -> None:
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
            request = request_for(SLEEPER)
            executor.launch(request)
            path = epoch_dir(place, request) / "runner.json"
            before = json.loads(path.read_text())
            found = read_process(other.pid)
            assert found
            path.write_text(json.dumps(before | {"pid": other.pid, "start_ticks": found.start_ticks}))
            noted = place / "data" / "run" / "local" / f"{request.run_id}.1.runner"
            noted.write_text("")  # as if the portal had ended before it took note
            executor.kill(request.run_id, 1)
            assert ended(executor, request.run_id).kind == "exited"
            assert other.poll() is None
            other.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(before["pid"], signal.SIGKILL)

    @as_root
    def test_a_directory_the_accounts_cannot_reach_is_said_in_one_sentence(self, place: Path, request_for: Any) -> None:
        closed = place / "closed"
        closed.mkdir(mode=0o700)
        executor = LocalExecutor(closed / "data", "titan_xp:6")
        assert executor.isolation_problem
        assert str(closed) in executor.isolation_problem
        with pytest.raises(ExecutorError):
            executor.launch(request_for())

    def test_single_trust_mode_runs_as_ourselves(self, request_for: Any, place: Path) -> None:
        executor = LocalExecutor(place / "data", "titan_xp:6", isolation="none", warm_start=False)
        assert executor.single_trust_mode
        request = request_for("import os; print(os.getuid())")
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        assert log_of(place, request) == f"{os.getuid()}\n"


def crash_before_start(executor: Executor, request: LaunchRequest) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "start", crash)
        with pytest.raises(KeyboardInterrupt):
            executor.launch(request)


def test_virtual_nodes_are_declared_by_type_and_count() -> None:
    first, second = declared_nodes("a=titan_xp:4,b=v100:2", 1000)
    assert (first.name, len(first.accelerators), second.accelerators[1].type) == ("a", 4, "v100")
    assert all(device.emulated for device in first.accelerators)


@in_turn("declaration", ["titan_xp", "titan_xp:0", "a=x:1,a=x:1", "x:1;y:2", "x:99999"])
def test_a_declaration_that_makes_no_sense_is_refused(declaration: str) -> None:
    with pytest.raises(InvalidInput):
        declared_nodes(declaration, 1000)


def test_product_names_become_type_names() -> None:
    assert [type_name(name) for name in ("NVIDIA TITAN Xp", "Tesla V100-SXM2-16GB")] == ["titan_xp", "v100_sxm2_16gb"]


def test_pipes_and_links_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_object(tmp_path / "pipe") is None
    assert read_object(tmp_path / "link") is None
    assert read_object(tmp_path / "real") == {}


def test_pipes_in_the_way_of_what_we_write_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f".exit.json.{os.getpid()}")
    write_atomically(tmp_path / "exit.json", {"reason": "done"})
    assert read_object(tmp_path / "exit.json") == {"reason": "done"}
    os.mkfifo(tmp_path / "token")
    launching.write_private(tmp_path / "token", "secret")
    assert (tmp_path / "token").read_text() == "secret"
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / "runner.log")
    assert launching._last_line(tmp_path) == "no log"


def test_a_directory_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "exit.json").mkdir()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert read_object(tmp_path / "exit.json") is None
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_a_job_left_is_cleaned(tmp_path: Path) -> None:
    record = {"reason": ["done"], "step": 10**19, "exit_code": -1, "signal": True, "message": "a\0\x1b\ud800b" * 1000}
    (tmp_path / "exit.json").write_text(json.dumps(record))
    found = facts.read_exit(tmp_path)
    assert found
    assert (found.reason, found.step, found.exit_code, found.signal) == ("runner_lost", None, None, None)
    assert found.message == "ab" * 250
    (tmp_path / "exit.json").write_text(json.dumps({"reason": "done", "step": 10**13, "message": 7}))
    assert facts.read_exit(tmp_path) == ExitInfo("done", step=10**13, alleged=True)


def test_spooled_reports_are_cleaned(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "1.json").write_text(json.dumps({"no\0tices": ["a\0b", {"c": "d\0\n"}], "step": 3}))
    (tmp_path / "spool" / "2.json").write_text('{"x":' + "[" * 900 + "]" * 900 + "}")
    (tmp_path / "spool" / "3\u00b2.json").write_text("{}")
    first, *_ = (one.report for one in spooled_reports(Account(None), tmp_path))
    assert first == {"notices": ["ab", {"c": "d\n"}], "step": 3}


@in_turn("name", ["NVML_ERROR_UNKNOWN", "NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_NO_PERMISSION"])
def test_an_nvml_that_fails_is_not_a_machine_without_accelerators(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    nvml_that_raises(monkeypatch, name)
    with pytest.raises(ExecutorError) as refusal:
        real_nodes()[0]
    assert not refusal.value.permanent


@in_turn("name", ["NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED"])
def test_without_a_driver_there_are_no_accelerators(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    nvml_that_raises(monkeypatch, name)
    assert real_nodes()[0].accelerators == ()


def nvml_that_raises(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pynvml = pytest.importorskip("pynvml")

    def fail() -> None:
        raise pynvml.NVMLError(getattr(pynvml, name))

    monkeypatch.setattr(pynvml, "nvmlInit", fail)


# Checks of its nodes


def test_a_job_directory_that_cannot_be_written_fails_the_check(executor: LocalExecutor, place: Path) -> None:
    jobs = place / "data" / "jobs"
    jobs.rmdir()
    jobs.write_text("a file in its place")
    found = examined(executor, "http://127.0.0.1:9")
    assert wrong(found) == {"job directory"}
    assert "cannot be written" in found["job directory"].seen


def test_an_interpreter_that_hangs_fails_the_check_in_time(
    executor: LocalExecutor, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = place / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {place}/pid\nexec sleep 600\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    wish = NodeCheck(executor.inventory()[0].name, "http://127.0.0.1:9", 1, timeout_s=1.0)
    found = {finding.subject: finding for finding in executor.check_node(wish)}
    assert wrong(found) == {"runner"}
    assert found["runner"].seen == f"{python}: no answer in time"
    process = read_process(int((place / "pid").read_text()))
    assert process is None or not process.alive


def test_an_interpreter_without_the_client_fails_the_check(
    executor: LocalExecutor, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = place / "python"
    python.write_text('#!/bin/sh\nexec /usr/bin/python3 -S -I "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    found = examined(executor, "http://127.0.0.1:9")
    assert wrong(found) == {"runner"}
    assert "evenkeel" in found["runner"].seen

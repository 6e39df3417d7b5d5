"""What is found wrong with a Slurm: its commands answer as a site's would, the probe is the one that nodes run."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.base import Finding, Kept, NodeCheck
from scheduling.executors.slurm.checks.examining import NEEDED, PROBE, _of_devices, _version, check_node, examine
from scheduling.executors.slurm.commands import Commands
from scheduling.executors.slurm.options import Options
from tests.executors.played_nvml import play

NODE = (Path(__file__).parent.parent / "fixtures" / "slurm" / "node-22.05.txt").read_text()
NOWHERE = "http://127.0.0.1:9"


@dataclasses.dataclass
class Site(Commands):
    """A Slurm whose nodes are this machine. An answer may be an ExecutorError."""

    nodes_text: str = NODE
    answers: Mapping[str, str | ExecutorError] = dataclasses.field(default_factory=dict)
    change: Mapping[str, object] = dataclasses.field(default_factory=dict)  # to what a probe says
    keeps_files: bool = True

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        usual = {
            "scontrol ping": "Slurmctld(primary) at head is UP\n",
            "sbatch --version": "slurm-wlm 22.05.8\n",
            "scontrol --details --oneliner show node": self.nodes_text,
            "scontrol --oneliner show partition": "PartitionName=gpu State=UP",
            "scontrol show config": "SlurmctldTimeout        = 120 sec\nSlurmdTimeout           = 300 sec\n",
            "sacct": json.dumps({"jobs": []}),
            "srun": "",
        }
        line = " ".join(command)
        key = max((key for key in usual if line.startswith(key)), key=len)
        answer = {**usual, **self.answers}[key]
        if isinstance(answer, ExecutorError):
            raise answer
        return answer if key != "srun" or answer else self._probed(command)

    def _probed(self, command: tuple[str, ...]) -> str:
        (names,) = [word.removeprefix("--nodelist=") for word in command if word.startswith("--nodelist=")]
        arguments = command[command.index("-c") + 2 :]
        lines = []
        for name in names.split(","):
            environment = os.environ | {"SLURMD_NODENAME": name}
            done = subprocess.run(
                [sys.executable, "-c", PROBE, *arguments], env=environment, capture_output=True, text=True, check=True
            )
            said = json.loads(done.stdout.removeprefix("PROBE ")) | dict(self.change)
            lines.append("PROBE " + json.dumps(said))
        if not self.keeps_files:
            for path in Path(arguments[0]).parent.glob(".doctor-*.*"):
                path.unlink()
        return "\n".join(lines)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    play_devices(monkeypatch, tmp_path_factory, [{}] * 4)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in NEEDED else None)


def play_devices(
    monkeypatch: pytest.MonkeyPatch, elsewhere: pytest.TempPathFactory, devices: list[dict[str, int]] | str
) -> None:
    for name, value in play(elsewhere.mktemp("nvml"), devices).items():
        monkeypatch.setenv(name, value)


def findings(site: Site, shared: Path, **options: str) -> dict[str, Finding]:
    return {found.subject: found for found in examine(site, Options(**options), shared, NOWHERE)}  # type: ignore[arg-type]


def test_of_a_sound_site_only_the_portal_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    found = findings(Site(), tmp_path, partition="main")
    assert {subject for subject, one in found.items() if not one.ok} == {"portal"}
    assert "Connection refused" in found["portal"].seen
    assert "EVENKEEL_API_URL" in found["portal"].fix
    assert found["gres"].seen == "4 × a100"
    assert found["accounting"].seen == "sacct answers"
    assert not list(tmp_path.iterdir())


def test_a_job_that_can_read_the_portals_keys_is_found(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = tmp_path_factory.mktemp("data") / "secret_key"

    def asked() -> Finding:
        found = list(examine(Site(), Options(), tmp_path, NOWHERE, Kept(files=(str(key),))))
        return next(one for one in found if one.subject == "portal's files")

    assert (asked().ok, asked().seen) == (True, "no job on the nodes that were asked can reach them")
    key.touch(mode=0o600)
    assert not asked().ok
    assert re.fullmatch(rf"a job on gpu1 \(as .+\) can read {re.escape(str(key))}", asked().seen)


def test_without_its_commands_nothing_else_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name in {"srun", "scancel"} else name)
    (found,) = examine(Site(), Options(), tmp_path, NOWHERE)
    assert (found.subject, found.ok, found.seen) == ("commands", False, "scancel, srun not found")


UNREACHABLE = ExecutorError("scontrol had no answer from Slurm within 20 s", permanent=False)
NO_PARTITION = ExecutorError("Partition gpu not found", permanent=True)
NO_SACCT = ExecutorError("sacct: No such file or directory", permanent=True)


@pytest.mark.parametrize(
    ("site", "subject", "seen", "fix"),
    [
        (Site(answers={"scontrol ping": UNREACHABLE}), "connection", "no answer", "EVENKEEL_SLURM_CONF"),
        (Site(answers={"scontrol ping": "Slurmctld(primary) at head is DOWN"}), "connection", "DOWN", "slurmctld"),
        (Site(answers={"sbatch --version": "slurm 20.11.4"}), "version", "20.11.4", "22.05"),
        (Site(answers={"scontrol --oneliner show partition": NO_PARTITION}), "partition", "not found", "sinfo"),
        (Site(answers={"scontrol --oneliner show partition": "State=DOWN"}), "partition", "DOWN", "scontrol"),
        (Site(NODE.replace("gpu:a100:4", "(null)")), "gres", "no node with GPUs in main", "gres.conf"),
        (Site(NODE.replace("gpu:a100:4", "gpu:4")), "gres", "without a type: gpu1", "Gres=gpu:a100:4"),
        (Site(NODE.replace("gpu:a100:4", "gpu:a100:2,gpu:v100:2")), "gres", "several types in gpu1", "one type a node"),
        (Site(NODE.replace("State=IDLE", "State=DOWN*")), "nodes", "0 of 1 answer; not gpu1", "slurmd"),
        (Site(answers={"srun": UNREACHABLE}), "probe", "no answer", "srun --nodelist=gpu1"),
        (Site(answers={"srun": "hello"}), "probe", "said nothing", "srun"),
        (Site(change={"time": 1e9}), "clocks", "s apart", "chrony"),
        (Site(change={"shared": "of another"}), "shared storage", "gpu1: not the same", "EVENKEEL_SHARED_DIR"),
        (Site(keeps_files=False), "shared storage", "gpu1: not the same", "writable"),
        (Site(change={"evenkeel.runner": "no module"}), "interpreter", "gpu1: no module", "EVENKEEL_SLURM_PYTHON"),
        (Site(change={"store": "no module named s3fs"}), "checkpoint store", "s3fs", "requirements-s3.lock"),
        (Site(change={"torch": "no module named torch"}), "pytorch", "gpu1: no module named torch", "PyTorch"),
    ],
    ids=lambda value: value if isinstance(value, str) and re.fullmatch(r"[\w ]+", value) else "",
)
def test_what_is_wrong_is_said_with_what_to_do(site: Site, subject: str, seen: str, fix: str, tmp_path: Path) -> None:
    found = findings(site, tmp_path, partition="main")[subject]
    assert not found.ok
    assert seen in found.seen
    assert fix in found.fix
    assert not list(tmp_path.iterdir())


def test_nodes_that_jobs_take_all_of_are_not_probed_and_not_wrong(tmp_path: Path) -> None:
    second = NODE.replace("NodeName=gpu1", "NodeName=gpu2")
    found = findings(Site(nodes_text=NODE.replace("State=IDLE", "State=ALLOCATED") + second), tmp_path)
    assert (found["busy nodes"].ok, found["busy nodes"].known) == (True, False)
    assert found["busy nodes"].seen.endswith(": gpu1")
    assert found["shared storage"].seen.endswith("on 1 node")
    found = findings(Site(nodes_text=NODE.replace("State=IDLE", "State=ALLOCATED")), tmp_path)
    assert "shared storage" not in found
    busy = ExecutorError("srun: error: Unable to allocate resources: Requested nodes are busy", permanent=False)
    found = findings(Site(answers={"srun": busy}), tmp_path)  # since it was looked at
    assert (found["probe"].ok, found["probe"].known) == (True, False)


@pytest.mark.parametrize(
    ("version", "ok", "words"),
    [
        ("22.05.8", True, "which was tried"),
        ("24.11.5", True, "which was tried"),
        ("23.11.4", True, "which was not run: 22.05 and 24.11 were"),
        ("25.05.1", True, "which was not run"),
        ("21.08.8", False, "which was not run"),
    ],
)
def test_versions_that_were_run_are_told_from_those_that_were_read_about(version: str, ok: bool, words: str) -> None:
    found = _version(f"slurm-wlm {version}\n")
    assert found.ok is ok
    assert words in found.seen


@pytest.mark.parametrize(
    ("config", "ok", "known", "words"),
    [
        ("SlurmdTimeout           = 300 sec\n", True, True, "silent for 300 s; leases last 600 s"),
        ("SlurmdTimeout           = 900 sec\n", False, True, "silent for 900 s; leases last 600 s"),
        ("SlurmdTimeout           = 0 sec\n", False, True, "never gives up"),
        ("SlurmctldTimeout        = 0 sec\n", True, False, "not known"),
        (ExecutorError("it does not answer", permanent=False), True, False, "it does not answer"),
    ],
)
def test_a_slurm_that_gives_lost_nodes_up_after_the_lease_keeps_their_jobs_waiting(
    tmp_path: Path, config: str | ExecutorError, ok: bool, known: bool, words: str
) -> None:
    found = findings(Site(answers={"scontrol show config": config}), tmp_path)["lost nodes"]
    assert (found.ok, found.known) == (ok, known)
    assert words in found.seen


def test_a_site_without_accounting_or_sacct_has_less_to_go_by_and_is_not_wrong(tmp_path: Path) -> None:
    answers = {"sacct": "Slurm accounting storage is disabled\n"}
    found = findings(Site(answers=answers), tmp_path)["accounting"]
    assert (found.ok, "keeps no accounting" in found.seen) == (True, True)
    found = findings(Site(answers={"sacct": NO_SACCT}), tmp_path)["accounting"]
    assert (found.ok, found.known, "No such file" in found.seen) == (True, False, True)


def test_the_gpus_of_a_node_are_examined_unless_they_are_emulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def of_gpus(**options: bool) -> dict[str, tuple[bool, bool, str]]:
        wish = NodeCheck("gpu1", NOWHERE, 1, 60.0)
        found = {one.subject: one for one in check_node(Site(), Options(**options), tmp_path, wish)}  # type: ignore[arg-type]
        names = ("devices", "memory errors", "heat and power", "computation")
        return {name: (found[name].ok, found[name].known, found[name].seen) for name in names if name in found}

    assert of_gpus(emulated=True) == {}
    assert of_gpus()["devices"] == (True, True, "4 answer")
    play_devices(monkeypatch, tmp_path_factory, [{}, {"ecc": 2}, {}, {}])
    assert of_gpus()["memory errors"] == (False, True, "GPU-1: 2 uncorrected")
    play_devices(monkeypatch, tmp_path_factory, [])
    ((ok, known, seen),) = of_gpus().values()
    assert (ok, known, "4 of 4 not visible to the check" in seen) == (True, False, True)
    play_devices(monkeypatch, tmp_path_factory, "missing")
    assert "install nvidia-ml-py" in of_gpus()["devices"][2]


def test_of_many_nodes_those_are_named_whose_gpus_are_not_sound() -> None:
    def said(node: str, seen: str, *, ok: bool = True, known: bool = True) -> dict[str, object]:
        row = {"subject": "devices", "ok": ok, "seen": seen, "fix": "" if ok else "repair it", "known": known}
        return {"node": node, "devices": [row]}

    sound, bad = [said("a", "4 answer"), said("b", "4 answer")], said("c", "device 1: GPU is lost", ok=False)
    hidden = said("d", "not known: 4 of 4 not visible", known=False)
    assert list(_of_devices(sound)) == [Finding("devices", True, "4 answer on 2 nodes")]
    assert list(_of_devices([*sound, bad, hidden])) == [
        Finding("devices", False, "c: device 1: GPU is lost", "repair it")
    ]
    assert list(_of_devices([*sound, hidden])) == [
        Finding("devices", True, "d: not known: 4 of 4 not visible", known=False)
    ]

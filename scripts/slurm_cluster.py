"""A throw-away Slurm on loopback, several nodes with GPUs on this host: for tests and benchmarks. Needs root.

python -m scripts.slurm_cluster up ROOT [--nodes 3] [--gpus 4] [--accounting]; python -m scripts.slurm_cluster down ROOT

ROOT is an empty directory with a short path. `SLURM_CONF=ROOT/slurm.conf` leads commands to it. The GPUs are device
files without a device behind them. Packages: see PACKAGES, and ACCOUNTING_PACKAGES for what sacct asks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scripts.hiding import can_hide, without
from scripts.networks import NodeNetworks

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
ACCOUNTING_PACKAGES = ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
LOOPBACK = "127.0.0.1"
READY_S = 90.0
ENDING_S = 15.0
RESUME_TIMEOUT_S = 120


def missing(accounting: bool = False) -> list[str]:
    return [name for name in (*PROGRAMS, *(ACCOUNTING_PROGRAMS if accounting else ())) if shutil.which(name) is None]


def install(accounting: bool = False) -> str | None:
    """Debian's packages where they are not there yet; why that failed, or None."""
    if not missing(accounting):
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"{', '.join(missing(accounting))} not found, and only root can install it, on Debian"
    packages = (*PACKAGES, *(ACCOUNTING_PACKAGES if accounting else ()))
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    last = None
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        try:
            last = subprocess.run(
                ["apt-get", "-q", *command], env=quiet, check=False, timeout=300, capture_output=True, text=True,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"apt-get {command[0]} took more than 300 s"
    if still := missing(accounting):
        return f"{', '.join(still)} cannot be installed: {(last.stderr if last else '').strip()[-300:]}"
    return None


@dataclass
class SlurmCluster:
    """`start` brings it up, `stop` ends every process of it. Commands find it by `environment`.

    With `links` each node has a network namespace of its own; all but `start_node` is to be called in the head's.
    `in_namespace`: started in one that nobody else reaches, which has an address besides loopback: it listens on all.
    """

    root: Path
    nodes: int = 3
    gpus: int = 4
    accounting: bool = False
    gives_node_up_s: int = 10
    forgets_jobs_s: int = 600
    links: NodeNetworks | None = None
    in_namespace: bool = False
    node_options: str = ""  # further words of each NodeName line
    hidden: Path | None = None  # in place of a directory below the root
    commands: Path | None = None  # of another Slurm, see scripts.slurm_chroot
    more: tuple[str, ...] = ()  # further lines of slurm.conf
    boot_s: float | None = None  # power saving: nodes that are powered down come up so long after Slurm asked for them
    _database: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def head_only(self) -> Path:
        """Where nodes see nothing, given that this machine can hide it: for a portal's data directory."""
        return self.hidden or self.root / "head"

    @property
    def hides(self) -> bool:
        return can_hide(self.head_only)

    @property
    def conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Of whatever calls its commands."""
        path = {"PATH": f"{self.commands}:{os.environ['PATH']}"} if self.commands else {}
        return {"SLURM_CONF": str(self.conf)} | path

    def start(self) -> None:
        """TimeoutError or CalledProcessError where it does not come up; what was started is ended then."""
        for name in ("run", "log", "state", "dev", "head"):
            (self.root / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        self.root.chmod(0o755)
        try:
            self._write_files()
            self._run("munged", *self._munge_options())
            if self.accounting:
                self._start_accounting()
            self.start_controller()
            for number in range(1, self.nodes + 1):
                self.start_node(f"gpu{number}")
            self.await_idle()
        except BaseException:
            self.stop()
            raise

    def start_controller(self) -> None:
        self._run("slurmctld")
        until(lambda: "UP" in self._ask("scontrol", "ping"), "slurmctld")

    def start_node(self, name: str) -> None:
        (self.root / f"spool.{name}").mkdir(exist_ok=True)
        with self.links.of(name).inside() if self.links else contextlib.nullcontext():
            command = ("slurmd", "-N", name)
            self._run(*(without(self.head_only, *command) if self.hides else command))

    def await_idle(self) -> None:
        until(lambda: self._ask("sinfo", "-h", "-N", "-t", "idle", "-o", "%n").split()[self.nodes - 1 :], "its nodes")

    def pid(self, daemon: str) -> int:
        """Of `slurmctld`, `slurmdbd`, or of the slurmd of a node as `slurmd.gpu1`."""
        return int((self.root / "run" / f"{daemon}.pid").read_text())

    def stop(self) -> None:
        """By the files of process ids, and then whatever was started with this root in its environment."""
        give_up_at = time.monotonic() + ENDING_S
        while left := self._processes():
            number = signal.SIGKILL if time.monotonic() > give_up_at - ENDING_S + 3 else signal.SIGTERM
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"processes {sorted(left)} of {self.root} do not end")
            time.sleep(0.1)
        if self._database is not None:
            self._database.wait(ENDING_S)

    def _processes(self) -> set[int]:
        """All that have it in their environment: daemons that have not written a pid file yet, steps, jobs."""
        found, mark = set[int](), f"SLURM_CLUSTER_ROOT={self.root}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                    marks = (mark, f"SLURM_CONF={self.conf}".encode())
                    if state != b"Z" and not set(marks).isdisjoint((entry / "environ").read_bytes().split(b"\0")):
                        found.add(int(entry.name))
        return found

    def _run(self, *command: str) -> None:
        """A daemon that goes to the background by itself; it keeps nothing of ours open."""
        with (self.root / "log" / f"{Path(command[0]).name}.start").open("ab") as log:
            subprocess.run(
                command, env=self._env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=60,
                cwd=self.root,
            )  # fmt: skip

    def _ask(self, *command: str) -> str:
        try:
            result = subprocess.run(
                command, env=self._env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=10,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return ""
        return result.stdout

    def _env(self) -> dict[str, str]:
        return os.environ | self.environment | {"SLURM_CLUSTER_ROOT": str(self.root)}

    def _munge_options(self) -> list[str]:
        run, log = self.root / "run", self.root / "log"
        return [
            "--num-threads=4", f"--key-file={self.root}/munge.key", f"--socket={run}/munge.sock",
            f"--pid-file={run}/munged.pid", f"--log-file={log}/munged.log", f"--seed-file={self.root}/state/munge.seed",
        ]  # fmt: skip

    def _write_files(self) -> None:
        key = self.root / "munge.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(os.urandom(128))
        for number in range(self.gpus):
            device = self.root / "dev" / f"nvidia{number}"
            if not device.exists():
                os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
        ports = free_ports(self.nodes + 3)
        names = f"gpu[1-{self.nodes}]"
        device_files = f"{self.root}/dev/nvidia[0-{self.gpus - 1}]"
        (self.root / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={names} Name=gpu Type=a100 File={device_files}\n"
        )
        self.conf.write_text(self._configuration(ports))
        self._write_power_saving()
        if "22.05" not in self._ask("slurmd", "-V"):  # which needs none where no plugin asks for control groups
            (self.root / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        if self.accounting:
            self._mysql_port, self._dbd_port = ports[-2], ports[-1]
            self._write_dbd()

    def _configuration(self, ports: list[int]) -> str:
        host, root = socket.gethostname().split(".")[0], self.root
        head = self.links.head if self.links else LOOPBACK
        lines = [
            "ClusterName=evenkeel", f"SlurmctldHost={host}({head})", f"SlurmctldPort={ports[0]}", "SlurmUser=root",
            "AuthType=auth/munge", f"AuthInfo=socket={root}/run/munge.sock",
            "CredType=cred/munge", f"StateSaveLocation={root}/state", f"SlurmctldPidFile={root}/run/slurmctld.pid",
            f"SlurmctldLogFile={root}/log/slurmctld.log", f"SlurmdSpoolDir={root}/spool.%n",
            f"SlurmdPidFile={root}/run/slurmd.%n.pid", f"SlurmdLogFile={root}/log/slurmd.%n.log", "MailProg=/bin/true",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
            "SwitchType=switch/none", "MpiDefault=none", "ReturnToService=2", "SlurmdParameters=config_overrides",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=16",
            "SchedulerType=sched/backfill", "SchedulerParameters=bf_interval=2,sched_interval=1,batch_sched_delay=0",
            "GresTypes=gpu", "KillWait=2", "InactiveLimit=0", f"MinJobAge={self.forgets_jobs_s}",
            f"SlurmdTimeout={self.gives_node_up_s}", "SlurmctldTimeout=10",
        ]  # fmt: skip
        if not self.links and not self.in_namespace:
            lines.append("CommunicationParameters=NoInAddrAny")
        lines += self._power_saving()
        if self.accounting:
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={ports[-1]}", f"AccountingStoragePass={root}/run/munge.sock",
                "AccountingStorageTRES=gres/gpu",
            ]  # fmt: skip
        lines += [
            f"NodeName=gpu{number} NodeHostname={host} NodeAddr={self._address(number)} "
            f"Port={ports[number]} CPUs=16 RealMemory=64000 Gres=gpu:a100:{self.gpus} {self.node_options} State=UNKNOWN"
            for number in range(1, self.nodes + 1)
        ]
        lines += ["PartitionName=main Nodes=ALL Default=YES MaxTime=1-0 State=UP", *self.more]
        return "\n".join(lines) + "\n"

    def power_down(self, name: str) -> None:
        """Slurm has the node's slurmd stopped, and started again for the next job there."""
        self._ask("scontrol", "update", f"nodename={name}", "state=power_down")
        until(lambda: "POWERED_DOWN" in self._state(name), f"{name}, powered down,")

    def wake(self, name: str) -> None:
        if "POWERED_DOWN" in self._state(name):
            self._ask("scontrol", "update", f"nodename={name}", "state=power_up")
        until(lambda: self._state(name) == "IDLE", f"{name}, woken,")

    def _state(self, name: str) -> str:
        return self._ask("scontrol", "--oneliner", "show", "node", name).partition(" State=")[2].partition(" ")[0]

    def _power_saving(self) -> list[str]:
        """It powers nothing down by itself within a day."""
        if self.boot_s is None:
            return []
        return [
            f"SuspendProgram={self.root}/suspend", f"ResumeProgram={self.root}/resume", "SuspendTime=86400",
            "SuspendTimeout=3", f"ResumeTimeout={RESUME_TIMEOUT_S}", "ResumeRate=0", "SuspendRate=0",
        ]  # fmt: skip

    def _write_power_saving(self) -> None:
        marks = {"SLURM_CONF": str(self.conf), "SLURM_CLUSTER_ROOT": str(self.root), "PATH": self._env()["PATH"]}
        exports = "".join(f"export {name}={value}\n" for name, value in marks.items())
        hiding = shlex.join(without(self.head_only)) if self.hides else ""
        each = {
            "suspend": f'kill "$(cat {self.root}/run/slurmd.$1.pid)"',
            "resume": f'sleep {self.boot_s}; exec {hiding} slurmd -b -N "$1"',
        }
        for name, does in each.items():  # Slurm ends what is left of the program itself, and closes its output
            begin = f'setsid {self.root}/{name}-one "$node" </dev/null >>{self.root}/log/{name}.log 2>&1'
            loop = f'for node in $(scontrol show hostnames "$1"); do {begin} & done'
            for script, line in ((self.root / name, loop), (self.root / f"{name}-one", does)):
                script.write_text(f"#!/bin/sh\n{exports}{line}\n")
                script.chmod(0o755)

    def _address(self, number: int) -> str:
        return self.links.nodes[f"gpu{number}"] if self.links else LOOPBACK

    # Accounting

    def _write_dbd(self) -> None:
        root, file = self.root, self.root / "slurmdbd.conf"
        file.touch(mode=0o600)
        file.write_text(
            "\n".join(
                [
                    "AuthType=auth/munge",
                    f"AuthInfo=socket={root}/run/munge.sock",
                    "DbdHost=localhost",
                    "DbdAddr=127.0.0.1",
                    f"DbdPort={self._dbd_port}",
                    "SlurmUser=root",
                    f"LogFile={root}/log/slurmdbd.log",
                    f"PidFile={root}/run/slurmdbd.pid",
                    "StorageType=accounting_storage/mysql",
                    "StorageHost=127.0.0.1",
                    f"StoragePort={self._mysql_port}",
                    "StorageUser=slurm",
                    "StoragePass=slurm",
                    "StorageLoc=slurm_acct_db",
                    "CommunicationParameters=NoInAddrAny",
                ]
            )
            + "\n"
        )

    def _start_accounting(self) -> None:
        data, sock = self.root / "mysql", self.root / "run" / "mysql.sock"
        data.mkdir(exist_ok=True)
        shutil.chown(data, "mysql")
        (self.root / "run").chmod(0o1777)
        plain = ("--no-defaults", "--user=mysql", f"--datadir={data}")
        self._run("mariadb-install-db", *plain, "--auth-root-authentication-method=normal", "--skip-test-db")
        with (self.root / "log" / "mariadb.log").open("ab") as log:
            self._database = subprocess.Popen(
                ["mariadbd", *plain, f"--socket={sock}", "--bind-address=127.0.0.1", f"--port={self._mysql_port}",
                 "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--skip-log-bin"],
                env=self._env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        sql = ("mariadb", "--no-defaults", "-uroot", "-S", str(sock), "-N", "-e")
        until(lambda: "1" in self._ask(*sql, "select 1"), "MariaDB")
        self._ask(*sql, "create database if not exists slurm_acct_db; "
                  "create user if not exists 'slurm'@'localhost' identified by 'slurm'; "
                  "create user if not exists 'slurm'@'127.0.0.1' identified by 'slurm'; "
                  "grant all on slurm_acct_db.* to 'slurm'@'localhost', 'slurm'@'127.0.0.1'")  # fmt: skip
        self.start_dbd()
        self._ask("sacctmgr", "-i", "add", "cluster", "evenkeel")

    def start_dbd(self) -> None:
        self._run("slurmdbd")
        until(lambda: self._ask("sacctmgr", "-n", "show", "user").strip(), "slurmdbd")


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def until(ready: Callable[[], object], what: str) -> None:
    give_up_at = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{what} of the test Slurm did not come up in {READY_S:.0f} s")
        time.sleep(0.1)


@contextlib.contextmanager
def running(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="A throw-away Slurm on loopback.")
    parser.add_argument("verb", choices=["up", "down"])
    parser.add_argument("root", type=Path)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and MariaDB, for sacct")
    parser.add_argument("--commands", type=Path, help="of another Slurm, as scripts.slurm_chroot prints them")
    options = parser.parse_args()
    cluster = SlurmCluster(
        options.root.resolve(), options.nodes, options.gpus, options.accounting, commands=options.commands
    )
    if options.verb == "down":
        cluster.stop()
        return 0
    if reason := install(options.accounting):
        print(reason, file=sys.stderr)
        return 1
    cluster.start()
    for name, value in cluster.environment.items():
        print(f"export {name}={value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a network of its own costs the runs of a project: launches with and without it in turn, the memory of what
keeps it, and how fast data come in through it. Needs root and pasta. Prints tables in Markdown.

python -m benchmarks.bench_networks [--repeat 10] [--mib 512]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from evenkeel.runner.processes import all_processes, proportional_mib, real_uid

from benchmarks.bench_launch import spread
from scheduling.executors.accounts import Account
from scheduling.executors.base import LaunchRequest
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.machine.networks import Networks, find_pasta, way_out

UID = 2_000_000_001  # nobody's
RECEIVING = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    began, got = time.monotonic(), 0
    while chunk := connection.recv(1 << 20):
        got += len(chunk)
print((got >> 20) / (time.monotonic() - began))
"""


def request(project: str, program: Path) -> LaunchRequest:
    return LaunchRequest(
        job_id=uuid.uuid4().hex, job_number=1, run_id=uuid.uuid4().hex, epoch=1, project_key=project,
        argv=("python", str(program)), shell=False, workdir=None, placement={"local": (0,)}, env={},
        total_steps=1, batch_size=1, checkpoint_every_steps=0, checkpoint_keep=1, max_duration_s=None,
        memory_mib=None, cpus=None, api_url="http://127.0.0.1:9", token="none", report_interval_s=5.0,
    )  # fmt: skip


def launched_s(executor: LocalExecutor, project: str, program: Path) -> float:
    """From the call until the runner has taken the launch up."""
    wanted = request(project, program)
    began = time.monotonic()
    executor.launch(wanted)
    took_s = time.monotonic() - began
    while executor.observe([(wanted.run_id, 1)])[0].kind == "alive":
        time.sleep(0.01)
    return took_s


def bench_launches(place: Path, repeat: int) -> None:
    program = place / "program.py"
    program.write_text("")
    print("| launch | the machine's network, ms | a network of its own, ms |")
    print("|---|---|---|")
    for warm in (False, True):
        executors = {
            name: LocalExecutor(
                place / name, "local=titan_xp:1", warm_start=warm, preload=(), run_network=name,
                accounts_registry=place / "registry",
            )
            for name in ("machine", "own")
        }  # fmt: skip
        taken: dict[tuple[str, str], list[float]] = {}
        for number in range(repeat):
            for name, executor in executors.items():
                for kind, project in (("first of a project", f"p{number}-{warm}"), ("further", "p0")):
                    taken.setdefault((kind, name), []).append(1000 * launched_s(executor, project, program))
        for kind in ("first of a project", "further"):
            columns = [spread(taken[kind, name], 0) for name in executors]
            print(f"| {'warm' if warm else 'cold'}, {kind} | {' | '.join(columns)} |", flush=True)
        for executor in executors.values():
            executor.stop_warm_start([f"p{number}-{warm}" for number in range(repeat)] + ["p0"])


def machines_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


@contextlib.contextmanager
def sending(mib: int) -> Iterator[tuple[str, int]]:
    with socket.create_server((machines_address(), 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        for _ in range(mib):
                            connection.sendall(bytes(1 << 20))

        threading.Thread(target=serve, daemon=True).start()
        address, port = server.getsockname()
        yield address, port


def bench_network(place: Path, repeat: int, mib: int) -> None:
    networks = Networks(place / "network", "own", (), uid=UID, members=lambda account: ())
    received: dict[str, list[float]] = {"machine": [], "own": []}
    with sending(mib) as (address, port), networks.joined(Account(UID + 1)) as network:
        assert network is not None
        receive = [sys.executable, "-I", "-S", "-c", RECEIVING, address, str(port)]

        def measured() -> float:
            return float(subprocess.run(receive, capture_output=True, check=True, timeout=300).stdout)

        for _ in range(repeat):
            received["machine"].append(measured())
            received["own"].append(network.run(measured))
        kept = [process.pid for process in all_processes() if real_uid(process.pid) == UID]
        memory_mib = sum(map(proportional_mib, kept))
    print(f"\nWhat keeps a network: {len(kept)} processes, {memory_mib:.0f} MiB (proportional).")
    print(f"\n| {mib} MiB from a server at an address of the machine | MiB/s |\n|---|---|")
    for name, values in received.items():
        print(f"| {'the machine' if name == 'machine' else 'a network of its own'} | {spread(values, 0)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="What a network of its own costs")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--mib", type=int, default=512)
    options = parser.parse_args()
    if os.geteuid() != 0 or not find_pasta():
        print("SKIPPED: networks of their own need root and pasta (the package passt)")
        return
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}, way out {way_out()[0]}; median (least to most) of {options.repeat}\n")
    with tempfile.TemporaryDirectory(prefix="evenkeel-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        bench_launches(Path(name), options.repeat)
        bench_network(Path(name), max(3, options.repeat // 3), options.mib)


if __name__ == "__main__":
    main()

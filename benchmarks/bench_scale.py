"""A control plane under the load of many nodes: rounds, reports, pages, memory, and how fast the database grows.

python -m benchmarks.bench_scale [--nodes 1000] [--jobs 2000] [--minutes 5] [--policy NAME]
                                 [--reports-per-s 100]

Nodes of eight GPUs are declared and runs played (benchmarks.played_nodes): everything else is the portal as
`manage.py up` starts it, with all its processes on this machine. Runs report every 10 s, those of a node in one
request, as runners do. The player's own CPU time is given apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.played_nodes import GPUS_OF_A_NODE, TYPES  # noqa: E402
from tests.live_portal import LivePortal, running_portal  # noqa: E402

GANGS = {1: 0.45, 2: 0.25, 4: 0.2, 8: 0.1}
#: Of jobs alone on the slowest type.
STEPS_PER_S, MEAN_S = {"v100": 3.0, "p100": 2.0, "k80": 1.0}, 7_200.0
ARRAY, PATIENCE_S = 100, 1_800.0
PAGES = ("jobs?limit=50", "live/cluster", "nodes", "history")
_ROUND = re.compile(r"evenkeel\.run_round\[[^\]]+\] succeeded in ([\d.]+)s: [1-9]")  # 0: another had the lock


@contextlib.contextmanager
def stage() -> Iterator[str]:
    """The process that plays the runs; its address."""
    place = Path(tempfile.mkdtemp(prefix="evenkeel-stage-"))
    place.chmod(0o755)
    address = str(place / "stage")
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.played_nodes", address], cwd=ROOT)
    try:
        until = time.monotonic() + 30.0
        while not Path(address).exists():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the stage did not start")
            time.sleep(0.05)
        Path(address).chmod(0o777)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        shutil.rmtree(place, ignore_errors=True)


def figures_of(address: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(30.0)
        line.connect(address)
        line.sendall(b'{"do": "figures"}\n')
        with line.makefile("rb") as answer:
            return dict(json.loads(answer.readline()))


def job_file(gang: int, seconds: float, array: int) -> dict[str, Any]:
    curves = {
        kind: [round(speed * n**0.9, 3) for n in range(1, GPUS_OF_A_NODE + 1)] for kind, speed in STEPS_PER_S.items()
    }
    return {
        "project": "default",
        "model_type": "digits_mlp",
        "name": f"gang of {gang}",
        "total_steps": max(60, int(seconds * gang**0.9)),
        "batch_size": 64,
        "gpus": {"min": gang, "max": min(GPUS_OF_A_NODE, 2 * gang)},
        "throughput": curves,
        "checkpoint": {"every_steps": 2_000},
        "array": f"0-{array - 1}",
    }


def submit(portal: LivePortal, count: int, rng: random.Random) -> float:
    """Seconds for arrays of a hundred."""
    began = time.monotonic()
    with portal.api() as api:
        api.timeout = httpx.Timeout(120.0)
        for _ in range(max(1, count // ARRAY)):
            gang = rng.choices(list(GANGS), list(GANGS.values()))[0]
            seconds = rng.uniform(0.5, 1.5) * MEAN_S
            api.post("jobs", json=job_file(gang, seconds, min(ARRAY, count))).raise_for_status()
    return time.monotonic() - began


@dataclass(frozen=True)
class Use:
    cpu_s: float
    mib: float


def uses(portal: LivePortal) -> dict[str, Use]:
    """By process of the portal, children included; memory that is shared counts in parts (PSS)."""
    found = {}
    for name in ("web", "worker", "commands", "forecasts", "lab", "shadow", "beat", "postgres", "valkey"):
        top = psutil.Process(portal.pid(name))
        cpu_s = mib = 0.0
        for one in (top, *top.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = one.cpu_times()
                cpu_s += times.user + times.system + times.children_user + times.children_system
                mib += one.memory_full_info().pss / 2**20
        found[name] = Use(cpu_s, mib)
    return found


def database_bytes(portal: LivePortal) -> int:
    return int(portal.rows("SELECT pg_database_size(current_database())")[0][0])


def table_bytes(portal: LivePortal) -> dict[str, int]:
    query = "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables"
    return {str(name): int(size) for name, size in portal.rows(query)}


def held(portal: LivePortal) -> tuple[int, int]:
    """(runs, GPUs) with holds."""
    query = "SELECT count(DISTINCT run_id), count(*) FROM jobs_hold WHERE upper_inf(during)"
    runs, gpus = portal.rows(query)[0]
    return int(runs), int(gpus)


def rounds_of(portal: LivePortal, since: int) -> tuple[list[float], int]:
    """Seconds of the rounds that the log has from this byte on, and where it ends."""
    log = portal.data / "logs" / "worker.log"
    with log.open("rb") as file:
        file.seek(since)
        text = file.read()
    return [float(seconds) for seconds in _ROUND.findall(text.decode(errors="replace"))], since + len(text)


def watch(portal: LivePortal, address: str, seconds: float) -> None:
    """Measure for so long, with a page twice a second."""
    figures_of(address)
    before, sizes, bytes_before = uses(portal), table_bytes(portal), database_bytes(portal)
    player = figures_of(address)["cpu_s"]
    _, log_at = rounds_of(portal, 0)
    began, took_ms, failed = time.monotonic(), list[float](), Counter[str]()
    with portal.api() as api:
        number = 0
        while time.monotonic() - began < seconds:
            asked = time.perf_counter()
            try:
                api.get(PAGES[number % len(PAGES)]).raise_for_status()
            except httpx.HTTPError:
                failed[PAGES[number % len(PAGES)]] += 1
            took_ms.append((time.perf_counter() - asked) * 1_000.0)
            number += 1
            time.sleep(max(0.0, 0.5 - (time.perf_counter() - asked)))
    lasted = time.monotonic() - began
    after, figures = uses(portal), figures_of(address)
    rounds, _ = rounds_of(portal, log_at)
    tell(lasted, rounds, took_ms, failed, figures, figures["cpu_s"] - player, before, after)
    grown = database_bytes(portal) - bytes_before
    print(f"database: {bytes_before / 2**20:.0f} MiB, {grown / lasted * 86_400 / 2**30:.1f} GiB a day at this rate")
    now = table_bytes(portal)
    for name, size in sorted(now.items(), key=lambda one: sizes.get(one[0], 0) - one[1])[:6]:
        print(f"   {name:28} {(size - sizes.get(name, 0)) / lasted * 86_400 / 2**20:9.0f} MiB a day")


def tell(
    lasted: float,
    rounds: Sequence[float],
    took_ms: Sequence[float],
    failed: Counter[str],
    figures: dict[str, Any],
    player_s: float,
    before: dict[str, Use],
    after: dict[str, Use],
) -> None:
    print(f"{figures['alive']} runs alive, {lasted:.0f} s")
    if rounds:
        parts = f"p50 {_part(rounds, 0.5):.2f} s, p99 {_part(rounds, 0.99):.2f} s, max {max(rounds):.2f} s"
        print(f"rounds: {len(rounds)}, {parts}")
    else:
        print("rounds: none ended")
    answers, taken = figures["took_ms"], figures["counts"].get("200", 0)
    others = {status: count for status, count in figures["counts"].items() if status != "200"}
    wanted, requests = figures["alive"] / 10, figures["requests"] / lasted
    print(
        f"reports: {taken / lasted:.0f} a second taken, {wanted:.0f} wanted, in {requests:.0f} requests; "
        f"answers p50 {_part(answers, 0.5):.0f} ms, p99 {_part(answers, 0.99):.0f} ms; others {others}"
    )
    parts = f"p50 {_part(took_ms, 0.5):.0f} ms, p95 {_part(took_ms, 0.95):.0f} ms"
    print(f"pages: {len(took_ms)}, {parts}, failed {dict(failed)}")
    for name, use in after.items():
        print(f"   {name:10} {(use.cpu_s - before[name].cpu_s) / lasted:5.2f} cores {use.mib:7.0f} MiB")
    print(f"   {'(player)':10} {player_s / lasted:5.2f} cores")


def _part(values: Sequence[float], part: float) -> float:
    return (
        statistics.quantiles(values, n=100, method="inclusive")[round(part * 100) - 1]
        if len(values) > 1
        else sum(values)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--policy", default="f_scheduling")
    parser.add_argument("--reports-per-s", default="100", help="EVENKEEL_REPORTS_PER_S of the portal")
    options = parser.parse_args()
    rng = random.Random(11)
    with stage() as address:
        extra = {"DJANGO_SETTINGS_MODULE": "benchmarks.scale_settings", "PLAYED_STAGE": address}
        extra |= {"PLAYED_NODES": str(options.nodes), "EVENKEEL_REPORT_INTERVAL_S": "10"}
        extra |= {"EVENKEEL_ROUND_INTERVAL_S": "5", "EVENKEEL_SAMPLE_INTERVAL_S": "5", "EVENKEEL_SPEEDUP": "1"}
        extra |= {"EVENKEEL_REPORTS_PER_S": options.reports_per_s}
        with running_portal(**extra) as portal:
            _run(portal, address, options, rng)


def _run(portal: LivePortal, address: str, options: argparse.Namespace, rng: random.Random) -> None:
    print(f"== {options.nodes} nodes of {GPUS_OF_A_NODE} GPUs ({', '.join(TYPES)}), {options.policy}", flush=True)
    with portal.api() as api:
        api.put("policy", json={"name": options.policy, "parameters": {}}).raise_for_status()
    print(f"{options.jobs} jobs submitted in {submit(portal, options.jobs, rng):.1f} s", flush=True)
    began, last = time.monotonic(), (0, 0)
    while time.monotonic() - began < PATIENCE_S:
        now = held(portal)
        alive = figures_of(address)["alive"]
        print(
            f"   after {time.monotonic() - began:5.0f} s: {now[0]} runs hold {now[1]} GPUs, {alive} are alive",
            flush=True,
        )
        if now[0] and now[1] <= 1.02 * last[1] and alive >= 0.95 * now[0]:
            break
        last = now
        time.sleep(15.0)
    watch(portal, address, options.minutes * 60.0)


if __name__ == "__main__":
    main()

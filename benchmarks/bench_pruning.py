"""Points of metrics of runs that ended long ago: what thinning them costs, and what it gives back.

python -m benchmarks.bench_pruning [--runs 2000] [--points 2000]

A portal's own database, with the portal running on it. The pruning is the one that beat asks for every ten minutes;
here one follows the other until nothing is left. Beside it a page of jobs is asked for again and again: its 95th
percentile before and meanwhile. No bounds.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bench_api import fill, percentile  # noqa: E402
from tests.live_portal import running_portal  # noqa: E402
from tests.supervisor.running import unlimited  # noqa: E402

_POINTS = """
    INSERT INTO jobs_metricpoint (run_id, epoch, step, at, values)
    SELECT run.id, 1, 10 * i, run.ended_at - make_interval(secs => 10 * (%(points)s - i)),
        jsonb_build_object('loss', 1.0 / i, 'accuracy', 1 - 1.0 / i)
    FROM jobs_run AS run, generate_series(1, %(points)s) AS i WHERE run.ended_at IS NOT NULL"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--points", type=int, default=2_000)
    options = parser.parse_args()
    with running_portal(**unlimited()) as portal:
        fill(portal, options.runs, 0)
        add_points(options.points)
        with portal.api() as api:
            idle = pages(api, over(2.0))
            done = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                asking = pool.submit(pages, api, done)
                try:
                    prune_all()
                finally:
                    done.set()
                meanwhile = asking.result()
        print(f"page of jobs, p95 ms: {percentile(idle, 95):.0f}, while pruning {percentile(meanwhile, 95):.0f}")
        print(f"after VACUUM FULL: {size_mib(full=True)[1]:,.0f} MiB")
    return 0


def add_points(points: int) -> None:
    from django.db import connection

    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(_POINTS, {"points": points})
        cursor.execute("ANALYZE jobs_metricpoint")
    rows, mib = size_mib()
    print(f"{rows:,} points, {mib:,.0f} MiB, made in {time.monotonic() - began:.0f} s", flush=True)


def prune_all() -> None:
    from django.db import connection
    from django.utils import timezone

    from portal.history import metrics

    left, _ = size_mib()
    while True:
        began, cpu = time.monotonic(), time.thread_time()
        metrics.prune(timezone.now())
        took, cpu, before = time.monotonic() - began, time.thread_time() - cpu, left
        left, mib = size_mib()
        print(
            f"pruning: {took:.1f} s, {cpu:.2f} s of its own, {before - left:,} points gone, {mib:,.0f} MiB", flush=True
        )
        if before == left:
            break
    connection.close()


def size_mib(*, full: bool = False) -> tuple[int, float]:
    """Points there are, and MiB of their table and its indexes."""
    from django.db import connection

    with connection.cursor() as cursor:
        if full:
            cursor.execute("VACUUM FULL jobs_metricpoint")
        cursor.execute("SELECT count(*), pg_total_relation_size('jobs_metricpoint') FROM jobs_metricpoint")
        rows, size = cursor.fetchone()
    return rows, size / 2**20


def over(seconds: float) -> threading.Event:
    event = threading.Event()
    threading.Timer(seconds, event.set).start()
    return event


def pages(api: httpx.Client, done: threading.Event) -> list[float]:
    times = []
    while not done.wait(0.1):
        began = time.monotonic()
        api.get("jobs").raise_for_status()
        times.append(1_000 * (time.monotonic() - began))
    return times


if __name__ == "__main__":
    raise SystemExit(main())

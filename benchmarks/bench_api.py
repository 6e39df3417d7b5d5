"""The API over real HTTP with 100,000 finished jobs in PostgreSQL, and with 2,000 active ones; then three clusters.

python -m benchmarks.bench_api [--jobs 100000] [--active 2000] [--requests 100] [--only one,three]

A portal of its own, all parts of it running, rounds included. Bounds: a page of the list within 200 ms and 60 KB,
a submission within 100 ms, also while somebody looks at the live pages, usage of all time (two roll-up rows a job)
within 300 ms, each at the 95th percentile of sequential requests; exit code 1 where one is missed. Beside them the
processor's seconds of all the portal's processes, divided by the requests: on a busy machine they still say something.

`three`: another portal with three clusters, whose GPUs are all taken and on each of which 40 jobs wait; a submission
that leaves the cluster to the portal, of a job and of an array, within 150 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.live_portal import LivePortal, running_portal  # noqa: E402
from tests.supervisor.running import unlimited  # noqa: E402

if TYPE_CHECKING:
    from portal.jobs.models import Job

LIST_MS, LIST_KB, SUBMIT_MS, USAGE_MS = 200.0, 60.0, 100.0, 300.0
CHOICE_MS, WAITING = 150.0, 40
BATCH = 2_000
START = datetime(2026, 1, 1, tzinfo=UTC)
PAGES = {
    "newest": "jobs",
    "by state": "jobs?state=failed",
    "by state, none": "jobs?state=rescaling",
    "by project": "jobs?project=p7",
    "by label": "jobs?label=stage=s3",
    "by label, rare": "jobs?label=unique=n77777",
    "by owner": "jobs?owner=me",
    "by name": "jobs?search=night-777",
    "by name, none": "jobs?search=no-such-name",
    "held": "jobs?on_hold=true",
    "oldest first": "jobs?ordering=number",
    "far in the list": "jobs?cursor=n50000",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--active", type=int, default=2_000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--only", default="one,three", help="clusters: one, three, by commas")
    options = parser.parse_args()
    missed = one_cluster(options) if "one" in options.only.split(",") else []
    missed += three_clusters(options) if "three" in options.only.split(",") else []
    for what in missed:
        print(f"MISSED: {what}")
    return 1 if missed else 0


def one_cluster(options: argparse.Namespace) -> list[str]:
    with running_portal(EVENKEEL_ROUND_INTERVAL_S="5", **unlimited()) as portal:
        began = time.monotonic()
        fill(portal, options.jobs, options.active)
        print(f"{options.jobs:,} finished and {options.active:,} active jobs made in {time.monotonic() - began:.0f} s")
        with portal.api() as api:
            missed = lists(portal, api, options.requests)
            missed += usage(portal, api, options.requests // 5)
            submit(api).raise_for_status()
            settle(portal)
            missed += submissions(portal, api, options.requests, "submission")
            with somebody_looks(portal):
                missed += submissions(portal, api, options.requests, "submission, watched")
            set_limits()
            missed += submissions(portal, api, options.requests, "submission, limits")
    return missed


def three_clusters(options: argparse.Namespace) -> list[str]:
    """Each of a local executor with six emulated GPUs, of which one job has all."""
    whole = {"command": "sleep 3600", "gpus": 6, "total_steps": 10**6, "throughput": {"titan_xp": [1.0] * 6}}
    small = {"command": "sleep 1", "gpus": 1, "total_steps": 1_000, "throughput": {"titan_xp": [1.0]}}
    names = ("a", "b", "c")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clusters.yaml"
        entries = (
            f"  - {{name: {name}, executor: local, settings: {{EVENKEEL_VIRTUAL_ACCELERATORS: {name}1=titan_xp:6}}}}"
            for name in names
        )
        file.write_text("\n".join(["clusters:", *entries]))
        Path(folder).chmod(0o755)
        clusters = {"EVENKEEL_CLUSTERS": str(file), "EVENKEEL_ROUND_INTERVAL_S": "5"}
        with running_portal(**clusters, **unlimited()) as portal, portal.api() as api:
            for name in names:
                first = submit(api, **whole, cluster=name).raise_for_status().json()
                portal.wait_state(first["number"], "running", "running_protected", "launching")
                for _ in range(WAITING):
                    submit(api, **whole, cluster=name).raise_for_status()
            settle(portal)
            missed = submissions(portal, api, options.requests, "three clusters", CHOICE_MS, **small)
            array = small | {"array": "0-9"}
            missed += submissions(portal, api, options.requests // 5, "the same, arrays", CHOICE_MS, **array)
            return missed


@contextlib.contextmanager
def somebody_looks(portal: LivePortal) -> Iterator[None]:
    """At the overview: live states are worked out for that."""
    from portal.live import publish

    over = threading.Event()

    def look() -> None:
        with portal.api() as api:
            while not over.is_set():
                api.get("live/cluster").raise_for_status()
                over.wait(10.0)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield
        finally:
            over.set()
        looking.result()
    time.sleep(publish.WATCH_S + 1)  # until it is forgotten: what is measured next is not watched


def fill(portal: LivePortal, finished: int, active: int) -> None:
    """Through the ORM, in the portal's own database."""
    os.environ["EVENKEEL_DATA"] = str(portal.data)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    import django

    django.setup()
    from django.db import connection

    from accounts.models import Project

    default = Project.objects.get(key="default")
    for i in range(20):
        Project.objects.get_or_create(key=f"p{i}", defaults={"name": f"P{i}", "parent": default})
    jobs = _jobs(finished, active)
    while batch := list(itertools.islice(jobs, BATCH)):
        _store(batch, finished)
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('job_number_seq', %s)", [finished + active])
        cursor.execute("ANALYZE")
    connection.close()


def _jobs(finished: int, active: int) -> Iterator[Job]:
    from accounts.models import Project, User
    from portal.jobs.models import Cluster, Job

    cluster, owner = Cluster.objects.get(), User.objects.get(is_superuser=True)
    projects = list(Project.objects.filter(key__startswith="p"))
    for i in range(1, finished + active + 1):
        yield Job(
            number=i, cluster=cluster, project=projects[i % 20], owner=owner if i % 10 == 0 else None,
            name=f"night-{i}", spec={"command": "python train.py", "gpus": {"min": 7}}, total_steps=1_000,
            batch_size=64, min_gpus=7, labels={"stage": f"s{i % 50}", "unique": f"n{i}"},
            submitted_at=START + timedelta(minutes=4 * i), run_id=uuid.uuid4(),
        )  # fmt: skip


def _store(jobs: list[Job], finished: int) -> None:
    """A job points to its run and a run to its job: both in one transaction, at the end of which that is checked."""
    from django.db import transaction

    with transaction.atomic():
        _insert(jobs, finished)


def _insert(jobs: list[Job], finished: int) -> None:
    from accounts import usage
    from accounts.models import LedgerEntry
    from portal.jobs.models import Job, Run
    from scheduling.lifecycle import State

    Job.objects.bulk_create(jobs)
    runs = []
    for job in jobs:
        at, over = job.submitted_at, job.number <= finished
        ended = {"ended_at": at + timedelta(hours=1), "step": 1_000, "has_trained": True} if over else {}
        done = State.FAILED if job.number % 9 == 0 else State.FINISHED
        state = done if over else State.WAITING_FOR_INITIAL_RESOURCE
        run = Run(id=job.run_id, job=job, state=state, state_since=at, created_at=at, reason_token="DONE", **ended)
        runs.append(run)
    Run.objects.bulk_create(runs)
    entries = [
        LedgerEntry(
            project_id=job.project_id, job_id=job.pk, run_id=run.pk, hold_id=job.number, accelerator_type="titan_xp",
            from_at=job.submitted_at, to_at=job.submitted_at + timedelta(days=1), held_us=86_400 * 10**6,
            price_micro_per_hour=350_000,
        )
        for job, run in zip(jobs, runs, strict=True)
        if job.number <= finished
    ]  # fmt: skip
    LedgerEntry.objects.bulk_create(entries)
    usage.roll_up(entries)


def lists(portal: LivePortal, api: httpx.Client, requests: int) -> list[str]:
    missed = []
    print(f"{'page of jobs':20}{'p50 ms':>10}{'p95 ms':>10}{'CPU ms':>10}{'KB':>10}{'rows':>8}")
    for name, path in PAGES.items():
        answer = api.get(path).raise_for_status()
        times, cpu_ms = timed(portal, requests, lambda path=path: api.get(path))  # type: ignore[misc]
        kb = len(answer.content) / 1000
        rows = len(answer.json()["results"])
        print(
            f"{name:20}{percentile(times, 50):10.1f}{percentile(times, 95):10.1f}{cpu_ms:10.1f}{kb:10.1f}{rows:8}",
            flush=True,
        )
        if percentile(times, 95) > LIST_MS or kb > LIST_KB:
            took = f"{percentile(times, 95):.0f} ms, {kb:.0f} KB"
            missed.append(f"list {name}: {took} of {LIST_MS:.0f} ms, {LIST_KB:.0f} KB")
    return missed


def usage(portal: LivePortal, api: httpx.Client, requests: int) -> list[str]:
    missed = []
    for group in ("project", "user", "job", "day", "month", "type"):
        path = f"usage?group_by={group}&from_day={START:%F}&to_day={START + timedelta(days=3_650):%F}"
        times, cpu_ms = timed(portal, requests, lambda path=path: api.get(path))  # type: ignore[misc]
        print(
            f"{'usage by ' + group:20}{percentile(times, 50):10.1f}{percentile(times, 95):10.1f}{cpu_ms:10.1f}",
            flush=True,
        )
        if percentile(times, 95) > USAGE_MS:
            missed.append(f"usage by {group}: {percentile(times, 95):.0f} of {USAGE_MS:.0f} ms")
    return missed


def set_limits() -> None:
    """Hard ones, above all projects, that count every active job at each submission."""
    from django.db import connection

    from accounts.models import Project, Quota

    default = Project.objects.get(key="default")
    for kind in (Quota.Kind.QUEUED_JOBS, Quota.Kind.RUNNING_JOBS, Quota.Kind.GPUS):
        Quota.objects.create(project=default, kind=kind, limit=10**6, hard=True)
    connection.close()


def submit(api: httpx.Client, **keys: Any) -> httpx.Response:
    body = {"project": "default", "command": "python train.py", "total_steps": 100, "gpus": {"min": 7}}
    return api.post("jobs", json=body | keys)


def settle(portal: LivePortal) -> None:
    """A project's first job has its runners' libraries loaded, and new tables are vacuumed: once, not at each job."""
    for _ in range(60):
        before_s = _cpu_s(portal)
        time.sleep(1.0)
        if _cpu_s(portal) - before_s < 0.4:
            return


def submissions(
    portal: LivePortal, api: httpx.Client, requests: int, name: str, most_ms: float = SUBMIT_MS, **keys: Any
) -> list[str]:
    times, cpu_ms = timed(portal, requests, lambda: submit(api, **keys))
    print(f"{name:20}{percentile(times, 50):10.1f}{percentile(times, 95):10.1f}{cpu_ms:10.1f}", flush=True)
    late = percentile(times, 95) > most_ms
    return [f"{name}: {percentile(times, 95):.0f} of {most_ms:.0f} ms"] if late else []


def timed(portal: LivePortal, requests: int, send: Callable[[], httpx.Response]) -> tuple[list[float], float]:
    """Milliseconds of each request, and of the processor's per request."""
    send().raise_for_status()
    times, before_s = [], _cpu_s(portal)
    for _ in range(requests):
        began = time.perf_counter()
        send().raise_for_status()
        times.append((time.perf_counter() - began) * 1000)
    return times, (_cpu_s(portal) - before_s) * 1000 / requests


def _cpu_s(portal: LivePortal) -> float:
    """Of all the portal's processes: rounds and live views are in it, and backends of PostgreSQL that have ended."""
    assert portal.process is not None
    total = 0.0
    for process in psutil.Process(portal.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            own = process.cpu_times()
            total += own.user + own.system + own.children_user + own.children_system
    return total


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    sys.exit(main())

"""Previews over real HTTP with 2,000 active jobs: 1,000 that hold the GPUs of 125 nodes, and 1,000 that wait.

python -m benchmarks.bench_preview [--active 2000] [--requests 100] [--forecasts 10] [--policies fifo_gang,...]

The rows are written into a portal of its own, whose rounds rest: nothing runs there. Bounds: the verdict within 300 ms
at the 95th percentile of sequential requests, each of another job file; the forecast within 3 s of being asked for;
exit code 1 where one is missed. Beside them `plan_round` alone on the same snapshot, and how long that takes to read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.live_portal import LivePortal, running_portal  # noqa: E402
from tests.supervisor.running import unlimited  # noqa: E402

VERDICT_MS, FORECAST_S = 300.0, 3.0
POLICIES = "f_scheduling,fifo_gang,multifactor,max_min_fairness,shortest_job_first"
MODELS = ("resnet50", "inception_v3", "tiny_lm", "digits_cnn")
TYPES = ("titan_xp", "v100")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--active", type=int, default=2_000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--forecasts", type=int, default=10)
    parser.add_argument("--policies", default=POLICIES)
    options = parser.parse_args()
    missed: list[str] = []
    with running_portal(EVENKEEL_ROUND_INTERVAL_S="600", **unlimited()) as portal:
        fill(portal, options.active // 2)
        heads = ("verdicts", "p50 ms", "p95 ms", "round ms", "read ms", "forecast s", "longest s")
        print(f"{'policy':20}" + "".join(f"{head:>11}" for head in heads))
        with portal.api() as api:
            for name in options.policies.split(","):
                missed += measure(api, name, options.requests, options.forecasts)
    for what in missed:
        print(f"MISSED: {what}")
    return 1 if missed else 0


def fill(portal: LivePortal, running: int) -> None:
    """Through the ORM, in the portal's own database: as many jobs that run, on a GPU each, as jobs that wait."""
    os.environ["EVENKEEL_DATA"] = str(portal.data)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    import django

    django.setup()
    from django.db import connection, transaction

    from portal.jobs.models import Accelerator, Cluster, Node

    with transaction.atomic():
        cluster = Cluster.objects.get()
        Node.objects.filter(cluster=cluster).update(drained=True)
        nodes = [Node(cluster=cluster, name=f"b{i:03}", accelerator_type=TYPES[i % 2]) for i in range(running // 8)]
        Node.objects.bulk_create(nodes)
        gpus = [Accelerator(node=node, index=i, uuid=f"{node.name}-{i}") for node in nodes for i in range(8)]
        Accelerator.objects.bulk_create(gpus)
        _jobs(cluster, gpus, running)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    connection.close()


def _jobs(cluster: Any, gpus: list[Any], running: int) -> None:
    from accounts.models import Project, User
    from portal.jobs.models import Assignment, Hold, Job, ModelType, Run, next_job_numbers
    from scheduling.lifecycle import State

    default = Project.objects.get(key="default")
    projects = [Project.objects.create(key=f"p{i}", name=f"P{i}", parent=default) for i in range(50)]
    users = [User.objects.create_user(f"u{i}@example.org") for i in range(100)]
    models = {row.name: row for row in ModelType.objects.filter(name__in=MODELS)}
    now = datetime.now(UTC)
    numbers = next_job_numbers(2 * running)
    jobs, runs, assigned, held = [], [], [], []
    for i, number in enumerate(numbers):
        model = models[MODELS[i % len(MODELS)]]
        kind = gpus[i].node.accelerator_type if i < running else None
        at = now - timedelta(minutes=2 * running - i)
        job = Job(
            number=number, cluster=cluster, project=projects[i % 50], owner=users[i % 100], name=f"job-{number}",
            model_type=model, spec={"model_type": model.name}, total_steps=50_000 + 977 * (i % 300),
            batch_size=model.default_batch_size, min_gpus=1 if kind else 1 + i % 4, max_gpus=8,
            accelerator_types=[kind] if kind else [], submitted_at=at, run_id=uuid.uuid4(),
        )  # fmt: skip
        state = State.RUNNING if kind else State.WAITING_FOR_INITIAL_RESOURCE
        has = (
            {"has_trained": True, "step": 1_000, "launch_s": 8.0, "checkpoint_s": 1.0, "running_s": 60.0}
            if kind
            else {}
        )
        run = Run(id=job.run_id, job=job, state=state, state_since=at, created_at=at, **has)
        jobs.append(job)
        runs.append(run)
        if kind:
            span = {"run": run, "accelerator": gpus[i], "epoch": 1, "during": (at, None)}
            assigned.append(Assignment(**span))
            held.append(Hold(**span))
    Job.objects.bulk_create(jobs, 1_000)
    Run.objects.bulk_create(runs, 1_000)
    Assignment.objects.bulk_create(assigned, 1_000)
    Hold.objects.bulk_create(held, 1_000)


def measure(api: httpx.Client, name: str, requests: int, forecasts: int) -> list[str]:
    from django.db import connection
    from django.utils import timezone

    from portal.jobs.models import Cluster
    from portal.snapshot.take import take_snapshot
    from scheduling.engine.rounds import plan_round
    from scheduling.policies import load_policy

    Cluster.objects.update(policy_name=name, policy_parameters=load_policy(name, {}).parameters.model_dump(mode="json"))
    cluster = Cluster.objects.get()
    began = time.perf_counter()
    snapshot = take_snapshot(cluster, timezone.now()).snapshot
    read_ms = (time.perf_counter() - began) * 1000
    began = time.perf_counter()
    plan_round(snapshot, load_policy(name, cluster.policy_parameters))
    round_ms = (time.perf_counter() - began) * 1000
    connection.close()
    ask(api, 0)
    times: list[float] = []
    waits: list[float] = []
    verdicts: set[str] = set()
    for i in range(requests):
        began = time.perf_counter()
        said = ask(api, i)
        times.append((time.perf_counter() - began) * 1000)
        verdicts.add(said["verdict"])
        if said["forecast"] and len(waits) < forecasts and i % max(1, requests // forecasts) == 0:
            waits.append(wait_for_forecast(api, said["forecast"]))
    p50, p95 = (statistics.quantiles(times, n=100, method="inclusive")[at] for at in (49, 94))
    waits = waits or [0.0]
    cells = ("/".join(sorted(verdicts)), *(f"{ms:.0f}" for ms in (p50, p95, round_ms, read_ms)))
    cells += (f"{statistics.median(waits):.2f}", f"{max(waits):.2f}")
    print(f"{name:20}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    missed = [f"{name}: verdict in {p95:.0f} of {VERDICT_MS:.0f} ms"] if p95 > VERDICT_MS else []
    if max(waits) > FORECAST_S:
        missed.append(f"{name}: forecast in {max(waits):.1f} of {FORECAST_S:.0f} s")
    return missed


def ask(api: httpx.Client, i: int) -> dict[str, Any]:
    body = {"project": f"p{i % 50}", "model_type": MODELS[i % len(MODELS)], "total_steps": 5_000 + 100 * i}
    answer = api.post("jobs/preview", json=body | {"gpus": {"min": 1 + i % 3, "max": 8}})
    said: dict[str, Any] = answer.raise_for_status().json()
    return said


def wait_for_forecast(api: httpx.Client, preview: str) -> float:
    began = time.perf_counter()
    while api.get(f"previews/{preview}").raise_for_status().json()["status"] != "done":
        if time.perf_counter() - began > 10 * FORECAST_S:
            break
        time.sleep(0.1)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())

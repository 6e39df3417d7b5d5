"""A job as the API and the live streams show it (docs/contracts.md "Job"). The number of queries does not grow with
rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import pvariance
from typing import Any
from uuid import UUID

from accounts import pricing
from portal.accounting.running_cost import CostFacts, cost_facts, so_far_products
from portal.core.money import CURRENCY, plain_amount
from portal.core.times import iso
from portal.jobfile.launchers import launcher_warnings
from portal.jobs.clusters import is_emulated
from portal.jobs.models import Job, Run
from portal.readmodels.jobs.expected_start import expected_starts
from portal.readmodels.jobs.idleness import describe_warnings
from portal.readmodels.jobs.retrying import describe_retry, reason_text
from portal.readmodels.jobs.slurm_reasons import waiting_word
from portal.readmodels.queue.order import queue_positions
from portal.snapshot.engine_limits import OwnPartitions, time_warnings
from portal.throughput.expected_end import EndFacts, end_facts, expected_end, predicted_speed, time_left_s, times_of
from portal.throughput.slowdown import relative_throughput
from scheduling.lifecycle import LIVE, QUEUED, TERMINAL, TRAINING, WAITING, State, coarse_state


@dataclass
class PageContext:
    """Data to describe jobs beyond their rows, fetched once for all of them."""

    costs: CostFacts
    ends: EndFacts
    queue: dict[UUID, int] = field(default_factory=dict)
    starts: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    idle: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    own_partitions: OwnPartitions = field(default_factory=OwnPartitions)

    @property
    def now(self) -> datetime:
        return self.ends.now


def gather(jobs: Iterable[Job], now: datetime) -> PageContext:
    jobs = list(jobs)
    waiting = [j for j in jobs if j.run and State(j.run.state) in WAITING]
    return PageContext(
        costs=cost_facts(jobs, now),
        ends=end_facts(jobs, now),
        queue=queue_positions(waiting),
        starts=expected_starts(waiting),
        idle=describe_warnings(jobs),
    )


def variance(relative: list[float]) -> float | None:
    """Population variance of relative throughputs."""
    return round(pvariance(relative), 6) if relative else None


def runs_emulated(run: Run, cluster_id: int) -> bool:
    """The job runs, or would run, on emulated accelerators."""
    return run.emulated or (State(run.state) in LIVE and is_emulated(cluster_id))


def describe_job(job: Job, ctx: PageContext) -> dict[str, Any]:
    run = job.run
    assert run is not None
    state = State(run.state)
    return {
        "id": str(job.pk),
        "number": job.number,
        "name": job.name,
        "project": {"key": job.project.key, "name": job.project.name},
        "cluster": {"name": job.cluster.name, "choice": job.cluster_choice or None},
        "owner": {"name": str(job.owner), "email": job.owner.email} if job.owner else None,
        "state": people_state(run),
        "run_state": run.state,
        "reason": {"code": run.reason_token, "text": reason_text(run), "slurm": waiting_word(job, run)},
        "retry": describe_retry(run),
        "ending": state in TERMINAL and bool(ctx.costs.holds.get(job.pk)),
        "fetching": run.fetching if state is State.LAUNCHING and run.fetching else None,
        "model_type": job.model_type.name if job.model_type else None,
        "command": job.spec.get("command"),
        "warnings": [
            *launcher_warnings(job.spec.get("command")),
            *time_warnings(
                job, run, ctx.ends.profiles.get(job.pk, {}), ctx.ends.types.get(job.cluster_id, {}), ctx.own_partitions
            ),
        ],
        "total_steps": job.total_steps,
        "step": run.step,
        "progress": round(min(1.0, run.step / job.total_steps), 6),
        "batch_size": job.batch_size,
        "gpus": {
            "min": job.min_gpus,
            "max": job.max_gpus,
            "types": job.accelerator_types,
            "share_percent": job.gpu_share_percent,
            "memory_mib": job.gpu_memory_mib or None,
        },
        "priority": job.priority,
        "nice": job.spec.get("nice", 0),
        "qos": job.qos.name if job.qos else None,
        "array": array_place(job),
        "partition": job.partition.name if job.partition else None,
        "restartable": job.can_restart(run),
        "labels": job.labels,
        "deadline_at": job.spec.get("deadline"),
        "max_cost": plain_amount(job.spec.get("max_cost")),
        "max_duration_s": job.max_duration_s,
        "hold": _hold(job) if state in LIVE else None,
        "idle": ctx.idle.get(job.pk),
        "resubmit_of": job.resubmit_of.number if job.resubmit_of else None,
        "resumed_from": _resumed_from(job),
        "emulated": runs_emulated(run, job.cluster_id),
        "pace_missed": run.pace_missed,
        "allocation": _allocation(job, run, ctx),
        **_speed(job, run, ctx),
        "protected_until_at": iso(run.protected_until),
        "submitted_at": iso(job.submitted_at),
        "started_at": iso(run.first_started_at),
        "finished_at": iso(run.ended_at),
        "queue_position": ctx.queue.get(job.pk),
        "expected_start": ctx.starts.get(job.pk),
        "times": times_of(job, run, ctx.ends),
        "resizes": int(ctx.ends.totals[job.pk]["rescales"]),
        "run": {"id": str(run.pk), "attempt": run.attempt, "epoch": run.epoch},
        "exit": _exit(run),
        "can_cancel": state in LIVE,
    }


def array_place(job: Job) -> dict[str, Any] | None:
    return {"number": job.array.number, "index": job.array_index, "size": job.array.size} if job.array else None


def _hold(job: Job) -> dict[str, Any] | None:
    if not job.hold_kind:
        return None
    by = str(job.held_by) if job.held_by else None
    return {"kind": job.hold_kind, "by": by, "at": iso(job.held_at), "text": job.hold_text}


def _resumed_from(job: Job) -> dict[str, Any] | None:
    if job.resume_step is None:
        return None
    return {"job": job.resume_job.number if job.resume_job else None, "step": job.resume_step}


def people_state(run: Run) -> str:
    """A run that trained before and holds or awaits GPUs is rescaling, in any state of its launch."""
    return coarse_state(State(run.state), rescaling=run.has_trained)


def _exit(run: Run) -> dict[str, Any] | None:
    if run.exit is None or State(run.state) not in TERMINAL:
        return None
    return {key: run.exit.get(key) for key in ("reason", "message", "exit_code", "signal")}


def _allocation(job: Job, run: Run, ctx: PageContext) -> dict[str, Any] | None:
    gpus = ctx.ends.gpus.get(run.pk)
    if not gpus:
        return None
    return {
        "type": gpus[0].node.accelerator_type,
        "count": len(gpus),
        "epoch": run.epoch,
        "gpus": [{"node": g.node.name, "index": g.index} for g in gpus],
        "share_percent": job.gpu_share_percent,
    }


def _speed(job: Job, run: Run, ctx: PageContext) -> dict[str, Any]:
    """Throughput with its source, relative throughput, expected end and cost."""
    gpus, known = ctx.ends.gpus.get(run.pk, []), ctx.ends.profiles.get(job.pk, {})
    state = State(run.state)
    predicted, source, age_s, samples = predicted_speed(job, gpus, ctx.ends)
    now_steps_per_s = run.steps_per_s if state in TRAINING else None
    relative = (
        relative_throughput(predicted, known, ctx.ends.types[job.cluster_id], job.max_gpus)
        if state not in QUEUED
        else None
    )
    left_s = time_left_s(job, run, ctx.ends)
    end, low, high = expected_end(job, run, predicted or now_steps_per_s, source or "trial", ctx.now, left_s)
    return {
        "throughput": {
            "steps_per_s": now_steps_per_s,
            "predicted_steps_per_s": predicted,
            "source": source,
            "age_s": age_s,
            "samples": samples,
        },
        "relative_throughput": round(relative, 4) if relative else None,
        "slowdown": round(1 / relative, 4) if relative else None,
        "expected_end_at": iso(end),
        "expected_end_low_at": iso(low),
        "expected_end_high_at": iso(high),
        "cost": _cost(job, run, end, ctx),
    }


def product_per_us(job: Job, ctx: PageContext) -> int:
    """Cost of its GPUs per microsecond at present prices, with its CPUs and memory."""
    gpus = ctx.ends.gpus.get(job.run_id, []) if job.run_id else []
    if not gpus:
        return 0
    nodes = len({gpu.node_id for gpu in gpus})
    return ctx.costs.book.product_per_us(
        job.project_id,
        gpus[0].node.accelerator_type,
        ctx.now,
        gpu_hundredths=job.gpu_share_percent * len(gpus),
        cpus=nodes * int(job.spec.get("cpus") or 0),
        memory_mib=nodes * int(job.spec.get("memory") or 0),
        cluster=job.cluster.name,
    )


def _cost(job: Job, run: Run, end: datetime | None, ctx: PageContext) -> dict[str, Any]:
    spent = so_far_products(job, ctx.costs)
    estimated = None
    if end is not None:
        estimated = spent + product_per_us(job, ctx) * max(0, (end - ctx.now) // timedelta(microseconds=1))
    elif State(run.state) in TERMINAL:
        estimated = spent
    return {
        "so_far": str(pricing.amount(spent)),
        "estimated": str(pricing.amount(estimated)) if estimated is not None else None,
        "currency": CURRENCY,
    }


def describe_jobs(jobs: Iterable[Job], now: datetime) -> list[dict[str, Any]]:
    jobs = list(jobs)
    ctx = gather(jobs, now)
    return [describe_job(job, ctx) for job in jobs]

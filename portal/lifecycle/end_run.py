"""Ends runs, and explains how they ended."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from psycopg2.extras import DateTimeTZRange

from accounts import ledger
from accounts.text import shown
from portal.accounting import hold_costs
from portal.core import wake
from portal.core.times import engines_time, from_posix
from portal.jobs import events
from portal.jobs.models import Assignment, Hold, Run
from portal.lifecycle.allocations import end_assignments, end_processes, start_run
from portal.lifecycle.retries import in_short, judge_retry
from portal.lifecycle.transitions import Why, kept_why, move
from portal.storage import checkpoints
from portal.throughput.available import cluster_types
from portal.throughput.job_profiles import job_profiles
from portal.throughput.slowdown import final_slowdown
from scheduling.domain.reason_codes import ReasonCode
from scheduling.executors.base import ExitInfo, Fact
from scheduling.lifecycle import Event, State

#: Exits in these states are requested stops, whatever their exit code: the run continues from its last checkpoint.
_LEAVING = (State.CHECKPOINTING, State.STOPPING)


def end_holds(run: Run, fact: Fact) -> bool:
    """Close the occupancy of one launch and enter its cost in the ledger."""
    holds = Hold.objects.select_for_update(of=("self",)).filter(run=run, epoch=fact.epoch, during__upper_inf=True)
    ended, seen_at = [], from_posix(fact.at)
    for hold in holds:
        start, end = engines_time(hold.started_at, fact)
        end = max(end, start + timedelta(microseconds=1))
        Hold.objects.filter(pk=hold.pk).update(during=DateTimeTZRange(start, end))
        ended.append(hold.pk)
    ledger.record_holds(hold_costs.held(Hold.objects.filter(pk__in=ended), seen_at))
    return bool(ended)


def settle(run: Run, info: ExitInfo, at: datetime) -> None:
    """Handle the end of all processes of the run's present launch."""
    state, name = State(run.state), f"#{run.job.number} {run.job.name}"
    exit_columns: dict[str, Any] = {"exit": asdict(info)}
    if info.reason == "done" and _has_grown(run, info):
        _stopped(run, at, name)
    elif info.reason == "done":
        step = max(run.step, info.step or 0) if run.uses_sdk else run.job.total_steps
        text = f"{name} finished all of its steps ({run.job.total_steps:,})"
        move(run, Event.STEPS_DONE, at=at, text=text, step=step, slowdown=_slowdown(run, at), **exit_columns)
        end_assignments(run, at)
    elif info.engine_limit and state not in _LEAVING and not run.job.can_restart(run):
        fail(run, replace(info, reason="time_limit"), at)
    elif state in _LEAVING or info.engine_limit:
        _stopped(run, at, name, info.message)
    elif info.reason == "stopped" and not run.job.can_restart(run):
        said = info.message or "It was stopped from outside: by its lease, its engine, or a signal"
        text = f"{said}. Its program cannot resume from a checkpoint"
        fail(run, replace(info, reason="runner_lost", message=text, nodes_fault=False, alleged=False), at)
    elif info.reason == "stopped":
        _stopped(run, at, name, info.message)
    else:
        fail(run, info, at)


def _slowdown(run: Run, at: datetime) -> float | None:
    types = cluster_types(run.job.cluster_id)
    return final_slowdown(run.job, job_profiles([run.job], types)[run.job_id], types, at)


def _has_grown(run: Run, info: ExitInfo) -> bool:
    """The program did all steps it knew of, but the job has more by now: the next launch continues."""
    done = max(run.step, info.step or 0)
    known = run.launched_steps or run.job.total_steps
    return run.uses_sdk is not False and known <= done < run.job.total_steps


def _stopped(run: Run, at: datetime, name: str, said: str = "") -> None:
    """The processes stopped on request, or by themselves with a checkpoint (a lease, a signal). `said`: the cause, if
    known."""
    if State(run.state) not in _LEAVING:
        end_assignments(run, at)
        because = f" ({shown(said, MAX_MESSAGE)})" if said else ""
        move(run, Event.REALLOCATED, at=at, text=f"{name} stopped with a checkpoint{because}")
    if State(run.state) is State.CHECKPOINTING:
        text = f"{name} stopped at step {run.checkpoint_step:,}"
        move(run, Event.CHECKPOINTED, at=at, text=text, why=kept_why(run))
    why = kept_why(run)
    if Assignment.objects.filter(run=run, during__upper_inf=True).exists():
        text = f"{name} is moving to its new GPUs"
        move(run, Event.STOPPED_REASSIGNED, at=at, text=text, why=why, step=F("checkpoint_step"))
    else:
        text = f"{name} is queued again from step {run.checkpoint_step:,}"
        move(run, Event.STOPPED_EMPTY, at=at, text=text, why=why, step=F("checkpoint_step"))
    run.refresh_from_db(fields=["step"])


def fail(run: Run, info: ExitInfo, at: datetime) -> None:
    """End this run as failed, and queue another attempt if the job's limit allows it."""
    job = run.job
    info = replace(info, message=shown(info.message, MAX_MESSAGE))
    why = explain_exit(info, run)
    end_assignments(run, at)
    end_processes(run, at)
    move(
        run,
        Event.FAIL,
        at=at,
        text=f"#{job.number} {job.name} failed: {why}",
        why=Why(info.reason.upper(), why),
        exit=asdict(info) | {"nodes_fault": info.is_nodes_fault},
    )
    verdict = judge_retry(job, run, info)
    if not verdict.again:
        if verdict.text:
            Run.objects.filter(pk=run.pk).update(reason_text=joined(why, verdict.text))
        return
    backoff_s = verdict.backoff_s
    retry = start_run(
        job,
        attempt=run.attempt + 1,
        now=at,
        not_before=at + timedelta(seconds=backoff_s),
        retry_why=in_short(info),
        retry_of=verdict.of,
        step=run.checkpoint_step,
        checkpoint_step=run.checkpoint_step,
        has_trained=run.has_trained,
        uses_sdk=run.uses_sdk,
        first_started_at=run.first_started_at,
        launch_s=run.launch_s,
        checkpoint_s=run.checkpoint_s,
    )
    text = f"#{job.number} is tried again in {backoff_s:.0f} s from step {run.checkpoint_step:,} ({why})"
    Run.objects.filter(pk=retry.pk).update(reason_token=ReasonCode.RETRY, reason_text=text)
    events.append(kind="retry", job=job, run=retry, at=at, text=text)
    transaction.on_commit(wake.schedule_round)


def upload_s(cluster_id: int) -> float:
    """How much longer a stop may take if its checkpoint goes into a store."""
    store = checkpoints.configured(cluster_id)
    return float(store.end_s) if store else 0.0


#: PyTorch's words if its allocator was limited by the SDK; other jobs may use the device, too.
_BY_ITS_LIMIT = "allowed; "

#: The runner's words if the job exceeded its `memory`.
_OF_THE_NODE = "used more than its"


def joined(why: str, text: str) -> str:
    """Joins two sentences; the text of a program may end without a full stop."""
    return f"{why}{'' if why.endswith(('.', '!', '?')) else '.'} {text}"


_AT_ENGINES_LIMIT = (
    "The engine's time limit ended it (in Slurm the partition's, or EVENKEEL_SLURM_TIME), and its program cannot "
    "resume from a checkpoint, so it is not started again. Let it write checkpoints (docs/training.md), say "
    "restartable: true where it continues by itself, make it shorter, or ask for a longer limit. What it saved in "
    "EVENKEEL_ARTIFACT_DIR can be downloaded."
)


def explain_exit(info: ExitInfo, run: Run | None = None) -> str:
    said = f" It said: {info.message}" if info.message else ""
    match info.reason:
        case "user_error":
            return f"The program ended with exit code {info.exit_code}.{said}"
        case "signal":
            return f"A process was ended by signal {info.signal}.{said}"
        case "out_of_memory":
            return f"{_out_of_memory(info, run)}{said}"
        case "time_limit" if info.engine_limit:
            return f"{_AT_ENGINES_LIMIT}{said}"
        case "time_limit":
            return f"It trained for as long as its max_duration allows. {_after_time_limit(info, run)}{said}"
        case "not_prepared":
            return info.message or "Its code or environment cannot be had."
        case "data_unavailable":
            return f"Its data cannot be had: {info.message}"
        case "launch_failed":
            return info.message if info.permanent and info.message else f"It could not be started.{said}"
        case "runner_lost":
            return info.message or "Its processes are gone and left no word."
        case _:
            return f"It ended ({info.reason}).{said}"


def _out_of_memory(info: ExitInfo, run: Run | None) -> str:
    gpu_memory_mib = run.job.gpu_memory_mib if run else 0
    if gpu_memory_mib and _BY_ITS_LIMIT in info.message:
        limit = f"the {gpu_memory_mib:,} MiB that it may use of a GPU"
        return f"It ran out of {limit}. More of it (gpus.memory) or a smaller batch may help."
    if _OF_THE_NODE in info.message:
        return "It ran out of memory. More of it (memory) may help."
    more = "" if run and run.job.max_gpus == run.job.min_gpus else " or more GPUs"
    return f"It ran out of memory. A smaller batch{more} may help."


def _after_time_limit(info: ExitInfo, run: Run | None) -> str:
    if run and 0 < run.checkpoint_step < run.job.total_steps:
        return "Resubmit it with resume_from: latest to continue."
    longer = "Resubmit it with a larger max_duration to let it run for longer."
    if run and run.uses_sdk is False:
        return f"What it saved in EVENKEEL_ARTIFACT_DIR can be downloaded. {longer}"
    return f"It wrote no checkpoint. {longer}"


#: Limits of texts by a program, a runner or a package manager.
MAX_MESSAGE = 1_500

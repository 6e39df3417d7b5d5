"""Explains a job's state: its reason, the jobs ahead, what was considered, and what would change it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from accounts.models import User
from accounts.selectors import visible_projects
from portal.core.times import iso
from portal.jobs.models import Cluster, Decision, Job, Run
from portal.lifecycle.job_limits import deadline_sentence
from portal.readmodels.cluster.catalogue import redact_foreign_job
from portal.readmodels.jobs.displacement import describe_displacement
from portal.readmodels.jobs.retrying import reason_text
from portal.readmodels.jobs.slurm_reasons import obstacle, waiting_word
from portal.readmodels.jobs.summary import array_place, people_state, runs_emulated, variance
from portal.readmodels.queue.contenders import OpenNodes, waits_for_gpus
from portal.readmodels.queue.order import queue_order
from portal.snapshot.take import take_snapshot
from portal.throughput.available import cluster_types
from portal.throughput.expected_end import end_facts
from portal.throughput.job_profiles import job_profiles
from portal.throughput.slowdown import alone_steps_per_s
from scheduling import domain
from scheduling.domain.reason_codes import ReasonCode, find_code
from scheduling.lifecycle import TERMINAL, State
from scheduling.policies import policy_class
from scheduling.throughput.curves import Profile

MAX_AHEAD = 20
#: Number of jobs ahead that are listed.
_MOST_LOOKED_AT = 300
MAX_WEIGHED = 50


def explain_job(user: User, job: Job) -> dict[str, Any]:
    run = job.run
    assert run is not None
    decision = _decision(job)
    detail = {key: value for key, value in run.reason_detail.items() if key != "by"}
    ended = State(run.state) in TERMINAL
    mine = set(visible_projects(user).values_list("pk", flat=True))
    ahead, apart = ([], 0) if ended else _ahead(job, mine)
    return {
        "number": job.number,
        "array": array_place(job),
        "code": run.reason_token,
        "text": reason_text(run, timezone.now()),
        "at": iso(decision.at if decision else run.state_since),
        "round": decision.round if decision else None,
        "checked_at": iso(job.cluster.last_round_at),
        "preemption": describe_displacement(job, run, mine),
        "ahead": ahead,
        "apart": apart,
        "slurm": waiting_word(job, run),
        "weighed": [] if ended else _weighed(job, mine),
        "would_change": None if ended else _way_out_of(job, run, detail),
        "deadline": None if ended else deadline_sentence(job, end_facts([job], timezone.now())),
        "emulated": runs_emulated(run, job.cluster_id),
        "detail": detail,
    }


def _decision(job: Job) -> Decision | None:
    """The newest stored decision that mentions the job."""
    assert job.run is not None
    newest = Decision.objects.filter(cluster=job.cluster, at__gte=job.submitted_at, plan__reasons__has_key=str(job.pk))
    if job.run.ended_at:
        newest = newest.filter(at__lte=job.run.ended_at)
    return newest.defer("snapshot", "plan").order_by("-round").first()


def _way_out_of(job: Job, run: Run, detail: Mapping[str, Any]) -> str | None:
    text = way_out(job.cluster, obstacle(job, run), detail)
    return text and (text if run.checkpoint_step else text.replace("resumes from its checkpoint", "starts again"))


def way_out(cluster: Cluster, obstacle: str, detail: Mapping[str, Any]) -> str | None:
    """What would let a job with this reason token start."""
    if obstacle == ReasonCode.PRIORITY and cluster.policy_parameters.get("backfill") == "none":
        return "It starts after those ahead of it: the policy does not backfill (backfill: none)."
    if obstacle == ReasonCode.RESOURCES and "needs" not in detail:
        return (
            "It starts when a job ends and leaves enough of what it is short of; asking for less lets it start sooner."
        )
    code = find_code(obstacle)
    if code is None or not code.row.way_out:
        return None
    try:
        return _one_gpu(code.row.way_out.format(**detail))
    except KeyError:
        return None


def _one_gpu(text: str) -> str:
    """The sentences say GPUs; for a single one, GPU."""
    text = re.sub(r"(?<![\d.,])1 (more )?GPUs\b", r"1 \1GPU", text)
    return re.sub(r"(?<![\d.,])1 (× \S+|GPU(?: of partition \S+)?) are free", r"1 \1 is free", text)


def _ahead(job: Job, mine: set[int]) -> tuple[list[dict[str, Any]], int]:
    """Jobs ahead of this one in the queue that could take the same GPUs, and how many more there are among the first of
    the queue; names only of the user's own."""
    positions = queue_order(job.cluster)
    if job.pk not in positions:
        return [], 0
    before = [pk for pk, position in positions.items() if position < positions[job.pk]][:_MOST_LOOKED_AT]
    now = timezone.now()
    places = OpenNodes(job.cluster, now)
    rows = Job.objects.select_related("run").prefetch_related("project", "model_type", "array")
    found = rows.filter(pk__in=before).in_bulk()
    waiting = [other for pk in before if (other := found.get(pk)) and waits_for_gpus(other, now)]
    known = job_profiles([job, *waiting], cluster_types(job.cluster_id))
    own = places.of(job, known[job.pk])
    competing = [other for other in waiting if not own.isdisjoint(places.of(other, known[other.pk]))]
    shown = [
        redact_foreign_job(other, mine)
        | {
            "array": array_place(other),
            "gpus": other.min_gpus,
            "share_percent": other.gpu_share_percent,
            "state": people_state(other.run),
        }
        for other in competing[:MAX_AHEAD]
        if other.run
    ]
    return shown, len(before) - len(competing)


def _weighed(job: Job, mine: set[int]) -> list[dict[str, Any]]:
    """What one more GPU would bring to each of the user's running jobs, and the resulting variance."""
    if not policy_class(job.cluster.policy_name).capabilities.elastic:
        return []
    snapshot = take_snapshot(job.cluster, timezone.now()).snapshot
    types: dict[str, int] = {}
    for node in snapshot.nodes:
        if not node.lost:
            types[node.type] = types.get(node.type, 0) + len(node.gpu_ids)
    shares = {held.id: _share(held, 0, types) for held in snapshot.jobs if held.gang}
    names = dict(Job.objects.filter(pk__in=list(shares), project__in=mine).values_list("pk", "name"))
    weighed: list[dict[str, Any]] = []
    for held in snapshot.jobs:
        name = next((name for pk, name in names.items() if str(pk) == held.id), None)
        if held.gang is None or name is None or held.gang.type not in held.curves:
            continue
        curve, count = held.curves[held.gang.type], held.gang.count
        weighed.append(
            {
                "number": held.number,
                "name": name,
                "gain_steps_per_s": curve.at(count + 1) - curve.at(count),
                "variance": variance([*(shares | {held.id: _share(held, 1, types)}).values()]),
            }
        )
    return sorted(weighed, key=lambda entry: -entry["gain_steps_per_s"])[:MAX_WEIGHED]


def _share(job: domain.Job, more: int, types: dict[str, int]) -> float:
    """Relative throughput of a job with this many more GPUs."""
    assert job.gang is not None
    alone = alone_steps_per_s({kind: Profile(curve, {}) for kind, curve in job.curves.items()}, types, job.max_gpus)
    curve = job.curves.get(job.gang.type)
    return curve.at(job.gang.count + more) / alone if curve and alone else 0.0

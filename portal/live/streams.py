"""Contents of live streams: the cluster for all signed-in users, a project for its members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q

from accounts import usage
from accounts.ledger import current_prices
from accounts.models import Project
from accounts.pricing import amount, from_micro
from accounts.quotas import gpu_limits, month_budget_micro, period_of
from portal.accounting.hold_costs import product_of
from portal.core.money import CURRENCY
from portal.core.renamed import serve_both
from portal.core.times import iso
from portal.jobfile.gpu_text import gpus_of
from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs import events
from portal.jobs.access import described_jobs, in_states
from portal.jobs.clusters import active_clusters, is_emulated, speedup
from portal.jobs.engine_names import engine_name
from portal.jobs.loops import Item, Loop, LoopName, of_job
from portal.jobs.models import Accelerator, Assignment, Cluster, Hold, Job, JobEvent
from portal.jobs.occupancy import KINDS
from portal.readmodels.cluster.engine_jobs import first_end
from portal.readmodels.jobs.summary import PageContext, describe_job, gather, variance
from portal.readmodels.queue.contenders import OpenNodes, could_start, first_by_node
from portal.snapshot.engine_jobs import taken_gpus
from portal.throughput.expected_end import settled_times
from scheduling.lifecycle import LIVE, WAITING, State

RECENT = timedelta(hours=1)
MAX_ENDED, MAX_EVENTS = 200, 50


def build(now: datetime, only: str | None = None) -> dict[str, dict[str, Any]]:
    """stream -> state, for all streams or one; a handful of queries whatever the number of jobs."""
    clusters = {stream_of(cluster, place): cluster for place, cluster in enumerate(active_clusters())}
    if not clusters:
        return {}
    live = list(described_jobs().filter(in_states(LIVE)))
    ended = described_jobs().filter(run__ended_at__gt=now - RECENT).order_by("-run__ended_at")
    recent = list(ended[:MAX_ENDED])
    loop = Loop(LoopName.LIVE, postpones=False)
    ctx = loop.most(live + recent, of_job, lambda jobs: gather(jobs, now))
    described = _described(live + recent, ctx)
    live, recent = ([job for job in jobs if job.pk in described] for jobs in (live, recent))
    streams: dict[str, dict[str, Any]] = {}
    for stream, cluster in clusters.items():
        if only in (None, stream):
            there = [job for job in live if job.cluster_id == cluster.pk]
            own = {job.pk: described[job.pk] for job in live + recent if job.cluster_id == cluster.pk}
            _add(streams, stream, loop.run(_of_stream(stream), _cluster, cluster, there, own, ctx))
    if only is None or only.startswith("project:"):
        by_project: dict[int, dict[str, Any]] = defaultdict(dict)
        for job in live + recent:
            by_project[job.project_id][str(job.number)] = described[job.pk]
        limits = gpu_limits()
        wanted = Project.objects.all() if only is None else Project.objects.filter(key=only.removeprefix("project:"))
        for project in wanted:
            stream, jobs = f"project:{project.key}", by_project[project.pk]
            _add(streams, stream, loop.run(_of_stream(stream), _project, project, jobs, limits.get(project.pk)))
    return streams


def _of_stream(stream: str) -> Item:
    return Item(stream, f"stream {stream}")


def _add(streams: dict[str, dict[str, Any]], stream: str, state: dict[str, Any] | None) -> None:
    """A stream that cannot be described keeps its last published state."""
    if state is not None:
        streams[stream] = state


def stream_of(cluster: Cluster, place: int) -> str:
    """The first cluster's stream has no suffix, as when there was only one."""
    return f"cluster:{cluster.name}" if place else "cluster"


def _described(jobs: list[Job], ctx: PageContext) -> dict[UUID, dict[str, Any]]:
    """A job that cannot be described is left out and logged: it must not stop the streams of all others. For a waiting
    job nothing grows with the clock, or each publication would send the whole queue again."""

    def describe(some: Sequence[Job]) -> list[tuple[UUID, dict[str, Any]]]:
        return [(job.pk, _old_too(describe_job(job, ctx) | {"times": settled_times(job, ctx.ends)})) for job in some]

    return dict(Loop(LoopName.LIVE, postpones=False).together(jobs, of_job, describe))


def _old_too(job: dict[str, Any]) -> dict[str, Any]:
    """With the names that members had before (`portal.core.renamed`)."""
    serve_both("Reason", job["reason"])
    if (start := job["expected_start"]) and start["reason"]:
        serve_both("Reason", start["reason"])
    return serve_both("Job", job)


def describe_event(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.pk,
        "at": iso(event.at),
        "kind": event.kind,
        "job": _named(event.job, event.project_id) if event.job else None,
        "project": event.project.key if event.project else None,
        "text": event.text,
        "detail": event.detail,
        "to_state": event.to_state,
    }


def _named(job: Job, project_id: int | None) -> dict[str, Any]:
    """In the events of a project that it has left, a job is shown by its number only: its name belongs to its new
    project."""
    return {"number": job.number, "name": job.name if job.project_id == project_id else ""}


def _events(condition: Q) -> dict[str, Any]:
    """The newest few. One short read of the (project, id) index for each stream: ranking all projects in one query
    would read every stored event."""
    newest = JobEvent.objects.filter(condition).select_related("job", "project").order_by("-id")[:MAX_EVENTS]
    return {str(event.pk): describe_event(event) for event in newest}


def _project(project: Project, jobs: dict[str, Any], quota: int | None) -> dict[str, Any]:
    gangs = [job["allocation"] for job in jobs.values() if job["allocation"] and job["state"] != "queued"]
    held = gpus_of(sum(gang["count"] * gang["share_percent"] for gang in gangs))
    return {
        "project": serve_both(
            "Project", {"key": project.key, "name": project.name, "gpu_limit": quota, "gpus_allocated": held}
        ),
        "jobs": jobs,
        "events": _events(Q(project=project)),
    }


def _cluster(cluster: Cluster, live: list[Job], described: dict[Any, Any], ctx: PageContext) -> dict[str, Any]:
    cluster_events = _events(Q(project=None) & events.of_cluster(cluster))
    newest = JobEvent.objects.order_by("-id").values_list("at", flat=True).first()
    waiting = sorted((j for j in live if j.pk in ctx.queue), key=lambda j: (ctx.queue[j.pk], j.number))
    first = first_by_node(waiting, OpenNodes(cluster, ctx.now), ctx.ends.profiles, ctx.now) if waiting else {}
    nodes = _nodes(cluster, ctx, first, hungry=any(could_start(j, ctx.now) for j in live))
    return {
        "cluster": {
            "name": cluster.name,
            "speedup": speedup(cluster.pk),
            "emulated": is_emulated(cluster.pk),
            "currency": CURRENCY,
            "round": cluster.round_epoch,
            "policy": {
                "name": cluster.policy_name,
                "parameters": cluster.policy_parameters,
                "v_bound": cluster.policy_parameters.get("v_bound"),
            },
            "last_event_at": iso(newest),
            "problem": cluster.last_error or None,
            "engine": engine_name(cluster),
            "engine_away_since_at": iso(cluster.engine_away_since),
            "rejected": cluster.figures.get("rejected"),
        },
        "tiles": _tiles(cluster, live, described, nodes, ctx),
        "nodes": nodes,
        "jobs": {
            str(j.number): {
                "number": j.number,
                "project": j.project.name,
                "state": described[j.pk]["state"],
                "gpus": (described[j.pk]["allocation"] or {}).get("count", 0),
                "share_percent": j.gpu_share_percent if j.gpu_share_percent < WHOLE_PERCENT else None,
            }
            for j in live
        },
        "queue": [j.number for j in waiting],
        "events": cluster_events,
    }


def _tiles(
    cluster: Cluster, live: list[Job], described: dict[Any, Any], nodes: dict[str, Any], ctx: PageContext
) -> dict[str, Any]:
    cells = [cell for node in nodes.values() for cell in node["accelerators"].values()]
    busy, others = (sum(cell["state"] == state for cell in cells) for state in ("held", "others"))
    ours = len(cells) - others
    relative = sorted(
        d["relative_throughput"] for d in described.values() if d["relative_throughput"] and d["can_cancel"]
    )
    mean = sum(relative) / len(relative) if relative else None
    waiting = [j for j in live if j.run and State(j.run.state) in WAITING]
    month, _ = period_of("month", ctx.now)
    spent = sum((money for _, money in usage.totals_since(month.date()).values()), Decimal(0))
    held_now = sum((product_of(ctx.costs.book, holds, month) for holds in ctx.costs.holds.values()), Decimal(0))
    budget = month_budget_micro()
    prices = current_prices(ctx.now, cluster.name)
    per_hour = sum(prices.get(node["type"], 0) * _held_percent(node) for node in nodes.values()) // WHOLE_PERCENT
    return {
        "gpus_total": ours,
        "gpus_busy": busy,
        "gpus_others": others,
        "utilisation": round(busy / ours, 4) if ours else 0,
        "running": sum(d["state"] == "running" for d in described.values()),
        "queued": len(waiting),
        "oldest_wait_since_at": iso(min((j.submitted_at for j in waiting), default=None)),
        "variance": variance(relative),
        "v_bound": cluster.policy_parameters.get("v_bound"),
        "mean_relative_throughput": round(mean, 4) if mean else None,
        "relative_throughputs": relative,
        "spend_per_hour": str(round(from_micro(per_hour), 2)),
        "spend_month": str(amount(spent + held_now, 2)),
        "budget_month": None if budget is None else str(round(from_micro(budget), 2)),
    }


def _nodes(cluster: Cluster, ctx: PageContext, first: Mapping[str, int], *, hungry: bool) -> dict[str, Any]:
    held = _by_accelerator(Hold)
    assigned = _by_accelerator(Assignment)
    prices = current_prices(ctx.now, cluster.name)
    nodes: dict[str, Any] = {}
    taken, ends = taken_gpus([cluster.pk]), defaultdict[str, list[float | None]](list)
    present = Accelerator.objects.filter(node__cluster=cluster, present=True).select_related("node")
    for gpu in present.order_by("node__name", "index"):
        node = nodes.setdefault(
            gpu.node.name,
            {
                "type": gpu.node.accelerator_type,
                "emulated": gpu.node.emulated,
                "schedulable": gpu.node.schedulable,
                "withheld": gpu.node.check_state or ("unclear" if gpu.node.unclear else None),
                "drained": gpu.node.drained,
                "lost": gpu.node.lost,
                "memory_mib": gpu.memory_mib,
                "cpus": gpu.node.cpus,
                "host_memory_mib": gpu.node.memory_mib,
                "accelerators": {},
                "gpus": 0,
                "allocated": 0,
            },
        )
        cell = _cell(gpu, held, assigned, taken)
        node["accelerators"][str(gpu.index)] = cell
        node["gpus"] += 1
        node["allocated"] += cell["state"] == "held"
        if cell["state"] == "others":
            ends[gpu.node.name].append(taken[gpu.pk])
    for name, node in nodes.items():
        node["first_waiting"] = first.get(name)
        per_hour = prices.get(node["type"], 0) * _held_percent(node) // WHOLE_PERCENT
        node["price_per_hour"] = str(round(from_micro(per_hour), 2))
        node["others"], node["others_until_at"] = len(ends[name]), first_end(ends[name])
        if node["allocated"] + node["others"] < node["gpus"]:
            node["free_reason"] = _free_reason(node, hungry)
        serve_both("LiveNode", node)
    return nodes


def _held_percent(node: Mapping[str, Any]) -> int:
    cells = node["accelerators"].values()
    return sum(WHOLE_PERCENT - cell.get("free_percent", 0) for cell in cells if cell["state"] == "held")


@dataclass(frozen=True, slots=True)
class _Part:
    """The share of an accelerator that a job has."""

    job: int
    state: str
    percent: int

    def shown(self) -> dict[str, Any]:
        kind = KINDS.get(State(self.state), "moving")
        return {"job": self.job, "kind": kind, "share_percent": self.percent}


def _by_accelerator(model: type[Hold] | type[Assignment]) -> dict[int, list[_Part]]:
    """The largest first."""
    rows = model.objects.filter(during__upper_inf=True).order_by("-share_percent", "run__job__number")
    found: dict[int, list[_Part]] = defaultdict(list)
    for gpu, job, state, percent in rows.values_list(
        "accelerator_id", "run__job__number", "run__state", "share_percent"
    ):
        found[gpu].append(_Part(job, state, percent))
    return found


def _cell(
    gpu: Accelerator, held: Mapping[int, list[_Part]], assigned: Mapping[int, list[_Part]], taken: Collection[int]
) -> dict[str, Any]:
    if parts := held.get(gpu.pk):
        here = {part.job for part in parts}
        following = next((part.job for part in assigned.get(gpu.pk, ()) if part.job not in here), None)
        first = parts[0].shown()
        return {"state": "held", "job": first["job"], "kind": first["kind"], "next": following, **_shared(parts)}
    if parts := assigned.get(gpu.pk):
        return {"state": "assigned", "job": parts[0].job, "kind": "moving", **_shared(parts)}
    return {"state": "draining" if not gpu.node.schedulable else "others" if gpu.pk in taken else "free"}


def _shared(parts: list[_Part]) -> dict[str, Any]:
    free = WHOLE_PERCENT - sum(part.percent for part in parts)
    return {"parts": [part.shown() for part in parts], "free_percent": free} if len(parts) > 1 or free else {}


_WITHHELD = {
    "checking": "being checked",
    "failed": "failed its check",
    "unclear": "its engine does not say whether the node is up",
}


def _free_reason(node: dict[str, Any], hungry: bool) -> str:
    if node["lost"]:
        return "lost"
    if node["drained"]:
        return "drained"
    if node["withheld"]:
        return _WITHHELD[node["withheld"]]
    if node["first_waiting"] is not None:
        return "too few for the queue"
    return "no job that waits could have them now" if hungry else "no job gains"

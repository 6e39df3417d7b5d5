"""The catalogue of a cluster: programs, accelerator types, nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from accounts.ledger import current_prices
from accounts.pricing import from_micro
from portal.core.money import CURRENCY
from portal.core.times import iso
from portal.jobs.models import Accelerator, Assignment, Cluster, Hold, Job, ModelType, Node
from portal.jobs.occupancy import KINDS
from portal.readmodels.cluster.engine_jobs import describe_taken
from portal.snapshot.engine_jobs import taken_gpus
from portal.throughput import profiles
from portal.throughput.available import cluster_types
from scheduling.throughput.curves import Profile

TITLES = {
    "titan_xp": "NVIDIA TITAN Xp",
    "v100": "NVIDIA V100",
    "l40s": "NVIDIA L40S",
    "h200": "NVIDIA H200",
    "cpu": "CPU",
}


def describe_model_types(cluster: Cluster, now: datetime) -> list[dict[str, Any]]:
    """The catalogue with its curves on the cluster's accelerator types: two queries and one for measurements."""
    # an emulated pace says nothing about a program
    trained = Q(jobs__runs__has_trained=True, jobs__runs__emulated=False)
    rows = list(ModelType.objects.filter(enabled=True).annotate(runs_seen=Count("jobs__runs", filter=trained)))
    types = cluster_types(cluster.pk)
    measured = profiles.measured_numbers((row.name for row in rows), cluster.pk)
    return [_model_type(row, cluster, types, measured, now) for row in rows]


def _model_type(
    row: Any, cluster: Cluster, types: Mapping[str, int], measured: Mapping[Any, Any], now: datetime
) -> dict[str, Any]:
    """`row` is a ModelType with its number of runs."""
    job = Job(cluster=cluster, model_type=row, batch_size=row.default_batch_size, spec={}, min_gpus=1)
    known = profiles.profiles_of(job, types, measured)
    return {
        "name": row.name,
        "title": row.title,
        "description": row.description,
        "default_batch_size": row.default_batch_size,
        "curves": {kind: describe_curve(p, now) for kind, p in known.items() if p.curve.source != "trial"},
        "runs_seen": row.runs_seen,
    }


def describe_curve(profile: Profile, now: datetime) -> dict[str, Any]:
    """A curve with the numbers behind it, each with its source, age and error bar."""
    ages = [number.age_s(now.timestamp()) for number in profile.numbers.values()]
    return {
        "steps_per_s": list(profile.curve.steps_per_s),
        "source": profile.curve.source,
        "age_s": min((age for age in ages if age is not None), default=None),
        "samples": sum(number.samples for number in profile.numbers.values()),
        "points": [
            {
                "count": count,
                "steps_per_s": number.steps_per_s,
                "source": number.source,
                "age_s": number.age_s(now.timestamp()),
                "samples": number.samples,
                "relative_error": number.relative_error,
            }
            for count, number in profile.numbers.items()
        ],
    }


def known_accelerator_types() -> set[str]:
    """Types that nodes have or had, and those that the portal knows by name."""
    return {*TITLES, *Node.objects.values_list("accelerator_type", flat=True)}


def describe_accelerator_types(cluster: Cluster, now: datetime) -> list[dict[str, Any]]:
    prices = current_prices(now, cluster.name)
    groups: dict[str, list[Accelerator]] = defaultdict(list)
    for gpu in Accelerator.objects.filter(node__cluster=cluster, present=True).select_related("node"):
        groups[gpu.node.accelerator_type].append(gpu)
    return [
        {
            "name": kind,
            "title": TITLES.get(kind, kind),
            "count": len(gpus),
            "memory_mib": min(gpu.memory_mib for gpu in gpus),
            "price_per_gpu_hour": str(from_micro(prices[kind])) if kind in prices else None,
            "currency": CURRENCY,
            "emulated": any(gpu.node.emulated for gpu in gpus),
        }
        for kind, gpus in sorted(groups.items())
    ]


def describe_nodes(
    nodes: Sequence[Node],
    project_ids: set[int],
    drains: Mapping[int, dict[str, Any]],
    checks: Mapping[int, dict[str, Any]],
) -> list[dict[str, Any]]:
    """Nodes with their jobs; names of jobs only for the given projects. `drains`: of drained nodes."""
    ids = [node.pk for node in nodes]
    gpus = _gpus(ids)
    held, assigned = _occupants(Hold, ids, project_ids), _occupants(Assignment, ids, project_ids)
    taken = taken_gpus({node.cluster_id for node in nodes})
    return [
        _node(node, gpus[node.pk], held, assigned, taken) | {"drain": drains.get(node.pk), "check": checks[node.pk]}
        for node in nodes
    ]


@dataclass(slots=True)
class _Gpu:
    pk: int
    index: int
    uuid: str
    memory_mib: int


def _gpus(node_ids: list[int]) -> dict[int, list[_Gpu]]:
    """Present GPUs by node; for a thousand nodes in one query and without an ORM object for each."""
    found: dict[int, list[_Gpu]] = defaultdict(list)
    rows = Accelerator.objects.filter(node__in=node_ids, present=True).order_by("node", "index")
    for node_id, pk, index, uuid, memory_mib in rows.values_list("node_id", "id", "index", "uuid", "memory_mib"):
        found[node_id].append(_Gpu(pk, index, uuid, memory_mib))
    return found


def _occupants(
    model: type[Hold] | type[Assignment], node_ids: list[int], project_ids: set[int]
) -> dict[int, list[dict[str, Any]]]:
    """By accelerator, the job with the largest share of it first."""
    there = model.objects.filter(accelerator__node__in=node_ids, during__upper_inf=True)
    rows = there.order_by("-share_percent", "run__job__number").values_list(
        "accelerator_id", "share_percent", "run__state", *_OF_OTHERS
    )
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for gpu, share_percent, state, number, name, project_id, project in rows:
        job, kind = _others(number, name, project_id, project, project_ids), KINDS.get(state, "moving")
        found[gpu].append({"job": job, "kind": kind, "share_percent": share_percent})
    return found


Occupants = Mapping[int, list[dict[str, Any]]]


_OF_OTHERS = ("run__job__number", "run__job__name", "run__job__project_id", "run__job__project__name")


def redact_foreign_job(job: Job, project_ids: set[int]) -> dict[str, Any]:
    """A job for readers who may belong to another project: without its name."""
    return _others(job.number, job.name, job.project_id, job.project.name, project_ids)


def _others(number: int, name: str, project_id: int, project: str, project_ids: set[int]) -> dict[str, Any]:
    return {"number": number, "name": name if project_id in project_ids else None, "project": project}


def _node(node: Node, gpus: list[_Gpu], held: Occupants, assigned: Occupants, taken: Collection[int]) -> dict[str, Any]:
    accelerators = [_accelerator(gpu, node.schedulable, held, assigned, taken) for gpu in gpus]
    return {
        "name": node.name,
        "type": node.accelerator_type,
        "gpus": len(gpus),
        "emulated": node.emulated,
        "schedulable": node.schedulable,
        "drained": node.drained,
        "lost": node.lost,
        "unclear": node.unclear or None,
        "unclear_since_at": iso(node.unclear_since),
        "power": _power(node, accelerators),
        "up_in_s": node.boot_s or None,
        "cpus": node.cpus,
        "memory_mib": node.memory_mib,
        "last_seen_at": iso(node.last_seen_at),
        "accelerators": accelerators,
        "taken": describe_taken(node),
    }


def _power(node: Node, accelerators: Sequence[Mapping[str, Any]]) -> str | None:
    """A powered-down node is powered up for the first job that is sent there, ours or another."""
    if not node.boot_s:
        return None
    awaited = any(gpu["state"] in ("held", "assigned", "others") for gpu in accelerators)
    return "powering_up" if awaited else "powered_down"


def _accelerator(
    gpu: _Gpu, schedulable: bool, held: Occupants, assigned: Occupants, taken: Collection[int]
) -> dict[str, Any]:
    there = held.get(gpu.pk) or assigned.get(gpu.pk) or []
    state = "draining" if not schedulable else "others" if gpu.pk in taken else "free"
    state = "held" if gpu.pk in held else "assigned" if there else state
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "memory_mib": gpu.memory_mib,
        "state": state,
        "kind": there[0]["kind"] if there else None,
        "job": there[0]["job"] if there else None,
        "parts": there,
    }

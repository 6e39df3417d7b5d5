"""Names of the REST API that changed. The old one is accepted and served beside the new one, and is deprecated.

One table for all: `portal.api.deprecated` accepts, serves and documents what stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Final

#: Deprecated from the first day on; from the second on the old names may go (docs/api.md "Versions").
SINCE: Final = date(2026, 11, 28)
UNTIL: Final = date(2027, 11, 28)

#: Members of answers by the name of their shape, old -> new. A shape that inherits another has its rows, too.
ANSWERS: Final[Mapping[str, Mapping[str, str]]] = {
    "Cost": {"rate_per_gpu_hour": "price_per_gpu_hour", "rate_per_hour": "price_per_hour"},
    "Displaced": {"token": "code"},
    "Effect": {"holds": "running"},
    "Explanation": {"token": "code", "displaced": "preemption"},
    "FairnessFigures": {"holding": "running"},
    "Holding": {"gpus_held": "gpus_allocated"},
    "Job": {"rescales": "resizes"},
    "JobReason": {"token": "code"},
    "JobTimeline": {"rescales": "resizes"},
    "LiveNode": {"held": "allocated"},
    "NodeUse": {"held": "allocated", "held_part": "allocated_part"},
    "Option": {"rate_per_hour": "price_per_hour"},
    "PolicyPreview": {"put_out": "preempted"},
    "Project": {"gpu_quota": "gpu_limit", "gpus_held": "gpus_allocated"},
    "Reason": {"token": "code"},
    "RoundCounts": {"gpus_held": "gpus_allocated", "holding": "running"},
    "Run": {"rescales": "resizes"},
    "ShadowFigures": {"holding": "running", "put_out": "preempted", "rescaled": "resized"},
    "ShadowSide": {"put_out": "preempted"},
    "Standing": {"holding": "running"},
    "Timeline": {"rescales": "resizes"},
    "WhatIfOption": {"rate_per_hour": "price_per_hour"},
}
#: Query parameters and members of bodies by the name of their model, old -> new.
INPUTS: Final[Mapping[str, Mapping[str, str]]] = {"_Filters": {"held": "on_hold"}}
#: Addresses below /api/v1/, old -> new. A part in braces is any.
ADDRESSES: Final[Mapping[str, str]] = {
    "projects/{project}/quotas": "projects/{project}/limits",
    "quotas": "limits",
    "quotas/{limit}": "limits/{limit}",
    "rates": "prices",
}
#: Names of the operations at these addresses in the OpenAPI document, new -> old.
OPERATIONS: Final[Mapping[str, str]] = {
    "change_limit": "change_quota",
    "create_limit": "create_quota",
    "create_price": "create_rate",
    "get_limit": "get_quota",
    "list_limits": "list_quotas",
    "list_prices": "list_rates",
    "list_project_limits": "list_project_quotas",
    "remove_limit": "remove_quota",
}


def names_of(kind: type, table: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Old -> new, of a class and those that it inherits; the live twin of a shape has its names."""
    rows = [table.get(base.__name__) or table.get(base.__name__.removeprefix("Live"), {}) for base in kind.__mro__]
    return {old: new for names in rows for old, new in names.items()}


def complete(member: Any, names: Iterable[tuple[str, str]]) -> None:
    """Both names have the value of the one that is there: what was stored before has only the old one."""
    for old, new in names:
        if new in member:
            member[old] = member[new]
        elif old in member:
            member[new] = member[old]


def serve_both(shape: str, member: dict[str, Any]) -> dict[str, Any]:
    """`member` with the old names of its shape, where no operation of the API adds them."""
    complete(member, ANSWERS[shape].items())
    return member

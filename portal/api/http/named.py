"""Objects that requests refer to by name."""

from __future__ import annotations

import re
from difflib import get_close_matches

from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.api.http.errors import Refused
from portal.api.http.inputs import ClusterQuery
from portal.core.problems import FieldProblem, Problems
from portal.jobs.clusters import active_clusters, default_cluster
from portal.jobs.models import Cluster, Node
from portal.readmodels.cluster.catalogue import known_accelerator_types

#: From this similarity on (difflib's ratio) a name counts as mistyped, if it has the same digits: a100_40gb is not
#: a100_80gb.
_ALIKE = 0.8


def named_project(user: User, key: str, field: str = "project") -> Project:
    """404 both for a project that does not exist and for one that the user may not see: an empty list would not
    tell."""
    project = visible_projects(user).filter(key=key).first()
    if project is None:
        unknown = FieldProblem(field, "is none that you may see", "unknown")
        raise Refused(404, f"{field} {unknown.message}", [unknown])
    return project


def named_cluster(query: ClusterQuery) -> Cluster:
    """Problems if it does not exist, or is retired."""
    if query.cluster is None:
        return default_cluster()
    cluster = active_clusters().filter(name=query.cluster).first()
    if cluster is None:
        raise _no_cluster("cluster")
    return cluster


def check_cluster(name: str | None, field: str = "cluster") -> None:
    """A list of a mistyped cluster would be empty without notice. Retired clusters can still be listed."""
    if name and not Cluster.objects.filter(name=name).exists():
        raise _no_cluster(field)


def _no_cluster(field: str) -> Problems:
    there = ", ".join(active_clusters().values_list("name", flat=True))
    return Problems([FieldProblem(field, f"unknown cluster; there are {there}", "unknown")])


def named_node(query: ClusterQuery, name: str) -> Node:
    return Node.objects.select_related("cluster").get(cluster=named_cluster(query), name=name)


def check_accelerator_type(kind: str | None) -> None:
    """A price or limit of a mistyped type would have no effect without notice. Types that no node has reported yet may
    have prices."""
    if kind is None or kind in (known := known_accelerator_types()):
        return
    meant = [one for one in get_close_matches(kind, known, cutoff=_ALIKE) if _digits(one) == _digits(kind)]
    if meant:
        wrong = FieldProblem("accelerator_type", f"unknown accelerator type; did you mean {meant[0]}?", "unknown")
        raise Refused(400, f"accelerator_type {wrong.message}", [wrong])


def _digits(kind: str) -> list[str]:
    return re.findall(r"\d+", kind)

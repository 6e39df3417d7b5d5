"""Of which cluster something is, where the portal has several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from evenkeel.cli.output import table
from evenkeel.client import Client

#: Without it the API takes the first one; which names there are is the API's to say.
of_cluster = click.option("--cluster", metavar="NAME", help="Of this cluster; by default the portal's first.")


def cluster_names(client: Client) -> list[str]:
    """In the portal's order; none where an older one does not say."""
    return [cluster["name"] for cluster in client.session().get("clusters", [])]


def are_several(client: Client) -> bool:
    return len(cluster_names(client)) > 1


def clusters_table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], clusters: Sequence[str], *, at: int, right: set[int]
) -> str:
    """The table with a column for the cluster of each row, as number `at`; `right` numbers columns without it."""
    wider = [[*row[:at], cluster, *row[at:]] for row, cluster in zip(rows, clusters, strict=True)]
    moved = frozenset(column + (column >= at) for column in right)
    return table([*heads[:at], "CLUSTER", *heads[at:]], wider, moved)

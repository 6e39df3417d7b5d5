"""Of which cluster something is, where the portal has several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from evenkeel import schemas
from evenkeel.cli.output import moment, note, table
from evenkeel.client import Client

#: Without it the API takes the first one; which names there are is the API's to say.
of_cluster = click.option("--cluster", metavar="NAME", help="Of this cluster; by default the portal's first.")


def clusters_of(client: Client) -> list[schemas.SessionClusterRef]:
    """In the portal's order; none where an older one does not say."""
    return client.session().get("clusters", [])


def are_several(client: Client) -> bool:
    return len(clusters_of(client)) > 1


def note_engines_away(found: Sequence[schemas.SessionClusterRef], cluster: str | None = None) -> None:
    """One line for each cluster (or for this one) whose engine does not answer, beside what is printed."""
    for one in found:
        since = one.get("engine_away_since_at")
        if since and cluster in (None, one["name"]):
            where = f"Cluster {one['name']}: " if len(found) > 1 else ""
            note(
                f"{where}{one.get('engine', 'the engine')} has not answered since {moment(since)}. Running jobs keep "
                "running; no job is started, stopped or resized until it answers."
            )


def clusters_table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], clusters: Sequence[str], *, at: int, right: set[int]
) -> str:
    """The table with a column for the cluster of each row, as number `at`; `right` numbers columns without it."""
    wider = [[*row[:at], cluster, *row[at:]] for row, cluster in zip(rows, clusters, strict=True)]
    moved = frozenset(column + (column >= at) for column in right)
    return table([*heads[:at], "CLUSTER", *heads[at:]], wider, moved)

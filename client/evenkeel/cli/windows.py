"""`evenkeel window`."""

from __future__ import annotations

import click

from evenkeel.cli.clusters import of_cluster
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, done, print_rows, print_value

HEADS = {
    "ID": "id", "KIND": "kind", "STATE": "state", "FROM": "start_at", "TO": "end_at", "REASON": "reason",
    "NODES": "nodes", "TYPES": "accelerator_types", "ALL": "all_nodes", "PROJECTS": "projects", "USERS": "users",
}  # fmt: skip


@click.group()
def window() -> None:
    """Maintenance windows and reservations of nodes."""


@window.command("ls")
@click.option("--past", is_flag=True, help="Windows that are over or were cancelled.")
@of_cluster
@as_json
def ls(past: bool, cluster: str | None, output: str) -> None:
    """Windows that are in force or to come."""
    print_rows(connect().windows.list(past=past, cluster=cluster), HEADS, output, none="There are no windows.")


@window.command()
@click.argument("kind", type=click.Choice(("maintenance", "reservation")))
@click.argument("start", metavar="FROM")
@click.argument("end", metavar="TO")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="May be repeated.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="All nodes of an accelerator type.")
@click.option("--all", "all_nodes", is_flag=True, help="All nodes.")
@click.option("--reason", default="", help="Reason, shown to all users.")
@click.option("--project", "projects", multiple=True, help="Of a reservation: for this project and below.")
@click.option("--user", "users", multiple=True, metavar="EMAIL", help="Of a reservation: for this person.")
@of_cluster
@as_json
def add(
    kind: str,
    start: str,
    end: str,
    nodes: tuple[str, ...],
    types: tuple[str, ...],
    all_nodes: bool,
    reason: str,
    projects: tuple[str, ...],
    users: tuple[str, ...],
    cluster: str | None,
    output: str,
) -> None:
    """Keep nodes free from FROM to TO (ISO 8601 with a zone); no job is started that would run into it.

    \b
    Examples:
      evenkeel window add maintenance 2027-03-01T12:00Z 2027-03-01T18:00Z --all --reason "new switches"
      evenkeel window add reservation 2027-03-02T08:00Z 2027-03-02T20:00Z --node n1 --project speech
    """
    wish = {
        "kind": kind,
        "start_at": start,
        "end_at": end,
        "nodes": list(nodes),
        "accelerator_types": list(types),
        "all_nodes": all_nodes,
        "reason": reason,
        "projects": list(projects),
        "users": list(users),
    }
    print_value(connect().windows.add(wish, cluster=cluster), output)


@window.command()
@click.argument("id", type=WholeNumber())
def rm(id: int) -> None:
    """Cancel a window, or end it now."""
    connect().windows.remove(id)
    done(f"Window {id} is cancelled.")

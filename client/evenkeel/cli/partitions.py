"""`evenkeel partition`."""

from __future__ import annotations

import click

from evenkeel.cli.clusters import of_cluster
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, done, print_rows, print_value
from evenkeel.resources import given

HEADS = {
    "NAME": "name", "PRIORITY": "priority", "NODES": "node_count", "GPUS": "gpus", "BY NAME": "nodes",
    "BY TYPE": "accelerator_types", "EVERYBODY": "for_everybody", "PROJECTS": "projects", "GPUS/JOB": "max_gpus",
    "SECONDS/JOB": "max_duration_s", "DEFAULT": "is_default",
}  # fmt: skip


@click.group()
def partition() -> None:
    """Partitions: sets of nodes that jobs name."""


@partition.command("ls")
@of_cluster
@as_json
def ls(cluster: str | None, output: str) -> None:
    """Partitions that your projects may use."""
    print_rows(connect().partitions.list(cluster=cluster), HEADS, output, none="There are no partitions.")


@partition.command("set")
@click.argument("name")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="A node of it; may be repeated.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="All nodes of an accelerator type.")
@click.option("--priority", type=WholeNumber(min=0), default=0, show_default=True)
@click.option("--project", "projects", multiple=True, help="Only for this project and below; may be repeated.")
@click.option("--max-gpus", type=WholeNumber(min=1), help="GPUs that one job may have.")
@click.option("--max-duration-s", type=WholeNumber(min=1), help="Seconds that one job may train.")
@click.option("--default", "is_default", is_flag=True, help="The default partition.")
@of_cluster
@as_json
def set_(
    name: str,
    nodes: tuple[str, ...],
    types: tuple[str, ...],
    projects: tuple[str, ...],
    cluster: str | None,
    output: str,
    **values: int | None,
) -> None:
    """Make a partition or change all of it; omitted options get their defaults.

    \b
    Examples:
      evenkeel partition set main --type titan_xp --default
      evenkeel partition set debug --node n1 --priority 100 --max-gpus 1 --max-duration-s 1800
    """
    wish = given(**values) | {
        "nodes": list(nodes),
        "accelerator_types": list(types),
        "projects": list(projects),
        "for_everybody": not projects,
    }
    print_value(connect().partitions.set(name, wish, cluster=cluster), output)


@partition.command()
@click.argument("name")
@of_cluster
def rm(name: str, cluster: str | None) -> None:
    """Remove a partition without live jobs."""
    connect().partitions.remove(name, cluster=cluster)
    done(f"Partition {name} is removed.")

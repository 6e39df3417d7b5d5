"""`evenkeel queue`, `nodes`, `throughputs` and `open`."""

from __future__ import annotations

import math
from itertools import islice

import click

from evenkeel import schemas
from evenkeel.cli.checks import STATES, check_rows, check_text
from evenkeel.cli.clusters import clusters_of, clusters_table, note_engines_away, of_cluster
from evenkeel.cli.config import connect, current_login
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import (
    age,
    as_json,
    clean,
    gpus_text,
    is_terminal,
    job_name,
    moment,
    note,
    pairs,
    print_json,
    print_rows,
    table,
    waits_for,
)
from evenkeel.cli.starts import start_text

#: Of a longer queue the first in the order of the API are read.
MOST_QUEUED = 5_000


@click.command()
@click.option("--project", help="Only jobs of this project.")
@click.option("--cluster", metavar="NAME", help="Only jobs of this cluster.")
@click.option("--owner", help="Only jobs of this person: `me`, or an email.")
@click.option("--limit", type=WholeNumber(min=1), default=50, show_default=True, help="Show this many at most.")
@as_json
def queue(limit: int, output: str, **filters: str | None) -> None:
    """List the queued jobs in order; PLACE counts all queued jobs of the cluster, those of other projects too.

    \b
    Examples:
      evenkeel queue
      evenkeel queue --owner me
      evenkeel queue --output json | jq '.[0].expected_start'
    """
    wanted = {key: value for key, value in filters.items() if value is not None}
    client = connect()
    found = client.jobs(state="queued", ordering="number", limit="200", **wanted)
    jobs = sorted(islice(found, MOST_QUEUED), key=lambda job: (job["queue_position"] or math.inf, job["number"]))
    if output == "json":
        print_json(jobs[:limit])
    elif not jobs:
        click.echo("No queued jobs.")
    else:
        heads = ("PLACE", "JOB", "NAME", "PROJECT", "GPUS", "WAITS FOR", "WAITED", "STARTS")
        rows, right = [_waiting(job) for job in jobs[:limit]], {0, 1, 6}
        clusters = clusters_of(client)
        if len(clusters) > 1:
            names = [job["cluster"]["name"] for job in jobs[:limit]]
            click.echo(clusters_table(heads, rows, names, at=heads.index("GPUS"), right=right))
        else:
            click.echo(table(heads, rows, right=frozenset(right)))
        if len(jobs) > limit:
            note(f"and {len(jobs) - limit:,} more; --limit shows them")
        note_engines_away(clusters)


def _waiting(job: schemas.Job) -> list[object]:
    return [
        job["queue_position"] or "-",
        job_name(job["number"], job["array"]),
        job["name"],
        job["project"]["key"],
        gpus_text(job).removeprefix("0 of "),
        "on hold" if job["hold"] else waits_for(job["reason"]),
        age(job["submitted_at"]),
        start_text(job["expected_start"]),
    ]


@click.command()
@click.argument("name", required=False)
@click.option("--cluster", metavar="NAME", help="Only nodes of this cluster; of one node by default the first.")
@as_json
def nodes(name: str | None, cluster: str | None, output: str) -> None:
    """List the nodes: their GPUs, how many are free (+ the largest free share of one), and the jobs that have them.

    Of the node NAME: its jobs, how much of it was allocated in the last 24 hours, what failed on it in the last 7 days,
    and its last check. A node of another cluster than the portal's first is named with --cluster.

    \b
    Examples:
      evenkeel nodes
      evenkeel nodes n1
      evenkeel nodes n1 --cluster lab
      evenkeel nodes --output json | jq '.[] | select(.drained) | .name'
    """
    if name is not None:
        _show(connect().node(name, cluster=cluster), output)
        return
    client = connect()
    clusters = clusters_of(client)
    if output != "json":
        note_engines_away(clusters, cluster)
    names = [one["name"] for one in clusters]
    if len(names) < 2:
        _list(client.nodes(cluster=cluster), [], output)
        return
    of = [(one, node) for one in (names if cluster is None else [cluster]) for node in client.nodes(cluster=one)]
    _list([node for _, node in of], [one for one, _ in of], output)


def _list(found: list[schemas.Node], clusters: list[str], output: str) -> None:
    """`clusters`: of each node, where there are several."""
    heads = ["NODE", "TYPE", "STATE", "GPUS", "FREE", "JOBS", "CPUS", "MEMORY GIB"]
    rows, right = [_node(node) for node in found], {3, 4, 6, 7}
    if any(node.get("taken") for node in found):
        heads.append("BY OTHERS")
        rows = [[*row, by_others(node) or "-"] for row, node in zip(rows, found, strict=True)]
    if output == "json":
        named = [{"cluster": one, **node} for one, node in zip(clusters, found, strict=True)] if clusters else found
        print_json(named)
    elif not found:
        click.echo("No nodes.")
    elif clusters:
        click.echo(clusters_table(heads, rows, clusters, at=0, right=right))
    else:
        click.echo(table(heads, rows, right=frozenset(right)))


def _show(node: schemas.NodeDetail, output: str) -> None:
    if output == "json":
        print_json(node)
        return
    allocated, faults = node["use"]["allocated_part"], node["faults_by_reason"]
    busy = sum(gpu["job"] is not None for gpu in node["accelerators"])
    ours = node["gpus"] - sum(gpu["state"] == "others" for gpu in node["accelerators"])
    counted = sorted(faults.items(), key=lambda one: (-one[1], one[0]))
    rows: list[tuple[str, object]] = [
        ("Node", clean(node["name"])),
        ("State", clean(_state(node))),
        ("Type", clean(_type(node))),
        ("GPUs", f"{busy} of {ours} in use{f', {rest}% of one free' if (rest := _rest_percent(node)) else ''}"),
        *([("By others", others)] if (others := by_others(node)) else []),
        ("CPUs", node["cpus"] or "-"),
        ("Memory", f"{round(node['memory_mib'] / 1024)} GiB" if node["memory_mib"] else "-"),
        ("Last seen", f"{age(node['last_seen_at'])} ago" if node["last_seen_at"] else "-"),
        ("Allocated, 24 h", "-" if allocated is None else f"{allocated:.0%}"),
        ("Check", check_text(node["check"])),
        ("Failed, 7 d", ", ".join(f"{number} {clean(reason)}" for reason, number in counted) or "none"),
    ]
    click.echo(pairs(rows))
    if found := check_rows(node["check"]):
        click.echo(found)
    if not node["jobs"]:
        click.echo("No jobs.")
        return
    jobs = [
        [
            one["job"]["number"],
            one["job"]["name"] or one["job"]["project"],
            one["gpus"] if one["share_percent"] == 100 else f"{one['share_percent']}% of {one['gpus']}",
            age(one["since_at"]) if one["since_at"] else "assigned",
        ]
        for one in node["jobs"]
    ]
    click.echo(table(("JOB", "NAME", "GPUS", "FOR"), jobs, right=frozenset({0, 2, 3})))


def _type(node: schemas.Node | schemas.NodeDetail) -> str:
    return f"{node['type']}{' (emulated)' if node['emulated'] else ''}"


def _rest_percent(node: schemas.Node | schemas.NodeDetail) -> int:
    """The most that is free of a GPU of which others have parts."""
    usable = node["accelerators"] if node["schedulable"] and not node["lost"] else []
    rests = (100 - sum(part["share_percent"] for part in gpu["parts"]) for gpu in usable if gpu["parts"])
    return max(0, *rests, 0)


def _node(node: schemas.Node) -> list[object]:
    free, rest = sum(gpu["state"] == "free" for gpu in node["accelerators"]), _rest_percent(node)
    holders = sorted({part["job"]["number"] for gpu in node["accelerators"] for part in gpu["parts"]})
    return [
        node["name"],
        _type(node),
        _state(node),
        node["gpus"],
        f"{free} + {rest}%" if rest else free,
        ", ".join(f"#{number}" for number in holders) or "-",
        node["cpus"],
        round(node["memory_mib"] / 1024) or "-",
    ]


def by_others(node: schemas.Node | schemas.NodeDetail) -> str:
    """What jobs of the engine that are not the portal's have of it; empty: nothing."""
    taken = node.get("taken") or []
    gpus, cpus, mib = (sum(one[key] for one in taken) for key in ("gpus", "cpus", "memory_mib"))
    gib = f"{mib / 1024:.3g} GiB" if mib else ""
    what = [f"{gpus} GPU{'' if gpus == 1 else 's'}" if gpus else "", f"{cpus} CPUs" if cpus else "", gib]
    ends = {one["until_at"] for one in taken}
    first = min((end for end in ends if end), default=None)
    until = f"{' until' if len(ends) == 1 else ', the first until'} {moment(first)}" if first else ""
    return ", ".join(filter(None, what)) + until if any(what) else ""


def _power(node: schemas.Node | schemas.NodeDetail) -> str:
    state, seconds = node.get("power"), node.get("up_in_s") or 0
    if state == "powering_up":
        return f"powering up ({seconds:.0f} s left)"
    return f"powered down ({seconds:.0f} s to power up)" if state else "up"


def _state(node: schemas.Node | schemas.NodeDetail) -> str:
    drain, withheld = node["drain"], node["check"]["state"]
    if node["lost"] or drain is None:
        unclear = f"unclear ({word})" if (word := node.get("unclear")) else _power(node)
        return "lost" if node["lost"] else STATES[withheld] if withheld else unclear
    until = f" until {moment(drain['deadline_at'])}" if drain["state"] == "draining" and drain["deadline_at"] else ""
    reason = f" ({drain['reason']})" if drain["reason"] else ""
    return f"{drain['state']}{until}{reason}"


@click.command()
@click.argument("model", required=False)
@click.option("--gpus", type=WholeNumber(min=1), help="On so many GPUs only.")
@of_cluster
@as_json
def throughputs(model: str | None, gpus: int | None, cluster: str | None, output: str) -> None:
    """Show how fast programs train on each accelerator type and count, with the source of each figure.

    \b
    Examples:
      evenkeel throughputs resnet50
      evenkeel throughputs --gpus 4 --output json
    """
    rows = [
        {"model": one["name"], "type": kind, **point}
        for one in connect().model_types(cluster=cluster)
        if model in (None, one["name"])
        for kind, curve in sorted(one["curves"].items())
        for point in curve["points"]
        if gpus in (None, point["count"])
    ]
    heads = {
        "MODEL": "model", "TYPE": "type", "GPUS": "count", "STEPS/S": "steps_per_s", "FROM": "source",
        "AGE S": "age_s", "SAMPLES": "samples", "ERROR": "relative_error",
    }  # fmt: skip
    print_rows(rows, heads, output, none="No throughput is known.")


@click.command("open")
@click.argument("job", required=False)
def open_(job: str | None) -> None:
    """Open the portal in the browser, or a job's page; without a terminal its address is printed.

    \b
    Examples:
      evenkeel open
      evenkeel open 12
    """
    address = current_login().url.rstrip("/")
    if job is not None:
        address += f"/jobs/{connect().job(job)['number']}"
    if not is_terminal() or click.launch(address) != 0:
        click.echo(clean(address))

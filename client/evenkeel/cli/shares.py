"""`evenkeel prio` and `evenkeel shares`, read as Slurm's `sprio -l` and `sshare -a` are."""

from __future__ import annotations

from collections.abc import Sequence

import click

from evenkeel import schemas
from evenkeel.cli.clusters import of_cluster
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import WholeNumber
from evenkeel.cli.output import as_json, clean, job_name, moment, note, pairs, print_json, table

SHARE_HEADS = ("ACCOUNT", "USER", "SHARES", "NORM_SHARES", "GPU_HOURS", "NORM_USAGE", "EFF_USAGE", "FACTOR", "LEVEL_FS")

NOT_IN_FORCE = "Not in force: another policy decides. These are figures with the defaults of multifactor."

_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARKS = 24


@click.command()
@click.argument("job", required=False)
@click.option("--project", help="This project and all below it.")
@of_cluster
@as_json
def prio(job: str | None, project: str | None, cluster: str | None, output: str) -> None:
    """Priorities of the waiting jobs, with every factor; of one JOB also its course.

    \b
    Examples:
      evenkeel prio
      evenkeel prio 12
      evenkeel prio --project vision --output json | jq '.[0].factors'
    """
    if job is not None:
        if project is not None or cluster is not None:
            raise click.UsageError(f"give a job or a {'project' if project is not None else 'cluster'}, not both")
        _one(connect().shares.job_priority(job), output)
        return
    client = connect()
    pages = list(client.shares.priority_pages(project=project, cluster=cluster))
    rows = [row for page in pages for row in page["results"]]
    if output == "json":
        print_json(rows)
    elif rows:
        names = [factor["name"] for factor in rows[0]["factors"]]
        heads = ("JOB", "PROJECT", "USER", "RANK", "PRIORITY", "SITE", *(name.upper() for name in names), "NICE")
        click.echo(table(heads, [_row(row) for row in rows], right=frozenset({0, *range(3, len(heads))})))
    else:
        note("No job waits for GPUs.")
    _say_not_in_force(pages)


def _say_not_in_force(pages: Sequence[schemas.PriorityPage | schemas.SharePage]) -> None:
    """To people, whatever is printed for programs."""
    if not all(page["in_force"] for page in pages):
        note(NOT_IN_FORCE)


def _row(row: schemas.Priority) -> list[object]:
    owner = row["owner"]["email"] if row["owner"] else "-"
    points = [f"{factor['points']:.0f}" for factor in row["factors"]]
    return [
        job_name(row["number"], row["array"]), row["project"]["key"], owner, row["rank"], row["priority"], row["site"],
        *points, row["nice"],
    ]  # fmt: skip


def _one(found: schemas.JobPriority, output: str) -> None:
    if output == "json":
        print_json(found)
        return
    if found["rank"] is None:
        note(f"Job {job_name(found['number'], found['array'])} does not wait for GPUs, so it has no priority.")
        return
    made_of = [
        (
            factor["name"].replace("_", " ").capitalize(),
            f"{factor['points']:.1f} = {factor['weight']:g} x {factor['factor']:.4f}",
        )
        for factor in found["factors"]
        if factor["weight"]
    ]
    names = [factor["name"] for factor in found["factors"] if factor["weight"]]
    later = [_later(point, names) for point in found["course"][1::2]]
    click.echo(
        pairs(
            [
                ("Job", f"{job_name(found['number'], found['array'])}  {clean(found['name'])}"),
                ("Place", f"{found['rank']} of {found['waiting']} that wait"),
                ("Priority", str(found["priority"])),
                *made_of,
                ("Site", str(found["site"]) if found["site"] else ""),
                ("Nice", f"-{found['nice']}" if found["nice"] else ""),
            ]
        )
    )
    heads = ("IF IT WAITS UNTIL", "PRIORITY", *(name.upper() for name in names))
    click.echo(table(heads, later, right=frozenset(range(1, len(heads)))))
    if not found["in_force"]:
        note(NOT_IN_FORCE)


def _later(point: schemas.CoursePoint, names: list[str]) -> list[object]:
    points = {factor["name"]: factor["points"] for factor in point["factors"]}
    return [moment(point["at"]), point["priority"], *(f"{points.get(name, 0.0):.0f}" for name in names)]


@click.command()
@click.option("--project", help="This project and all below it.")
@click.option("--trend", is_flag=True, help="Of each project also how its effective use went.")
@click.option("--days", type=WholeNumber(1, 400), default=14, show_default=True, help="How far back the trend goes.")
@of_cluster
@as_json
def shares(project: str | None, trend: bool, days: int, cluster: str | None, output: str) -> None:
    """Shares, decayed usage and fair-share factor of your projects and their users.

    \b
    Examples:
      evenkeel shares
      evenkeel shares --project vision --output json
      evenkeel shares --trend --days 30
    """
    client = connect()
    pages = list(client.shares.pages(project=project, cluster=cluster))
    rows = [row for page in pages for row in page["results"]]
    courses = client.shares.history(project=project, days=days, cluster=cluster) if trend else ()
    went = {one["project"]["key"]: one for one in courses}
    if output == "json":
        print_json(rows if not trend else {"shares": rows, "history": list(went.values())})
    elif rows:
        right = frozenset(range(2, len(SHARE_HEADS)))
        heads = (*SHARE_HEADS, "EFF_USAGE BEFORE") if trend else SHARE_HEADS
        click.echo(table(heads, [_share(row) + [_before(row, went)] * trend for row in rows], right=right))
    else:
        note("You see no project.")
    _say_not_in_force(pages)


def _before(row: schemas.Share, went: dict[str, schemas.ShareCourse]) -> str:
    course = None if row["is_user"] else went.get(row["project"]["key"])
    return sparks(course) if course else ""


def sparks(went: schemas.ShareCourse) -> str:
    """From nothing to all of the use, oldest left; empty where nothing is recorded."""
    values = [point["effective_usage"] for point in went["points"]]
    picked = [values[i * len(values) // _SPARKS] for i in range(_SPARKS)] if len(values) > _SPARKS else values
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, int(value * len(_BLOCKS)))] for value in picked)


def _share(row: schemas.Share) -> list[object]:
    account = "  " * row["level"] + row["project"]["key"]
    user = (row["user"]["email"] if row["user"] else "(nobody)") if row["is_user"] else ""
    level_fs = "inf" if row["level_fs"] is None else f"{row['level_fs']:.4f}"
    factor = "" if row["factor"] is None else f"{row['factor']:.6f}"
    figures = [row["norm_shares"], row["norm_usage"], row["effective_usage"]]
    norm_shares, norm_usage, effective = (f"{value:.6f}" for value in figures)
    return [
        account, user, f"{row['shares']:g}", norm_shares, f"{row['usage_gpu_hours']:.2f}", norm_usage, effective,
        factor, level_fs,
    ]  # fmt: skip

"""`evenkeel projects`."""

from __future__ import annotations

from typing import get_args

import click

from evenkeel.cli.config import connect
from evenkeel.cli.output import as_json, clean, done, pairs, print_rows, print_value
from evenkeel.client import ClientError, Json
from evenkeel.resources import Role

ROLE = click.Choice(get_args(Role))


@click.group()
def projects() -> None:
    """Projects, their members and what they keep."""


@projects.command("ls")
@as_json
def ls(output: str) -> None:
    """Projects that you may see, with what they use now."""
    heads = {
        "PROJECT": "key", "NAME": "name", "ROLE": "role", "PARENT": "parent", "GPUS": "gpus_held",
        "RUNNING": "jobs_running", "QUEUED": "jobs_queued", "SPENT": "spend_month",
    }  # fmt: skip
    print_rows(connect().projects.list(), heads, output, none="No projects.")


@projects.command()
@click.argument("project")
@as_json
def show(project: str, output: str) -> None:
    """One project."""
    print_value(connect().projects.get(project), output)


@projects.command()
@click.argument("key")
@click.option("--name", help="What people read; by default the key.")
@click.option("--parent", help="Key of the project that it is below.")
@as_json
def create(key: str, name: str | None, parent: str | None, output: str) -> None:
    """A new project. Key: lower-case letters, digits and dashes."""
    print_value(connect().projects.create(key, name or key, parent=parent), output)


@projects.command()
@click.argument("project")
@click.argument("name")
@as_json
def rename(project: str, name: str, output: str) -> None:
    """Give a project another name; its key stays."""
    print_value(connect().projects.change(project, {"name": name}), output)


@projects.command()
@click.argument("project")
@as_json
def archive(project: str, output: str) -> None:
    """Take no more jobs; what is there stays readable."""
    print_value(connect().projects.archive(project), output)


@projects.command()
@click.argument("project")
@as_json
def restore(project: str, output: str) -> None:
    """Undo `archive`."""
    print_value(connect().projects.restore(project), output)


@projects.command()
@click.argument("project")
@as_json
def members(project: str, output: str) -> None:
    """Who is in a project, with inherited roles."""
    heads = {"EMAIL": "user.email", "NAME": "user.name", "ROLE": "role", "FROM": "inherited_from"}
    print_rows(connect().projects.members(project), heads, output, none="No members.")


@projects.command("add-member")
@click.argument("project")
@click.argument("email")
@click.option("--role", type=ROLE, default="member", show_default=True)
@as_json
def add_member(project: str, email: str, role: Role, output: str) -> None:
    """Take somebody in who has an account; see `invite` for others."""
    print_value(connect().projects.add_member(project, email, role), output)


@projects.command("set-role")
@click.argument("project")
@click.argument("email")
@click.argument("role", type=ROLE)
@as_json
def set_role(project: str, email: str, role: Role, output: str) -> None:
    """Give a member another role."""
    print_value(connect().projects.change_member(project, _person(project, email), role), output)


@projects.command("remove-member")
@click.argument("project")
@click.argument("email")
def remove_member(project: str, email: str) -> None:
    """Take somebody out; their jobs stay with the project."""
    connect().projects.remove_member(project, _person(project, email))
    done(f"{email} is no longer a member of {project}.")


@projects.command()
@click.argument("project")
@click.argument("email")
@click.option("--role", type=ROLE, default="member", show_default=True)
@as_json
def invite(project: str, email: str, role: Role, output: str) -> None:
    """Invite somebody without an account; the answer has the link, once."""
    print_value(connect().projects.invite(project, email, role), output)


@projects.command()
@click.argument("project")
@as_json
def storage(project: str, output: str) -> None:
    """What checkpoints, bundles, artifacts and environments take up."""
    answer = connect().projects.storage(project)
    if output == "json":
        print_value(answer, output)
        return
    click.echo(pairs([(kind.capitalize(), _room(part)) for kind, part in answer.items()]))


def _room(part: Json) -> str:
    most = part.get("quota_bytes") or part.get("hard_bytes")
    return f"{part['bytes']:,} bytes" + (f" of {most:,}" if most else "")


def _person(project: str, email: str) -> int:
    for member in connect().projects.members(project):
        if member["user"]["email"].lower() == email.lower():
            return int(member["user"]["id"])
    raise ClientError(f"{clean(email)} is no member of {clean(project)}")

"""`evenkeel projects`."""

from __future__ import annotations

import re
from typing import get_args

import click

from evenkeel import schemas
from evenkeel.cli.config import connect
from evenkeel.cli.numbers import Number, WholeNumber
from evenkeel.cli.output import as_json, clean, done, only_row, pairs, print_rows, print_value
from evenkeel.cli.service_accounts import service_accounts
from evenkeel.cli.unproved import confirm_option, confirmed
from evenkeel.resources import Role, given

ROLE = click.Choice(get_args(Role))
SLURM_NAMES = ("account", "qos", "partition", "wckey", "reservation")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def size(text: str) -> int:
    """Bytes, or with a unit: 10GiB."""
    match = re.fullmatch(r"([0-9]{1,15})(|KiB|MiB|GiB|TiB)", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is neither a number of bytes nor one with {', '.join(filter(None, UNITS))}")
    return int(match[1]) * UNITS[match[2]]


@click.group()
def projects() -> None:
    """Projects, their members and their storage."""


@projects.command("ls")
@as_json
def ls(output: str) -> None:
    """Projects that you may see, with what they use now."""
    heads = {
        "PROJECT": "key", "NAME": "name", "ROLE": "role", "PARENT": "parent", "GPUS": "gpus_allocated",
        "RUNNING": "jobs_running", "QUEUED": "jobs_queued", "SPENT": "spend_month", "ARCHIVED": "archived_at",
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
@click.option("--name", help="Name that is shown; by default the key.")
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
@click.argument("parent", required=False)
@click.option("--top", is_flag=True, help="To the top of the tree, below no project.")
@as_json
def move(project: str, parent: str | None, top: bool, output: str) -> None:
    """Put a project, with all below it, under another one."""
    if top == bool(parent):
        raise click.UsageError("name either a PARENT or --top")
    print_value(connect().projects.change(project, {"parent": parent}), output)


@projects.command("set-share")
@click.argument("project")
@click.option("--weight", type=Number(), help="Its weight among its siblings, which share what the project above gets.")
@click.option("--rule", type=click.Choice(["fairness", "fifo"]), help="How its own jobs share that part.")
@click.option("--priority", type=WholeNumber(0), help="Of its jobs, against other projects' (for administrators).")
@click.option("--inherit-priority", is_flag=True, help="That of the project above.")
@as_json
def set_share(
    project: str, weight: float | None, rule: str | None, priority: int | None, inherit_priority: bool, output: str
) -> None:
    """Set what the scheduling policy makes of a project."""
    wish: dict[str, float | str | None] = {"share_weight": weight, "inner_rule": rule, "priority": priority}
    change = {
        key: value for key, value in wish.items() if value is not None or (key == "priority" and inherit_priority)
    }
    if not change or (inherit_priority and priority is not None):
        raise click.UsageError("name what to set: --weight, --rule, and --priority or --inherit-priority")
    print_value(connect().projects.change(project, change), output)


@projects.command("set-slurm")
@click.argument("project")
@click.option("--account", help="In Slurm's accounting.")
@click.option("--qos")
@click.option("--partition", help="One, or several with commas.")
@click.option("--wckey")
@click.option("--reservation")
@click.option("--inherit", multiple=True, type=click.Choice(SLURM_NAMES), help="As the project above.")
@as_json
def set_slurm(project: str, inherit: tuple[str, ...], output: str, **names: str | None) -> None:
    """Set what a project's jobs are submitted as in Slurm (for administrators)."""
    said = {name: value for name, value in names.items() if value is not None}
    if not (said or inherit) or said.keys() & set(inherit):
        raise click.UsageError("name what to set, or --inherit with it: account, qos, partition, wckey, reservation")
    print_value(connect().projects.change(project, {"slurm": said | dict.fromkeys(inherit)}), output)


@projects.command()
@click.argument("project")
@as_json
def archive(project: str, output: str) -> None:
    """Archive a project: it takes no more jobs and stays readable."""
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
    heads |= {"ADDRESS PROVED": "address_proved"}
    print_rows(connect().projects.members(project), heads, output, none="No members.")


@projects.command("add-member")
@click.argument("project")
@click.argument("email")
@click.option("--role", type=ROLE, default="member", show_default=True)
@confirm_option
@as_json
def add_member(project: str, email: str, role: Role, confirm_unproved: bool, output: str) -> None:
    """Add a person who has an account as a member; see `invite` for others."""
    add = connect().projects.add_member
    answer = confirmed(lambda sure: add(project, email, role, confirm_unproved=sure), at_once=confirm_unproved)
    print_value(answer, output)


@projects.command("set-role")
@click.argument("project")
@click.argument("email")
@click.argument("role", type=ROLE)
@confirm_option
@as_json
def set_role(project: str, email: str, role: Role, confirm_unproved: bool, output: str) -> None:
    """Give a member another role."""
    change, person = connect().projects.change_member, _person(project, email)
    answer = confirmed(lambda sure: change(project, person, role, confirm_unproved=sure), at_once=confirm_unproved)
    print_value(answer, output)


@projects.command("remove-member")
@click.argument("project")
@click.argument("email")
def remove_member(project: str, email: str) -> None:
    """Remove a member; their jobs stay with the project."""
    connect().projects.remove_member(project, _person(project, email))
    done(f"{email} is no longer a member of {project}.")


@projects.command()
@click.argument("project")
@click.argument("email")
@click.option("--role", type=ROLE, default="member", show_default=True)
@as_json
def invite(project: str, email: str, role: Role, output: str) -> None:
    """Invite a person without an account: by e-mail, or by a link that is shown once where no e-mail is set up."""
    print_value(connect().projects.invite(project, email, role), output)


@projects.command()
@click.argument("project")
@as_json
def invitations(project: str, output: str) -> None:
    """Invitations to a project, newest first, used and revoked ones too."""
    heads = {"ID": "id", "EMAIL": "email", "ROLE": "role", "BY": "invited_by", "ENDS": "expires_at"}
    heads |= {"ACCEPTED": "accepted_at", "REVOKED": "revoked_at"}
    print_rows(connect().projects.invitations(project), heads, output, none="No invitations.")


@projects.command("revoke-invitation")
@click.argument("project")
@click.argument("id", type=WholeNumber())
def revoke_invitation(project: str, id: int) -> None:
    """End an invitation: its link works no longer."""
    connect().projects.revoke_invitation(project, id)
    done(f"Invitation {id} is revoked.")


@projects.command()
@click.argument("project")
@as_json
def storage(project: str, output: str) -> None:
    """What checkpoints, bundles, artifacts and environments take up."""
    _print_storage(connect().projects.storage(project), output)


@projects.command("set-storage")
@click.argument("project")
@click.option("--checkpoints-soft", type=size, metavar="SIZE", help="Beyond it a warning is shown.")
@click.option("--checkpoints-hard", type=size, metavar="SIZE", help="Beyond it submissions are refused.")
@click.option("--bundles", type=size, metavar="SIZE", help="All bundles together.")
@click.option("--artifacts", type=size, metavar="SIZE", help="All artifacts together.")
@as_json
def set_storage(project: str, output: str, **sizes: int | None) -> None:
    """Set how much a project may store; omitted limits are those of the portal's settings, 0 is no limit.

    \b
    Example:
      evenkeel projects set-storage vision --checkpoints-soft 400GiB --checkpoints-hard 500GiB
    """
    limits = given(**{f"{name}_bytes": most for name, most in sizes.items()})
    _print_storage(connect().projects.set_storage(project, limits), output)


def _print_storage(answer: schemas.Storage, output: str) -> None:
    if output == "json":
        print_value(answer, output)
        return
    rows = [
        ("Checkpoints", _room(answer["checkpoints"]["bytes"], answer["checkpoints"]["hard_bytes"])),
        ("Bundles", _room(**answer["bundles"])),
        ("Artifacts", _room(**answer["artifacts"])),
        ("Environments", _room(**answer["environments"])),
    ]
    click.echo(pairs(rows))


def _room(bytes: int, quota_bytes: int | None) -> str:
    return f"{bytes:,} bytes" + (f" of {quota_bytes:,}" if quota_bytes else "")


def _person(project: str, email: str) -> int:
    members = connect().projects.members(project, email=email)  # compared in the portal's one form of addresses
    return int(only_row(members, f"{clean(email)} is not a member of {clean(project)}")["user"]["id"])


projects.add_command(service_accounts)

"""`evenkeel`: submit training jobs to an Evenkeel portal, watch them, and wait for them in CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from evenkeel.cli.arrays import arrays
from evenkeel.cli.artifacts import artifacts
from evenkeel.cli.audit import audit
from evenkeel.cli.checks import check
from evenkeel.cli.cluster import nodes, open_, queue, throughputs
from evenkeel.cli.completion import completion
from evenkeel.cli.cost import cost
from evenkeel.cli.doctor import doctor
from evenkeel.cli.drains import drain, resume
from evenkeel.cli.environments import environments
from evenkeel.cli.explain import explain
from evenkeel.cli.failures import asks_for_debug, ended_by_signals, exit_code, flush, usable_streams
from evenkeel.cli.fairness import fairness
from evenkeel.cli.guarantee import guarantee
from evenkeel.cli.idle import extend, idle
from evenkeel.cli.jobs import cancel, logs, ls, metrics, show
from evenkeel.cli.limit import limit
from evenkeel.cli.login import login
from evenkeel.cli.old_commands import add_old_commands
from evenkeel.cli.operate import bulk, change, hold, move, release, resubmit, stop_retrying
from evenkeel.cli.partitions import partition
from evenkeel.cli.people import people
from evenkeel.cli.preview import preview
from evenkeel.cli.projects import projects
from evenkeel.cli.qos import qos
from evenkeel.cli.secrets import secrets
from evenkeel.cli.shares import prio, shares
from evenkeel.cli.submit import submit
from evenkeel.cli.tokens import tokens
from evenkeel.cli.use import resources
from evenkeel.cli.waiting import wait
from evenkeel.cli.windows import window

COMMANDS: tuple[click.Command, ...] = (
    login, submit, preview, ls, queue, show, explain, logs, metrics, resources, wait, cancel,
    stop_retrying, hold, release, extend, change, resubmit, move, bulk, arrays, prio, shares, fairness,
    qos, partition, nodes, drain, resume, check, doctor, throughputs, window, idle, projects,
    people, limit, guarantee, cost, tokens, secrets, environments,
    artifacts, audit, open_, completion,
)  # fmt: skip


class Cli(click.Group):
    """Every end is a code of docs/cli.md and a sentence: click's own 2 for wrong usage becomes 1."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> NoReturn:
        options["standalone_mode"] = False
        given = list(sys.argv[1:] if args is None else args)
        debug = asks_for_debug(given)
        usable_streams()
        with ended_by_signals():
            try:
                code = super().main(given, *rest, **options)
                flush()
            except BaseException as error:
                code = exit_code(error, debug=debug)
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(command.name) for command in COMMANDS]


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="evenkeel", message="evenkeel %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show where in the program an error came from.")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Submit training jobs to a shared GPU cluster, watch them, and wait for them in CI.

    \b
    Examples:
      evenkeel login https://evenkeel.example.org
      evenkeel submit --model resnet50 --steps 2000 --gpus 1-6
      evenkeel submit job.yaml --wait
      evenkeel logs 12 -f

    \b
    Exit codes: 0 succeeded, 1 usage or connection error, 100 job failed, 101 not finished in time,
    102 not found, 103 job cancelled, 130 Ctrl-C, 143 SIGTERM.

    \b
    Environment: EVENKEEL_URL and EVENKEEL_TOKEN come before what `login` stored; NO_COLOR turns colours off;
    EVENKEEL_DEBUG=1 is --debug.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


for command in COMMANDS:
    cli.add_command(command)
add_old_commands(cli)

if __name__ == "__main__":
    cli()

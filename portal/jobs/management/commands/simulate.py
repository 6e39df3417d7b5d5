"""manage.py simulate: a trace under one or more policies, without server and database."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduling.errors import SchedulingError
from scheduling.simulator import parse_policy, simulate
from scheduling.simulator.readers import read_trace
from scheduling.simulator.report import SCHEMA, table
from scheduling.simulator.trace import read_cluster, read_throughputs


class Command(BaseCommand):
    help = "Simulate a trace on a cluster under one or more policies. Needs neither server nor database."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--trace", type=Path, required=True, help="jobs: trace JSON, .jobs.json or .trace")
        parser.add_argument("--cluster", type=Path, required=True, help="cluster file (JSON)")
        parser.add_argument(
            "--policy", action="append", required=True, metavar="NAME[:key=value,...]", help="may be given repeatedly"
        )
        parser.add_argument("--throughputs", type=Path, help="steps/s by model and type, beside the catalogue")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--json", type=Path, help="write the results here")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            results = self._simulate(options)
        except SchedulingError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(table(results))
        if options["json"]:
            document = {"schema": SCHEMA, "seed": options["seed"], "results": results}
            options["json"].write_text(json.dumps(document, indent=2) + "\n")

    def _simulate(self, options: dict[str, Any]) -> list[dict[str, Any]]:
        policies = [parse_policy(text) for text in options["policy"]]
        known = read_throughputs(options["throughputs"]) if options["throughputs"] else None
        jobs, cluster = read_trace(options["trace"], known), read_cluster(options["cluster"])
        return [simulate(jobs, cluster, name, values, options["seed"]) for name, values in policies]

"""manage.py simulate: a trace under one or more policies, without server and database."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError

from scheduling.errors import SchedulingError
from scheduling.simulator import Options, Simulation, parse_policy
from scheduling.simulator.clusters import load_cluster
from scheduling.simulator.pairs import read_pairs
from scheduling.simulator.readers import FORMATS, load_trace
from scheduling.simulator.report import SCHEMA, table
from scheduling.simulator.stranded import complaint, stranded
from scheduling.simulator.suite import Suite, run_suite
from scheduling.simulator.tables import write_jobs
from scheduling.simulator.trace import Cluster, TraceJob, read_throughputs


class Command(BaseCommand):
    help = "Simulate a trace on a cluster under one or more policies. Needs neither server nor database."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--trace", type=Path, required=True, help="jobs, in any of the formats below")
        parser.add_argument("--format", choices=sorted(FORMATS), help="of the trace; found by its content otherwise")
        parser.add_argument("--cluster", type=Path, required=True, help="cluster file (JSON)")
        parser.add_argument(
            "--policy", action="append", required=True, metavar="NAME[:key=value,...]", help="may be given repeatedly"
        )
        parser.add_argument("--throughputs", type=Path, help="steps/s by model and type, beside the catalogue")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--noise", type=float, default=0.0, help="relative deviation of true speeds, as 0.1")
        parser.add_argument(
            "--coalesce",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="between rounds of policies that look at every running job, at least",
        )
        parser.add_argument("--processes", type=int, default=1, help="policies simulated at the same time")
        parser.add_argument("--json", type=Path, help="write the results here")
        parser.add_argument("--csv", type=Path, help="write one line per job and policy here")
        parser.add_argument("--plots", type=Path, metavar="DIR", help="draw pictures into this folder")
        parser.add_argument("--plot-format", choices=("png", "svg"), default="png")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["processes"] < 1 or not 0.0 <= options["noise"] <= 10.0:
            raise CommandError("--processes must be at least 1 and --noise between 0 and 10.")
        if not 0.0 <= options["coalesce"] <= 3_600.0:
            raise CommandError("--coalesce must be between 0 and 3600 seconds.")
        try:
            simulations, cluster = self._simulate(options)
        except SchedulingError as error:
            raise CommandError(str(error)) from None
        self._write(simulations, cluster, options)
        if len(simulations) < len(options["policy"]) or any(one.outcome.interrupted for one in simulations):
            raise CommandError("Interrupted: the results are those up to then.", returncode=130)

    def _simulate(self, options: dict[str, Any]) -> tuple[list[Simulation], Cluster]:
        policies = [parse_policy(text) for text in options["policy"]]
        known = read_throughputs(options["throughputs"]) if options["throughputs"] else None
        cluster = load_cluster(options["cluster"])
        types = sorted({node.type for node in cluster.nodes})
        trace = load_trace(options["trace"], known, types, options["format"])
        for what, count in trace.skipped.items():
            self.stderr.write(f"{options['trace']} ({trace.format}): {count} {what}")
        self._say_who_never_runs(options["trace"], trace.jobs, cluster)
        pairs = read_pairs(options["throughputs"]) if options["throughputs"] else {}
        settings = Options(
            options["seed"],
            options["noise"],
            keep_holds=options["plots"] is not None,
            coalesce_s=options["coalesce"],
            pairs=pairs,
        )
        total = len(trace.jobs) * len(policies)
        with click.progressbar(length=total, label="jobs", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
            suite = Suite(trace.jobs, cluster, policies, settings)
            return run_suite(suite, options["processes"], bar.update), cluster

    def _say_who_never_runs(self, path: Path, jobs: Sequence[TraceJob], cluster: Cluster) -> None:
        never = stranded(jobs, cluster)
        if not never:
            return
        example = complaint(never[0], cluster)
        if len(never) == len(jobs):
            raise CommandError(f"{path}: none of its jobs can run: {example}.")
        self.stderr.write(f"{path}: {len(never):,} of its {len(jobs):,} jobs never run: {example}")

    def _write(self, simulations: Sequence[Simulation], cluster: Cluster, options: dict[str, Any]) -> None:
        results = [simulation.result for simulation in simulations]
        self.stdout.write(table(results))
        if options["json"]:
            document = {"schema": SCHEMA, "seed": options["seed"], "noise": options["noise"], "results": results}
            options["json"].write_text(json.dumps(document, indent=2) + "\n")
        if options["csv"]:
            write_jobs(simulations, cluster, options["csv"])
        if options["plots"]:
            from scheduling.simulator.plots import write_plots  # matplotlib takes a second to import

            write_plots(simulations, cluster, options["plots"], options["plot_format"])

"""manage.py simulate: a trace under one or more policies, without server and database."""

from __future__ import annotations

import io
import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
from django.core.management.base import BaseCommand, CommandError

from portal.operations.extras import require_extra
from portal.operations.management.outputs import STANDARD_OUTPUT, check_file, check_folder, check_value, unwritable
from scheduling.errors import SchedulingError
from scheduling.simulator import Options, Simulation, parse_policy
from scheduling.simulator.gpu_sharing.pairs import read_pairs
from scheduling.simulator.inputs.clusters import load_cluster
from scheduling.simulator.inputs.never_runs import complaint, stranded
from scheduling.simulator.inputs.trace import Cluster, TraceJob, read_throughputs
from scheduling.simulator.output.report import SCHEMA, label, remarks, table
from scheduling.simulator.output.tables import print_jobs, write_jobs
from scheduling.simulator.readers import FORMATS, load_trace
from scheduling.simulator.suite import Suite, run_suite

_NOTHING = "Interrupted: nothing was simulated."


class Command(BaseCommand):
    help = "Simulate a trace on a cluster under one or more policies. Needs neither server nor database."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--trace", type=Path, required=True, help="jobs, in any of the formats below")
        parser.add_argument("--format", choices=sorted(FORMATS), help="of the trace; found by its content otherwise")
        parser.add_argument(
            "--time-zone",
            type=_zone,
            default="UTC",
            metavar="ZONE",
            help="of times in the trace that name none, as Europe/Berlin for what sacct printed there; UTC by default",
        )
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
        parser.add_argument("--json", type=Path, help="write the results here; - is standard output")
        parser.add_argument("--csv", type=Path, help="write one line per job and policy here; - likewise")
        parser.add_argument("--plots", type=Path, metavar="DIR", help="draw pictures into this folder")
        parser.add_argument("--plot-format", choices=("png", "svg"), default="png")

    def handle(self, *args: Any, **options: Any) -> None:
        _check_values(options)
        try:
            suite = self._read(options)
            _check_outputs(options)
        except SchedulingError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError(_NOTHING, returncode=130) from None
        simulations = self._simulate(suite, options["processes"])
        if not simulations:
            raise CommandError(_NOTHING, returncode=130)
        self._write(simulations, suite, options)
        if len(simulations) < len(suite.policies) or any(one.outcome.interrupted for one in simulations):
            raise CommandError("Interrupted: the results are those up to then.", returncode=130)

    def _read(self, options: dict[str, Any]) -> Suite:
        policies = [parse_policy(text) for text in options["policy"]]
        known = read_throughputs(options["throughputs"]) if options["throughputs"] else None
        cluster = load_cluster(options["cluster"])
        types = sorted({node.type for node in cluster.nodes})
        trace = load_trace(options["trace"], known, types, options["format"], options["time_zone"])
        for remark in trace.remarks():
            self.stderr.write(f"{options['trace']} ({trace.format}): {remark}")
        if trace.left_out:
            self.stderr.write(f"{options['trace']}: {trace.left_out:,} rows are left out")
        self._report_unschedulable(options["trace"], trace.jobs, cluster)
        pairs = read_pairs(options["throughputs"]) if options["throughputs"] else {}
        settings = Options(
            options["seed"],
            options["noise"],
            keep_holds=options["plots"] is not None,
            coalesce_s=options["coalesce"],
            pairs=pairs,
        )
        return Suite(trace.jobs, cluster, policies, settings)

    def _simulate(self, suite: Suite, processes: int) -> list[Simulation]:
        total = len(suite.jobs) * len(suite.policies)
        with click.progressbar(length=total, label="jobs", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
            try:
                return run_suite(suite, processes, bar.update)
            except SchedulingError as error:
                raise CommandError(str(error)) from None
            except KeyboardInterrupt:
                raise CommandError("Interrupted twice: no results are kept.", returncode=130) from None

    def _report_unschedulable(self, path: Path, jobs: Sequence[TraceJob], cluster: Cluster) -> None:
        never = stranded(jobs, cluster)
        if not never:
            return
        example = complaint(never[0], cluster)
        if len(never) == len(jobs):
            raise CommandError(f"{path}: none of its jobs can run: {example}.")
        self.stderr.write(f"{path}: {len(never):,} of its {len(jobs):,} jobs never run: {example}")

    def _write(self, simulations: Sequence[Simulation], suite: Suite, options: dict[str, Any]) -> None:
        """A file that cannot be written does not prevent the others."""
        results = [simulation.result for simulation in simulations]
        taken = STANDARD_OUTPUT in (options["json"], options["csv"])
        asked = [label({"policy": name, "given": given}) for name, given in suite.policies]
        (self.stderr if taken else self.stdout).write("\n".join([table(results), *remarks(results, asked)]))
        document = {"schema": SCHEMA, "seed": options["seed"], "noise": options["noise"], "results": results}
        writers: dict[str, Callable[[Path], None]] = {
            "json": lambda path: self._write_json(document, path),
            "csv": lambda path: self._write_csv(simulations, suite.cluster, path),
            "plots": lambda path: _draw(simulations, suite.cluster, path, options["plot_format"]),
        }
        failed = []
        for option, write in writers.items():
            try:
                if options[option]:
                    write(options[option])
            except OSError as error:
                failed.append(unwritable(f"--{option}", options[option], error))
        if failed:
            raise CommandError("\n".join(failed))

    def _write_json(self, document: dict[str, Any], path: Path) -> None:
        text = json.dumps(document, indent=2) + "\n"
        if path == STANDARD_OUTPUT:
            self.stdout.write(text, ending="")
        else:
            path.write_text(text)

    def _write_csv(self, simulations: Sequence[Simulation], cluster: Cluster, path: Path) -> None:
        if path == STANDARD_OUTPUT:
            text = io.StringIO()
            print_jobs(simulations, cluster, text)
            self.stdout.write(text.getvalue(), ending="")
        else:
            write_jobs(simulations, cluster, path)


def _draw(simulations: Sequence[Simulation], cluster: Cluster, folder: Path, kind: str) -> None:
    from scheduling.simulator.output.plots import write_plots  # matplotlib takes a second to import

    write_plots(simulations, cluster, folder, kind)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ArgumentTypeError(f"there is no time zone {name!r}; an example is Europe/Berlin") from None


def _check_values(options: dict[str, Any]) -> None:
    processes, noise, coalesce_s = options["processes"], options["noise"], options["coalesce"]
    check_value("--processes", processes, processes >= 1, "at least 1")
    check_value("--noise", noise, 0.0 <= noise <= 10.0, "between 0 and 10")
    check_value("--coalesce", coalesce_s, 0.0 <= coalesce_s <= 3_600.0, "between 0 and 3,600 seconds")


def _check_outputs(options: dict[str, Any]) -> None:
    """Before anything is simulated: a long run would be lost."""
    files = {option: options[option] for option in ("json", "csv") if options[option]}
    if list(files.values()).count(STANDARD_OUTPUT) > 1:
        raise CommandError("--json and --csv cannot both be standard output (-).")
    for option, path in files.items():
        if path != STANDARD_OUTPUT:
            check_file(f"--{option}", path)
    if options["plots"]:
        require_extra("matplotlib", "plots", "--plots")
        check_folder("--plots", options["plots"])

"""manage.py solve: one allocation problem under one policy, without server and database."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduling.cases.case_file import Case, read_case, snapshot_of
from scheduling.domain import Allocation, Reason
from scheduling.domain.reason_codes import ReasonCode
from scheduling.errors import SchedulingError, SolverError
from scheduling.policies import POLICIES, load_policy, policy_class
from scheduling.policies.capabilities import Needs
from scheduling.policies.time_shares.programs.throughput_per_cost import UNPRICED


class Command(BaseCommand):
    help = "Solve an allocation problem and print the answer as JSON. Needs neither server nor database."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("case", type=Path, help="a policy-case/1 file")
        parser.add_argument("--policy", required=True, help="one that answers with fractions of time")
        parser.add_argument("--params", default="{}", help="its parameters as a JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["policy"]
        timed = sorted(known for known in POLICIES if policy_class(known).capabilities.shares_time)
        if name not in timed:
            raise CommandError(f"--policy: {name!r} does not answer with fractions of time; {', '.join(timed)} do.")
        try:
            answer = self._solve(read_case(options["case"]), name, self._parameters(options["params"]))
        except SchedulingError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps(answer, indent=2 if self.stdout.isatty() else None))

    def _parameters(self, text: str) -> dict[str, Any]:
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise CommandError(f"--params: {error}") from None
        if not isinstance(values, dict):
            raise CommandError('--params: must be a JSON object, as {"variant": "packed"}')
        return values

    def _solve(self, case: Case, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        policy = load_policy(name, parameters)
        started = time.perf_counter()
        snapshot = snapshot_of(case)
        built = time.perf_counter()
        try:
            answer, status = policy.allocate(snapshot), "optimal"
        except SolverError as error:
            answer, status = Allocation(shares={}), error.status
        solved = time.perf_counter()
        left_out = _left_out(case, answer, name) if status == "optimal" else {}
        reasons = {**left_out, **answer.reasons}
        ids = {str(job.job_id): job.job_id for job in case.jobs}
        return {
            "policy": name,
            "parameters": policy.parameters.model_dump(mode="json"),
            "status": status,
            "objective": answer.figures.get("objective"),
            "allocation": [
                [ids[key[0]], ids[key[1]] if len(key) == 2 else None, dict(by_type)]
                for key, by_type in (answer.shares or {}).items()
            ],
            "reasons": {key: {"token": r.token, "text": r.text} | dict(r.detail) for key, r in reasons.items()},
            "notes": _notes(case, name),
            "seconds": {"build": built - started, "solve": solved - built},
        }


def _left_out(case: Case, answer: Allocation, name: str) -> Mapping[str, Reason]:
    """For jobs without a share; in rounds their reasons come from elsewhere."""
    served = {job for key in answer.shares or {} for job in key}
    text = "The policy gives it no time for now"
    text += ": others are better value for the money." if _is_priced(name) else "."
    return {key: Reason(ReasonCode.NO_SHARE, text) for job in case.jobs if (key := str(job.job_id)) not in served}


def _is_priced(name: str) -> bool:
    return bool(Needs.PRICES in policy_class(name).capabilities.needs)


def _notes(case: Case, name: str) -> list[str]:
    """Assumptions, and parts of the file that were ignored."""
    notes = []
    unpriced = sorted(kind for kind, gpus in case.cluster_spec.items() if gpus and not case.prices.get(kind))
    if unpriced and _is_priced(name):
        notes.append(f"No price above 0 for {', '.join(unpriced)}: {UNPRICED:g} per GPU-hour is taken.")
    if case.model_extra:
        notes.append(f"Not read: {', '.join(sorted(case.model_extra))}.")
    return notes

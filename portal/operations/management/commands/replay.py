"""manage.py replay: plan a recorded round again, under its own policy or another."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.jobs.models import Decision
from portal.snapshot.decisions import replay, same_plan
from scheduling.domain import Gang
from scheduling.errors import SchedulingError
from scheduling.simulator import parse_policy


def _gpus(gang: Gang | dict[str, Any] | None) -> str:
    if gang is None:
        return "none"
    kind, count = (gang.type, gang.count) if isinstance(gang, Gang) else (gang["type"], gang["count"])
    return f"{count} × {kind}"


class Command(BaseCommand):
    help = "Plan a recorded round again from what it saw, under the policy in force then or under another."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("round", type=int, help="as named in the event feed")
        parser.add_argument("--policy", metavar="NAME[:key=value,...]", help="by default the one in force then")

    def handle(self, *args: Any, **options: Any) -> None:
        decision = Decision.objects.filter(round=options["round"]).first()
        if decision is None:
            raise CommandError(self._unknown(options["round"]))
        try:
            name, parameters = parse_policy(options["policy"]) if options["policy"] else ("", {})
            plan = replay(decision, name, parameters)
        except SchedulingError as error:
            raise CommandError(str(error)) from None
        recorded = {move["job_id"]: move for move in decision.plan["moves"]}
        planned = {move.job_id: move for move in plan.moves}
        self.stdout.write(f"round {decision.round} at {decision.at:%F %T}, {decision.policy_name}")
        for job_id in recorded | planned:
            then = _gpus(recorded[job_id]["gang"]) if job_id in recorded else "unmoved"
            now = _gpus(planned[job_id].gang) if job_id in planned else "unmoved"
            self.stdout.write(f"  {job_id}  recorded: {then:16} replayed: {now}")
        self.stdout.write("the same plan" if same_plan(plan, decision) else "another plan")

    def _unknown(self, number: int) -> str:
        known = Decision.objects.order_by("round").values_list("round", flat=True)
        if not known:
            return f"Round {number} is not recorded; none is yet."
        return (
            f"Round {number} is not recorded; kept are rounds that moved something, from {known[0]} to {known.last()}."
        )

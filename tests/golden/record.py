"""Records what is held equal: `python -m tests.golden.record`; `--decisions` adds those of the portal in EVENKEEL_DATA,
and `--replan` plans the recorded ones again after a change of sentences.

Only for a change of behaviour that is meant, in the commit that makes it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
from collections.abc import Iterator
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup()

from portal.jobs.models import Decision  # noqa: E402
from portal.snapshot.decisions import snapshot_of, snapshot_text  # noqa: E402
from tests.golden import subjects  # noqa: E402

#: Decisions of one policy that are taken: those with most to say.
OF_A_POLICY = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", action="store_true", help="also those that the running portal keeps")
    parser.add_argument(
        "--replan", action="store_true", help="also the recorded ones again, where only sentences differ"
    )
    arguments = parser.parse_args()
    subjects.SIMULATIONS.write_text(json.dumps(subjects.simulations(), indent=2) + "\n")
    subjects.NAMES.write_text(json.dumps(subjects.names(), indent=2) + "\n")
    if arguments.replan:
        again = [_replanned(one) for one in subjects.decisions()]
        with lzma.open(subjects.DECISIONS, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in again)
    if arguments.decisions:
        with lzma.open(subjects.DECISIONS, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in _kept())


def _replanned(kept: subjects.KeptDecision) -> subjects.KeptDecision:
    plan = subjects.replayed(kept)
    if _without_sentences(plan) != _without_sentences(kept["plan"]):
        raise SystemExit(f"round {kept['round']} under {kept['policy']} differs in more than its sentences")
    return {**kept, "plan": plan}


def _without_sentences(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_sentences(each) for key, each in value.items() if key not in ("text", "rejected")}
    return [_without_sentences(each) for each in value] if isinstance(value, list) else value


def _kept() -> Iterator[subjects.KeptDecision]:
    taken: dict[str, int] = {}
    rows = sorted(Decision.objects.select_related("base"), key=lambda row: (-len(row.plan["reasons"]), row.round))
    for row in rows:
        kept = subjects.KeptDecision(
            round=row.round,
            policy=row.policy_name,
            parameters=row.policy_parameters,
            snapshot=snapshot_text(snapshot_of(row)).decode(),
            plan=row.plan,
        )
        if taken.get(row.policy_name, 0) < OF_A_POLICY and subjects.replayed(kept) == row.plan:
            taken[row.policy_name] = taken.get(row.policy_name, 0) + 1
            yield kept
    print({name: taken[name] for name in sorted(taken)}, sum(taken.values()))


if __name__ == "__main__":
    main()

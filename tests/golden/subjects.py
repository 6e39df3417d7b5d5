"""What is held equal while the code is rebuilt: simulations, kept decisions, tasks, commands, the API's description.

`python -m tests.golden.record` writes what the present code says; the tests beside it compare.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from django.core.management import call_command, get_commands

from portal.celery import app
from portal.snapshot.decisions import plan_text, snapshot_from_text
from scheduling.engine.rounds import plan_round
from scheduling.policies import POLICIES, load_policy

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
SIMULATIONS = FOLDER / "simulations.json"
NAMES = FOLDER / "names.json"
DECISIONS = FOLDER / "decisions.jsonl.xz"
TRACES = ("sample", "paper")


class KeptDecision(TypedDict):
    """A decision as a portal stored it."""

    round: int
    policy: str
    parameters: dict[str, Any]
    snapshot: str
    plan: dict[str, Any]


def digest(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def simulations() -> Mapping[str, str]:
    """Digest of `simulate --json` for each policy and trace, without the seconds that it took."""
    return {f"{trace} {policy}": _simulation(trace, policy) for trace in TRACES for policy in POLICIES}


def _simulation(trace: str, policy: str) -> str:
    written = io.StringIO()
    call_command(
        "simulate",
        trace=ROOT / "examples" / f"{trace}.trace.json",
        cluster=ROOT / "examples" / f"{trace}.cluster.json",
        policy=[policy],
        json=Path("-"),
        stdout=written,
        stderr=io.StringIO(),
    )
    document = json.loads(written.getvalue())
    for result in document["results"]:
        del result["wall_s"]
    return digest(document)


def names() -> Mapping[str, list[str]]:
    """Names that stand in other people's scripts, in queued messages and in stored rows."""
    app.loader.import_default_modules()
    ours = sorted(name for name, owner in get_commands().items() if str(owner).startswith(("portal", "accounts")))
    return {
        "tasks": sorted(name for name in app.tasks if name.startswith("evenkeel.")),
        "beat": sorted(f"{key}: {entry['task']}" for key, entry in app.conf.beat_schedule.items()),
        "commands": ours,
        "policies": list(POLICIES),
    }


def decisions() -> Iterator[KeptDecision]:
    with lzma.open(DECISIONS, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def replayed(decision: KeptDecision) -> dict[str, Any]:
    """The plan that the present code makes of what that round saw."""
    policy = load_policy(decision["policy"], decision["parameters"])
    plan: dict[str, Any] = json.loads(plan_text(plan_round(snapshot_from_text(decision["snapshot"].encode()), policy)))
    return plan

"""Loops of the control plane: a failure of one item does not affect the others.

It is logged with the job, counted in `/metrics`, and shown to administrators. The item is postponed, so that it is not
tried in each pass and does not block the others. If the database is gone, the loop ends: nothing could be recorded.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import ParamSpec, TypeVar
from uuid import UUID

from celery.exceptions import SoftTimeLimitExceeded, TaskPredicate
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from accounts.models import Project
from portal.core import job_log
from portal.jobs.models import Cluster, FailingItem, FailureCount, Job, Node, Run

logger = logging.getLogger(__name__)

P = ParamSpec("P")
Done = TypeVar("Done")
Thing = TypeVar("Thing")

FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 600.0
#: Failing items of one loop, over all clusters. Further failures are logged and counted, and retried in the next pass.
MOST_KEPT = 1_000
#: Tracebacks logged in one pass; further failures are one line each.
_TRACEBACKS = 20
_LONGEST_ERROR, _LONGEST_NAME = 400, 200
#: Items not isolated by then are left out of this pass.
_LONGEST_SEARCH_S = 20.0
#: Longer than any loop's interval after an item was due.
_GONE = timedelta(minutes=30)
#: These end the task, not the item: a time limit, and Celery's own exceptions.
NOT_AN_ITEMS = (SoftTimeLimitExceeded, TaskPredicate)


class LoopName(StrEnum):
    """Each is a label of the metric. Loops before OUTBOX belong to one cluster."""

    ROUND = "round"
    INVENTORY = "inventory"
    FACTS = "facts"
    NODE_CHECKS = "node_checks"
    ACCEPT = "accept"
    PREPARE = "prepare"
    OVERDUE = "overdue"
    LIMITS = "limits"
    MAX_DURATION = "max_duration"
    UNSCHEDULABLE = "unschedulable"
    SNAPSHOT = "snapshot"
    REASONS = "reasons"
    MOVES = "moves"
    LAUNCH = "launch"
    ORPHANS = "orphans"
    IDLE = "idle"
    SAMPLES = "samples"
    EXPECTED_STARTS = "expected_starts"
    ARTIFACTS = "artifacts"
    OUTBOX = "outbox"
    DELIVERIES = "deliveries"
    LONG_WAITS = "long_waits"
    BUDGETS = "budgets"
    REPORTS = "reports"
    LIVE = "live"
    HANDOVERS = "handovers"
    REMOVAL = "removal"
    PRUNING = "pruning"
    SIMULATIONS = "simulations"
    ROLLOUTS = "rollouts"


#: What each loop does, shown to administrators after "fails to".
WORDS: Mapping[LoopName, str] = {
    LoopName.ROUND: "carry out a step of the scheduling round",
    LoopName.INVENTORY: "record a node",
    LoopName.FACTS: "take in what the executor reports of a run",
    LoopName.NODE_CHECKS: "check a node",
    LoopName.ACCEPT: "take a job into the queue",
    LoopName.PREPARE: "prepare code or environment",
    LoopName.OVERDUE: "end a state that lasts too long",
    LoopName.LIMITS: "enforce a job's max_cost or deadline",
    LoopName.MAX_DURATION: "enforce a job's max_duration",
    LoopName.UNSCHEDULABLE: "cancel a job whose dependency cannot be met",
    LoopName.SNAPSHOT: "read or schedule a job",
    LoopName.REASONS: "explain why a job waits",
    LoopName.MOVES: "apply a decision",
    LoopName.LAUNCH: "launch a run",
    LoopName.ORPHANS: "look for processes without a run",
    LoopName.IDLE: "apply the idle rule",
    LoopName.SAMPLES: "sample a cluster",
    LoopName.EXPECTED_STARTS: "estimate start times",
    LoopName.ARTIFACTS: "collect artifacts",
    LoopName.OUTBOX: "make notices of an event",
    LoopName.DELIVERIES: "deliver notices",
    LoopName.LONG_WAITS: "notify of a long wait",
    LoopName.BUDGETS: "give notice of a budget",
    LoopName.REPORTS: "take in a report",
    LoopName.LIVE: "publish a live stream",
    LoopName.HANDOVERS: "hand over the files of a moved job",
    LoopName.REMOVAL: "remove files",
    LoopName.PRUNING: "remove old records",
    LoopName.SIMULATIONS: "run a simulation",
    LoopName.ROLLOUTS: "check a rollout",
}
#: A job for which one of these failed is left out of rounds until it is retried, so that others get its GPUs.
LEFT_OUT = (LoopName.SNAPSHOT, LoopName.MOVES, LoopName.LAUNCH)
_ORDER = list(LoopName)
OF_CLUSTERS = frozenset(_ORDER[: _ORDER.index(LoopName.OUTBOX)])


@dataclass(frozen=True, slots=True)
class Item:
    """`key` within its loop, `name` for people, `about` for the log."""

    key: str
    name: str
    job_id: UUID | None = None
    about: job_log.Fields = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _printable(self.key, _LONGEST_NAME))
        object.__setattr__(self, "name", _printable(self.name, _LONGEST_NAME))


def of_job(job: Job) -> Item:
    return Item(str(job.pk), f"#{job.number} {job.name}", job.pk, job_log.of_job(job))


def of_run(run: Run) -> Item:
    """`run.job` must be loaded."""
    return Item(str(run.pk), f"#{run.job.number} {run.job.name}", run.job_id, job_log.of_run(run))


def of_run_id(run_id: str) -> Item:
    """For a run that may not exist."""
    return Item(str(run_id), f"run {run_id}", None, {"run_id": str(run_id)})


def of_cluster(cluster: Cluster, what: str = "") -> Item:
    return Item(f"{cluster.pk}:{what}", f"{what}, cluster {cluster.name}" if what else f"cluster {cluster.name}")


def of_node(node: Node) -> Item:
    return of_node_name(node.cluster_id, node.name)


def of_node_name(cluster_id: int, name: str) -> Item:
    return Item(f"{cluster_id}:{name}", f"node {name}", None, {"node": name})


def of_project(project: Project) -> Item:
    return Item(f"project:{project.pk}", f"project {project.key}", None, {"project": project.key})


def step(name: str, cluster_id: int | None = None) -> Item:
    """A part of a task without an item."""
    return Item(f"{cluster_id or ''}:{name}", name)


class Loop:
    """One pass over items. Known failures are read once, with the first item.

    `postpones`: a failing item waits, for 2 s at first and at most ten minutes; otherwise it is tried in each pass,
    like the steps of a round.
    """

    def __init__(self, name: LoopName, cluster_id: int | None = None, *, postpones: bool = True) -> None:
        self.name, self._cluster_id, self._postpones = name, cluster_id, postpones
        self._failed = 0
        #: The last failed item, as a sentence.
        self.last_error = ""

    @cached_property
    def _known(self) -> dict[str, tuple[int, datetime]]:
        """By key: failures in a row, and when the item is retried."""
        rows = FailingItem.objects.filter(loop=self.name)
        return {key: (failures, at) for key, failures, at in rows.values_list("key", "failures", "next_attempt_at")}

    @property
    def postponed(self) -> set[str]:
        """Keys of postponed items."""
        now = timezone.now()
        return {key for key, (_, at) in self._known.items() if at > now} if self._postpones else set()

    def _is_postponed(self, item: Item) -> bool:
        _, at = self._known.get(item.key, (0, None))
        return self._postpones and at is not None and at > timezone.now()

    def postponed_ids(self, prefix: str = "") -> list[str]:
        """Ids of postponed items whose key is `prefix` and an id: queries for the oldest few skip them, so that they do
        not block others."""
        found = (key.removeprefix(prefix) for key in self.postponed if key.startswith(prefix))
        return [key for key in found if ":" not in key]

    def due(self, things: Iterable[Thing], item_of: Callable[[Thing], Item]) -> list[Thing]:
        if not (found := list(things)):
            return []
        postponed = self.postponed
        return [one for one in found if item_of(one).key not in postponed]

    def run(self, item: Item, do: Callable[P, Done], *args: P.args, **kwargs: P.kwargs) -> Done | None:
        """None if it failed, or is postponed."""
        return self.attempt(item, do, *args, **kwargs)[1]

    def attempt(self, item: Item, do: Callable[P, Done], *args: P.args, **kwargs: P.kwargs) -> tuple[bool, Done | None]:
        """Whether it succeeded, and its result."""
        if self._is_postponed(item):
            return False, None
        try:
            with job_log.about(item.about), savepoint():
                done = do(*args, **kwargs)
        except Exception as error:
            self.failed(item, error)
            return False, None
        self.succeeded(item)
        return True, done

    def together(
        self, things: Iterable[Thing], item_of: Callable[[Thing], Item], do: Callable[[Sequence[Thing]], list[Done]]
    ) -> list[Done]:
        """All due items at once; if that fails, each half separately, so that only the faulty items fail. `do` may be
        called again for items it has handled."""
        due = self.due(things, item_of)
        return self._halves(due, item_of, do) if due else []

    def _halves(
        self, things: Sequence[Thing], item_of: Callable[[Thing], Item], do: Callable[[Sequence[Thing]], list[Done]]
    ) -> list[Done]:
        try:
            with savepoint():
                done = do(things)
        except Exception as error:
            if half := len(things) // 2:
                reraise_unless_item(error)
                return [*self._halves(things[:half], item_of, do), *self._halves(things[half:], item_of, do)]
            self.failed(item_of(things[0]), error)
            return []
        self.succeeded_all(map(item_of, things))
        return done

    def most(
        self, things: Sequence[Thing], item_of: Callable[[Thing], Item], build: Callable[[Sequence[Thing]], Done]
    ) -> Done:
        """The result of `build` for all items; if it fails, for all but those that cause the failure. Raises its error
        if it also fails without items."""
        try:
            with savepoint():
                done = build(things)
            self.succeeded_all(map(item_of, things))
            return done
        except Exception as error:
            reraise_unless_item(error)
        with savepoint():
            done = build([])
        until_s, kept = time.monotonic() + _LONGEST_SEARCH_S, list[Thing]()
        left = [things] if things else []
        while left and time.monotonic() < until_s:
            some = left.pop()
            try:
                with savepoint():
                    done = build([*kept, *some])
                kept += some
            except Exception as error:
                reraise_unless_item(error)
                if half := len(some) // 2:
                    left += [some[half:], some[:half]]
                else:
                    self.failed(item_of(some[0]), error)
        self.succeeded_all(map(item_of, kept))
        return done

    def failed(self, item: Item, error: Exception) -> None:
        """Log, count and store the failure. Raises `error` if no item caused it."""
        reraise_unless_item(error)
        self._failed += 1
        self.last_error = in_a_sentence(error)
        trace = error if self._failed <= _TRACEBACKS else None
        with job_log.about(item.about):
            logger.error("loop %s, %s: %s", self.name, item.name, self.last_error, exc_info=trace)
        now, (before, _) = timezone.now(), self._known.get(item.key, (0, None))
        until = now + timedelta(seconds=min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(before, 20)))
        self._count()
        if before or len(self._known) < MOST_KEPT:
            self._remember(item, error, now, until)
            self._known[item.key] = (before + 1, until)

    def succeeded(self, item: Item) -> None:
        """Remove the stored failure."""
        if self._known.pop(item.key, None) is not None:
            FailingItem.objects.filter(loop=self.name, key=item.key).delete()

    def succeeded_all(self, items: Iterable[Item]) -> None:
        """No query if there is no failure."""
        for item in items:
            if not self._known:
                return
            self.succeeded(item)

    def _remember(self, item: Item, error: Exception, now: datetime, until: datetime) -> None:
        text = in_a_sentence(error)
        rows = FailingItem.objects.filter(loop=self.name, key=item.key)
        if rows.update(failures=F("failures") + 1, last_at=now, next_attempt_at=until, error=text):
            return
        row = FailingItem(
            loop=self.name,
            key=item.key,
            name=item.name,
            cluster_id=self._cluster_id,
            job_id=item.job_id,
            since=now,
            last_at=now,
            next_attempt_at=until,
            error=text,
        )
        FailingItem.objects.bulk_create([row], ignore_conflicts=True)

    def _count(self) -> None:
        cluster = Cluster.objects.filter(pk=self._cluster_id).first() if self._cluster_id is not None else None
        mine = {"loop": self.name, "cluster_name": cluster.name if cluster else ""}
        FailureCount.objects.bulk_create([FailureCount(**mine)], ignore_conflicts=True)
        FailureCount.objects.filter(**mine).update(failures=F("failures") + 1)


def savepoint() -> AbstractContextManager[None]:
    """In a transaction a failing item must not break it for the others."""
    return transaction.atomic() if connection.in_atomic_block else nullcontext()


def reraise_unless_item(error: Exception) -> None:
    """Raises `error` if it is the task's time limit, or the database is gone: the loop ends then."""
    if isinstance(error, NOT_AN_ITEMS):
        raise error
    if isinstance(error, (OperationalError, InterfaceError)) and not connection.is_usable():
        raise error


_SECRETS = (
    (re.compile(r"(?i)\bbearer\s+\S+"), "Bearer ***"),
    (re.compile(r"://[^/\s@]*@"), "://***@"),
    (re.compile(r"(?i)\b(\w*(?:password|passwd|secret|token|api[_-]?key|authorization))(\s*[=:]\s*)\S+"), r"\1\2***"),
)


def in_a_sentence(error: Exception) -> str:
    """Its type and first line, without anything that looks like a credential."""
    try:
        said = str(error).strip().partition("\n")[0]
    except Exception:
        said = ""
    for pattern, instead in _SECRETS:
        said = pattern.sub(instead, said[:2_000])
    said = job_log.masked(said)
    kind = type(error).__name__
    return _printable(f"{kind}: {said}" if said else kind, _LONGEST_ERROR)


def _printable(text: str, most: int) -> str:
    """PostgreSQL accepts neither NUL nor lone surrogates."""
    kept = "".join(c if c.isprintable() else " " for c in text[: 2 * most])
    return kept if len(kept) <= most else f"{kept[: most - 1]}…"


def postponed_in(*names: LoopName) -> set[str]:
    """Keys of items that these loops have postponed."""
    rows = FailingItem.objects.filter(loop__in=names, next_attempt_at__gt=timezone.now())
    return set(rows.values_list("key", flat=True))


def failing_now(now: datetime) -> QuerySet[FailingItem]:
    """Items that no pass has tried since they were due are gone: a run that ended, a file that was removed."""
    return FailingItem.objects.filter(next_attempt_at__gte=now - _GONE)


def forget_old(now: datetime) -> None:
    FailingItem.objects.filter(next_attempt_at__lt=now - _GONE).delete()


def task_of(loop: str) -> str:
    """What the loop does; for a loop that no longer exists, its name."""
    return WORDS[LoopName(loop)] if loop in WORDS else loop

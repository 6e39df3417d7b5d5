"""Reports that arrive at the same time are recorded together: the request whose turn it is records those of all waiting
requests.

With few runs each report has its own transaction; the more runs there are, the more reports share one, and the cheaper
each is.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Event, Lock
from uuid import UUID

from django.utils import timezone

from portal.jobs.loops import Loop, LoopName, in_a_sentence, of_run_id, reraise_unless_item, savepoint
from portal.jobs.models import Run
from portal.lifecycle.transitions import StaleRun
from portal.reporting.reports import Orders, Report, StaleEpoch, record_report, record_reports

logger = logging.getLogger(__name__)
#: Reports in one transaction, and requests with their reports.
MOST = 128


class NotTaken(Exception):
    """By a failure of the portal: that of one run's report does not affect other runs."""


Outcome = Orders | StaleEpoch | StaleRun | NotTaken | Run.DoesNotExist


@dataclass(slots=True, eq=False)
class _Batch:
    """Of one request: reports of different runs."""

    reports: dict[UUID, Report]
    taken: dict[UUID, Orders] = field(default_factory=dict)
    tried: bool = False
    #: Set once it was tried, or has its turn.
    called: Event = field(default_factory=Event)


class _BatchQueue:
    """The first waiting batch has its turn until it and the batches recorded with it leave."""

    def __init__(self) -> None:
        self._lock, self.waiting = Lock(), deque[_Batch]()

    def join(self, one: _Batch) -> None:
        """Returns when `one` has its turn, or was tried."""
        with self._lock:
            self.waiting.append(one)
            if self.waiting[0] is one:
                return
        one.called.wait()

    def first(self) -> list[_Batch]:
        """The batch with its turn, and those behind it that can be recorded with it."""
        with self._lock:
            batch, together = [self.waiting[0]], set(self.waiting[0].reports)
            for one in islice(self.waiting, 1, MOST):
                if len(together) + len(one.reports) > MOST or not together.isdisjoint(one.reports):
                    break
                batch.append(one)
                together |= one.reports.keys()
        return batch

    def leave(self, batch: Sequence[_Batch]) -> None:
        with self._lock:
            for _ in batch:
                self.waiting.popleft()
            following = self.waiting[0] if self.waiting else None
        for one in batch:
            one.tried = True
            one.called.set()
        if following is not None:
            following.called.set()


_queue = _BatchQueue()


def record_batch(reports: Sequence[tuple[UUID, Report]]) -> list[Outcome]:
    """The answers to the reports, in their order."""
    mine = _Batch(dict(reversed(reports)))
    _queue.join(mine)
    if not mine.tried:
        batch = _queue.first()
        try:
            orders = _together({run: said for one in batch for run, said in one.reports.items()})
            for one in batch:
                one.taken = {run: orders[run] for run in one.reports if run in orders}
        finally:
            _queue.leave(batch)
    taken = {id(mine.reports[run]): orders for run, orders in mine.taken.items()}
    return [taken.get(id(report)) or _alone(run, report) for run, report in reports]


def _together(reports: dict[UUID, Report]) -> dict[UUID, Orders]:
    """None if one of them cannot be recorded: then each is tried alone."""
    try:
        with savepoint():
            return record_reports(reports, timezone.now())
    except Exception as error:
        reraise_unless_item(error)
        logger.warning("%d reports are taken in one by one: %s", len(reports), in_a_sentence(error))
        return {}


def _alone(run: UUID, report: Report) -> Outcome:
    loop, item = Loop(LoopName.REPORTS, postpones=False), of_run_id(str(run))
    try:
        with savepoint():
            orders = record_report(run_id=run, report=report, now=timezone.now())
    except (StaleEpoch, StaleRun, Run.DoesNotExist) as error:
        return error
    except Exception as error:
        loop.failed(item, error)
        return NotTaken("The report could not be taken in; an administrator sees why. Send it again later.")
    loop.succeeded(item)
    return orders

"""Reports that are here at the same time are taken in together: whose turn it is does it for all that wait.

With few runs each comes alone and waits for nobody; the more there are the more share a transaction, and the cheaper
is each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from uuid import UUID

from django.utils import timezone

from portal.jobs.models import Run
from portal.jobs.services.moves import StaleRun
from portal.jobs.services.reports import Orders, Report, StaleEpoch, record_report, record_reports

#: Reports in one transaction, and requests whose reports they are.
MOST = 128
Outcome = Orders | StaleEpoch | StaleRun | Run.DoesNotExist


@dataclass(slots=True, eq=False)
class _Waiting:
    """Of one request: reports of different runs."""

    reports: dict[UUID, Report]
    taken: dict[UUID, Orders] = field(default_factory=dict)
    tried: bool = False


_waiting: deque[_Waiting] = deque()
_turn = Lock()


def take_in(reports: Sequence[tuple[UUID, Report]]) -> list[Outcome]:
    """What each is answered, in their order."""
    mine = _Waiting(dict(reversed(reports)))
    _waiting.append(mine)
    with _turn:
        while not mine.tried:
            _take_next()
    taken = {id(mine.reports[run]): orders for run, orders in mine.taken.items()}
    return [taken.get(id(report)) or _alone(run, report) for run, report in reports]


def _take_next() -> None:
    """The caller has the turn, and something waits."""
    batch = [_waiting.popleft()]
    together = dict(batch[0].reports)
    for one in list(islice(_waiting, MOST)):
        if len(together) + len(one.reports) > MOST or not together.keys().isdisjoint(one.reports):
            break
        batch.append(_waiting.popleft())
        together |= one.reports
    orders = record_reports(together, timezone.now())
    for one in batch:
        one.taken, one.tried = {run: orders[run] for run in one.reports if run in orders}, True


def _alone(run: UUID, report: Report) -> Outcome:
    try:
        return record_report(run_id=run, report=report, now=timezone.now())
    except (StaleEpoch, StaleRun, Run.DoesNotExist) as error:
        return error

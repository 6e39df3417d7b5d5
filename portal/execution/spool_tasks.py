"""Records reports that runners spooled while the portal was unreachable. A round only starts the task."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from celery import shared_task
from pydantic import ValidationError

from portal.core import job_log
from portal.core.locks import project_slot, spool_lock
from portal.core.times import from_posix
from portal.execution import executors
from portal.execution.observe import fact_from, take_in
from portal.jobs import spooled_runs
from portal.jobs.models import Cluster, Hold, Run
from portal.reporting import observation
from portal.reporting.reports import Report, StaleEpoch, record_report
from scheduling.executors.base import Fact, Spooled

logger = logging.getLogger(__name__)

#: Time limit for the reports of one run; after it only the newest is recorded.
TAKE_S = 20.0
#: Delay after which a task beyond its project's limit is retried.
COME_AGAIN_S = 5.0


@shared_task(name="evenkeel.take_spooled", ignore_result=True)
def take_spooled(cluster_id: int, content: dict[str, Any]) -> None:
    """The reports of an exited launch, then its exit. May be repeated: recorded reports change nothing."""
    fact = fact_from(content)
    project_id = Run.objects.filter(pk=fact.run_id).values_list("job__project_id", flat=True).first()
    if project_id is None:
        return
    with project_slot(project_id) as mine:
        if not mine:  # one project's reports must not occupy all processes
            spooled_runs.expect(fact.run_id, fact.epoch)
            take_spooled.apply_async((cluster_id, content), countdown=COME_AGAIN_S)
        else:
            with job_log.about({"run_id": fact.run_id, "epoch": fact.epoch}), spool_lock(fact.run_id) as alone:
                if alone:
                    _take_all(cluster_id, fact)


def _take_all(cluster_id: int, fact: Fact) -> None:
    """Once: its exit ends the occupancy of a launch, so a repeated message finds none."""
    if Hold.objects.filter(run=UUID(fact.run_id), epoch=fact.epoch, during__upper_inf=True).exists():
        spooled_runs.begin(fact.run_id, fact.epoch)
        _take_reports(Cluster.objects.get(pk=cluster_id), fact)
        take_in(fact)
    spooled_runs.end(fact.run_id, fact.epoch)


def _take_reports(cluster: Cluster, fact: Fact) -> None:
    """Errors here lose reports, never the exit."""
    try:
        dropped = _record(fact, executors.executor_for(cluster).spooled(fact.run_id, fact.epoch))
    except Exception:
        logger.exception("reports that run %s left behind", fact.run_id)
        observation.note_dropped(fact, "some of the reports that its runner left behind could not be read")
        return
    if dropped:
        text = f"{dropped:,} reports that its runner left behind were not taken in: too many, too large or not valid"
        observation.note_dropped(fact, text)


@dataclass(slots=True)
class _Taking:
    fact: Fact
    now: datetime
    dropped: int = 0

    def take(self, report: Report) -> None:
        """Raises StaleEpoch and Run.DoesNotExist."""
        try:
            record_report(run_id=self.fact.run_id, report=report, now=self.now)
        except (StaleEpoch, Run.DoesNotExist):
            raise
        except Exception:
            logger.exception("a report that run %s left behind", self.fact.run_id)
            self.dropped += 1


def _record(fact: Fact, spooled: Iterable[Spooled]) -> int:
    """The number of dropped reports. `seq` makes repeats harmless."""
    taking, until = _Taking(fact, from_posix(fact.at)), time.monotonic() + TAKE_S
    newest: Report | None = None
    try:
        for one in spooled:
            taking.dropped += one.dropped
            report = _valid(one)
            if report is None:
                taking.dropped += one.report is not None
            elif time.monotonic() < until:
                taking.take(report)
            else:
                taking.dropped += newest is not None
                newest = report
        if newest is not None:
            taking.take(newest)
    except (StaleEpoch, Run.DoesNotExist) as error:
        logger.info("reports that run %s left behind: %s", fact.run_id, error)
    return taking.dropped


def _valid(one: Spooled) -> Report | None:
    try:
        return Report.model_validate(one.report) if one.report is not None else None
    except ValidationError as error:
        logger.info("a report that was left behind is not valid: %s", error.errors(include_input=False)[:1])
        return None

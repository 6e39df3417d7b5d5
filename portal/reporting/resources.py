"""Reported use of GPUs: a series for each launch, and a profile for each application and device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from portal.core.series import MOST_ROWS, Row, bounded, even, grouped, pack, slot, unpack
from portal.core.times import from_posix
from portal.database.rows import update_rows
from portal.jobs.models import Hold, ResourceProfile, ResourceSeries, Run
from portal.throughput.profiles import workload_of
from scheduling.domain.usage_history import RESOURCES

#: Rows that are packed together: two minutes at 5 s.
TAIL = 24
_MAY_CHANGE = ("tail", "newest_at", "sample_s", "packed", "interval_s", "in_profile")
#: Bounds of an application's history; a launch with fewer rows than the second does not replace one.
HISTORY_ROWS, LEAST_ROWS = 64, 12


@dataclass(frozen=True, slots=True)
class Said:
    interval_s: float
    source: str
    samples: list[Row]  # [POSIX seconds, fraction, ...]


def note_resources(said: Sequence[tuple[Run, Said]], now: datetime) -> None:
    """For different runs, which the caller has locked. Values older than the newest known one, or of the future, are
    ignored: clocks jump."""
    epochs = {run.pk: run.epoch for run, _ in said}
    series = ResourceSeries.objects.filter(run__in=epochs, epoch__in=set(epochs.values())).defer("packed")
    known = {one.run_id: one for one in series if one.epoch == epochs[one.run_id]}
    rows: dict[int, dict[str, object]] = {}
    for run, one in said:
        kept = known.get(run.pk)
        if kept is None:
            if not one.samples:
                continue
            kept = _begun(run, one, now)
        _add(kept, one, now)
        if len(kept.tail) >= TAIL:
            _pack(run, kept, now, last=False)
            kept.save(update_fields=None if kept._state.adding else _MAY_CHANGE)
        elif kept._state.adding:
            kept.save()
        else:
            rows[kept.pk] = {name: getattr(kept, name) for name in ("tail", "newest_at", "sample_s")}
    update_rows(ResourceSeries, rows)


def _add(kept: ResourceSeries, said: Said, now: datetime) -> None:
    began, newest = kept.began_at.timestamp(), kept.newest_at.timestamp()
    for at, *values in said.samples:
        if at is not None and newest < at <= now.timestamp() + 1:
            kept.tail.append([round(at - began, 1), *values])
            newest = at
    kept.newest_at, kept.sample_s = from_posix(newest), said.interval_s


def close_series(run: Run, now: datetime) -> None:
    """The launch is over: pack the rest of it, too."""
    kept = ResourceSeries.objects.filter(run=run, epoch=run.epoch).first()
    if kept is not None and kept.tail:
        _pack(run, kept, now, last=True)
        kept.save(update_fields=_MAY_CHANGE)


def _begun(run: Run, said: Said, now: datetime) -> ResourceSeries:
    held = Hold.objects.filter(run=run, epoch=run.epoch)
    kind = held.aggregate(type=Max("accelerator__node__accelerator_type"))["type"] or ""
    first = min(from_posix(said.samples[0][0] or 0.0), now)
    return ResourceSeries(
        run=run,
        epoch=run.epoch,
        accelerator_type=kind,
        gpus=held.count(),
        share_percent=run.job.gpu_share_percent,
        emulated=run.emulated,
        source=said.source,
        began_at=first,
        newest_at=first - timedelta(microseconds=1),
        interval_s=said.interval_s,
        sample_s=said.interval_s,
    )


def _pack(run: Run, kept: ResourceSeries, now: datetime, *, last: bool) -> None:
    """Whole intervals only: rows of the newest one may be missing."""
    still_open = None if last else slot(kept.tail[-1], kept.interval_s)
    ready = [row for row in kept.tail if slot(row, kept.interval_s) != still_open]
    if not ready:
        return
    kept.tail = kept.tail[len(ready) :]
    rows = unpack(kept.packed) + grouped(ready, kept.interval_s)
    rows, kept.interval_s = bounded(rows, kept.interval_s, MOST_ROWS)
    kept.packed = pack(rows)
    _note_profile(run, kept, ready, rows, now)


def _note_profile(run: Run, kept: ResourceSeries, ready: list[Row], rows: list[Row], now: datetime) -> None:
    known, _ = ResourceProfile.objects.get_or_create(
        workload=workload_of(run.job),
        batch_size=run.job.batch_size,
        accelerator_type=kept.accelerator_type,
        gpus=kept.gpus,
        share_percent=kept.share_percent,
        emulated=kept.emulated,
        defaults={"updated_at": now},
    )
    profile = ResourceProfile.objects.select_for_update().get(pk=known.pk)  # other runs report on it, too
    profile.sums = _added(profile.sums, ready, kept.sample_s)
    profile.launches += not kept.in_profile
    kept.in_profile = True
    if len(rows) >= LEAST_ROWS or not bytes(profile.history):
        short, profile.interval_s = bounded(*even(rows, kept.interval_s), HISTORY_ROWS)
        profile.history = pack(short)
    profile.updated_at = now
    profile.save()


def _added(sums: dict[str, list[float]], rows: list[Row], interval_s: float) -> dict[str, list[float]]:
    found = dict(sums)
    for number, name in enumerate(RESOURCES, 1):
        known = [value for row in rows if (value := row[number]) is not None]
        if known:
            total, seconds, peak = found.get(name, [0.0, 0.0, 0.0])
            found[name] = [total + sum(known) * interval_s, seconds + len(known) * interval_s, max(peak, *known)]
    return found


def prune(now: datetime | None = None) -> None:
    """Remove profiles without additions for this long."""
    oldest = (now or timezone.now()) - timedelta(days=settings.EVENKEEL_KEEP.resources_days)
    ResourceSeries.objects.filter(newest_at__lt=oldest).delete()
    ResourceProfile.objects.filter(updated_at__lt=oldest).delete()

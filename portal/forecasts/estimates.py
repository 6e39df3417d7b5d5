"""What a job file would cost, before it is submitted, and the basis of that estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from accounts.ledger import PriceBook
from accounts.models import Project
from accounts.pricing import HOUR_US, WHOLE, amount, from_micro
from portal.accounting.admission import Asked, foresee
from portal.cluster.partitions import gpus_by_type
from portal.core.money import CURRENCY
from portal.drafts.draft import ResolvedDraft
from portal.jobfile.gpu_text import gang_words
from portal.jobs.models import Job
from portal.snapshot.engine_limits import OwnPartitions, largest_nodes, time_warnings
from portal.throughput import profiles
from portal.throughput.expected_end import SPREAD
from scheduling.throughput.curves import Profile

#: Ends beyond this are useless, and no date can hold them.
_LONGEST_S = 50 * 365 * 86_400.0


def describe_price(
    book: PriceBook, project_id: int, accelerator_type: str, at: datetime, cluster: str
) -> dict[str, Any]:
    """The prices of a moment, each before the discount."""
    gpu, kept = book.price_at(project_id, "gpu", accelerator_type, at, cluster)
    cpu, memory = (book.price_at(project_id, resource, "", at, cluster)[0] for resource in ("cpu", "memory"))
    return {
        "per_gpu_hour": str(from_micro(gpu)),
        "per_cpu_hour": str(from_micro(cpu)),
        "per_gib_hour": str(from_micro(memory)),
        "discount_percent": str(Decimal(WHOLE - kept) / 100),
    }


@dataclass(frozen=True)
class Known:
    """What is known before a job is submitted: its throughput by type, and the inputs of its cost."""

    job: Job  # not stored
    steps: int  # on which it would run
    types: Mapping[str, int]  # GPUs that it may use by type
    profiles: Mapping[str, Profile]
    book: PriceBook
    node_sizes: Mapping[str, int]
    now: datetime

    def option(self, kind: str, count: int) -> dict[str, Any] | None:
        """Duration and cost on this many GPUs of a type; None if its speed there is unknown."""
        profile = self.profiles.get(kind)
        return _option(self, kind, count, profile) if profile and profile.curve.source != "trial" else None


def known_of(wish: ResolvedDraft, now: datetime, book: PriceBook | None = None) -> Known:
    """`book`: the prices of `now`, where they are read already."""
    [job] = wish.jobs([(0, wish.job_file.array.numbers[0] if wish.job_file.array else None)], now)
    return known_of_job(job, now, book)


def known_of_job(job: Job, now: datetime, book: PriceBook | None = None) -> Known:
    """For the rest of a job, stored or not."""
    assert job.run is not None
    types = gpus_by_type(job.cluster_id, job.partition)
    measured = profiles.measured_numbers(profiles.workloads_of(job), job.cluster_id)
    known = dict(sorted(profiles.profiles_of(job, types, measured).items()))
    steps, book = job.total_steps - job.run.step, book or PriceBook(now)
    return Known(job, steps, types, known, book, largest_nodes(job.cluster_id), now)


def estimate(wish: ResolvedDraft, known: Known) -> dict[str, Any]:
    options = [
        option
        for kind, profile in known.profiles.items()
        for count in _counts(known.job, profile, known.types[kind])
        if (option := known.option(kind, count)) is not None
    ]
    amounts = [Decimal(option[end]) for option in options for end in ("low", "high")]
    job_file, project = wish.job_file, wish.project
    count = len(job_file.array.numbers) if job_file.array else 1
    asked = Asked(job_file.gpus.min, job_file.gpus.types, count)
    refused_by, waits_for = foresee(user=wish.user, project=project, asked=asked)
    return {
        "currency": CURRENCY,
        "project": project.key,
        "options": options,
        "low": str(min(amounts)) if amounts else None,
        "high": str(max(amounts)) if amounts else None,
        "basis": _basis(options),
        "discount": _discount(known.book, project, known.now),
        "jobs": count,
        "refused_by": refused_by,
        "waits_for": waits_for,
    }


def too_long(known: Known) -> list[str]:
    """The effect of its engine's time limit."""
    assert known.job.run is not None
    return time_warnings(known.job, known.job.run, known.profiles, known.types, OwnPartitions())


def _counts(job: Job, profile: Profile, total: int) -> list[int]:
    """The least number of GPUs, and all larger ones that it gains from."""
    if profile.curve.source == "trial" or job.min_gpus > total:
        return []
    most = min(total, job.max_gpus or total)
    best = min(range(job.min_gpus, most + 1), key=lambda n: (-profile.curve.at(n), n), default=job.min_gpus)
    return sorted({job.min_gpus, best})


def _option(known: Known, kind: str, count: int, profile: Profile) -> dict[str, Any] | None:
    job, book, now = known.job, known.book, known.now
    speed = profile.curve.at(count)
    if speed <= 0 or known.steps / speed > _LONGEST_S:
        return None
    duration_s = known.steps / speed
    nodes = -(-count // known.node_sizes.get(kind, 1))
    cpus, memory = (nodes * int(job.spec.get(name) or 0) for name in ("cpus", "memory"))
    hundredths = count * job.gpu_share_percent
    where = job.cluster.name
    asked = {"gpu_hundredths": hundredths, "cpus": cpus, "memory_mib": memory}
    per_us = book.product_per_us(job.project_id, kind, now, cluster=where, **asked)
    number = profile.numbers.get(count)
    source = number.source if number else profile.curve.source
    cost = Decimal(per_us) * int(duration_s * 10**6)
    spread = Decimal(str(SPREAD.get(source, 0.3)))
    price = describe_price(book, job.project_id, kind, now, where)
    off = f" less {price['discount_percent']} %" if Decimal(price["discount_percent"]) else ""
    words = gang_words(count, kind, job.gpu_share_percent)
    return {
        "type": kind,
        "gpus": count,
        "steps_per_s": speed,
        "source": source,
        "age_s": number.age_s(now.timestamp()) if number else None,
        "samples": number.samples if number else 0,
        "duration_s": round(duration_s, 3),
        "price": price,
        "price_per_hour": str(amount(per_us * HOUR_US)),
        "amount": str(amount(cost)),
        "low": str(amount(cost * (1 - spread))),
        "high": str(amount(cost * (1 + spread))),
        "basis": f"{known.steps:,} steps at {speed:.3g} steps/s ({source}) on {words}, "
        f"at {price['per_gpu_hour']} {CURRENCY} per GPU-hour{off}",
    }


def _basis(options: list[dict[str, Any]]) -> str:
    if not options:
        return "Nothing is known yet of its speed on the GPUs of this cluster, so there is nothing to estimate from."
    return "The job keeps the GPUs of the option from its start to its end, at the prices of now; waiting is free."


def _discount(book: PriceBook, project: Project, now: datetime) -> dict[str, Any] | None:
    """The reduction of the options' amounts, and whose discount it is."""
    found = book.discount_at(project.pk, now)
    if found is None:
        return None
    level, kept = found
    whose = project if level == project.pk else Project.objects.get(pk=level)
    return {"percent": str(Decimal(WHOLE - kept) / 100), "project": whose.key, "name": whose.name}

"""Chooses a job's cluster: the one that it names, or the portal's choice by expected end or by cost.

The choice rests on what the last round and the last forecast of each cluster left (portal.forecasts.cluster_figures):
no request waits for a plan or a forecast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import count
from math import inf
from typing import Any

from django.db.models import Max
from django.utils import timezone

from accounts.ledger import PriceBook
from accounts.models import User
from portal.core.money import CURRENCY
from portal.core.problems import FieldProblem, Problems
from portal.drafts.draft import ResolvedDraft, ValidatedDraft, validate_draft
from portal.forecasts.cluster_figures import ClusterFigures, figures_by_cluster
from portal.forecasts.estimates import Known, known_of
from portal.jobfile.schema import JobFile
from portal.jobs.clusters import active_clusters
from portal.jobs.models import Cluster, Node
from portal.snapshot.newcomers import newcomer_of
from scheduling.domain.wording import span
from scheduling.forecast.next_start import Start, starts_of, why_never
from scheduling.policies import load_policy

EARLIEST, CHEAPEST = "earliest", "cheapest"
#: In a job file; `auto` is the default.
LEFT_TO_THE_PORTAL = frozenset({"auto", EARLIEST, CHEAPEST})
_MOST_WORDS = 500


class Unfit(Exception):
    """Why a cluster can never run the job."""


@dataclass(frozen=True)
class Offer:
    """What one cluster can do for the job: starts by accelerator type, and the speeds and prices known there."""

    cluster: Cluster
    known: Known
    starts: Sequence[Start]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds from now, and the cost; None if unknown. `pressure`: GPUs that waiting jobs need, per GPU it may use."""

    name: str
    start_s: float | None
    end_s: float | None
    amount: Decimal | None
    pressure: float = 0.0


def choose(user: User, job_file: JobFile, *, again: bool = False) -> ResolvedDraft:
    """Raises Problems naming the fields, and for each cluster why it is none."""
    asked, clusters = validate_draft(user, job_file, again=again), list(active_clusters())
    wanted = job_file.cluster or "auto"
    if wanted not in LEFT_TO_THE_PORTAL:
        return asked.on(_named(clusters, wanted))
    if not clusters:
        raise Problems([FieldProblem("cluster", "there is no cluster yet", "unknown")])
    if len(clusters) == 1:
        return asked.on(clusters[0])
    return _best(asked, clusters, CHEAPEST if wanted == CHEAPEST else EARLIEST, timezone.now())


def _named(clusters: Sequence[Cluster], name: str) -> Cluster:
    found = next((cluster for cluster in clusters if cluster.name == name), None)
    if found is None:
        retired = Cluster.objects.filter(name=name).exclude(retired_at=None).exists()
        there = ", ".join(cluster.name for cluster in clusters)
        text = f"{name!r} {'is retired' if retired else 'is no cluster'}; there are {there}, or cheapest, or earliest"
        raise Problems([FieldProblem("cluster", text, "unknown")])
    return found


def _best(asked: ValidatedDraft, clusters: Sequence[Cluster], by: str, now: datetime) -> ResolvedDraft:
    offers, unfit = list[Offer](), dict[str, str]()
    figures, book = figures_by_cluster(clusters), PriceBook(now)
    for cluster in clusters:
        try:
            offers.append(_offer(asked, cluster, figures[cluster.pk], book, now))
        except Unfit as error:
            unfit[cluster.name] = str(error)
        except Problems as error:
            unfit[cluster.name] = "; ".join(f"{one.field} {one.message}" for one in error.problems)
    if not offers:
        whys = " ".join(f"{name}: {_sentence(text)}" for name, text in unfit.items())
        raise Problems([FieldProblem("cluster", f"no cluster can run the job. {whys}", "unfit")])
    if len(offers) == 1:
        [only] = offers
        others = " ".join(f"{name}: {_sentence(text)}" for name, text in unfit.items())
        return asked.on(only.cluster, f"Cluster {only.cluster}: the only one that can run it. {others}"[:_MOST_WORDS])
    found = compare([outlook_of(offer, by) for offer in offers], by)
    best = next(offer for offer in offers if offer.cluster.name == found[0].name)
    return asked.on(best.cluster, why(found, by)[:_MOST_WORDS])


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


# One cluster -----------------------------------------------------------------------------------------


def _offer(asked: ValidatedDraft, cluster: Cluster, figures: ClusterFigures, book: PriceBook, now: datetime) -> Offer:
    """Raises Unfit if the job could never start there, Problems if its file asks for something unavailable."""
    wish = asked.on(cluster)
    _check_nodes(cluster, asked.job_file)
    policy = load_policy(cluster.policy_name, cluster.policy_parameters)
    known = known_of(wish, now, book)
    job, there = newcomer_of(known.job, cluster, figures.round.snapshot)
    if (never := why_never(there, policy, job)) is not None:
        raise Unfit(never.text)
    left = replace(figures.round, snapshot=there)
    starts = starts_of(left, policy, job, figures.expected_s(now), figures.new)
    if cluster.engine_away_since is not None:
        starts = [replace(start, after_s=None) for start in starts]
    return Offer(cluster, known, starts)


def _check_nodes(cluster: Cluster, file: JobFile) -> None:
    """Processors and memory of the largest node; of those that say nothing, nothing is known."""
    nodes = Node.objects.filter(cluster=cluster)
    if file.gpus.types:
        nodes = nodes.filter(accelerator_type__in=file.gpus.types)
    for column, needs, unit in (("cpus", file.cpus, "CPUs"), ("memory_mib", file.memory, "MiB")):
        if needs is None or nodes.filter(**{column: 0}).exists():
            continue
        most = nodes.aggregate(most=Max(column))["most"]
        if most is not None and most < needs:
            raise Unfit(f"It needs {needs:,} {unit} on a node, and the largest has {most:,}.")


def outlook_of(offer: Offer, by: str) -> Outlook:
    """On the accelerator type that does best."""
    name, known = offer.cluster.name, offer.known
    found = [_outlook(name, start, known.option(start.type, start.gpus)) for start in offer.starts]
    return compare(found or [Outlook(name, None, None, None)], by)[0]


def _outlook(name: str, start: Start, option: Mapping[str, Any] | None) -> Outlook:
    if option is None:
        return Outlook(name, start.after_s, None, None, start.pressure)
    end_s = None if start.after_s is None else start.after_s + float(option["duration_s"])
    return Outlook(name, start.after_s, end_s, Decimal(option["amount"]), start.pressure)


# Comparison ---------------------------------------------------------------------------------------


def compare(outlooks: Sequence[Outlook], by: str) -> list[Outlook]:
    """Best first; unknown values come last. Of equal ones the one with the shorter queue, then in their order."""
    order = count()

    def rank(one: Outlook) -> tuple[Any, ...]:
        times = (inf if at is None else at for at in (one.end_s, one.start_s))
        end = (*times, one.pressure, next(order))
        return (Decimal("inf") if one.amount is None else one.amount, *end) if by == CHEAPEST else end

    return sorted(outlooks, key=rank)


def why(ranked: Sequence[Outlook], by: str) -> str:
    """In a sentence, against the second best."""
    best, second = ranked[:2]
    head = f"Cluster {best.name}:"
    if by == CHEAPEST and best.amount is not None:
        if second.amount is None:
            return f"{head} would cost {_money(best.amount)}; what {second.name} would cost is not known."
        less = second.amount - best.amount
        if less:
            return f"{head} would cost {_money(best.amount)}, {_money(less)} less than on {second.name}."
        return f"{head} would cost {_money(best.amount)} as on {second.name}{_and_when(best, second)}."
    if best.end_s is not None and second.end_s is not None:
        less_s = second.end_s - best.end_s
        return f"{head} would end {f'{span(less_s)} earlier than' if less_s >= 1 else 'as early as'} on {second.name}."
    if best.end_s is not None:
        unknown = "when it would start" if second.start_s is None else "how fast it runs"
        return f"{head} would end in {span(best.end_s)}; {unknown} on {second.name} is not known."
    if best.start_s is not None and second.start_s is not None:
        less_s = second.start_s - best.start_s
        said = f"{span(less_s)} earlier than" if less_s >= 1 else "as early as"
        return f"{head} would start {said} on {second.name}; how fast it runs is not known."
    if best.start_s is None and best.pressure < second.pressure:
        return f"{head} its queue is shorter than that of {second.name}; when the job would start is not known."
    return f"{head} when it would start on {second.name} is not known."


def _money(amount: Decimal) -> str:
    return f"{amount:,.2f} {CURRENCY}" if amount >= 1 else f"{amount:.3g} {CURRENCY}"


def _and_when(best: Outlook, second: Outlook) -> str:
    if best.end_s is None or second.end_s is None or second.end_s - best.end_s < 1:
        return ""
    return f", and end {span(second.end_s - best.end_s)} earlier"

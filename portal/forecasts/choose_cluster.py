"""Chooses a job's cluster: the one that it names, or the portal's choice by expected end or by cost.

For each cluster it determines what the next round would do with the job, and if it would wait, when it would start.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import count
from math import inf
from typing import Any

from django.db.models import Max
from django.utils import timezone

from accounts.models import User
from portal.core.money import CURRENCY
from portal.core.problems import FieldProblem, Problems
from portal.drafts.draft import ResolvedDraft, ValidatedDraft, validate_draft
from portal.forecasts import inputs
from portal.forecasts.basis import Basis, basis_of, drafted
from portal.forecasts.estimates import Known, known_of
from portal.jobfile.schema import JobFile
from portal.jobs.clusters import active_clusters
from portal.jobs.models import Cluster, Node
from scheduling import domain
from scheduling.domain.wording import span
from scheduling.forecast.forecast import Budget, foresee
from scheduling.forecast.next_round import Preview, preview
from scheduling.policies import load_policy
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import Needs

EARLIEST, CHEAPEST = "earliest", "cheapest"
#: In a job file; `auto` is the default.
LEFT_TO_THE_PORTAL = frozenset({"auto", EARLIEST, CHEAPEST})
#: For each cluster where the job would wait: a person waits for the answer.
_BUDGET_MS, _LONGEST_S, _FUTURES = 150.0, 0.4, 6
_MOST_WORDS = 500


class Unfit(Exception):
    """Why a cluster can never run the job."""


@dataclass(frozen=True)
class Offer:
    """A cluster's prediction for the job."""

    wish: ResolvedDraft
    known: Known
    basis: Basis
    policy: Policy
    newcomers: tuple[domain.Job, ...]
    snapshot: domain.Snapshot  # with what the new jobs refer to, but without them
    said: Preview

    @property
    def cluster(self) -> Cluster:
        found: Cluster = self.wish.placed["cluster"]
        return found


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds from now, and the cost; None if unknown."""

    name: str
    start_s: float | None
    end_s: float | None
    amount: Decimal | None


def choose(user: User, job_file: JobFile, *, again: bool = False) -> ResolvedDraft:
    """Raises Problems by field, and for each cluster why it is unsuitable."""
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
    for cluster in clusters:
        try:
            offers.append(_offer(asked, cluster, now))
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
    found = compare([outlook_of(offer) for offer in offers], by)
    best = next(offer for offer in offers if offer.cluster.name == found[0].name)
    return asked.on(best.cluster, why(found, by)[:_MOST_WORDS])


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


# One cluster -----------------------------------------------------------------------------------------


def _offer(asked: ValidatedDraft, cluster: Cluster, now: datetime) -> Offer:
    """Raises Unfit if the job could never start there, Problems if its file asks for something unavailable."""
    wish = asked.on(cluster)
    _check_nodes(cluster, asked.job_file)
    basis, known = basis_of(cluster), known_of(wish, now)
    policy = load_policy(*basis.policy)
    newcomers, snapshot = drafted(wish, cluster, basis, now, packs=Needs.PAIRS in policy.capabilities.needs)
    said = preview(basis.planned, snapshot, policy, newcomers)
    if said.verdict == "never":
        raise Unfit(said.reason.text)
    return Offer(wish, known, basis, policy, newcomers, snapshot, said)


def _check_nodes(cluster: Cluster, file: JobFile) -> None:
    """CPUs and memory of the largest node; unknown capacities are not compared."""
    nodes = Node.objects.filter(cluster=cluster)
    if file.gpus.types:
        nodes = nodes.filter(accelerator_type__in=file.gpus.types)
    for column, needs, unit in (("cpus", file.cpus, "CPUs"), ("memory_mib", file.memory, "MiB")):
        if needs is None or nodes.filter(**{column: 0}).exists():
            continue
        most = nodes.aggregate(most=Max(column))["most"]
        if most is not None and most < needs:
            raise Unfit(f"It needs {needs:,} {unit} on a node, and the largest has {most:,}.")


def outlook_of(offer: Offer) -> Outlook:
    start_s, gang = _start(offer)
    option = _option(offer, gang)
    end_s = None if option is None else (start_s or 0.0) + float(option["duration_s"])
    amount = None if option is None else Decimal(option["amount"])
    return Outlook(offer.cluster.name, start_s, end_s, amount)


def _start(offer: Offer) -> tuple[float | None, domain.Gang | None]:
    if offer.said.verdict == "now":
        return 0.0, offer.said.gang
    snapshot, first = offer.snapshot, offer.newcomers[0]
    known = inputs.known_of(offer.cluster, snapshot, offer.policy, timezone.now())
    until_s = time.thread_time() + _LONGEST_S
    budget = Budget(_BUDGET_MS, most_futures=_FUTURES, stopped=lambda: time.thread_time() > until_s)
    joined = replace(snapshot, jobs=(*snapshot.jobs, *offer.newcomers))
    found = foresee(joined, offer.policy, known, seed=offer.basis.seed, budget=budget)
    start = found.starts.get(first.id)
    return (start.p50_s if start else None), found.gangs.get(first.id)


def _option(offer: Offer, gang: domain.Gang | None) -> Mapping[str, Any] | None:
    """With the GPUs on which it would start, or its least gang."""
    known = offer.known
    if gang is not None and (option := known.option(gang.type, gang.count)):
        return option
    least = [option for kind in known.types if (option := known.option(kind, known.job.min_gpus))]
    return min(least, key=lambda option: option["duration_s"], default=None)


# Comparison ---------------------------------------------------------------------------------------


def compare(outlooks: Sequence[Outlook], by: str) -> list[Outlook]:
    """Best first; equal ones keep their order. Unknown values come last."""
    order = count()

    def rank(one: Outlook) -> tuple[Any, ...]:
        end = (inf if one.end_s is None else one.end_s, inf if one.start_s is None else one.start_s, next(order))
        return (Decimal("inf") if one.amount is None else one.amount, *end) if by == CHEAPEST else end

    return sorted(outlooks, key=rank)


def why(ranked: Sequence[Outlook], by: str) -> str:
    """In a sentence, compared with the second best."""
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
        return f"{head} would end in {span(best.end_s)}; how fast it runs on {second.name} is not known."
    if best.start_s is not None and second.start_s is not None:
        less_s = second.start_s - best.start_s
        said = f"{span(less_s)} earlier than" if less_s >= 1 else "as early as"
        return f"{head} would start {said} on {second.name}; how fast it runs is not known."
    return f"{head} when it would start on {second.name} is not known."


def _money(amount: Decimal) -> str:
    return f"{amount:,.2f} {CURRENCY}" if amount >= 1 else f"{amount:.3g} {CURRENCY}"


def _and_when(best: Outlook, second: Outlook) -> str:
    if best.end_s is None or second.end_s is None or second.end_s - best.end_s < 1:
        return ""
    return f", and end {span(second.end_s - best.end_s)} earlier"

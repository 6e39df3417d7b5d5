"""When one more job would start, from the figures of a cluster's last round. No policy is asked, no future played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from scheduling.capacity.cluster_view import view
from scheduling.capacity.free_capacity import no_type
from scheduling.capacity.node_pools import Pools, divide
from scheduling.domain import WHOLE, Allocation, Job, Move, Node, Others, Reason, Snapshot, plain_type
from scheduling.domain.gpu_parts import taken
from scheduling.domain.reason_codes import NO_CONTENDER, UNSCHEDULABLE, ReasonCode
from scheduling.engine.constraints import constrain
from scheduling.engine.explain.unschedulable import could_hold
from scheduling.engine.normalise import normalise
from scheduling.engine.to_plan import to_plan
from scheduling.forecast.feasibility import Reach
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import SizesStarts

#: Types that it may use, its partition, and the GPUs that it needs at least.
Demand = tuple[tuple[str, ...], str, int]


@dataclass(frozen=True, slots=True)
class Release:
    """GPUs of a node that are free after so many seconds, if their job keeps what it has."""

    after_s: float
    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Jobs of one demand that wait for GPUs, and by type the GPU-seconds that they need together."""

    jobs: int
    gpu_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """What a round left: `snapshot` without its jobs; by node in service, whole GPUs that are free, those that running
    jobs hold beyond their least, and the thousandths left of shared ones; and by demand the jobs that wait for GPUs."""

    snapshot: Snapshot
    free: Mapping[str, int] = field(default_factory=dict)
    surplus: Mapping[str, int] = field(default_factory=dict)
    shared_milli: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    releases: tuple[Release, ...] = ()  # the first one first
    waiting: Mapping[Demand, Backlog] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """On a type: with how many GPUs, and after how many seconds; None where that is not known. `pressure`: GPUs that
    waiting jobs need, for each GPU that the job may use."""

    type: str
    gpus: int
    after_s: float | None
    pressure: float


def figures_of(snapshot: Snapshot, moves: Iterable[Move], reasons: Mapping[str, Reason]) -> RoundFigures:
    """Of a round that has planned these moves; without reasons all that could start wait for GPUs."""
    gpus = {job.id: job.gpu_ids for job in snapshot.jobs} | {move.job_id: move.gpu_ids for move in moves}
    shares = taken(snapshot.jobs, gpus) + Counter(dict.fromkeys(snapshot.blocked_gpu_ids, WHOLE))
    open_nodes = [node for node in snapshot.nodes if node.schedulable and not node.lost]
    left = {node.name: [WHOLE - shares[gpu] for gpu in node.gpu_ids] for node in open_nodes}
    node_of = {gpu: node.name for node in open_nodes for gpu in node.gpu_ids}
    types = {node.name: node.type for node in open_nodes}
    surplus, releases = Counter[str](), list[Release]()
    for job in snapshot.jobs:
        nodes = Counter(node_of[gpu] for gpu in gpus[job.id] if gpu in node_of)
        if nodes:
            left_s = _lasts_s(job, types[next(iter(nodes))], len(gpus[job.id]))
            releases += [Release(left_s, name, count) for name, count in nodes.items() if left_s < inf]
            surplus += _surplus(job, nodes)
    waiting: dict[Demand, list[Job]] = {}
    for job in snapshot.jobs:
        if not gpus[job.id] and _contends(job, reasons):
            waiting.setdefault(demand(job), []).append(job)
    return RoundFigures(
        snapshot=_bare(snapshot),
        free={name: sum(milli == WHOLE for milli in there) for name, there in left.items()},
        surplus=surplus,
        shared_milli={name: some for name, there in left.items() if (some := _parts(there))},
        releases=tuple(sorted(releases, key=lambda one: (one.after_s, one.node))),
        waiting={wanted: _backlog(jobs) for wanted, jobs in waiting.items()},
    )


def demand(job: Job) -> Demand:
    return tuple(sorted(job.types or job.curves)), job.partition, job.min_gpus


def _parts(left: Iterable[int]) -> tuple[int, ...]:
    return tuple(milli for milli in left if 0 < milli < WHOLE)


def _contends(job: Job, reasons: Mapping[str, Reason]) -> bool:
    if job.held or job.waits_for:
        return False
    return job.id not in reasons or reasons[job.id].token not in NO_CONTENDER


def _lasts_s(job: Job, kind: str, count: int) -> float:
    """Of its training; infinite where its speed is not known."""
    curve = job.curves.get(kind)
    speed = curve.at(count) if curve is not None and curve.source != "trial" else 0.0
    steps_s = job.remaining_steps / speed if speed > 0 else inf
    return steps_s if job.time_limit_s is None else min(steps_s, job.time_limit_s)


def _backlog(jobs: Sequence[Job]) -> Backlog:
    gpu_s: dict[str, float] = {}
    for job in jobs:
        for kind in job.curves:
            gpu_s[kind] = gpu_s.get(kind, 0.0) + job.min_gpus * _lasts_s(job, kind, job.min_gpus)
    return Backlog(len(jobs), gpu_s)


def _surplus(job: Job, nodes: Mapping[str, int]) -> Counter[str]:
    """What it holds beyond its least, by node."""
    found, more = Counter[str](), sum(nodes.values()) - job.min_gpus
    if job.restartable and job.resizable and not job.held:
        for name, gpus in nodes.items():
            found[name] = max(0, min(more, gpus))
            more -= gpus
    return found


def _bare(snapshot: Snapshot) -> Snapshot:
    """Nodes, and what keeps jobs from some of them."""
    return Snapshot(
        now=snapshot.now,
        nodes=snapshot.nodes,
        jobs=(),
        settings=snapshot.settings,
        partitions=snapshot.partitions,
        windows=snapshot.windows,
        constraints=snapshot.constraints,
    )


# One more job ------------------------------------------------------------------------------------------


def why_never(snapshot: Snapshot, policy: Policy, job: Job) -> Reason | None:
    """Why it could not start though it were alone; in the words of a round, from all of its steps but the policy's."""
    job = replace(job, held=False, waits_for="", not_before=None, limits=())
    alone = replace(snapshot, jobs=(job,), limits={}, blocked_gpu_ids=frozenset(), others=Others())
    state = constrain(normalise(alone, policy))
    queued = state.view.queued
    if queued and not state.view.spans(queued[0]):
        unable = no_type(job)
    elif queued and isinstance(policy, SizesStarts) and not policy.start_sizes(state.view, queued[0]):
        return Reason(ReasonCode.SLOT_TOO_SMALL, f"Its policy ({policy.title}) never starts jobs of so many GPUs.")
    else:
        unable = Reason(ReasonCode.NO_LAYOUT, "")
    reason = to_plan(replace(state, allocation=Allocation(reasons={job.id: unable}))).reasons[job.id]
    return reason if reason.token in UNSCHEDULABLE else None


def starts_of(
    figures: RoundFigures, policy: Policy, job: Job, expected_s: Mapping[Demand, float], more: Mapping[Demand, int]
) -> list[Start]:
    """By type, in the order of their names. `expected_s`: seconds until the last waiting job of a demand is expected to
    start; `more`: jobs that came after the round."""
    job = replace(job, waits_for="", limits=())
    alone = replace(figures.snapshot, jobs=(job,), limits={})
    pools, at_least_s = divide(alone).pools, Reach(alone).least_s(job)
    found = []
    for kind, size in sorted(_sizes(alone, policy).items()):
        nodes = [node for node in alone.nodes if node.type == kind and _may_use(node, job, pools)]
        ahead = _Ahead(figures, policy, job, kind, size, more)
        start = _start(_Places(figures, nodes), ahead, policy, job, size, expected_s)
        late = start.after_s is not None and start.after_s < at_least_s
        found.append(replace(start, after_s=at_least_s) if late else start)
    return found


def _sizes(alone: Snapshot, policy: Policy) -> dict[str, int]:
    """GPUs of each type on which a job that is alone there starts."""
    seen = view(divide(replace(alone, windows=())).snapshot)
    [job] = seen.queued or alone.jobs
    if isinstance(policy, SizesStarts):
        sizes = policy.start_sizes(seen, job)
    else:
        sizes = {name: span.low for name, span in seen.spans(job).items()}
    found: dict[str, int] = {}
    for name, size in sizes.items():
        found[plain_type(name)] = min(size, found.get(plain_type(name), size))
    return found


def _may_use(node: Node, job: Job, pools: Pools | None) -> bool:
    return could_hold(job, node) and (pools is None or pools.of_node[node.name].is_for(job))


class _Ahead:
    """Jobs that wait for GPUs of a type that the job may use, and start before it."""

    def __init__(
        self, figures: RoundFigures, policy: Policy, job: Job, kind: str, size: int, more: Mapping[Demand, int]
    ) -> None:
        self.kind, self.gpus, self.gpu_s = kind, 0, 0.0
        self.demands = list[Demand]()
        own_s = _lasts_s(job, kind, size)
        strict = policy.capabilities.strict_order
        for wanted in {**figures.waiting, **more}:
            types, partition, least = wanted
            if partition != job.partition or (types and kind not in types) or (least > job.min_gpus and not strict):
                continue  # where a smaller job may pass larger ones, those hold up nothing
            known, new = figures.waiting.get(wanted, _EMPTY_BACKLOG), more.get(wanted, 0)
            self.demands.append(wanted)
            self.gpus += least * (known.jobs + new)
            # Of new ones nothing else is known than that they are jobs like this one.
            self.gpu_s += (known.gpu_s.get(kind, inf) if known.jobs else 0.0) + (new * least * own_s if new else 0.0)


_EMPTY_BACKLOG = Backlog(0, {})


class _Places:
    """Nodes of one type that a job may use, as the round left them."""

    def __init__(self, figures: RoundFigures, nodes: Sequence[Node]) -> None:
        self.figures = figures
        self.free = {node.name: figures.free[node.name] for node in nodes if node.name in figures.free}
        self.with_surplus = {name: count + figures.surplus.get(name, 0) for name, count in self.free.items()}
        self.total = sum(len(node.gpu_ids) for node in nodes if node.name in figures.free)

    def have(self, free: Mapping[str, int], size: int, ahead: int) -> bool:
        """Whether so many are left after those that others need."""
        together = self.figures.snapshot.multi_node or max(free.values(), default=0) >= size
        return together and sum(free.values()) >= size + ahead

    def fit_beside(self, milli: int) -> bool:
        """A part of a GPU of which others have the rest."""
        return any(milli <= most for name in self.free for most in self.figures.shared_milli.get(name, ()))

    def after_s(self, size: int, ahead: _Ahead) -> float | None:
        """When running jobs have left enough for all ahead and for it. Where these are more than all GPUs: when as many
        GPU-seconds have passed as all of them need. None where that is not known."""
        free, gpu_s = dict(self.free), 0.0
        for release in self.figures.releases:
            if release.node in free:
                free[release.node] += release.gpus
                gpu_s += release.gpus * release.after_s
                if self.have(free, size, ahead.gpus):
                    return release.after_s
        known = 0 < self.total <= sum(free.values()) and ahead.gpu_s < inf
        return (gpu_s + ahead.gpu_s) / self.total if known and size <= self.total else None


def _start(
    places: _Places, ahead: _Ahead, policy: Policy, job: Job, size: int, expected_s: Mapping[Demand, float]
) -> Start:
    kind, pressure = ahead.kind, ahead.gpus / places.total if places.total else inf
    elastic = policy.capabilities.elastic
    free = places.with_surplus if elastic else places.free
    if not ahead.gpus and job.gpu_milli < WHOLE and places.fit_beside(job.gpu_milli):
        return Start(kind, size, 0.0, pressure)
    if places.have(free, size, ahead.gpus):
        most = min(job.max_gpus or places.total, sum(free.values()) - ahead.gpus)
        return Start(kind, max(size, most) if elastic else size, 0.0, pressure)
    said = [expected_s[one] for one in ahead.demands if one in expected_s]
    after_s = places.after_s(size, ahead)
    return Start(kind, size, max([*said, after_s] if after_s is not None else said, default=None), pressure)

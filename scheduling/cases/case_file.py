"""Allocation problems as files: `policy-case/1`, read into a Snapshot. docs/policies.md describes the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from scheduling.domain import Curve, Entity, Job, Node, Snapshot
from scheduling.errors import InvalidInput
from scheduling.input_files import read_json
from scheduling.lifecycle import State
from scheduling.policies.time_shares.programs.last_answer import MEMORY
from scheduling.validation import StrictNumbers, problem

_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(StrictNumbers):
    """A misspelt key is refused: otherwise its default would silently apply."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CaseJob(_Part):
    job_id: int | str
    job_type: str = ""
    scale_factor: int = Field(1, ge=1)
    throughputs: dict[str, _Rate]
    steps_remaining: float = Field(1.0, ge=0, allow_inf_nan=False)
    steps_done: float = Field(0.0, ge=0, allow_inf_nan=False)
    time_since_start_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    priority_weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    priority: int = 0
    entity: str = ""
    deadline_s: float | None = Field(None, allow_inf_nan=False)
    num_steps: Any = None  # this and the next field: notes of recorded cases
    duration_on_v100_s: Any = None


class CaseNode(_Part):
    type: str
    gpus: int = Field(ge=1)
    count: int = Field(1, ge=1)


class CaseEntity(_Part):
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    parent: str | None = None
    inner: str = Field("fairness", pattern="^(fairness|fifo)$")


class CaseMemory(_Part):
    """The policy's last answer: what it stored, and {job: {type: share}}."""

    policy: dict[str, Any] = {}
    shares: dict[str, dict[str, _Rate]] = {}


class Case(_Part):
    """Only here further keys are allowed: files carry notes about their origin."""

    model_config = ConfigDict(extra="allow", frozen=True)

    version: Literal["policy-case/1"] = Field("policy-case/1", alias="schema")
    cluster_spec: dict[str, Annotated[int, Field(ge=0)]]
    jobs: list[CaseJob]
    pair_throughputs: dict[str, dict[str, tuple[_Rate, _Rate]]] = {}
    entity_weights: dict[str, Annotated[float, Field(gt=0)]] = {}
    entities: dict[str, CaseEntity] = {}
    prices: dict[str, _Rate] = {}
    nodes: list[CaseNode] = []
    memory: CaseMemory = CaseMemory()


def read_case(path: Path) -> Case:
    """Raises InvalidInput naming the key and what is wrong with it."""
    try:
        case = Case.model_validate(read_json(path))
    except ValidationError as error:
        raise InvalidInput(f"{path}: {problem(error, Case)}") from None
    ids = [job.job_id for job in case.jobs]
    if len(ids) != len({str(key) for key in ids}):
        raise InvalidInput(f"{path}: jobs: a job_id is given twice")
    unknown = {job.entity for job in case.jobs} - {"", *case.entities, *case.entity_weights}
    if unknown:
        raise InvalidInput(f"{path}: jobs: entity {sorted(unknown)[0]!r} is not among entities or entity_weights")
    _check_tree(path, case.entities)
    _check_nodes(path, case)
    return case


def _check_tree(path: Path, entities: Mapping[str, CaseEntity]) -> None:
    for key in entities:
        seen, at = {key}, entities[key].parent
        while at is not None:
            if at not in entities or at in seen:
                problem = "goes in a circle" if at in seen else "is not among entities"
                raise InvalidInput(f"{path}: entities.{key}: parent {at!r} {problem}")
            seen.add(at)
            at = entities[at].parent


def _check_nodes(path: Path, case: Case) -> None:
    """A type without nodes becomes one node with all GPUs; the other types must list all their nodes."""
    given: Counter[str] = Counter()
    for node in case.nodes:
        given[node.type] += node.gpus * node.count
    for kind, gpus in given.items():
        said = case.cluster_spec.get(kind, 0)
        if gpus != said:
            raise InvalidInput(f"{path}: nodes: {gpus} GPUs of type {kind!r}, but cluster_spec has {said}")


def snapshot_of(case: Case) -> Snapshot:
    """The problem at time 0: every job queued, arrived `time_since_start_s` ago."""
    entities = {key: Entity(None, weight) for key, weight in case.entity_weights.items()}
    entities |= {key: Entity(entity.parent, entity.weight, entity.inner) for key, entity in case.entities.items()}
    return Snapshot(
        now=0.0,
        nodes=tuple(_nodes(case)),
        jobs=tuple(_jobs(case)),
        pairs={_pair(name): speeds for name, speeds in case.pair_throughputs.items()},
        entities=entities,
        prices=case.prices,
        memory={MEMORY: case.memory.model_dump()} if case.memory != CaseMemory() else {},
    )


def _nodes(case: Case) -> list[Node]:
    """The listed nodes, and for each type without nodes one node with all of its GPUs."""
    given = [(node.type, node.gpus) for node in case.nodes for _ in range(node.count)]
    named = {kind for kind, _ in given}
    given += [(kind, gpus) for kind, gpus in case.cluster_spec.items() if kind not in named and gpus]
    nodes, first = [], 0
    for number, (kind, gpus) in enumerate(given):
        nodes.append(Node(f"{kind}-{number}", kind, tuple(range(first, first + gpus))))
        first += gpus
    return nodes


def _jobs(case: Case) -> list[Job]:
    known: dict[Any, dict[str, Curve]] = {}
    jobs = []
    for number, job in enumerate(case.jobs):
        key = (job.scale_factor, *sorted(job.throughputs.items()))
        curves = known.get(key)
        if curves is None:
            none = (0.0,) * (job.scale_factor - 1)
            curves = known[key] = {kind: Curve((*none, rate)) for kind, rate in job.throughputs.items()}
        jobs.append(
            Job(
                id=str(job.job_id),
                number=number,
                project=job.entity,
                state=State.WAITING_FOR_RESOURCE,
                submitted_at=-job.time_since_start_s,
                curves=curves,
                min_gpus=job.scale_factor,
                remaining_steps=job.steps_remaining,
                done_steps=job.steps_done,
                weight=job.priority_weight,
                priority=job.priority,
                workload=job.job_type,
                deadline=job.deadline_s,
            )
        )
    return jobs


def _pair(name: str) -> tuple[str, str, int]:
    one, _, rest = name.partition("|")
    other, _, gang = rest.rpartition("|")
    if not other or not (gang.isascii() and gang.isdigit()):
        raise InvalidInput(f"pair_throughputs: {name!r} must read 'A|B|scale_factor'")
    return one, other, int(gang)

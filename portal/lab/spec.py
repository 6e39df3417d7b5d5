"""The specification of a simulation: validated, bounded, completed with defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field

from portal.core.problems import FieldProblem, Problems
from portal.jobfile.fields import OneLine
from scheduling.errors import InvalidParameters
from scheduling.policies import POLICIES, load_policy
from scheduling.validation import StrictNumbers

MOST_JOBS, MOST_POLICIES, MOST_REPETITIONS, MOST_GPUS = 20_000, 8, 5, 10_000
Name = Annotated[str, Field(max_length=120), OneLine]


class _Part(StrictNumbers):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class HistoryWorkload(_Part):
    kind: Literal["history"]
    from_at: AwareDatetime
    to_at: AwareDatetime


class TraceWorkload(_Part):
    kind: Literal["trace"]
    trace_id: UUID


class SyntheticWorkload(_Part):
    kind: Literal["synthetic"]
    jobs: int = Field(ge=1, le=MOST_JOBS)
    jobs_per_hour: float | None = Field(None, gt=0.0, le=1e6, description="Null: all arrive at once.")
    multi_gpu: bool = False
    models: list[Name] | None = Field(None, min_length=1, max_length=100, description="Null: all that are known.")


class AsIs(_Part):
    kind: Literal["as_is"] = "as_is"


class NodeWish(_Part):
    type: Annotated[str, Field(min_length=1, max_length=60), OneLine]
    count: int = Field(ge=1, le=MOST_GPUS)
    gpus: int = Field(ge=1, le=64)
    price_per_gpu_hour: str | None = Field(None, pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$")
    watts: float | None = Field(None, gt=0.0, le=1e5, description="Of one GPU that trains.")


class Edited(_Part):
    kind: Literal["edited"]
    nodes: list[NodeWish] = Field(min_length=1, max_length=100)


class PolicyWish(_Part):
    name: Name
    parameters: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, Annotated[list[Any], Field(min_length=1, max_length=MOST_POLICIES)]] = Field(
        default_factory=dict, description="One policy for each value."
    )


class Spec(_Part):
    name: Name = ""
    cluster: Name | None = Field(None, description="Null: the only one.")
    workload: Annotated[HistoryWorkload | TraceWorkload | SyntheticWorkload, Field(discriminator="kind")]
    hardware: Annotated[AsIs | Edited, Field(discriminator="kind")] = AsIs()
    policies: list[PolicyWish] = Field(min_length=1, max_length=MOST_POLICIES)
    repetitions: int = Field(1, ge=1, le=MOST_REPETITIONS)
    seed: int = Field(0, ge=0, le=2**31)
    noise: float = Field(0.0, ge=0.0, le=1.0)


def unfold(spec: Spec) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(policy, all its parameters, those given), with one entry for each value of a sweep. Raises Problems by field."""
    found: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for index, wish in enumerate(spec.policies):
        place = f"policies.{index}"
        if wish.name not in POLICIES:
            raise _wrong(f"{place}.name", f"is no policy; there are {', '.join(POLICIES)}")
        if len(wish.sweep) > 1:
            raise _wrong(f"{place}.sweep", "may name one parameter")
        values = [{key: value} for key, several in wish.sweep.items() for value in several] or [{}]
        for value in values:
            given = wish.parameters | value
            found.append((wish.name, _parameters(place, wish.name, given), given))
    if len(found) > MOST_POLICIES:
        raise _wrong("policies", f"are {len(found)} with each value of the sweeps; {MOST_POLICIES} at most")
    return found


def _parameters(place: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    try:
        return load_policy(name, given).parameters.model_dump(mode="json")
    except InvalidParameters as error:
        named = [FieldProblem(f"{place}.parameters.{key}", text, "invalid") for key, text in error.problems.items()]
        raise Problems(named) from None


def check_hardware(spec: Spec) -> None:
    if isinstance(spec.hardware, Edited):
        gpus = sum(node.count * node.gpus for node in spec.hardware.nodes)
        if gpus > MOST_GPUS:
            raise _wrong("hardware.nodes", f"have {gpus} GPUs; {MOST_GPUS} at most")


def _wrong(field: str, message: str) -> Problems:
    return Problems([FieldProblem(field, message, "invalid")])

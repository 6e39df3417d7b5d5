"""The policy protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from scheduling.domain import Allocation, Snapshot
from scheduling.errors import InvalidParameters
from scheduling.policies.capabilities import Capabilities
from scheduling.validation import StrictNumbers, hint_at


class Parameters(StrictNumbers):
    """Typed settings of a policy; forms and the API render their descriptions and bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@runtime_checkable
class ElasticParameters(Protocol):
    """Parameters of policies whose plans resize running jobs."""

    @property
    def v_bound(self) -> float: ...
    @property
    def min_gain(self) -> float: ...
    @property
    def min_gain_kind(self) -> Literal["absolute", "relative"]: ...
    @property
    def protection_factor(self) -> float: ...
    @property
    def amortise(self) -> bool: ...


@runtime_checkable
class FairShareParameters(Protocol):
    """Parameters of policies that read usage."""

    @property
    def half_life_days(self) -> float | None: ...
    @property
    def usage_reset(self) -> str: ...
    @property
    def default_duration_s(self) -> float: ...
    @property
    def billing_weights(self) -> Mapping[str, float]: ...
    @property
    def weight_resources(self) -> Mapping[str, float]: ...


def protection_factor(parameters: BaseModel) -> float:
    """Protection after a launch, as a multiple of the launch time; the usual factor if the policy resizes no jobs
    itself."""
    return parameters.protection_factor if isinstance(parameters, ElasticParameters) else 3.0


def half_life_s(parameters: BaseModel) -> float | None:
    """Half-life of usage; None: usage does not decay, or the policy does not read it."""
    if not isinstance(parameters, FairShareParameters) or parameters.half_life_days is None:
        return None
    return parameters.half_life_days * 86_400.0


def default_duration_s(parameters: BaseModel) -> float:
    """Assumed duration of a job that states none."""
    return parameters.default_duration_s if isinstance(parameters, FairShareParameters) else 86_400.0


def variance_bound(parameters: BaseModel) -> float | None:
    return parameters.v_bound if isinstance(parameters, ElasticParameters) else None


class Policy(Protocol):
    """Stateless between calls: state travels in the snapshot's memory."""

    name: ClassVar[str]
    title: ClassVar[str]
    Parameters: ClassVar[type[Parameters]]
    capabilities: Capabilities

    @property
    def parameters(self) -> BaseModel: ...

    def __init__(self, parameters: Any = None) -> None: ...

    def allocate(self, snapshot: Snapshot) -> Allocation: ...


def parse_parameters(schema: type[Parameters], values: dict[str, Any]) -> Parameters:
    """Parse `values` by `schema`; raises InvalidParameters that names each field and what is allowed."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        problems = {".".join(map(str, e["loc"])) or "parameters": _said(schema, e) for e in error.errors()}
        raise InvalidParameters(problems) from None


def _said(schema: type[Parameters], error: ErrorDetails) -> str:
    if error["type"] != "extra_forbidden" or len(error["loc"]) > 1:
        return error["msg"]
    return f"is no parameter of this policy; {hint_at(str(error['loc'][0]), list(schema.model_fields))}"

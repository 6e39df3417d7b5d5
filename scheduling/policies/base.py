"""The policy protocol."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from scheduling.domain import Allocation, Snapshot
from scheduling.errors import InvalidParameters
from scheduling.validation import StrictNumbers, hint_at


class Parameters(StrictNumbers):
    """Typed settings of a policy; field descriptions and bounds are what forms and the API render."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Policy(Protocol):
    """Stateless between calls: what must be remembered travels in the snapshot's memory."""

    name: ClassVar[str]
    title: ClassVar[str]
    Parameters: ClassVar[type[Parameters]]
    #: Integer-count policies: min_gain and protection apply to their plans.
    elastic: ClassVar[bool]
    #: Answers with fractions of time, which rounds realise (scheduling.engine.time_sharing.rounds).
    timed: ClassVar[bool]
    # A policy may also say `strict_order = True`: jobs that hold GPUs keep them to their end, nobody starts before
    # those ahead of it in the queue, and the reason of whoever waits for one ahead has that job's id under `by`.
    # `rests`: until the present round ends whoever holds GPUs keeps them, and a job that alone fits what is idle starts
    # whatever the others do (scheduling.engine.time_sharing.rounds). `ages = False`: its answer depends on neither time
    # nor steps.
    # `lasting`: whoever holds GPUs keeps them to its end (but for levels of service and guarantees), and where nobody
    # that waits fits what is idle, nobody starts; it has `start_sizes`.
    # `packs`: it reads the snapshot's pairs. `priced`: it reads the snapshot's prices.
    # `fair_share`: it reads members and usage, and its parameters have
    # half_life_days and usage_reset. `preempts`: with counts of its own, whoever runs may be left out; with
    # `minds_guarantees` it leaves alone whom a guarantee keeps, else it is asked again
    # (scheduling.engine.constraints.victim_protection). For guarantees (scheduling.engine.reclaim.reclaim):
    # `start_sizes(field, job)`, the GPUs of each type on which it starts a job
    # where that is not the least; `in_order(snapshot, jobs)`, its order where that is not the queue's.
    # `shares_gpus`: answers with placements, of parts of devices too (scheduling.domain.gpu_parts).
    # `reads_histories`: it reads what jobs used of a GPU when they were recorded (Job.history).
    # `gathers`: whoever runs may be moved to bring a gang onto one node. `presets`: parameters by name, for forms.

    @property
    def parameters(self) -> BaseModel: ...

    def __init__(self, parameters: Any = None) -> None: ...

    def allocate(self, snapshot: Snapshot) -> Allocation: ...


def parse_parameters(schema: type[Parameters], values: dict[str, Any]) -> Parameters:
    """`values` as `schema`; raises InvalidParameters naming each field and what is allowed."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        problems = {".".join(map(str, e["loc"])) or "parameters": _said(schema, e) for e in error.errors()}
        raise InvalidParameters(problems) from None


def _said(schema: type[Parameters], error: ErrorDetails) -> str:
    if error["type"] != "extra_forbidden" or len(error["loc"]) > 1:
        return error["msg"]
    return f"is no parameter of this policy; {hint_at(str(error['loc'][0]), list(schema.model_fields))}"

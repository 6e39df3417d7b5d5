"""GPUs that a job file asks for."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

from pydantic import AllowInfNan, Field, model_validator

from portal.jobfile.fields import Memory, Part, Word

WHOLE_PERCENT = 100


class Gpus(Part):
    """How many GPUs, all of one type at a time, or a GPU share. A plain number is a count, or 0.5 for half of one
    GPU."""

    min: int = Field(1, ge=1, le=100_000, description="The job does not start with fewer.")
    max: int | None = Field(None, ge=1, le=100_000, description="It never grows beyond; empty: as far as it gains.")
    types: list[Word] = Field([], max_length=20, description="Accelerator types allowed; empty: any it can run on.")
    share: Annotated[float, AllowInfNan(False)] | None = Field(
        None, ge=0.01, le=1, description="Part of one GPU, in steps of 0.01; other jobs may use the rest. Empty: whole."
    )
    memory: Memory | None = Field(
        None, description="MiB of each GPU, or as 6GiB; of a part by default its share of the smallest GPU allowed."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_number(cls, given: Any) -> Any:
        if not isinstance(given, int | float) or isinstance(given, bool) or not isfinite(given):
            return given
        if 0 < given < 1:
            return {"share": given}
        if given < 1 or given != int(given):
            raise ValueError("is a number of whole GPUs, or a part of one as 0.5")
        return {"min": int(given), "max": int(given)}

    @model_validator(mode="after")
    def _ordered(self) -> Gpus:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) must not be below min ({self.min})")
        if self.share is not None and abs(100 * self.share - self.share_percent) > 1e-6:
            raise ValueError("share is in steps of 0.01")
        if self.share_percent < WHOLE_PERCENT and (self.min, self.max or 1) != (1, 1):
            raise ValueError("share is a part of one GPU: leave min and max out, or the share")
        return self

    @property
    def share_percent(self) -> int:
        return WHOLE_PERCENT if self.share is None else round(100 * self.share)


def or_a_number(schema: dict[str, Any]) -> None:
    whole = {"type": "integer", "minimum": 1, "description": "So many, neither more nor fewer."}
    part = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "description": "A part of one."}
    schema["anyOf"] = [{"$ref": schema.pop("$ref")}, whole, part]

"""The keys of a job that may be changed after its submission (PATCH jobs/{job})."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, Field

from portal.jobfile.fields import Cost, Line, Part, Seconds, Word


def _no_default(schema: dict[str, Any]) -> None:
    """A missing key is not changed: the default only fills the model."""
    schema.pop("default", None)


class JobPatch(Part):
    """Missing keys are not changed. Null removes a deadline, a max_cost, a max_duration or a label."""

    name: Line = Field("", min_length=1, json_schema_extra=_no_default)
    labels: dict[str, Line | None] = Field({}, max_length=50, json_schema_extra=_no_default)
    nice: int = Field(0, ge=0, le=1_000, description="Only administrators lower it.", json_schema_extra=_no_default)
    priority: int = Field(0, ge=-1_000, le=1_000, description="Administrators only.", json_schema_extra=_no_default)
    qos: Word | None = Field(None, description="Another QoS.", json_schema_extra=_no_default)
    partition: Word | None = Field(None, description="Another partition.", json_schema_extra=_no_default)
    total_steps: int = Field(1, ge=1, le=10**12, description="It may only grow.", json_schema_extra=_no_default)
    restartable: bool | None = Field(
        None,
        description="Whether it can be stopped and started again; null: as its program, by the SDK, says.",
        json_schema_extra=_no_default,
    )
    max_cost: Cost | None = Field(None, json_schema_extra=_no_default)
    max_duration: Seconds | None = Field(None, json_schema_extra=_no_default)
    deadline: AwareDatetime | None = Field(None, json_schema_extra=_no_default)

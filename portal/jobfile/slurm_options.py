"""The options of sbatch that a job file may contain, and their allowed values."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from portal.jobfile.fields import OneLine, Part

#: Words for sbatch: they begin with a letter or a bracket, so that none looks like an option.
_CONSTRAINT = re.compile(r"[A-Za-z0-9_(\[][A-Za-z0-9_.:&|*()\[\]+-]*", re.ASCII)
_LICENSE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]*(:[0-9]{1,6})?", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?", re.ASCII)
_SWITCHES = re.compile(r"[1-9][0-9]{0,3}(@[0-9]{1,6}(:[0-9]{2}){0,2})?", re.ASCII)


def _constraint(text: str) -> str:
    if not _CONSTRAINT.fullmatch(text):
        raise ValueError("must be features of nodes, as a100&nvlink: letters, digits and _.:&|*()[]+-")
    return text


def _licenses(text: str) -> str:
    if not all(_LICENSE.fullmatch(part) for part in text.split(",")):
        raise ValueError("must be licenses with their numbers, as matlab:2,ansys@server:1")
    return text


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("must be one word: letters, digits and _.@+-, beginning with a letter, digit or _")
    return text


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError("must be one address or account, as ada@example.org")
    return text


def _switches(text: str) -> str:
    if not _SWITCHES.fullmatch(text):
        raise ValueError("must be the most leaf switches, and how long to wait for so few, as 1 or 1@30:00")
    return text


def _printable(text: str) -> str:
    if "|" in text:
        raise ValueError("must not have |, which separates columns in what Slurm's commands print")
    return text


MailType = Literal[
    "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT", "TIME_LIMIT_90",
    "TIME_LIMIT_80", "TIME_LIMIT_50", "ALL",
]  # fmt: skip


class SlurmOptions(Part):
    """Options of sbatch, for Slurm clusters: for each launch, and for each part of a heterogeneous one."""

    constraint: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_constraint)] | None = Field(
        None, description="Features that its nodes must have, as sbatch --constraint.", examples=["nvlink"]
    )
    licenses: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_licenses)] | None = Field(
        None, description="Licenses that it uses while it runs.", examples=["matlab:1"]
    )
    comment: Annotated[str, Field(min_length=1, max_length=120), OneLine, AfterValidator(_printable)] | None = Field(
        None, description="Comment in Slurm's records, behind the portal's own."
    )
    exclusive: bool = Field(
        False, description="No other jobs on its nodes while it runs, those of the portal included."
    )
    wckey: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_word)] | None = Field(
        None, description="Workload characterization key; by default the project's."
    )
    nice: int | None = Field(
        None, ge=0, le=2**31 - 3, description="Lowers its priority in Slurm, once it is sent there."
    )
    mail_type: list[MailType] = Field([], max_length=12, description="When Slurm sends mail of its launches.")
    mail_user: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_address)] | None = Field(
        None, description="To whom; by default to the account that jobs run as."
    )
    switches: Annotated[str, Field(max_length=20), AfterValidator(_switches)] | None = Field(
        None, description="The most leaf switches, and how long to wait for that.", examples=["1@30:00"]
    )
    hint: Literal["compute_bound", "memory_bound", "multithread", "nomultithread"] | None = Field(
        None, description="How its tasks are bound to processors."
    )
    threads_per_core: int | None = Field(None, ge=1, le=64, description="Only nodes with at least so many.")
    gres_flags: Literal["enforce-binding", "disable-binding"] | None = Field(
        None, description="Whether its processors must be near its GPUs."
    )
    tmp: int | None = Field(None, ge=1, le=2**30, description="MiB of temporary disk space that its nodes must have.")

    @model_validator(mode="after")
    def _mails(self) -> SlurmOptions:
        if self.mail_user and not self.mail_type:
            raise ValueError("mail_user belongs to mail_type: say when mail is to be sent")
        return self


def sbatch_options(wish: Any) -> dict[str, str]:
    """From `slurm` in a stored job file: sbatch's long options with their values, empty for options without one."""
    found: dict[str, str] = {}
    for name, value in SlurmOptions.model_validate(wish or {}).model_dump(exclude_defaults=True).items():
        text = ",".join(value) if isinstance(value, list) else "" if value is True else str(value)
        found[name.replace("_", "-")] = text
    return found

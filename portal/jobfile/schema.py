"""The job file: the only schema of a submission (DESIGN.md "Job file"). YAML, or JSON, which is YAML."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from evenkeel.store import variable_of
from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from portal.jobfile.code import Code, EnvironmentRule
from portal.jobfile.fields import (
    ENV_NAME,
    LABEL_KEY,
    Array,
    Cost,
    Line,
    Memory,
    Part,
    Seconds,
    Text,
    Word,
    glob_pattern,
)
from portal.jobfile.inputs import MAX_DATA, DataUse, SecretUse
from portal.jobfile.resources import Gpus, or_a_number
from portal.jobfile.slurm_options import SlurmOptions


class ArtifactRule(Part):
    """Which files a run leaves in EVENKEEL_ARTIFACT_DIR are kept, and for how long."""

    paths: list[Annotated[str, Field(min_length=1, max_length=200), AfterValidator(glob_pattern)]] = Field(
        ["**"], min_length=1, max_length=20, description="Patterns as in .gitignore: `*.csv`, `plots/`, `!*.tmp`."
    )
    keep_days: int | None = Field(None, ge=1, le=3_650, description="By default as long as the portal keeps them.")
    max_bytes: int | None = Field(None, ge=0, le=2**50, description="Of all together; what exceeds it is left out.")


class CheckpointRule(Part):
    every_steps: int = Field(200, ge=1, le=10_000_000, description="Steps between checkpoints.")
    keep: int = Field(3, ge=1, le=100, description="How many of the newest are kept.")


Ending = Literal["user_error", "signal", "out_of_memory", "launch_failed", "node_failure"]


class Retry(Part):
    limit: int = Field(
        3, ge=0, le=20, description="How often a failed run is tried again; node_failure is not counted."
    )
    on: list[Ending] = Field(
        ["launch_failed", "node_failure"],
        max_length=5,
        description="The endings that are tried again; by default those that the program did not bring about.",
    )
    backoff_s: float = Field(10, ge=0, le=3_600, description="Wait before the first retry; doubles each time.")


class ResumeFrom(Part):
    """A checkpoint of a job of the same project, from which the first run resumes."""

    job: int | Line = Field(description="Number or UUID of the job.")
    step: int | None = Field(None, ge=1, le=10**13, description="Step of the checkpoint; empty: the newest.")


class DependencyWish(Part):
    """Another job, or with singleton all earlier ones of this job's name and owner."""

    type: Literal["afterok", "afterany", "afternotok", "singleton"] = Field(
        "afterok", description="When it has succeeded; ended; not succeeded; or after all earlier ones of its name."
    )
    job: int | Line | None = Field(None, description="Number or UUID of a job that you may see.")

    @model_validator(mode="after")
    def _named(self) -> DependencyWish:
        if (self.type == "singleton") != (self.job is None):
            raise ValueError("job: name the job; singleton has none")
        return self


class JobFile(Part):
    """A training job: a catalogue program or a command, a number of steps, and limits."""

    name: Line | None = Field(None, description="Shown everywhere; by default the program's name.")
    project: Word | None = Field(None, description="Key of the project that pays; may be left out with one project.")
    model_type: Word | None = Field(None, description="A program of the catalogue.")
    command: Text | None = Field(None, description="Your own shell line, run once per GPU.")
    code: Code = Code()
    environment: EnvironmentRule | None = None
    total_steps: int = Field(ge=1, le=10**12, description="Training steps until the job is done.")
    batch_size: int | None = Field(None, ge=1, le=10_000_000, description="Global batch, over all GPUs.")
    gpus: Gpus = Field(Gpus(), json_schema_extra=or_a_number)
    cpus: int | None = Field(None, ge=1, le=4_096)
    memory: Memory | None = Field(None, description="MiB per node, or as 8GiB.")
    checkpoint: CheckpointRule = CheckpointRule()
    restartable: bool | None = Field(
        None,
        description="False: never resized or preempted. True: a command without the SDK saves its files when asked to "
        "end, and finds them when it is started again. Empty: as its program, by the SDK, says.",
    )
    priority: int = Field(0, ge=-1_000, le=1_000, description="Larger goes first; above 0 for administrators.")
    nice: int = Field(0, ge=0, le=1_000, description="Lowers the priority.")
    qos: Word | None = Field(None, description="QoS; by default the cluster's default one, if any.")
    cluster: Word | None = Field(
        None,
        description="Name of a cluster, or the portal's choice by expected end (`earliest`, `auto`; the default) or by "
        "cost (`cheapest`).",
    )
    partition: Word | None = Field(None, description="Set of nodes; by default the cluster's default one, if any.")
    deadline: AwareDatetime | None = Field(None, description="When it should be finished; shown against the estimate.")
    max_cost: Cost | None = None
    max_duration: Seconds | None = Field(None, description="Longest time in training, as 6h or seconds.")
    env: dict[str, Text] = Field({}, max_length=200)
    secrets: list[SecretUse] = Field([], max_length=50)
    data: list[DataUse] = Field([], max_length=MAX_DATA, description="What it reads, by path or URL.")
    artifacts: ArtifactRule | None = None
    labels: dict[str, Line] = Field({}, max_length=50)
    slurm: SlurmOptions | None = Field(None, description="Options of sbatch, where its cluster is a Slurm.")
    retry: Retry = Retry()
    array: Array | None = Field(None, description="One job for each index: `0-15%4`, of which 4 run at once.")
    dependencies: list[DependencyWish] = Field([], max_length=50, description="It queues when all are met.")
    resume_from: ResumeFrom | None = Field(None, description="Begin at this checkpoint instead of step 0.")
    throughput: dict[Word, list[Annotated[float, Field(ge=0, le=1e9)]]] = Field(
        {}, max_length=20, description="Your own curve: accelerator type -> steps/s on 1, 2, ... GPUs."
    )

    @model_validator(mode="after")
    def _one_program(self) -> JobFile:
        if bool(self.model_type) == bool(self.command):
            raise ValueError("give either model_type or command")
        return self

    @model_validator(mode="after")
    def _names(self) -> JobFile:
        bad = [k for k in self.env if not ENV_NAME.match(k) or k.startswith("EVENKEEL_")]
        if bad:
            name = bad[0].partition("=")[0]  # of one written as NAME=value no value is repeated
            raise ValueError(f"env: {name!r} is not a variable name that a job may set")
        if bad := [k for k in self.labels if not LABEL_KEY.match(k)]:
            raise ValueError(f"labels: {bad[0]!r} must be letters, digits and _ . / -, at most 63")
        if any(len(curve) > 10_000 or not curve for curve in self.throughput.values()):
            raise ValueError("throughput: each list has one to 10,000 numbers")
        names = [use.env or f"file {use.file}" for use in self.secrets] + list(self.env)
        if doubled := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"secrets: {doubled[0]} is given twice")
        variables = Counter(variable_of(use.name) for use in self.data)
        if doubled := [name for name, count in variables.items() if count > 1]:
            raise ValueError(f"data: {doubled[0]} would be used for two of them")
        return self

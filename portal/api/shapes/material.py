"""Bundles, environments, artifacts, secrets, and what is stored."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from portal.api.shapes.base import Page, Shape
from portal.api.shapes.jobs import EnvironmentState

DIGEST = Field(examples=["9f86d0818" + "0" * 55])


class Bundle(Shape):
    sha256: str = DIGEST
    bytes: int
    unpacked_bytes: int
    files: int
    uploaded_by: str | None = Field(examples=["Ana"])
    created_at: datetime
    last_used_at: datetime
    used_by: list[int] = Field(description="Numbers of jobs that have not ended; at most 20.", examples=[[12]])


class BundlePage(Page):
    results: list[Bundle]


class Environment(Shape):
    digest: str = DIGEST
    state: EnvironmentState
    requirements: str = Field(examples=["einops==0.8.1\n"])
    base: str = Field(description="What it lies on top of.", examples=["python==3.11 x86_64 torch==2.13.0"])
    bytes: int
    error: str = Field(examples=[""])
    created_at: datetime
    finished_at: datetime | None
    last_used_at: datetime


class EnvironmentPage(Page):
    results: list[Environment]


class BuildLog(Shape):
    offset: int
    next_offset: int
    size: int
    text: str
    complete: bool = Field(description="The build has ended and this reaches its last byte.")


class Secret(Shape):
    """Everything about a secret except its value."""

    name: str = Field(examples=["HF_TOKEN"])
    description: str
    created_at: datetime
    changed_at: datetime
    changed_by: str | None = Field(examples=["Ana"])
    used_by: list[int] = Field(description="Numbers of jobs that have not ended; at most 20.", examples=[[12]])


class SecretPage(Page):
    results: list[Secret]


class Artifact(Shape):
    id: int = Field(examples=[7])
    path: str = Field(examples=["plots/loss.csv"])
    bytes: int
    sha256: str = DIGEST
    attempt: int
    created_at: datetime
    expires_at: datetime


class ArtifactPage(Page):
    results: list[Artifact]
    collecting: bool = Field(description="More may follow: the newest run has not ended, or is being looked through.")
    left_out: int = Field(description="Files of the newest run that were too many, too large or unreadable.")


class JobCheckpoints(Shape):
    number: int
    bytes: int
    kept: int = Field(description="How many checkpoints.", examples=[3])


class CheckpointStorage(Shape):
    bytes: int
    soft_bytes: int | None = Field(description="Beyond it people are warned.", examples=[10_737_418_240])
    hard_bytes: int | None = Field(description="Beyond it no job is taken in.", examples=[21_474_836_480])
    jobs: list[JobCheckpoints] = Field(description="The largest, at most 50.")


class Stored(Shape):
    bytes: int
    quota_bytes: int | None = Field(examples=[10_737_418_240])


class Storage(Shape):
    checkpoints: CheckpointStorage
    bundles: Stored
    artifacts: Stored
    environments: Stored

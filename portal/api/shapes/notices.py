"""Destinations of notices, and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import Page, Shape

DestinationKind = Literal["webhook", "slack", "email"]
NoticeKind = Literal[
    "job.started", "job.succeeded", "job.failed", "job.cancelled", "job.retried", "job.preempted", "job.held",
    "job.idle", "job.waiting", "budget.reached", "node.lost", "node.check_failed",
    "policy.rolled_back",
]  # fmt: skip


class NoticeDestination(Shape):
    id: int
    name: str = Field(examples=["failures"])
    kind: DestinationKind
    address: str = Field(description="Host of the URL, or the e-mail address.", examples=["https://hooks.example.org"])
    events: list[NoticeKind] = Field(examples=[["job.failed", "job.succeeded"]])
    own_jobs: bool = Field(description="Of my jobs only; false: of all jobs of the project and below.")
    project: str | None = Field(description="Key of the project in which, and below which, jobs count; null: in all.")
    waiting_minutes: int = Field(description="After how long a pending job causes `job.waiting`, once.", examples=[60])
    enabled: bool
    disabled_why: str = Field(description="Why the portal turned it off; empty where it did not.", examples=[""])
    failing_since: datetime | None = Field(description="Nothing was delivered from then on, though it was tried.")
    failures: int = Field(description="Attempts that failed since something was delivered.", examples=[0])
    delivered_at: datetime | None = Field(description="When something was delivered last.")
    created_at: datetime


class NewNoticeDestination(NoticeDestination):
    secret: str | None = Field(
        description="Of a webhook, to check signatures with. It is shown in this answer only.",
        examples=["whsec_(shown in this answer only)"],
    )


class NoticeDestinationPage(Page):
    email_available: bool = Field(description="The portal can send e-mail.")
    results: list[NoticeDestination]


class DestinationSecret(Shape):
    secret: str = Field(
        description="The new secret. It is shown in this answer only.", examples=["whsec_(shown in this answer only)"]
    )
    old_until: datetime = Field(description="Until then the one before signs too.")


class NoticeDelivery(Shape):
    id: int
    message: str = Field(
        description="`webhook-id`: the same at each attempt.", examples=["msg_0199a6f23c417b529d0e5a1f6c2b7e90"]
    )
    event: NoticeKind | Literal["test"]
    text: str = Field(examples=["#12 resnet-night failed: The program ended with exit code 1."])
    status: Literal["waiting", "delivered", "given_up"]
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None
    finished_at: datetime | None
    answer_code: int | None = Field(description="HTTP status of the last answer.", examples=[200])
    answer: str = Field(description="How the last answer begins; 200 characters at most.", examples=["ok"])
    error: str = Field(description="Why the last attempt failed.", examples=[""])


class NoticeDeliveryPage(Page):
    results: list[NoticeDelivery]

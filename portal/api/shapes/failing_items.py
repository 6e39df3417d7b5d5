"""What loops of the control plane fail at."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from portal.api.shapes.base import JobRef, Page, Shape


class FailingItem(Shape):
    loop: str = Field(examples=["limits"], description="As the label `loop` of `evenkeel_item_failures_total`.")
    task: str = Field(examples=["enforce a job's max_cost or deadline"], description='To be read after "fails to".')
    name: str = Field(examples=["#12 resnet-night"], description="The job, run, node, file or step that it fails at.")
    cluster: str | None = Field(examples=["main"], description="Null: of no cluster in particular.")
    job: JobRef | None
    since_at: datetime
    last_at: datetime
    next_attempt_at: datetime
    failures: int = Field(examples=[3], description="In a row.")
    error: str = Field(examples=["KeyError: 'nice'"], description="The last one, without what looks like a secret.")


class FailingItemPage(Page):
    results: list[FailingItem]

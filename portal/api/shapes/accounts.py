"""Who is signed in, projects and tokens."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, RootModel

from portal.api.shapes.base import Money, Role, Shape


class SignedIn(Shape):
    id: int
    email: str
    name: str
    is_admin: bool


class SessionProject(Shape):
    key: str
    name: str
    role: Role


class SessionCluster(Shape):
    name: str
    nodes: int
    gpus: int


class Session(Shape):
    user: SignedIn | None
    projects: list[SessionProject]
    cluster: SessionCluster
    single_trust_mode: bool = Field(description="Jobs of all projects run under the portal's own account.")
    emulated: bool
    speedup: float
    currency: str
    version: str


class Project(Shape):
    key: str
    name: str
    role: Role
    gpu_quota: int | None = Field(description="GPUs at once.")
    gpus_held: int
    jobs_running: int
    jobs_queued: int
    spend_month: Money


class Projects(RootModel[list[Project]]):
    pass


class Token(Shape):
    id: int
    name: str
    prefix: str = Field(description="The token begins with ek_<prefix>_.")
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class TokenPage(Shape):
    next: str | None
    previous: str | None
    results: list[Token]


class NewToken(Token):
    secret: str = Field(description="The whole token. It is shown in this answer only.")

"""Who is signed in, projects and tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import Detail, Money, Page, Role, Shape


class SignedIn(Shape):
    id: int
    email: str
    name: str
    is_admin: bool


class SessionProject(Shape):
    key: str
    name: str
    role: Role


class SessionClusterRef(Shape):
    name: str
    stream: str = Field(description="Its live stream.", examples=["cluster", "cluster:lab"])
    engine: str = Field(examples=["Slurm"])
    engine_away_since_at: datetime | None = Field(
        description="Since when the engine has not answered: nothing is started, stopped or resized until it does."
    )


class SessionCluster(Shape):
    name: str
    nodes: int
    gpus: int


class SingleSignOn(Shape):
    name: str
    url: str = Field(description="Where the browser goes to sign in.", examples=["/accounts/oidc/sso/login/"])


class Session(Shape):
    user: SignedIn | None
    single_sign_on: SingleSignOn | None = Field(description="Null: people sign in with a password only.")
    projects: list[SessionProject] = Field(description="At most 200, those in use first.")
    more_projects: bool = Field(description="There are more of them: GET projects lists all.")
    cluster: SessionCluster = Field(description="The first.")
    clusters: list[SessionClusterRef] = Field(description="All, in their order; retired ones are not among them.")
    single_trust_mode: bool = Field(description="Jobs of all projects run under the portal's own account.")
    runs_as_person: bool = Field(description="Jobs of some cluster run as the UNIX account of who submits them.")
    emulated: bool
    speedup: float
    currency: str
    version: str


class Holding(Shape):
    gpus_held: int
    jobs_running: int
    jobs_queued: int
    spend_month: Money


class Project(Shape):
    key: str
    name: str
    role: Role
    parent: str | None = Field(description="Key of the project above, where I may see that.")
    archived_at: datetime | None
    members: int = Field(description="Active people with a role in it, given there or above.")
    gpu_quota: int | None = Field(description="GPUs at once, of it and all below together.")
    budget_month: Money | None = Field(description="What it and all below together may spend in a month.")
    gpus_held: int
    jobs_running: int
    jobs_queued: int
    spend_month: Money
    with_below: Holding = Field(description="The same of it and all below it, which is what its limits count.")


class ProjectPage(Page):
    results: list[Project]


TokenScope = Literal["jobs:read", "jobs:write", "admin"]


class Token(Shape):
    id: int
    name: str
    prefix: str = Field(description="The token begins with ek_<prefix>_.")
    scopes: list[TokenScope]
    project: str | None = Field(description="Key of the project in which, and below which, it works; null: in all.")
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    last_used_address: str | None
    revoked_at: datetime | None


class TokenPage(Shape):
    next: str | None
    previous: str | None
    results: list[Token]


class NewToken(Token):
    secret: str = Field(description="The whole token. It is shown in this answer only.")


class AuditEntry(Shape):
    id: int
    position: int | None = Field(description="In the chain; null while the entry's transaction is open.")
    at: datetime
    actor: str | None = Field(description="Email, as it was then. Null: the portal itself, or nobody signed in.")
    action: str = Field(examples=["token.create"])
    target: str
    detail: Detail
    address: str | None
    credential: str | None = Field(description="Which token or session.", examples=["token ek_0a1b2c3d4e"])
    request_id: str | None
    hash: str | None


class AuditPage(Page):
    results: list[AuditEntry]

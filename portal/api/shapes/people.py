"""People, members, invitations, service accounts and sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from portal.api.shapes.base import Detail, Money, Page, Role, Shape

INHERITED = "Key of the project above that the role comes from; null: it was given here."

#: As long as a real one, but belonging to no link.
EXAMPLE_SECRET = "example-of-what-a-link-has-after-the-hash-0"  # noqa: S105


class ProjectAbove(Shape):
    key: str
    name: str
    role: Role = Field(description="Mine there.")


class SlurmNames(Shape):
    account: str | None
    qos: str | None
    partition: str | None
    wckey: str | None
    reservation: str | None


class Holding(Shape):
    gpus_allocated: int
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
    gpu_limit: int | None = Field(description="GPUs at once, of it and all below together.")
    budget_month: Money | None = Field(description="What it and all below together may spend in a month.")
    gpus_allocated: int
    jobs_running: int
    jobs_queued: int
    spend_month: Money
    with_below: Holding = Field(description="The same of it and all below it, which is what its limits count.")


class ProjectDetail(Project):
    path: list[ProjectAbove] = Field(description="The projects above it that I may see, outermost first.")
    inherited_from: str | None = Field(description=INHERITED)
    created_at: datetime
    share_weight: float = Field(description="Its part of what the project above gets, against its siblings' weights.")
    cluster_shares: dict[str, float] = Field(description="Its part on clusters where it is another, by their names.")
    inner_rule: str = Field(json_schema_extra={"enum": ["fairness", "fifo"]})
    priority: int | None = Field(description="Of its jobs, against other projects'; null: that of the project above.")
    slurm: SlurmNames = Field(
        description="What its jobs are submitted as in Slurm; null: as those of the project above."
    )
    slurm_above: SlurmNames = Field(
        description="What they are submitted as where it says nothing; null: as the cluster."
    )


class PersonRef(Shape):
    id: int
    email: str
    name: str


class Member(Shape):
    user: PersonRef
    kind: str = Field(json_schema_extra={"enum": ["person", "service"]})
    is_active: bool
    role: Role
    inherited_from: str | None = Field(description=INHERITED)
    by_directory: bool = Field(description="It follows the person's groups and cannot be changed here.")
    address_proved: bool = Field(
        description="By a message sent to it or by the identity provider; service accounts have none to prove."
    )
    provenance: str | None = Field(
        description="Where an account with an unproved address comes from, in a sentence; null: it is proved, or I do "
        "not manage the project."
    )


class MemberPage(Page):
    results: list[Member]


class Invitation(Shape):
    id: int
    email: str
    role: Role
    project: str
    invited_by: str
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    revoked_at: datetime | None


class InvitationPage(Page):
    results: list[Invitation]


class NewInvitation(Invitation):
    link: str | None = Field(
        description="For the person invited, in this answer only; null where the portal mailed it: only they have it.",
        examples=[f"https://evenkeel.example.org/invitation#{EXAMPLE_SECRET}"],
    )
    mailed: bool = Field(
        description="Whether the portal sent it by e-mail. If not, the account that it makes has an unproved address."
    )


class OpenInvitation(Shape):
    email: str
    role: Role
    invited_by: str
    project_name: str
    expires_at: str


class AcceptedInvitation(Shape):
    project: str
    role: Role
    email: str


class ServiceAccount(Shape):
    id: int
    name: str
    email: str = Field(description="How it is named as the owner of jobs; no mail goes there.")
    project: str
    role: Role
    is_active: bool
    tokens: int = Field(description="Tokens that work.")
    created_at: datetime


class ServiceAccountPage(Page):
    results: list[ServiceAccount]


class PersonProject(Shape):
    key: str
    name: str
    role: Role


class Account(Shape):
    id: int
    email: str
    name: str
    kind: str = Field(json_schema_extra={"enum": ["person", "service"]})
    is_admin: bool
    admin_by_directory: bool
    is_active: bool
    projects: list[PersonProject] = Field(description="Where they were given a role, the oldest first; at most 20.")
    more_projects: bool = Field(description="There are more of them.")
    last_sign_in_at: datetime | None
    created_at: datetime
    deactivated_at: datetime | None
    address_proved_at: datetime | None
    address_proved_by: str | None = Field(
        json_schema_extra={"enum": ["mail", "identity_provider", None]},
        description="null: it was never proved.",
        examples=["mail"],
    )
    unix_account: str | None = Field(
        description="As whom their jobs run on clusters that run jobs as people; null: there is none.",
        examples=["alice"],
    )
    unix_account_by: str | None = Field(
        json_schema_extra={"enum": ["administrator", "same_name", "identity_provider", None]},
        examples=["administrator"],
        description="Who set it; same_name: an administrator confirmed the local part of the address.",
    )
    unix_account_suggestion: str | None = Field(
        description="The local part of a proved address, where there is no account yet; it counts only once set."
    )
    provenance: str | None = Field(
        description="Where an account with an unproved address comes from, in a sentence; null: it is proved."
    )


class AccountPage(Page):
    results: list[Account]


class BrowserSession(Shape):
    id: int
    device: str = Field(examples=["Firefox on Linux"])
    address: str
    created_at: datetime
    last_seen_at: datetime
    current: bool = Field(description="The one that asks.")


class BrowserSessions(Shape):
    results: list[BrowserSession]


class Ended(Shape):
    ended: int


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
    actor: str | None = Field(description="Email, as it was then. Null: the portal itself, or no signed-in user.")
    action: str = Field(examples=["token.create"])
    target: str
    detail: Detail
    address: str | None
    credential: str | None = Field(description="Which token or session.", examples=["token ek_0a1b2c3d4e"])
    request_id: str | None
    hash: str | None


class AuditPage(Page):
    results: list[AuditEntry]

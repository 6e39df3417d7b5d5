"""Who may call an operation, and with which token: declared with it, shown in its documentation, checked by tests."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Scope = Literal["jobs:read", "jobs:write", "admin"]


class Access(StrEnum):
    """The required access. Outside their projects people get 404; inside them, with too low a role, 403."""

    PUBLIC = "public"
    SIGNED_IN = "signed-in"
    VIEWER = "viewer"
    MEMBER = "member"
    MANAGER = "manager"
    ADMIN = "admin"
    RUN = "run"
    SESSION = "session"


SENTENCES: dict[Access, str] = {
    Access.PUBLIC: "Anybody, signed in or not.",
    Access.SIGNED_IN: "All signed-in users; answers cover what they may see.",
    Access.VIEWER: "Viewers of the project and above.",
    Access.MEMBER: "Members of the project and above.",
    Access.MANAGER: "Managers of the project and above.",
    Access.ADMIN: "Administrators of the cluster.",
    Access.RUN: "The runner, with the token of its run and epoch.",
    Access.SESSION: "People signed in with a session, not tokens.",
}


def scope_for(access: Access, method: str) -> Scope | None:
    """The default token scope of an operation; None: API tokens are not accepted."""
    if access in (Access.PUBLIC, Access.RUN, Access.SESSION):
        return None
    if access is Access.ADMIN:
        return "admin"
    return "jobs:read" if method == "get" else "jobs:write"


def sentence(access: Access, scope: Scope | None) -> str:
    return f"**Access:** {SENTENCES[access]}" + (f" Token scope `{scope}`." if scope else "")

"""The parts of the REST interface beyond single jobs, each as an attribute of `Client`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    from evenkeel.client import Client

Json = dict[str, Any]
Role = Literal["viewer", "member", "manager"]
GroupBy = Literal["project", "user", "job", "day", "month", "type"]
Scope = Literal["jobs:read", "jobs:write", "admin"]
AuditFormat = Literal["csv", "jsonl"]
PricedResource = Literal["gpu", "cpu", "memory"]
BulkAction = Literal["cancel", "hold", "release", "label", "resubmit"]


def part(text: str | int) -> str:
    """One part of a path, whatever is in it."""
    return quote(str(text), safe="")


def given(**values: Any) -> Json:
    """What was given: None is left out."""
    return {name: value for name, value in values.items() if value is not None}


class Resource:
    def __init__(self, client: Client) -> None:
        self._client = client


class Projects(Resource):
    def list(self) -> Iterator[Json]:
        return self._client.pages("projects", {"limit": "200"})

    def get(self, key: str) -> Json:
        return self._client.json("GET", f"projects/{part(key)}")

    def create(self, key: str, name: str, *, parent: str | None = None) -> Json:
        body = {"key": key, "name": name} | given(parent=parent)
        return self._client.json("POST", "projects", json=body, repeatable=False)

    def change(self, key: str, changes: Json, *, if_match: str | None = None) -> Json:
        headers = given(**{"If-Match": if_match})
        return self._client.json("PATCH", f"projects/{part(key)}", json=changes, headers=headers)

    def archive(self, key: str) -> Json:
        return self._client.json("POST", f"projects/{part(key)}/archive")

    def restore(self, key: str) -> Json:
        return self._client.json("POST", f"projects/{part(key)}/restore")

    def members(self, key: str) -> Iterator[Json]:
        return self._client.pages(f"projects/{part(key)}/members")

    def add_member(self, key: str, email: str, role: Role) -> Json:
        body = {"email": email, "role": role}
        return self._client.json("POST", f"projects/{part(key)}/members", json=body)

    def change_member(self, key: str, person: int, role: Role) -> Json:
        return self._client.json("PATCH", f"projects/{part(key)}/members/{person}", json={"role": role})

    def remove_member(self, key: str, person: int) -> None:
        self._client.send("DELETE", f"projects/{part(key)}/members/{person}")

    def invitations(self, key: str) -> Iterator[Json]:
        return self._client.pages(f"projects/{part(key)}/invitations")

    def invite(self, key: str, email: str, role: Role) -> Json:
        body = {"email": email, "role": role}
        return self._client.json("POST", f"projects/{part(key)}/invitations", json=body, repeatable=False)

    def revoke_invitation(self, key: str, invitation: int) -> None:
        self._client.send("DELETE", f"projects/{part(key)}/invitations/{invitation}")

    def service_accounts(self, key: str) -> Iterator[Json]:
        return self._client.pages(f"projects/{part(key)}/service-accounts")

    def create_service_account(self, key: str, wish: Json) -> Json:
        return self._client.json("POST", f"projects/{part(key)}/service-accounts", json=wish, repeatable=False)

    def change_service_account(self, key: str, account: int, changes: Json) -> Json:
        return self._client.json("PATCH", f"projects/{part(key)}/service-accounts/{account}", json=changes)

    def service_tokens(self, key: str, account: int) -> Iterator[Json]:
        return self._client.pages(f"projects/{part(key)}/service-accounts/{account}/tokens")

    def create_service_token(self, key: str, account: int, wish: Json) -> Json:
        path = f"projects/{part(key)}/service-accounts/{account}/tokens"
        return self._client.json("POST", path, json=wish, repeatable=False)

    def storage(self, key: str) -> Json:
        return self._client.json("GET", f"projects/{part(key)}/storage")

    def set_storage(self, key: str, limits: Json) -> Json:
        """All of its own limits; what is left out is as the portal's settings say."""
        return self._client.json("PUT", f"projects/{part(key)}/storage", json=limits)


class People(Resource):
    def list(self, **filters: str | None) -> Iterator[Json]:
        return self._client.pages("people", given(**filters))

    def change(self, person: int, changes: Json) -> Json:
        return self._client.json("PATCH", f"people/{person}", json=changes)


class Audit(Resource):
    def list(self, **filters: str | None) -> Iterator[Json]:
        return self._client.pages("audit", given(**filters))

    def export(self, format: AuditFormat = "csv", **filters: str | None) -> Iterator[bytes]:
        return self._client.stream("audit/export", {"format": format} | given(**filters))


class Quotas(Resource):
    def list(self, *, project: str | None = None, user: str | None = None) -> Iterator[Json]:
        """Limits that I may change."""
        return self._client.pages("quotas", given(project=project, user=user))

    def binding(self, project: str) -> Json:
        """Limits that bind my jobs in the project, of every level, with their use; `more`: there are others."""
        return self._client.json("GET", f"projects/{part(project)}/quotas")

    def set(self, wish: Json) -> Json:
        return self._client.json("POST", "quotas", json=wish, repeatable=False)

    def get(self, quota: int) -> Json:
        return self._client.json("GET", f"quotas/{quota}")

    def change(self, quota: int, limit: str, *, hard: bool) -> Json:
        return self._client.json("PUT", f"quotas/{quota}", json={"limit": limit, "hard": hard})

    def remove(self, quota: int) -> None:
        self._client.send("DELETE", f"quotas/{quota}")


class Money(Resource):
    def job(self, job: str) -> Json:
        return self._client.json("GET", f"jobs/{part(job)}/cost")

    def estimate(self, job_file: Json) -> Json:
        return self._client.json("POST", "jobs/estimate", json=job_file)

    def usage(self, by: GroupBy = "project", **filters: str | None) -> Iterator[Json]:
        return self._client.pages("usage", {"group_by": by} | given(**filters))

    def usage_csv(self, by: GroupBy = "project", **filters: str | None) -> str:
        return self._client.send("GET", "usage/export", params={"group_by": by} | given(**filters)).text

    def rates(self) -> Iterator[Json]:
        return self._client.pages("rates")

    def set_rate(self, wish: Json) -> Json:
        return self._client.json("POST", "rates", json=wish, repeatable=False)

    def discounts(self, *, project: str | None = None) -> Iterator[Json]:
        return self._client.pages("discounts", given(project=project))

    def set_discount(self, wish: Json) -> Json:
        return self._client.json("POST", "discounts", json=wish, repeatable=False)


class Tokens(Resource):
    def list(self) -> Iterator[Json]:
        return self._client.pages("tokens")

    def rotate(self, token: int, *, overlap_hours: int = 24) -> Json:
        body = {"overlap_hours": overlap_hours}
        return self._client.json("POST", f"tokens/{token}/rotate", json=body, repeatable=False)

    def revoke(self, token: int) -> None:
        self._client.send("DELETE", f"tokens/{token}")


class Secrets(Resource):
    def list(self, project: str) -> Iterator[Json]:
        return self._client.pages(f"projects/{part(project)}/secrets")

    def set(self, project: str, name: str, value: str, *, description: str | None = None) -> Json:
        body = {"value": value} | given(description=description)
        return self._client.json("PUT", f"projects/{part(project)}/secrets/{part(name)}", json=body)

    def delete(self, project: str, name: str) -> None:
        self._client.send("DELETE", f"projects/{part(project)}/secrets/{part(name)}")


class Artifacts(Resource):
    def list(self, job: str) -> Iterator[Json]:
        return self._client.pages(f"jobs/{part(job)}/artifacts")

    def download(self, job: str, artifact: int) -> Iterator[bytes]:
        return self._client.stream(f"jobs/{part(job)}/artifacts/{artifact}")

    def delete(self, job: str, artifact: int) -> None:
        self._client.send("DELETE", f"jobs/{part(job)}/artifacts/{artifact}")


class Bundles(Resource):
    def list(self, project: str) -> Iterator[Json]:
        return self._client.pages(f"projects/{part(project)}/bundles")

    def upload(self, project: str, archive: bytes) -> Json:
        """The bundle; uploading the same again changes nothing."""
        headers = {"Content-Type": "application/gzip"}
        return self._client.json("POST", f"projects/{part(project)}/bundles", content=archive, headers=headers)

    def delete(self, project: str, sha256: str) -> None:
        self._client.send("DELETE", f"projects/{part(project)}/bundles/{part(sha256)}")


class Environments(Resource):
    def list(self, project: str) -> Iterator[Json]:
        return self._client.pages(f"projects/{part(project)}/environments")

    def log(self, project: str, digest: str, **query: int) -> Json:
        return self._client.json("GET", f"projects/{part(project)}/environments/{part(digest)}/log", params=query)

    def delete(self, project: str, digest: str) -> None:
        self._client.send("DELETE", f"projects/{part(project)}/environments/{part(digest)}")


class Operations(Resource):
    """What is done to jobs."""

    def patch(self, job: str, changes: Mapping[str, Any], *, if_match: str | None = None) -> Json:
        headers = given(**{"If-Match": if_match})
        return self._client.json("PATCH", f"jobs/{part(job)}", json=dict(changes), headers=headers)

    def hold(self, job: str) -> Json:
        return self._client.json("POST", f"jobs/{part(job)}/hold")

    def release(self, job: str) -> Json:
        return self._client.json("POST", f"jobs/{part(job)}/release")

    def move(self, job: str, project: str) -> Json:
        return self._client.json("POST", f"jobs/{part(job)}/move", json={"project": project})

    def resubmit(self, job: str, changes: Json, *, idempotency_key: str) -> Json:
        headers = {"Idempotency-Key": idempotency_key}
        return self._client.json("POST", f"jobs/{part(job)}/resubmit", json=changes, headers=headers)

    def bulk(self, action: BulkAction, filters: Json, **more: Any) -> Json:
        body = {"action": action, "filter": filters} | given(**more)
        return self._client.json("POST", "jobs/bulk", json=body, repeatable=False)

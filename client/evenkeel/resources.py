"""The parts of the REST interface beyond single jobs, each as an attribute of `Client`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from evenkeel import schemas
from evenkeel.renamed import OldNames

if TYPE_CHECKING:
    from evenkeel.client import Client

Json = dict[str, Any]
Wish = Mapping[str, object]
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


class Resource(OldNames):
    def __init__(self, client: Client) -> None:
        self._client = client


class Projects(Resource):
    def list(self) -> Iterator[schemas.Project]:
        return self._client.rows(schemas.Project, "projects", {"limit": "200"})

    def get(self, key: str) -> schemas.ProjectDetail:
        return self._client.one(schemas.ProjectDetail, "GET", f"projects/{part(key)}")

    def create(self, key: str, name: str, *, parent: str | None = None) -> schemas.ProjectDetail:
        body = {"key": key, "name": name} | given(parent=parent)
        return self._client.one(schemas.ProjectDetail, "POST", "projects", json=body, repeatable=False)

    def change(self, key: str, changes: Wish, *, if_match: str | None = None) -> schemas.ProjectDetail:
        headers = given(**{"If-Match": if_match})
        return self._client.one(schemas.ProjectDetail, "PATCH", f"projects/{part(key)}", json=changes, headers=headers)

    def archive(self, key: str) -> schemas.ProjectDetail:
        return self._client.one(schemas.ProjectDetail, "POST", f"projects/{part(key)}/archive")

    def restore(self, key: str) -> schemas.ProjectDetail:
        return self._client.one(schemas.ProjectDetail, "POST", f"projects/{part(key)}/restore")

    def members(self, key: str, *, email: str | None = None) -> Iterator[schemas.Member]:
        return self._client.rows(schemas.Member, f"projects/{part(key)}/members", given(email=email))

    def add_member(self, key: str, email: str, role: Role, *, confirm_unproved: bool = False) -> schemas.Member:
        """ApiError with UNPROVED where the address of the account was never proved, unless that is confirmed."""
        body = {"email": email, "role": role, "confirm_unproved": confirm_unproved}
        return self._client.one(schemas.Member, "POST", f"projects/{part(key)}/members", json=body)

    def change_member(self, key: str, person: int, role: Role, *, confirm_unproved: bool = False) -> schemas.Member:
        body = {"role": role, "confirm_unproved": confirm_unproved}
        return self._client.one(schemas.Member, "PATCH", f"projects/{part(key)}/members/{person}", json=body)

    def remove_member(self, key: str, person: int) -> None:
        self._client.send("DELETE", f"projects/{part(key)}/members/{person}")

    def invitations(self, key: str) -> Iterator[schemas.Invitation]:
        return self._client.rows(schemas.Invitation, f"projects/{part(key)}/invitations")

    def invite(self, key: str, email: str, role: Role) -> schemas.NewInvitation:
        body = {"email": email, "role": role}
        return self._client.one(
            schemas.NewInvitation, "POST", f"projects/{part(key)}/invitations", json=body, repeatable=False
        )

    def revoke_invitation(self, key: str, invitation: int) -> None:
        self._client.send("DELETE", f"projects/{part(key)}/invitations/{invitation}")

    def service_accounts(self, key: str) -> Iterator[schemas.ServiceAccount]:
        return self._client.rows(schemas.ServiceAccount, f"projects/{part(key)}/service-accounts")

    def create_service_account(self, key: str, wish: Wish) -> schemas.ServiceAccount:
        return self._client.one(
            schemas.ServiceAccount, "POST", f"projects/{part(key)}/service-accounts", json=wish, repeatable=False
        )

    def change_service_account(self, key: str, account: int, changes: Wish) -> schemas.ServiceAccount:
        return self._client.one(
            schemas.ServiceAccount, "PATCH", f"projects/{part(key)}/service-accounts/{account}", json=changes
        )

    def service_tokens(self, key: str, account: int) -> Iterator[schemas.Token]:
        return self._client.rows(schemas.Token, f"projects/{part(key)}/service-accounts/{account}/tokens")

    def create_service_token(self, key: str, account: int, wish: Wish) -> schemas.NewToken:
        path = f"projects/{part(key)}/service-accounts/{account}/tokens"
        return self._client.one(schemas.NewToken, "POST", path, json=wish, repeatable=False)

    def storage(self, key: str) -> schemas.Storage:
        return self._client.one(schemas.Storage, "GET", f"projects/{part(key)}/storage")

    def set_storage(self, key: str, limits: Wish) -> schemas.Storage:
        """All of its own limits; what is left out is as the portal's settings say."""
        return self._client.one(schemas.Storage, "PUT", f"projects/{part(key)}/storage", json=limits)


class People(Resource):
    def list(self, **filters: str | None) -> Iterator[schemas.Account]:
        return self._client.rows(schemas.Account, "people", given(**filters))

    def change(self, person: int, changes: Wish) -> schemas.Account:
        return self._client.one(schemas.Account, "PATCH", f"people/{person}", json=changes)


class Audit(Resource):
    def list(self, **filters: str | None) -> Iterator[schemas.AuditEntry]:
        return self._client.rows(schemas.AuditEntry, "audit", given(**filters))

    def export(self, format: AuditFormat = "csv", **filters: str | None) -> Iterator[bytes]:
        return self._client.stream("audit/export", {"format": format} | given(**filters))


class Limits(Resource):
    def list(self, *, project: str | None = None, user: str | None = None) -> Iterator[schemas.Quota]:
        """Limits that I may change."""
        return self._client.rows(schemas.Quota, "limits", given(project=project, user=user))

    def binding(self, project: str) -> schemas.BindingQuotas:
        """Limits that bind my jobs in the project, of every level, with their use; `more`: there are others."""
        return self._client.one(schemas.BindingQuotas, "GET", f"projects/{part(project)}/limits")

    def set(self, wish: Wish) -> schemas.Quota:
        return self._client.one(schemas.Quota, "POST", "limits", json=wish, repeatable=False)

    def get(self, id: int) -> schemas.Quota:
        return self._client.one(schemas.Quota, "GET", f"limits/{id}")

    def change(self, id: int, limit: str, *, hard: bool) -> schemas.Quota:
        return self._client.one(schemas.Quota, "PUT", f"limits/{id}", json={"limit": limit, "hard": hard})

    def remove(self, id: int) -> None:
        self._client.send("DELETE", f"limits/{id}")


class Guarantees(Resource):
    """GPUs that projects are guaranteed, by key of the project."""

    def list(self) -> Iterator[schemas.Guarantee]:
        return self._client.rows(schemas.Guarantee, "guarantees")

    def set(self, project: str, wish: Wish) -> schemas.Guarantee:
        return self._client.one(schemas.Guarantee, "PUT", f"projects/{part(project)}/guarantee", json=dict(wish))

    def remove(self, project: str) -> None:
        self._client.send("DELETE", f"projects/{part(project)}/guarantee")


class Money(Resource):
    def job(self, job: str) -> schemas.Cost:
        return self._client.one(schemas.Cost, "GET", f"jobs/{part(job)}/cost")

    def estimate(self, job_file: Wish) -> schemas.Estimate:
        return self._client.one(schemas.Estimate, "POST", "jobs/estimate", json=job_file)

    def usage(self, by: GroupBy = "project", **filters: str | None) -> Iterator[schemas.UsageRow]:
        return self._client.rows(schemas.UsageRow, "usage", {"group_by": by} | given(**filters))

    def usage_csv(self, by: GroupBy = "project", **filters: str | None) -> str:
        return self._client.send("GET", "usage/export", params={"group_by": by} | given(**filters)).text

    def prices(self, *, cluster: str | None = None) -> Iterator[schemas.Rate]:
        """Those of one cluster, or all."""
        return self._client.rows(schemas.Rate, "prices", given(cluster=cluster))

    def set_price(self, wish: Wish) -> schemas.Rate:
        return self._client.one(schemas.Rate, "POST", "prices", json=wish, repeatable=False)

    def discounts(self, *, project: str | None = None) -> Iterator[schemas.Discount]:
        return self._client.rows(schemas.Discount, "discounts", given(project=project))

    def set_discount(self, wish: Wish) -> schemas.Discount:
        return self._client.one(schemas.Discount, "POST", "discounts", json=wish, repeatable=False)


class Shares(Resource):
    """Priorities of waiting jobs and what they come from."""

    def priorities(self, *, project: str | None = None, cluster: str | None = None) -> Iterator[schemas.Priority]:
        return (row for page in self.priority_pages(project=project, cluster=cluster) for row in page["results"])

    def priority_pages(
        self, *, project: str | None = None, cluster: str | None = None
    ) -> Iterator[schemas.PriorityPage]:
        filters = given(project=project, cluster=cluster, limit="200")
        return self._client.pages(schemas.PriorityPage, "priorities", filters)

    def job_priority(self, job: str) -> schemas.JobPriority:
        return self._client.one(schemas.JobPriority, "GET", f"jobs/{part(job)}/priority")

    def history(
        self, *, project: str | None = None, days: int = 14, cluster: str | None = None
    ) -> Iterator[schemas.ShareCourse]:
        filters = given(project=project, days=str(days), cluster=cluster)
        return self._client.rows(schemas.ShareCourse, "shares/history", filters)

    def list(self, *, project: str | None = None, cluster: str | None = None) -> Iterator[schemas.Share]:
        return (row for page in self.pages(project=project, cluster=cluster) for row in page["results"])

    def pages(self, *, project: str | None = None, cluster: str | None = None) -> Iterator[schemas.SharePage]:
        filters = given(project=project, cluster=cluster, limit="200")
        return self._client.pages(schemas.SharePage, "shares", filters)


class Qos(Resource):
    """QoS levels."""

    def list(self) -> Iterator[schemas.Qos]:
        return self._client.rows(schemas.Qos, "qos")

    def set(self, name: str, wish: Wish) -> schemas.Qos:
        return self._client.one(schemas.Qos, "PUT", f"qos/{part(name)}", json=dict(wish))

    def remove(self, name: str) -> None:
        self._client.send("DELETE", f"qos/{part(name)}")


class Arrays(Resource):
    """Arrays of jobs, by number; they are submitted as a job file with the key `array`."""

    def list(self, *, project: str | None = None) -> Iterator[schemas.JobArray]:
        return self._client.rows(schemas.JobArray, "arrays", given(project=project))

    def get(self, number: int) -> schemas.JobArrayDetail:
        return self._client.one(schemas.JobArrayDetail, "GET", f"arrays/{number}")

    def limit(self, number: int, max_running: int | None) -> schemas.JobArrayDetail:
        return self._client.one(schemas.JobArrayDetail, "PATCH", f"arrays/{number}", json={"max_running": max_running})

    def cancel(self, number: int) -> schemas.ArrayCancelled:
        return self._client.one(schemas.ArrayCancelled, "POST", f"arrays/{number}/cancel")


class Tokens(Resource):
    def list(self) -> Iterator[schemas.Token]:
        return self._client.rows(schemas.Token, "tokens")

    def rotate(self, token: int, *, overlap_hours: int = 24) -> schemas.NewToken:
        body = {"overlap_hours": overlap_hours}
        return self._client.one(schemas.NewToken, "POST", f"tokens/{token}/rotate", json=body, repeatable=False)

    def revoke(self, token: int) -> None:
        self._client.send("DELETE", f"tokens/{token}")


class Secrets(Resource):
    def list(self, project: str) -> Iterator[schemas.Secret]:
        return self._client.rows(schemas.Secret, f"projects/{part(project)}/secrets")

    def set(self, project: str, name: str, value: str, *, description: str | None = None) -> schemas.Secret:
        body = {"value": value} | given(description=description)
        return self._client.one(schemas.Secret, "PUT", f"projects/{part(project)}/secrets/{part(name)}", json=body)

    def delete(self, project: str, name: str) -> None:
        self._client.send("DELETE", f"projects/{part(project)}/secrets/{part(name)}")


class Artifacts(Resource):
    def list(self, job: str) -> Iterator[schemas.Artifact]:
        return self._client.rows(schemas.Artifact, f"jobs/{part(job)}/artifacts")

    def are_complete(self, job: str) -> bool:
        """False while the job's newest run goes on, or is being looked through."""
        path = f"jobs/{part(job)}/artifacts"
        return not self._client.one(schemas.ArtifactPage, "GET", path, params={"limit": 1})["collecting"]

    def download(self, job: str, artifact: int) -> Iterator[bytes]:
        return self._client.stream(f"jobs/{part(job)}/artifacts/{artifact}")

    def delete(self, job: str, artifact: int) -> None:
        self._client.send("DELETE", f"jobs/{part(job)}/artifacts/{artifact}")


class Bundles(Resource):
    def list(self, project: str) -> Iterator[schemas.Bundle]:
        return self._client.rows(schemas.Bundle, f"projects/{part(project)}/bundles")

    def upload(self, project: str, archive: bytes) -> schemas.Bundle:
        """The bundle; uploading the same again changes nothing."""
        headers = {"Content-Type": "application/gzip"}
        return self._client.one(
            schemas.Bundle, "POST", f"projects/{part(project)}/bundles", content=archive, headers=headers
        )

    def delete(self, project: str, sha256: str) -> None:
        self._client.send("DELETE", f"projects/{part(project)}/bundles/{part(sha256)}")


class Environments(Resource):
    def list(self, project: str) -> Iterator[schemas.Environment]:
        return self._client.rows(schemas.Environment, f"projects/{part(project)}/environments")

    def log(self, project: str, digest: str, **query: int) -> schemas.BuildLog:
        return self._client.one(
            schemas.BuildLog, "GET", f"projects/{part(project)}/environments/{part(digest)}/log", params=query
        )

    def delete(self, project: str, digest: str) -> None:
        self._client.send("DELETE", f"projects/{part(project)}/environments/{part(digest)}")


class Operations(Resource):
    """What is done to jobs."""

    def patch(self, job: str, changes: Wish, *, if_match: str | None = None) -> schemas.Job:
        headers = given(**{"If-Match": if_match})
        return self._client.one(schemas.Job, "PATCH", f"jobs/{part(job)}", json=dict(changes), headers=headers)

    def hold(self, job: str) -> schemas.Job:
        return self._client.one(schemas.Job, "POST", f"jobs/{part(job)}/hold")

    def release(self, job: str) -> schemas.Job:
        return self._client.one(schemas.Job, "POST", f"jobs/{part(job)}/release")

    def stop_retrying(self, job: str) -> schemas.Job:
        return self._client.one(schemas.Job, "POST", f"jobs/{part(job)}/stop-retrying")

    def extend(self, job: str) -> schemas.Job:
        return self._client.one(schemas.Job, "POST", f"jobs/{part(job)}/extend", repeatable=False)

    def idle_rule(self, *, cluster: str | None = None) -> schemas.IdleRule:
        return self._client.one(schemas.IdleRule, "GET", "idle-rule", params=given(cluster=cluster))

    def set_idle_rule(self, wish: Wish, *, cluster: str | None = None) -> schemas.IdleRule:
        query = given(cluster=cluster)
        return self._client.one(schemas.IdleRule, "PUT", "idle-rule", json=dict(wish), params=query)

    def move(self, job: str, project: str) -> schemas.Job:
        return self._client.one(schemas.Job, "POST", f"jobs/{part(job)}/move", json={"project": project})

    def resubmit(self, job: str, changes: Wish, *, idempotency_key: str) -> schemas.Job:
        headers = {"Idempotency-Key": idempotency_key}
        return self._client.one(schemas.Job, "POST", f"jobs/{part(job)}/resubmit", json=changes, headers=headers)

    def bulk(self, action: BulkAction, filters: Wish, **more: Any) -> schemas.BulkAnswer:
        body = {"action": action, "filter": filters} | given(**more)
        return self._client.one(schemas.BulkAnswer, "POST", "jobs/bulk", json=body, repeatable=False)

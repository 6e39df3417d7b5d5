"""The audit log: who did what to what, and from where.

Entries are only appended. The database enforces this and chains them: at commit each entry gets the next position, the
hash of the entry before and the SHA-256 of its own content with that hash (accounts/migrations/0004_audit_chain.py).
Sealing waits for the commit, so that an entry early in a long transaction blocks no other.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from accounts import origin
from accounts.models import AuditEntry, User

GENESIS = "0" * 64
#: Columns under a seal, in this order; `detail` as the database writes it.
SEALED = (
    "position", "at", "actor_id", "actor_email", "action", "target", "detail_text", "address", "credential",
    "request_id", "previous_hash",
)  # fmt: skip
COLUMNS = (*SEALED, "hash")


def record_audit(*, actor: User | None, action: str, target: str, detail: dict[str, Any] | None = None) -> AuditEntry:
    """Add an entry about `actor`'s action; the origin comes from the current request."""
    source = origin.current()
    return AuditEntry.objects.create(
        actor=actor,
        actor_email=actor.email if actor else "",
        action=action,
        target=target[:200],
        detail=detail or {},
        address=source.address[:45] if source else "",
        credential=source.credential if source else "",
        request_id=source.request_id if source else "",
    )


def rows(entries: QuerySet[AuditEntry]) -> QuerySet[AuditEntry, dict[str, Any]]:
    """Entries as plain values with the text of their detail."""
    found: QuerySet[AuditEntry, dict[str, Any]]
    found = entries.annotate(detail_text=Cast("detail", TextField())).values(*COLUMNS)
    return found


def _texts(row: dict[str, Any]) -> list[str]:
    at = row["at"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    values = row | {"at": at}
    return ["" if values[key] is None else str(values[key]) for key in SEALED]


def sealed_text(row: dict[str, Any]) -> str:
    """The text whose SHA-256 is the entry's hash: a JSON array of strings."""
    return json.dumps(_texts(row), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problem` names the first entry that has changed; None: the chain is intact up to `position`."""

    position: int
    hash: str
    problem: str | None = None


def verify_chain(entries: Iterable[dict[str, Any]]) -> Verdict:
    """Verify the chain from its beginning; `entries` in the order of their positions."""
    position, before = 0, GENESIS
    for row in entries:
        if row["position"] != position + 1:
            return Verdict(position, before, f"after entry {position} comes {row['position']}: entries are missing")
        position += 1
        if row["previous_hash"] != before:
            return Verdict(position, before, f"entry {position} does not follow entry {position - 1}")
        if hashlib.sha256(sealed_text(row).encode()).hexdigest() != row["hash"]:
            return Verdict(position, before, f"entry {position} is not what was written")
        before = row["hash"]
    return Verdict(position, before)


def as_csv(found: Iterable[dict[str, Any]], *, header: bool) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    if header:
        writer.writerow(COLUMNS)
    for row in found:
        writer.writerow([*map(_harmless, _texts(row)), row["hash"]])
    yield buffer.getvalue()


def _harmless(text: str) -> str:
    """Spreadsheets treat text that begins like this as a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text


def as_json_lines(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in found:
        plain: dict[str, Any] = dict(zip(SEALED, _texts(row), strict=True))
        plain["detail"] = json.loads(plain.pop("detail_text"))
        plain |= {"position": row["position"], "actor_id": row["actor_id"], "hash": row["hash"]}
        yield json.dumps({**plain, "sealed": sealed_text(row)}, ensure_ascii=False) + "\n"


def chain_head() -> str:
    """The newest entry as POSITION:HASH. Stored elsewhere, it shows later that the end was not cut off."""
    newest = sealed_entries().values_list("position", "hash").last()
    return "{}:{}".format(*newest) if newest else f"0:{GENESIS}"


def sealed_entries(filters: Sequence[Any] = ()) -> QuerySet[AuditEntry]:
    """Committed entries in the order of the chain."""
    return AuditEntry.objects.filter(*filters, position__isnull=False).order_by("position")

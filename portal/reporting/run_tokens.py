"""The bearer token of one (run, epoch), derived from the secret key: nothing is stored, nothing can leak from the
database, and a repeated command carries the same one."""

from __future__ import annotations

from uuid import UUID

from django.utils.crypto import constant_time_compare, salted_hmac

_SALT = "evenkeel.run-token"


def run_token(run_id: UUID | str, epoch: int) -> str:
    return "ekr_" + salted_hmac(_SALT, f"{run_id}:{epoch}", algorithm="sha256").hexdigest()


def is_run_token(text: str, run_id: UUID | str, epoch: int) -> bool:
    return constant_time_compare(text, run_token(run_id, epoch))

"""Signatures by the Standard Webhooks scheme (standardwebhooks.com): HMAC-SHA-256 over id, time and body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def headers(secrets_in_force: list[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """One signature for each valid secret, the newest first."""
    signatures = [sign(secret, message_id, timestamp, body) for secret in secrets_in_force]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }

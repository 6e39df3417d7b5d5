"""Encryption of stored secrets: Fernet (AES-128-CBC and HMAC-SHA-256), with several keys so that they can be rotated.

The keys are EVENKEEL_SECRET_KEYS (newest first), or those of DATA/encryption_keys, one a line, made at the first use.
The file is read at every use, so that a key added by one process is available in all.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

KEPT_KEYS = 2  # the previous one stays: another process may just have encrypted with it


class CannotDecrypt(Exception):
    """None of the keys fits: another installation's data, or a damaged row."""


def encrypt(value: str) -> str:
    return _cipher().encrypt(value.encode()).decode()


def decrypt(ciphertext: str) -> str:
    try:
        return _cipher().decrypt(ciphertext.encode()).decode()
    except InvalidToken:
        raise CannotDecrypt("No key of this installation opens the secret; set its value again.") from None


def reencrypt(ciphertext: str) -> str:
    """The same value under the newest key."""
    try:
        return _cipher().rotate(ciphertext.encode()).decode()
    except InvalidToken:
        raise CannotDecrypt("No key of this installation opens the secret.") from None


def key_file() -> Path:
    return Path(settings.EVENKEEL_DATA) / "encryption_keys"


def add_key() -> None:
    """Add a newest key to the file; previous ones still decrypt what they encrypted."""
    _write([Fernet.generate_key().decode(), *_keys()])


def drop_old_keys() -> None:
    _write(_keys()[:KEPT_KEYS])


def _cipher() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in _keys()])


def _keys() -> list[str]:
    if settings.EVENKEEL_SECRET_KEYS:
        return list(settings.EVENKEEL_SECRET_KEYS)
    path = key_file()
    if not path.exists():
        _create(path)
    return path.read_text().split()


def _create(path: Path) -> None:
    """The first process to create the key wins."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(Fernet.generate_key().decode() + "\n")
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()


def _write(keys: list[str]) -> None:
    path = key_file()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text("\n".join(keys) + "\n")
    draft.replace(path)

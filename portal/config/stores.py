"""The checkpoint store, from the environment; docs/executors.md lists the variables."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from portal.config import env

_S3 = frozenset({"s3", "s3a"})
#: How to install a driver, if its own message does not tell.
_LOCKS = {"s3fs": "requirements-s3.lock"}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    url: str
    options: dict[str, Any]  # of the driver, without secrets
    credentials: dict[str, Any] = field(repr=False)
    cache_dir: str
    cache_bytes: int
    end_s: float
    fetch_s: float


def read_checkpoint_store(executor: str) -> StoreSettings | None:
    """None if EVENKEEL_CHECKPOINT_URL is empty: checkpoints stay with the job's files."""
    url = env.text("EVENKEEL_CHECKPOINT_URL").rstrip("/")
    if not url:
        return None
    protocol = _checked(url)
    if executor == "local" and os.geteuid() == 0:
        raise env.BadSetting(
            "EVENKEEL_CHECKPOINT_URL cannot be used with EVENKEEL_EXECUTOR=local under root: each project has an "
            "account of its own there, and its jobs could read the store's key, and with it others' checkpoints"
        )
    cache = env.text("EVENKEEL_CHECKPOINT_CACHE_DIR")
    if cache and not Path(cache).is_absolute():
        raise env.BadSetting(f"EVENKEEL_CHECKPOINT_CACHE_DIR must be an absolute path, not {cache!r}")
    return StoreSettings(
        url=url,
        options=_options(protocol),
        credentials=_credentials(protocol),
        cache_dir=cache,
        cache_bytes=env.integer("EVENKEEL_CHECKPOINT_CACHE_MIB") << 20,
        end_s=env.number("EVENKEEL_CHECKPOINT_UPLOAD_S"),
        fetch_s=env.number("EVENKEEL_CHECKPOINT_FETCH_S"),
    )


def module_for_nodes() -> str:
    """The module that nodes need for the store besides the client; empty if there is no store."""
    from fsspec.registry import known_implementations as known

    protocol = urlsplit(env.text("EVENKEEL_CHECKPOINT_URL")).scheme
    module = str(known.get(protocol, {}).get("class", "")).partition(".")[0]
    return "paramiko" if protocol in ("sftp", "ssh") else module


def _checked(url: str) -> str:
    """Its protocol. The driver must be installed; `manage.py doctor` checks whether the store answers."""
    from fsspec import available_protocols
    from fsspec.registry import known_implementations as known

    parts = urlsplit(url)
    protocol = parts.scheme
    if "://" not in url or not protocol:
        raise env.BadSetting(f"EVENKEEL_CHECKPOINT_URL must be a URL such as s3://bucket/prefix, not {url!r}")
    if protocol not in known and protocol not in available_protocols():
        raise env.BadSetting(f"EVENKEEL_CHECKPOINT_URL: fsspec knows no {protocol}://, but for example file, s3, sftp")
    if parts.password:
        raise env.BadSetting(
            "EVENKEEL_CHECKPOINT_URL holds a password: it belongs in EVENKEEL_CHECKPOINT_CREDENTIALS_FILE"
        )
    if protocol not in ("file", "local", "memory") and not parts.netloc:
        raise env.BadSetting(f"EVENKEEL_CHECKPOINT_URL names no bucket or host: {url!r}")
    if protocol == "memory" or (protocol in ("file", "local") and not parts.path.startswith("/")):
        raise env.BadSetting(f"EVENKEEL_CHECKPOINT_URL names nothing that all nodes see: {url!r}")
    module = str(known.get(protocol, {}).get("class", "")).rpartition(".")[0]
    top = module.partition(".")[0]
    try:
        if top and top != "fsspec" and find_spec(top) is None:  # found without an import, which takes a second
            raise ImportError(f"No module named {top!r}")
        if top == "fsspec":
            import_module(module)
    except ImportError as error:
        how = f"pip install -r {_LOCKS[top]}" if top in _LOCKS else known[protocol].get("err") or f"install {top}"
        raise env.BadSetting(
            f"EVENKEEL_CHECKPOINT_URL: the driver of {protocol}:// is not installed ({error}): {how}"
        ) from None
    return protocol


def _options(protocol: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    endpoint, region = env.text("EVENKEEL_CHECKPOINT_ENDPOINT"), env.text("EVENKEEL_CHECKPOINT_REGION")
    if (endpoint or region) and protocol not in _S3:
        raise env.BadSetting("EVENKEEL_CHECKPOINT_ENDPOINT and _REGION are for s3:// only")
    if endpoint:
        options["endpoint_url"] = env.web_url("EVENKEEL_CHECKPOINT_ENDPOINT")
    if region:
        options["client_kwargs"] = {"region_name": region}
    return options


def _credentials(protocol: str) -> dict[str, Any]:
    """From a file with the driver's options, or, for S3, two variables."""
    key, secret = env.text("EVENKEEL_CHECKPOINT_KEY"), env.text("EVENKEEL_CHECKPOINT_SECRET")
    file = env.text("EVENKEEL_CHECKPOINT_CREDENTIALS_FILE")
    if bool(key) != bool(secret):
        raise env.BadSetting("EVENKEEL_CHECKPOINT_KEY and EVENKEEL_CHECKPOINT_SECRET are given together, or neither")
    if key and protocol not in _S3:
        raise env.BadSetting("EVENKEEL_CHECKPOINT_KEY is for s3://; others take EVENKEEL_CHECKPOINT_CREDENTIALS_FILE")
    if key and file:
        raise env.BadSetting("EVENKEEL_CHECKPOINT_CREDENTIALS_FILE and EVENKEEL_CHECKPOINT_KEY: give one of the two")
    if key:
        return {"key": key, "secret": secret}
    name, form = "EVENKEEL_CHECKPOINT_CREDENTIALS_FILE", 'as {"key": ..., "secret": ...}'
    return read_private_object(name, Path(file), form) if file else {}


def read_private_object(name: str, path: Path, form: str) -> dict[str, Any]:
    """The JSON object in the file named by the variable `name`, which only its owner may read."""
    try:
        mode, content = path.stat().st_mode, json.loads(path.read_bytes())
    except OSError as error:
        raise env.BadSetting(f"{name} cannot be read: {error.strerror}: {path}") from None
    except ValueError:
        raise env.BadSetting(f"{name} must hold a JSON object, {form}: {path}") from None
    if not isinstance(content, dict):
        raise env.BadSetting(f"{name} must hold a JSON object, {form}: {path}")
    if stat.S_IMODE(mode) & 0o077:
        raise env.BadSetting(f"{name} may be read by others: chmod 600 {path}")
    return content

"""Which portal, and as whom: the environment first, then what `evenkeel login` stored."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import click

from evenkeel.client import Client, ClientError


@dataclass(frozen=True, slots=True)
class Login:
    url: str
    token: str | None


def config_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "evenkeel" / "config.json"


def stored_login() -> Login | None:
    path = config_path()
    try:
        value = json.loads(path.read_text())
        return Login(str(value["url"]), str(value["token"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise ClientError(f"{path} cannot be read: log in again with `evenkeel login`") from None


def store_login(login: Login) -> Path:
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"url": login.url, "token": login.token}, file)
    draft.replace(path)
    return path


def current_login() -> Login:
    url, token = os.environ.get("EVENKEEL_URL"), os.environ.get("EVENKEEL_TOKEN")
    if url and token:
        return Login(url, token)
    stored = stored_login()
    if stored is None:
        if url:
            return Login(url, token)
        raise ClientError("not logged in: run `evenkeel login URL`, or set EVENKEEL_URL and EVENKEEL_TOKEN")
    if url and url.rstrip("/") != stored.url.rstrip("/"):
        return Login(url, token)  # a stored token never goes to another portal
    return Login(stored.url, token or stored.token)


def connect() -> Client:
    login = current_login()
    client = Client(login.url, login.token)
    click.get_current_context().call_on_close(client.close)
    return client

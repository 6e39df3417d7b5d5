"""Typed reads of the environment, by the table of settings. An invalid value stops the start with a sentence
that names the variable and what is allowed."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import available_timezones

import environ
from django.core.exceptions import ImproperlyConfigured
from evenkeel.web_address import read_url

from accounts.grants import Grant
from portal.config.old_names import old_names_of
from portal.config.setting import Setting
from portal.config.settings_table import SETTINGS


class BadSetting(ImproperlyConfigured):
    """One sentence for the person who set the variable."""


_env = environ.Env()
_VIRTUAL_ITEM = re.compile(r"^(?:[A-Za-z0-9][A-Za-z0-9.-]*=)?[a-z0-9][a-z0-9_]*:[1-9][0-9]{0,4}$")


@dataclass(slots=True)
class Given:
    """The settings of one cluster, and which of them were read."""

    values: Mapping[str, str]
    asked: set[str] = field(default_factory=set)


_given: ContextVar[Given | None] = ContextVar("given", default=None)


@contextmanager
def before_environment(values: Mapping[str, str]) -> Iterator[Given]:
    """Within the block these override the environment."""
    given = Given(values)
    token = _given.set(given)
    try:
        yield given
    finally:
        _given.reset(token)


def said(name: str) -> str | None:
    """What a cluster's settings say of it, otherwise the environment; None where neither does."""
    given = _given.get()
    if given is not None:
        given.asked.add(name)
        if name in given.values:
            return given.values[name]
    return str(_env.str(name)) if name in _env.ENVIRON else None


def spelled(name: str, of: str = "") -> str:
    """The name under which a setting is said: its own, or an old one of this executor's."""
    names = (name, *old_names_of(name, of))
    given = _given.get()
    if given is not None:
        given.asked.update(names)
        for one in names:
            if one in given.values:
                return one
    return next((one for one in names if one in _env.ENVIRON), name)


def text(name: str, default: str | None = None, *, of: str = "") -> str:
    """`default`: where it is worked out; otherwise the table's. `of`: whose old name counts, too."""
    found = said(spelled(name, of))
    if found is not None:
        return found
    return SETTINGS[name].raw_default if default is None else default


def allowed(name: str) -> str:
    return SETTINGS[name].allowed


def refused(name: str, raw: str) -> BadSetting:
    return BadSetting(f"{name} must be {allowed(name)}, not {raw!r}")


def flag(name: str, *, of: str = "") -> bool:
    raw = _of_kind(name, "flag", of)
    value = raw.strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off", ""}:
        return False
    raise BadSetting(f"{spelled(name, of)} must be {allowed(name)}, not {raw!r}")


def number(name: str) -> float:
    return _bounded(name, _of_kind(name, "number"))


def integer(name: str) -> int:
    raw = _of_kind(name, "integer")
    value = _bounded(name, raw)
    if value != int(value):
        raise refused(name, raw)
    return int(value)


def choice(name: str) -> str:
    value = _of_kind(name, "choice")
    if value not in SETTINGS[name].choices:
        raise refused(name, value)
    return value


def _of_kind(name: str, kind: str, of: str = "") -> str:
    if SETTINGS[name].kind != kind:
        raise TypeError(f"{name} is read as {kind}, and the table says {SETTINGS[name].kind}")
    return text(name, of=of)


def _bounded(name: str, raw: str) -> float:
    setting: Setting = SETTINGS[name]
    try:
        value = float(raw if raw.isascii() else "")
    except ValueError:
        raise refused(name, raw) from None
    if not setting.minimum <= value <= setting.maximum:
        raise refused(name, raw)
    return value


def time_zone(name: str) -> str:
    value = text(name)
    if value not in available_timezones():
        raise refused(name, value)
    return value


def words(name: str, default: list[str]) -> list[str]:
    raw = text(name)
    return [word.strip() for word in raw.split(",") if word.strip()] if raw.strip() else default


def ports(name: str) -> tuple[int, ...]:
    found = [word.strip() for word in text(name).split(",") if word.strip()]
    for word in found:
        if not (word.isascii() and word.isdigit() and 1 <= int(word) <= 65_535):
            raise BadSetting(f"{name} must list ports from 1 to 65535, separated by commas, not {word!r}")
    return tuple(sorted({int(word) for word in found}))


def networks(name: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """ "10.20.0.0/16,fd00:20::/64"; empty: none."""
    found = []
    for word in words(name, []):
        try:
            found.append(ip_network(word))
        except ValueError:
            raise BadSetting(f"{name} must list networks such as 10.20.0.0/16, not {word!r}") from None
    return tuple(found)


def web_url(name: str, default: str | None = None) -> str:
    """An http or https address; empty if neither it nor a default is given."""
    found = text(name, default)
    try:
        if found:
            read_url(found)
    except ValueError as error:
        raise BadSetting(f"{name} {error}: {found!r}") from None
    return found


def origins(name: str) -> list[str]:
    """Such as https://portal.example.org or https://*.example.org: no path, and a port only if it is not the default
    one."""
    found = [origin.rstrip("/") for origin in words(name, [])]
    for origin in found:
        try:
            parts = read_url(origin.replace("://*.", "://any.", 1))
        except ValueError as error:
            raise BadSetting(f"{name} {error}: {origin!r}") from None
        if parts.path or parts.query or parts.fragment:
            raise BadSetting(f"{name} must have origins such as https://portal.example.org, without a path: {origin!r}")
    return found


def folder(name: str, default: Path | None = None, *, of: str = "") -> Path:
    return Path(text(name, of=of) or default or "").expanduser().absolute()


def virtual_accelerators(name: str) -> str:
    """ "titan_xp:6" or "node-a=titan_xp:4,node-b=v100:2"; empty: the real GPUs of this machine."""
    items = words(name, [])
    for item in items:
        if not _VIRTUAL_ITEM.match(item):
            raise BadSetting(f"{name} must look like titan_xp:6 or node-a=titan_xp:4,node-b=v100:2: {item!r}")
    nodes = [item.rpartition("=")[0] for item in items]
    for node in nodes:
        if nodes.count(node) > 1:
            what = f"declares node {node!r} twice" if node else "needs a name for each node, as in node-a=titan_xp:4"
            raise BadSetting(f"{name} {what}: {','.join(items)!r}")
    return ",".join(items)


def share_steps(name: str) -> dict[str, int]:
    """ "5" or "5,h100=10,titan_xp=25": the step in percent in which GPUs are divided; the default is under ""."""
    steps = {"": 1}
    for item in words(name, []):
        kind, _, step = item.rpartition("=")
        if not (step.isascii() and step.isdecimal()) or not 1 <= int(step) <= 100 or 100 % int(step):
            raise BadSetting(f"{name} must look like 5 or 5,h100=10, in percents that divide 100: {item!r}")
        steps[kind.strip()] = int(step)
    return steps


def database(name: str, url: str) -> dict[str, Any]:
    """A Django database from a libpq URL; a `?host=` with a directory means its Unix socket."""
    scheme = urlsplit(url).scheme
    if scheme not in {"postgres", "postgresql"}:
        raise BadSetting(f"{name} must be a postgresql:// URL, not {scheme or 'empty'}://")
    config: dict[str, Any] = dict(_env.db_url_config(url))
    options: dict[str, Any] = config.setdefault("OPTIONS", {})
    config["HOST"] = options.pop("host", config["HOST"])
    return config


def email(name: str, url: str) -> dict[str, Any]:
    """Django's EMAIL_* settings from a URL; the console's backend without one."""
    scheme = urlsplit(url).scheme
    if url and scheme not in {"smtp", "smtps", "smtp+tls", "smtp+ssl", "consolemail", "filemail", "memorymail"}:
        raise BadSetting(f"{name} must be an smtp://, smtp+tls:// or smtp+ssl:// URL, not {scheme or 'empty'}://")
    return dict(_env.email_url_config(url or "consolemail://"))


def group_roles(name: str) -> dict[str, list[Grant]]:
    """JSON: group -> "admin" or {"project": key, "role": role}, or a list of these."""
    raw = text(name)
    try:
        given = json.loads(raw or "{}")
        return {str(group): [_grant(item) for item in _listed(items)] for group, items in given.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        example = '{"ml-team": {"project": "vision", "role": "member"}, "ops": "admin"}'
        raise BadSetting(f"{name} must be JSON like {example}, not {raw!r}") from None


def _listed(items: Any) -> list[Any]:
    return items if isinstance(items, list) else [items]


def _grant(item: Any) -> Grant:
    if item == "admin":
        return Grant()
    if item["role"] not in {"viewer", "member", "manager"} or set(item) != {"project", "role"}:
        raise ValueError
    return Grant(str(item["project"]), item["role"])


def redis_url(name: str, url: str) -> str:
    scheme = urlsplit(url).scheme
    if scheme not in {"redis", "rediss", "unix"}:
        raise BadSetting(f"{name} must be a redis://, rediss:// or unix:// URL, not {scheme or 'empty'}://")
    return url


def broker_url(url: str) -> str:
    """Celery's URL for a Redis on a Unix socket differs from that of redis-py and Channels."""
    if not url.startswith("unix://"):
        return url
    address, _, query = url.removeprefix("unix://").partition("?")
    number = query.removeprefix("db=") or "0"
    return f"redis+socket://{address}?virtual_host={number}"

"""GPUs, nodes and jobs that Slurm's QOS, associations and partitions allow (scheduling.capacity.engine_bounds).

`scontrol show assoc_mgr` has the limits that slurmctld enforces and their use, but limits for each user or account of a
QOS only if they are in use; slurmdbd has those (`sacctmgr show qos`).
"""

from __future__ import annotations

import getpass
import pwd
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from scheduling.capacity.engine_bounds import upwards
from scheduling.errors import ExecutorError
from scheduling.executors.local.machine.inventory import type_name
from scheduling.executors.slurm.cluster.partitions import Partition, chosen, configured
from scheduling.executors.slurm.commands import Commands

MOST_RECORDS = 20_000
_KNOWN_FOR_S = 120.0
#: `gres/gpu=8(2)`: the limit (N: none), and its use; without use if it is per job.
_AMOUNT = re.compile(r"(?:^|,)(node|gres/gpu(?::[\w.-]+)?)=(N|[0-9]{1,9})(?:\(([0-9]{1,9})\))?(?=,|$)")
_FIELD = re.compile(r"(\w+)=(\S*)")
_USER = re.compile(r"(.*?)\([0-9]+\)$")
_QOS = re.compile(r"QOS=(.+?)\([0-9]+\)\s*$")

#: `7(2)`: the maximum number of jobs, and the present one.
_COUNT = re.compile(r"([0-9]{1,9})\(([0-9]{1,9})\)$")
#: Slurm's names for running jobs, and for all jobs, by level.
_GRP_JOBS = (("jobs", "GrpJobs"), ("submits", "GrpSubmitJobs"))
_OWN_JOBS = (("own_jobs", "MaxJobs"), ("own_submits", "MaxSubmitJobs"))
_BOUNDS = frozenset({"gpus", "each", "each_node", "jobs", "submits"})

#: Accelerator type ("" any) -> (the most, used).
Amounts = dict[str, list[int]]


# The table: JSON, as it is stored -------------------------------------------------------------------


def parse_table(shown: str, qos: str, partitions: Iterable[Partition], associations: str = "") -> dict[str, Any]:
    """`shown`: by assoc_mgr, empty if limits are not enforced; `qos` and `associations`: by sacctmgr, see
    `QOS_COMMAND`. Only limits of GPUs, nodes and jobs are kept."""
    accounts, users, defaults = _associations(shown)
    names = {
        one.name: {"max_nodes": one.max_nodes, "min_nodes": one.min_nodes, "qos": one.qos}
        for one in partitions
        if one.max_nodes or one.min_nodes > 1 or one.qos
    }
    levels = _levels(shown, qos)
    table = {
        "qos": levels, "accounts": accounts, "users": users, "defaults": defaults, "partitions": names,
        "default_qos": _default_levels(associations, levels),
    }  # fmt: skip
    bounding = any(table[name] for name in ("qos", "users", "partitions"))
    limited = bounding or any(_binds(one) for one in accounts.values())
    return {name: value for name, value in table.items() if value} if limited else {}


def _associations(shown: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Of accounts, of users in accounts ("alice@vision"), and each user's default account."""
    accounts: dict[str, Any] = {}
    users: dict[str, Any] = {}
    defaults: dict[str, str] = {}
    for record in islice(_records(shown, "ClusterName="), MOST_RECORDS):
        fields = dict(_FIELD.findall(record))
        account, user = fields.get("Account", ""), _plain(fields.get("UserName", ""))
        found = _bounds(fields, *(_OWN_JOBS if user else ()))
        if not user:
            accounts[account] = {"parent": _plain(fields.get("ParentAccount", "")), **found}
            continue
        if fields.get("DefAssoc") == "Yes":
            defaults[user] = account
        for each in ("each", "each_node"):
            if found.get(each) == accounts.get(account, {}).get(each):  # which it inherits from there
                found.pop(each, None)
        if found and not fields.get("Partition"):
            users[f"{user}@{account}"] = found
    limited = {name for name in accounts if any(_binds(accounts[one]) for one in upwards(name, accounts))}
    limited |= {key.partition("@")[2] for key in users}
    return (
        {name: one for name, one in accounts.items() if name in limited},
        users,
        {user: account for user, account in defaults.items() if account in limited},
    )


def _binds(one: Mapping[str, Any]) -> bool:
    return not _BOUNDS.isdisjoint(one)


def _bounds(fields: Mapping[str, str], *counts: tuple[str, str]) -> dict[str, Any]:
    """Of a QOS or an association. `counts`: of jobs, besides those of its group."""
    found: dict[str, Any] = {}
    if gpus := _limited(fields.get("GrpTRES", "")):
        found["gpus"] = gpus
    for key, name, nodes in (("each", "MaxTRESPJ", True), ("each_node", "MaxTRESPN", False)):
        if each := {kind: most for kind, (most, _) in _limited(fields.get(name, ""), nodes=nodes).items()}:
            found[key] = each
    for key, name in (*_GRP_JOBS, *counts):
        if match := _COUNT.match(fields.get(name, "")):
            found[key] = [int(match[1]), int(match[2])]
    return found


def _default_levels(text: str, levels: Collection[str]) -> dict[str, str]:
    """The QOS of a job that names none, by "alice@vision": the association's default, else its only one, else that of
    the root, else `normal`. Those without limits are left out."""
    rows = [line.split("|") for line in islice(text.splitlines(), MOST_RECORDS)]
    rows = [row for row in rows if len(row) >= 5 and not row[2]]
    root = next((row[3] for row in rows if row[:2] == ["root", ""]), "")

    def resolved(default: str, allowed: str) -> str:
        return default or (allowed if allowed and "," not in allowed else root or "normal")

    found = {f"{user}@{account}": resolved(default, own) for account, user, _, default, own, *_ in rows if user}
    return {key: name for key, name in found.items() if name in levels}


def _levels(shown: str, static: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in islice(_records(shown, "QOS="), MOST_RECORDS):
        named = _QOS.match(record.splitlines()[0])
        head, _, rest = record.partition("Account Limits")
        fields = dict(_FIELD.findall(head))
        one = _bounds(fields)
        if least := _limited(fields.get("MinTRESPJ", "")).get(""):
            one["least"] = least[0]
        by_account, _, by_user = rest.partition("User Limits")
        of_accounts, of_users = _used_by(by_account, "PA"), _used_by(by_user, "PU")
        one |= {key: value for key, value in (("by_account", of_accounts), ("by_user", of_users)) if value}
        if named:
            found[named[1]] = one
    for name, *columns in (line.split("|") for line in islice(static.splitlines(), MOST_RECORDS)):
        one = found.setdefault(name, {})
        for index, key in enumerate(("each_user", "each_account")):
            gpus, jobs, submits = (*columns[index::2], "", "", "")[:3]
            most = {kind: most for kind, (most, _) in _limited(gpus).items()}
            most |= {sort: int(text) for sort, text in (("jobs", jobs), ("submits", submits)) if _is_count(text)}
            if most:
                one[key] = most
    bounding = _BOUNDS | {"least", "each_user", "each_account"}
    return {name: one for name, one in found.items() if not bounding.isdisjoint(one)}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _used_by(text: str, name: str) -> dict[str, dict[str, int]]:
    """Use of a QOS by type, and "jobs" and "submits"; a user appears as `alice(1000)`, or as `1000`. `name`: suffix of
    the limits' names."""
    found, who = dict[str, dict[str, int]](), ""
    for line in text.splitlines():
        words = line.strip()
        if words.startswith(f"MaxTRES{name}="):
            used = {_kind(kind): int(count or 0) for kind, _, count in _AMOUNT.findall(words.partition("=")[2])}
            found.setdefault(who, {}).update({kind: n for kind, n in used.items() if kind is not None and n})
        elif words.startswith(f"MaxJobs{name}="):
            fields = dict(_FIELD.findall(words))
            counts = (("jobs", fields[f"MaxJobs{name}"]), ("submits", fields.get(f"MaxSubmitJobs{name}", "")))
            jobs = {key: int(text.partition("(")[2].rstrip(")") or 0) for key, text in counts}
            found.setdefault(who, {}).update({key: n for key, n in jobs.items() if n})
        elif words and "=" not in words:
            who = _named(words)
    return {who: used for who, used in found.items() if used and not who.startswith("No ")}


def _records(text: str, begins: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(begins) or (lines and line and not line.startswith((" ", "\t"))):
            if lines:
                yield "\n".join(lines)
            lines = [line] if line.startswith(begins) else []
        elif lines:
            lines.append(line)
    if lines:
        yield "\n".join(lines)


def _limited(text: str, *, nodes: bool = False) -> Amounts:
    """By accelerator type, and "nodes" on request: those with a limit."""
    found: Amounts = {}
    for name, most, used in _AMOUNT.findall(text):
        kind = "nodes" if name == "node" and nodes else _kind(name)
        if kind is not None and most != "N":
            found[kind] = [int(most), int(used or 0)]
    return found


def _kind(name: str) -> str | None:
    """The accelerator type as nodes name it; empty: any."""
    if name == "node":
        return None
    _, _, kind = name.partition("gpu:")
    return type_name(kind) if kind else ""


def _named(who: str) -> str:
    """22.05 prints only a user's uid."""
    if not who.isdecimal():
        return _plain(who)
    try:
        return pwd.getpwuid(int(who)).pw_name
    except (KeyError, OverflowError):
        return who


def _plain(name: str) -> str:
    found = _USER.match(name)
    return found[1] if found else name


# Reading ----------------------------------------------------------------------------------------

SHOW = ("scontrol", "show", "assoc_mgr", "flags=users,assoc,qos")
QOS_COMMAND = (
    "sacctmgr",
    "--noheader",
    "--parsable2",
    "show",
    "qos",
    "format=Name,MaxTRESPU,MaxTRESPA,MaxJobsPU,MaxJobsPA,MaxSubmitPU,MaxSubmitPA",
)
ASSOC_COMMAND = (
    "sacctmgr", "--noheader", "--parsable2", "show", "assoc", "format=Account,User,Partition,DefaultQOS,QOS",
)  # fmt: skip


class KnownLimits:
    """Read now and then."""

    def __init__(self, commands: Commands) -> None:
        self._commands, self._until, self._known = commands, float("-inf"), dict[str, Any]()

    def table(self, partitions: Sequence[Partition], config: str, given: Mapping[str, str]) -> dict[str, Any]:
        """Empty if nothing is limited. `given`: sbatch options of every job."""
        if time.monotonic() < self._until:
            return self._known
        commands, shown, static, associations = self._commands.recalling_settings(), "", "", ""
        at = time.time()
        if enforces_limits(config):
            shown = commands.run(*SHOW)
            at = commands.asked_at or at
            static = _asked(commands, QOS_COMMAND)
            if _levels(shown, static):
                here = f"cluster={configured(config, 'ClusterName')}"
                associations = _asked(commands, (*ASSOC_COMMAND, here))
        found = parse_table(shown, static, partitions, associations)
        if found:
            partition = given.get("partition") or chosen(partitions, "").name
            found |= {"at": at, "sender": getpass.getuser(), "given": {**given, "partition": partition}}
        self._known, self._until = found, time.monotonic() + _KNOWN_FOR_S
        return found


def _asked(commands: Commands, command: Sequence[str]) -> str:
    """Without slurmdbd, limits that are not in use are unknown: Slurm itself continues with its own copy."""
    try:
        return commands.run(*command)
    except ExecutorError:
        return ""


def enforces_limits(config: str) -> bool:
    found = re.search(r"^AccountingStorageEnforce\s*=\s*(\S+)", config, re.MULTILINE)
    words = found[1].lower().split(",") if found else []
    return bool({"limits", "safe", "all"} & set(words))

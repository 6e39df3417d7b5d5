"""What an engine's limits by account, QOS, partition and user leave to a job. Rounds and forecasts of the web pages
read them from a table that the executor provides (scheduling.executors.slurm.cluster.limits for Slurm).

Precedence is as in Slurm: a partition's QOS before the job's, and both before associations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scheduling.domain import NodeBounds

MOST_LEVELS = 50


@dataclass(frozen=True, slots=True)
class Shared:
    """GPUs (or jobs, by `kind`) that jobs with the same key may hold together; `used` of them were held when the table
    was read, ours included. `says`: "QOS gold allows 8 GPUs at a time"."""

    key: str
    says: str
    level: str
    most: int
    used: int
    type: str | None
    word: str  # Slurm's reason for a job that waits for it
    kind: Literal["gpus", "running_jobs"] = "gpus"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a job. `gpus`: the most that it may have, and whose limit that is; None: no limit. `least`: the
    fewest."""

    nodes: NodeBounds | None = None
    gpus: int | None = None
    gpus_says: str = ""
    least: int = 1
    least_says: str = ""
    shared: tuple[Shared, ...] = ()


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class _Words:
    """Slurm's reasons for jobs that wait for a limit on the number of jobs."""

    qos: str
    user: str
    account: str
    own: str
    group: str


_COUNTS = frozenset({"jobs", "submits"})
_JOBS = (
    (
        "jobs",
        "running job",
        _Words(
            "QOSGrpJobsLimit", "QOSMaxJobsPerUserLimit", "MaxJobsPerAccount", "AssocMaxJobsLimit", "AssocGrpJobsLimit"
        ),
    ),
    (
        "submits",
        "submitted job",
        _Words(
            "QOSGrpSubmitJobsLimit", "QOSMaxSubmitJobPerUserLimit", "MaxSubmitJobsPerAccount", "AssocMaxSubmitJobLimit",
            "AssocGrpSubmitJobsLimit",
        ),
    ),
)  # fmt: skip


def bounds_of(table: Mapping[str, Any], names: Mapping[str, str], user: str) -> Bounds:
    """`names`: account, QOS and partition as passed to the engine; `user`: the Unix account that submits the job."""
    return _Asker(table, names, user).bounds()


class _Asker:
    """The limits of one job in the table."""

    def __init__(self, table: Mapping[str, Any], names: Mapping[str, str], user: str) -> None:
        self.partition, self.user = names.get("partition", ""), user
        every, levels = table.get("partitions", {}), table.get("qos", {})
        # The engine picks one of several partitions: what any of them allows is allowed.
        self.rules = [every.get(name, {}) for name in self.partition.split(",")]
        first = self.rules[0].get("qos", "") if len(self.rules) == 1 else ""
        self.account = names.get("account", "") or table.get("defaults", {}).get(user, "")
        named = names.get("qos", "") or table.get("default_qos", {}).get(f"{user}@{self.account}", "")
        self.levels = [(f"QOS {name}", levels[name], name) for name in dict.fromkeys((first, named)) if name in levels]
        accounts = table.get("accounts", {})
        self.above = [(name, accounts[name]) for name in upwards(self.account, accounts)]
        self.own = table.get("users", {}).get(f"{user}@{self.account}", {})

    def bounds(self) -> Bounds:
        each = self._nearest("each")
        shared, said = list[Shared](), set[tuple[str, str]]()
        for sort, one in (*self._shared(), *self._jobs()):
            if (sort, one.type or "") not in said:
                shared.append(one)
            if one.key.startswith("slurm-qos"):  # overrides what follows; associations count at every level
                said.add((sort, one.type or ""))
        most = next(((who, one[""]) for who, one in each if "" in one), None)
        says = f"{most[0]} allows {_counted(most[1], '')} a job" if most else ""
        least, whose = next(((one["least"], who) for who, one, _ in self.levels if "least" in one), (1, ""))
        fewest = f"{whose} allows no job with fewer than {_counted(least, '')}" if whose else ""
        return Bounds(self._nodes(each), most[1] if most else None, says, least, fewest, tuple(shared))

    def _nearest(self, key: str) -> list[tuple[str, Mapping[str, int]]]:
        """The nearest association that sets the key: the user's, then the account's, then those above."""
        nearest = [one[key] for one in (self.own, *(one for _, one in self.above)) if key in one]
        found = [(who, one[key]) for who, one, _ in self.levels if key in one]
        return found + [(f"account {self.account}", one) for one in nearest[:1]]

    def _jobs(self) -> Iterator[tuple[str, Shared]]:
        """Limits on the number of launches: running ones, and all that Slurm has. Plans send no launch that would wait
        there, so both bound the same jobs."""
        for key, what, words in _JOBS:
            of_each = False
            for who, one, name in self.levels:
                if key in one:
                    yield key, _of_jobs(f"qos-{name}-{key}", who, what, one[key], words.qos)
                for sort, holder, word in (("user", self.user, words.user), ("account", self.account, words.account)):
                    if (most := one.get(f"each_{sort}", {}).get(key)) is None:
                        continue
                    of_each, used = True, one.get(f"by_{sort}", {}).get(holder, {}).get(key, 0)
                    says = f"{what}|{'a' if sort == 'user' else 'an'} {sort}"
                    yield f"{key}-{sort}", _of_jobs(f"qos-{name}-{key}-{sort}-{holder}", who, says, (most, used), word)
            if f"own_{key}" in self.own and not of_each:
                who, own = f"user {self.user} in account {self.account}", self.own[f"own_{key}"]
                yield f"{key}-user", _of_jobs(f"user-{self.user}-{self.account}-{key}", who, what, own, words.own)
            for name, one in self.above:
                if key in one:
                    yield key, _of_jobs(f"account-{name}-{key}", f"account {name}", what, one[key], words.group)

    def _nodes(self, each: Sequence[tuple[str, Mapping[str, int]]]) -> NodeBounds | None:
        most = None
        if all(one.get("max_nodes") for one in self.rules):
            most = max(int(one["max_nodes"]) for one in self.rules)
        least, where = min(one.get("min_nodes", 1) for one in self.rules), f"partition {self.partition}"
        first = next(((who, one["nodes"]) for who, one in each if "nodes" in one), None)
        if first is not None and (most is None or first[1] < most):
            where, most = first
        of_node = next(((who, one[""]) for who, one in self._nearest("each_node") if "" in one), None)
        if most is None and least <= 1 and of_node is None:
            return None
        where = where if most is not None or least > 1 or of_node is None else of_node[0]
        return NodeBounds(where, most, least, *((of_node[1], of_node[0]) if of_node else ()))

    def _shared(self) -> Iterator[tuple[str, Shared]]:
        """Shared limits with the kind of each."""
        for who, one, name in self.levels:
            for kind, (most, used) in one.get("gpus", {}).items():
                yield "all", _one(f"qos-{name}", who, "", most, used, kind, "QOSGrpGRES")
            for key, holder, words in (("user", self.user, " a user"), ("account", self.account, " an account")):
                each = one.get(f"each_{key}", {})
                for kind, most in ((kind, each[kind]) for kind in each if kind not in _COUNTS):
                    used = one.get(f"by_{key}", {}).get(holder, {}).get(kind, 0)
                    word = f"QOSMaxGRESPer{key.title()}"
                    yield key, _one(f"qos-{name}-{key}-{holder}", who, words, most, used, kind, word)
        mine = [(f"user {self.user} in account {self.account}", f"user-{self.user}-{self.account}", self.own)]
        mine += [(f"account {name}", f"account-{name}", one) for name, one in self.above]
        for who, key, one in mine:
            for kind, (most, used) in one.get("gpus", {}).items():
                yield "all", _one(key, who, "", most, used, kind, "AssocGrpGRES")


def _one(key: str, who: str, words: str, most: int, used: int, kind: str, word: str) -> Shared:
    says = f"{who} allows {_counted(most, kind)}{words} at a time"
    return Shared(f"slurm-{key}-{kind}", says, who, most, used, kind or None, word)


def _of_jobs(key: str, who: str, what: str, count: Sequence[int], word: str) -> Shared:
    name, _, of_whom = what.partition("|")
    (most, used), each = count, f" {of_whom}" if of_whom else ""
    says = f"{who} allows {most} {name}{'' if most == 1 else 's'}{each} at a time"
    return Shared(f"slurm-{key}", says, who, most, used, None, word, "running_jobs")


def _counted(count: int, kind: str) -> str:
    name = f"{kind} GPU" if kind else "GPU"
    return f"{count} {name}{'' if count == 1 else 's'}"


def upwards(name: str, accounts: Mapping[str, Any]) -> Iterator[str]:
    for _ in range(MOST_LEVELS):
        if name not in accounts:
            return
        yield name
        name = accounts[name].get("parent", "")


# Features of nodes ----------------------------------------------------------------------------------

_TOKEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]*|[&|()\[\]]")


def nodes_with(constraint: str, features: Mapping[str, Collection[str]]) -> frozenset[str] | None:
    """Nodes that meet `sbatch --constraint`; None if the expression is not supported (node counts, as `a*2`). For
    `[a|b]`, which all nodes of a job must match alike, the feature that most nodes have."""
    tokens = _TOKEN.findall(constraint)
    if "".join(tokens) != constraint or len(tokens) > 100:
        return None
    try:
        found, rest = _either(tokens, features)
    except (IndexError, ValueError):
        return None
    return found if not rest else None


def _either(tokens: Sequence[str], features: Mapping[str, Collection[str]]) -> tuple[frozenset[str], Sequence[str]]:
    """Evaluated from left to right, as Slurm does."""
    found, tokens = _one_of(tokens, features)
    while tokens and tokens[0] in "&|":
        other, rest = _one_of(tokens[1:], features)
        found, tokens = (found & other if tokens[0] == "&" else found | other), rest
    return found, tokens


def _one_of(tokens: Sequence[str], features: Mapping[str, Collection[str]]) -> tuple[frozenset[str], Sequence[str]]:
    head = tokens[0]
    if head == "(":
        found, rest = _either(tokens[1:], features)
        if rest[0] != ")":
            raise ValueError
        return found, rest[1:]
    if head == "[":
        end = tokens.index("]")
        names = tokens[1:end]
        if not names or set(names[1::2]) - {"|"}:
            raise ValueError
        return max((frozenset(features.get(name, ())) for name in names[::2]), key=len), tokens[end + 1 :]
    if head in "&|)]":
        raise ValueError
    return frozenset(features.get(head, ())), tokens[1:]

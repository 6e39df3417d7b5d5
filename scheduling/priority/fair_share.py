"""How far each user is below their share of the cluster: Slurm's two forms over one tree.

`classic` (Slurm, "Classic Fairshare Algorithm"): a level's share is its part of its siblings' shares times its
parent's; effective usage of a child A is U_A + (UE_parent - U_A) * S_A / S_siblings, and the factor 2^(-UE / share).
`fair_tree` (Slurm, "Fair Tree Fairshare Algorithm"): siblings are ranked by level fair share, which is the part of the
siblings' shares over the part of their usage, depth first; a user's factor is its rank over the number of users.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Form = Literal["classic", "fair_tree"]


class Leaf(NamedTuple):
    """A user in one account. A tuple for speed: priorities look it up for each job."""

    account: str
    user: str


@dataclass(frozen=True, slots=True)
class Account:
    """A node of the tree; `parent` None: below the root."""

    shares: float = 1.0
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What sshare prints of one account or user. Shares and usage are fractions of the whole; the factor is in [0, 1].

    `level_fs`: its fraction of its siblings' shares over its fraction of their usage; infinite without usage.
    """

    shares: float
    norm_shares: float
    usage: float
    norm_usage: float
    effective_usage: float
    factor: float
    level_fs: float


Key = str | Leaf


@dataclass(frozen=True)
class Tree:
    """Accounts by name and users by account, with their raw shares and raw usage (any unit, decayed or not)."""

    accounts: Mapping[str, Account]
    users: Mapping[Leaf, float]
    usage: Mapping[Leaf, float]

    def children(self) -> dict[str | None, list[Key]]:
        """By parent: its accounts and its users, in a fixed order. An unknown parent is the root."""
        found: dict[str | None, list[Key]] = defaultdict(list)
        for name in sorted(self.accounts):
            parent = self.accounts[name].parent
            found[parent if parent in self.accounts else None].append(name)
        for leaf in sorted(self.users, key=lambda leaf: (leaf.account, leaf.user)):
            found[leaf.account if leaf.account in self.accounts else None].append(leaf)
        return found

    def shares_of(self, key: Key) -> float:
        return self.users[key] if isinstance(key, Leaf) else self.accounts[key].shares


def standings(tree: Tree, form: Form = "classic", dampening: float = 1.0) -> dict[Key, Standing]:
    """Every account and user. `dampening`: Slurm's FairShareDampeningFactor, of the classic form."""
    children = tree.children()
    usage = _usage(tree, children)
    found = _classic(tree, children, usage, dampening)
    if form == "classic":
        return found
    ranks = _ranks(children, found)
    most = max(len(tree.users), 1)
    return {
        key: replace(standing, factor=ranks[key] / most if isinstance(key, Leaf) else 0.0)
        for key, standing in found.items()
    }


def _usage(tree: Tree, children: Mapping[str | None, Sequence[Key]]) -> dict[Key | None, float]:
    """Raw usage of every node; None is the root."""
    found: dict[Key | None, float] = {}
    for place in reversed(_downwards(children)):
        total = 0.0
        for child in children.get(place, ()):
            if isinstance(child, Leaf):
                found[child] = tree.usage.get(child, 0.0)
            total += found.get(child, 0.0)
        found[place] = total
    return found


def _downwards(children: Mapping[str | None, Sequence[Key]]) -> list[str | None]:
    """The root and the accounts, each before its children."""
    order: list[str | None] = []
    level: list[str | None] = [None]
    while level:
        order += level
        level = [child for place in level for child in children.get(place, ()) if isinstance(child, str)]
    return order


def _classic(
    tree: Tree, children: Mapping[str | None, Sequence[Key]], usage: Mapping[Key | None, float], dampening: float
) -> dict[Key, Standing]:
    total = usage[None]
    found: dict[Key, Standing] = {}
    above: dict[str | None, tuple[float, float]] = {None: (1.0, 1.0 if total > 0 else 0.0)}
    for place in _downwards(children):
        norm, effective = above[place]
        siblings = children.get(place, ())
        shares = sum(tree.shares_of(child) for child in siblings)
        used = sum(usage[child] for child in siblings)
        for child in siblings:
            mine = tree.shares_of(child)
            part = mine / shares if shares > 0 else 0.0
            norm_usage = usage[child] / total if total > 0 else 0.0
            own = norm_usage if place is None else effective_usage(norm_usage, effective, part)
            found[child] = Standing(
                mine,
                norm * part,
                usage[child],
                norm_usage,
                own,
                factor_of(own, norm * part, dampening),
                _level_fs(part, usage[child], used),
            )
            if isinstance(child, str):
                above[child] = (norm * part, own)
    return found


def effective_usage(norm_usage: float, above: float, part: float) -> float:
    """A child's own usage plus its part of the siblings' remaining usage. `above`: the parent's effective usage."""
    return norm_usage + (above - norm_usage) * part


def factor_of(effective_usage: float, norm_shares: float, dampening: float = 1.0) -> float:
    """2^(-effective usage / shares / dampening); without shares 0."""
    return 2.0 ** (-effective_usage / norm_shares / dampening) if norm_shares > 0 else 0.0


def _level_fs(part: float, used: float, siblings_used: float) -> float:
    if part <= 0:
        return 0.0
    return part / (used / siblings_used) if used > 0 else float("inf")


def _ranks(children: Mapping[str | None, Sequence[Key]], found: Mapping[Key, Standing]) -> dict[Leaf, int]:
    """Users from best (their number) to worst (1); equal ones share a rank, and accounts that tie are ranked as one."""
    ranks: dict[Leaf, int] = {}
    left = sum(isinstance(child, Leaf) for siblings in children.values() for child in siblings)

    def visit(siblings: Sequence[Key], tied: int | None) -> None:
        """`tied`: the rank of a user that ties with the account of these children; its best users get it too."""
        nonlocal left
        levels: dict[float, list[Key]] = defaultdict(list)
        for child in siblings:
            levels[found[child].level_fs].append(child)
        for level in sorted(levels, reverse=True):
            users = [child for child in levels[level] if isinstance(child, Leaf)]
            below = [each for child in levels[level] if isinstance(child, str) for each in children.get(child, ())]
            rank = left if tied is None else tied
            for leaf in users:
                ranks[leaf] = rank
            left -= len(users)
            if below:
                visit(below, rank if users or tied is not None else None)
            tied = None

    visit(children.get(None, ()), None)
    return ranks

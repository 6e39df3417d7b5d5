"""The fair share of a site's own Slurm, for the policy that reads it in place of ours (`site_fair_share`).

A project is the account of Slurm's that its jobs have, a person the UNIX account that its jobs run as. Kept in the
cache for an hour: should Slurm not answer for longer, our own arithmetic holds again.
"""

from __future__ import annotations

import os
import pwd
from collections import defaultdict
from collections.abc import Iterable, Mapping

from django.core.cache import cache

from accounts.models import Project, User
from portal.engines import Engine
from portal.jobs.clusters import engine_of
from portal.jobs.models import Cluster

KEPT_S = 3_600
#: Factors by account and user of Slurm's.
Shares = Mapping[tuple[str, str], float]


def are_read(cluster: Cluster) -> bool:
    return bool(cluster.policy_parameters.get("site_fair_share"))


def note(cluster_id: int, shares: Shares) -> None:
    cache.set(_key(cluster_id), [[account, user, factor] for (account, user), factor in shares.items()], KEPT_S)


def factors_of(cluster: Cluster, people: Iterable[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """Of those for whom the site has one: {project: {user: factor}}. `people`: projects' keys and users' ids as
    fair share has them."""
    if not are_read(cluster) or not (rows := cache.get(_key(cluster.pk))):
        return {}
    shares = {(account.lower(), user): float(factor) for account, user, factor in rows}  # as Slurm compares them
    engine = engine_of(cluster.pk)
    names, accounts = _unix_names(engine), _accounts(engine)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for project, user in people:
        name = names.get(user, "") if engine.runs_as_person else names[""]
        factor = shares.get((account.lower(), name)) if (account := accounts.get(project)) else _only_one(shares, name)
        if factor is not None:
            found[project][user] = factor
    return dict(found)


def _only_one(shares: Shares, name: str) -> float | None:
    """Where no account is named Slurm takes the user's default one, which is known where there is no other."""
    factors = [factor for (_, user), factor in shares.items() if user == name]
    return factors[0] if len(factors) == 1 else None


def _unix_names(engine: Engine) -> dict[str, str]:
    if engine.runs_as_person:
        rows = User.objects.exclude(unix_account="").values_list("pk", "unix_account")
        return {str(user): name for user, name in rows}
    try:
        return {"": pwd.getpwuid(os.geteuid()).pw_name}
    except KeyError:
        return {"": ""}


def _accounts(engine: Engine) -> dict[str, str]:
    """Slurm's account of each project: its own, that of the project above, or the cluster's."""
    rows = list(Project.objects.values_list("pk", "key", "ancestry", "slurm"))
    own = {pk: str(slurm.get("account", "")) for pk, _, _, slurm in rows}
    of_cluster = str(engine.options.get("account", ""))
    return {
        key: next(filter(None, (own.get(one, "") for one in reversed(ancestry))), of_cluster)
        for _, key, ancestry, _ in rows
    }


def _key(cluster_id: int) -> str:
    return f"site-shares:{cluster_id}"

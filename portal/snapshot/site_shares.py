"""The fair share of a site's own Slurm, for policies that read it instead of ours (`site_fair_share`).

A project corresponds to the Slurm account of its jobs, a person to the Unix account that runs their jobs. Cached for an
hour: if Slurm does not answer for longer, our own factors apply again.
"""

from __future__ import annotations

import os
import pwd
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from django.core.cache import cache

from accounts import slurm_names
from accounts.models import User
from portal.config.engines import Engine
from portal.jobs.clusters import engine_of
from portal.jobs.models import Cluster

KEPT_S = 3_600
#: Factors by Slurm account and user.
Shares = Mapping[tuple[str, str], float]


def are_read(cluster: Cluster) -> bool:
    return bool(cluster.policy_parameters.get("site_fair_share"))


def note(cluster_id: int, shares: Shares) -> None:
    cache.set(_key(cluster_id), [[account, user, factor] for (account, user), factor in shares.items()], KEPT_S)


def factors_of(cluster: Cluster, people: Iterable[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """Factors for users that the site has one for: {project: {user: factor}}. `people`: projects' keys and users' ids
    as in fair share."""
    if not are_read(cluster) or not (rows := cache.get(_key(cluster.pk))):
        return {}
    shares = {(account.lower(), user): float(factor) for account, user, factor in rows}  # as Slurm compares them
    engine = engine_of(cluster.pk)
    names, accounts, only = _unix_names(engine), slurm_names.of_all_projects("key"), _only_ones(shares)
    of_cluster = str(engine.options.get("account", ""))
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for project, user in people:
        name = names.get(user, "") if engine.runs_as_person else names[""]
        account = accounts.get(project, {}).get("account") or of_cluster
        factor = shares.get((account.lower(), name)) if account else only.get(name)
        if factor is not None:
            found[project][user] = factor
    return dict(found)


def _only_ones(shares: Shares) -> dict[str, float]:
    """Without an account Slurm uses the user's default one, which is known if there is only one."""
    counts = Counter(user for _, user in shares)
    return {user: factor for (_, user), factor in shares.items() if counts[user] == 1}


def _unix_names(engine: Engine) -> dict[str, str]:
    if engine.runs_as_person:
        rows = User.objects.exclude(unix_account="").values_list("pk", "unix_account")
        return {str(user): name for user, name in rows}
    try:
        return {"": pwd.getpwuid(os.geteuid()).pw_name}
    except KeyError:
        return {"": ""}


def _key(cluster_id: int) -> str:
    return f"site-shares:{cluster_id}"

"""The Unix account of a job, on clusters where jobs run as the person who submitted them."""

from __future__ import annotations

from accounts.models import User
from accounts.unix_accounts import BadAccount, check_name
from portal.core.problems import FieldProblem, Problems
from portal.jobs.clusters import NoEngine, active_clusters, engine_of
from portal.jobs.models import Cluster, Job


def account_of(job: Job) -> str:
    """Empty if jobs of its cluster do not run as people, or its person has no account."""
    if job.owner is None or not runs_as_person(job.cluster_id):
        return ""
    return job.owner.unix_account


def check_account(user: User, cluster: Cluster) -> None:
    """At submission: raises Problems, with advice, if the job could never start."""
    if not runs_as_person(cluster.pk):
        return
    who = "you" if user.kind == User.Kind.PERSON else f"the service account {user.email}"
    begins = f"jobs on cluster {cluster} run as the UNIX account of who submits them, and"
    asks = "ask an administrator to set one (the page People, or `evenkeel people account`)"
    if not user.unix_account:
        has = "have" if user.kind == User.Kind.PERSON else "has"
        raise Problems([FieldProblem("cluster", f"{begins} {who} {has} none here: {asks}", "no_account")])
    try:
        check_name(user.unix_account)
    except BadAccount as error:
        whose = "your" if user.kind == User.Kind.PERSON else f"{who}'s"
        text = f"{begins} {whose} account {user.unix_account} {error}: {asks}"
        raise Problems([FieldProblem("cluster", text, "no_account")]) from None


def runs_as_person(cluster_id: int) -> bool:
    """False for a retired cluster: nothing runs there."""
    try:
        return engine_of(cluster_id).runs_as_person
    except NoEngine:
        return False


def anywhere() -> bool:
    """Whether jobs run as people on any cluster."""
    return any(engine_of(cluster.pk).runs_as_person for cluster in active_clusters())

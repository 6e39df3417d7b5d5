"""The executor of a cluster."""

from __future__ import annotations

from functools import cache

from portal.cluster.engine_isolation import refusals
from portal.jobs.clusters import engine_of
from portal.jobs.models import Cluster
from scheduling.errors import ExecutorError
from scheduling.executors import load_executor
from scheduling.executors.base import Executor


@cache
def executor_for(cluster: Cluster) -> Executor:
    """The process's executor object of the cluster; its state is on disk. Raises NoEngine, and ExecutorError if jobs
    could take over the portal."""
    engine = engine_of(cluster.pk)
    for refusal in refusals(engine):
        raise ExecutorError(refusal, permanent=False)
    return load_executor(engine.executor, engine.options)

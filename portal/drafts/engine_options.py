"""Engine options in a job file, whose cluster may have another engine."""

from __future__ import annotations

from portal.core.problems import FieldProblem, Problems
from portal.jobfile.schema import JobFile
from portal.jobs.clusters import active_clusters, engine_of
from portal.jobs.models import Cluster


def check_slurm(file: JobFile, cluster: Cluster) -> None:
    """Raises Problems for options of sbatch if the cluster has none."""
    if file.slurm is None or engine_of(cluster.pk).executor == "slurm":
        return
    there = [other.name for other in active_clusters() if engine_of(other.pk).executor == "slurm"]
    instead = f", or name a cluster that is one: {', '.join(there)}" if there else ""
    text = f"is for clusters that are a Slurm, and {cluster} is none: leave it out{instead}"
    raise Problems([FieldProblem("slurm", text, "not_offered")])

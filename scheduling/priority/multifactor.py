"""The multifactor sum, for many jobs at once.

priority = site + W_age age + W_assoc assoc + W_fair_share fair_share + W_job_size job_size + W_partition partition
         + W_qos qos + sum over resources of W_r r - nice,
truncated to an integer and at least 1, as in Slurm (priority/multifactor). Factors are in [0, 1], site and nice
are plain numbers. Source: KISTI, "fair priority management", section 3; Slurm, "Multifactor Priority Plugin".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: In the order in which they are printed.
FACTORS = ("age", "assoc", "fair_share", "job_size", "partition", "qos")


@dataclass(frozen=True, slots=True)
class Weights:
    """Largest contribution of each factor; `resources`: by resource, as "gpu"."""

    age: float = 0.0
    assoc: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Columns:
    """One entry per job in each. All but site and nice are in [0, 1]."""

    age: Floats
    assoc: Floats
    fair_share: Floats
    job_size: Floats
    partition: Floats
    qos: Floats
    site: Floats
    nice: Floats
    resources: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class Priorities:
    """Weighted factors by name, including resources as "gpu", and their sum."""

    weighted: Mapping[str, Floats]
    site: Floats
    nice: Floats
    total: Ints


def age_factor(waited_s: Floats, max_age_s: float) -> Floats:
    """Time eligible over PriorityMaxAge, at most 1."""
    return np.clip(waited_s / max_age_s, 0.0, 1.0)


def size_factor(*parts: Floats, favor_small: bool = False) -> Floats:
    """The mean of a job's requests as fractions of the whole (Slurm: nodes and CPUs; here: GPUs)."""
    mean = np.clip(sum(parts, np.zeros_like(parts[0])) / len(parts), 0.0, 1.0)
    return 1.0 - mean if favor_small else mean


def priorities(weights: Weights, columns: Columns) -> Priorities:
    weighted = {name: getattr(weights, name) * getattr(columns, name) for name in FACTORS}
    weighted |= {name: weight * columns.resources[name] for name, weight in weights.resources.items()}
    total = sum(weighted.values(), columns.site - columns.nice)
    return Priorities(weighted, columns.site, columns.nice, np.maximum(np.trunc(total), 1.0).astype(np.int64))

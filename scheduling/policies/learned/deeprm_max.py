"""A network trained on max histories decides which jobs share a GPU.

Objective: minimise the makespan and, weighted by `unslowed_worth`, the number of jobs that slow each other down. The
network sees the maximum recorded use of each job, as if it were constant. Constraints: recorded use, CPUs and memory.
Source: Sookmyung Women's University (2019), section 4; spec: co-placement. Departures: scheduling.learning.training.
"""

from __future__ import annotations

from typing import ClassVar

from scheduling.policies.learned.base import LearnedPolicy
from scheduling.policies.learned.images import Profile


class DeeprmMax(LearnedPolicy):
    name: ClassVar[str] = "deeprm_max"
    title: ClassVar[str] = "DeepRM, maximum demand"
    profile: ClassVar[Profile] = "max"

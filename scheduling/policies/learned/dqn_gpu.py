"""A network trained on series histories decides which jobs share a GPU.

Objective: minimise the makespan and, weighted by `unslowed_worth`, the number of jobs that slow each other down. The
network sees the whole recorded series of each job's use. Constraints: recorded use, CPUs and memory. Source: Sookmyung
Women's University (2019), section 4; spec: co-placement. Departures: scheduling.learning.training.
"""

from __future__ import annotations

from typing import ClassVar

from scheduling.policies.learned.base import LearnedPolicy
from scheduling.policies.learned.images import Profile


class DqnGpu(LearnedPolicy):
    name: ClassVar[str] = "dqn_gpu"
    title: ClassVar[str] = "Learned co-placement"
    profile: ClassVar[Profile] = "series"

"""Jobs that share a GPU are put together by a network that was trained on series histories.

Objective: minimise the makespan and, by `unslowed_worth`, how many jobs crowd each other. It is shown
the whole series of what each has been seen to use, at every moment.
Constraints: what it is shown, processors and memory. Source: Sookmyung Women's University (2019), section 4; spec:
co-placement. Departures: scheduling.learning.training.
"""

from __future__ import annotations

from typing import ClassVar

from scheduling.policies.learned.base import LearnedPolicy
from scheduling.policies.learned.images import Profile


class DqnGpu(LearnedPolicy):
    name: ClassVar[str] = "dqn_gpu"
    title: ClassVar[str] = "Learned co-placement"
    profile: ClassVar[Profile] = "series"

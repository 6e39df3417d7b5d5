"""Jobs that share a GPU are put together by a network that was trained on mean histories.

Objective: minimise the makespan and, by `unslowed_worth`, how many jobs crowd each other. It is shown
the mean of what each has been seen to use; where peaks meet, memory runs out.
Constraints: what it is shown, processors and memory. Source: Sookmyung Women's University (2019), section 4; spec:
co-placement. Departures: scheduling.learning.training.
"""

from __future__ import annotations

from typing import ClassVar

from scheduling.policies.learned.base import LearnedPolicy
from scheduling.policies.learned.images import Profile


class DeeprmMean(LearnedPolicy):
    name: ClassVar[str] = "deeprm_mean"
    title: ClassVar[str] = "DeepRM, mean demand"
    profile: ClassVar[Profile] = "mean"

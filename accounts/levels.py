"""The whole tree of projects at once, for computations over many of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from accounts.models import Project


class Levels:
    """project id -> its ancestors and itself, root first."""

    def __init__(self, chains: Mapping[int, Sequence[int]]) -> None:
        self._chains = chains
        self._under: dict[int, set[int]] = defaultdict(set)
        for project, chain in chains.items():
            for level in chain:
                self._under[level].add(project)

    @classmethod
    def load(cls) -> Levels:
        return cls(dict(Project.objects.values_list("pk", "ancestry")))

    def chain(self, project_id: int) -> Sequence[int]:
        return self._chains.get(project_id, (project_id,))

    def under(self, project_id: int) -> set[int]:
        """Itself and all its subprojects."""
        return self._under.get(project_id, {project_id})

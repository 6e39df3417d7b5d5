"""The client's part for slowdown and relative throughput."""

from __future__ import annotations

from collections.abc import Iterator

from evenkeel import schemas
from evenkeel.resources import Resource, given


class Fairness(Resource):
    """How evenly jobs are slowed."""

    def now(self, *, project: str | None = None, cluster: str | None = None) -> schemas.Fairness:
        query = given(project=project, cluster=cluster)
        return self._client.one(schemas.Fairness, "GET", "fairness", params=query)

    def history(
        self,
        *,
        by: str = "project",
        project: str | None = None,
        from_at: str | None = None,
        to_at: str | None = None,
        points: int = 200,
        cluster: str | None = None,
    ) -> Iterator[schemas.FairnessSeries]:
        filters = given(by=by, project=project, cluster=cluster, from_at=from_at, to_at=to_at)
        filters |= {"points": str(points), "limit": "50"}
        return self._client.rows(schemas.FairnessSeries, "fairness/history", filters)

    def ended(
        self,
        *,
        group_by: str = "project",
        project: str | None = None,
        from_at: str | None = None,
        to_at: str | None = None,
        cluster: str | None = None,
    ) -> Iterator[schemas.EndedGroup]:
        filters = given(group_by=group_by, project=project, cluster=cluster, from_at=from_at, to_at=to_at, limit="200")
        return self._client.rows(schemas.EndedGroup, "fairness/ended", filters)

"""Partitions, maintenance windows and reservations, and drains and checks of nodes over the API.

Each is of one cluster: the one that is named, or the portal's first.
"""

from __future__ import annotations

from collections.abc import Iterator

from evenkeel import schemas
from evenkeel.resources import Resource, Wish, given, part


class Partitions(Resource):
    """Sets of nodes that jobs name."""

    def list(self, *, cluster: str | None = None) -> Iterator[schemas.Partition]:
        return self._client.rows(schemas.Partition, "partitions", given(cluster=cluster))

    def set(self, name: str, wish: Wish, *, cluster: str | None = None) -> schemas.Partition:
        query = given(cluster=cluster)
        return self._client.one(schemas.Partition, "PUT", f"partitions/{part(name)}", json=dict(wish), params=query)

    def remove(self, name: str, *, cluster: str | None = None) -> None:
        self._client.send("DELETE", f"partitions/{part(name)}", params=given(cluster=cluster))


class Windows(Resource):
    """Maintenance windows and reservations of nodes."""

    def list(self, *, past: bool | None = None, cluster: str | None = None) -> Iterator[schemas.Window]:
        query = {} if past is None else {"past": str(past).lower()}
        return self._client.rows(schemas.Window, "windows", query | given(cluster=cluster))

    def add(self, wish: Wish, *, cluster: str | None = None) -> schemas.Window:
        query = given(cluster=cluster)
        return self._client.one(schemas.Window, "POST", "windows", json=dict(wish), params=query, repeatable=False)

    def remove(self, window: int) -> None:
        """By its number, which is the portal's."""
        self._client.send("DELETE", f"windows/{window}")


class Drains(Resource):
    """Nodes that are taken out of use, at once or by a deadline."""

    def start(self, node: str, wish: Wish, *, cluster: str | None = None) -> schemas.Node:
        query = given(cluster=cluster)
        return self._client.one(schemas.Node, "POST", f"nodes/{part(node)}/drain", json=dict(wish), params=query)

    def preview(self, node: str, wish: Wish, *, cluster: str | None = None) -> schemas.DrainPreview:
        """What it would do to who is there now."""
        query = {name: str(value) for name, value in wish.items()} | given(cluster=cluster)
        return self._client.one(schemas.DrainPreview, "GET", f"nodes/{part(node)}/drain-preview", params=query)

    def resume(self, node: str, *, cluster: str | None = None) -> schemas.Node:
        return self._client.one(schemas.Node, "POST", f"nodes/{part(node)}/resume", params=given(cluster=cluster))


class Checks(Resource):
    """Examinations of nodes and of clusters."""

    def start(self, node: str, *, cluster: str | None = None) -> schemas.Node:
        return self._client.one(schemas.Node, "POST", f"nodes/{part(node)}/check", params=given(cluster=cluster))

    def use_anyway(self, node: str, *, cluster: str | None = None) -> schemas.Node:
        return self._client.one(schemas.Node, "POST", f"nodes/{part(node)}/use-anyway", params=given(cluster=cluster))

    def examine(self, cluster: str | None = None) -> schemas.Examination:
        """A whole cluster; the one under way, where there is one."""
        return self._client.one(schemas.Examination, "POST", "examination", params=given(cluster=cluster))

    def examination(self, cluster: str | None = None) -> schemas.Examination:
        return self._client.one(schemas.Examination, "GET", "examination", params=given(cluster=cluster))

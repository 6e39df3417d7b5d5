"""Partitions, maintenance windows and reservations over the API."""

from __future__ import annotations

from collections.abc import Iterator

from evenkeel import schemas
from evenkeel.resources import Resource, Wish, part


class Partitions(Resource):
    """Sets of nodes that jobs name."""

    def list(self) -> Iterator[schemas.Partition]:
        return self._client.rows(schemas.Partition, "partitions")

    def set(self, name: str, wish: Wish) -> schemas.Partition:
        return self._client.one(schemas.Partition, "PUT", f"partitions/{part(name)}", json=dict(wish))

    def remove(self, name: str) -> None:
        self._client.send("DELETE", f"partitions/{part(name)}")


class Windows(Resource):
    """Maintenance windows and reservations of nodes."""

    def list(self, *, past: bool | None = None) -> Iterator[schemas.Window]:
        query = {} if past is None else {"past": str(past).lower()}
        return self._client.rows(schemas.Window, "windows", query)

    def add(self, wish: Wish) -> schemas.Window:
        return self._client.one(schemas.Window, "POST", "windows", json=dict(wish), repeatable=False)

    def remove(self, window: int) -> None:
        self._client.send("DELETE", f"windows/{window}")

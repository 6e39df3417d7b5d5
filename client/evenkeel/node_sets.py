"""Partitions over the API."""

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

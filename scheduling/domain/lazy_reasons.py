"""Reasons that are formatted when they are read, since most reasons of most rounds never are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from scheduling.domain.plan import Reason


class LazyReasons(Mapping[str, Reason]):
    """`tell` must not depend on anything that changes later."""

    def __init__(self, keys: Iterable[str], tell: Callable[[str], Reason]) -> None:
        self._known: dict[str, Reason | None] = dict.fromkeys(keys)
        self._tell = tell

    def __getitem__(self, key: str) -> Reason:
        reason = self._known[key]
        if reason is None:
            reason = self._known[key] = self._tell(key)
        return reason

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

"""Commands and parts of the SDK that changed their names: the old one goes on working and is deprecated.

What the portal renamed in its answers it serves under both names (docs/api.md "Names that changed").
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

#: Commands, old -> new.
COMMANDS: Final = {
    "cost rates": "cost prices",
    "cost set-rate": "cost set-price",
    "quota": "limit",
    "why": "explain",
}
#: Attributes of the SDK's classes, old -> new.
ATTRIBUTES: Final = {
    ("Client", "quotas"): "limits",
    ("Money", "rates"): "prices",
    ("Money", "set_rate"): "set_price",
}


def sentence(old: str, new: str) -> str:
    return f"{old} is deprecated; use {new}"


class OldNames:
    """Its attributes are there under their old names, too, with a DeprecationWarning."""

    if not TYPE_CHECKING:  # a type checker knows the present names alone

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            new = ATTRIBUTES.get((kind, name))
            if new is None:
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            warnings.warn(sentence(f"{kind}.{name}", f"{kind}.{new}"), DeprecationWarning, stacklevel=2)
            return getattr(self, new)

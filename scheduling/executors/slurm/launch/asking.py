"""Options of sbatch that a launch uses besides its nodes: those of the site, of its project, of its job file."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.errors import ExecutorError

#: Of the whole job; the others are of each component of a heterogeneous one.
_ONCE = ("licenses", "mail-type", "mail-user")
_EACH = (
    "partition", "account", "qos", "reservation", "wckey", "constraint", "exclusive", "nice", "switches", "hint",
    "threads-per-core", "gres-flags", "tmp",
)  # fmt: skip
MOST_CHARACTERS = 200


def option_words(site: Mapping[str, str], wish: Mapping[str, str], *, first: bool) -> list[str]:
    """`site`: defaults for missing options. Only known options are accepted, each as a separate word, whose value
    cannot contain another; the comment is combined with the portal's."""
    asked = {**site, **wish}
    if unknown := asked.keys() - {*_ONCE, *_EACH, "comment"}:
        raise ExecutorError(f"a job may not ask sbatch for --{sorted(unknown)[0]}", permanent=True)
    words = []
    for name in (*_EACH, *(_ONCE if first else ())):
        if name not in asked:
            continue
        value = asked[name]
        if not value.isprintable() or len(value) > MOST_CHARACTERS:
            raise ExecutorError(f"{value[:60]!r} cannot be given to sbatch as --{name}", permanent=True)
        words.append(f"--{name}={value}" if value else f"--{name}")
    return words

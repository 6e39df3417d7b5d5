"""What of sbatch's options a launch asks for beside its nodes: those of the site, of its project, of its job file."""

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
    """`site`: what holds where the wish names nothing else. Nothing passes but known options, each a word of its own,
    in which no value can begin another; the comment is said with the portal's."""
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

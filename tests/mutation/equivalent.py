"""Generated mutants that change nothing that anybody could notice: module, function, what was, what is made of it."""

EQUIVALENT: dict[tuple[str, str, str, str], str] = {}

"""Problems of the fields of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldProblem:
    field: str
    message: str
    code: str


class Problems(Exception):
    """Problems of a job file, by field; nothing of it was stored."""

    def __init__(self, problems: list[FieldProblem]) -> None:
        super().__init__("; ".join(f"{p.field}: {p.message}" for p in problems))
        self.problems = problems

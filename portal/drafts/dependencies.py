"""Dependencies of a draft."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from accounts.models import User
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.schema import JobFile
from portal.jobs.access import named_with_arrays
from portal.jobs.models import Dependency, Job
from portal.snapshot.dependencies import MOST_DEPENDENCIES


def find_dependencies(user: User, job_file: JobFile) -> list[tuple[str, Job | None]]:
    """(kind, job) of each, for an array each of its jobs; raises Problems for jobs that the user may not see."""
    found: list[tuple[str, Job | None]] = []
    problems = []
    for at, wish in enumerate(job_file.dependencies):
        if wish.job is None:
            found.append((wish.type, None))
            continue
        jobs = named_with_arrays(user, str(wish.job))
        if not jobs:
            text = "There is no such job that you may see."
            problems.append(FieldProblem(f"dependencies.{at}.job", text, "invalid"))
        found += [(wish.type, job) for job in jobs]
    if len(found) * (len(job_file.array.numbers) if job_file.array else 1) > MOST_DEPENDENCIES:
        text = f"Jobs times what each waits for would be more than {MOST_DEPENDENCIES:,}; "
        text += "let one job between them wait for all."
        problems.append(FieldProblem("dependencies", text, "too_many"))
    if problems:
        raise Problems(problems)
    return found


def store_dependencies(jobs: Iterable[Job], found: Sequence[tuple[str, Job | None]]) -> None:
    rows = [Dependency(job=job, kind=kind, on=other) for job in jobs for kind, other in found]
    Dependency.objects.bulk_create(rows)

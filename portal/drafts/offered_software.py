"""Packages, modules and images that a job file asks for, compared with what its cluster has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from portal.config.engines import FETCHING_TOOLS, Engine
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.code import EnvironmentRule
from portal.jobfile.schema import JobFile
from portal.jobs.clusters import active_clusters, engine_of
from portal.jobs.models import Cluster

OWN_PACKAGES = "use a virtual environment of your own, code with the nodes' packages, modules or an image"


def check_software(file: JobFile, cluster: Cluster) -> None:
    """Software of the site: waiting does not help if a cluster lacks it. Raises Problems."""
    if file.environment is None:
        return
    problems = [problem for one in _asked(file.environment) if (problem := _problem(*one, cluster)) is not None]
    if problems:
        raise Problems(problems)


def _problem(field: str, why_not: Callable[[Engine], str], cluster: Cluster) -> FieldProblem | None:
    if not (why := why_not(engine_of(cluster.pk))):
        return None
    every = active_clusters()
    others = [other.name for other in every if not why_not(engine_of(other.pk))]
    ends = ", nor does any other" if len(every) > 1 else ""
    if others:
        ends = f", but {' and '.join(others)} {'does' if len(others) == 1 else 'do'}"
    hint = f"; {OWN_PACKAGES}" if why_not is _why_no_packages else ""
    return FieldProblem(f"environment.{field}", f"cluster {cluster} {why}{ends}{hint}", "not_offered")


def _asked(rule: EnvironmentRule) -> Iterator[tuple[str, Callable[[Engine], str]]]:
    if rule.image:
        yield "image", partial(_why_no_image, rule.image)
    if rule.modules:
        yield "modules", _why_no_modules
    if rule.requirements or rule.digest:
        yield "requirements" if rule.requirements else "digest", _why_no_packages


def _why_no_packages(engine: Engine) -> str:
    return "does not build environments, as its jobs run as each person's account" if engine.runs_as_person else ""


def _why_no_modules(engine: Engine) -> str:
    return "" if engine.software.modules else "does not offer the site's modules"


def _why_no_image(image: str, engine: Engine) -> str:
    if not (tool := engine.software.container_tool):
        return "does not run programs in images"
    if "://" in image and tool not in FETCHING_TOOLS:
        return f"does not fetch images ({tool} runs what lies on the nodes)"
    return ""

"""The sample workload: the one of the F-scheduling paper (spec/f-scheduling.md), submitted through the REST API."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone

from accounts.models import Scope, User
from accounts.tokens import DEFAULT_SCOPES, create_token, revoke_token
from portal.supervisor.demo_report import report
from scheduling.simulator import parse_policy

logger = logging.getLogger("evenkeel.supervisor")

POLL_S = 1.0
SUMMARY_EVERY_S = 20.0
GIVE_UP_AFTER_S = 3600.0
ENDED = {"succeeded", "failed", "cancelled"}
LABEL = {"workload": "paper"}


@dataclass(frozen=True)
class Arrival:
    at_s: float  # workload seconds after the first
    model_type: str


WORKLOAD = tuple(Arrival(100.0 * n, name) for n, name in enumerate(["resnet50", "inception_v3"] * 2))
BATCH_SIZE = 90
# Training is real, and its pace must not exceed what the machine's cores can do. At the fastest the workload is nearly
# the paper's (2,000 steps each); at any speed-up it takes about five minutes.
SLOWEST, FASTEST, SPEEDUP_PER_CORE = 1.5, 4.5, 0.75
STEPS_PER_SPEEDUP = 350


def fitting_speedup(cores: int) -> float:
    return min(FASTEST, max(SLOWEST, SPEEDUP_PER_CORE * cores))


@dataclass(frozen=True)
class Options:
    """Options of the demo for benchmarks."""

    policy: str = ""  # NAME[:key=value,...]; empty: the one in force
    steps: int = 0  # 0: as many as fit the speed-up
    json_path: Path | None = None


@dataclass
class Demo:
    """Submits each job when it is due and reports its progress."""

    api: httpx.Client
    speedup: float
    steps: int = 0
    numbers: list[int] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    _seen: dict[int, tuple[str, int]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _next_summary: float = 0.0

    def run(self) -> list[dict[str, Any]]:
        """Returns the ended jobs."""
        waiting = list(WORKLOAD)
        if self._adopt_earlier_jobs():
            waiting.clear()
        while time.monotonic() - self._began < GIVE_UP_AFTER_S:
            try:
                while waiting and self._elapsed() >= waiting[0].at_s / self.speedup:
                    self._submit(waiting[0])
                    waiting.pop(0)
                jobs = self._look()
            except httpx.HTTPError as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                    raise
                logger.info("The web process does not answer (%s); trying again.", type(error).__name__)
            else:
                if not waiting and all(job["state"] in ENDED for job in jobs):
                    return jobs
            time.sleep(POLL_S)
        raise TimeoutError(f"The jobs did not finish within {GIVE_UP_AFTER_S / 60:.0f} minutes.")

    def get(self, path: str, **parameters: Any) -> Any:
        return self.api.get(path, params=parameters).raise_for_status().json()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _adopt_earlier_jobs(self) -> bool:
        label = ",".join(f"{key}={value}" for key, value in LABEL.items())
        jobs = self.get("jobs", label=label)["results"]
        self.numbers = sorted(job["number"] for job in jobs if job["state"] not in ENDED)
        if self.numbers:
            logger.info("Following the jobs of an earlier demo.")
        return bool(self.numbers)

    def _submit(self, arrival: Arrival) -> None:
        key = f"demo-{self._began}-{len(self.numbers)}"
        body = {
            "name": f"{arrival.model_type.replace('_', '-')}-{len(self.numbers) + 1}",
            "project": "default",
            "model_type": arrival.model_type,
            "total_steps": self.steps or round(STEPS_PER_SPEEDUP * min(self.speedup, FASTEST)),
            "batch_size": BATCH_SIZE,
            "gpus": {"min": 1, "max": 6},
            "labels": LABEL,
        }
        answer = self.api.post("jobs", json=body, headers={"Idempotency-Key": key})
        if answer.is_client_error:
            raise RuntimeError(f"The portal refused a job: {answer.text}")
        self.numbers.append(answer.raise_for_status().json()["number"])

    def _look(self) -> list[dict[str, Any]]:
        jobs = [self.get(f"jobs/{number}") for number in self.numbers]
        for job in jobs:
            self._tell_change(job)
        tiles = self.get("live/cluster")["state"]["tiles"]
        if tiles.get("gpus_busy") and tiles.get("variance") is not None:
            self.variances.append(float(tiles["variance"]))
        if time.monotonic() >= self._next_summary:
            self._next_summary = time.monotonic() + SUMMARY_EVERY_S
            self._tell(", ".join(f"#{job['number']} {job['step']}/{job['total_steps']}" for job in jobs))
        return jobs

    def _tell_change(self, job: dict[str, Any]) -> None:
        gpus = job["allocation"]["count"] if job["allocation"] else 0
        now = (job["state"], gpus)
        if self._seen.get(job["number"]) != now:
            self._seen[job["number"]] = now
            where = f" on {gpus} GPU{'s' if gpus != 1 else ''}" if gpus and job["state"] not in ENDED else ""
            self._tell(f"#{job['number']} {job['model_type']} is {job['state']}{where}, step {job['step']}")

    def _tell(self, text: str) -> None:
        logger.info("%5.0f s  %s", self._elapsed(), text)


def demonstrate(finish: Callable[[int], None] | None, options: Options) -> None:
    """Run the workload, print the table and, if requested, end the portal with the verdict as exit status."""
    exit_code = 1
    try:
        exit_code = _demonstrate(options)
    except (httpx.HTTPError, TimeoutError, RuntimeError) as error:
        logger.error("The demo failed: %s", error)
    finally:
        if finish is None:
            logger.info(
                "The portal keeps running at %s, with the account that was named when it was ready; Ctrl-C stops it.",
                settings.EVENKEEL_API_URL,
            )
        else:
            finish(exit_code)


def _demonstrate(options: Options) -> int:
    with _signed_in(Scope if options.policy else DEFAULT_SCOPES) as api:
        if options.policy:
            name, values = parse_policy(options.policy)
            api.put("policy", json={"name": name, "parameters": values}).raise_for_status()
        demo = Demo(api, settings.EVENKEEL_SPEEDUP, options.steps)
        jobs = demo.run()
        window = {
            "from_at": min(job["submitted_at"] for job in jobs),
            "to_at": max(job["finished_at"] for job in jobs),
        }
        variance = fmean(demo.variances) if demo.variances else 0.0
        timeline = demo.get("timeline", **window)
        lines = report(jobs, timeline, variance=variance, speedup=demo.speedup)
    for line in lines:
        logger.info("%s", line)
    if options.json_path:
        document = {"speedup": demo.speedup, "variance": variance, "jobs": jobs, "timeline": timeline}
        options.json_path.write_text(json.dumps(document))
    return verdict(jobs, elastic=not options.policy)


def verdict(jobs: list[dict[str, Any]], *, elastic: bool = True) -> int:
    if not all(job["state"] == "succeeded" for job in jobs):
        logger.error("Not every job finished.")
        return 1
    if elastic and not any(job["resizes"] for job in jobs):
        logger.error("No running job was rescaled.")
        return 1
    return 0


@contextmanager
def _signed_in(scopes: Iterable[Scope]) -> Iterator[httpx.Client]:
    """The API as the first administrator, with a token that is revoked at the end."""
    administrator = User.objects.filter(is_superuser=True, is_active=True).earliest("pk")
    name = f"demo {timezone.now():%H:%M}"
    token, text = create_token(user=administrator, name=name, expires_in_days=1, scopes=tuple(scopes))
    connection.close()
    headers = {"Authorization": f"Bearer {text}"}
    try:
        with httpx.Client(
            base_url=f"{settings.LOCAL_URL}/api/v1/", headers=headers, timeout=10, trust_env=False
        ) as api:
            yield api
    finally:
        with suppress(DatabaseError):  # the portal may be shutting down
            revoke_token(actor=administrator, token=token)
            connection.close()

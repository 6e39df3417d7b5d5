"""A whole portal on a real Slurm with accounting: what sacct says of each launch is what the portal says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.flows.test_slurm import PROGRAM
from tests.live_portal import LivePortal, engine_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WISH: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**6, "gpus": {"min": 1, "max": 1}}


@pytest.fixture(scope="module")
def accounted() -> Iterator[SlurmCluster]:
    with slurm_or_skipped(nodes=2, gpus=4, accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def portal(accounted: SlurmCluster) -> Iterator[LivePortal]:
    with engine_portal(accounted, **portal_settings(accounted)) as portal:
        yield portal


def records(cluster: SlurmCluster, number: int) -> list[tuple[str, str, str, float]]:
    """Name, state, exit code and seconds of each launch of a job, as sacct has them."""
    words = ("--noheader", "--parsable2", "--allocations", "--format=JobName,State,ExitCode,ElapsedRaw,JobIDRaw")
    rows = (line.split("|") for line in cluster._ask("sacct", *words).splitlines())
    found = [row for row in rows if row[0].partition(" ")[0] == f"evenkeel-{number}"]
    return [(name, state.split()[0], code, float(elapsed)) for name, state, code, elapsed, _ in found]


def parts_s(cluster: SlurmCluster, number: int) -> list[float]:
    """How long each launch ran, those parts included after which Slurm queued it again."""
    words = ("--noheader", "--parsable2", "--allocations", "--duplicates", "--format=JobName,ElapsedRaw")
    rows = (line.split("|") for line in cluster._ask("sacct", *words).splitlines())
    found = (float(elapsed) for name, elapsed in rows if name.partition(" ")[0] == f"evenkeel-{number}")
    return sorted(elapsed for elapsed in found if elapsed)


def awaited(portal: LivePortal, cluster: SlurmCluster, number: int, count: int) -> list[tuple[str, str, str, float]]:
    def there() -> list[tuple[str, str, str, float]] | None:
        return rows if len(rows := records(cluster, number)) == count else None

    return list(portal.wait_for("sacct", there, 30))


def of_job(number: int) -> str:
    return f"JOIN jobs_run r ON r.id = h.run_id JOIN jobs_job j ON j.id = r.job_id WHERE j.number = {number}"


def paid_s(portal: LivePortal, number: int) -> list[float]:
    """How long each launch held its GPUs, and whether the ledger has as much of it."""
    where = of_job(number)
    length = "extract(epoch FROM upper(h.during) - lower(h.during))"
    held = portal.rows(
        f"SELECT max({length}), sum({length}) FROM jobs_hold h {where} GROUP BY r.id, h.epoch ORDER BY 1"
    )
    entered = portal.rows(
        "SELECT coalesce(sum(extract(epoch FROM to_at - from_at) * quantity / 100), 0) FROM accounts_ledgerentry e"
        f" JOIN jobs_job j ON j.id = e.job_id WHERE j.number = {number} AND e.resource = 'gpu'"
    )
    assert float(entered[0][0]) == pytest.approx(float(sum(total for _, total in held)), abs=0.01)
    return [float(most) for most, _ in held]


def test_slurm_and_portal_agree_on_each_launch(portal: LivePortal, accounted: SlurmCluster) -> None:
    (portal.files / "program.py").write_text(PROGRAM)
    trains = f"python {portal.files / 'program.py'}"
    done = portal.submit(name="two seconds", command="sleep 2", **WISH | {"total_steps": 1})["number"]
    failed = portal.submit(command="sleep 1; exit 3", **WISH | {"total_steps": 1}, retry={"limit": 0})["number"]
    stopped = portal.submit(name="Größe, 50 %", command=trains, **WISH)["number"]
    plain = portal.submit(command="sleep 900", **WISH)["number"]
    gang = portal.submit(command=trains, **WISH | {"gpus": {"min": 5, "max": 5}})["number"]
    portal.wait_for("steps", lambda: portal.job(stopped)["step"] > 0, 120)
    with portal.api() as api:
        api.post(f"jobs/{stopped}/hold").raise_for_status()
        portal.wait_state(stopped, "queued", "held")
        portal.wait_for("its GPUs", lambda: all(paid_s(portal, stopped)), 60)
        api.post(f"jobs/{stopped}/release").raise_for_status()
        portal.wait_state(plain, "running")
        api.post(f"jobs/{plain}/cancel").raise_for_status()
        portal.wait_for("the gang", lambda: portal.job(gang)["step"] > 0, 240)
        for number in (stopped, gang):
            api.post(f"jobs/{number}/cancel").raise_for_status()
    expected = {
        done: ["COMPLETED 0:0"], failed: ["FAILED 3:0"], stopped: ["CANCELLED"] * 2, plain: ["CANCELLED"],
        gang: ["CANCELLED"] * 2,
    }  # fmt: skip
    for number in expected:
        portal.wait_state(number, "succeeded", "failed", "cancelled", timeout_s=120)
    for number, states in expected.items():
        rows = awaited(portal, accounted, number, len(states))
        assert [state if state == "CANCELLED" else f"{state} {code}" for _, state, code, _ in rows] == states
        elapsed = sorted(row[3] for row in rows)
        paid = paid_s(portal, number)
        if number == gang:  # both components of the heterogeneous job ran as long
            paid *= 2
        assert elapsed == pytest.approx(paid, abs=1.0), number
    assert records(accounted, done)[0][0] == f"evenkeel-{done} two-seconds"
    assert records(accounted, stopped)[0][0] == f"evenkeel-{stopped} Groe-50"


def test_a_launch_that_slurm_queues_again_is_paid_for_once_and_not_while_it_waits(
    portal: LivePortal, accounted: SlurmCluster
) -> None:
    number = portal.submit(command="sleep 900", restartable=True, **WISH)["number"]
    portal.wait_state(number, "running", timeout_s=120)
    lines = accounted._ask("squeue", "-h", "--states=RUNNING", "--format=%A|%k").splitlines()
    [launch] = [line.partition("|")[0] for line in lines if f"evenkeel job {number} run " in line]
    time.sleep(5)
    accounted._ask("scontrol", "update", f"job={launch}", "requeue=1")
    accounted._ask("scontrol", "requeue", launch)
    launches = f"SELECT epoch FROM jobs_run r JOIN jobs_job j ON j.id = r.job_id WHERE j.number = {number}"
    portal.wait_for("the next launch", lambda: portal.rows(launches) == [(2,)], 180)
    portal.wait_state(number, "running", timeout_s=120)
    time.sleep(5)
    with portal.api() as api:
        api.post(f"jobs/{number}/cancel").raise_for_status()
    portal.wait_state(number, "cancelled", timeout_s=60)
    open_holds = f"SELECT 1 FROM jobs_hold h {of_job(number)} AND upper_inf(h.during)"
    portal.wait_for("its end", lambda: not portal.rows(open_holds), 60)
    portal.wait_for("sacct", lambda: len(parts_s(accounted, number)) == 2, 30)
    ran, paid = parts_s(accounted, number), paid_s(portal, number)
    assert sum(paid) <= sum(ran) + 3.0, (ran, paid)
    assert sum(paid) >= sum(ran) - 3.0, (ran, paid)

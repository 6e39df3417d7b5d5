"""A backup taken while jobs train and come in is a whole portal, in another data directory, on another day."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live_portal import LivePortal

pytestmark = pytest.mark.timeout(900)
TRAINING: dict[str, Any] = {
    "model_type": "digits_mlp",
    "total_steps": 1_000_000,
    "checkpoint": {"every_steps": 100},
    "gpus": {"max": 1},
}
#: Tables whose rows are never changed once written, with the columns that are compared.
WRITTEN_ONCE = {
    "accounts_ledgerentry": "id, job_id, hold_id, held_us, price_micro_per_hour, product, from_at, to_at",
    "accounts_auditentry": "id, at, action, target, detail",
    "jobs_job": "id, number, name, spec, project_id, submitted_at",
    "jobs_jobevent": "id, at, kind, text",
}


class Submitter(threading.Thread):
    """Somebody who goes on submitting all the time."""

    def __init__(self, portal: LivePortal) -> None:
        super().__init__(daemon=True)
        self._portal, self._over = portal, threading.Event()
        self.numbers: list[int] = []

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.numbers.append(self._portal.submit(total_steps=20, gpus={"min": 1, "max": 1})["number"])

    def end(self) -> None:
        self._over.set()
        if self.ident is not None:
            self.join(60)


def rows(portal: LivePortal, table: str) -> dict[Any, tuple[Any, ...]]:
    return {row[0]: row for row in portal.rows(f"SELECT {WRITTEN_ONCE[table]} FROM {table}")}


@pytest.mark.slow
def test_a_backup_of_a_busy_portal_comes_up_elsewhere(data: Path) -> None:
    saved = data / "saved"
    first, second = LivePortal(data / "first"), LivePortal(data / "second")
    submitter = Submitter(first)
    try:
        first.start()
        ended = first.submit(total_steps=20)["number"]
        first.wait_state(ended, "succeeded")
        first.wait_for("the ledger", lambda: rows(first, "accounts_ledgerentry"))
        training = first.submit(**TRAINING)["number"]
        checkpoint = first.wait_for("a checkpoint", lambda: first.job(training)["checkpoints"])[0]["step"]
        submitter.start()
        first.wait_for("submissions", lambda: len(submitter.numbers) > 2)
        before = {table: rows(first, table) for table in WRITTEN_ONCE}
        first.manage("backup", str(saved))
        submitter.end()
        _copy_beside(first, second)
    finally:
        submitter.end()
        first.end()
    try:
        began_at = time.time()
        _restore(second, saved)
        # Some may not have reported by then.
        [[heard]] = second.rows("SELECT extract(epoch FROM max(last_report_at)) FROM jobs_run WHERE attempt = 1")
        assert float(heard) > began_at, "leases may have been renewed since"
        for table in WRITTEN_ONCE:
            restored = rows(second, table)
            assert before[table].items() <= restored.items(), table
        second.manage("verify_audit")
        second.wait_for("training to go on", lambda: _goes_on(second, training, checkpoint), 240)
        assert "resumed at step" in _log(second, training)
        newest = max(number for _, number, *_ in rows(second, "jobs_job").values())
        # A sequence may be ahead of the rows saved with it, never behind.
        assert second.submit(total_steps=20)["number"] > newest
        assert second.job(ended)["state"] == "succeeded"
    finally:
        second.end()


def _goes_on(portal: LivePortal, number: int, step: int) -> bool:
    job = portal.job(number)
    return bool(job["run"]["attempt"] > 1 and job["state"] == "running" and job["step"] > step)


def _log(portal: LivePortal, number: int) -> str:
    with portal.api() as api:
        return str(api.get(f"jobs/{number}/logs").raise_for_status().json()["text"])


def _copy_beside(first: LivePortal, second: LivePortal) -> None:
    """What docs/operations.md says to keep beside the database; owners are lost, as in most archives."""
    (second.data / "run").mkdir(mode=0o755, parents=True)
    for name in ("secret_key", "run/accounts.json"):
        if (first.data / name).exists():
            shutil.copy2(first.data / name, second.data / name)
    ignored = shutil.ignore_patterns("token", "control", "*.sock")
    try:
        shutil.copytree(first.data / "jobs", second.data / "jobs", ignore=ignored, symlinks=True)
    except shutil.Error as error:  # training goes on, and removes its older checkpoints
        gone = [why for _, _, why in error.args[0] if "No such file" not in why]
        assert gone == []


def _restore(second: LivePortal, saved: Path) -> None:
    if os.geteuid() == 0:  # the original is still there: both would use the same accounts
        second.manage("move_accounts")
    second.start()
    second.manage("backup", str(saved), "--restore")
    second.interrupt()
    second.start()

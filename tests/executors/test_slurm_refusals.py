"""What Slurm says when it does not do what it is asked, in the words of 22.05 to 25.11: what passes, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.slurm.commands import Commands
from scheduling.executors.slurm.refusals import judge

FAILED = "sbatch: error: Batch job submission failed: "
LASTING = [
    "Invalid account or account/partition combination specified",
    "Invalid qos specification",
    "Invalid qos for job request",
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    "Invalid feature specification",
    "Invalid partition name specified",
    "Invalid generic resource (gres) specification",
    "Invalid Trackable RESource (TRES) specification",
    "Invalid license specification",
    "Invalid wckey specification",
    "Requested reservation is invalid",
    "Access denied to requested reservation",
    "Requested partition configuration not available now",
    "Requested time limit is invalid (missing or exceeds some limit)",
    "User's group not permitted to use this partition",
    "Job's account not permitted to use this partition (debug allows ops not vision)",
    "Job's QOS not permitted to use this partition (debug allows normal not gold)",
    "Access/permission denied",
    "Invalid user id",
]
#: The words before it say which limit it is: that of jobs sent at once is over when some have ended.
SUBMIT = "sbatch: error: AssocMaxSubmitJobLimit\n" + FAILED + LASTING[3]
PASSING = [
    FAILED + "Socket timed out on send/recv operation",
    FAILED + "Unable to contact slurm controller (connect failure)",
    "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    FAILED + "Resource temporarily unavailable",
    FAILED + "Zero Bytes were transmitted or received",
    FAILED + "Communication connection failure",
    FAILED + "Message receive failure",
    FAILED + "Slurm backup controller in standby mode",
    FAILED + "Required partition not available (inactive or drain)",
    "sbatch: RPC rate limit exceeded 1 times with RPC 4003",
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + FAILED + LASTING[3],
    SUBMIT,
]


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> ExecutorError:
    sbatch = tmp_path / "sbatch"
    (tmp_path / "said").write_text(said)
    sbatch.write_text(f"#!/bin/sh\ncat {tmp_path / 'said'} >&2\nexit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ExecutorError) as error:
        Commands().submit([])
    return error.value


@pytest.mark.parametrize("words", LASTING)
def test_what_stays_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    error = refused(tmp_path, monkeypatch, FAILED + words)
    assert (error.permanent, error.by_engine) == (True, True)
    begins = f"Slurm refused the launch: {words}. "
    assert str(error).startswith(begins)
    assert len(str(error)) > len(begins)


@pytest.mark.parametrize("said", PASSING)
def test_what_passes_is_nobodys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    error = refused(tmp_path, monkeypatch, said)
    assert (error.permanent, error.by_engine) == (False, True)


@pytest.mark.parametrize(
    ("words", "permanent"),
    [
        ("Requested node configuration is not available", True),  # other nodes may have it
        ("Invalid node name specified", True),
        ("Something that no version says", False),
    ],
)
def test_the_rest_is_tried_again_as_the_job_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, permanent: bool
) -> None:
    error = refused(tmp_path, monkeypatch, FAILED + words)
    assert (error.permanent, error.by_engine) == (permanent, False)


def test_other_commands_refuse_no_launch() -> None:
    assert not judge("slurm_load_jobs error: Invalid account", "squeue").by_engine
    assert judge("slurm_load_jobs error: Socket timed out on send/recv operation", "squeue").by_engine

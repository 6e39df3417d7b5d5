"""What is said of variables that are no settings: at the start, by `doctor`, and never of anything else."""

from __future__ import annotations

import contextlib
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from portal.config.clusters_file import read_clusters
from portal.config.environment_notes import RUN_VARIABLES, TOOL_VARIABLES, environment_notes, notes_on
from portal.config.old_names import REMOVED, RENAMED
from portal.config.settings_table import SETTINGS
from portal.jobs.models import Cluster


def said_of(executor: str = "local", clusters: Any = None, **environment: str) -> list[str]:
    return [str(note) for note in notes_on(environment, {executor}, clusters or {})]


def test_settings_and_variables_of_runs_and_tools_are_known() -> None:
    known = [
        *SETTINGS,
        *RUN_VARIABLES,
        *TOOL_VARIABLES,
        "EVENKEEL_DATA_IMAGENET",
        "PATH",
        "SLURM_JOB_ID",
        "_EVENKEEL_X",
    ]
    assert said_of(**dict.fromkeys(known, "1")) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("EVENKEEL_PROT", "EVENKEEL_PORT"),
        ("EVENKEEL_EXECUTER", "EVENKEEL_EXECUTOR"),
        ("EVENKEEL_VIRTUAL_ACCELERATOR", "EVENKEEL_VIRTUAL_ACCELERATORS"),
        ("EVENKEEL_DATA_CACHE_DRI", "EVENKEEL_DATA_CACHE_DIR"),
        ("EVENKEEL_SLURM_PARTITON", "EVENKEEL_SLURM_PARTITION"),
    ],
)
def test_a_misspelled_name_is_said_with_the_right_one(name: str, near: str) -> None:
    assert said_of(**{name: "hush"}) == [
        f"{name} is not a setting and is ignored; did you mean {near}? Otherwise unset it."
    ]


def test_a_name_like_no_other_is_said_without_a_guess() -> None:
    assert said_of(EVENKEEL_COLOUR_OF_THE_SHED="green") == [
        "EVENKEEL_COLOUR_OF_THE_SHED is not a setting and is ignored; unset it, or see docs/operations.md."
    ]


def test_every_old_name_is_said_with_what_to_do() -> None:
    for old in RENAMED:
        [line] = said_of(old.of or "local", **{old.name: "5"})
        assert line.startswith(f"{old.name} is deprecated and will be read until version ")
        assert (f"add {old.key}=5{old.unit} to EVENKEEL_KEEP" if old.key else f"set {old.new} instead") in line


def test_every_removed_name_is_said_with_what_counts_now() -> None:
    for name, counts in REMOVED.items():
        assert said_of(**{name: "5"}) == [f"{name} is no longer a setting and is ignored: {counts}; unset it."]


def test_an_old_name_that_does_not_count_is_said_to_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"EVENKEEL_RAY_SHARED_DIR": "/a", "EVENKEEL_SHARED_DIR": "/b"}
    assert said_of("ray", **both) == ["EVENKEEL_RAY_SHARED_DIR is ignored: EVENKEEL_SHARED_DIR is set; unset it."]
    assert said_of("slurm", **both) == ["EVENKEEL_RAY_SHARED_DIR is ignored: no cluster's executor is ray; unset it."]
    monkeypatch.setenv("EVENKEEL_KEEP", "events=5d")
    assert said_of(EVENKEEL_KEEP_EVENTS_DAYS="6", EVENKEEL_KEEP="events=5d") == [
        "EVENKEEL_KEEP_EVENTS_DAYS is ignored: EVENKEEL_KEEP has events; unset it."
    ]


def test_an_old_name_in_the_file_of_clusters_is_read_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setenv("EVENKEEL_CLUSTERS", str(tmp_path / "clusters.yaml"))
    own = {"EVENKEEL_SLURM_SHARED_DIR": "/nfs/evenkeel"}
    entry = {"name": "big", "executor": "slurm", "settings": own}
    (tmp_path / "clusters.yaml").write_text(yaml.safe_dump({"clusters": [entry]}))
    settings.EVENKEEL_CLUSTERS = read_clusters(tmp_path)
    assert settings.EVENKEEL_CLUSTERS["big"].job_files == Path("/nfs/evenkeel")
    [note] = environment_notes()
    assert note.seen.startswith("cluster 'big': EVENKEEL_SLURM_SHARED_DIR is deprecated")
    assert note.fix == "write EVENKEEL_SHARED_DIR instead"


@pytest.mark.django_db
def test_the_doctor_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_PROT", "8801")
    Cluster.objects.create(name="here")
    said = StringIO()
    with contextlib.suppress(CommandError):  # of what else this machine has
        call_command("doctor", stdout=said)
    assert (
        "warn  settings: EVENKEEL_PROT is not a setting and is ignored\n      did you mean EVENKEEL_PORT?"
        in said.getvalue()
    )

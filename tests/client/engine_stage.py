"""A runner on a clock that the test moves, and what stands for the portal, the store and the other nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner import engine
from evenkeel.runner.processes import Process
from evenkeel.runner.verdict import Verdict

from tests.client.test_escalation import Stage, make

__all__ = ["make"]  # the fixture


@dataclass
class Reports:
    """Notes what the runner reports and what it asks of its reporter."""

    limits: dict[str, float | None] = field(default_factory=dict)
    interval_s: float | None = None
    crowded: bool = False
    answered_at: float = 0.0
    put_with: list[tuple[bool, bool]] = field(default_factory=list)  # urgent, on the beat
    reports: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def put(self, report: dict[str, Any], *, urgent: bool, on_beat: bool = False) -> None:
        self.reports.append(report)
        self.put_with.append((urgent, on_beat))

    def start(self) -> None:
        self.calls.append("start")

    def send_now(self) -> None:
        self.calls.append("send_now")

    def flush(self, timeout_s: float) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


@dataclass
class Store:
    """A checkpoint store, or the data of a job: both have a process and notices."""

    pid: int = 71
    stored: dict[str, Any] | None = None
    said: list[str] = field(default_factory=list)
    urgent: bool = False
    directory: Path = Path("/checkpoints")
    chosen: dict[str, Any] | None = None
    unsaved: str = ""
    offered: list[Any] = field(default_factory=list)
    settled_with: list[float] = field(default_factory=list)
    finished_with: list[bool] = field(default_factory=list)
    gives_up: list[bool] = field(default_factory=list)

    def offer(self, checkpoint: Any) -> None:
        self.offered.append(checkpoint)

    def tick(self) -> bool:
        return self.urgent

    def take_notices(self) -> list[str]:
        said, self.said = self.said, []
        return said

    def settle(self, is_over: Callable[[], bool], most_s: float) -> None:
        self.settled_with.append(most_s)

    def finish(self, report: Callable[[], None], gives_up: Callable[[], bool], *, asked: bool) -> str:
        report()
        self.gives_up.append(gives_up())
        self.finished_with.append(asked)
        return self.unsaved


class Data(Store):
    notices = ("cached",)

    def __init__(self, bring: Callable[..., dict[str, str]]) -> None:
        super().__init__(pid=72)
        self.bring = bring


@dataclass
class Nodes:
    """The other nodes of a run."""

    lost: Verdict | None = None
    words: list[str] = field(default_factory=list)
    followers: list[Any] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)

    def gather(self, given_up: Callable[[], bool]) -> None:
        self.calls.append("gather")

    def tend_data(self) -> str:
        self.calls.append("tend_data")
        return self.words.pop(0) if self.words else ""

    def start(self, chosen: Any) -> tuple[Any, list[Any]]:
        self.calls.append(chosen)
        return "place", ["elsewhere"]

    def dismiss(self) -> None:
        self.calls.append("dismiss")

    def verdict(self) -> Verdict | None:
        return self.lost

    def tick(self, control: Any, step: int | None) -> list[Any]:
        return []

    def usage(self) -> dict[str, float]:
        return {"cpu_s": 2.0, "rss_mib": 100.0}

    def gpu_utilisation(self, own: Any) -> list[float]:
        return [0.25]


@dataclass
class Course:
    stage: Stage
    reports: Reports
    place: Path

    @property
    def runner(self) -> Any:
        return self.stage.runner

    @property
    def ended(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.place / "exit.json").read_text())
        return content

    def says(self, *lines: dict[str, Any]) -> None:
        (self.place / "sdk" / "rank0.jsonl").write_text("".join(json.dumps({"t": 5.0} | line) + "\n" for line in lines))


@pytest.fixture
def course(make: Callable[..., Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Course]:
    def made(**changes: Any) -> Course:
        stage = make(**changes)
        made = Course(stage, Reports(), tmp_path)
        stage.runner._reporter = made.reports  # type: ignore[assignment]
        monkeypatch.setattr(engine, "descendants", lambda pid: [])
        return made

    return made


def below(pid: int, *, cpu_s: float = 0.0, rss_mib: float = 0.0, state: str = "S") -> Process:
    return Process(pid, "python", state, 1, 1, cpu_s, 1, rss_mib)

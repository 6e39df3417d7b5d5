"""What executors that start several runs on one device must do beside the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scheduling.executors.base import Executor, LaunchRequest
from tests.executors.contract import COUNTING, ExecutorContract, ended, reason, until

#: Notes what it was given, and goes on at a sign.
SHARING = """
import os, sys, time
given = [name + "=" + os.environ[name] for name in sorted(os.environ) if name.startswith("EVENKEEL_GPU")]
place = os.path.dirname(sys.argv[1])
with open(sys.argv[1] + ".draft", "w") as file:
    file.write(" ".join(given))
os.rename(file.name, sys.argv[1] + ".env")
while not os.path.exists(place + "/go"):
    time.sleep(0.02)
"""


class SharingContract(ExecutorContract):
    def sharing(self, request_for: Any, place: Path, name: str, **changes: Any) -> LaunchRequest:
        request = request_for(SHARING + COUNTING, str(place / name), "0.02", gpu_share_percent=50, **changes)
        assert isinstance(request, LaunchRequest)
        return request

    def test_two_runs_on_one_device_train_at_once_and_to_the_end(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        first = self.sharing(request_for, place, "first", gpu_memory_mib=4_096)
        second = self.sharing(request_for, place, "second", gpu_memory_mib=6_144, project_key="speech")
        assert first.placement == second.placement
        for request in (first, second):
            executor.launch(request)
        until((place / "first.env").exists, "the first")
        until((place / "second.env").exists, "the second")
        assert [fact.kind for fact in executor.observe([(first.run_id, 1), (second.run_id, 1)])] == ["alive", "alive"]
        (place / "go").touch()
        for request, name, memory_mib in ((first, "first", 4_096), (second, "second", 6_144)):
            assert reason(ended(executor, request.run_id)) == "done"
            expected = f"EVENKEEL_GPU_MEMORY_MIB={memory_mib} EVENKEEL_GPU_SHARE_PERCENT=50"
            assert (place / f"{name}.env").read_text() == expected
            assert self.last_state(request)["seen"] == list(range(20))

    def test_killing_one_of_two_runs_on_a_device_leaves_the_other_alone(
        self, executor: Executor, request_for: Any, place: Path
    ) -> None:
        killed, other = (self.sharing(request_for, place, name) for name in ("killed", "other"))
        for request in (killed, other):
            executor.launch(request)
        until((place / "killed.env").exists, "the one")
        until((place / "other.env").exists, "the other")
        executor.kill(killed.run_id, 1)
        facts = executor.observe([(killed.run_id, 1), (other.run_id, 1)])
        assert [fact.kind for fact in facts] == ["exited", "alive"]
        (place / "go").touch()
        assert reason(ended(executor, other.run_id)) == "done"
        assert (place / "other").read_text() == "started\n"
        assert (place / "other.env").read_text() == "EVENKEEL_GPU_SHARE_PERCENT=50"

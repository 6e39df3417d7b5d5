"""Whatever a job makes of its files, it harms itself alone: rounds, removals and listings of all others go on."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import random
import resource
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evenkeel.runner.trees import remove_tree

from benchmarks.hostile_files import PLACES, Hostile
from scheduling.errors import ExecutorError
from scheduling.executors.accounts import Account
from scheduling.executors.base import LaunchRequest, Preparation, Progress
from scheduling.executors.local import facts, preparing, spooling
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.layout import Layout, RunRecord
from scheduling.executors.preparation_results import checked_detail
from tests.cases import in_turn
from tests.executors.contract import ended, reason, requests_for, until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="accounts of their own need root")
SLEEPER = "import time; time.sleep(600)"
LEAVES = 'import os; open(os.environ["EVENKEEL_ARTIFACT_DIR"] + "/left", "w").write("x" * 10)'
#: Puts directories into each other where the runner would put secrets, and as a file that is kept.
DIGS = """
import os
for top in (os.environ["EVENKEEL_SECRETS_DIR"], os.environ["EVENKEEL_ARTIFACT_DIR"] + "/model"):
    os.mkdir(top)
    os.chdir(top)
    for i in range(3000):
        os.mkdir("d")
        os.chdir("d")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="evenkeel-hostile-"))
    made.chmod(0o777)
    yield made
    until(lambda: remove_tree(made), "the end of all files")


@pytest.fixture(params=[pytest.param("accounts", marks=as_root), "none"])
def executor(request: Any, place: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(place / "data", "titan_xp:12", request.param, preload=("colorsys",), warm_idle_s=120)
    yield made
    made.reap_orphans([], min_age_s=-2.0)
    made.stop_warm_start(["vision", "speech"])


@pytest.fixture
def request_for(executor: LocalExecutor, place: Path) -> Any:
    return requests_for(executor, place)


def job_dir(place: Path, request: LaunchRequest) -> Path:
    return place / "data" / "jobs" / request.job_id


def epoch_dir(place: Path, request: LaunchRequest) -> Path:
    return job_dir(place, request) / "runs" / request.run_id / "1"


def account_of(place: Path, request: LaunchRequest) -> Account:
    record = Layout(place / "data").record(request.run_id)
    assert record is not None
    return record.account


def kill_runner(place: Path, request: LaunchRequest) -> None:
    identity = place / "data" / "run" / "local" / f"{request.run_id}.1.runner"
    with contextlib.suppress(ProcessLookupError):  # what it found there has ended it before
        os.kill(int(json.loads(identity.read_text())["pid"]), signal.SIGKILL)


def listing(request: LaunchRequest, **changes: Any) -> Preparation:
    options = {"globs": ["**"], "max_files": 100, "max_bytes": 1 << 30}
    wish = Preparation("artifacts", request.run_id, 1, request.project_key, request.job_id, options, 60.0, 1 << 30)
    return dataclasses.replace(wish, **changes)


def prepared(executor: LocalExecutor, wish: Preparation) -> Progress:
    def look() -> Progress | None:
        progress = executor.prepare(wish)
        return progress if progress.state != "working" else None

    found = until(look, "the end of the preparation")
    assert isinstance(found, Progress)
    return found


def discarded(executor: LocalExecutor, request: LaunchRequest, path: str) -> None:
    """As cleaning does it: again, as long as it is not finished."""

    def gone() -> bool:
        try:
            executor.discard(request.project_key, [path])
        except ExecutorError:
            return False
        return True

    until(gone, f"the removal of {path}")


# Random files in every place


@pytest.mark.parametrize("seed", range(3))
def test_any_files_of_one_job_leave_all_others_alone(
    executor: LocalExecutor, request_for: Any, place: Path, seed: int
) -> None:
    hostile = [request_for(SLEEPER) for _ in range(2)]
    bystander, good = request_for(SLEEPER, project_key="speech"), request_for(LEAVES, project_key="speech")
    for request in (*hostile, bystander, good):
        executor.launch(request)
    assert reason(ended(executor, good.run_id)) == "done"
    for number, request in enumerate(hostile):
        leave_anything(place, request, seed * 100 + number)
        kill_runner(place, request)
    observed = [*((request.run_id, 1) for request in hostile), (bystander.run_id, 1), (good.run_id, 1)]
    kinds = until(lambda: (now := [fact.kind for fact in executor.observe(observed)])[:2] == ["exited"] * 2 and now)
    assert kinds[2:] == ["alive", "exited"]
    executor.reap_orphans(observed, min_age_s=-2.0)
    for request in hostile:
        for one in executor.spooled(request.run_id, 1):
            assert (one.report is None) == (one.dropped > 0)
        assert prepared(executor, listing(request)).state in ("done", "failed")
        discarded(executor, request, f"jobs/{request.job_id}/runs/{request.run_id}/artifacts/model.bin")
    assert [file["path"] for file in prepared(executor, listing(good)).detail["files"]] == ["left"]
    for request in hostile:
        executor.hand_over("speech", request.job_id)
        discarded(executor, dataclasses.replace(request, project_key="speech"), f"jobs/{request.job_id}/runs")
        assert not (job_dir(place, request) / "runs").exists()
    executor.launch(again := request_for(LEAVES, project_key="speech"))
    assert reason(ended(executor, again.run_id)) == "done"
    assert executor.observe([(bystander.run_id, 1)])[0].kind == "alive"


def leave_anything(place: Path, request: LaunchRequest, seed: int) -> None:
    made, chance = Hostile(seed, depth=1_100, width=100), random.Random(seed)
    with account_of(place, request).files():
        for relative in PLACES:
            if chance.random() < 0.6:
                made.put(job_dir(place, request) / relative.format(run=request.run_id, epoch=1))


@pytest.mark.parametrize("where", PLACES)
def test_each_place_with_each_thing_in_it(place: Path, where: str) -> None:
    """Without processes: what a round reads of an epoch that has ended."""
    layout = Layout(place / "data")
    layout.prepare()
    record = RunRecord("r1", "j1", None)
    layout.remember(record)
    for seed, kind in enumerate(Hostile(0).kinds):
        directory = layout.epoch_dir(record, 1)
        directory.mkdir(parents=True, exist_ok=True)
        hostile = Hostile(seed, depth=1_100, width=100)
        hostile.put(layout.job_dir("j1") / where.format(run="r1", epoch=1), kind)
        with hostile.at_work():
            assert facts.read_exit(directory) is None or facts.read_exit(directory) or kind
            facts.read_runner(directory)
            assert 1 in layout.epochs(record) or kind
            assert record in layout.runs_of_job(record) or kind
            if spooling.is_spooled(directory):
                assert len(list(spooling.spooled_reports(Account(None), directory))) <= spooling.MAX_REPORTS + 1
        layout.remove_secrets(record, 1, max_entries=10**6, max_s=60.0)
        assert not os.path.lexists(directory / "secrets")


# Directories in directories


def test_a_job_that_digs_stops_no_round_and_is_cleaned_away(
    executor: LocalExecutor, request_for: Any, place: Path
) -> None:
    digger, other = request_for(DIGS), request_for(SLEEPER, project_key="speech")
    executor.launch(other)
    executor.launch(digger)
    assert reason(ended(executor, digger.run_id)) == "done"
    until(lambda: executor.reap_orphans([(other.run_id, 1)]) or not (epoch_dir(place, digger) / "secrets").exists())
    assert not list((place / "data" / "run" / "local").glob("*.unremoved"))
    assert [fact.kind for fact in executor.observe([(digger.run_id, 1), (other.run_id, 1)])] == ["exited", "alive"]
    assert prepared(executor, listing(digger)).state == "done"
    base = f"jobs/{digger.job_id}/runs/{digger.run_id}/artifacts"
    discarded(executor, digger, f"{base}/model")
    assert list((place / "data" / base).iterdir()) == []


def test_one_path_that_cannot_be_discarded_keeps_no_other(
    executor: LocalExecutor, request_for: Any, place: Path
) -> None:
    executor.launch(request := request_for(LEAVES))
    ended(executor, request.run_id)
    base = f"jobs/{request.job_id}/runs/{request.run_id}/artifacts"
    with pytest.raises(ExecutorError, match="nothing that can be discarded") as refused:
        executor.discard(request.project_key, ["jobs/../x", f"{base}/left"])
    assert refused.value.permanent
    assert not (place / "data" / base / "left").exists()


@as_root
def test_a_deep_tree_changes_hands(place: Path) -> None:
    before, after = Account(2_100_001), Account(2_100_002)
    (place / "job").mkdir()
    before.give(place / "job")
    with before.files():
        Hostile(0, depth=3_000).put(place / "job" / "deep", "deep")
        Hostile(0).put(place / "job" / "closed", "closed")
    (place / "mine").touch()
    (place / "job" / "shared").hardlink_to(place / "mine")
    after.take_over(place / "job")
    assert (place / "job" / "closed" / "below" / "file").stat().st_uid == after.uid
    assert (place / "mine").stat().st_uid == 0
    with after.files():
        current = os.open(place / "job" / "deep", os.O_RDONLY)
        while names := os.listdir(current):  # noqa: PTH208
            assert os.fstat(current).st_uid == after.uid
            below = os.open(names[0], os.O_RDONLY, dir_fd=current)
            os.close(current)
            current = below
        os.close(current)


# One run's exception


def test_whatever_goes_wrong_with_one_run_says_nothing_of_others(
    executor: LocalExecutor, request_for: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, good = request_for(LEAVES), request_for(LEAVES)
    for request in (broken, good):
        executor.launch(request)
        ended(executor, request.run_id)
    read_exit = facts.read_exit

    def fails(directory: Path) -> Any:
        if broken.run_id in str(directory):
            raise RecursionError("too deep")
        return read_exit(directory)

    monkeypatch.setattr(facts, "read_exit", fails)
    found = executor.observe([(broken.run_id, 1), (good.run_id, 1)])
    assert [fact.kind for fact in found] == ["alive", "exited"]
    assert f"run {broken.run_id} epoch 1: RecursionError" in caplog.text
    monkeypatch.setattr(LocalExecutor, "_live_for", lambda self, record, epoch: fails(Path(record.run_id)) and 0.0)
    monkeypatch.setattr(facts, "read_exit", read_exit)
    executor.reap_orphans([])
    assert "reaping run" in caplog.text


# Spooled reports


def spool(epoch: Path, number: int | str, content: bytes) -> None:
    (epoch / "spool").mkdir(parents=True, exist_ok=True)
    (epoch / "spool" / f"{number}.json").write_bytes(content)


def test_reports_that_are_too_large_or_no_reports_are_counted_not_read(tmp_path: Path) -> None:
    spool(tmp_path, 1, b'{"seq": 1}')
    spool(tmp_path, 2, b" " * (spooling.MAX_BYTES + 1))
    spool(tmp_path, 3, b"[]")
    spool(tmp_path, 4, b'{"a": [' + b"[]," * 200_000 + b"[]]}")
    os.mkfifo(tmp_path / "spool" / "5.json")
    spool(tmp_path, 6, b'{"seq": 6, "metrics": [{"loss": NaN}]}')
    spool(tmp_path, "seven", b"{}")
    found = list(spooling.spooled_reports(Account(None), tmp_path))
    assert [one.report for one in found] == [{"seq": 1}, {"seq": 6, "metrics": [{"loss": None}]}, None]
    assert found[-1].dropped == 4


@in_turn(
    ("bound", "value", "taken"), [("MAX_REPORTS", 3, [5, 6, 7]), ("MAX_ALL_BYTES", 60, [0, 1, 2]), ("MAX_S", -1, [])]
)
def test_all_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, taken: list[int]
) -> None:
    for number in range(8):
        spool(tmp_path, number, b'{"seq": %8d}' % number)
    monkeypatch.setattr(spooling, bound, value)
    *found, last = spooling.spooled_reports(Account(None), tmp_path)
    assert [one.report["seq"] for one in found if one.report] == taken
    assert last.dropped == 8 - len(taken)


def test_the_seconds_are_those_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the newest would be left out where the portal takes its time over the others."""
    now_s = [0.0]
    monkeypatch.setattr(spooling, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    for number in range(8):
        spool(tmp_path, number, b'{"seq": %d}' % number)
    taken = []
    for one in spooling.spooled_reports(Account(None), tmp_path):
        assert one.report
        taken.append(one.report["seq"])
        now_s[0] += 60.0
    assert taken == list(range(8))


def test_a_spool_of_brackets_takes_no_memory(tmp_path: Path) -> None:
    for number in range(12):
        spool(tmp_path, number, b"[" + b"[]," * 349_000 + b"[]]")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [one.dropped for one in spooling.spooled_reports(Account(None), tmp_path)] == [12]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_a_round_only_learns_that_there_is_a_spool(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    executor.launch(request := request_for(SLEEPER))
    kill_runner(place, request)
    with account_of(place, request).files():
        spool(epoch_dir(place, request), 99, b'{"seq": 99}')
    fact = ended(executor, request.run_id)
    assert fact.spooled
    numbers = [one.report["seq"] for one in executor.spooled(request.run_id, 1) if one.report]
    assert numbers[-1] == 99
    assert list(executor.spooled("nobody", 1)) == []


# Listings


FORGED: list[Any] = [
    {"files": [5], "left_out": 0},
    {"files": [{"path": "a", "bytes": 1, "sha256": "a" * 64}], "left_out": -5},
    {"files": [], "left_out": 2**62},
    {"files": [], "left_out": True},
    {"files": [{"path": "a", "bytes": 2**62, "sha256": "a" * 64}]},
    {"files": [{"path": "a", "bytes": -1, "sha256": "a" * 64}]},
    {"files": [{"path": "a", "bytes": 1.0, "sha256": "a" * 64}]},
    {"files": [{"path": "a", "bytes": True, "sha256": "a" * 64}]},
    {"files": [{"path": "a", "bytes": 1, "sha256": "A" * 64}]},
    {"files": [{"path": "a", "bytes": 1, "sha256": "a" * 64 + "\n"}]},
    {"files": [{"path": "a", "bytes": 1, "sha256": "a" * 64}] * 2},
    {"files": [{"path": f"a{i}", "bytes": 1, "sha256": "a" * 64} for i in range(101)]},
    {"files": [{"path": "a", "bytes": 1 << 31, "sha256": "a" * 64}]},
    {"files": {"path": "a"}},
    {"files": None},
    {"left_out": 0},
    [],
    "files",
    None,
    *(
        {"files": [{"path": path, "bytes": 1, "sha256": "a" * 64}]}
        for path in ("../x", "a/../b", "/etc/passwd", "a//b", "a/", "./a", ".", "", "a\0b", "a\ud800", "x" * 501, 5)
    ),
]


@in_turn("detail", FORGED)
def test_a_list_that_makes_no_sense_is_not_believed(detail: Any) -> None:
    request = LaunchRequestLike()
    with pytest.raises(ValueError, match=r".+"):
        checked_detail(listing(request), detail)  # type: ignore[arg-type]


@dataclasses.dataclass
class LaunchRequestLike:
    run_id: str = "r"
    job_id: str = "j"
    project_key: str = "vision"


@pytest.mark.parametrize("detail", [FORGED[0], FORGED[1], {"files": [], "left_out": 0}])
def test_a_list_that_the_job_made_beforehand_is_not_read(
    executor: LocalExecutor, request_for: Any, place: Path, detail: Any
) -> None:
    executor.launch(request := request_for(LEAVES))
    ended(executor, request.run_id)
    made = job_dir(place, request) / "runs" / request.run_id / "listing"
    with account_of(place, request).files():
        made.mkdir()
        said = {"state": "done", "attempt": 1, "nonce": "", "detail": detail}
        (made / "result.json").write_text(json.dumps(said))
    progress = prepared(executor, listing(request))
    assert [file["path"] for file in progress.detail["files"]] == ["left"]
    assert prepared(executor, listing(request)) == progress


def test_a_size_that_a_job_wrote_for_its_project_is_not_believed(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest that is allowed, again and again, would evict the environments of others."""
    wish = Preparation("environment", "a" * 32, 1, "vision", "b" * 32, {}, 60.0, 1 << 30)
    started: list[str] = []
    monkeypatch.setattr(preparing, "_start", lambda *arguments: started.append(str(arguments[-1])))
    assert executor.prepare(wish).state == "working"
    made = preparing.directory_of(executor._layout, wish)
    detail = {"bytes": 1 << 30}
    with executor._accounts.of_project("vision").files():
        said = {"state": "done", "attempt": 1, "nonce": "", "detail": detail}
        (made / "result.json").write_text(json.dumps(said))
    assert executor.prepare(wish).state == "working"
    assert len(started) == 2
    assert all(len(nonce) == 64 for nonce in started)


def test_a_list_that_is_spoilt_afterwards_is_given_up(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    executor.launch(request := request_for(LEAVES))
    ended(executor, request.run_id)
    made = job_dir(place, request) / "runs" / request.run_id / "listing" / "result.json"

    def spoil() -> Progress | None:
        with account_of(place, request).files():
            if made.exists():
                content = json.loads(made.read_text())
                made.write_text(json.dumps(content | {"detail": FORGED[1]}))
                time.sleep(0.01)
        progress = executor.prepare(listing(request))
        return progress if progress.state == "failed" else None

    def looks() -> Progress | None:
        # Between its end and our look, as a process that was left behind would.
        until(lambda: made.exists(), "a list")
        return spoil()

    executor.prepare(listing(request))
    assert "several times" in until(looks, "the end of all attempts").message


def test_a_process_that_was_stopped_is_not_waited_for(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    executor.launch(request := request_for(LEAVES))
    ended(executor, request.run_id)
    wish = listing(request)
    prepared(executor, wish)
    note = place / "data" / "run" / "local" / "prepare" / f"artifacts-{wish.project_key}-{wish.key}.starts"
    with note.with_suffix(".lock").open("w") as lock:  # which the process holds, for as long as there is one
        fcntl.flock(lock, fcntl.LOCK_EX)
        note.write_text(json.dumps({"attempt": 1, "starts": 1, "at": time.time() - 100.0}))
        assert executor.prepare(wish).state == "working"
        note.write_text(json.dumps({"attempt": 1, "starts": 1, "at": time.time() - 10_000.0}))
        assert executor.prepare(wish).state == "failed"


# Sizes


@in_turn("size", [-1, 2**62, (1 << 30) + 1, True, 1.5, "5", None])
@in_turn("kind", ["environment", "git", "bundle"])
def test_a_size_that_cannot_be_is_refused(kind: str, size: Any) -> None:
    wish = listing(LaunchRequestLike(), kind=kind)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bytes"):
        checked_detail(wish, {"bytes": size})
    assert checked_detail(wish, {"bytes": 1 << 30})["bytes"] == 1 << 30


@in_turn("commit", ["x" * 40, "a" * 41, "a" * 40 + "\n", "\0", 5, None])
def test_a_commit_is_one_or_none(commit: Any) -> None:
    with pytest.raises(ValueError, match="commit"):
        checked_detail(listing(LaunchRequestLike(), kind="git"), {"bytes": 1, "commit": commit})  # type: ignore[arg-type]

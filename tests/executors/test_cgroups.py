"""Processors and memory by control groups: which are ours to use, and who is put into them when."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.executors.base import LaunchRequest
from scheduling.executors.local import admitting, cgroups
from scheduling.executors.local.admitting import limits_in_words
from scheduling.executors.local.cgroups import Cgroups, Mount, Parent
from scheduling.executors.local.executor import LocalExecutor
from tests.executors.contract import ended, reason
from tests.executors.test_sharing import make_request

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="groups are root's")
NONE = "the number of threads only"


def make_tree(place: Path, version: int, *, own: str = "/", given: str = "/") -> Path:
    """What a machine shows of itself, with a group `evenkeel` below `given`; the `proc` to look at."""
    names = {1: ("cpu", "memory"), 2: ("",)}[version]
    mounts, membership = [], []
    for number, name in enumerate(names):
        root = place / "cgroup" / name
        (root / own.lstrip("/")).mkdir(parents=True)
        group = root / given.lstrip("/") / "evenkeel"
        group.mkdir(parents=True)
        for file in ("cpu.cfs_period_us", "cpu.cfs_quota_us") if name == "cpu" else ("memory.limit_in_bytes",):
            (group / file).write_text("")
        (group / "cgroup.controllers").write_text("cpuset cpu io memory pids")
        kind, options = ("cgroup2", "rw") if version == 2 else ("cgroup", f"rw,{name},{name}acct")
        mounts.append(f"3{number} 23 0:28 / {root} rw,relatime shared:9 - {kind} {kind} {options}")
        membership.append(f"{number}:{name}:{own}")
    (place / "proc").mkdir()
    (place / "proc" / "mountinfo").write_text("23 1 0:20 / / rw - ext4 /dev/vda rw\n" + "\n".join(mounts) + "\n")
    (place / "proc" / "cgroup").write_text("\n".join(membership) + "\n")
    return place / "proc"


def test_mounts_of_both_versions_are_told_apart() -> None:
    text = (
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
        "41 31 0:38 /box /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert cgroups.parse_mounts(text) == [
        Mount(1, frozenset({"cpu"}), "/", Path("/sys/fs/cgroup/cpu,cpuacct")),
        Mount(1, frozenset(), "/", Path("/sys/fs/cgroup/systemd")),
        Mount(2, frozenset(), "/box", Path("/sys/fs/cgroup/unified")),
    ]
    assert cgroups.parse_membership("2:cpu,cpuacct:/a\n0::/b:c\n") == {"cpu": "/a", "cpuacct": "/a", "": "/b:c"}


@as_root
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("own", "given"), [("/", "/"), ("/portal.service", "/"), ("/p.service/web", "/p.service")])
def test_a_group_that_was_given_is_found_from_ours_upwards(tmp_path: Path, version: int, own: str, given: str) -> None:
    found = cgroups.find_parents(make_tree(tmp_path, version, own=own, given=given))
    assert set(found) == {"cpu", "memory"}
    assert {parent.version for parent in found.values()} == {version}
    assert all(parent.path.name == "evenkeel" and str(given) in str(parent.path) for parent in found.values())
    if version == 2:
        assert (found["memory"].path / "cgroup.subtree_control").read_text() == "+memory"


@as_root
def test_the_nearest_group_counts(tmp_path: Path) -> None:
    proc = make_tree(tmp_path, 2, own="/portal", given="/")
    (tmp_path / "cgroup" / "portal" / "evenkeel").mkdir()
    assert cgroups.find_parents(proc) == {}, "the nearest hands on no controllers"


@as_root
def test_no_group_is_made_unasked(tmp_path: Path) -> None:
    proc = make_tree(tmp_path, 1)
    for name in ("cpu", "memory"):
        (tmp_path / "cgroup" / name / "evenkeel").rename(tmp_path / "cgroup" / name / "somebody-elses")
    assert cgroups.find_parents(proc) == {}
    assert sorted(path.name for path in (tmp_path / "cgroup").rglob("*") if path.is_dir()) == [
        "cpu",
        "memory",
        *["somebody-elses"] * 2,
    ]


def test_who_is_not_root_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cgroups.find_parents(make_tree(tmp_path, 2)) == {}


def test_limits_are_written_as_each_version_reads_them(tmp_path: Path) -> None:
    made = Cgroups({"cpu": Parent(2, tmp_path), "memory": Parent(2, tmp_path)}).create("r", 3, cpus=2, memory_mib=512)
    assert {path.name: path.read_text() for path in made["cpu"].path.iterdir()} == {
        "cpu.max": "200000 100000",
        "memory.max": str(512 << 20),
    }
    (tmp_path / "c").mkdir()
    (tmp_path / "m").mkdir()
    old = Cgroups({"cpu": Parent(1, tmp_path / "c"), "memory": Parent(1, tmp_path / "m")})
    old.create("r", 3, cpus=2, memory_mib=512)
    assert (tmp_path / "c" / "r.3" / "cpu.cfs_quota_us").read_text() == "200000"
    assert (tmp_path / "m" / "r.3" / "memory.limit_in_bytes").read_text() == str(512 << 20)


def test_only_what_is_asked_for_is_limited_and_what_fails_is_left_out(tmp_path: Path) -> None:
    groups = Cgroups({"cpu": Parent(2, tmp_path), "memory": Parent(2, tmp_path / "gone" / "deep")})
    assert groups.create("r", 1, cpus=None, memory_mib=None) == {}
    assert list(tmp_path.iterdir()) == []
    assert set(groups.create("r", 1, cpus=1, memory_mib=100)) == {"cpu"}


def test_empty_groups_that_nobody_knows_are_swept(tmp_path: Path) -> None:
    for name in ("known.1", "left.2", "busy.1"):
        (tmp_path / name).mkdir()
    (tmp_path / "busy.1" / "process").touch()
    groups = Cgroups({"cpu": Parent(2, tmp_path)})
    groups.sweep([("known", 1)], min_age_s=60.0)
    assert (tmp_path / "left.2").exists(), "too young to tell"
    groups.sweep([("known", 1)], min_age_s=-2.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy.1", "known.1"]


@pytest.mark.parametrize(
    ("cpus", "memory_mib", "joined", "emulated", "words"),
    [
        (2, 512, ["cpu", "memory"], True, "CPU and memory are limited by cgroups v2"),
        (2, 512, ["cpu"], True, "CPUs are limited by cgroups v2; memory is limited by rlimits"),
        (None, 512, ["memory"], False, "Memory is limited by cgroups v2"),
        (None, 512, [], True, "Memory is limited by rlimits: no cgroup may be written here"),
        (2, None, [], False, f"CPUs are limited by {NONE}: no cgroup may be written here"),
        (None, None, [], True, ""),
    ],
)
def test_a_line_says_which_limits_hold(
    cpus: int | None, memory_mib: int | None, joined: list[str], emulated: bool, words: str
) -> None:
    made = dict.fromkeys(joined, Parent(2, Path("/")))
    assert limits_in_words(make_request(cpus=cpus, memory_mib=memory_mib), made, joined, emulated=emulated) == words


# Runs


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-cgroups-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def executor(place: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(place / "data", "titan_xp:2", preload=("colorsys",))
    yield made
    made.reap_orphans([], min_age_s=-2.0)
    made.stop_warm_start(["vision"])


def run(executor: LocalExecutor, place: Path, program: str, **changes: object) -> tuple[LaunchRequest, str, str]:
    """The request, what its program wrote, and what the runner did."""
    (place / "program.py").write_text(program)
    argv = ("python", "-c", program) if changes.pop("cold") else ("python", str(place / "program.py"))
    request = make_request(argv=argv, placement={executor.inventory()[0].name: (0, 1)}, **changes)
    executor.launch(request)
    assert reason(ended(executor, request.run_id)) == "done"
    epoch_dir = place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "1"
    text = (epoch_dir / "logs" / "rank1.log").read_text().partition("\n")[2]
    return request, text, (epoch_dir / "logs" / "runner.log").read_text()


@pytest.mark.parametrize("cold", [True, False])
def test_the_runner_is_in_its_group_before_any_worker_starts(executor: LocalExecutor, place: Path, cold: bool) -> None:
    (place / "group").mkdir()
    executor._cgroups = Cgroups({name: Parent(2, place / "group") for name in ("cpu", "memory")})
    program = (
        f"import os; print(os.getppid(), *map(open({str(place)!r} + '/group/{'b' * 32}.1/cgroup.procs').read, [9]))"
    )
    _, text, log = run(executor, place, program, cpus=2, memory_mib=700, cold=cold)
    runner, joined = text.split()
    assert runner == joined
    assert "CPU and memory are limited by cgroups v2" in log
    assert "rlimits" not in log


@pytest.mark.parametrize("cold", [True, False])
def test_a_runner_that_nobody_admits_goes_on(
    executor: LocalExecutor, place: Path, cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the executor ends between the start and the groups."""
    (place / "group").mkdir()
    executor._cgroups = Cgroups({"cpu": Parent(2, place / "group")})
    monkeypatch.setattr(admitting.Gate, "admit", lambda *_: None)
    monkeypatch.setattr(cgroups, "REMOVE_TIMEOUT_S", 0.0)
    _, text, log = run(executor, place, "print('went on')", cpus=2, cold=cold)
    assert text == "went on\n"
    assert f"CPUs are limited by {NONE}: no cgroup may be written here" in log


CPU = Path("/sys/fs/cgroup/cpu")


@pytest.fixture
def kernels_group() -> Iterator[Path]:
    """A real group: version 1's of processors, where nobody else's limits hold us there."""
    if os.geteuid() != 0 or cgroups.parse_membership(Path("/proc/self/cgroup").read_text()).get("cpu") != "/":
        pytest.skip("no hierarchy of version 1 for processors that is all ours")
    path = CPU / f"evenkeel-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"it cannot be written: {error}")
    yield path
    path.rmdir()


@pytest.mark.parametrize("cold", [True, False])
def test_the_kernel_limits_processors_and_forgets_the_group(kernels_group: Path, place: Path, cold: bool) -> None:
    executor = LocalExecutor(place / "data", "titan_xp:2", preload=("colorsys",), cgroup=kernels_group.name)
    program = (
        "own = [line for line in open('/proc/self/cgroup') if ':cpu:' in line][0].strip()\n"
        f"print(own.split(':')[2], open({str(CPU)!r} + own.split(':')[2] + '/cpu.cfs_quota_us').read())"
    )
    request, text, log = run(executor, place, program, cpus=1, memory_mib=700, cold=cold)
    assert text.split() == [f"/{kernels_group.name}/{request.run_id}.1", "100000"]
    assert "CPUs are limited by cgroups v1; memory is limited by rlimits" in log
    assert [path for path in kernels_group.iterdir() if path.is_dir()] == []
    executor.stop_warm_start(["vision"])


def test_a_killed_run_leaves_no_group(kernels_group: Path, place: Path) -> None:
    executor = LocalExecutor(place / "data", "titan_xp:2", warm_start=False, cgroup=kernels_group.name)
    argv = ("python", "-c", "import time; time.sleep(600)")
    request = make_request(argv=argv, placement={executor.inventory()[0].name: (0,)}, cpus=1)
    executor.launch(request)
    group = kernels_group / f"{request.run_id}.1"
    assert (group / "cgroup.procs").read_text().split()
    begun = time.monotonic()
    executor.kill(request.run_id, 1)
    assert not group.exists()
    assert time.monotonic() - begun < 10

"""Processors and memory by control groups: which are ours to use, and who is put into them when."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from evenkeel.runner import entry
from evenkeel.runner.processes import identity

from scheduling.executors.accounts import Account
from scheduling.executors.base import LaunchRequest
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.processes import admitting, cgroups
from scheduling.executors.local.processes.admitting import limits_in_words
from scheduling.executors.local.processes.cgroups import Cgroups, Mount, Parent
from scheduling.executors.local.processes.sweeping import RunnerIdentity
from tests.executors.contract import ended, reason
from tests.executors.test_sharing import make_request

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="groups are root's")
NONE = "the number of threads only"
PRIVATE = f"evenkeel-test-{os.getpid()}"


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


@pytest.mark.parametrize(
    ("version", "file", "content"), [(2, "memory.swap.max", "0"), (1, "memory.memsw.limit_in_bytes", str(512 << 20))]
)
def test_what_is_limited_does_not_go_to_swap(tmp_path: Path, version: int, file: str, content: str) -> None:
    groups = Cgroups({"memory": Parent(version, tmp_path)})
    [made] = groups.create("uncounted", 1, cpus=None, memory_mib=512).values()
    assert not (made.path / file).exists(), "a kernel that does not count swap"
    (tmp_path / "r.1").mkdir()
    (tmp_path / "r.1" / file).touch()
    groups.create("r", 1, cpus=None, memory_mib=512)
    assert (tmp_path / "r.1" / file).read_text() == content


def test_empty_groups_of_ours_that_nobody_knows_are_swept(tmp_path: Path) -> None:
    for name in ("known.1", "left.2", "busy.1", "elsewhere.1", "system.slice"):
        (tmp_path / name).mkdir()
    (tmp_path / "busy.1" / "process").touch()
    groups, ours = Cgroups({"cpu": Parent(2, tmp_path)}), {"known", "left", "busy"}
    groups.sweep([("known", 1)], ours, min_age_s=60.0)
    assert (tmp_path / "left.2").exists(), "too young to tell"
    groups.sweep([("known", 1)], ours, min_age_s=-2.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy.1", "elsewhere.1", "known.1", "system.slice"]


def test_a_group_that_goes_meanwhile_ends_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left.1").mkdir()
    monkeypatch.setattr(cgroups, "_groups_in", lambda parent: [parent / "gone.1", parent / "left.1"])
    Cgroups({"cpu": Parent(2, tmp_path)}).sweep([], {"gone", "left"}, min_age_s=-2.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_group_is_ended_at_once_where_the_kernel_can(tmp_path: Path, whole: bool) -> None:
    """Else one by one: never what other namespaces show as 0, and init."""
    group = tmp_path / "run.1"
    group.mkdir()
    with subprocess.Popen(["sleep", "60"]) as process:
        (group / "cgroup.procs").write_text(f"0\n1\n{process.pid}\n")
        if whole:
            (group / "cgroup.kill").write_text("")
        cgroups._end_members(group)
        if whole:
            assert (group / "cgroup.kill").read_text() == "1"
            assert process.poll() is None, "the kernel's to do"
            process.kill()
        assert process.wait(10) == -signal.SIGKILL


# Admitting


@pytest.fixture
def me() -> RunnerIdentity:
    found = RunnerIdentity.parse(identity())
    assert found is not None
    return found


def test_a_runner_joins_each_group_once_and_is_told(
    tmp_path: Path, me: RunnerIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[Path] = []

    def enter(group: Path, pid: int) -> bool:
        entered.append(group)
        return pid == me.pid

    monkeypatch.setattr(admitting, "_enter", enter)
    groups = Cgroups({name: Parent(2, tmp_path) for name in ("cpu", "memory")})
    with admitting.Gate(groups, make_request(cpus=1, memory_mib=512), emulated=True) as gate:
        waiting = os.dup(gate.open() or -1)
        gate.admit(me, Account(None))
        assert entry._pass(waiting) == "CPU and memory are limited by cgroups v2"
    assert entered == [tmp_path / f"{'b' * 32}.1"]


def test_a_runner_that_cannot_join_is_told(tmp_path: Path, me: RunnerIdentity) -> None:
    groups = Cgroups({"memory": Parent(2, tmp_path)})
    with admitting.Gate(groups, make_request(memory_mib=512), emulated=True) as gate:
        waiting = os.dup(gate.open() or -1)
        (tmp_path / f"{'b' * 32}.1" / "cgroup.procs").mkdir()
        gate.admit(me, Account(None))
        assert entry._pass(waiting) == "Memory is limited by rlimits: it could not be put into its cgroup"


def test_a_runner_that_waits_no_longer_joins_nothing(tmp_path: Path, me: RunnerIdentity) -> None:
    """Its workers may run already, and would stay outside."""
    groups = Cgroups({"memory": Parent(2, tmp_path)})
    with admitting.Gate(groups, make_request(memory_mib=512), emulated=True) as gate:
        os.close(os.dup(gate.open() or -1))
        gate.admit(me, Account(None))
    [group] = tmp_path.iterdir()
    assert not (group / "cgroup.procs").exists()


def test_without_a_group_the_log_says_why() -> None:
    spec = SimpleNamespace(limits_in_words="Memory is limited by rlimits")
    assert entry._limits(spec, None) == "Memory is limited by rlimits: no cgroup may be written here"  # type: ignore[arg-type]
    reading, writing = os.pipe()
    os.close(writing)
    failed = "Memory is limited by rlimits: it was not put into its cgroup in time"
    assert entry._limits(spec, reading) == failed  # type: ignore[arg-type]
    assert entry._limits(SimpleNamespace(limits_in_words=""), None) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cpus", "memory_mib", "joined", "emulated", "words"),
    [
        (2, 512, ["cpu", "memory"], True, "CPU and memory are limited by cgroups v2"),
        (2, 512, ["cpu"], True, "CPUs are limited by cgroups v2; memory is limited by rlimits"),
        (None, 512, ["memory"], False, "Memory is limited by cgroups v2"),
        (None, 512, [], True, "Memory is limited by rlimits"),
        (2, None, [], False, f"CPUs are limited by {NONE}"),
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
    made = LocalExecutor(place / "data", "titan_xp:2", preload=("colorsys",), cgroup=PRIVATE)
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
    assert f"CPUs are limited by {NONE}: it was not put into its cgroup in time" in log


def test_a_runner_is_admitted_before_it_is_noted(
    executor: LocalExecutor, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing durably may take its time, and the workers wait."""
    noted: list[RunnerIdentity | None] = []
    layout = executor._layout
    monkeypatch.setattr(admitting.Gate, "admit", lambda *_: noted.append(layout.runner("b" * 32, 1)))
    run(executor, place, "pass", cold=True)
    assert noted == [None]
    assert layout.runner("b" * 32, 1) is not None


@pytest.mark.parametrize("kernel", ["kills", "lists"])
def test_what_is_left_in_a_group_is_ended_by_the_kernel_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    """By `cgroup.kill` with whatever is forked meanwhile; one after the other would miss that."""
    monkeypatch.setattr(cgroups, "REMOVE_TIMEOUT_S", 0.0)
    group = tmp_path / "r.1"
    group.mkdir()
    with subprocess.Popen(["sleep", "600"]) as left:
        (group / "cgroup.procs").write_text(f"0\n{left.pid}\n")
        if kernel == "kills":
            (group / "cgroup.kill").touch()
        Cgroups({"memory": Parent(2, tmp_path)}).remove("r", 1)
        if kernel == "kills":
            assert (group / "cgroup.kill").read_text() == "1"
            assert left.poll() is None
            left.kill()
        assert left.wait(20) == -signal.SIGKILL


CPU = Path("/sys/fs/cgroup/cpu")


@pytest.fixture
def kernels_group() -> Iterator[Path]:
    """A real group: version 1's of processors, where nobody else's limits hold us there."""
    if os.geteuid() != 0 or cgroups.parse_membership(Path("/proc/self/cgroup").read_text()).get("cpu") != "/":
        pytest.skip("no hierarchy of version 1 for processors that is all ours")
    path = CPU / PRIVATE
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


@pytest.fixture
def kernels_memory() -> Iterator[Path]:
    """A real group of version 1 for memory, below our own so that its limits go on to hold."""
    mounts = [mount for mount in cgroups.parse_mounts(Path("/proc/self/mountinfo").read_text()) if mount.version == 1]
    own = cgroups.parse_membership(Path("/proc/self/cgroup").read_text()).get("memory", "/")
    paths = [
        mount.path / os.path.relpath(own, mount.root) / PRIVATE for mount in mounts if "memory" in mount.controllers
    ]
    if os.geteuid() != 0 or not paths:
        pytest.skip("no hierarchy of version 1 for memory, or not root")
    try:
        paths[0].mkdir()
    except OSError as error:
        pytest.skip(f"it cannot be written: {error}")
    yield paths[0]
    paths[0].rmdir()


def test_what_the_kernel_kills_below_a_shell_ran_out_of_memory(kernels_memory: Path, place: Path) -> None:
    executor = LocalExecutor(place / "data", "titan_xp:1", warm_start=False, cgroup=kernels_memory.name)
    greedy = "import mmap; taken = mmap.mmap(-1, 1 << 30); [taken.write(bytes(1 << 20)) for _ in range(1 << 10)]"
    request = make_request(
        argv=(f"python -c '{greedy}'; exit 3",),
        shell=True,
        placement={executor.inventory()[0].name: (0,)},
        memory_mib=128,
    )
    executor.launch(request)
    fact = ended(executor, request.run_id)
    assert fact.exit is not None
    assert (fact.exit.reason, fact.exit.exit_code) == ("out_of_memory", 3)
    assert "the kernel killed a process of the run" in fact.exit.message

"""The executor contract: five calls, idempotent on (run, epoch), and an executor's capabilities.

No call may block for longer than its own stated timeout; each raises ExecutorError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class AcceleratorInfo:
    index: int
    type: str
    uuid: str
    memory_mib: int
    emulated: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """What the engine's other jobs hold of a node. `until`: POSIX seconds of their latest end; None: unknown. `blocks`:
    GPUs that cannot be assigned until then, including those for which they leave too few CPUs or too little memory."""

    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0
    until: float | None = None
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class NodeInfo:
    name: str
    accelerators: tuple[AcceleratorInfo, ...]
    cpus: int
    memory_mib: int
    reachable: bool = True
    #: The engine's word if it cannot tell whether the node is up: running jobs stay, and none starts. Empty: it can.
    unclear: str = ""
    #: Why the engine starts no job there, in its words; None: it does.
    drain_reason: str | None = None
    #: In order of their ends.
    taken: tuple[Taken, ...] = ()
    #: Powered down, or on its way up: a launch there waits about this long for it.
    boot_s: float = 0.0


#: Prefix of `Fact.waits` in that case. The engine decides how long that may take.
POWERING_UP = "waits in Slurm: nodes are powering up"


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of the engine on one launch; None: no such limit. `where`: whose limits these are, in words."""

    where: str = ""
    max_duration_s: float | None = None
    max_nodes: int | None = None
    memory_mib: int | None = None  # of each node
    #: Limits on jobs by account, QOS, partition and user (scheduling.executors.slurm.cluster.limits); JSON.
    table: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Secret:
    """A value for the program alone: as the variable `env`, or in the file `file` of EVENKEEL_SECRETS_DIR. It is
    written to disk only as that file, and removed from every log."""

    name: str
    env: str | None = None
    file: str | None = None
    value: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """A run's checkpoint store (docs/decisions/0015): below `prefix` of an fsspec URL, whose driver's options are sent
    as the secret `evenkeel.store.STORE_SECRET`. `cache_dir` is a local directory of each node, with `%n` for its name,
    of at most `cache_bytes` (0: unlimited); empty: checkpoints are with the job's files. `end_s`: how long a run's end
    may wait for its last upload; `fetch_s`: how long a launch may wait for its checkpoint. `expected_step`: the
    checkpoint that the portal expects. `resume_prefix`: of another job from which the run resumes."""

    url: str
    prefix: str
    keep: int
    cache_dir: str = ""
    cache_bytes: int = 0
    end_s: float = 60.0
    fetch_s: float = 480.0
    expected_step: int = 0
    resume_prefix: str | None = None
    resume_step: int | None = None


@dataclass(frozen=True, slots=True)
class DataEntry:
    """Data that a job reads under `name`: a `path` of the node, or an fsspec `url`, fetched to the node first."""

    name: str
    path: str | None = None
    url: str | None = None
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Data:
    """Options of the drivers, by name, are sent as the secret `evenkeel.store.DATA_SECRET`. `cache_dir` is a local
    directory of each node, with `%n` for its name (empty: none, and URLs are not available); each project has a
    subdirectory of at most `cache_bytes` (0: unlimited). `fetch_s`: time limit of a launch for all of it."""

    entries: tuple[DataEntry, ...]
    project_key: str
    cache_dir: str = ""
    cache_bytes: int = 0
    fetch_s: float = 21_600.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """Work on a project's files outside its runs, under its account: idempotent by (kind, key, attempt).

    kind: `environment` (key: its digest), `git` and `bundle` (key: the job), `artifacts` (key: the run). `options` are
    those of evenkeel.preparation; `source` is a file of the portal that is passed to it.
    """

    kind: str
    key: str
    attempt: int
    project_key: str
    job_id: str
    options: Mapping[str, Any]
    timeout_s: float
    max_bytes: int
    source: str | None = None
    secret: str = field(default="", repr=False)
    account: str = ""  # as in LaunchRequest


@dataclass(frozen=True, slots=True)
class Progress:
    """state: `working`, `done` (with its result in `detail`) or `failed` (with one sentence)."""

    state: str
    message: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: whether it passed, what was seen, and what to do if it failed."""

    subject: str
    ok: bool
    seen: str
    fix: str = ""
    #: False: it cannot be checked on this kind of node; `seen` says so, and it counts as passed.
    known: bool = True
    #: It passed, yet an administrator should do what `fix` says.
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Files and sockets of the portal to which jobs must have no access, and programs, each with its inode and ctime in
    ns, that they must not be able to write."""

    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    programs: tuple[tuple[str, int, int], ...] = ()


NOTHING_KEPT = Kept()


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """A check of one node before it gets work. `min_free_mib`: of the storage that jobs write to."""

    node: str
    api_url: str
    min_free_mib: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything that an executor needs to start one epoch of a run."""

    job_id: str
    job_number: int
    run_id: str
    epoch: int
    project_key: str  # stable short name; the executor maps it to an account
    argv: tuple[str, ...]  # program of one worker; started once per GPU
    shell: bool  # argv[0] is a shell line (the job is a command)
    workdir: str | None
    placement: Mapping[str, tuple[int, ...]]  # node name -> accelerator indexes
    env: Mapping[str, str]
    total_steps: int
    batch_size: int
    checkpoint_every_steps: int
    checkpoint_keep: int
    max_duration_s: float | None
    memory_mib: int | None
    cpus: int | None
    api_url: str
    token: str
    report_interval_s: float
    job_name: str = ""
    #: Seconds, with a margin, for a job that resumes from a checkpoint if its engine ends it sooner; None: unknown.
    expected_s: float | None = None
    #: Long options of sbatch, of the job's project and of its file; the value is empty for options without one.
    sbatch: Mapping[str, str] = field(default_factory=dict)
    sample_interval_s: float = 5.0  # interval at which the runner samples the use of its devices; 0: never
    pace_steps_per_s: float | None = None  # emulated devices: maximum speed
    #: Percent of each of its devices that the run holds: below 100 others may share the device. `pace_steps_per_s` is
    #: for that share.
    gpu_share_percent: int = 100
    #: Memory of each device that it holds; None: no limit of its own.
    gpu_memory_mib: int | None = None
    #: Start in this directory of the code that was prepared for the job ("" is its root); None: no code.
    code_subdir: str | None = None
    #: Key of the prepared environment (see Preparation), and its owner.
    environment: str | None = None
    environment_owner: str | None = None
    #: The site's own software, loaded where the program starts: modules, or an image in which it runs.
    modules: tuple[str, ...] = ()
    image: str | None = None
    secrets: tuple[Secret, ...] = ()
    #: Resume from this checkpoint of another job of the project, unless the job has one of its own.
    resume_job_id: str | None = None
    resume_step: int | None = None
    checkpoint_store: CheckpointStore | None = None
    data: Data | None = None
    #: Earlier attempts of the job, newest first: files of the last one's artifact directory are carried over.
    earlier_run_ids: tuple[str, ...] = ()
    #: The Unix account of the person who submitted it, if jobs run under it; empty otherwise.
    account: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """What an executor observed of (run, epoch).

    kind: `alive` (processes exist), `exited` (all processes are certainly gone; `exit` tells how), `absent` (never
    started here, or forgotten: the GPUs are free).
    """

    run_id: str
    epoch: int
    kind: str
    at: float
    exit: ExitInfo | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    #: It has exited and left reports that the portal has not received: see `Executor.spooled`.
    spooled: bool = False
    #: It is alive, and the engine has not begun it or has suspended it: the reason, in words.
    waits: str = ""
    #: For an exited epoch: when the engine started and ended it, by the engine's clock.
    began_at: float | None = None
    ended_at: float | None = None
    strays: str = ""  # processes that outlived the run and were killed, as a sentence


@dataclass(frozen=True, slots=True)
class Spooled:
    """A report that a runner left behind; None: `dropped` reports were too many, too large or invalid."""

    report: Mapping[str, Any] | None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How an epoch ended.

    reason: `done` (all steps), `stopped` (checkpointed on request), `user_error` (non-zero exit code), `signal` (killed
    by `signal`), `out_of_memory`, `time_limit`, `runner_lost`, `launch_failed`, `not_prepared` (its code or environment
    is unavailable), `data_unavailable` (data that it names is unavailable).
    """

    reason: str
    exit_code: int | None = None
    signal: int | None = None
    step: int | None = None
    message: str = ""
    #: Whether the node caused it, not the program or a person; None: as its reason implies.
    nodes_fault: bool | None = None
    #: The job's own account reports it, or could have caused it (for example by killing its runner): it counts as the
    #: node's fault only once runs of another project fail there too, and uses up the job's retries.
    alleged: bool = False
    #: Retrying changes nothing, whatever its reason.
    permanent: bool = False
    #: The engine's own time limit ended it, not the job's.
    engine_limit: bool = False

    @property
    def is_nodes_fault(self) -> bool:
        return self.reason == "runner_lost" if self.nodes_fault is None else self.nodes_fault

    @property
    def retryable(self) -> bool:
        """A user program's own error is also retried (up to the job's limit); a time limit is not."""
        return not self.permanent and self.reason not in ("done", "stopped", "time_limit", "not_prepared")


@dataclass(frozen=True, slots=True)
class Software:
    """The site's software, from its settings. `container_tool`: runs programs in images; empty: not available."""

    modules: bool = False
    container_tool: str = ""


NO_SOFTWARE = Software()

#: By (run, epoch).
Renewals = Mapping[tuple[str, int], float]
NO_RENEWALS: Renewals = MappingProxyType({})


class Executor(Protocol):
    name: str
    supports_multi_node: bool
    supports_warm_start: bool
    supports_git: bool
    supports_bundles: bool
    supports_environments: bool
    supports_secrets: bool
    supports_artifacts: bool
    supports_sharing: bool
    #: Why no job may be started here at all, as a sentence; None if there is no problem.
    isolation_problem: str | None

    @property
    def supports_containers(self) -> bool:
        """Programs can run in images, according to the site's settings."""

    @property
    def supports_modules(self) -> bool:
        """The site's modules can be loaded, according to its settings."""

    @property
    def single_trust_mode(self) -> bool:
        """Everything runs as one user: a job can read what the portal can."""

    def inventory(self) -> Sequence[NodeInfo]:
        """The present nodes and accelerators."""

    def refresh(self) -> bool:
        """Make the next `inventory` and `observe` ask the engine itself; False: they have just done so."""

    def limits(self) -> EngineLimits:
        """Limits on any launch, as read with the inventory."""

    def site_shares(self) -> Mapping[tuple[str, str], float]:
        """Fair-share factors of the engine, from 0 to 1, by its accounts and users; empty if it has none."""

    def launch(self, request: LaunchRequest) -> None:
        """Start (run, epoch); a repeated call does nothing. Older epochs of the run are certainly killed first."""

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        """Request a checkpoint at the next step, and then the exit of all processes."""

    def kill(self, run_id: str, epoch: int) -> None:
        """Ask the program to end (SIGTERM), and kill it after its grace period. Returns within seconds, perhaps before
        the end: to be called again until `observe` reports `exited` or `absent`, once all processes are gone."""

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        """One Fact for each known (run, epoch); never raises for a single run. `renewed_at`: POSIX seconds at which the
        portal last received a report of each training run: its lease was renewed then at the latest."""

    def spooled(self, run_id: str, epoch: int) -> Iterator[Spooled]:
        """The reports that an exited epoch left behind, oldest first, read lazily: limited in number, bytes and
        seconds, and not for use in rounds."""

    def prepare(self, preparation: Preparation) -> Progress:
        """Start it unless that was done before, and report its progress; returns at once."""

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        """Remove files and directories (`jobs/...`, `environments/...`) of the project; missing ones are not an error.
        Each is tried; then ExecutorError, permanent or, if another call continues, not."""

    def hand_over(self, project_key: str, job_id: str) -> None:
        """Give all files of a job without running processes to its present project; does nothing if that is done
        already, or if the job has no files."""

    def warm_up(self, project_keys: Iterable[str]) -> None:
        """Prepare the next launch of these projects, if that helps; returns at once."""

    def examine(self, api_url: str, kept: Kept = NOTHING_KEPT) -> Iterable[Finding]:
        """Problems that an administrator should fix before jobs run here; may be slow. Jobs on nodes try to access what
        is `kept`, if they have the portal's account."""

    def check_node(self, wish: NodeCheck) -> Sequence[Finding]:
        """Whether jobs can run on a node, by a few real trials that do not disturb running jobs; returns at least one
        finding, within about `timeout_s`. Raises ExecutorError if the engine cannot be asked."""

    def reap_orphans(self, known_live: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """End unknown processes of runs here; returns the (run, epoch) that were ended."""

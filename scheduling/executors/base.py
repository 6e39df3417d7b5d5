"""The executor contract: five calls, idempotent on (run, epoch), and what an executor can do.

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
    """What jobs of the engine that are not the portal's hold of a node. `until`: POSIX seconds at which they end at the
    latest; None: not known. `blocks`: GPUs that nobody can be given until then, those included for which they leave
    too few processors or too little memory."""

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
    #: The engine's word where it cannot say at this moment whether the node is up: what runs there stays, and nothing
    #: new begins. Empty: it can.
    unclear: str = ""
    #: Why the engine starts nothing new there, in its words; None: it does.
    drain_reason: str | None = None
    #: Those first that end first.
    taken: tuple[Taken, ...] = ()
    #: It is powered down, or on its way up: so long a launch that is sent there waits for it, as far as can be said.
    boot_s: float = 0.0


#: What `Fact.waits` begins with where that is so. How long that may take is the engine's to say.
POWERING_UP = "waits in Slurm: nodes are powering up"


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine allows one launch, None: it has no such limit. `where`: whose limits these are, in words."""

    where: str = ""
    max_duration_s: float | None = None
    max_nodes: int | None = None
    memory_mib: int | None = None  # of each node
    #: What bounds jobs by their account, QOS, partition and user (scheduling.executors.slurm.cluster.limits); JSON.
    table: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Secret:
    """A value for the program alone: as the variable `env`, or in the file `file` of EVENKEEL_SECRETS_DIR. It is
    never written to disk but as that file, and removed from every log."""

    name: str
    env: str | None = None
    file: str | None = None
    value: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """Where a run's checkpoints go beside the node (docs/decisions/0015): below `prefix` of an fsspec URL, whose
    driver's options travel as the secret `evenkeel.store.STORE_SECRET`. `cache_dir` is a directory of each node's own,
    with `%n` for its name, of at most `cache_bytes` (0: any number); empty: checkpoints lie with the job's files.
    `end_s`: how long a run's end may wait for its last upload; `fetch_s`: how long a launch may for its checkpoint.
    `expected_step`: the checkpoint that the portal counts on. `resume_prefix`: another job's, to begin with."""

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
    """What a job reads under `name`: a `path` of the node, or an fsspec `url`, fetched to the node first."""

    name: str
    path: str | None = None
    url: str | None = None
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Data:
    """Options of the drivers, by name, travel as the secret `evenkeel.store.DATA_SECRET`. `cache_dir` is a directory of
    each node's own, with `%n` for its name (empty: there is none, and no URL can be had); below it each project has
    one, of at most `cache_bytes` (0: any number). `fetch_s`: how long a launch may take for all of it."""

    entries: tuple[DataEntry, ...]
    project_key: str
    cache_dir: str = ""
    cache_bytes: int = 0
    fetch_s: float = 21_600.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """Work on a project's files beside its runs, by its account: idempotent by (kind, key, attempt).

    kind: `environment` (key: its digest), `git` and `bundle` (key: the job), `artifacts` (key: the run).
    `options` are those of evenkeel.preparation; `source` is a file of the portal's that is handed over.
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
    """state: `working`, `done` (with what came of it in `detail`) or `failed` (with one sentence)."""

    state: str
    message: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined: whether it is as it should be, what was seen, and what to do where it is not."""

    subject: str
    ok: bool
    seen: str
    fix: str = ""
    #: False: it cannot be seen on this kind of node; `seen` says so, and it counts as being as it should.
    known: bool = True
    #: It is as it should be for jobs, yet somebody should do what `fix` says.
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What the portal keeps from jobs: files that none may read, sockets that none may connect to, and programs, each
    with its inode and time of change in ns, that none may write."""

    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    programs: tuple[tuple[str, int, int], ...] = ()


NOTHING_KEPT = Kept()


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """An examination of one node before it gets work. `min_free_mib`: of the storage that jobs write to."""

    node: str
    api_url: str
    min_free_mib: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All that an executor needs to start one epoch of a run."""

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
    #: Seconds, with a margin, of a job that goes on from a checkpoint where its engine ends it sooner; None: not known.
    expected_s: float | None = None
    #: Long options of sbatch, of the job's project and of its file; a value is empty where the option has none.
    sbatch: Mapping[str, str] = field(default_factory=dict)
    sample_interval_s: float = 5.0  # at which the runner reads what the run uses of its devices; 0: never
    pace_steps_per_s: float | None = None  # emulated devices: ceiling on speed
    #: The part of each of its devices that the run holds: below 100 others may run on the same one.
    #: `pace_steps_per_s` is what that part can do.
    gpu_share_percent: int = 100
    #: What it holds of each device's memory; None: no limit of its own.
    gpu_memory_mib: int | None = None
    #: Start in this directory of the code that was prepared for the job ("" is its root); None: there is none.
    code_subdir: str | None = None
    #: Key of the prepared environment (see Preparation), and whose it is.
    environment: str | None = None
    environment_owner: str | None = None
    #: The site's own software, loaded where the program starts: modules, or an image that it runs in.
    modules: tuple[str, ...] = ()
    image: str | None = None
    secrets: tuple[Secret, ...] = ()
    #: Begin at this checkpoint of another job of the project, unless the job has one of its own.
    resume_job_id: str | None = None
    resume_step: int | None = None
    checkpoint_store: CheckpointStore | None = None
    data: Data | None = None
    #: Earlier attempts of the job, newest first: what the last of them left in its artifact directory is there again.
    earlier_run_ids: tuple[str, ...] = ()
    #: The UNIX account of the person who submitted it, where jobs run as that; empty: there is none, or they do not.
    account: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """What an executor saw of (run, epoch).

    kind: `alive` (processes exist), `exited` (all processes are gone for certain; `exit` says how),
    `absent` (never started here, or forgotten: the GPUs are free).
    """

    run_id: str
    epoch: int
    kind: str
    at: float
    exit: ExitInfo | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    #: It has exited and left reports that the portal has not taken: see `Executor.spooled`.
    spooled: bool = False
    #: It is alive, and the engine has not begun it or has suspended it: why, in words.
    waits: str = ""
    #: Of what has exited: when the engine began it and when it ended there, by the engine's clock.
    began_at: float | None = None
    ended_at: float | None = None
    strays: str = ""  # which processes outlived the run and were ended, as a sentence


@dataclass(frozen=True, slots=True)
class Spooled:
    """A report that a runner left behind; None: so many are `dropped`, being too many, too large or no reports."""

    report: Mapping[str, Any] | None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How an epoch ended.

    reason: `done` (all steps), `stopped` (checkpointed as told), `user_error` (non-zero exit code),
    `signal` (killed by `signal`), `out_of_memory`, `time_limit`, `runner_lost`, `launch_failed`,
    `not_prepared` (its code or environment cannot be had), `data_unavailable` (data that it names cannot be had).
    """

    reason: str
    exit_code: int | None = None
    signal: int | None = None
    step: int | None = None
    message: str = ""
    #: Whether the node, and neither the program nor somebody, brought it about; None: as its reason says.
    nodes_fault: bool | None = None
    #: The job's own account says so, or could have brought it about (by killing its runner, say): it counts as the
    #: node's fault only once runs of another project fail there too, and uses up the job's retries.
    alleged: bool = False
    #: Trying again changes nothing, whatever its reason.
    permanent: bool = False
    #: The engine's own time limit ended it, not the job's.
    engine_limit: bool = False

    @property
    def is_nodes_fault(self) -> bool:
        return self.reason == "runner_lost" if self.nodes_fault is None else self.nodes_fault

    @property
    def retryable(self) -> bool:
        """A user program's own error is retried too (up to the job's limit); a time limit is not."""
        return not self.permanent and self.reason not in ("done", "stopped", "time_limit", "not_prepared")


@dataclass(frozen=True, slots=True)
class Software:
    """The site's own, as its settings have it. `container_tool`: runs programs in images; empty: nothing does."""

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
    #: Why no job may be started here at all, as a sentence; None where all is well.
    isolation_problem: str | None

    @property
    def supports_containers(self) -> bool:
        """Programs run in images, as the site has said that its nodes can."""

    @property
    def supports_modules(self) -> bool:
        """The site's modules are loaded, as it has said that its nodes can."""

    @property
    def single_trust_mode(self) -> bool:
        """Everything runs as one user: a job can read what the portal can."""

    def inventory(self) -> Sequence[NodeInfo]:
        """The nodes and accelerators there are now."""

    def look_anew(self) -> bool:
        """Have the next `inventory` and `observe` ask the engine itself; False: they have done so just now."""

    def limits(self) -> EngineLimits:
        """What it allows any launch, as far as it was asked for the inventory."""

    def site_shares(self) -> Mapping[tuple[str, str], float]:
        """Fair-share factors of the engine's own, from 0 to 1, by account and user there; empty where it has none."""

    def launch(self, request: LaunchRequest) -> None:
        """Start (run, epoch); a second call for the same pair does nothing. Older epochs of the run
        are killed for certain first."""

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        """Ask for a checkpoint at the next step, then for all processes to leave."""

    def kill(self, run_id: str, epoch: int) -> None:
        """Ask the program to end (SIGTERM), and end it for certain after its grace. Returns within seconds, perhaps
        before: to be called again until `observe` reports `exited` or `absent`, once all processes are gone."""

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        """One Fact for each known (run, epoch); never raises for a single run. `renewed_at`: POSIX seconds at which
        the portal last took a report of it in, of those that train: nothing renewed its lease later."""

    def spooled(self, run_id: str, epoch: int) -> Iterator[Spooled]:
        """The reports that an epoch which has exited left behind, oldest first, each read as it is asked for: bounded
        in number, bytes and seconds, and not for rounds."""

    def prepare(self, preparation: Preparation) -> Progress:
        """Begin it unless that was done before, and say how far it is; returns at once."""

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        """Remove files and directories (`jobs/...`, `environments/...`) that belong to the project; what is not
        there is no error. Each is tried; then ExecutorError, for good or, where another call continues, not."""

    def hand_over(self, project_key: str, job_id: str) -> None:
        """Give all files of a job, of which nothing runs, to the project that it belongs to by now; does nothing
        where that is so already, or where the job has no files."""

    def warm_up(self, project_keys: Iterable[str]) -> None:
        """Prepare the next launch of these projects, where that helps; returns at once."""

    def examine(self, api_url: str, kept: Kept = NOTHING_KEPT) -> Iterable[Finding]:
        """What an administrator should know, and put right, before jobs run here; takes as long as it takes. Jobs on
        nodes try to reach what is `kept`, where they have the portal's account."""

    def check_node(self, wish: NodeCheck) -> Sequence[Finding]:
        """Whether jobs can run on a node, by a few real trials that leave alone what runs there; at least one finding.
        Answers within `timeout_s`, give or take what ending a child process takes. Raises ExecutorError where the
        engine cannot be asked."""

    def reap_orphans(self, known_live: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """End whatever runs here without being known; the (run, epoch) that were ended."""

"""Runs each job in Slurm under the account of the person who submitted it (docs/decisions/0030)."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evenkeel.runner.files import exists, read_object
from evenkeel.runner.reports import write_atomically

from scheduling.errors import ExecutorError
from scheduling.executors.base import (
    NO_RENEWALS,
    NOTHING_KEPT,
    Fact,
    Finding,
    Kept,
    LaunchRequest,
    Preparation,
    Progress,
    Renewals,
    Spooled,
)
from scheduling.executors.local.layout import RunRecord, checked_name
from scheduling.executors.slurm.agents import HELPER, Link, RunAs
from scheduling.executors.slurm.as_person import (
    LAUNCH,
    PREPARATION,
    facts_of,
    plain_queue,
    progress_of,
    spooled_of,
)
from scheduling.executors.slurm.checks import examining_people
from scheduling.executors.slurm.commands import QUEUE_FORMAT, Commands, SlurmJob, jobs_in
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.names import PREFIX, parse_launch
from scheduling.executors.slurm.remembering import is_in_motion
from scheduling.executors.slurm.seeing import Seen

log = logging.getLogger(__name__)

#: One more than the time limit of the agent's own commands.
ASK_S, LAUNCH_S, KILL_S = 45.0, 150.0, 75.0
STAGE_S = 600.0
MOST_AT_ONCE = 8
MAX_JOB_NUMBER = 2**32
PRIVATE_S = 600.0  # how long Slurm's PrivateData is cached
FORGOTTEN_S = 86_400.0
MARK_BYTES = 16
#: Files of jobs may disappear without notice.
IN_USE_S = 60.0
#: Jobs by account and name.
Queues = Mapping[str, Mapping[str, Sequence[SlurmJob]]]
NO_ACCOUNT = (
    "the person who submitted it has no UNIX account here: an administrator sets one on the page People "
    "(`evenkeel people account EMAIL NAME`)"
)
NO_ENVIRONMENTS = (
    "environments are not built where jobs run as each person's account: submit it again with a virtual environment of "
    "your own, code with the nodes' packages, modules or an image"
)


class PersonSlurmExecutor(SlurmExecutor):
    """Nodes, and the owners of runs, are known here; everything that touches a job is done by the agent of its
    account."""

    single_trust_mode = False
    supports_environments = False  # an environment built by one person would run as another

    def __init__(
        self,
        shared_dir: str | Path,
        *,
        run_as: str = "person",
        helper: str = HELPER,
        section: str = "default",
        min_uid: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__(shared_dir, **options)
        self._run_as, self._min_uid = RunAs(helper, section), min_uid
        self._settings = {**options, "software": asdict(self._options.software)}
        self._private: tuple[float, bool] | None = None
        self._known_mark = ""
        self._in_use: tuple[int, float, list[str]] | None = None
        self._links: dict[str, Link] = {}
        self._own_name = pwd.getpwuid(os.geteuid()).pw_name
        open_to_people(self._layout.jobs)

    # The executor contract

    def launch(self, request: LaunchRequest) -> None:
        account = self._account(request.account)
        record = RunRecord(checked_name(request.run_id), checked_name(request.job_id), account.pw_uid)
        with self._layout.locked(record.run_id):
            if self._layout.called_off(record.run_id, request.epoch):
                return
            self._layout.remember(record)
            self._layout.begin(record.run_id, request.epoch)
        wanted: dict[str, Any] = {"request": LAUNCH.dump_python(request, mode="json"), "ours": sorted(self._our_jobs())}
        number = self._link(account.pw_name).ask("launch", LAUNCH_S, **wanted)
        if type(number) is int and 0 < number < MAX_JOB_NUMBER:
            self._notes.write(record.run_id, request.epoch, number)

    def checkpoint_and_stop(self, run_id: str, epoch: int) -> None:
        if link := self._begun(run_id, epoch):
            self._notes.kill_mark(run_id, epoch).touch(mode=0o600)  # it is observed in each round from now on
            link.ask("stop", ASK_S, run_id=run_id, epoch=epoch)

    def kill(self, run_id: str, epoch: int) -> None:
        if link := self._begun(run_id, epoch):
            self._notes.kill_mark(run_id, epoch).touch(mode=0o600)
            link.ask("kill", KILL_S, run_id=run_id, epoch=epoch)

    def observe(self, known: Sequence[tuple[str, int]], renewed_at: Renewals = NO_RENEWALS) -> Sequence[Fact]:
        if not known:
            return []
        of_account: dict[str, list[tuple[str, int]]] = {}
        found: dict[tuple[str, int], Fact] = {}
        for pair in known:
            try:
                name = self._name_of(pair[0])
            except ExecutorError as error:
                log.warning("run %s: %s", pair[0], error)
                found[pair] = Fact(*pair, "alive", time.time())
                continue
            if name is None:
                found[pair] = Fact(*pair, "absent", time.time())
            else:
                of_account.setdefault(name, []).append(pair)
        queues, at = self._queues(of_account, 0.0 if self._moves(known) else None)
        with ThreadPoolExecutor(min(MOST_AT_ONCE, len(of_account) or 1)) as pool:
            looks = {
                name: pool.submit(
                    self._observe_as, name, pairs, renewed_at, None if queues is None else queues.get(name, {}), at
                )
                for name, pairs in of_account.items()
            }
            for look in looks.values():
                found |= look.result()
        return [found[pair] for pair in known]

    def spooled(self, run_id: str, epoch: int) -> Iterator[Spooled]:
        link, first = self._link_of(run_id), True
        while link is not None:
            answer = link.ask("spooled", ASK_S, run_id=run_id, epoch=epoch, first=first)
            report, first = spooled_of(answer), False
            if report is None:
                return
            yield report

    def prepare(self, preparation: Preparation) -> Progress:
        if preparation.kind == "environment":  # of a job from before jobs ran as people
            raise ExecutorError(NO_ENVIRONMENTS, permanent=True)
        owner = self._owner(preparation.job_id)
        link = self._link(owner or self._account(preparation.account).pw_name)
        source = Path(preparation.source) if preparation.source else None
        wanted: dict[str, Any] = {
            "preparation": {**PREPARATION.dump_python(preparation, mode="json"), "source": None},
            "has_source": source is not None,
        }
        answer = link.ask("prepare", ASK_S, **wanted)
        if answer is None and source is not None:
            size = source.stat().st_size
            link.ask("stage", STAGE_S, source=source, kind=preparation.kind, key=preparation.key, size=size)
            answer = link.ask("prepare", ASK_S, **wanted)
        return progress_of(answer)

    def discard(self, project_key: str, paths: Iterable[str]) -> None:
        """Environments are not built here; files of jobs are removed under their owner's account."""
        of_account: dict[str, list[str]] = {}
        for path in paths:
            top, _, rest = path.partition("/")
            owner = self._owner(rest.partition("/")[0]) if top == "jobs" else None
            if owner is not None:
                of_account.setdefault(owner, []).append(path)
        for account, theirs in of_account.items():
            self._link(account).ask("discard", ASK_S, project_key=project_key, paths=theirs)

    def reap_orphans(self, known_live: Iterable[tuple[str, int]], min_age_s: float = 60.0) -> list[tuple[str, int]]:
        known, reaped = [[run_id, epoch] for run_id, epoch in known_live], []
        if not (accounts := self._accounts_in_use()):
            return []
        queues, at = self._queues(accounts)
        for account in accounts:
            queue = None if queues is None else plain_queue(queues.get(account, {}))
            try:
                ended = self._link(account).ask("reap", KILL_S, known=known, min_age_s=min_age_s, queue=queue, at=at)
                reaped += [(str(run_id), int(epoch)) for run_id, epoch in ended]
            except (ExecutorError, TypeError, ValueError) as error:
                log.warning("looking for orphans of %s: %s", account, error)
        return reaped

    def examine(self, api_url: str, kept: Kept = NOTHING_KEPT) -> Iterable[Finding]:
        """No person's job has the portal's account, so access to `kept` is not checked."""
        yield from super().examine(api_url)
        yield from examining_people.examine(self._run_as, self._layout, self._settings)

    # Accounts

    def _accounts_in_use(self) -> list[str]:
        """Of runs with files: looked up after changes, and now and then."""
        noted_at = self._layout.own.stat().st_mtime_ns
        if self._in_use is None or self._in_use[0] != noted_at or time.monotonic() > self._in_use[1]:
            self._in_use = noted_at, time.monotonic() + IN_USE_S, self._look_up_accounts()
        return self._in_use[2]

    def _look_up_accounts(self) -> list[str]:
        """A run without files for a day is forgotten: a launch may be under way."""
        names = set()
        for path in self._layout.own.glob("*.json"):
            with contextlib.suppress(ExecutorError, OSError, ValueError, KeyError):
                record = self._layout.record(path.stem)
                if record is None:
                    continue
                if exists(self._layout.job_dir(record.job_id)):
                    names.add(_name(record.uid))
                elif time.time() - path.stat().st_mtime > FORGOTTEN_S:
                    for note in self._layout.own.glob(f"{record.run_id}.*"):
                        note.unlink(missing_ok=True)
        return sorted(name for name in names if name)

    def _account(self, name: str) -> pwd.struct_passwd:
        if not name:
            raise ExecutorError(NO_ACCOUNT, permanent=True)
        try:
            found = pwd.getpwnam(name)
        except (KeyError, ValueError):
            raise ExecutorError(
                f"the account {name!r} does not exist on the portal's machine", permanent=True
            ) from None
        if found.pw_uid < self._min_uid or found.pw_uid == os.geteuid():
            raise ExecutorError(f"{name} is no account of a person's: its uid is {found.pw_uid}", permanent=True)
        return found

    def _link(self, account: str) -> Link:
        return self._links.setdefault(account, Link(account, self._run_as, self._settings))

    def _owner(self, job_id: str) -> str | None:
        """The owner of the job's files: only that account can have created its directory."""
        try:
            found = os.lstat(self._layout.job_dir(job_id))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid < self._min_uid:
            raise ExecutorError(f"the files of job {job_id} belong to no person", permanent=True)
        return _name(found.st_uid)

    def _name_of(self, run_id: str) -> str | None:
        try:
            record = self._layout.record(run_id)
        except ExecutorError:
            return None
        return _name(record.uid) if record else None

    def _link_of(self, run_id: str) -> Link | None:
        name = self._name_of(run_id)
        return self._link(name) if name else None

    def _begun(self, run_id: str, epoch: int) -> Link | None:
        """None if the launch has not arrived yet: then it must not happen any more."""
        with self._layout.locked(run_id):
            if not self._layout.begun(run_id, epoch):
                self._layout.call_off(run_id, epoch)
                return None
        return self._link_of(run_id)

    # Observing

    def _moves(self, known: Sequence[tuple[str, int]]) -> bool:
        """One of these was launched or asked to end recently: Slurm's last answer does not suffice."""
        places = ((launch, self._place_of(*launch)) for launch in known)
        return any(place is None or is_in_motion(self._notes, place, *launch) for launch, place in places)

    def _mark(self) -> str:
        """Unguessable, and equal in all processes of the portal, so that they share answers."""
        file = self._layout.own / "queue.mark"
        if not self._known_mark:
            known = (read_object(file) or {}).get("mark")
            if not isinstance(known, str) or len(known) != 2 * MARK_BYTES:
                known = secrets.token_hex(MARK_BYTES)
                write_atomically(file, {"mark": known})
            self._known_mark = known
        return self._known_mark

    def _queues(self, accounts: Iterable[str], oldest_s: float | None = None) -> tuple[Queues | None, float]:
        """All our jobs by account, from one call at most `oldest_s` old, and its time; None if Slurm shows each account
        only its own, so that agents call it themselves."""
        now = time.time()
        if not (accounts := set(accounts)):
            return {}, now
        if self._shows_own_jobs_only():
            return None, now
        commands = self._commands.recalling(oldest_s)
        found = self._ask(accounts, commands)
        return found, commands.asked_at or now

    def _ask(self, accounts: Set[str], commands: Commands) -> dict[str, dict[str, list[SlurmJob]]]:
        """By account and launch, including the portal's own account. All calls name the same accounts, and so share
        one answer. A name may contain a line end: only lines that begin with an unguessable word are accepted."""
        mark, names = self._mark(), ",".join(sorted({self._own_name, *accounts, *self._accounts_in_use()}))
        which = ("--noheader", "--local", "--states=all", f"--user={names}")
        lines: dict[str, list[str]] = {}
        for line in commands.run("squeue", *which, f"--format={mark}|%u|{QUEUE_FORMAT}").splitlines():
            begins, _, rest = line.partition("|")
            user, _, job = rest.partition("|")
            if begins == mark:
                lines.setdefault(user, []).append(job)
        return {user: jobs_in("\n".join(jobs), PREFIX) for user, jobs in lines.items()}

    def _our_jobs(self) -> set[int]:
        found = set[int]()
        for account, queue in self._ask(set(), self._commands.recalling(0.0)).items():
            found |= self._begun_here({name: jobs for name, jobs in queue.items() if self._may_be(name, account)})
        return found

    def _may_be(self, name: str, account: str) -> bool:
        """Another person's job is never one of these launches, whatever it claims. The portal's own account has node
        checks, and launches from before jobs ran as people."""
        launch = parse_launch(name)
        return launch is None or account == self._own_name or self._name_of(launch[0]) == account

    def _shows_own_jobs_only(self) -> bool:
        if self._private is None or time.monotonic() > self._private[0] + PRIVATE_S:
            _, config = self._commands.recalling_settings().partitions()
            private = re.search(r"^PrivateData\s*=\s*(.*)$", config, re.MULTILINE)
            self._private = time.monotonic(), "jobs" in (private[1].lower() if private else "")
        return self._private[1]

    def _observe_as(
        self,
        account: str,
        pairs: Sequence[tuple[str, int]],
        renewed_at: Renewals,
        queue: Mapping[str, Sequence[SlurmJob]] | None,
        at: float,
    ) -> dict[tuple[str, int], Fact]:
        """If the agent cannot be asked they count as running: nothing is certain."""
        wanted: dict[str, Any] = {"known": pairs, "renewed": [renewed_at.get(pair) for pair in pairs]}
        try:
            plain = None if queue is None else plain_queue(queue)
            answer = self._link(account).ask("observe", ASK_S, queue=plain, at=at, **wanted)
            facts = facts_of(answer, pairs)
        except ExecutorError as error:
            log.warning("looking at %s runs of %s: %s", len(pairs), account, error)
            return {pair: Fact(*pair, "alive", at) for pair in pairs}
        seen = Seen(at, queue or {}, self._notes)
        return {(fact.run_id, fact.epoch): self._believed(fact, seen) for fact in facts}

    def _jobs_of(self, fact: Fact, seen: Seen) -> Sequence[SlurmJob]:
        """By the launch's id, even if its owner has changed comment and name; otherwise by these."""
        number = self._notes.job_id(fact.run_id, fact.epoch)
        noted = [job for jobs in seen.jobs.values() for job in jobs if job.leading_id == number]
        return noted or seen.of(fact.run_id, fact.epoch)

    def _believed(self, fact: Fact, seen: Seen) -> Fact:
        """Rejects the end of a job that Slurm reports as running on responding nodes: its GPUs are not free. Its times
        come from Slurm."""
        if fact.kind == "alive":
            return fact
        jobs = self._jobs_of(fact, seen)
        running = [job for job in jobs if not job.over and not job.pending]
        if running and not any(self._on_lost_node(job) for job in running):
            log.warning("run %s epoch %s: %s by its agent, running in Slurm", fact.run_id, fact.epoch, fact.kind)
            return Fact(fact.run_id, fact.epoch, "alive", fact.at)
        began = [job.started_at for job in jobs if job.over and job.started_at is not None]
        ended = [job.ended_at for job in jobs if job.over and job.ended_at is not None]
        if not (began and ended):
            return fact
        times = min(began), max(ended)
        if times[1] - times[0] < 1.0:  # like a job that Slurm queued again, and that was cancelled before its next part
            first = self._first_part(fact.run_id, fact.epoch)
            times = (first[0], first[1]) if first[0] is not None and first[1] is not None else times
        return replace(fact, began_at=times[0], ended_at=times[1])


def _name(uid: int | None) -> str | None:
    if uid is None:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise ExecutorError(f"the account {uid} does not exist any more", permanent=False) from None


def open_to_people(jobs: Path) -> None:
    """Each account creates the directories of its own jobs there, and cannot list others'. They inherit our group, or
    the directory's default ACL if it has one: so only we can read their contents."""
    try:
        by_acl = "system.posix_acl_default" in os.listxattr(jobs)
    except OSError:
        by_acl = False
    jobs.chmod(0o1733 if by_acl else 0o3733)

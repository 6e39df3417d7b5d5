"""The steps of `manage.py up`, one line each."""

import io
import json
import logging
import logging.handlers
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connections

from portal.cluster.engine_isolation import job_accounts, refusals
from portal.config.engines import Engine
from portal.config.environment_notes import environment_notes
from portal.config.layout import Layout
from portal.config.service_account import service_account
from portal.config.setup_errors import SetupError
from portal.core.job_log import json_lines
from portal.database.base import close_idle
from portal.jobs.clusters import environment_engine, shares_its_host
from portal.supervisor.child import Child
from portal.supervisor.postgres import Postgres
from portal.supervisor.supervisor import Server, Supervisor
from portal.supervisor.valkey import Valkey
from portal.web.listening import CannotListen, listen
from scheduling.errors import ExecutorError
from scheduling.executors.accounts import claim_accounts

logger = logging.getLogger("evenkeel.supervisor")

READY_TIMEOUT_S = 90
QUEUES = "rounds,live,celery"
PROCESSES = 4
#: A project's processes may occupy four of them (PROJECT_SLOTS), so that others' commands find one.
COMMAND_PROCESSES = 8
#: For each further cluster: a round, and two commands may wait for an engine that does not answer (ENGINE_SLOTS).
PROCESSES_PER_CLUSTER, COMMAND_PROCESSES_PER_CLUSTER = 1, 2
#: Everything else precedes expected starts.
FORECASTS_NICE = 15
#: Shadow evaluations are never urgent.
SHADOW_NICE = 10
#: Simulations use two cores for minutes: rounds and pages precede them.
LAB_NICE = 10


@dataclass(frozen=True)
class Administrator:
    email: str
    password: str | None  # None: created earlier


class ControlPlane:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def start(self, supervisor: Supervisor) -> None:
        began = time.monotonic()
        logger.info("Evenkeel %s, data in %s", settings.VERSION, self._layout.data)
        for note in environment_notes():
            logger.warning("%s", note)
        servers = service_account().uid
        if servers is not None:
            logger.info("As root: embedded servers run as account %d.", servers)
        children = self._children()
        for child in children:
            if child.clear_leftovers():
                logger.info("Stopped the %s process of an earlier supervisor.", child.name)
        check_port(settings.EVENKEEL_HOST, settings.EVENKEEL_PORT)
        engines = list(settings.EVENKEEL_CLUSTERS.values()) or [environment_engine()]
        check_accounts(engines)
        for line in job_accounts(engines):
            logger.info(line)
        self._bring_up(supervisor, Postgres(self._layout), settings.EXTERNAL_DATABASE_URL)
        self._bring_up(supervisor, Valkey(self._layout), settings.EXTERNAL_REDIS_URL)
        administrator = self._prepare_database()
        for child in children:
            supervisor.launch(child)
        supervisor.wait_for(children[0], web_is_ready, READY_TIMEOUT_S)
        logger.info("Ready after %.1f s: %s", time.monotonic() - began, settings.EVENKEEL_API_URL)
        here = any(engine.executor == "local" and not engine.emulated for engine in engines)
        if here and not Path("/dev/nvidiactl").exists():
            logger.info("No GPU here; EVENKEEL_VIRTUAL_ACCELERATORS=titan_xp:6 declares virtual ones.")
        if any(shares_its_host(engine.executor) for engine in engines):
            logger.warning(
                "No HTTPS name of its own: a page that a job serves on this machine can take your session. "
                "`manage.py doctor` says what to do."
            )
        _print_welcome(administrator)

    def _bring_up(self, supervisor: Supervisor, server: Server, external_url: str) -> None:
        if external_url:
            logger.info("%-11s external, at %s", server.name, urlsplit(external_url).hostname or "a socket")
        else:
            logger.info("%-11s %s", server.name, supervisor.bring_up(server))

    def _prepare_database(self) -> Administrator:
        began = time.monotonic()
        answer = io.StringIO()
        try:
            call_command("migrate", interactive=False, verbosity=0)
            call_command("bootstrap", admin_email=settings.EVENKEEL_ADMIN_EMAIL, print_json=True, stdout=answer)
        except CommandError as error:
            raise SetupError(str(error)) from error
        except DatabaseError as error:
            raise SetupError(f"The database cannot be prepared: {str(error).strip().splitlines()[0]}") from error
        finally:
            connections.close_all()
            close_idle()
        account = json.loads(answer.getvalue().strip().splitlines()[-1])
        logger.info("%-11s prepared in %.1f s", "Database", time.monotonic() - began)
        return Administrator(account["email"], account.get("password"))

    def _children(self) -> list[Child]:
        python, celery = sys.executable, [sys.executable, "-m", "celery", "-A", "portal.celery"]
        further = max(0, len(settings.EVENKEEL_CLUSTERS) - 1)
        processes = str(PROCESSES + PROCESSES_PER_CLUSTER * further)
        worker = ["worker", "-Q", QUEUES, "--concurrency", processes, "--loglevel", "INFO", "--without-gossip"]
        processes = str(COMMAND_PROCESSES + COMMAND_PROCESSES_PER_CLUSTER * further)
        commands = ["worker", "-Q", "commands", "--concurrency", processes, "--hostname", "commands@%h"]
        commands += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
        # Expected starts have a separate process, behind all others: they may take a second of a core.
        forecasts = ["worker", "-Q", "forecasts", "--pool", "solo", "--hostname", "forecasts@%h", "--loglevel", "INFO"]
        forecasts += ["--without-gossip", "--without-mingle"]
        lab = ["worker", "-Q", "lab", "--pool", "solo", "--hostname", "lab@%h", "--loglevel", "INFO"]
        lab += ["--without-gossip", "--without-mingle"]
        # Planning happens in a child process, so that a plan that takes too long can be killed.
        shadow = ["worker", "-Q", "shadow", "--concurrency", "1", "--hostname", "shadow@%h", "--loglevel", "INFO"]
        shadow += ["--without-gossip", "--without-mingle"]
        schedule = str(self._layout.run / "beat-schedule")
        return [
            self._child("web", [python, "-m", "portal.web"], EVENKEEL_DB_POOL="8"),
            self._child("worker", [*celery, *worker, "--without-mingle"], EVENKEEL_DB_POOL="1"),  # of each process
            self._child("commands", [*celery, *commands], EVENKEEL_DB_POOL="1"),
            self._child("forecasts", [*celery, *forecasts], nice=FORECASTS_NICE),
            self._child("lab", [*celery, *lab], nice=LAB_NICE),
            self._child("shadow", [*celery, *shadow], nice=SHADOW_NICE),
            self._child("beat", [*celery, "beat", "--schedule", schedule, "--pidfile", "", "--loglevel", "INFO"]),
        ]

    def _child(self, name: str, command: list[str], nice: int = 0, **defaults: str) -> Child:
        shared = {key: value for key, value in os.environ.items() if key != "EVENKEEL_DB_POOL" or key in defaults}
        env = {**defaults, **shared, "EVENKEEL_DATA": str(self._layout.data), "PYTHONUNBUFFERED": "1"}
        env.pop("EVENKEEL_OWNER_DATABASE_URL", None)  # only for the start
        layout = self._layout
        return Child(name, command, env=env, cwd=settings.BASE_DIR, run=layout.run, logs=layout.logs, nice=nice)


def _print_welcome(administrator: Administrator) -> None:
    if administrator.password is None:
        logger.info("Sign in as %s with the password you have.", administrator.email)
        return
    sentence = "Sign in as %s with the password %s (shown only now; `manage.py changepassword` sets another)."
    logger.info(sentence, administrator.email, administrator.password, extra={"secret": True})


def check_port(host: str, port: int) -> None:
    try:
        for one in listen(host, port):
            one.close()
    except CannotListen as error:
        raise SetupError(str(error)) from error


def check_engines() -> None:
    """Raises SetupError if jobs of an engine could gain the portal's rights, or root."""
    clusters: dict[str, Engine] = settings.EVENKEEL_CLUSTERS
    for name, engine in clusters.items() or (("", environment_engine()),):
        for refusal in refusals(engine):
            raise SetupError(f"EVENKEEL_CLUSTERS: cluster {name!r}: {refusal}" if name else refusal)


def check_accounts(engines: Iterable[Engine]) -> None:
    """Raises SetupError if the accounts of this data directory's jobs belong to another portal."""
    for engine in engines:
        if engine.executor == "local":
            try:
                claim_accounts(engine.options)
            except ExecutorError as error:
                raise SetupError(str(error)) from error


def web_is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"{settings.LOCAL_URL}/readyz", timeout=2) as answer:  # noqa: S310  # nosec B310
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def serve(when_ready: Callable[[Supervisor], None] | None = None, *, interrupted: int = 0) -> int:
    """Run the portal until it is stopped; returns the exit status."""
    layout = Layout(settings.EVENKEEL_DATA)

    def start(supervisor: Supervisor) -> None:
        ControlPlane(layout).start(supervisor)
        if when_ready is not None:
            when_ready(supervisor)

    try:
        check_engines()  # before root creates anything
        layout.prepare()
        _log_to_terminal(layout)
        return Supervisor(layout).run(start, interrupted=interrupted)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1


class PrivateLog(logging.handlers.RotatingFileHandler):
    """Readable by its owner only, also after rotation."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", opener=_opened_privately)


def _opened_privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage()


def _log_to_terminal(layout: Layout) -> None:
    """The supervisor's lines go to the terminal and, with the time, to its log."""
    terminal = logging.StreamHandler(sys.stdout)
    terminal.setFormatter(_OneLine())
    log = PrivateLog(layout.logs / "supervisor.log", maxBytes=10**7, backupCount=3)
    log.addFilter(lambda record: not hasattr(record, "secret"))
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    log.setFormatter(json_lines() if settings.EVENKEEL_LOG_FORMAT == "json" else text)
    logger.propagate = False
    logger.handlers = [terminal, log]
    logger.setLevel(logging.INFO)

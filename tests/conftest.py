"""One real PostgreSQL and one real Valkey for the session, started when the first test needs them."""

import os
import random
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from portal.config.layout import Layout
from portal.supervisor.postgres import Postgres
from portal.supervisor.valkey import Valkey

WHOLE_PORTALS = {"browser", "client", "docs", "flows", "supervisor"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, metavar="N", help="of the chosen tests N only, others for each commit")
    parser.addoption("--sample-files", type=int, metavar="N", help="the same, of files with all their chosen tests")


def _sample(items: list[pytest.Item], config: pytest.Config) -> set[object]:
    """Tests, or files whole: their tests share one portal."""
    files = config.getoption("--sample-files")
    units = list(dict.fromkeys(item.path for item in items)) if files else items
    size = files or config.getoption("--sample")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    return set(random.Random(commit).sample(units, min(size, len(units))))


def _spread(items: list[pytest.Item]) -> None:
    """Files whose tests start whole portals among the others, so that few run at once, and none at the very end."""
    files = list(dict.fromkeys(item.path for item in items))
    whole = [path for path in files if path.parent.name in WHOLE_PORTALS]
    others = [path for path in files if path not in whole]
    place = {path: 0.8 * i / len(whole) for i, path in enumerate(whole)}
    place |= {path: i / len(others) for i, path in enumerate(others)}
    items.sort(key=lambda item: place[item.path])


@pytest.hookimpl(trylast=True)  # after `-m`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _spread(items)
    if not (config.getoption("--sample-files") or config.getoption("--sample")):
        return
    chosen = _sample(items, config)
    left_out = [item for item in items if item not in chosen and item.path not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item in chosen or item.path in chosen]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What is logged of hostile input may have half characters, with which no worker can send its report."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def embedded_services() -> Iterator[Layout]:
    layout = Layout(Path(os.environ["EVENKEEL_TEST_SESSION"]))
    layout.prepare()
    servers: list[Postgres | Valkey] = [Postgres(layout, durable=False), Valkey(layout)]
    for server in servers:
        server.start()
    yield layout
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(embedded_services: Layout) -> None:
    """pytest-django asks for this before it creates the test database."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Tests with transactions of their own empty all tables afterwards, which the audit log refuses."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_no_truncate")


def pytest_unconfigure(config: pytest.Config) -> None:
    data = os.environ.get("EVENKEEL_TEST_SESSION", "")
    if "evenkeel-test-" in data:
        shutil.rmtree(data, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long a portal took to recover from what tests/flows/test_chaos.py killed, and what every executor takes for
    the course of a launch."""
    done = [report for reports in terminalreporter.stats.values() for report in reports]
    called = [report for report in done if getattr(report, "when", "") == "call"]
    recorded = [pair for report in called for pair in report.user_properties]
    if recoveries := [value for name, value in recorded if name == "recovery"]:
        terminalreporter.section("recovery")
        for target, moment, seconds in recoveries:
            terminalreporter.write_line(f"{target:16}{moment:32}{seconds:6.1f} s")
    if courses := [value for name, value in recorded if name == "course"]:
        terminalreporter.section("from launch to first step, from stop to free")
        for executor, nodes, first_step_s, free_s in sorted(map(tuple, courses)):
            where = "one node" if nodes == 1 else f"{nodes} nodes"
            terminalreporter.write_line(f"{executor:8}{where:12}{first_step_s:6.1f} s{free_s:6.1f} s")

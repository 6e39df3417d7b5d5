"""What every executor must say of its nodes when they are examined."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import Executor, Finding, NodeCheck
from tests.executors.contract import Requests, ended, reason

CHECK_TIMEOUT_S = 60.0


class _Portal(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def api_url() -> Iterator[str]:
    """Somebody answers there."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Portal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def examined(executor: Executor, api_url: str, node: str | None = None, free_mib: int = 1) -> dict[str, Finding]:
    wish = NodeCheck(node or executor.inventory()[0].name, api_url, free_mib, CHECK_TIMEOUT_S)
    found = executor.check_node(wish)
    assert len({finding.subject for finding in found}) == len(found)
    assert all(finding.seen for finding in found)
    assert all(finding.fix for finding in found if not finding.ok)
    return {finding.subject: finding for finding in found}


def wrong(found: dict[str, Finding]) -> set[str]:
    return {subject for subject, finding in found.items() if not finding.ok}


class ChecksContract(Requests):
    def test_a_sound_node_passes_its_check(self, executor: Executor, api_url: str) -> None:
        found = examined(executor, api_url)
        assert wrong(found) == set(), found
        assert any(finding.known for finding in found.values())
        assert "free space" in found

    def test_too_little_space_for_jobs_fails_it(self, executor: Executor, api_url: str) -> None:
        found = examined(executor, api_url, free_mib=10**9)
        assert wrong(found) == {"free space"}
        assert "at least 1,000,000,000" in found["free space"].seen

    def test_a_node_that_is_not_there_fails_it(self, executor: Executor, api_url: str) -> None:
        assert wrong(examined(executor, api_url, node="no-such-node"))

    def test_it_leaves_alone_what_runs_there(
        self, executor: Executor, request_for: Any, place: Path, api_url: str
    ) -> None:
        request = request_for()
        executor.launch(request)
        assert wrong(examined(executor, api_url)) == set()
        fact = ended(executor, request.run_id)
        assert reason(fact) == "done"
        assert fact.exit
        assert fact.exit.step == 20

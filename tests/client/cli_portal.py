"""A small HTTP server that speaks the part of docs/contracts.md the command line uses."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from evenkeel.schemas import JobDetail

TOKEN = "ek_test_secret"
Json = dict[str, Any]


def make_job(number: int, **parts: Any) -> Json:
    job: JobDetail = {
        "id": f"00000000-0000-0000-0000-{number:012d}",
        "number": number,
        "name": f"job-{number}",
        "project": {"key": "vision", "name": "Vision"},
        "cluster": {"name": "local", "choice": None},
        "owner": {"name": "Ada", "email": "ada@example.org"},
        "state": "queued",
        "run_state": "WAITING_FOR_INITIAL_RESOURCE",
        "reason": {"code": "waiting", "text": "waits for GPUs", "slurm": "Resources"},
        "retry": None,
        "ending": False,
        "warnings": [],
        "fetching": None,
        "model_type": "resnet50",
        "command": None,
        "total_steps": 2000,
        "step": 0,
        "progress": 0.0,
        "batch_size": 90,
        "gpus": {"min": 1, "max": 6, "types": [], "share_percent": 100, "memory_mib": None},
        "priority": 0,
        "nice": 0,
        "qos": None,
        "array": None,
        "partition": None,
        "restartable": True,
        "labels": {},
        "deadline_at": None,
        "max_cost": None,
        "max_duration_s": None,
        "hold": None,
        "idle": None,
        "resubmit_of": None,
        "resumed_from": None,
        "emulated": False,
        "pace_missed": False,
        "allocation": None,
        "throughput": {
            "steps_per_s": None,
            "predicted_steps_per_s": None,
            "source": None,
            "age_s": None,
            "samples": 0,
        },
        "relative_throughput": None,
        "slowdown": None,
        "protected_until_at": None,
        "submitted_at": "2026-11-21T14:32:10.123Z",
        "started_at": None,
        "finished_at": None,
        "expected_end_at": None,
        "expected_end_low_at": None,
        "expected_end_high_at": None,
        "queue_position": None,
        "expected_start": None,
        "cost": {"so_far": "0.12", "estimated": "1.50", "currency": "USD"},
        "times": {"queueing_s": 3.0, "launching_s": 4.0, "running_s": 53.0},
        "resizes": 0,
        "run": {"id": f"run-{number}", "attempt": 1, "epoch": 1},
        "exit": None,
        "can_cancel": True,
        "spec": {},
        "runs": [],
        "checkpoints": [],
        "links": [],
        "sharing": None,
        "curve": {},
    }
    return {**job, **parts}


class Portal(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.jobs: dict[int, Json] = {}
        self.log = ""
        self.log_chunk = 1_000
        self.submitted: list[Json] = []
        self.keys: dict[str, tuple[Json, int]] = {}
        self.requests: list[str] = []
        self.trouble: list[int | str] = []  # a status to answer with, or "drop": do it, then say nothing
        self.on_get: Callable[[Json], None] = lambda job: None
        self.signed_in = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A dropped connection is part of the play."""


class Handler(BaseHTTPRequestHandler):
    server: Portal

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {self.path}")
        trouble = self.server.trouble.pop(0) if self.server.trouble else None
        if isinstance(trouble, int):
            self._problem(trouble, "In trouble", "on purpose")
            return
        if trouble == "drop":
            self.wfile.write = lambda data: None  # type: ignore[method-assign, assignment, return-value]
        parts = urlsplit(self.path)
        path = parts.path.removeprefix("/api/v1/").split("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if path[0] in ("session", "tokens"):
            self._sign_in(path[0], json.loads(body) if body else {})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._problem(401, "Not signed in", "")
        elif path == ["jobs"] and self.command == "POST":
            self._submit(json.loads(body))
        elif path == ["jobs"]:
            self._list(query)
        else:
            self._job(path[1:], query)

    def _sign_in(self, what: str, body: Json) -> None:
        portal = self.server
        known = portal.signed_in or self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.command != "GET" and "csrftoken=abc" not in (self.headers.get("Cookie") or ""):
            self._problem(403, "CSRF", "cookie missing")
        elif self.command != "GET" and self.headers.get("X-CSRFToken") != "abc":
            self._problem(403, "CSRF", "header missing")
        elif what == "tokens":
            self._json(201 if portal.signed_in else 403, {"id": 1, "name": body["name"], "secret": TOKEN})
        elif self.command == "DELETE":
            portal.signed_in = False
            self._json(200, {})
        elif self.command == "POST" and body != {"email": "ada@example.org", "password": "right"}:
            self._problem(400, "Not signed in", "Email or password is wrong.")
        else:
            portal.signed_in |= self.command == "POST"
            self._json(200, {"user": {"email": "ada@example.org"} if known or portal.signed_in else None})

    def _submit(self, body: Json) -> None:
        portal, key = self.server, self.headers["Idempotency-Key"]
        if key in portal.keys:
            before, number = portal.keys[key]
            if before != body:
                self._problem(409, "Conflict", "This key was used for another job.")
            else:
                self._json(200, portal.jobs[number])
            return
        if "total_steps" not in body:
            errors = [{"field": "total_steps", "message": "is required", "code": "missing"}]
            self._problem(400, "Wrong job file", "total_steps is required", errors)
            return
        portal.submitted.append(body)
        number = len(portal.jobs) + 1
        portal.jobs[number], portal.keys[key] = make_job(number, name=body.get("name", "unnamed")), (body, number)
        self._json(201, portal.jobs[number])

    def _list(self, query: dict[str, str]) -> None:
        jobs = [job for job in self.server.jobs.values() if query.get("state") in (None, job["state"])]
        at = int(query.get("cursor", 0))
        more = f"http://elsewhere.example/api/v1/jobs?cursor={at + 2}" if at + 2 < len(jobs) else None
        self._json(200, {"next": more, "previous": None, "results": jobs[at : at + 2]})

    def _job(self, path: list[str], query: dict[str, str]) -> None:
        job = self.server.jobs.get(int(path[0])) if path[0].isdigit() else None
        if job is None:
            self._problem(404, "Not found", "There is no such job.")
        elif path[1:] == ["logs"]:
            self._logs(query)
        elif path[1:] == ["cancel"] and job["state"] == "succeeded":
            self._problem(409, "Ended", "The job has succeeded.")
        elif path[1:] == ["cancel"]:
            job["state"] = "cancelled"
            self._json(200, job)
        else:
            self.server.on_get(job)
            self._json(200, job)

    def _logs(self, query: dict[str, str]) -> None:
        log, start = self.server.log, int(query.get("offset", 0))
        if "tail" in query:
            start = len(log) - len("".join(log.splitlines(keepends=True)[-int(query["tail"]) :]))
        end = min(len(log), start + self.server.log_chunk)
        place = {"rank": int(query["rank"]), "ranks": [0], "offset": start, "next_offset": end, "size": len(log)}
        self._json(200, place | {"text": log[start:end], "complete": False})

    def _problem(self, status: int, title: str, detail: str, errors: list[Json] | None = None) -> None:
        problem = {"type": "about:blank", "title": title, "status": status, "detail": detail, "errors": errors or []}
        self._json(status, problem)

    def _json(self, status: int, value: Json) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "csrftoken=abc; Path=/")
        self.end_headers()
        self.wfile.write(body)

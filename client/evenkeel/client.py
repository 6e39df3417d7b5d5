"""A thin typed client of the portal's REST interface: time-outs on every call, retries with limits."""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar, cast

import httpx

from evenkeel import fairness, node_sets, resources, schemas
from evenkeel.renamed import OldNames

Json = dict[str, Any]
Answer = TypeVar("Answer")
TRIES = 5
RETRIED = frozenset({429, 502, 503, 504})
LONGEST_PAUSE_S = 20.0
TIMEOUT = httpx.Timeout(30.0, connect=5.0)


class ClientError(Exception):
    """Anything that kept a call from succeeding; the text is for people."""


class ConnectionFailed(ClientError):
    """No usable answer, after all tries."""


@dataclass(frozen=True, slots=True)
class FieldError:
    field: str
    message: str
    code: str = ""


class ApiError(ClientError):
    """The portal's refusal (application/problem+json)."""

    def __init__(self, status: int, title: str, detail: str, errors: list[FieldError]) -> None:
        super().__init__(": ".join(part for part in (title or f"HTTP {status}", detail) if part))
        self.status, self.title, self.detail, self.errors = status, title, detail, errors


class Client(OldNames):
    """`sleep` and `transport` are for tests."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: httpx.Timeout = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        headers = {"Accept": "application/json", "User-Agent": "evenkeel-cli", "Referer": f"{self.url}/"}
        if token:
            headers["Authorization"] = f"Bearer {_sendable(token)}"
        self._sleep = sleep
        # Reading the authorities takes a tenth of a second.
        verify = not self.url.startswith("http://") and authorities()
        try:
            self._http = httpx.Client(
                base_url=f"{self.url}/api/v1/", headers=headers, timeout=timeout, transport=transport, verify=verify
            )
        except (ImportError, ValueError) as error:  # of the URL, and of the environment's proxies
            what = "the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used"
            raise ClientError(f"{what}: {error}") from None
        self.projects = resources.Projects(self)
        self.people = resources.People(self)
        self.audit = resources.Audit(self)
        self.limits = resources.Limits(self)
        self.guarantees = resources.Guarantees(self)
        self.money = resources.Money(self)
        self.shares = resources.Shares(self)
        self.fairness = fairness.Fairness(self)
        self.qos = resources.Qos(self)
        self.arrays = resources.Arrays(self)
        self.partitions = node_sets.Partitions(self)
        self.windows = node_sets.Windows(self)
        self.drains = node_sets.Drains(self)
        self.checks = node_sets.Checks(self)
        self.tokens = resources.Tokens(self)
        self.secrets = resources.Secrets(self)
        self.artifacts = resources.Artifacts(self)
        self.bundles = resources.Bundles(self)
        self.environments = resources.Environments(self)
        self.operations = resources.Operations(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # Jobs

    def submit(self, job: resources.Wish, *, idempotency_key: str) -> schemas.Job:
        """The job, made once however often this is sent."""
        return self.one(schemas.Job, "POST", "jobs", json=job, headers={"Idempotency-Key": idempotency_key})

    def job(self, job: str) -> schemas.JobDetail:
        return self.one(schemas.JobDetail, "GET", f"jobs/{_segment(job)}")

    def preview(self, job: resources.Wish) -> schemas.Preview:
        """What it would do; nothing is submitted."""
        return self.one(schemas.Preview, "POST", "jobs/preview", json=job)

    def preview_forecast(self, preview: str) -> schemas.PreviewForecast:
        """When the job of a preview (its `forecast`) would start, once that is worked out."""
        return self.one(schemas.PreviewForecast, "GET", f"previews/{_segment(preview)}")

    def explain(self, job: str) -> schemas.Explanation:
        """Why it has what it has, who took its GPUs, and what would change it."""
        return self.one(schemas.Explanation, "GET", f"jobs/{_segment(job)}/explanation")

    def jobs(self, **filters: str) -> Iterator[schemas.Job]:
        """Every job that matches, page after page."""
        return self.rows(schemas.Job, "jobs", filters)

    def jobs_csv(self, **filters: str) -> Iterator[bytes]:
        """The same as CSV, piece by piece."""
        return self.stream("jobs/export", filters)

    def metrics(self, job: str, names: Sequence[str] = (), points: int = 500) -> schemas.Metrics:
        """What it reported, each series thinned to so many points."""
        query = {"points": str(points)} | ({"names": ",".join(names)} if names else {})
        return self.one(schemas.Metrics, "GET", f"jobs/{_segment(job)}/metrics", params=query)

    def resources(self, job: str, points: int = 500) -> schemas.Resources:
        """What it used of its GPUs, and what is known of its program by type of device."""
        return self.one(schemas.Resources, "GET", f"jobs/{_segment(job)}/resources", params={"points": str(points)})

    def nodes(self, *, cluster: str | None = None) -> list[schemas.Node]:
        """Those of one cluster, with who holds each GPU."""
        query = resources.given(cluster=cluster)
        return cast("list[schemas.Node]", self._request("GET", "nodes", params=query).json())

    def node(self, name: str, *, cluster: str | None = None) -> schemas.NodeDetail:
        """One of them, with its jobs, how much of it was held in the last day, what failed on it, and its events."""
        query = resources.given(cluster=cluster)
        return self.one(schemas.NodeDetail, "GET", f"nodes/{resources.part(name)}", params=query)

    def model_types(self, *, cluster: str | None = None) -> list[schemas.ModelType]:
        """The catalogue, with what is known of each program's throughput on the cluster."""
        query = resources.given(cluster=cluster)
        return cast("list[schemas.ModelType]", self._request("GET", "model-types", params=query).json())

    def cancel(self, job: str) -> schemas.Job:
        return self.one(schemas.Job, "POST", f"jobs/{_segment(job)}/cancel")

    def logs(self, job: str, **query: int | str) -> schemas.Log:
        return self.one(schemas.Log, "GET", f"jobs/{_segment(job)}/logs", params=query)

    # Sign-in

    def session(self) -> schemas.Session:
        return self.one(schemas.Session, "GET", "session")

    def create_token(
        self,
        email: str,
        password: str,
        *,
        name: str,
        expires_in_days: int,
        scopes: Sequence[str] = (),
        project: str | None = None,
    ) -> str:
        """Signs in, has a token made, and signs out again."""
        self.session()
        self.one(schemas.Session, "POST", "session", repeatable=False, json={"email": email, "password": password})
        wanted: Json = {"name": name, "expires_in_days": expires_in_days}
        wanted |= resources.given(scopes=list(scopes) or None, project=project)
        try:
            answer = self.one(schemas.NewToken, "POST", "tokens", repeatable=False, json=wanted)
        finally:
            self._request("DELETE", "session", repeatable=False)
        secret = answer.get("secret")
        if not isinstance(secret, str):
            raise ClientError("the portal made a token but its answer does not contain it")
        return secret

    # One call

    def one(self, kind: type[Answer], method: str, path: str, **options: Any) -> Answer:
        """The answer as the API description has it; that it is a JSON object is all that is checked."""
        return cast("Answer", self._object(method, path, **options))

    def rows(self, kind: type[Answer], path: str, filters: Mapping[str, str] | None = None) -> Iterator[Answer]:
        """Every row, page after page."""
        for page in self.pages(dict[str, Any], path, filters):
            yield from page["results"]

    def pages(self, kind: type[Answer], path: str, filters: Mapping[str, str] | None = None) -> Iterator[Answer]:
        """What is said beside rows is in each."""
        answer = self._object("GET", path, params=dict(filters or {}))
        while True:
            yield cast("Answer", answer)
            if not answer.get("next"):
                return
            # Only the query is taken over: behind a proxy the address in the answer may be another one.
            answer = self._object("GET", path, params=httpx.URL(answer["next"]).params)

    def stream(self, path: str, filters: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """A file, piece by piece; not tried again once it has begun."""
        try:
            with self._http.stream("GET", path, params=dict(filters or {})) as answer:
                if not answer.is_success:
                    answer.read()
                _checked(answer)
                yield from answer.iter_bytes()
        except (httpx.InvalidURL, httpx.HTTPError, httpx.StreamError) as error:
            raise ConnectionFailed(f"{self.url} broke off: {_words(error)}") from error

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._request(method, path, **options)

    def _object(self, method: str, path: str, **options: Any) -> Json:
        try:
            value = self._request(method, path, **options).json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConnectionFailed(f"{self.url} does not answer like an Evenkeel portal")
        return value

    def _request(self, method: str, path: str, *, repeatable: bool = True, **options: Any) -> httpx.Response:
        """`repeatable`: doing it twice is as good as once, so an unclear end is tried again."""
        for attempt in range(1, TRIES + 1):
            pause_s = min(LONGEST_PAUSE_S, 0.5 * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)  # noqa: S311  # nosec B311
            try:
                answer = self._send(method, path, options)
            except httpx.TransportError as error:
                nothing_sent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
                if attempt == TRIES or not (repeatable or nothing_sent):
                    raise ConnectionFailed(f"cannot reach {self.url}: {_words(error)}") from error
            except (httpx.InvalidURL, httpx.HTTPError) as error:
                raise ConnectionFailed(f"cannot use {self.url}: {_words(error)}") from error
            else:
                if answer.status_code not in RETRIED or attempt == TRIES or not repeatable:
                    return _checked(answer)
                pause_s = _asked_pause(answer.headers) or pause_s
            self._sleep(pause_s)
        raise AssertionError("unreachable")

    def _send(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        token = self._http.cookies.get("csrftoken")
        headers = dict(options.get("headers", {}))
        options = options | {"headers": headers | ({"X-CSRFToken": token} if token else {})}
        return self._http.request(method, path, **options)


def authorities() -> ssl.SSLContext:
    """Those that this machine trusts, a site's own among them, beside those that come with httpx."""
    try:
        context = httpx.create_ssl_context()
        context.load_default_certs()
    except OSError as error:
        named = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ]
        where = f" that {' and '.join(named)} name" if named else ""
        raise ClientError(f"the certificates{where} cannot be read: {error.strerror or error}") from None
    return context


def _sendable(token: str) -> str:
    """It is not repeated: what is wrong with it may be what surrounds a secret."""
    if not token.isascii() or not token.isprintable() or " " in token:
        what = "the token has characters that no token has, as a space or a line end"
        raise ClientError(f"{what}: set EVENKEEL_TOKEN again, or run `evenkeel login`")
    return token


def _segment(job: str) -> str:
    """A job's number or UUID, or an array's with an index, as one part of a path."""
    if not job.replace("-", "").replace("_", "").isalnum() or not job.isascii():
        raise ApiError(404, "Not found", f"{job!r} is neither a job's number nor its UUID", [])
    return job


def _words(error: Exception) -> str:
    return "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error) or type(error).__name__


def _asked_pause(headers: Mapping[str, str]) -> float | None:
    try:
        return min(LONGEST_PAUSE_S, max(0.0, float(headers.get("retry-after", ""))))
    except ValueError:
        return None


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    if answer.is_redirect:
        raise ConnectionFailed(f"{answer.url} redirects to {answer.headers.get('location')}: log in with that address")
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        raise ApiError(answer.status_code, f"HTTP {answer.status_code}", answer.reason_phrase, [])
    errors = [
        FieldError(str(item.get("field", "")), str(item.get("message", "")), str(item.get("code", "")))
        for item in problem.get("errors") or []
        if isinstance(item, dict)
    ]
    detail = _absent(answer.url.path) if answer.status_code == 404 else ""
    raise ApiError(
        answer.status_code, str(problem.get("title", "")), detail or str(problem.get("detail") or ""), errors
    )


_NAMED = {"jobs": "job", "nodes": "node", "projects": "project"}


def _absent(path: str) -> str:
    """What is not there, where a path names one thing. The portal answers alike to whatever is nowhere."""
    kind, name, *more = [*path.partition("/api/v1/")[2].split("/"), ""]
    is_one = kind in _NAMED and name and not any(more[1:]) and (kind != "jobs" or any(map(str.isdigit, name)))
    return f"There is no {_NAMED[kind]} {name} that you may see." if is_one else ""

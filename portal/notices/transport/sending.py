"""Sends requests to webhooks in parallel, each limited in time and in the size of the response."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import httpx

from portal.notices.addresses import NotReachable, address_of

STEP_S = 5.0  # to connect, and between two parts of a response
WHOLE_S = 10.0
#: After this many seconds of a pass no further request is started.
BEGIN_WITHIN_S = 5.0
SIDE_BY_SIDE = 32
MAX_ANSWER = 200
_AGENT = "Evenkeel"


@dataclass(frozen=True, slots=True)
class Request:
    url: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The response. `gone`: the receiver wants no more."""

    delivered: bool
    code: int | None = None
    answer: str = ""
    error: str = ""

    @property
    def gone(self) -> bool:
        return self.code == 410


def send_one(request: Request) -> Outcome:
    return send_all([[request]])[0][0]


def send_all(queues: Sequence[Sequence[Request]]) -> list[list[Outcome]]:
    """Each queue in order until something fails; queues in parallel. Requests that were not started have no outcome."""
    return asyncio.run(_send_all(queues))


async def _send_all(queues: Sequence[Sequence[Request]]) -> list[list[Outcome]]:
    room, begin_until_s = asyncio.Semaphore(SIDE_BY_SIDE), time.monotonic() + BEGIN_WITHIN_S

    async def drain(queue: Sequence[Request]) -> list[Outcome]:
        done: list[Outcome] = []
        try:
            async with room, _client() as client:
                for request in queue:
                    if time.monotonic() >= begin_until_s or not all(outcome.delivered for outcome in done):
                        break
                    done.append(await _post(client, request))
        except Exception as error:  # errors of opening or closing its connections must not stop other destinations
            if len(done) < len(queue):
                done.append(Outcome(False, error=f"It cannot be reached: {error or type(error).__name__}"[:400]))
        return done

    return list(await asyncio.gather(*(drain(queue) for queue in queues)))


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _client() -> httpx.AsyncClient:
    """One for each queue: connections are never shared between destinations. Proxies of the environment are ignored:
    they would connect to unchecked addresses."""
    return httpx.AsyncClient(verify=_trusted(), trust_env=False, follow_redirects=False, timeout=STEP_S)


async def _post(client: httpx.AsyncClient, given: Request) -> Outcome:
    try:
        async with asyncio.timeout(WHOLE_S):
            url = httpx.URL(given.url)
            request = client.build_request(
                "POST",
                url.copy_with(host=await address_of(url)),
                content=given.body,
                headers=given.headers | _fixed(url),
                extensions={"sni_hostname": url.host},  # the name on its certificate
            )
            response = await client.send(request, stream=True)
            try:
                return _judge(response.status_code, await _beginning(response))
            finally:
                await response.aclose()
    except NotReachable as error:
        return Outcome(False, error=str(error))
    except TimeoutError:
        return Outcome(False, error=f"There was no answer within {WHOLE_S:.0f} s.")
    except httpx.TimeoutException:
        return Outcome(False, error=f"Nothing happened for {STEP_S:.0f} s.")
    except httpx.HTTPError as error:
        return Outcome(False, error=f"It cannot be reached: {error or type(error).__name__}"[:400])
    except Exception as error:  # one receiver's response must not stop others' notices
        return Outcome(False, error=f"Its answer makes no sense: {error or type(error).__name__}"[:400])


def _fixed(url: httpx.URL) -> dict[str, str]:
    return {
        "Host": url.netloc.decode("ascii"),
        "Content-Type": "application/json",
        "User-Agent": _AGENT,
        "Accept-Encoding": "identity",
    }


async def _beginning(response: httpx.Response) -> str:
    read = b""
    async for chunk in response.aiter_raw(MAX_ANSWER):
        read += chunk
        if len(read) >= 4 * MAX_ANSWER:  # a character has at most four bytes
            break
    text = read.decode(errors="replace")
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_ANSWER].strip()


def _judge(code: int, answer: str) -> Outcome:
    if 200 <= code < 300:
        return Outcome(True, code, answer)
    if 300 <= code < 400:
        return Outcome(False, code, answer, f"It answered {code}: redirects are not followed. Give the final address.")
    if code == 410:
        return Outcome(False, code, answer, "It answered 410: it wants no more.")
    return Outcome(False, code, answer, f"It answered {code}.")

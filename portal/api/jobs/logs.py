"""Logs of a job's workers: ranges as JSON, the whole as text, and text that continues until the job ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from pydantic import AfterValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import Query, Word
from portal.api.http.operations import operation
from portal.api.http.standing import Standing, user_now
from portal.api.shapes.jobs import Log
from portal.jobs.access import access_job, visible_jobs
from portal.jobs.clusters import files_of
from portal.jobs.models import Job, Run
from portal.storage.log_files import MAX_BYTES, RunLog, written_by
from portal.storage.log_tail import Follower
from portal.storage.log_text import Chunk
from scheduling.lifecycle import HOLDING, TERMINAL, State

R = TypeVar("R")
FOLLOW_S = 3_600.0
_PAUSE_S = 0.5
_BLOCK = 256 * 1024


def _phrase(text: str) -> str:
    """Programs may print anything, and the phrase is only compared with it."""
    if "\n" in text:
        raise ValueError("must be part of one line")
    return text


Phrase = Annotated[str, Field(max_length=200), AfterValidator(_phrase)]


class LogsQuery(Query):
    rank: int = Field(0, ge=0, le=100_000, description="Which worker.")
    run: Word | None = Field(None, description="UUID or attempt number of a run; by default the newest.")
    offset: int = Field(0, ge=0, le=2**62, description="First byte.")
    limit: int | None = Field(None, ge=1, le=MAX_BYTES, description="Bytes at most.")
    tail: int | None = Field(None, ge=1, le=10_000, description="So many of the last lines.")
    search: Phrase | None = Field(None, description="Only lines with this in them, in any case.")
    follow: bool = Field(False, description="Text that continues until the job or access ends, an hour at most.")


class LogsView(APIView):
    @operation(
        "get_job_logs",
        Log,
        access=Access.VIEWER,
        tag="jobs",
        path=["job"],
        query=LogsQuery,
        also={(200, "text/plain"): OpenApiTypes.STR},
    )
    def get(self, request: Request, job: str, query: LogsQuery) -> HttpResponseBase:
        """A range of the log. `Accept: text/plain` gives the text alone, `follow=1` text as it is written."""
        row = access_job(request.user, job)
        run = _run(row, query.run)
        files = files_of(row.cluster_id)
        log = RunLog(files, row.pk, run.pk, query.rank, written_by(run.pk))
        ranged = query.limit is not None or query.tail is not None or query.search is not None
        wants_text = query.follow or "text/plain" in request.headers.get("Accept", "")
        if wants_text and (query.follow or not ranged):
            start = _chunk(log, query, growing=False).offset if query.tail else query.offset
            stream = _whole(log, start)
            if query.follow:
                standing = Standing(lambda: _may_read(request, row.pk))
                stream = _follow(standing, files, row.pk, run.pk, query.rank, start)
            return StreamingHttpResponse(stream, content_type="text/plain; charset=utf-8")
        ended = State(run.state) in TERMINAL
        chunk = _chunk(log, query, growing=State(run.state) in HOLDING)
        if wants_text:
            return HttpResponse(chunk.text, content_type="text/plain; charset=utf-8")
        return Response(_describe(log, chunk, ended))


def _run(job: Job, wanted: str | None) -> Run:
    if wanted is None:
        assert job.run is not None
        return job.run
    if wanted.isascii() and wanted.isdecimal() and len(wanted) <= 9:
        return job.runs.get(attempt=int(wanted))
    try:
        return job.runs.get(pk=UUID(wanted))
    except ValueError:
        raise Run.DoesNotExist from None


def _may_read(request: Request, job_id: UUID) -> bool:
    user = user_now(request)
    return user is not None and visible_jobs(user).filter(pk=job_id).exists()


def _chunk(log: RunLog, query: LogsQuery, *, growing: bool) -> Chunk:
    limit = query.limit or _BLOCK
    if query.search:
        if query.tail:
            return log.search_tail(query.search, query.tail, limit)
        return log.search(query.search, query.offset, limit)
    if query.tail:
        return log.tail(query.tail, limit, growing=growing)
    return log.chunk(query.offset, limit, growing=growing)


def _describe(log: RunLog, chunk: Chunk, ended: bool) -> dict[str, Any]:
    return {
        "rank": log.rank,
        "ranks": log.ranks,
        "offset": chunk.offset,
        "next_offset": chunk.next_offset,
        "size": chunk.size,
        "text": chunk.text,
        "complete": ended and chunk.next_offset >= chunk.size,
    }


async def _whole(log: RunLog, offset: int) -> AsyncIterator[bytes]:
    while data := await sync_to_async(log.read, thread_sensitive=False)(offset, _BLOCK):
        yield data
        offset += len(data)


async def _follow(
    standing: Standing, files: Path, job_id: UUID, run_id: UUID, rank: int, offset: int
) -> AsyncIterator[bytes]:
    """A retry is a new run with a separate log: following continues there."""
    until = time.monotonic() + FOLLOW_S
    while time.monotonic() < until:
        async for data in _follow_run(standing, files, job_id, run_id, rank, offset, until):
            yield data
        newest, _ = await _progress(job_id)
        if newest == run_id or standing.over:
            return
        run_id, offset = newest, 0


async def _follow_run(
    standing: Standing, files: Path, job_id: UUID, run_id: UUID, rank: int, offset: int, until: float
) -> AsyncIterator[bytes]:
    follower, started = Follower(), False
    try:
        while time.monotonic() < until and not await standing.ended():
            newest, ended = await _progress(job_id)
            written = await database_sync_to_async(written_by)(run_id)
            log = await _in_thread(RunLog, files, job_id, run_id, rank, written)
            if log.parts and not started:
                await _in_thread(follower.start, log, offset)
                started = True
            while started and (data := await _in_thread(follower.read, log, _BLOCK)):
                yield data
                if await standing.ended():
                    return
                log = await _in_thread(RunLog, files, job_id, run_id, rank, written)
            if ended or newest != run_id:
                return
            await asyncio.sleep(_PAUSE_S)
    finally:
        follower.close()


async def _in_thread(call: Callable[..., R], *arguments: Any) -> R:
    return await sync_to_async(call, thread_sensitive=False)(*arguments)


async def _progress(job_id: UUID) -> tuple[UUID, bool]:
    # this one returns its connection: a follower holds none while it waits
    run_id, ended = await database_sync_to_async(_newest_run)(job_id)
    return run_id, ended


def _newest_run(job_id: UUID) -> tuple[UUID, bool]:
    run_id, state = Job.objects.values_list("run_id", "run__state").get(pk=job_id)
    assert run_id is not None
    return run_id, State(state) in TERMINAL

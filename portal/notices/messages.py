"""Texts of notices: data for webhooks, a line for chats, an e-mail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from accounts.text import isolated
from portal.core.times import iso
from portal.jobs.models import Job, JobEvent
from portal.notices import kinds
from portal.notices.models import Delivery, Destination
from scheduling.lifecycle import State, coarse_state

MAX_TEXT = 1_000
_MAX_SUBJECT = 150
#: A budget's data for webhooks, besides the sentence.
_BUDGET = ("percent", "used", "limit", "kind", "period", "hard", "ends_at")


def of_event(kind: str, event: JobEvent) -> dict[str, Any]:
    """The payload of an event, without the addresses, which depend on the destination."""
    data: dict[str, Any] = {"text": event.text[:MAX_TEXT]}
    if event.job is not None:
        trained = not event.to_state and event.run is not None and event.run.has_trained
        data["job"] = _job(event.job, kinds.state_after(event), trained=trained)
    elif event.project is not None:
        data["project"] = event.project.key
    if kind == kinds.BUDGET:
        data["budget"] = {name: event.detail.get(name) for name in _BUDGET}
    if kind in (kinds.NODE_LOST, kinds.CHECK_FAILED):
        data["node"] = event.detail.get("node")
    if kind == kinds.ROLLED_BACK:
        data["rollout"] = event.detail.get("rollout")
    return {"type": kind, "timestamp": iso(event.at), "data": data}


def of_waiting(job: Job, since: datetime, now: datetime) -> dict[str, Any]:
    minutes = int((now - since).total_seconds() // 60)
    why = f" {job.run.reason_text}" if job.run else ""
    text = f"#{job.number} {job.name} has waited for {_span(minutes)}.{why}"
    state = State(job.run.state) if job.run else None
    trained = bool(job.run and job.run.has_trained)
    data = {"text": text[:MAX_TEXT], "job": _job(job, state, trained=trained), "waiting_minutes": minutes}
    return {"type": kinds.WAITING, "timestamp": iso(now), "data": data}


def of_test(destination: Destination, now: datetime) -> dict[str, Any]:
    text = f"This is a test of the destination {destination.name}. It works."
    return {"type": kinds.TEST, "timestamp": iso(now), "data": {"text": text}}


def _span(minutes: int) -> str:
    hours, minutes = divmod(minutes, 60)
    return f"{minutes} min" if not hours else f"{hours} h {minutes} min" if minutes else f"{hours} h"


def _job(job: Job, state: State | None, *, trained: bool) -> dict[str, Any]:
    return {
        "id": str(job.pk),
        "number": job.number,
        "name": job.name,
        "project": job.project.key,
        "state": coarse_state(state, rescaling=trained) if state else None,
    }


def addressed(payload: dict[str, Any], destination: Destination) -> dict[str, Any]:
    """With the address of the page with details."""
    data = payload["data"]
    return payload | {"data": data | {"url": f"{destination.portal_url}{_path(data)}"}}


def _path(data: dict[str, Any]) -> str:
    if "job" in data:
        return f"/jobs/{data['job']['number']}"
    if "rollout" in data:
        return f"/lab/rollouts/{data['rollout']}"
    return "/cluster" if "node" in data else "/limits"


def as_json(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def as_chat(deliveries: Sequence[Delivery]) -> bytes:
    """Slack's format, which Mattermost and others accept too: a line for each notice."""
    return as_json({"text": "\n".join(_chat_line(delivery.payload["data"]) for delivery in deliveries)})


def _chat_line(data: dict[str, Any]) -> str:
    text = isolated(data["text"])
    for plain, meant in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(plain, meant)
    return f"{text} <{data['url']}|Open>" if "url" in data else text


@dataclass(frozen=True, slots=True)
class Mail:
    subject: str
    body: str


def as_mail(deliveries: Sequence[Delivery], destination: Destination) -> Mail:
    """One e-mail with all due notices: a busy hour is one message, not hundreds."""
    subject = _subject(deliveries[0])
    if len(deliveries) > 1:
        subject = f"{len(deliveries)} notices, first {subject}"
    parts = [f"{isolated(d.payload['data']['text'])}\n{d.payload['data'].get('url', '')}".strip() for d in deliveries]
    name = isolated(destination.name)
    end = f"-- \nSent because of your destination {name}: {destination.portal_url}/notifications\n"
    return Mail(isolated(" ".join(subject.split())[:_MAX_SUBJECT]), "\n\n".join([*parts, end]))


def _subject(delivery: Delivery) -> str:
    data, word = delivery.payload["data"], kinds.WORDS.get(delivery.event, "test")
    if job := data.get("job"):
        return f"#{job['number']} {job['name']}: {word}"
    if "project" in data:
        return f"Budget of {data['project']}: {data['budget']['percent']} % used"
    return f"Evenkeel: {word} {data.get('node') or ''}"

"""Stored decisions: limited by bytes, and small because each is stored as its difference from a shared base."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

import zstandard
from django.conf import settings
from django.db.models import Sum
from pydantic import TypeAdapter

from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import Cluster, Decision, DecisionBase
from portal.snapshot.take import ClusterView
from scheduling.domain import Plan, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.policies import load_policy

#: How often a round that moves nothing is kept.
EMPTY_EVERY_S = 600.0
_MAX_SNAPSHOT_BYTES = 512 * 1024 * 1024
#: If a difference is larger than this fraction of its base, a new base is stored.
_NEW_BASE_AT = 0.25
_SNAPSHOTS = TypeAdapter(Snapshot)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)


def snapshot_text(snapshot: Snapshot) -> bytes:
    """Jobs in a fixed order and one per line, so that the texts of two rounds are similar."""
    document = asdict(snapshot)
    jobs = sorted(document.pop("jobs"), key=lambda job: job["number"])
    # JSON has no keys of three parts
    document["pairs"] = [[*key, speeds] for key, speeds in sorted(snapshot.pairs.items())]
    lines = [json.dumps(document, default=_plain, sort_keys=True)]
    lines += [json.dumps(job, default=_plain, sort_keys=True) for job in jobs]
    return "\n".join(lines).encode()


def plan_text(plan: Plan) -> str:
    """With every reason formatted: a plan may format reasons only when they are read."""
    return json.dumps(asdict(replace(plan, reasons=dict(plan.reasons))), default=_plain)


def snapshot_from_text(text: bytes) -> Snapshot:
    head, *jobs = text.decode().split("\n")
    document = json.loads(head)
    # Decisions from before pairs were stored have an empty object there.
    document["pairs"] = {(one, other, gang): speeds for one, other, gang, speeds in document["pairs"] or ()}
    return _SNAPSHOTS.validate_python(document | {"jobs": [json.loads(job) for job in jobs]})


def store(*, view: ClusterView, plan: Plan, seconds: float, now: datetime) -> Decision:
    """Store a plan with its snapshot."""
    cluster, text = view.cluster, snapshot_text(view.snapshot)
    newest = Decision.objects.filter(cluster=cluster).select_related("base").order_by("-round").first()
    base = newest.base if newest else None
    packed = _difference(text, _unpack(base)) if base else b""
    if base is None or len(packed) > _NEW_BASE_AT * base.size_bytes:
        base = _keep_base(text)
        packed = _difference(text, text)
    plain = plan_text(plan)
    return Decision.objects.create(
        cluster=cluster,
        round=cluster.round_epoch + 1,
        at=now,
        policy_name=cluster.policy_name,
        policy_parameters=cluster.policy_parameters,
        plan=json.loads(plain),
        base=base,
        snapshot=packed,
        size_bytes=len(packed) + len(plain),
        seconds=seconds,
    )


def sampling_is_due(cluster: Cluster, now: datetime) -> bool:
    """Rounds that move nothing are stored now and then, so that a quiet night can be replayed too."""
    every = timedelta(seconds=EMPTY_EVERY_S)
    return not Decision.objects.filter(cluster=cluster, at__gt=now - every).exists()


def _keep_base(text: bytes) -> DecisionBase:
    packed = zstandard.compress(text, 9)
    digest = hashlib.sha256(text).hexdigest()
    return DecisionBase.objects.get_or_create(digest=digest, defaults={"text": packed, "size_bytes": len(packed)})[0]


def _unpack(base: DecisionBase) -> bytes:
    return zstandard.ZstdDecompressor().decompress(bytes(base.text), max_output_size=_MAX_SNAPSHOT_BYTES)


def _difference(text: bytes, base: bytes) -> bytes:
    window = max(10, min(27, (len(text) + len(base)).bit_length()))
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window)
    dictionary = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters).compress(text)


def snapshot_of(decision: Decision) -> Snapshot:
    """The snapshot of the round."""
    dictionary = zstandard.ZstdCompressionDict(_unpack(decision.base), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    packed = bytes(decision.snapshot)
    text = zstandard.ZstdDecompressor(dict_data=dictionary).decompress(packed, max_output_size=_MAX_SNAPSHOT_BYTES)
    return snapshot_from_text(text)


def replay(decision: Decision, policy_name: str = "", parameters: dict[str, Any] | None = None) -> Plan:
    """Plan the same round again, by default under the same policy."""
    if policy_name:
        return plan_round(snapshot_of(decision), load_policy(policy_name, parameters or {}))
    return plan_round(snapshot_of(decision), load_policy(decision.policy_name, decision.policy_parameters))


def same_plan(plan: Plan, decision: Decision) -> bool:
    return bool(json.loads(plan_text(plan)) == decision.plan)


def prune() -> None:
    """Remove the oldest ones until the rest fits; a base is removed with its last decision."""
    total = (Decision.objects.aggregate(n=Sum("size_bytes"))["n"] or 0) + _base_bytes()
    loop = Loop(LoopName.PRUNING)
    for pk, size in Decision.objects.order_by("pk").values_list("pk", "size_bytes").iterator():
        if total <= settings.EVENKEEL_KEEP.decisions_bytes:
            break
        total -= loop.run(Item(f"decision:{pk}", f"decision {pk}"), _remove, pk, size) or 0


def _remove(pk: int, size: int) -> int:
    """Returns the bytes freed."""
    Decision.objects.filter(pk=pk).delete()
    before = _base_bytes()
    DecisionBase.objects.filter(decisions=None).delete()
    return size + before - _base_bytes()


def _base_bytes() -> int:
    return DecisionBase.objects.aggregate(n=Sum("size_bytes"))["n"] or 0

"""Uploaded traces: parsed once, stored in Evenkeel's own format."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.db import transaction

from accounts.audit import record_audit
from accounts.models import User
from portal.core.packed_json import pack
from portal.core.problems import FieldProblem, Problems
from portal.lab.models import Trace
from portal.lab.spec import MOST_JOBS
from portal.readmodels.cluster.catalogue import known_accelerator_types
from portal.submission.saved import check_unbound
from scheduling.errors import InvalidInput
from scheduling.input_files import plain_name, unpack
from scheduling.simulator.inputs.trace import TraceJob
from scheduling.simulator.readers import FORMATS, load_trace
from scheduling.simulator.readers.own import SCHEMA, entry_of

MOST_BYTES = 32 * 1024**2
#: A trace may be compressed.
MOST_UNPACKED_BYTES = 256 * 1024**2
#: Traces of one person; the oldest are removed first.
MOST_KEPT = 20
#: Throughputs, one for each number of GPUs of each type of each job: they are stored expanded.
MOST_POINTS = 20_000_000


def store_trace(*, actor: User, file: Any, format: str) -> Trace:
    """Raises Problems for `file` or `format`, PermissionError."""
    check_unbound(actor, "a trace")
    if format and format not in FORMATS:
        raise Problems([FieldProblem("format", f"is none of {', '.join(FORMATS)}", "unknown")])
    if file.size > MOST_BYTES:
        raise Problems([FieldProblem("file", f"has more than {MOST_BYTES // 1024**2} MiB", "too_large")])
    with tempfile.TemporaryDirectory() as folder:
        uploaded = Path(folder) / "upload"
        path = Path(folder) / f"trace{plain_name(Path(file.name)).suffix[:10]}"
        with uploaded.open("wb") as copy:
            copy.writelines(file.chunks())
        try:
            unpack(uploaded, path, MOST_UNPACKED_BYTES)
            found = load_trace(path, types=sorted(known_accelerator_types()), format=format or None)
        except InvalidInput as error:
            said = str(error).replace(str(path), "the file").replace(str(uploaded), "the file")
            raise Problems([FieldProblem("file", said[:500], "invalid")]) from None
    if len(found.jobs) > MOST_JOBS:
        raise Problems([FieldProblem("file", f"has {len(found.jobs)} jobs; {MOST_JOBS} at most", "too_many")])
    if (points := sum(len(curve.steps_per_s) for job in found.jobs for curve in job.curves.values())) > MOST_POINTS:
        said = f"has jobs with {points:,} throughputs in all, one for each number of GPUs; {MOST_POINTS:,} at most"
        raise Problems([FieldProblem("file", said, "too_many")])
    packed = pack({"schema": SCHEMA, "jobs": [entry_of(job) for job in found.jobs]})
    summary = {
        "jobs": len(found.jobs),
        "left_out": found.left_out,
        "why_left_out": "; ".join(found.remarks()),
        "span_s": found.jobs[-1].arrival_s - found.jobs[0].arrival_s,
        "gpu_hours": gpu_hours(found.jobs),
    }
    name = "".join(c for c in Path(file.name).name if c.isprintable())[:120]
    values = {"name": name, "format": found.format, "summary": summary, "packed": packed, "size_bytes": len(packed)}
    with transaction.atomic():
        made = Trace.objects.create(owner=actor, **values)
        old = Trace.objects.filter(owner=actor).order_by("-created_at").values_list("pk", flat=True)[MOST_KEPT:]
        Trace.objects.filter(pk__in=list(old)).delete()
        record_audit(actor=actor, action="simulation.upload_trace", target=made.name, detail={"id": str(made.pk)})
    return made


def gpu_hours(jobs: list[TraceJob]) -> float:
    """GPU-hours of the jobs on their least GPUs of their fastest type."""
    total = 0.0
    for job in jobs:
        speed = max((curve.at(job.min_gpus) for curve in job.curves.values()), default=0.0)
        total += job.total_steps / speed * job.min_gpus * job.gpu_milli / 1000 if speed else 0.0
    return round(total / 3600.0, 3)

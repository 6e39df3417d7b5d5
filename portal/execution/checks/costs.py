"""Checks of `doctor` on prices, and on how runners' reports reach the portal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings

from accounts.ledger import current_prices
from portal.jobs.clusters import engine_of
from portal.jobs.models import Accelerator, Cluster
from scheduling.executors.base import Finding


def examine_prices(cluster: Cluster, now: datetime) -> Finding:
    present = Accelerator.objects.filter(node__cluster=cluster, present=True)
    kinds = set(present.values_list("node__accelerator_type", flat=True))
    missing = sorted(kinds - current_prices(now, cluster.name).keys())
    if not missing:
        return Finding("prices", True, "each type of GPU has one" if kinds else "no GPUs yet")
    seen = f"none is set for {', '.join(missing)}: what runs there costs nothing"
    return Finding("prices", True, seen, f"evenkeel cost set-price PRICE --type {missing[0]}", warning=True)


def examine_api_url(cluster_id: int) -> Iterator[Finding]:
    """For runners on other machines."""
    url = settings.EVENKEEL_API_URL
    if engine_of(cluster_id).executor == "local":
        return
    if urlsplit(url).scheme == "https":
        yield Finding("runners' reports", True, f"encrypted, to {url}")
        return
    fix = "serve the portal by HTTPS (docs/operations.md) and set EVENKEEL_API_URL to that address"
    seen = f"{url} is not https: tokens of runs cross the cluster's network unencrypted"
    yield Finding("runners' reports", True, seen, fix, warning=True)

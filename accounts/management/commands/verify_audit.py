"""Verify the chain of the audit log from its beginning; exit status 1 if it is broken.

The last line is the head of the chain. Stored elsewhere, it shows later that the end was not cut off.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.audit import rows, sealed_entries, verify_chain


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--expect", metavar="POSITION:HASH", help="A head that an earlier run printed.")

    def handle(self, *args: Any, **options: Any) -> None:
        verdict = verify_chain(rows(sealed_entries()).iterator(chunk_size=2_000))
        if verdict.problem:
            raise CommandError(f"The audit log was changed: {verdict.problem}.")
        if options["expect"]:
            _check_head(options["expect"])
        self.stdout.write(f"{verdict.position} entries, each as it was written.\n{verdict.position}:{verdict.hash}")


def _check_head(head: str) -> None:
    position, _, expected = head.partition(":")
    if not (position.isascii() and position.isdecimal()):
        raise CommandError("--expect must look like 1234:0a1b…")
    if int(position) and not sealed_entries().filter(position=int(position), hash=expected).exists():
        raise CommandError(f"The audit log was changed: entry {position} no longer ends in {expected}.")

"""Mutants that change nothing that anybody could notice: module, function, what was, what is made of it; and why.

A listed mistake has no function.
"""

EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    (
        "scheduling/timesharing.py",
        "",
        "job for job in recent if job.id not in field.reasons and job.gang and",
        "job for job in recent if job.gang and",
    ): "A running job with a reason to take no part cannot be moved, so no share is computed for it: books.share is 0.",
    (
        "portal/jobs/services/plans.py",
        "",
        'key=lambda m: (m.before is None, m.kind == "start")',
        'key=lambda m: m.kind == "start"',
    ): "Exactly the starts of a plan have no gang before.",
    (
        "accounts/ledger.py",
        "record_holds",
        "held.hold_id not in known and held.from_at < held.to_at",
        "(held.hold_id not in known)",
    ): "An empty stretch has no charges, and so no entries.",
    (
        "accounts/quotas.py",
        "_places",
        "isinstance(exponent, int)",
        "True",
    ): "The exponent of a finite number is an integer; the guard is for the type checker.",
}

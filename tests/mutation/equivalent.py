"""Mutants that change nothing that anybody could notice: module, function, what was, what is made of it; and why.

A listed mistake has no function.
"""

EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    (
        "client/evenkeel/runner/engine.py",
        "Runner._watch",
        "selector.register(signals, selectors.EVENT_READ)",
        "pass",
    ): "What a signal brings is then seen in the next turn, a tenth of a second later at most.",
    (
        "client/evenkeel/runner/engine.py",
        "Runner._report_when_due",
        "0",
        "1",
    ): "The time of the next report is 0, or far beyond a second of the machine's clock.",
    (
        "client/evenkeel/runner/engine.py",
        "Runner._end_descendants",
        "time.monotonic() < give_up_at",
        "(time.monotonic() <= give_up_at)",
    ): "At that very moment they are killed once more.",
    (
        "accounts/ledger.py",
        "PriceBook.charges",
        "key not in self._known",
        "True",
    ): "What is known is only not worked out again.",
    (
        "accounts/ledger.py",
        "PriceBook.charges",
        "p in self._reductions",
        "True",
    ): "A project without discounts has none in force at any time, so that the next one above counts either way.",
    (
        "accounts/ledger.py",
        "PriceBook.charges",
        "cluster",
        "True",
    ): "Prices of the cluster without a name are those of all, which count where the own ones have none.",
    (
        "accounts/ledger.py",
        "record_holds",
        "held.from_at < held.to_at",
        "(held.from_at <= held.to_at)",
    ): "An empty stretch has no charges, and so no entries.",
    (
        "accounts/quotas.py",
        "shortage",
        "count > 1 and quota.kind in AT_ONCE and present < quota.limit < present + count",
        "(quota.kind in AT_ONCE and present < quota.limit < present + count)",
    ): "What is counted at once is whole: between it and one more there is no limit.",
    (
        "accounts/tokens.py",
        "find_token",
        "scheme != SCHEME or not secret or not prefix.isalnum()",
        "(scheme != SCHEME or not prefix.isalnum())",
    ): "No token has the digest of an empty secret.",
    (
        "portal/jobs/services/budgets.py",
        "_give_all",
        "(soon or used[quota.pk] * 100 >= quota.limit * percent) and (quota.pk, percent) not in told",
        "(soon or used[quota.pk] * 100 >= quota.limit * percent)",
    ): "Whether people were told is looked at again under the lock; this only spares asking.",
    (
        "portal/jobs/services/limits.py",
        "_is_overdue",
        'Run.objects.filter(job=job).aggregate(total=Sum("running_s"))["total"] or 0.0',
        "(Run.objects.filter(job=job).aggregate(total=Sum('running_s'))['total'])",
    ): "The job has the run that is looked at, so that there is a sum.",
    (
        "portal/jobs/services/budgets.py",
        "_give",
        "not new",
        "True",
    ): "A new notice has the limit and the time already that it would be given.",
    (
        "accounts/invitations.py",
        "_create_invited",
        "True",
        "False",
    ): "An account that was made here has no key yet, so it is inserted.",
    (
        "accounts/tokens.py",
        "_note_refusal",
        "12",
        "13",
    ): "A prefix has 10 characters; the bound keeps long nonsense from the query.",
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
    (
        "portal/jobs/services/reports.py",
        "_points",
        'metric["at"] or 0.0',
        "(metric['at'])",
    ): "A metric without its time, or of time 0, has no place and is left out before.",
    (
        "portal/jobs/services/limits.py",
        "end_overdue",
        "Job.objects.filter(cluster_id=cluster_id, max_duration_s__isnull=False, run__state__in=training)",
        "Job.objects.filter(cluster_id=cluster_id, max_duration_s__isnull=False)",
    ): "Each of them is looked at again under its lock; this only keeps the others from being locked.",
    (
        "portal/jobs/services/limits.py",
        "_tell_of_deadline",
        "deadline is not None and deadline <= ctx.now",
        "(deadline <= ctx.now)",
    ): "Only jobs with a deadline come here; the guard is for the type checker.",
    (
        "portal/jobs/selectors.py",
        "visible_jobs",
        "isinstance(user, User) and user.is_active and user.is_superuser",
        "(user.is_active and user.is_superuser)",
    ): "Somebody anonymous is neither; the first condition is for the type checker.",
    (
        "accounts/audit.py",
        "as_json_lines",
        "True",
        "False",
    ): "Both sides have the length of SEALED; `strict` is for whoever changes one of them.",
    (
        "client/evenkeel/training.py",
        "Run._goes_on",
        "self.total_steps is not None and self.step < self.total_steps and not self._must_leave()",
        "(self.step < self.total_steps and (not self._must_leave()))",
    ): "`steps` refuses to begin without a total; the condition is for the type checker.",
    (
        "scheduling/rounds.py",
        "_beyond_limits",
        "not field.limits or not broken(field, layout.gangs)",
        "(not broken(field, layout.gangs))",
    ): "Without limits none is broken; the first condition saves the time to find that out.",
    (
        "portal/jobs/services/plans.py",
        "_lock_with_gpus",
        "rows.filter(pk__in=[run.pk for run in ready], state=State.STANDBY)",
        "rows.filter(pk__in=[run.pk for run in ready])",
    ): "A run that has moved on has no GPUs planned or cannot take the event, and is refused alone.",
    (
        "scheduling/simulator/meter.py",
        "Meter._area",
        "at > moment",
        "(at >= moment)",
    ): "At the moment itself nothing is added.",
}

"""Which modules are tried, and the tests that are asked about each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """Modules whose mutants one session of tests tries. `apart`: the tests reach them in processes of their own, so
    that all tests are asked about each mutant. `without`: slow tests of other things. `servers`: they need a database.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    apart: bool = False
    without: tuple[str, ...] = ()
    servers: bool = True


def _runner(*names: str) -> tuple[str, ...]:
    return tuple(f"client/evenkeel/runner/{name}.py" for name in names)


def _client_tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/client/test_{name}.py" for name in names)


GROUPS = {
    "scheduling": Group(
        (
            "scheduling/engine/accept.py",
            "scheduling/engine/add_starts.py",
            "scheduling/engine/ask_policy.py",
            "scheduling/engine/check_answer.py",
            "scheduling/engine/enforce_quota.py",
            "scheduling/engine/place.py",
            "scheduling/engine/to_plan.py",
            "scheduling/engine/placement/choose_gpus.py",
            "scheduling/engine/time_sharing/rounds.py",
            "scheduling/engine/reclaim/reclaim.py",
            "scheduling/policies/queue/backfill.py",
            "scheduling/capacity/quota_headroom.py",
            "scheduling/simulator/meter.py",
            "scheduling/simulator/engine.py",
        ),
        ("tests/scheduling",),
        servers=False,
        without=tuple(
            f"tests/scheduling/{name}"
            for name in (
                *("learning", "forecast", "simulator/test_simulate_outputs.py"),
                "simulator/test_trace_readers.py",
            )
        ),
    ),
    "accounts": Group(
        (
            "accounts/ledger.py",
            "accounts/quotas.py",
            "accounts/tokens.py",
            "accounts/audit.py",
            "accounts/invitations.py",
        ),
        (
            "tests/accounts",
            "tests/portal/api/test_api_people.py",
            "tests/portal/api/test_api_prices.py",
            "tests/portal/api/test_api_limits.py",
            "tests/portal/api/test_api_scopes.py",
            "tests/portal/api/test_api_usage.py",
            "tests/portal/accounting/test_budgets.py",
            "tests/portal/lifecycle/test_race_guards.py",
        ),
        without=("tests/accounts/test_upgrade.py",),
    ),
    "portal": Group(
        (
            "portal/accounting/budgets.py",
            "portal/drafts/draft.py",
            "portal/lifecycle/allocations.py",
            "portal/lifecycle/cancel.py",
            "portal/lifecycle/commit_plan.py",
            "portal/lifecycle/end_run.py",
            "portal/lifecycle/job_limits.py",
            "portal/lifecycle/launch_queue.py",
            "portal/lifecycle/suspend.py",
            "portal/lifecycle/transitions.py",
            "portal/reporting/observation.py",
            "portal/reporting/reports.py",
            "portal/reporting/timeouts.py",
            "portal/submission/submit.py",
            "portal/jobs/access.py",
            "portal/snapshot/rows.py",
            "portal/snapshot/take.py",
            "portal/live/streams.py",
            "portal/live/websocket.py",
            "portal/notices/addresses.py",
            "client/evenkeel/web_address.py",
        ),
        ("tests/portal", "tests/client/test_web_address.py"),
        without=tuple(
            f"tests/portal/{name}"
            for name in (
                *("operations/test_admin.py", "api/test_api_document.py", "api/test_api_openapi.py"),
                *("storage/test_checkpoint_store.py", "rollouts", "lab/test_simulations.py"),
            )
        ),
    ),
    "engine": Group(
        _runner("engine", "entry", "following", "output", "processes", "storing", "warm", "workers", "zygote"),
        _client_tests(
            *("engine", "engine_reports", "engine_turns", "escalation", "other_nodes", "out_of_memory"),
            *("program_output", "runner", "runner_ending", "runner_nodes", "runner_parts"),
            *("sdk_ranks", "store_data", "store_objects", "storing", "zygote"),
        ),
        apart=True,
        servers=False,
    ),
    "runner": Group(
        _runner(
            *("bringing", "channel", "devices", "files", "gauges", "hosting", "interfaces", "last_words", "leading"),
            *("listening", "looking", "neighbours", "probes", "reaching", "redaction", "reports", "samples"),
            *("secrets", "slurm_end", "slurm_variables", "software", "spec", "trees", "verdict", "witness"),
        ),
        (
            *_client_tests(
                *("bringing", "engine", "engine_reports", "engine_turns", "escalation", "gauges", "interfaces"),
                *("last_words", "neighbours", "other_nodes", "out_of_memory", "program_output", "redaction"),
                *("reporter", "runner", "runner_nodes", "runner_parts", "samples", "slurm_end", "slurm_variables"),
                *("software", "store_objects", "trees", "verdict"),
            ),
            "tests/executors/test_devices.py",
            "tests/executors/test_hostile_files.py",
            "tests/executors/test_reach.py",
            "tests/executors/ray/test_witness.py",
        ),
        servers=False,
    ),
    "sdk": Group(
        (
            *(
                f"client/evenkeel/sdk/{name}.py"
                for name in (
                    *("checkpoints", "control", "distributed", "gpu_memory", "lines", "pace", "sampling", "saver"),
                    *("settings", "state"),
                )
            ),
            "client/evenkeel/training.py",
        ),
        _client_tests(
            *("checkpoint_files", "escalation", "gpu_memory", "other_nodes"),
            *("sdk", "sdk_exactly", "sdk_exit", "sdk_ranks", "training_run"),
        ),
        apart=True,
        servers=False,
    ),
}

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


def _services(*names: str) -> tuple[str, ...]:
    return tuple(f"portal/jobs/services/{name}.py" for name in names)


GROUPS = {
    "scheduling": Group(
        (
            "scheduling/rounds.py",
            "scheduling/placement.py",
            "scheduling/timesharing.py",
            "scheduling/_reclaim.py",
            "scheduling/policies/_backfill.py",
            "scheduling/policies/_limits.py",
            "scheduling/simulator/meter.py",
            "scheduling/simulator/engine.py",
        ),
        ("tests/scheduling",),
        servers=False,
        without=tuple(
            f"tests/scheduling/{name}"
            for name in ("test_placement_training.py", "test_simulate_outputs.py", "test_trace_readers.py", "forecast")
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
            "tests/portal/test_api_people.py",
            "tests/portal/test_api_prices.py",
            "tests/portal/test_api_quotas.py",
            "tests/portal/test_api_scopes.py",
            "tests/portal/test_api_usage.py",
            "tests/portal/test_budgets.py",
            "tests/portal/test_race_guards.py",
        ),
        without=("tests/accounts/test_upgrade.py",),
    ),
    "portal": Group(
        (
            *_services("budgets", "holds", "limits", "moves", "observation", "plans", "reports", "submission"),
            "portal/jobs/selectors.py",
            "portal/jobs/snapshots.py",
            "portal/jobs/live_state.py",
            "portal/jobs/consumers.py",
            "portal/notices/addresses.py",
            "client/evenkeel/web_address.py",
        ),
        ("tests/portal", "tests/client/test_web_address.py"),
        without=tuple(
            f"tests/portal/test_{name}.py"
            for name in ("admin", "api_document", "api_openapi", "checkpoint_store", "rollouts", "simulations")
        ),
    ),
    "client": Group(
        (
            "client/evenkeel/runner/engine.py",
            "client/evenkeel/runner/verdict.py",
            "client/evenkeel/runner/reports.py",
            "client/evenkeel/sdk/checkpoints.py",
            "client/evenkeel/training.py",
        ),
        (
            "tests/client/test_checkpoint_files.py",
            "tests/client/test_engine.py",
            "tests/client/test_engine_reports.py",
            "tests/client/test_engine_turns.py",
            "tests/client/test_escalation.py",
            "tests/client/test_reporter.py",
            "tests/client/test_verdict.py",
            "tests/client/test_training_run.py",
            "tests/client/test_sdk.py",
            "tests/client/test_sdk_exactly.py",
            "tests/client/test_sdk_exit.py",
            "tests/client/test_runner.py",
            "tests/client/test_runner_parts.py",
        ),
        apart=True,
        servers=False,
    ),
}

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


def _runner(*names: str) -> tuple[str, ...]:
    return tuple(f"client/evenkeel/runner/{name}.py" for name in names)


def _client_tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/client/test_{name}.py" for name in names)


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

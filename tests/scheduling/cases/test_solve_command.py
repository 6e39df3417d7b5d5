"""manage.py solve: what it prints, and what it says of input that it cannot use."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

CASE: dict[str, Any] = {
    "schema": "policy-case/1",
    "cluster_spec": {"fast": 1, "slow": 1},
    "jobs": [
        {"job_id": 7, "job_type": "A", "throughputs": {"fast": 4.0, "slow": 1.0}, "steps_remaining": 100.0},
        {"job_id": 9, "job_type": "B", "throughputs": {"fast": 2.0, "slow": 1.0}, "steps_remaining": 50.0},
    ],
    "pair_throughputs": {"A|B|1": {"fast": [4.0, 2.0]}},
}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "case.json"
    path.write_text(json.dumps(CASE | changes))
    return path


def solve(path: Path, policy: str, **params: Any) -> dict[str, Any]:
    out = StringIO()
    call_command("solve", str(path), "--policy", policy, "--params", json.dumps(params), stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_the_answer_has_the_contract_s_form(tmp_path: Path) -> None:
    answer = solve(write(tmp_path), "max_sum_throughput")
    assert (answer["policy"], answer["status"], answer["objective"]) == ("max_sum_throughput", "optimal", 5.0)
    assert sorted(answer["allocation"]) == [[7, None, {"fast": 1.0}], [9, None, {"slow": 1.0}]]
    assert answer["seconds"].keys() == {"build", "solve"}


def test_pairs_name_both_jobs(tmp_path: Path) -> None:
    answer = solve(write(tmp_path), "max_sum_throughput", variant="packed")
    assert answer["objective"] == 6.0
    assert answer["allocation"] == [[7, 9, {"fast": 1.0}]]


def test_optional_keys_bring_prices_deadlines_nodes_and_trees(tmp_path: Path) -> None:
    jobs = [job | {"entity": "x", "deadline_s": due_s} for job, due_s in zip(CASE["jobs"], (40.0, 20.0), strict=True)]
    case = write(
        tmp_path,
        jobs=jobs,
        prices={"fast": 3.0, "slow": 1.0},
        entities={"org": {}, "x": {"parent": "org", "weight": 2.0, "inner": "fifo"}},
        nodes=[{"type": "fast", "gpus": 1}],
    )
    answer = solve(case, "min_cost_slo")
    assert answer["reasons"]["9"]["token"] == "deadline_missed"
    assert solve(case, "hierarchical")["status"] == "optimal"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"jobs": [{"job_id": 1, "throughputs": {"fast": -1.0}}]},
            r"jobs\[0\].throughputs.fast: -1.0 must be",
        ),
        ({"jobs": [{"job_id": 1, "throughputs": {}}, {"job_id": "1", "throughputs": {}}]}, "given twice"),
        ({"jobs": [{"job_id": 1, "throughputs": {}, "entity": "z"}]}, "'z'"),
        ({"entities": {"a": {"parent": "a"}}}, "circle"),
        ({"pair_throughputs": {"A": {}}}, "pair_throughputs"),
        ({"schema": "policy-case/9"}, "schema: .*policy-case/1"),
        (
            {"jobs": [{"job_id": 1, "throughputs": {}, "sacle": 2}]},
            r"jobs\[0\].sacle: is no known key; there are job_id, ",
        ),
        ({"jobs": [1]}, r"jobs\[0\]: 1 must be an object"),
        ({"nodes": [{"type": "fast", "gpus": 2, "count": 2}]}, "nodes: 4 GPUs of type 'fast', but cluster_spec has 1"),
        ({"nodes": [{"type": "other", "gpus": 2}]}, "nodes: 2 GPUs of type 'other', but cluster_spec has 0"),
    ],
)
def test_what_is_wrong_with_a_case_is_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        solve(write(tmp_path, **changes), "max_min_fairness")


def test_unknown_policies_and_parameters_are_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="max_min_fairness"):
        solve(write(tmp_path), "f_scheduling")
    with pytest.raises(CommandError, match="variant"):
        solve(write(tmp_path), "max_min_fairness", variant="all")
    with pytest.raises(CommandError, match="JSON object"):
        call_command("solve", str(write(tmp_path)), "--policy", "isolated", "--params", "[]")


def test_an_empty_problem_has_an_empty_answer(tmp_path: Path) -> None:
    assert solve(write(tmp_path, jobs=[]), "max_min_fairness")["allocation"] == []


def test_a_list_is_no_case(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text("[]")
    with pytest.raises(CommandError, match=r"case\.json: \[\] must be an object"):
        solve(path, "max_min_fairness")


def test_jobs_left_out_and_prices_assumed_are_named(tmp_path: Path) -> None:
    answer = solve(write(tmp_path, prices={"slow": 2.0}, seed=3), "min_cost")
    assert answer["allocation"] == [[7, None, {"fast": 1.0}]]
    assert {key: reason["token"] for key, reason in answer["reasons"].items()} == {"9": "no_share"}
    assert answer["notes"] == ["No price above 0 for fast: 1 per GPU-hour is taken.", "Not read: seed."]
    assert solve(write(tmp_path), "max_min_fairness")["notes"] == []


def test_the_documented_example_is_solved(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "policies.md").read_text()
    path = tmp_path / "case.json"
    path.write_text(text.partition("```json\n")[2].partition("```")[0])
    answer = solve(path, "min_cost_slo")
    assert (answer["status"], answer["notes"]) == ("optimal", [])


def test_terminals_get_lines(tmp_path: Path) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    call_command("solve", str(write(tmp_path)), "--policy", "isolated", stdout=out)
    assert out.getvalue().count("\n") > 10

"""Requirements files as people have them: what is refused is named by its line, and no value is repeated."""

from __future__ import annotations

from typing import Any

import pytest
from evenkeel.preparation.environments import fault_of_pip

from portal.core.problems import Problems
from portal.jobfile.parsing import parse_job_file
from portal.material.requirements import base_packages, normalise

HASH = "--hash=sha256:" + "0" * 64
TORCH = base_packages()[0].partition("==")[2]


def complaints(text: str) -> str:
    """As the API gives them: first by the job file's schema, then by the reader of requirements."""
    document = {"command": "train", "total_steps": 1, "environment": {"requirements": text}}
    try:
        rule = parse_job_file(document).environment
        assert rule is not None
        assert rule.requirements is not None
        normalise(rule.requirements)
    except Problems as error:
        return "; ".join(problem.message for problem in error.problems)
    return ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"einops==0.8.1 \\\n    {HASH}\n-e .\n", "line 3: options are not allowed, only packages: -e"),
        (
            "# a\n\n" + "six==1 \\\n  \\\n  # note\n" * 3 + "-r x\n",
            "line 12: options are not allowed, only packages: -r",
        ),
        ("# ends in \\\n-e .\n", "line 2: "),
        ("six==1 \\", ""),
        ("six\n--pre", "line 2: options are not allowed, only packages: --pre"),
        ("six --global-option=s3cret", "line 1: options are not allowed, only packages: --global-option"),
        ("six==1 --hash=sha256:abc", "line 1: --hash is not sha256"),
        ("six\u2028-e .", "line 1: "),
        ("six\x0b-e .", "line 1: it has a control character"),
        ("a\nb\0", "line 2: it has a control character"),
        ("s\ufffd\ufffds", "line 1: it is not UTF-8 text"),
        ("six==1..2", "line 1: it is no requirement: what follows 'six' is no version"),
        ("six\r\neinops==0.8.1\r\n", ""),
        ("\ufeffsix\r\n", ""),
        ("six\n\ufeffsix\n", "line 2: it has a control character"),
    ],
)
def test_the_line_of_the_file_is_named(text: str, words: str) -> None:
    said = complaints(text)
    assert said.startswith(words) if words else said == ""


AN_ADDRESS = "https://u:t0psecret@h.example/x"


@pytest.mark.parametrize(
    "line",
    [
        f"--extra-index-url {AN_ADDRESS}",
        f"--index-url={AN_ADDRESS}",
        f"-i {AN_ADDRESS}",
        f"{AN_ADDRESS}-1.0-py3-none-any.whl",
        f"git+{AN_ADDRESS}",
        "-itop-t0psecret",
        "-it0psecret",
        "six -et0psecret",
        "--config-settings=a=t0psecret",
        f"x @ {AN_ADDRESS}.whl",
        "six==t0psecret!",
        'six; python_version > "t0psecret',
    ],
)
def test_what_a_line_holds_is_not_repeated(line: str) -> None:
    said = complaints(line)
    assert said.startswith("line 1: ")
    assert "t0psecret" not in said


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"env": {"KEY": "t0p\0secret"}}, "env.KEY"),
        ({"env": {"KEY": ["t0psecret"]}}, "env.KEY"),
        ({"env": {"KEY": 1e999}}, "env.KEY"),
        ({"command": "curl -H t0psecret \x07"}, "command"),
        ({"command": ["t0psecret"]}, "command"),
        ({"code": {"git": "ftp://u:t0psecret@h.example/x"}}, "code"),
        ({"data": [{"url": "http://u:t0psecret@h.example/x", "name": "x"}]}, "data"),
        ({"environment": {"image": "docker://u:t0psecret@h.example/x y"}}, "environment.image"),
        ({"secrets": [{"name": "t0psecret \x07", "env": "A"}]}, "secrets"),
        ({"env": {"KEY=t0psecret": ""}}, "env"),
        ({"env": {"KEY=t0psecret": ["x"]}}, "env.KEY"),
        ({"env": "KEY=t0psecret"}, "env"),
        ({"env": ["KEY=t0psecret"]}, "env"),
        ({"env": {"KEY": "a\u202et0psecret"}}, "env.KEY"),
        ({"environment": "--index-url x t0psecret"}, "environment"),
        ({"environment": {"requirements": ["t0psecret"]}}, "environment.requirements"),
        ({"environment": {"modules": "t0psecret"}}, "environment.modules"),
        ({"code": "t0psecret"}, "code"),
        ({"code": {"git": "https://h.example/x", "ref": "main", "token_secret": "t0psecret!"}}, "code"),
        ({"code": {"https://u:t0psecret@h.example/x": None}}, "code"),
        ({"data": [{"url": "s3://b/x", "name": "x", "secret": "t0psecret!"}]}, "data"),
        ({"data": "t0psecret"}, "data"),
        ({"retry": "t0psecret"}, "retry"),
        ({"labels": "t0psecret"}, "labels"),
    ],
)
def test_values_that_may_be_secret_are_not_repeated(more: dict[str, Any], field: str) -> None:
    with pytest.raises(Problems) as caught:
        parse_job_file({"command": "train", "total_steps": 1} | more)
    for problem in caught.value.problems:
        assert "t0p" not in problem.message
        assert problem.field.startswith(field)


def test_other_values_are_repeated_and_huge_numbers_are_named() -> None:
    with pytest.raises(Problems) as caught:
        parse_job_file({"command": "train", "total_steps": -3, "gpus": {"min": 16**5_000}})
    said = {problem.field: problem.message for problem in caught.value.problems}
    assert said["total_steps"].endswith("not -3")
    assert said["gpus.min"].endswith("not a number of so many digits") or "out of range" in said["gpus.min"]


@pytest.mark.parametrize("line", ["torch==2.1.2", "Torch<2", "torch===0.1", "torch[opt]>99", "torch==2.1.2 " + HASH])
def test_a_torch_that_clashes_is_refused_with_the_portals_version(line: str) -> None:
    said = complaints("six\n" + line)
    assert said.startswith("line 2: torch")
    assert f"PyTorch is the portal's, {TORCH}; leave the line out" in said


@pytest.mark.parametrize(
    "line", ["torch", f"torch=={TORCH}", "torch>=2", 'torch==1; python_version < "3"', "torchvision"]
)
def test_a_torch_that_agrees_is_taken(line: str) -> None:
    assert complaints(line) == ""


CONFLICT = """\
Collecting torch==2.1.2
ERROR: Cannot install torch==2.1.2 because these package versions have conflicting dependencies.

The conflict is caused by:
    fairlib 0.3 depends on torch==2.1.2
    The user requested (constraint) torch==2.13.0

Additional information: some packages in these versions have conflicting dependencies
To fix this you could try to:
1. loosen the range of package versions you've specified
ERROR: ResolutionImpossible: for help visit https://pip.example/resolution
"""
MISSING = """\
Looking in indexes: x
ERROR: Could not find a version that satisfies the requirement evenkeel-none==1 (from versions: none)
ERROR: No matching distribution found for evenkeel-none==1
"""
BROKEN = """\
  error: subprocess-exited-with-error
  note: This error originates from a subprocess, and is likely not a problem with pip.
ERROR: Failed building wheel for oldlib
ERROR: Could not build wheels for oldlib, which is required to install pyproject.toml-based projects
"""


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (CONFLICT, "the requirements conflict: fairlib 0.3 depends on torch==2.1.2; the portal has torch==2.13.0"),
        (
            MISSING,
            "Could not find a version that satisfies the requirement evenkeel-none==1 (from versions: none); No match",
        ),
        (
            BROKEN,
            "Failed building wheel for oldlib; Could not build wheels for oldlib, which is required to install",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n x", "a package does not match"),
        ("all went well", ""),
        ("", ""),
    ],
)
def test_of_what_pip_prints_the_cause_is_said(output: str, said: str) -> None:
    assert fault_of_pip(output).startswith(said)
    assert bool(fault_of_pip(output)) == bool(said)

"""What YAML means in job files, and where it is refused; the same for the command line and the portal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from evenkeel import yaml_loader
from evenkeel.cli.main import cli
from evenkeel.cli.submit import set_value
from evenkeel.yaml_loader import MAX_DEPTH, MAX_VALUES, YamlProblem, load

from portal.config import env
from portal.config.clusters_file import read_clusters
from portal.core.problems import Problems
from portal.jobfile.parsing import load_yaml
from tests.cases import in_turn

BOMB = "a: &a [x, x]\nb: [*a, *a]\n"
REFUSED = [
    ("a: 0000-00-00", "line 1, column 4: there is no date '0000-00-00'"),
    ("a: 1\nb: 2027-02-29", "line 2, column 4: there is no date '2027-02-29'"),
    ("a: 2026-12-01 25:00:00", "line 1, column 4: there is no date"),
    ("a: 5\na: 6", "line 2, column 1: 'a' is given twice"),
    ("b: {a: 5, 'a': 6}", "line 1, column 11: 'a' is given twice"),
    ("{\u00e9: a, e\u0301: b}", "line 1, column 8: 'e\u0301' is given twice"),
    ("1: a\n'1': b", "line 2, column 1: '1' is given twice"),
    (BOMB, "line 1, column 4: anchors (&a) are not allowed"),
    ("a: *l", "line 1, column 4: aliases are not allowed"),
    ("labels: &l {me: *l}", "line 1, column 9: anchors"),
    ("<<: {a: 1}", "line 1, column 1: merge keys"),
    ("a: !!python/object:os.system x", "line 1, column 4: tags"),
    ("[a]: b", "line 1, column 1: a key must be text"),
    ("~: b", "line 1, column 1: a key is missing"),
    ("a: 1\n---\nb: 2", "line 2, column 1: a second document"),
    ("a: .inf", "line 1, column 4: .inf is not allowed"),
    ("a: -.NaN", "line 1, column 4: -.NaN is not allowed"),
    ("a: 1.0e999", "line 1, column 4: '1.0e999' is too large"),
    (f"a: {'9' * 5_000}", "line 1, column 4: a number has 30 digits at most"),
    ("a: 1\n\tb: 2", "line 2, column 1: while scanning"),
    ("a: 1\n\tb: 2", "violates indentation; indent with spaces"),
    ("a:\n\t- 1", "cannot start any token; indent with spaces, not tabs"),
    ("a: `b`", "line 1, column 4: while scanning"),
    ("command: python x: y", "; put text with a colon and a space in quotes"),
    ("a: 1\nb: \x07", "line 2, column 4: character U+0007"),
    ("a: \ud800", "line 1, column 4: character U+D800"),
    ("[" * 20_000, f"line 1, column {MAX_DEPTH + 2}: this is nested too deeply"),
    ("- " * 20_000, "this is nested too deeply"),
    (f"a: [{'1,' * MAX_VALUES}]", "there are too many values"),
    ("a: [", "line 2, column 1: while parsing"),
]


@in_turn(("text", "problem"), REFUSED, ids=lambda part: repr(part[:20]))
def test_what_is_refused_has_its_line_and_column_everywhere(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(YamlProblem) as caught:
        load(text)
    assert problem in str(caught.value)
    with pytest.raises(Problems, match=r"line .*, column "):
        load_yaml(text)
    (tmp_path / "job.yaml").write_text(text, errors="surrogatepass")
    result = CliRunner().invoke(cli, ["preview", str(tmp_path / "job.yaml")])
    assert result.exit_code == 1
    assert "column" in result.stderr or "it is not UTF-8" in result.stderr


@in_turn(
    ("text", "value"),
    [
        ("5", 5), ("-5", -5), ("0", 0), ("0.5", 0.5), (".5", 0.5), ("1.5e3", 1500.0), ("true", True), ("False", False),
        ("~", None), ("null", None), ("", None), ("010", "010"), ("0o10", "0o10"), ("0x1f", "0x1f"), ("1_000", "1_000"),
        ("1:30", "1:30"), ("12:00:00", "12:00:00"), ("yes", "yes"), ("off", "off"), ("1e3", "1e3"), ("'5'", "5"),
        ("2026-12-01", "2026-12-01"), ("2026-12-01T10:00:00Z", "2026-12-01T10:00:00Z"), ("'2027-02-29'", "2027-02-29"),
    ],
)  # fmt: skip
def test_a_value_means_what_it_looks_like(text: str, value: Any) -> None:
    assert load(f"\ufeffon: {text}") == {"on": value}
    assert type(load(f"a: {text}")["a"]) is type(value)


def test_libyaml_reads() -> None:
    """Without it 250 KB take seconds."""
    assert yaml_loader._PARSER is yaml.CSafeLoader


@in_turn("value", ["😀", "\\ud83d\\ude00", "\\😀", 'a"b'])
def test_json_is_yaml_with_its_escapes(value: str) -> None:
    assert load(json.dumps({"a": [value]})) == {"a": [value]}


@in_turn("value", ["", "null", "2026-12-01 10:00:00", "2027-02-29", "1234567", "yes", "[a", "*x", "010"])
@in_turn("key", ["labels", "env"])
def test_labels_and_variables_are_text_as_it_is_written(key: str, value: str) -> None:
    job: dict[str, Any] = {}
    set_value(job, f"{key}.A={value}")
    assert job == {key: {"A": value}}


def test_in_changes_null_takes_a_label_away() -> None:
    changes: dict[str, Any] = {}
    set_value(changes, "labels.a=null", null_removes=True)
    set_value(changes, "labels.b=7", null_removes=True)
    assert changes == {"labels": {"a": None, "b": "7"}}


@in_turn("setting", ["deadline=0000-00-00", "gpus={a: 1, a: 2}", "name=*x", f"data={'[' * 2_000}"])
def test_settings_are_read_as_strictly(setting: str) -> None:
    with pytest.raises(click.UsageError, match="line 1, column "):
        set_value({}, setting)


@in_turn("data", [b"\xff\xfea\x00", b"name: caf\xe9", b"a" * 300_000])
def test_files_that_are_no_text_or_too_large_are_said(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(data)
    result = CliRunner().invoke(cli, ["submit", str(tmp_path / "job.yaml")])
    assert result.exit_code == 1
    assert "it is not UTF-8 text" in result.stderr or "256 KiB at most" in result.stderr


@in_turn("text", ["clusters: []\nclusters: []", BOMB, "[" * 2_000, "clusters: [{name: 2027-02-29}]"])
def test_the_clusters_file_is_read_as_strictly(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusters.yaml").write_text(text)
    monkeypatch.setenv("EVENKEEL_CLUSTERS", str(tmp_path / "clusters.yaml"))
    with pytest.raises(env.BadSetting, match=r"line .*, column "):
        read_clusters(tmp_path)

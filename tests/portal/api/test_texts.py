"""What may stand in texts that are shown: the rule, and that every field of every input keeps it."""

import importlib
import json
import pkgutil
import unicodedata
from collections.abc import Iterator

import pytest
from pydantic import BaseModel, ValidationError

import portal.api
from accounts.text import isolated, one_line, several_lines, shown
from portal.core.problems import Problems
from portal.jobfile.parsing import parse_job_file
from portal.notices.messages import as_chat, as_mail
from portal.notices.models import Delivery, Destination
from tests.cases import in_turn

UNSEEN = {
    "direction": "safe\u202egnp.exe",
    "isolate": "a\u2066b",
    "zero width": "a\u200bb",
    "only zero width": "\u200b",
    "soft hyphen": "a\u00adb",
    "byte order mark": "\ufeffa",
    "line end": "a\nb",
    "carriage return": "a\rb",
    "tab": "a\tb",
    "next line": "a\u0085b",
    "line separator": "a\u2028b",
    "escape": "a\x1b[2Jb",
    "filler": "\u3164",
    "choseong": "a\u115fb",
    "braille blank": "\u2800",
    "mark alone": "\u0301",
    "many marks": "a" + "\u0301" * 12,
    "joiner between letters": "a\u200db",
    "selector after a letter": "a\ufe0fb",
    "tag": "a\U000e0041",
    "private use": "a\ue000",
    "not assigned": "a\u0378",
    "surrogate": "a\ud800",
    "no character": "a\uffff",
}


@in_turn("text", UNSEEN.values(), ids=UNSEEN)
def test_what_is_not_seen_is_refused_by_its_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"must not|marks"):
        one_line(text)
    assert shown(text).isprintable()


@in_turn(
    "text",
    [
        "Größe",
        "名前",
        "ResNet 50 (β=0.9)",
        "👩‍💻 run",
        "❤️",
        "1️⃣",
        "🏳️‍🌈",
        "👍🏽",
        "مرحبا",
        "ไทยที่",
        "\U0001faf8",
    ],
)
def test_names_of_all_scripts_and_whole_emoji_are_taken(text: str) -> None:
    assert one_line(text) == text == shown(text)


def test_names_are_kept_in_one_form_without_space_around_them() -> None:
    assert one_line("\u3000e\u0301\u00a0 ") == "\u00e9"
    assert one_line(" \u2003\u3000 ") == ""


@in_turn("space", [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) == "Zs"], ids=ascii)
def test_no_two_names_differ_by_the_kind_of_their_spaces(space: str) -> None:
    assert one_line(f"{space}a{space}b{space}") == "a b"


@in_turn("text", ["a\u202eb", "a\x1bb", "a\rb", "a\u2066b", "a\u0085b", "\ufeffa", "a\u200fb"])
def test_texts_of_several_lines_turn_no_direction_and_drive_no_terminal(text: str) -> None:
    with pytest.raises(ValueError, match=r"U\+.* \(line 2\)"):
        several_lines("echo\n" + text)


def test_texts_of_several_lines_have_lines_tabs_and_either_line_end() -> None:
    assert several_lines("a\r\n\tb\n") == "a\n\tb\n"


def test_others_texts_are_cut_to_what_fits() -> None:
    assert shown("a\nb\u202ec" + "d" * 20, 8) == "a b cdd…"


#: Field of an input -> why it takes what is not seen.
FREE = {
    "portal.api.people.sessions.Credentials.password": "a secret: no answer shows it",
    "portal.api.people.invitations.Acceptance.password": "a secret: no answer shows it",
    "portal.api.people.invitations.Acceptance.secret": "compared with a digest",
    "portal.api.people.invitations.Look.secret": "compared with a digest",
    "portal.api.jobs.reports.CarriedReport.token": "compared with a digest",
    "portal.api.jobs.logs.LogsQuery.search": "finds what programs wrote, tabs too",
    "portal.jobfile.schema.JobFile.command": "has several lines",
    "portal.jobfile.schema.JobFile.env": "has several lines",
    "portal.jobfile.code.EnvironmentRule.requirements": "has several lines",
    "portal.api.material.secrets.SecretWish.value": "is never shown",
    "portal.api.cluster.clusters.PolicyChoice.parameters": "checked by the policy",
    "portal.api.lab.rounds.ReplayWish.parameters": "checked by the policy",
    "portal.lab.spec.PolicyWish.parameters": "checked by the policy",
    "portal.rollouts.spec.RolloutWish.parameters": "checked by the policy",
    "portal.api.jobs.jobs.JobChanges.root": "checked as a job file",
    "portal.api.jobs.bulk.BulkRequest.changes": "checked as a job file",
    "portal.api.jobs.templates.TemplateWish.file": "checked as a job file",
    "portal.api.jobs.templates.TemplateChange.file": "checked as a job file",
    "portal.api.jobs.reports.CarriedReport.report": "checked as a report",
}
#: Of answers, and what a runner says: it is cleaned, as nothing it says may be lost for a character.
NOT_GIVEN = (
    "portal.api.jobs.bulk.BulkResult",
    "portal.api.jobs.reports.Orders",
    "portal.api.jobs.reports.ReportAnswer",
)
REPORTS = ("portal.api.jobs.reports.NodeReport", "portal.reporting.reports.")


def _inputs() -> Iterator[type[BaseModel]]:
    for module in pkgutil.walk_packages(portal.api.__path__, "portal.api."):
        importlib.import_module(module.name)
    todo, seen = [BaseModel], set()
    while todo:
        for model in todo.pop().__subclasses__():
            if model not in seen:
                seen.add(model)
                todo.append(model)
                if model.__module__.startswith("portal.") and not model.__module__.startswith("portal.api.shapes"):
                    yield model


def _takes(model: type[BaseModel], name: str, value: object) -> bool:
    try:
        model.__pydantic_validator__.validate_assignment(model.model_construct(), name, value)
    except ValidationError as error:
        return not any(problem["loc"][:1] == (name,) for problem in error.errors())
    except Exception:
        return True
    return True


def test_no_field_of_the_api_takes_what_is_not_seen() -> None:
    found = set()
    for model in _inputs():
        for name in model.model_fields:
            for bad in ("a\u202eb", "a\u200bb", "a\nb", "a\tb", "\u3164", "a\u202eb@x.org", "https://x.org/\u202e"):
                values = [bad, [bad], {bad: 1}, {"a": bad}]
                found |= {
                    f"{model.__module__}.{model.__qualname__}.{name}" for value in values if _takes(model, name, value)
                }
    given = {field for field in found if not field.startswith((*NOT_GIVEN, *REPORTS)) and "RootModel[" not in field}
    assert sorted(given) == sorted(FREE)


@in_turn(
    ("name", "value"),
    [("command", "echo\nrm \u202e"), ("env", {"A": "\x1b[2J"}), ("environment", {"requirements": "a\x85b"})],
)
def test_fields_of_several_lines_refuse_what_drives_a_terminal(name: str, value: object) -> None:
    with pytest.raises(Problems, match=r"must not contain U|control character"):
        parse_job_file({"command": "true", "total_steps": 1} | {name: value})


@in_turn("array", ["\u0660-\u0663", "0-3%", "0-3%\u0662", "0-3%two"])
def test_an_array_is_written_in_digits_of_ascii(array: str) -> None:
    with pytest.raises(Problems, match=r"write (indices|after %)"):
        parse_job_file({"command": "true", "total_steps": 1, "array": array})


@in_turn("field", ["memory", "max_duration"])
def test_sizes_and_durations_are_written_in_digits_of_ascii(field: str) -> None:
    with pytest.raises(Problems, match="write"):
        parse_job_file({"command": "true", "total_steps": 1, field: "٣٢"})


@in_turn(
    ("key", "value", "said"),
    [
        ("total_steps", ..., "is required"),
        ("nice", "010", "must be a whole number, such as 10, not '010'"),
        ("total_steps", 1.5, "must be a whole number, such as 10, not 1.5"),
        ("restartable", 7, "must be true or false, not 7"),
        ("name", 12, "must be text: put it in quotes, not 12"),
        ("deadline", "2026-12-01", "offset from UTC, such as 2026-12-01T18:00:00+01:00, not '2026-12-01'"),
        ("deadline", "2026-12-01T18:00:00", "offset from UTC, such as 2026-12-01T18:00:00+01:00"),
        ("deadline", "tomorrow", "offset from UTC, such as 2026-12-01T18:00:00+01:00"),
        ("env", {"OMP_NUM_THREADS": 4}, "must be text: put it in quotes"),
    ],
)
def test_what_is_wrong_with_a_value_says_what_is_allowed(key: str, value: object, said: str) -> None:
    given = {"command": "python a.py", "total_steps": 1, "gpus": 1, key: value}
    with pytest.raises(Problems) as caught:
        parse_job_file({name: field for name, field in given.items() if field is not ...})
    assert [said in problem.message for problem in caught.value.problems] == [True]


@in_turn(
    ("text", "sent"),
    [
        ("Größe may hold 12 GPUs.", "Größe may hold 12 GPUs."),
        ("تصوير may hold 12 GPUs.", "\u2068تصوير\u2069 may hold 12 GPUs."),
        ("#7 شبكة تدريب: 3 GPUs", "#7 \u2068شبكة تدريب\u2069: 3 GPUs"),
        ("شبكة, تدريب and 2 others", "\u2068شبكة\u2069, \u2068تدريب\u2069 and 2 others"),
        ("شبكة_2 of تدريب", "\u2068شبكة\u2069_2 of \u2068تدريب\u2069"),
    ],
)
def test_names_from_right_to_left_keep_to_themselves_in_what_is_sent(text: str, sent: str) -> None:
    assert isolated(text) == sent
    delivery = Delivery(
        event="job.failed", payload={"data": {"text": text, "url": "https://x", "job": {"number": 7, "name": text}}}
    )
    mail = as_mail([delivery], Destination(name=text, portal_url="https://x"))
    assert mail.subject == f"#7 {sent}: failed"
    assert mail.body == f"{sent}\nhttps://x\n\n-- \nSent because of your destination {sent}: https://x/notifications\n"
    assert json.loads(as_chat([delivery]))["text"] == f"{sent} <https://x|Open>"

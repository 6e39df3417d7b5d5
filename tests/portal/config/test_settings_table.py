"""The table of settings: each stands there once, is read, is bounded, and errors say what is allowed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.conf import settings

from portal.cluster import node_checks
from portal.config import env, keep
from portal.config.engines import EXECUTORS, read_engine
from portal.config.environment_notes import RUN_VARIABLES, TOOL_VARIABLES
from portal.config.old_names import READ_UNTIL, REMOVED, RENAMED, Renamed
from portal.config.settings_table import GROUPS, SETTINGS
from portal.snapshot import decisions
from tests.cases import in_turn

ROOT = Path(__file__).parents[3]
OUTSIDE = {"DATABASE_URL", "REDIS_URL", "FORWARDED_ALLOW_IPS"}
READERS = (ROOT / "portal/settings.py", ROOT / "portal/material/limits.py", *(ROOT / "portal/config").glob("*.py"))
#: Where names stand that settings have or had.
_LISTS = {"settings_table.py", "old_names.py", "environment_notes.py"}
_NAME = re.compile(r"(?<![A-Z_])EVENKEEL_[A-Z0-9_]*[A-Z0-9]")


def names_read() -> set[str]:
    """Strings that are nothing but a name, where settings are read."""
    return {
        node.value
        for path in READERS
        if path.name not in _LISTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value in OUTSIDE or _NAME.fullmatch(node.value)
    }


def test_every_setting_stands_once_and_is_read() -> None:
    rows = [setting.name for group in GROUPS for setting in group.settings]
    assert len(rows) == len(set(rows))
    assert names_read() == set(rows)


def test_code_names_no_setting_that_there_is_not() -> None:
    """Old names stand in one list and in the tests."""
    internal = {name for name in dir(settings) if name.startswith("EVENKEEL_")}
    known = SETTINGS.keys() | RUN_VARIABLES | TOOL_VARIABLES | internal
    places = [ROOT / top for top in ("portal", "accounts", "scheduling", "scripts", "docker", "benchmarks", "examples")]
    paths = [path for place in places for kind in ("py", "sh", "yaml", "yml") for path in place.rglob(f"*.{kind}")]
    paths += (ROOT / "client" / "evenkeel").rglob("*.py")
    unknown = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in paths
        if path.name != "old_names.py" and "node_modules" not in path.parts
        for name in _NAME.findall(path.read_text(errors="replace"))
        if name not in known and not name.startswith("EVENKEEL_DATA_")
    }
    families = {name for _, name in unknown if any(one.startswith(f"{name}_") for one in known)}
    assert {(path, name) for path, name in unknown if name not in families} == set()


@in_turn("name", [name for name, one in SETTINGS.items() if one.kind in {"number", "integer"}])
def test_a_number_is_bounded_and_the_error_says_how(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    setting = SETTINGS[name]
    read = env.integer if setting.kind == "integer" else env.number
    assert read(name) == setting.default
    assert setting.minimum <= read(name) <= setting.maximum
    for wrong in ("", "many", "nan", "٣", str(setting.minimum - 1), str(setting.maximum * 2)):
        monkeypatch.setenv(name, wrong)
        with pytest.raises(env.BadSetting) as raised:
            read(name)
        assert str(raised.value) == f"{name} must be {setting.allowed}, not {wrong!r}"
    for right in (setting.minimum, setting.maximum):
        monkeypatch.setenv(name, str(right))
        assert read(name) == right


def test_a_whole_number_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_PORT", "8800.5")
    with pytest.raises(env.BadSetting, match=r"^EVENKEEL_PORT must be a whole number from 1 to 65,535, not '8800\.5'$"):
        env.integer("EVENKEEL_PORT")


@in_turn("name", [name for name, one in SETTINGS.items() if one.kind == "flag"])
def test_a_flag_is_one_or_nought(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert env.flag(name) is SETTINGS[name].default
    for said, means in (("1", True), ("Yes", True), ("0", False), ("off", False), ("", False)):
        monkeypatch.setenv(name, said)
        assert env.flag(name) is means
    monkeypatch.setenv(name, "maybe")
    with pytest.raises(env.BadSetting, match=f"^{name} must be 1 or 0, not 'maybe'$"):
        env.flag(name)


@in_turn("name", [name for name, one in SETTINGS.items() if one.kind == "choice"])
def test_a_choice_is_one_of_its_words(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    setting = SETTINGS[name]
    assert env.choice(name) == setting.default
    for word in setting.choices:
        monkeypatch.setenv(name, word)
        assert env.choice(name) == word
    monkeypatch.setenv(name, "else")
    with pytest.raises(env.BadSetting, match=f"^{name} must be {setting.allowed}, not 'else'$"):
        env.choice(name)


def test_a_setting_is_read_as_what_it_is() -> None:
    with pytest.raises(TypeError, match="EVENKEEL_PORT is read as flag"):
        env.flag("EVENKEEL_PORT")
    with pytest.raises(KeyError):
        env.text("EVENKEEL_PROT")


def test_what_ray_and_slurm_have_in_common_has_one_name() -> None:
    own = [
        {name.removeprefix(f"EVENKEEL_{e}_") for name in SETTINGS if f"EVENKEEL_{e}_" in name} for e in ("RAY", "SLURM")
    ]
    assert own[0] & own[1] == set()


def test_the_settings_of_a_cluster_are_those_that_engines_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    asked: set[str] = set()
    said = {
        "EVENKEEL_CHECKPOINT_URL": "file:///x",
        "EVENKEEL_RAY_FENCE_S": "5",
        "EVENKEEL_SLURM_RUN_AS": "person",
    }
    for executor in EXECUTORS:
        with env.before_environment(said) as given:
            read_engine(executor, tmp_path, tmp_path / "accounts.json")
        asked |= given.asked
    own = {setting.name for group in GROUPS if group.per_cluster for setting in group.settings}
    assert asked - {old.name for old in RENAMED} == own


def test_every_value_that_is_kept_has_a_key() -> None:
    assert keep.read_keep() == keep.Keep(
        90, 14, 30, 400, 400, 90, 30, 30, 30, 365, 256 << 20, 512 << 20, 64 << 20, 100 << 30
    )
    assert len(keep.KEYS) == len(keep.Keep.__slots__)


def test_keep_changes_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_KEEP", " events=365d, decisions=2GiB\nshadows=10MiB ")
    found = keep.read_keep()
    assert (found.events_days, found.decisions_bytes, found.shadows_bytes) == (365, 2 << 30, 10 << 20)
    assert found.samples_days == 14


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("events", "EVENKEEL_KEEP must be as events=365d,decisions=200MiB, separated by commas, not 'events'"),
        ("events=", "separated by commas, not 'events='"),
        ("events=5", "EVENKEEL_KEEP: events must be from 1d to 3660d, in d, not '5'"),
        ("events=0d", "must be from 1d to 3660d, in d, not '0d'"),
        ("events=4000d", "must be from 1d to 3660d"),
        ("events=5MiB", "in d, not '5MiB'"),
        ("decisions=5d", "EVENKEEL_KEEP: decisions must be from 1MiB to 1048576MiB, in MiB or GiB or TiB, not '5d'"),
        ("decisions=2TiB", "must be from 1MiB to"),
        ("event=5d", "there is no 'event', but events, .*; did you mean events?"),
        ("events=5d events=6d", "EVENKEEL_KEEP: events is there twice"),
    ],
)
def test_what_keep_may_not_say(monkeypatch: pytest.MonkeyPatch, said: str, why: str) -> None:
    monkeypatch.setenv("EVENKEEL_KEEP", said)
    with pytest.raises(env.BadSetting, match=why.replace("?", r"\?")):
        keep.read_keep()


OLD_SIZES = [old for old in RENAMED if old.key]


@in_turn("old", OLD_SIZES, ids=lambda old: old.name)
def test_an_old_name_of_what_is_kept_is_still_read(monkeypatch: pytest.MonkeyPatch, old: Renamed) -> None:
    before, field = keep.read_keep(), f"{old.key}_{'days' if old.unit == 'd' else 'bytes'}"
    monkeypatch.setenv(old.name, "7")
    seven = 7 if old.unit == "d" else 7 << 20
    assert getattr(keep.read_keep(), field) == seven != getattr(before, field)
    monkeypatch.setenv("EVENKEEL_KEEP", f"{old.key}=8{old.unit}")
    assert getattr(keep.read_keep(), field) == seven // 7 * 8
    monkeypatch.setenv(old.name, "0")
    with pytest.raises(env.BadSetting, match=f"^{old.name} must be a whole number from 1 to [0-9,]+, not '0'$"):
        keep.read_keep()


@pytest.mark.parametrize("executor", ["ray", "slurm"])
def test_an_old_name_of_an_engine_is_still_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: str) -> None:
    def read() -> tuple[Path, bool]:
        engine = read_engine(executor, tmp_path, tmp_path / "accounts.json")
        return engine.job_files, engine.emulated

    other = "slurm" if executor == "ray" else "ray"
    monkeypatch.setenv(f"EVENKEEL_{other.upper()}_SHARED_DIR", "/others")
    monkeypatch.setenv(f"EVENKEEL_{other.upper()}_EMULATED", "1")
    assert read() == (tmp_path, False)
    monkeypatch.setenv(f"EVENKEEL_{executor.upper()}_SHARED_DIR", "/old")
    monkeypatch.setenv(f"EVENKEEL_{executor.upper()}_EMULATED", "1")
    assert read() == (Path("/old"), True)
    monkeypatch.setenv("EVENKEEL_SHARED_DIR", "/new")
    monkeypatch.setenv("EVENKEEL_EMULATED", "0")
    assert read() == (Path("/new"), False)


def test_old_names_are_no_settings_and_go_in_time() -> None:
    old = [one.name for one in RENAMED] + list(REMOVED)
    assert len(old) == len(set(old)) <= 40
    assert not SETTINGS.keys() & set(old)
    assert {one.new for one in RENAMED} <= SETTINGS.keys()
    version = [tuple(int(part) for part in one.split(".")) for one in (settings.VERSION, READ_UNTIL)]
    assert version[0] < version[1], "move the names of RENAMED to REMOVED"


def test_what_counts_now_is_what_the_constants_say() -> None:
    limits, rates = settings.EVENKEEL_MATERIAL, _usual_rates()
    figures = {
        "ARTIFACT_MAX_FILES": limits.artifact_max_files,
        "ARTIFACT_MAX_MIB": limits.artifact_max_bytes >> 20,
        "ARTIFACT_QUOTA_MIB": limits.artifact_quota_bytes >> 20,
        "BUNDLE_MAX_FILES": limits.bundle_max_files,
        "BUNDLE_MAX_MIB": limits.bundle_max_bytes >> 20,
        "BUNDLE_QUOTA_MIB": limits.bundle_quota_bytes >> 20,
        "BUNDLE_UNPACKED_MAX_MIB": limits.bundle_unpacked_max_bytes >> 20,
        "EMPTY_DECISION_EVERY_S": decisions.EMPTY_EVERY_S,
        "GIT_MAX_MIB": limits.git_max_bytes >> 20,
        "GIT_TIMEOUT_S": limits.git_timeout_s,
        "NODE_CHECK_AGAIN_S": node_checks.AGAIN_S,
        "NODE_CHECK_FAULTS": node_checks.FAULTS,
        "NODE_CHECK_FAULTS_S": node_checks.FAULTS_WITHIN_S,
        "NODE_CHECK_FREE_MIB": settings.NODE_CHECK_FREE_MIB,
        "NODE_CHECK_TIMEOUT_S": node_checks.TIMEOUT_S,
        "RATE_ANONYMOUS_PER_MINUTE": rates["anonymous"],
        "RATE_RUN_PER_MINUTE": rates["run"],
        "RATE_USER_PER_MINUTE": rates["user"],
    }
    said = {name.removeprefix("EVENKEEL_"): text for name, text in REMOVED.items()}
    assert said.keys() - figures.keys() == {"GIT_ALLOW_FILE"}
    assert limits.git_allow_file is False
    for name, figure in figures.items():
        assert f"{figure:,g}" in said[name].replace("MiB", "").split(), name


def _usual_rates() -> dict[str, int]:
    """The tests' own settings count no requests."""
    tree = ast.parse((ROOT / "portal" / "settings.py").read_text())
    [found] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RATES_PER_MINUTE"
    ]
    rates: dict[str, int] = ast.literal_eval(found)
    return rates

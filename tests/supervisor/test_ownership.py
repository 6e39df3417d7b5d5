"""The portal's processes can add to the audit log and nothing else, and can do all the rest; on a real portal."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import psycopg2
import pytest
import yaml
from psycopg2.errors import InsufficientPrivilege, RaiseException

from portal.config.layout import APPLICATION, DATABASE, OWNER, Layout
from portal.supervisor.ownership import separation
from portal.supervisor.postgres import Postgres, installed
from tests.live_portal import LivePortal
from tests.supervisor.running import ROOT, portal_env

pytestmark = [pytest.mark.whole, pytest.mark.timeout(300)]
REFUSED = [
    "UPDATE accounts_auditentry SET target = 'x'",
    "UPDATE accounts_auditentry SET position = 0 WHERE position IS NULL",
    "DELETE FROM accounts_auditentry",
    "TRUNCATE accounts_auditentry",
    "DROP TABLE accounts_auditentry",
    "DROP TABLE accounts_auditentry CASCADE",
    "DROP SCHEMA public CASCADE",
    f"DROP DATABASE {DATABASE}",
    "ALTER TABLE accounts_auditentry DISABLE TRIGGER ALL",
    "ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_guard",
    "ALTER TABLE accounts_auditentry RENAME TO gone",
    f"ALTER TABLE accounts_auditentry OWNER TO {APPLICATION}",
    "DROP TRIGGER audit_guard ON accounts_auditentry",
    "CREATE TRIGGER mine BEFORE INSERT ON accounts_auditentry FOR EACH ROW EXECUTE FUNCTION accounts_project_place()",
    "CREATE RULE mine AS ON INSERT TO accounts_auditentry DO INSTEAD NOTHING",
    "CREATE OR REPLACE FUNCTION accounts_audit_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "DROP FUNCTION accounts_audit_seal() CASCADE",
    "SELECT setval(pg_get_serial_sequence('accounts_auditentry', 'id'), 1)",
    "SET session_replication_role = replica",
    f"SET ROLE {OWNER}",
    f"ALTER ROLE {APPLICATION} SUPERUSER",
    f"ALTER ROLE {OWNER} PASSWORD 'x'",
]
ENTRY = (
    "INSERT INTO accounts_auditentry (at, action, target, detail, actor_email, address, credential, request_id,"
    " previous_hash, hash) VALUES (now(), 'test', 'by hand', '{}', '', '', '', '', '', '') RETURNING id"
)


@contextlib.contextmanager
def connected(url: str) -> Iterator[psycopg2.extensions.cursor]:
    with contextlib.closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor


@pytest.fixture(scope="module")
def prepared() -> Iterator[Layout]:
    """A database as `up` leaves it, without the portal's processes."""
    data = Path(tempfile.mkdtemp(prefix="evenkeel-data-"))
    data.chmod(0o755)
    layout = Layout(data)
    layout.prepare()
    server = Postgres(layout, durable=False)
    server.start()
    try:
        manage(layout, "migrate")
        yield layout
    finally:
        server.stop()
        shutil.rmtree(data)


@pytest.fixture
def new_server() -> Iterator[Layout]:
    """With the owner's role and an empty database only."""
    with tempfile.TemporaryDirectory(prefix="evenkeel-data-") as place:
        Path(place).chmod(0o755)
        layout = Layout(Path(place))
        layout.prepare()
        server = Postgres(layout, durable=False)
        server.start()
        try:
            with connected(layout.owner_database_url) as cursor:
                cursor.execute(f"DROP OWNED BY {APPLICATION}")
                cursor.execute(f"DROP ROLE {APPLICATION}")
            yield layout
        finally:
            server.stop()


def filled(value: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+):\?\}", lambda name: variables[name[1]], value)


def manage(layout: Layout, *words: str, **extra: str) -> str:
    command = [sys.executable, "manage.py", *words]
    env = portal_env(layout.data, **extra)
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def owners(cursor: psycopg2.extensions.cursor) -> dict[str, set[str]]:
    cursor.execute(
        "SELECT pg_get_userbyid(relowner), relname FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S')"
        " UNION ALL SELECT pg_get_userbyid(proowner), proname FROM pg_proc"
        " WHERE pronamespace = 'public'::regnamespace"
    )
    found: dict[str, set[str]] = {}
    for owner, name in cursor.fetchall():
        found.setdefault(owner, set()).add(name)
    return found


KEPT_BY_OWNER = {
    "accounts_auditentry",
    "accounts_auditentry_id_seq",
    "accounts_audit_text",
    "accounts_audit_guard",
    "accounts_audit_seal",
}


def test_the_application_can_add_to_the_audit_log_and_nothing_else(prepared: Layout) -> None:
    with connected(prepared.database_url) as cursor:
        for statement in REFUSED:
            with pytest.raises(InsufficientPrivilege):
                cursor.execute(statement)
        cursor.execute(ENTRY)
        (key,) = cursor.fetchone() or (0,)
        cursor.execute("SELECT position > 0, length(hash) FROM accounts_auditentry WHERE id = %s", [key])
        assert cursor.fetchone() == (True, 64)
    assert "each as it was written" in manage(prepared, "verify_audit")


def test_nothing_of_the_application_is_run_by_the_seal(prepared: Layout) -> None:
    """What it makes in the same schema, or for itself, does not stand before what the seal means."""
    with connected(prepared.database_url) as cursor:
        cursor.execute(
            "CREATE FUNCTION public.hashtext(text) RETURNS int LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'run by %', current_user; END$$;"
            "CREATE FUNCTION public.encode(bytea, text) RETURNS text LANGUAGE sql AS $$SELECT 'forged'$$;"
            "CREATE TEMP TABLE accounts_auditentry AS SELECT 7::bigint AS position;"
            "SET search_path = pg_temp, public, pg_catalog"
        )
        cursor.execute(ENTRY.replace("accounts_auditentry", "public.accounts_auditentry"))
        cursor.execute("SELECT DISTINCT position BETWEEN 1 AND 5, length(hash) FROM public.accounts_auditentry")
        assert cursor.fetchall() == [(True, 64)]


def test_all_but_the_audit_log_belongs_to_the_application(prepared: Layout) -> None:
    with connected(prepared.owner_database_url) as cursor:
        found = owners(cursor)
        assert found[OWNER] == KEPT_BY_OWNER
        assert set(found) == {OWNER, APPLICATION}
        assert f"jobs_jobevent_y{datetime.now(UTC):%Ym%m}" in found[APPLICATION]


def test_event_months_are_made_and_dropped_by_the_application(prepared: Layout) -> None:
    code = (
        "from datetime import UTC, datetime; from portal.jobs import event_months as p;"
        "p.ensure(datetime(2031, 5, 9, tzinfo=UTC)); print(len(p.existing()));"
        "p.drop_before(datetime(2031, 6, 9, tzinfo=UTC)); print(sorted(p.existing()))"
    )
    before, after = manage(prepared, "shell", "-v", "0", "-c", code).splitlines()
    assert int(before) == 5
    assert after == "['jobs_jobevent_default', 'jobs_jobevent_y2031m06']"


def test_a_role_that_could_act_as_the_owner_is_not_taken_for_separate(prepared: Layout) -> None:
    with connected(prepared.owner_database_url) as cursor:
        with pytest.raises(RaiseException, match="may act as the owner"):
            cursor.execute(separation(OWNER))
        cursor.execute(f"GRANT {OWNER} TO {APPLICATION}")
        with pytest.raises(RaiseException, match="may act as the owner"):
            cursor.execute(separation(APPLICATION))
        cursor.execute(f"REVOKE {OWNER} FROM {APPLICATION}")


def test_an_external_server_has_a_pair_of_roles_too(prepared: Layout) -> None:
    """As docs/operations.md says to make them; the owner is no superuser."""
    with connected(prepared.owner_database_url) as cursor:
        for role in ("team_app", "team_owner"):
            cursor.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        cursor.execute("GRANT team_app TO team_owner")
        cursor.execute("CREATE DATABASE team OWNER team_owner")
    address = f":x@/team?host={prepared.postgres_sockets}"
    application, owner = f"postgresql://team_app{address}", f"postgresql://team_owner{address}"
    pair = {"DATABASE_URL": application, "EVENKEEL_OWNER_DATABASE_URL": owner}
    saved = str(prepared.data / "saved")
    manage(prepared, "migrate", DATABASE_URL=owner)  # one role at first
    manage(prepared, "migrate", **pair)
    manage(prepared, "backup", saved, **pair)
    manage(prepared, "backup", saved, "--restore", **pair)
    manage(prepared, "migrate", **pair)
    manage(prepared, "bootstrap", **pair)
    with connected(application) as cursor:
        assert owners(cursor)["team_owner"] == KEPT_BY_OWNER
        assert set(owners(cursor)) == {"team_app", "team_owner"}
        for statement in ("UPDATE", "DELETE FROM", "TRUNCATE", "DROP TABLE"):
            change = " SET target = 'x'" if statement == "UPDATE" else ""
            with pytest.raises(InsufficientPrivilege):
                cursor.execute(f"{statement} accounts_auditentry{change}")
        cursor.execute(ENTRY)


def test_the_compose_file_has_the_pair(new_server: Layout) -> None:
    """On a server as the postgres image leaves it: POSTGRES_USER, its database, and then our script."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    passwords = {
        "EVENKEEL_DB_PASSWORD": new_server.secret("postgres_password"),
        "EVENKEEL_APP_PASSWORD": "it's-a_$-\"word",
    }
    image = {name: filled(value, passwords) for name, value in compose["postgres"]["environment"].items()}
    place = {"PATH": f"{installed()}:/usr/bin:/bin", "PGHOST": str(new_server.postgres_sockets)}
    script = next(mount.split(":")[0] for mount in compose["postgres"]["volumes"] if "initdb.d" in mount)
    command = ["sh", str(ROOT / "docker" / script)]
    env = {**place, **image, "PGPASSWORD": image["POSTGRES_PASSWORD"]}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=30)

    urls = {**passwords, "EVENKEEL_APP_PASSWORD": quote(passwords["EVENKEEL_APP_PASSWORD"])}
    address = f"@/evenkeel?host={new_server.postgres_sockets}"
    named = ("DATABASE_URL", "EVENKEEL_OWNER_DATABASE_URL")
    setup, web = (
        {
            name: filled(compose[service]["environment"][name], urls).replace("@postgres:5432/evenkeel", address)
            for name in named
            if name in compose[service]["environment"]
        }
        for service in ("setup", "web")
    )
    assert set(web) == {"DATABASE_URL"}
    manage(new_server, "migrate", **setup)
    manage(new_server, "bootstrap", **setup)
    with connected(web["DATABASE_URL"]) as cursor:
        assert set(owners(cursor)) == {OWNER, APPLICATION}
        for statement in REFUSED:
            with pytest.raises(InsufficientPrivilege):
                cursor.execute(statement)
        cursor.execute(ENTRY)


@pytest.mark.slow
def test_a_portal_of_one_role_is_converted_and_works_as_two(data: Path) -> None:
    portal = LivePortal(data / "portal")
    layout = Layout(portal.data)
    try:
        portal.start()
        number = portal.submit(total_steps=20)["number"]
        portal.wait_state(number, "succeeded")
        portal.wait_for("a head", (portal.data / "logs" / "audit_heads.log").exists)
        with connected(layout.owner_database_url) as cursor:
            # As it was before there were two.
            cursor.execute(f"REASSIGN OWNED BY {APPLICATION} TO {OWNER}; DROP OWNED BY {APPLICATION}")
            assert set(owners(cursor)) == {OWNER}
        portal.interrupt()
        (portal.data / "postgres_app_password").unlink()
        portal.start()
        with connected(layout.owner_database_url) as cursor:
            assert owners(cursor)[OWNER] == KEPT_BY_OWNER
            cursor.execute("SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = %s", [DATABASE])
            assert {name for (name,) in cursor.fetchall()} <= {OWNER, APPLICATION}
        _saved_and_restored(portal, layout, number)
    finally:
        portal.end()


def _saved_and_restored(portal: LivePortal, layout: Layout, number: int) -> None:
    said = portal.manage("backup", str(portal.data / "saved"))
    head = said.split()[-1]
    portal.manage("verify_audit", "--expect", head)
    noted = (portal.data / "logs" / "audit_heads.log").read_text().splitlines()[-1].split()[-1]
    portal.manage("verify_audit", "--expect", noted)
    assert f"Audit log up to {head}" in portal.manage("backup", str(portal.data / "saved"), "--restore")
    with connected(layout.owner_database_url) as cursor:
        assert owners(cursor)[OWNER] == KEPT_BY_OWNER
    with connected(layout.database_url) as cursor, pytest.raises(InsufficientPrivilege):
        cursor.execute("DELETE FROM accounts_auditentry")
    portal.wait_until_ready(30)
    assert portal.job(number)["state"] == "succeeded"
    portal.wait_state(portal.submit(total_steps=20)["number"], "succeeded")
    assert json.loads(portal.manage("bootstrap", "--print-json"))["password"] is None

"""The embedded servers for real: every test starts its own."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest
import redis

from portal.config.layout import Layout
from portal.config.service_account import SERVICE_ID
from portal.supervisor.postgres import Postgres
from portal.supervisor.process import alive, wait_gone
from portal.supervisor.valkey import Valkey


@contextlib.contextmanager
def running(server: Postgres | Valkey) -> Iterator[psutil.Process]:
    server.start()
    try:
        assert server._process is not None
        yield server._process
    finally:
        server.stop()
    assert not server.alive()


def query(layout: Layout, statement: str) -> list[tuple[object, ...]]:
    with contextlib.closing(psycopg2.connect(layout.owner_database_url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


def assert_private(process: psutil.Process, sockets: Path) -> None:
    assert not [c for c in process.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN]
    assert sockets.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        assert process.uids().real == SERVICE_ID
        assert process.gids().real == SERVICE_ID


def test_postgres_is_private_and_keeps_what_was_written(layout: Layout) -> None:
    with running(Postgres(layout)) as process:
        assert_private(process, layout.postgres_sockets)
        query(layout, "CREATE TABLE kept AS SELECT 42 AS answer")
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            psycopg2.connect(layout.owner_database_url.replace(layout.secret("postgres_password"), "guess"))
    assert not alive(process)
    with running(Postgres(layout)):
        assert query(layout, "SELECT answer FROM kept") == [(42,)]


def test_postgres_that_outlived_its_supervisor_is_adopted(layout: Layout) -> None:
    with running(Postgres(layout)) as process:
        later = Postgres(layout)
        assert later.adopt()
        assert later._process == process
        later.stop()
        assert not alive(process)


def test_postgres_starts_again_after_kill_9(layout: Layout) -> None:
    server = Postgres(layout)
    with running(server) as process:
        query(layout, "CREATE TABLE kept AS SELECT 42 AS answer")
        process.kill()
        wait_gone(process, 5)
        assert not server.alive()
        assert not Postgres(layout).adopt()
        server.start()
        assert query(layout, "SELECT answer FROM kept") == [(42,)]


def test_an_interrupted_initdb_is_not_taken_for_a_database(layout: Layout) -> None:
    draft = layout.servers / "postgres.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")
    with running(Postgres(layout)):
        assert query(layout, "SELECT 1") == [(1,)]
    assert not draft.exists()


def test_valkey_is_private_and_keeps_what_was_written(layout: Layout) -> None:
    server = Valkey(layout)
    with running(server) as process, redis.Redis.from_url(layout.redis_url) as client:
        assert_private(process, layout.valkey_socket.parent)
        client.set("answer", 42)
        with (
            redis.Redis(unix_socket_path=str(layout.valkey_socket)) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.get("answer")
        assert Valkey(layout).adopt()
        client.execute_command("WAITAOF", 1, 0, 2000)
        process.kill()
        wait_gone(process, 5)
        assert not Valkey(layout).adopt()
        server.start()
        assert client.get("answer") == b"42"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the servers an account of their own")
def test_servers_work_below_a_directory_closed_to_others(data: Path) -> None:
    closed = data / "closed"
    closed.mkdir(mode=0o700)
    layout = Layout(closed / "data")
    layout.prepare()
    try:
        with running(Postgres(layout)), running(Valkey(layout)) as valkey:
            assert query(layout, "SELECT 1") == [(1,)]
            assert valkey.uids().real == SERVICE_ID
    finally:
        shutil.rmtree(layout.servers)

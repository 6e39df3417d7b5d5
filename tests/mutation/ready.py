"""The first that a session for mutants runs: with it the servers and the test database are there."""

import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_database_is_there() -> None:
    connection.ensure_connection()

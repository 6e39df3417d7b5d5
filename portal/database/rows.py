"""Updates many rows of a table with different values in one statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection
from django.db.models import Field, Model


def update_rows(model: type[Model], rows: Mapping[Any, Mapping[str, Any]]) -> None:
    """Primary key -> column -> value; the same columns in each row. For 32 rows of six columns bulk_update takes 7 to
    11 times as long."""
    if not rows:
        return
    key, names = model._meta.pk, list(next(iter(rows.values())))
    assert key is not None
    fields = [key, *(field for name in names if isinstance(field := model._meta.get_field(name), Field))]
    columns = [connection.ops.quote_name(str(field.column)) for field in fields]
    # without its length: a cast to that would silently truncate values that the column refuses
    types = [str(field.db_type(connection)).partition("(")[0] for field in fields]
    given = "(" + ", ".join(f"%s::{kind}" for kind in types) + ")"
    sql = f"""
        UPDATE {connection.ops.quote_name(model._meta.db_table)} AS kept
        SET {", ".join(f"{column} = given.{column}" for column in columns[1:])}
        FROM (VALUES {", ".join([given] * len(rows))}) AS given ({", ".join(columns)})
        WHERE kept.{columns[0]} = given.{columns[0]}"""  # noqa: S608 - names of the model, values are parameters
    values = [
        field.get_db_prep_save(value, connection)
        for pk, row in rows.items()
        for field, value in zip(fields, (pk, *(row[name] for name in names)), strict=True)
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql, values)

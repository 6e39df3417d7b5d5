"""Amounts of money as the API writes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

CURRENCY = "USD"


def plain_amount(value: Any) -> str | None:
    return f"{Decimal(str(value)):f}" if value is not None else None

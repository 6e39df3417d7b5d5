"""Amounts of money as the API writes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from portal.core import money

CURRENCY = "USD"
CURRENCY = money.CURRENCY


def plain_amount(value: Any) -> str | None:
    return f"{Decimal(str(value)):f}" if value is not None else None

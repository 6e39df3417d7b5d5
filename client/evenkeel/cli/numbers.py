"""Numbers of the command line, as job files have them: in the digits 0 to 9, and finite."""

from __future__ import annotations

import math
import re
from typing import Any

import click

_WHOLE = re.compile(r"[-+]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
MAX_DIGITS = 30
#: Beyond it JSON of others is no longer exact.
LARGEST = 2**53


class WholeNumber(click.IntRange):
    """A whole number within bounds. int() alone reads digits of any script, and underscores between them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (len(value) > MAX_DIGITS or not _WHOLE.fullmatch(value)):
            self.fail(f"{value[:MAX_DIGITS]!r} is not a whole number, as 12.", param, ctx)
        found = super().convert(value, param, ctx)
        if abs(found) > LARGEST:
            self.fail(f"{value!r} is too large.", param, ctx)
        return found


class Number(click.FloatRange):
    """A finite number within bounds. float() alone also reads `nan`, `inf` and digits of any script."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (len(value) > MAX_DIGITS or not _DECIMAL.fullmatch(value)):
            self.fail(f"{value[:MAX_DIGITS]!r} is not a number, as 0.5.", param, ctx)
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is too large.", param, ctx)
        return found

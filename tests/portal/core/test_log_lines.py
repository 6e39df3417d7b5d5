"""What the portal's own log never holds."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest

from portal.core.job_log import TextLines, json_lines
from portal.reporting.run_tokens import run_token

RUN_TOKEN = run_token(uuid4(), 3)
OWN_TOKEN = "ek_0123456789_" + "aB-_" * 11


@pytest.mark.parametrize("formatter", [TextLines("%(levelname)s %(message)s"), json_lines()], ids=["text", "json"])
@pytest.mark.parametrize("token", [RUN_TOKEN, OWN_TOKEN], ids=["run", "own"])
def test_tokens_are_masked_wherever_they_stand(formatter: logging.Formatter, token: str) -> None:
    said, handler = StringIO(), logging.StreamHandler()
    handler.setStream(said)
    handler.setFormatter(formatter)
    logger = logging.getLogger("tests.log_lines")
    logger.handlers, logger.propagate = [handler], False
    logger.warning("refused: Authorization: Bearer %s", token)
    logger.warning("in a field: %r", {"a": token}, extra={"request_id": token})
    try:
        raise ValueError(token)
    except ValueError:
        logger.exception("it failed")
    assert token not in said.getvalue()
    assert token[15:40] not in said.getvalue()
    assert said.getvalue().count("[redacted]") >= 3


def test_a_line_about_a_token_still_says_which(settings: Any) -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "revoked %s", (OWN_TOKEN,), None)
    assert json.loads(json_lines().format(record))["message"] == "revoked ek_0123456789_[redacted]"

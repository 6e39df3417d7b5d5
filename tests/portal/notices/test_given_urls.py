"""URLs wherever the portal is given one: of webhooks, repositories, links of runs and settings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from portal.config import env
from portal.jobfile.code import Code
from portal.notices.addresses import check_url
from portal.reporting.reports import _is_address

#: Some of what tests/client/test_web_address.py has: each place asks there.
BAD = ("https://example.org:0/x", "https://u:p@example.org/", "https://exam!ple.org/")


@pytest.mark.parametrize(
    "url", [*BAD, "http://example.org/", "https://example.org/#x", "https://1.2.3/", "https://0x7f.1/"]
)
def test_webhooks_have_valid_urls(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|may|leads)"):
        check_url(url)


@pytest.mark.parametrize("url", ["https://hooks.example.org/a/b?c=%20d", "https://hooks.example.org:8443"])
def test_usual_webhooks_are_taken(url: str) -> None:
    assert check_url(url).host == "hooks.example.org"


@pytest.mark.parametrize("url", BAD)
def test_repositories_have_valid_urls(url: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Code).validate_python({"git": url, "ref": "main"})


@pytest.mark.parametrize("url", [*BAD, "javascript:alert(1)", "https://example.org/\x1b[2J", "https://example.org/\n"])
def test_links_that_are_no_urls_are_dropped(url: str) -> None:
    assert not _is_address(url)


@pytest.mark.parametrize("url", ["http://localhost:6006/", "https://wandb.example.org/a/b?c=d#e"])
def test_links_are_kept(url: str) -> None:
    assert _is_address(url)


@pytest.mark.parametrize("url", BAD)
def test_settings_have_valid_urls(url: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("EVENKEEL_API_URL", url)
    with pytest.raises(env.BadSetting, match="EVENKEEL_API_URL"):
        env.web_url("EVENKEEL_API_URL")


@pytest.mark.parametrize("origin", [*BAD, "https://portal.example.org/path", "https://portal.example.org?x"])
def test_origins_are_origins(origin: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("EVENKEEL_TRUSTED_ORIGINS", f"https://fine.example.org,{origin}")
    with pytest.raises(env.BadSetting, match="EVENKEEL_TRUSTED_ORIGINS"):
        env.origins("EVENKEEL_TRUSTED_ORIGINS")


def test_origins_may_have_a_wildcard_and_a_port(monkeypatch: Any) -> None:
    monkeypatch.setenv("EVENKEEL_TRUSTED_ORIGINS", "https://*.example.org, http://127.0.0.1:5173/")
    assert env.origins("EVENKEEL_TRUSTED_ORIGINS") == ["https://*.example.org", "http://127.0.0.1:5173"]

"""URLs that people and programs give, as every client understands them."""

from __future__ import annotations

import sys

import pytest
from evenkeel.web_address import address_in, browser_host, read_url

from tests.cases import in_turn


@in_turn(
    "url",
    [
        "https://hooks.example.org", "https://hooks.example.org/", "http://hooks.example.org:1/a?b=c&d=%20#e",
        "https://hooks.example.org:65535/x", "https://[2001:db8::1]:8443/", "https://192.0.2.1/", "HTTPS://Example.org/",
        "https://xn--bcher-kva.example/", "https://bücher.example/", "https://my_host/x", "https://example.org./",
        "https://example.org/a:b@c/~d;e,f!$'()*+=", "https://example.org?a=%C3%BC",
    ],
)  # fmt: skip
def test_urls_are_taken(url: str) -> None:
    assert read_url(url).hostname


@in_turn(
    ("url", "why"),
    [
        ("", "begin with"), ("hooks.example.org", "begin with"), ("ftp://example.org/", "begin with"),
        ("javascript:alert(1)", "begin with"), ("http:javascript:alert(1)", "begin with"), ("https:///path", "host"),
        ("https://:443/", "host"), ("https://?x", "host"), ("//example.org/", "begin with"),
        ("https://example.org:0/", "port"), ("https://example.org:65536/", "port"), ("https://example.org:x/", "port"),
        ("https://example.org:/", "port"), ("https://example.org:-1/", "port"), ("https://example.org:00/", "port"),
        ("https://example.org:\u0664\u0664\u0663/", "port"), ("https://u:p@example.org/", "user name"),
        ("https://@example.org/", "user"),
        ("https://exa mple.org/", "spaces"), ("https://example.org/a b", "spaces"),
        ("https://example.org/\n", "spaces"),
        ("https://example.org\\@evil.example/", "backslashes"), ("https://example.org/\x1b]8;;", "line ends"),
        ("https://example.org/\u2028", "spaces"), ("https://example.org/\u202e", "line ends"),
        ("https://example.org/<b>", "URL"), ('https://example.org/"x', "URL"),
        ("https://example.org/\x00", "line ends"),
        ("https://example.org/ü", "%XX"), ("https://example.org/?q=ü", "%XX"), ("https://example.org/%", "%XX"),
        ("https://example.org/%zz", "%XX"), ("https://example.org/{x}", "%XX"), ("https://example.org/a|b", "%XX"),
        ("https://-example.org/", "name a host"), ("https://example-.org/", "name a host"),
        ("https://a..b/", "name a host"),
        ("https://.example.org/", "name a host"), ("https://exam!ple.org/", "name a host"),
        ("https://%65vil.org/", "host"),
        (f"https://{'a' * 64}.example/", "name a host"), (f"https://{'a.' * 130}example/", "name a host"),
        ("https://[::1/", "URL"), ("https://[nonsense]/", "URL"), ("https://[1.2.3.4]/", "URL"),
        ("https://\u2024.example/", "name a host"), (f"https://example.org/{'a' * 2000}", "characters at most"),
    ],
)  # fmt: skip
def test_what_is_no_url_is_refused_with_what_must_be_otherwise(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_url(url)


@in_turn(
    "host",
    [
        "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::ffff:0:127.0.0.1",
        "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "%31%32%37.0.0.1", "127.0.0.0x1",
        "\u2460\u2461\u2466.0.0.1",
    ],
)  # fmt: skip
def test_every_spelling_of_an_address_is_that_address(host: str) -> None:
    assert str(address_in(host)) == "127.0.0.1"


@in_turn("host", ["example.org", "a127.0.0.b", "127.0.0.1.example.org", "256.1.1.1", "08.0.0.1", ""])
def test_names_are_no_addresses(host: str) -> None:
    assert address_in(host) is None


def test_hosts_are_read_as_browsers_do() -> None:
    assert browser_host("LOCALHOST.") == "localhost"
    assert browser_host("\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54") == "localhost"
    assert browser_host("%6cocalhost") == "localhost"
    assert browser_host("\uff4d\uff59_host") == "my_host"


@in_turn(("host", "address"), [("::", "::"), ("::1", "::1"), ("::2", "0.0.0.2"), ("::3", "0.0.0.3")])
def test_of_the_addresses_before_those_of_ipv4_two_are_their_own(host: str, address: str) -> None:
    assert str(address_in(f"[{host}]")) == address


def test_an_environment_of_a_job_need_not_have_what_reads_names_beyond_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "idna", None)
    assert browser_host("Example.org.") == "example.org"
    assert read_url("https://example.org/").hostname == "example.org"
    with pytest.raises(ValueError, match="domain name"):
        read_url("https://b\xfccher.example/")

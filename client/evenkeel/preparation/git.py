"""Fetches one commit of a repository, without history, hooks, submodules or the machine's own settings."""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evenkeel.preparation.bounded import Work, clear, directory_bytes
from evenkeel.preparation.errors import PreparationError
from evenkeel.runner.files import read_plain

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def fetch(work: Work, options: dict[str, Any], token: str) -> dict[str, Any]:
    """`tree/` with the files of the commit that `ref` names now; which one that is comes back."""
    url, ref, subdir = str(options["url"]), str(options["ref"]), str(options.get("subdir") or "")
    tree = work.directory / "tree"
    clear(tree)
    tree.mkdir(mode=0o700)
    env = _environment(url, options, token, work.directory)
    git = ["git", "-c", "core.hooksPath=/dev/null", "-c", "init.templateDir=", "-c", "advice.detachedHead=false"]
    work.say(f"Fetching {ref} of {url}")
    work.run([*git, "init", "--quiet", "--initial-branch=main", "."], env=env, cwd=tree, what="git init")
    fetching = [
        *git,
        "fetch",
        "--depth=1",
        "--no-tags",
        "--no-recurse-submodules",
        "--no-write-commit-graph",
        "--quiet",
    ]
    work.run([*fetching, "--", url, ref], env=env, cwd=tree, what=f"fetching {ref}")
    checkout = [*git, "checkout", "--quiet", "--detach", "--no-recurse-submodules", "FETCH_HEAD"]
    work.run(checkout, env=env, cwd=tree, what="checking out")
    commit = read_plain(tree / ".git" / "HEAD", 1_000).decode(errors="replace").strip()
    if not _COMMIT.fullmatch(commit):
        raise PreparationError(f"{ref} does not name a commit")
    clear(tree / ".git")
    if subdir and not _inside(tree, subdir).is_dir():
        raise PreparationError(f"subdir {subdir} is not a directory of commit {commit[:12]}")
    work.say(f"{ref} is commit {commit}")
    return {"commit": commit, "bytes": directory_bytes(tree)}


def _inside(tree: Path, subdir: str) -> Path:
    found = (tree / subdir).resolve()
    if not found.is_relative_to(tree.resolve()):
        raise PreparationError(f"subdir {subdir} leads out of the repository")
    return found


def _environment(url: str, options: dict[str, Any], token: str, home: Path) -> dict[str, str]:
    """Nothing of the machine's or the user's settings, and only the protocols that are allowed."""
    parts = urlsplit(url)
    settings = {"http.followRedirects": "false", "transfer.fsckObjects": "true", "protocol.version": "2"}
    settings |= {"credential.helper": "", "core.symlinks": "true", "http.lowSpeedLimit": "1", "http.lowSpeedTime": "60"}
    if parts.scheme in ("http", "https"):
        settings["http.curloptResolve"] = _resolved(parts.hostname or "", parts.port, parts.scheme, options)
        if token:
            # In the environment, never among the arguments, which everybody on the machine can read.
            given = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            settings[f"http.{parts.scheme}://{parts.netloc}/.extraHeader"] = f"Authorization: Basic {given}"
    env = {name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ}
    env |= {
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": parts.scheme,
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CONFIG_COUNT": str(len(settings)),
        "LC_ALL": "C.UTF-8",
    }
    if parts.scheme == "file":  # for the process at the other end, which hears of no setting but those in files
        trusting = home / "gitconfig"
        trusting.write_text("[safe]\n\tdirectory = *\n")
        env["GIT_CONFIG_GLOBAL"] = str(trusting)
    if "SSL_CERT_FILE" in env:
        env["GIT_SSL_CAINFO"] = env["SSL_CERT_FILE"]
    for number, (name, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def _resolved(host: str, port: int | None, scheme: str, options: dict[str, Any]) -> str:
    """HOST:PORT:ADDRESS for curl: git connects to the address that was looked at, whatever the name says later."""
    port = port or {"http": 80, "https": 443}[scheme]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise PreparationError(f"{host} has no address: {error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [str(entry) for entry in options.get("allowed_hosts", [])]
    refused = [address for address in addresses if not _may_reach(host, address, allowed)]
    if refused:
        raise PreparationError(f"{host} is at {refused[0]}, a private address that administrators have not allowed")
    shown = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
    return f"{host}:{port}:{shown}"


def _may_reach(host: str, address: str, allowed: list[str]) -> bool:
    place = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(place, ipaddress.IPv6Address) and place.ipv4_mapped:
        place = place.ipv4_mapped
    if place.is_global and not place.is_multicast:
        return True
    return host.lower() in (entry.lower() for entry in allowed) or any(_covers(entry, place) for entry in allowed)


def _covers(entry: str, place: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return place in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False

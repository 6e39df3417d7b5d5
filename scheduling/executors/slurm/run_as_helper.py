#!/usr/bin/python3 -I
"""evenkeel-run-as: becomes the account of a person and runs the portal's agent as it (docs/executors.md).

Root installs a copy of this file (`install -m 0755 -o root -g root`) and allows the portal's account to start it by
sudo. It imports nothing of the portal's, takes no path from its caller, and as root it only reads its configuration,
makes one directory below another that is root's alone, and gives up root. Python 3.7 or newer.

    evenkeel-run-as version
    evenkeel-run-as check SECTION             what it would do, as JSON; refuses what it would refuse
    evenkeel-run-as check SECTION ACCOUNT
    evenkeel-run-as serve SECTION ACCOUNT     becomes ACCOUNT and runs the agent, which reads from standard input
"""

from __future__ import annotations

import configparser
import ctypes
import grp
import json
import os
import pwd
import re
import resource
import signal
import stat
import sys
import syslog
from typing import NoReturn

VERSION = 1
CONFIGURATION = "/etc/evenkeel/run-as.conf"
MAX_CONFIGURATION = 65536
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
SECTION = re.compile(r"[a-z][a-z0-9-]{0,39}")
#: Accounts with lower uids are never a person's, whatever the configuration says.
LOWEST_UID = 100
NEEDED = ("portal", "group", "shared_dir", "state_dir", "python", "tree")
#: Names of Linux and NFS for unknown users.
NOBODY = (65_534, 65_535, 2**32 - 2)
DEFAULTS = {"min_uid": "1000", "max_uid": "2000000", "slurm_conf": "", "path": "/usr/local/bin:/usr/bin:/bin"}
#: As separate words, so that the interpreter need not have the tree installed. PR_SET_DUMPABLE (4) first: programs of
#: the same account could trace it while it imports.
AGENT = (
    "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); import sys; sys.path.insert(0, sys.argv[1]); "
    "from scheduling.executors.slurm.agent import main; main()"
)
PR_SET_NO_NEW_PRIVS = 38


class Refused(Exception):
    """With words for the caller and for syslog."""


def main(words: list[str]) -> None:
    caller = os.environ.get("SUDO_USER", "root")
    try:
        if words == ["version"]:
            print(VERSION)
            return
        if os.geteuid() != 0:
            raise Refused("it is not run as root: allow it by sudo")
        if len(words) not in (2, 3) or words[0] not in ("check", "serve") or (words[0] == "serve" and len(words) != 3):
            raise Refused("usage: version, check SECTION [ACCOUNT], serve SECTION ACCOUNT")
        settings = read_settings(words[1])
        check_caller(settings)
        account = check_account(words[2], settings) if len(words) == 3 else None
        if words[0] == "check" or account is None:
            print(json.dumps(described(settings, account)))
        else:
            note(syslog.LOG_INFO, caller, words, f"begins as uid {account.pw_uid}")
            serve(settings, account)
    except Refused as refusal:
        note(syslog.LOG_WARNING, caller, words, f"refused: {refusal}")
        sys.exit(f"evenkeel-run-as refuses: {refusal}")


def note(level: int, caller: str, words: list[str], what: str) -> None:
    shown = " ".join(ascii(word)[1:-1][:60] for word in words[:4])
    syslog.openlog("evenkeel-run-as", syslog.LOG_PID, syslog.LOG_AUTHPRIV)
    syslog.syslog(level, f"{ascii(caller)[1:-1][:40]}: {shown}: {what}"[:900])
    syslog.closelog()


# What root has allowed


def read_settings(section: str) -> dict[str, str]:
    if not SECTION.fullmatch(section):
        raise Refused(f"{section[:60]!a} is no name of a section")
    check_roots_alone(CONFIGURATION)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with open(CONFIGURATION, encoding="utf-8") as file:
            parser.read_string(file.read(MAX_CONFIGURATION))
    except (OSError, ValueError, configparser.Error) as error:
        raise Refused(f"{CONFIGURATION} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not parser.has_section(section):
        raise Refused(f"{CONFIGURATION} has no section [{section}]")
    settings = {**DEFAULTS, **dict(parser.items(section))}
    for name in NEEDED:
        if not settings.get(name):
            raise Refused(f"{CONFIGURATION}: [{section}] has no {name}")
    for name in ("shared_dir", "state_dir", "python", "tree"):
        if not os.path.isabs(settings[name]):
            raise Refused(f"{CONFIGURATION}: {name} is no absolute path")
    check_roots_alone(settings["state_dir"])
    return settings


def check_roots_alone(path: str) -> None:
    """Only root can change it, or replace it."""
    current = path
    while True:
        try:
            found = os.lstat(current)
        except OSError as error:
            raise Refused(f"{current}: {error.strerror}") from None
        if stat.S_ISLNK(found.st_mode):
            raise Refused(f"{current} is a symbolic link: name the place itself")
        if found.st_uid != 0 or (found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX):
            raise Refused(f"{current} is not root's alone: chown root {current}; chmod go-w {current}")
        if current == path and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refused(f"others can write {current}: chmod go-w {current}")
        if current == "/":
            return
        current = os.path.dirname(current)


def check_caller(settings: dict[str, str]) -> None:
    """From sudo's variable. Without sudo only root gets here."""
    caller = os.environ.get("SUDO_UID")
    if caller is None:
        return
    try:
        portal = pwd.getpwnam(settings["portal"]).pw_uid
    except KeyError:
        raise Refused(f"the account of the portal, {settings['portal']!a}, does not exist") from None
    if caller not in (str(portal), "0"):
        raise Refused(f"only {settings['portal']} may ask")


def check_account(name: str, settings: dict[str, str]) -> pwd.struct_passwd:
    if not NAME.fullmatch(name):
        raise Refused(f"{name[:60]!a} is no name of an account")
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise Refused(f"there is no account {name}") from None
    if account.pw_name != name:  # another spelling of it
        raise Refused(f"there is no account {name}")
    lowest, highest = max(LOWEST_UID, number(settings["min_uid"])), number(settings["max_uid"])
    if not lowest <= account.pw_uid <= highest:
        raise Refused(f"{name} has the uid {account.pw_uid}; allowed are {lowest} to {highest}")
    if account.pw_uid in NOBODY:
        raise Refused(f"{name} is nobody's account")
    if name == settings["portal"] or account.pw_uid == uid_of(settings["portal"]):
        raise Refused(f"{name} is the portal's own account")
    check_groups(account, settings["group"])
    return account


def check_groups(account: pwd.struct_passwd, wanted: str) -> None:
    groups = groups_of(account)
    if 0 in groups:
        raise Refused(f"{account.pw_name} is in root's group")
    if wanted == "*":
        return
    try:
        allowed = grp.getgrnam(wanted).gr_gid
    except KeyError:
        raise Refused(f"there is no group {wanted!a}") from None
    if allowed not in groups:
        raise Refused(f"{account.pw_name} is not in the group {wanted}")


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(f"{CONFIGURATION}: min_uid and max_uid are numbers") from None


def uid_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def groups_of(account: pwd.struct_passwd) -> list[int]:
    return os.getgrouplist(account.pw_name, account.pw_gid)


def described(settings: dict[str, str], account: pwd.struct_passwd | None) -> dict[str, object]:
    found: dict[str, object] = {"version": VERSION, **{name: settings[name] for name in (*NEEDED, *DEFAULTS)}}
    if account is not None:
        found["account"] = {"name": account.pw_name, "uid": account.pw_uid, "home": account.pw_dir}
    return found


# Switching to the account


def serve(settings: dict[str, str], account: pwd.struct_passwd) -> NoReturn:
    state = make_state(settings["state_dir"], account)
    groups = groups_of(account)
    os.closerange(3, 65536)
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o027)
    os.chdir("/")
    become(account, groups)
    environment = {
        "HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "LC_ALL": "C.UTF-8",
        "SHELL": "/bin/sh", "PATH": settings["path"],
    }  # fmt: skip
    if settings["slurm_conf"]:
        environment["SLURM_CONF"] = settings["slurm_conf"]
    words = [settings["python"], "-I", "-c", AGENT, settings["tree"], settings["shared_dir"], state]
    try:
        os.execve(settings["python"], words, environment)  # nosec B606
    except OSError as error:
        sys.exit(f"evenkeel-run-as: {account.pw_name} cannot run {settings['python']}: {error.strerror}")


def make_state(above: str, account: pwd.struct_passwd) -> str:
    """A private directory of the account for the agent's notes, which only root could have replaced."""
    path = os.path.join(above, account.pw_name)
    try:
        os.mkdir(path, 0o700)
        os.chown(path, account.pw_uid, account.pw_gid)
    except FileExistsError:
        pass
    except OSError as error:
        raise Refused(f"{path} cannot be made: {error.strerror}") from None
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.pw_uid:
        raise Refused(f"{path} does not belong to {account.pw_name}: an account of that name was there before")
    return path


def become(account: pwd.struct_passwd, groups: list[int]) -> None:
    """Irrevocably: all three ids, and no programs that grant rights."""
    os.setgroups(groups)
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getresuid() != (account.pw_uid,) * 3 or os.getresgid() != (account.pw_gid,) * 3 or 0 in os.getgroups():
        os._exit(70)
    try:
        os.setuid(0)
    except PermissionError:
        return
    os._exit(70)


if __name__ == "__main__":
    main(sys.argv[1:])

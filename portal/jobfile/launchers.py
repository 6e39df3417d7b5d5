"""Commands that start workers themselves: Evenkeel starts the command once per GPU, so there would be too many."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

_MOST_CHARACTERS, _MOST_DEPTH, _MOST_SHOWN = 16_384, 4, 120
_SEPARATORS = ";&|()\n"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
#: Words before a command that do not change it.
_BEFORE = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "nohup", "command", "builtin", "setsid"}
)
#: Programs that run another -> their options with a value, how many words precede the program, and the required first
#: one.
_WRAPPERS: dict[str, tuple[frozenset[str], int, str]] = {
    "exec": (frozenset({"-a"}), 0, ""),
    "time": (frozenset({"-f", "-o"}), 0, ""),
    "env": (frozenset({"-u", "-C", "--unset", "--chdir"}), 0, ""),
    "nice": (frozenset({"-n"}), 0, ""),
    "ionice": (frozenset({"-c", "-n"}), 0, ""),
    "timeout": (frozenset({"-k", "-s", "--kill-after", "--signal"}), 1, ""),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0, ""),
    "numactl": (frozenset({"-m", "-N", "-C", "-i", "-p"}), 0, ""),
    "taskset": (frozenset(), 1, ""),
    "sudo": (frozenset({"-u", "-g"}), 0, ""),
    "uv": (frozenset({"--with", "--project", "--python", "-p", "--extra", "--group", "--env-file"}), 0, "run"),
    "poetry": (frozenset({"-C", "--directory"}), 0, "run"),
    "pdm": (frozenset({"-p"}), 0, "run"),
    "rye": (frozenset(), 0, "run"),
    "hatch": (frozenset({"-e"}), 0, "run"),
    "pixi": (frozenset({"-e", "--environment"}), 0, "run"),
    "pipenv": (frozenset(), 0, "run"),
    **dict.fromkeys(
        ("conda", "mamba", "micromamba"), (frozenset({"-n", "-p", "--name", "--prefix", "--cwd"}), 0, "run")
    ),
}
#: Launcher -> the word that makes it one; empty: always.
_LAUNCHERS = {
    "torchrun": "", "deepspeed": "", "mpirun": "", "mpiexec": "", "mpiexec.hydra": "", "orterun": "", "horovodrun": "",
    "srun": "", "composer": "", "accelerate": "launch", "accelerate-launch": "", "lightning": "run", "fabric": "run",
    "colossalai": "run", "torchx": "run",
}  # fmt: skip
_MODULES = {
    "torch.distributed.run": "", "torch.distributed.launch": "", "accelerate.commands.launch": "",
    "accelerate": "launch", "deepspeed": "", "deepspeed.launcher.runner": "",
    "lightning": "run", "composer.cli.launcher": "", "composer": "",
    "horovod.runner.launch": "", "mpi4py.run": "",
}  # fmt: skip


@lru_cache(maxsize=1_024)
def launcher_warnings(command: str | None) -> tuple[str, ...]:
    """Advice if the command, or a part of it, is such a launcher. Never raises."""
    found = _look_at(command or "", 0)
    if found is None:
        return ()
    name, program = found
    instead = f"{name} starts its own workers, and Evenkeel starts the command once per GPU: write `{program}`"
    return (f"{instead}; RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set.",)


def _look_at(text: str, depth: int) -> tuple[str, str] | None:
    """(launcher, the program without it) for the first one."""
    if depth > _MOST_DEPTH:
        return None
    for words in _simple_commands(text[:_MOST_CHARACTERS].replace("\\\n", " ")):
        if found := _launcher_of(words, depth):
            return found
    return None


def _simple_commands(text: str) -> Iterator[list[str]]:
    for key, words in groupby(_words(text), key=lambda word: bool(word) and not word.strip(_SEPARATORS)):
        if not key:
            yield list(words)


def _words(text: str) -> list[str]:
    for attempt in (text, _COMMENT.sub("", text)):
        reader = shlex.shlex(attempt, posix=True, punctuation_chars=_SEPARATORS)
        reader.whitespace, reader.commenters, reader.whitespace_split = " \t\r", "", True
        try:
            return list(reader)
        except ValueError:  # an unclosed quotation: perhaps in a comment
            continue
    return text.replace("\n", " ; ").split()


def _launcher_of(words: Sequence[str], depth: int) -> tuple[str, str] | None:
    at = 0
    while at < len(words):
        word = words[at]
        name, rest = word.rsplit("/", 1)[-1], words[at + 1 :]
        if _ASSIGNMENT.match(word) or name in _BEFORE:
            at += 1
        elif name in _WRAPPERS:
            at += 1 + _skipped(name, rest)
        elif name in _SHELLS:
            return _of_shell(rest, depth)
        elif name == "eval":
            return _look_at(" ".join(rest), depth + 1)
        elif _PYTHON.fullmatch(name):
            return _of_python(rest)
        else:
            return _named(_LAUNCHERS, name, rest)
    return None


def _skipped(name: str, rest: Sequence[str]) -> int:
    """How many words after a wrapper precede the program; all of them if it runs none."""
    with_value, positional, first = _WRAPPERS[name]
    at = 0
    while at < len(rest):
        if rest[at].startswith("-"):
            at += 2 if rest[at] in with_value else 1
        elif first:
            if rest[at] != first:
                return len(rest)
            first, at = "", at + 1
        elif positional:
            positional, at = positional - 1, at + 1
        else:
            break
    return at


def _of_shell(rest: Sequence[str], depth: int) -> tuple[str, str] | None:
    """`sh -c LINE`; the content of a script is unknown."""
    for at, word in enumerate(rest):
        if re.fullmatch(r"-[A-Za-z]*c", word):
            return _look_at(rest[at + 1], depth + 1) if at + 1 < len(rest) else None
        if not word.startswith(("-", "+")) and rest[at - 1] not in ("-o", "+o", "-O"):
            return None
    return None


def _of_python(rest: Sequence[str]) -> tuple[str, str] | None:
    at = 0
    while at < len(rest):
        word, after = rest[at], rest[at + 1 :]
        if module := re.fullmatch(r"-[A-Za-z]*m(.*)", word):
            name, after = (module[1], after) if module[1] else ("".join(after[:1]), after[1:])
            return _named(_MODULES, name, after)
        if re.fullmatch(r"-[A-Za-z]*c.*", word):
            return None
        if word.startswith("-"):
            at += 2 if word in ("-X", "-W") else 1
        else:
            return _named(_LAUNCHERS, word.rsplit("/", 1)[-1], after)
    return None


def _named(known: dict[str, str], name: str, rest: Sequence[str]) -> tuple[str, str] | None:
    if name not in known or (known[name] and known[name] not in rest[:2]):
        return None
    return f"{name} {known[name]}".strip(), _program(rest)


def _program(rest: Sequence[str]) -> str:
    """The program that the launcher would start, as far as its options show."""
    for at, word in enumerate(rest):
        found: list[str] = []
        if _PYTHON.fullmatch(word.rsplit("/", 1)[-1]):
            found = list(rest[at:])
        elif word.endswith(".py"):
            found = ["python", *rest[at:]]
        elif word in ("-m", "--module") and at + 1 < len(rest) and re.fullmatch(r"[A-Za-z_][\w.]*", rest[at + 1]):
            found = ["python", "-m", *rest[at + 1 :]]
        if found:
            shown = shlex.join(found).replace("`", "")
            return shown if len(shown) <= _MOST_SHOWN and shown.isprintable() else shlex.join(found[:2])[:_MOST_SHOWN]
    return "python train.py"

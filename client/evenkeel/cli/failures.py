"""How a command ends before its time: an error as one sentence, a signal with what goes on without the command."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import click
import httpx

from evenkeel.cli.output import clean, note, print_error
from evenkeel.cli.waiting import FAILED_CALL, NOT_FOUND
from evenkeel.client import ApiError, ClientError

DEBUG_VARIABLE = "EVENKEEL_DEBUG"
_ENDING = ("SIGTERM", "SIGHUP")
#: What a program stumbles over when an answer is not of the form that it knows.
_STRANGE = (json.JSONDecodeError, LookupError, TypeError, AttributeError)


class Ended(KeyboardInterrupt):
    """A signal that asks the command to end; like Ctrl-C to all who handle that."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does; one that is ignored, as under nohup, stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for name in _ENDING if (number := getattr(signal, name, None)) is not None]
    caught = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in caught:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise Ended(number)


def usable_streams() -> None:
    """One that was closed (`>&-`) is empty; a character that the terminal's encoding lacks is a question mark."""
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def flush() -> None:
    """Here, where a full disk or a closed pipe can still be reported."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def exit_code(error: BaseException, *, debug: bool) -> int:
    """Reports what ended the command, and says the code that it ends with."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED_CALL if error.code else 0
    if debug and not isinstance(error, click.exceptions.Exit):
        traceback.print_exception(error)
    try:
        return _reported(error)
    except KeyboardInterrupt as again:  # once more while it is said
        return 128 + (again.number if isinstance(again, Ended) else signal.SIGINT)
    except Exception:  # standard error is closed, or cannot be written: nothing can be reported
        return _code(error)


def _code(error: BaseException) -> int:
    return NOT_FOUND if isinstance(error, ApiError) and error.status == 404 else FAILED_CALL


def _reported(error: BaseException) -> int:
    interrupt = _interrupt(error)
    if interrupt is not None:
        return _interrupted(interrupt)
    if isinstance(error, BrokenPipeError):  # as in `evenkeel ls | head`
        _close_output()
    elif isinstance(error, click.Abort):
        note("Aborted.")
    elif isinstance(error, click.ClickException):
        error.show()
    elif isinstance(error, ClientError):
        print_error(error)
        return _code(error)
    else:
        with suppress(BrokenPipeError):
            print_error(ClientError(sentence(error)))
        if isinstance(error, OSError):
            _close_output()
    return FAILED_CALL


def _interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """The signal that ended the command, also where click made an Abort of it."""
    if isinstance(error, click.Abort):
        error = error.__cause__ or error.__context__ or error
    return error if isinstance(error, KeyboardInterrupt) else None


def _interrupted(error: KeyboardInterrupt) -> int:
    number = error.number if isinstance(error, Ended) else signal.SIGINT
    how = "Interrupted" if number == signal.SIGINT else f"Ended by {signal.Signals(number).name}"
    notes = getattr(error, "__notes__", None)
    note(f"{how}. {' '.join(notes) if notes else 'Jobs keep running; a request that was sent may have taken effect.'}")
    return 128 + number


def sentence(error: BaseException) -> str:
    """What went wrong, for people."""
    kind = type(error).__name__
    match error:
        case UnicodeDecodeError():
            return f"what was read is not UTF-8 text (byte {error.start + 1:,})"
        case UnicodeError():
            return f"text cannot be encoded: {error}"
        case httpx.HTTPError() | httpx.InvalidURL() | httpx.StreamError():
            return f"the portal cannot be reached: {str(error) or kind}"
        case OSError():
            words = error.strerror or str(error) or kind
            return f"{words}: {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else words
        case RecursionError():
            return "a value is nested too deeply"
        case MemoryError():
            return "there is not enough memory for this"
    words = f"{kind}: {error}" if str(error) else kind
    if isinstance(error, _STRANGE):
        words = f"the portal's answer has a form that this version of evenkeel does not know ({words})"
    return f"{clean(words)[:500]}; `evenkeel --debug` shows where"


def _close_output() -> None:
    """What is left in its buffer cannot be written, so the end of the program must not try again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def asks_for_debug(arguments: list[str]) -> bool:
    """Takes --debug out of the arguments, wherever before `--` it stands; EVENKEEL_DEBUG=1 asks for it, too."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given: list[Any] = [word for word in arguments[:end] if word == "--debug"]
    arguments[:end] = [word for word in arguments[:end] if word != "--debug"]
    return bool(given) or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")

"""Runs a Python program in a fork of this process, as a new interpreter would."""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import signal
import sys
import threading
import traceback


def run_program(arguments: list[str], environment: dict[str, str], workdir: str) -> None:
    """`python arguments...` here and now; never returns."""
    code = 1
    try:
        _become_fresh(environment, workdir)
        code = _run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        code = _finish(code)
        os._exit(code)


def _become_fresh(environment: dict[str, str], workdir: str) -> None:
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(workdir)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    gc.enable()
    threads = int(environment.get("OMP_NUM_THREADS") or 1)
    if "torch" in sys.modules and threads > 1:
        sys.modules["torch"].set_num_threads(threads)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _run(arguments: list[str]) -> int:
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path[0:0] = [os.getcwd()]  # noqa: PTH109
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path[0:0] = [os.path.dirname(os.path.realpath(arguments[0]))]  # noqa: PTH120
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as leaving:
        return _code(leaving)
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    except BaseException as error:
        _print_without_our_frames(error)
        return 1
    return 0


def _code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return (leaving.code or 0) & 0xFF
    print(leaving.code, file=sys.stderr)  # noqa: T201
    return 1


def _print_without_our_frames(error: BaseException) -> None:
    trace = error.__traceback__
    while trace and (trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__) or _is_frozen(trace)):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _is_frozen(trace: object) -> bool:
    return bool(trace.tb_frame.f_code.co_filename.startswith("<frozen runpy"))  # type: ignore[attr-defined]


def _finish(code: int) -> int:
    """What an interpreter does at its end: wait for threads, run exit handlers, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        return code or 1
    return code

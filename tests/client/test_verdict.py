"""What is made of how the workers of a launch ended: which failure counts, whose it is, and what is said of it."""

from __future__ import annotations

from typing import Any

from evenkeel.runner.last_words import MAX_WORDS
from evenkeel.runner.listening import Heard
from evenkeel.runner.verdict import Order, Verdict, judge

from tests.cases import in_turn
from tests.client.test_runner import LIMITS, worker


def told(rank: int, text: str = "it broke", kind: str = "ValueError", t: float = 1.0) -> dict[str, Any]:
    return {"rank": rank, "t": t, "type": kind, "text": text}


def verdict(*workers: Any, heard: Heard | None = None, order: Order | None = None, **more: Any) -> Verdict:
    return judge(workers, heard or Heard(), order, LIMITS, **({"oom": False} | more))


@in_turn(
    ("ended", "order", "reason", "number"),
    [
        ({"by": 15}, None, "signal", 15),
        ({"by": 15}, Order.STOP, "stopped", None),
        ({"by": 15}, Order.LEASE, "stopped", None),
        ({"by": 15}, Order.TIME_LIMIT, "signal", 15),
        ({"by": 11}, Order.STOP, "signal", 11),
        ({"by": 11}, Order.KILL, "signal", 9),
        ({"by": 11}, Order.MEMORY, "out_of_memory", None),
        ({"by": 15, "ours": True}, Order.TIME_LIMIT, "time_limit", None),
        ({"by": 9, "ours": True}, None, "signal", 9),
        ({"code": 1, "ours": True}, Order.STOP, "stopped", None),
        ({"code": 1}, Order.STOP, "user_error", None),
        ({"code": 1}, Order.KILL, "signal", 9),
    ],
)
def test_whose_doing_an_end_was(ended: dict[str, Any], order: Order | None, reason: str, number: int | None) -> None:
    found = verdict(worker(0, **ended), order=order)
    assert (found.reason, found.signal) == (reason, number)


@in_turn(
    ("order", "message"),
    [
        (Order.KILL, "killed on request"),
        (Order.MEMORY, "the job used more than its 100 MiB of memory"),
        (Order.TIME_LIMIT, "stopped after its limit of 5 s"),
        (Order.STOP, ""),
    ],
)
def test_an_end_on_order_says_which(order: Order, message: str) -> None:
    assert verdict(worker(0, by=9, ours=True), order=order).message == message


@in_turn(("order", "reason"), [(Order.KILL, "signal"), (Order.TIME_LIMIT, "time_limit")])
def test_all_that_ended_well_on_a_grave_order_did_not_finish(order: Order, reason: str) -> None:
    assert verdict(worker(0, 0), order=order).reason == reason


@in_turn(
    ("heard", "late"),
    [
        ({"ready_at": 1.0, "contact": True}, True),
        ({"ready_at": 0.0, "contact": True}, True),
        ({"ready_at": None, "contact": True}, False),
        ({"ready_at": 1.0, "contact": False}, False),
        ({"ready_at": 1.0, "contact": True, "stopped": True}, False),
    ],
)
def test_only_who_could_have_answered_is_said_not_to_have(heard: dict[str, Any], late: bool) -> None:
    found = verdict(worker(0, by=9, ours=True), heard=Heard(**heard), order=Order.STOP)
    assert (found.reason, found.message != "") == ("stopped", late)


@in_turn(
    ("workers", "errors", "named"),
    [
        ([(0, 1), (1, 1)], [], 0),  # the order in which they ended
        ([(0, 1), (1, 1)], [told(1, t=5.0)], 1),  # told before the other ended
        ([(0, 1), (1, 1)], [told(0, t=5.0), told(1, t=4.0)], 1),
        ([(0, 1), (1, 1)], [told(1, t=4.0), told(1, t=99.0)], 1),  # of one worker the first counts
        ([(0, 1), (1, -11)], [], 1),  # what ends by a signal is no echo of an exit
        ([(0, 1), (1, -9)], [told(0, t=1.0)], 1),  # killed from outside is no echo
        ([(0, -11), (1, 1)], [told(1, "CUDA out of memory. Tried", "torch.OutOfMemoryError", t=99.0)], 0),
        ([(0, 1), (1, 1)], [told(0, t=1.0), told(1, "CUDA out of memory. Tried", "OutOfMemoryError", t=99.0)], 1),
    ],
)
def test_the_failure_that_brought_the_others_down_is_named(
    workers: list[tuple[int, int]], errors: list[dict[str, Any]], named: int
) -> None:
    ended = [worker(rank, code) if code >= 0 else worker(rank, by=-code) for rank, code in workers]
    assert verdict(*ended, heard=Heard(errors=errors)).message.startswith(f"worker {named} ")


def test_who_ended_well_is_not_named_where_the_others_were_told_to_end() -> None:
    found = verdict(worker(0, 0), worker(1, 3, ours=True), worker(2, 0))
    assert (found.reason, found.message, found.exit_code) == ("user_error", "worker 1 ended with code 3", 3)


@in_turn(
    ("ended", "more", "reason", "message"),
    [
        ({"by": 9}, {"oom": True}, "out_of_memory", "worker 0 was killed by the kernel: out of memory"),
        ({"by": 9}, {"in_group": True}, "out_of_memory", "worker 0 was killed by the kernel: out of memory"),
        ({"code": 137}, {"oom": True}, "out_of_memory", "worker 0 was killed by the kernel: out of memory"),
        (
            {"code": 1},
            {"in_group": True},
            "out_of_memory",
            "worker 0 ended after the kernel killed a process of the run: out of memory",
        ),
        ({"code": 1}, {"oom": True}, "user_error", "worker 0 ended with code 1"),
        ({"by": 11}, {"oom": True}, "signal", "worker 0 was ended by SIGSEGV"),
        ({"by": 9}, {}, "signal", "worker 0 was ended by SIGKILL"),
        ({"by": 33}, {}, "signal", "worker 0 was ended by 33"),
        ({"code": 3, "text": "last line"}, {}, "user_error", "worker 0 ended with code 3: last line"),
    ],
)
def test_a_failure_says_what_ended_the_worker(
    ended: dict[str, Any], more: dict[str, Any], reason: str, message: str
) -> None:
    found = verdict(worker(0, **ended), **more)
    assert (found.reason, found.message) == (reason, message)
    assert (found.exit_code, found.signal) == (ended.get("code"), ended.get("by"))


@in_turn(
    ("errors", "text", "reason"),
    [
        ([], "MemoryError", "out_of_memory"),
        ([], "done", "user_error"),
        ([told(0), told(0, "CUDA out of memory. Tried", "RuntimeError")], "", "out_of_memory"),
        ([told(0)], "", "user_error"),
        ([told(1, "", "MemoryError")], "", "user_error"),  # another worker's
    ],
)
def test_want_of_memory_is_what_this_worker_said(errors: list[dict[str, Any]], text: str, reason: str) -> None:
    assert verdict(worker(0, 1, text=text), heard=Heard(errors=errors)).reason == reason


@in_turn(
    ("errors", "said"),
    [
        ([told(0, "a\n  b")], "ValueError: a b"),
        ([told(0, "")], "ValueError"),
        ([told(1, "other"), told(0, "mine"), told(0, "later")], "ValueError: mine"),
        ([told(1, "other")], "from the log"),
        ([told(0, "x" * 600)], ("ValueError: " + "x" * 600)[:MAX_WORDS]),
    ],
)
def test_the_words_are_the_first_that_this_worker_said(errors: list[dict[str, Any]], said: str) -> None:
    found = verdict(worker(0, 1, text="from the log"), heard=Heard(errors=errors))
    assert found.message == f"worker 0 ended with code 1: {said}"


@in_turn(
    ("verdict", "code"),
    [
        (Verdict("done", exit_code=0), 0),
        (Verdict("stopped"), 0),
        (Verdict("user_error", exit_code=3), 3),
        (Verdict("user_error", exit_code=255), 255),
        (Verdict("signal", signal=9), 137),
        (Verdict("time_limit", exit_code=0), 1),
        (Verdict("launch_failed"), 1),
        (Verdict("user_error", exit_code=-11), 1),
    ],
)
def test_a_verdict_has_the_programs_exit_code(verdict: Verdict, code: int) -> None:
    assert verdict.as_exit_code() == code

"""What a program died of, by what it printed last."""

import json
from pathlib import Path

from evenkeel.runner.last_words import last_words
from evenkeel.runner.listening import Heard
from evenkeel.runner.verdict import judge

from tests.cases import in_turn
from tests.client.test_runner import LIMITS, worker

BAR = "".join(f"\r{n / 20:.0f}%|####    | {n}/2000 [00:01<00:01, 98.8it/s]" for n in range(2000))
FRAMES = 'Traceback (most recent call last):\n  File "m.py", line 3, in <module>\n    train()\n    ^^^^^^^\n'
OOM = FRAMES + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB.\n"
TORCHRUN = (
    "E1127 10:00:00.000000 7 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0\n"
    'Traceback (most recent call last):\n  File "/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "============================================================\ntrain.py FAILED\n"
    "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
    "  time      : 2026-11-27\n  exitcode  : 1 (pid: 12)\n"
    "============================================================\n"
)
GROUP = (
    "  + Exception Group Traceback (most recent call last):\n"
    '  |   File "m.py", line 1, in <module>\n  |     raise ExceptionGroup("two", [ValueError("a"), %s])\n'
    "  | ExceptionGroup: two (2 sub-exceptions)\n"
    "  +-+---------------- 1 ----------------\n    | ValueError: a\n"
    "    +---------------- 2 ----------------\n    | %s\n    +------------------------------------\n"
)

#: What was printed, last words, whether for want of memory.
ENDINGS = {
    "nothing": ("", "", False),
    "blank lines": ("one\n\n  \n", "one", False),
    "a bar alone": (BAR, "", False),
    "a bar of tqdm and its end": ("epoch 1\n" + BAR + "\n", "epoch 1", False),
    "a bar of rich": ("start\ntraining \u2501\u2501\u2501\u2501\u2501\u2578 45% 0:00:03\n", "start", False),
    "a bar of keras": ("start\n 199/2000 [==>...........] - ETA: 3s - loss: 0.5\n", "start", False),
    "a line after a bar": (BAR + "\nERROR: data set /data/x is missing\n", "ERROR: data set /data/x is missing", False),
    "a line on the bar's": (BAR + "ERROR: no data\n", "ERROR: no data", False),
    "a line then a bar": ("giving up\n" + BAR, "giving up", False),
    "a warning before": ("UserWarning: step() before step()\nERROR: no data\n", "ERROR: no data", False),
    "a warning after": ("ERROR: no data\nm.py:3: UserWarning: slow\n  warnings.warn(\n", "ERROR: no data", False),
    "its line of code": ("no data\n/x/m.py:9: FutureWarning: old\n  model.load(path)\n", "no data", False),
    "torch's warning at exit": (
        FRAMES
        + "ValueError: a\n[rank0]:[W1127 10:00:00.1 Process.cpp:1] Warning: destroy_process_group() was not called\n",
        "ValueError: a",
        False,
    ),
    "a warning that was made an error": (FRAMES + "UserWarning: slow\n", "UserWarning: slow", False),
    "a handled error": (
        "ValueError: handled, retrying\ngiving up: the disk is full\n",
        "giving up: the disk is full",
        False,
    ),
    "a handled traceback": (OOM + "giving up: the disk is full\n", "giving up: the disk is full", False),
    "a traceback": (FRAMES + "ValueError: wrong key\n", "ValueError: wrong key", False),
    "a traceback on a bar's line": (BAR + FRAMES + "KeyError: 'lr'\n", "KeyError: 'lr'", False),
    "an exception of any name": (FRAMES + "pkg.errors.Diverged\n", "pkg.errors.Diverged", False),
    "a bar after a traceback": (FRAMES + "ValueError: a\n" + BAR, "ValueError: a", False),
    "colours": ("\x1b[31mERROR\x1b[0m: no data\x1b[K\n", "ERROR: no data", False),
    "line ends of windows": ("one\r\ntwo\r\n", "two", False),
    "no text": ("no \udcff data\n", "no \ufffd data", False),
    "syntax": (
        "  File \"m.py\", line 1\n    f(\n     ^\nSyntaxError: '(' was never closed\n",
        "SyntaxError: '(' was never closed",
        False,
    ),
    "a message of several lines": (
        FRAMES + "RuntimeError: CUDA error: device-side assert triggered\n"
        "CUDA kernel errors might be asynchronously reported.\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable assertions.\n\n",
        "RuntimeError: CUDA error: device-side assert triggered",
        False,
    ),
    "an indented message": (FRAMES + "ValueError: two lines\n  of it\n", "ValueError: two lines", False),
    "a chain": (
        OOM + "\nDuring handling of the above exception, another exception occurred:\n\n" + FRAMES + "ValueError: b\n",
        "ValueError: b",
        False,
    ),
    "a chain that ends in memory": (
        FRAMES + "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" + OOM,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB.",
        True,
    ),
    "the runtime's words after": (
        FRAMES + "RuntimeError: a\nterminate called after throwing an instance of 'c10::Error'\n"
        "  what():  NCCL\nAborted (core dumped)\n",
        "RuntimeError: a",
        False,
    ),
    "the shell's word": ("epoch 3\nKilled\n", "Killed", False),
    "rank's mark": ("".join(f"[rank0]: {line}\n" for line in OOM.splitlines()), OOM.splitlines()[-1], True),
    "torchrun": (FRAMES + "ValueError: a\n" + TORCHRUN, "ValueError: a", False),
    "torchrun and memory": (OOM + TORCHRUN, OOM.splitlines()[-1], True),
    "a group": (GROUP % ("x", "TypeError: b"), "ExceptionGroup: two (2 sub-exceptions)", False),
    "a group with memory": (GROUP % ("x", "MemoryError"), "ExceptionGroup: two (2 sub-exceptions)", True),
    "memory": (FRAMES + "MemoryError\n", "MemoryError", True),
    "an array's": (
        FRAMES + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 EiB\n",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 EiB",
        True,
    ),
    "an older torch's": (
        FRAMES + "RuntimeError: CUDA out of memory. Tried\n",
        "RuntimeError: CUDA out of memory. Tried",
        True,
    ),
    "JAX's": (
        FRAMES + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory\n",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        True,
    ),
    "talk of memory": ("CUDA out of memory was handled\n", "CUDA out of memory was handled", False),
    "a hint of memory": (
        "hint: set PYTORCH_CUDA_ALLOC_CONF if you see CUDA out of memory\n" + FRAMES + "ValueError: wrong key\n",
        "ValueError: wrong key",
        False,
    ),
    "an error that mentions memory": (
        FRAMES + "ValueError: CUDA out of memory is no key\n",
        "ValueError: CUDA out of memory is no key",
        False,
    ),
    "memory that was handled": (OOM + "retrying with half the batch\nERROR: no data\n", "ERROR: no data", False),
}


#: `noise`: bars, warnings and words of what started the program, never its last words. `crashes`: how other languages
#: end, and crashes, with what was wrong; and sentences that only look like bars.
FURTHER = json.loads(Path(__file__).with_name("endings.json").read_text())


@in_turn("noise", FURTHER["noise"].values(), ids=FURTHER["noise"])
def test_bars_warnings_and_launchers_have_no_last_word(noise: str) -> None:
    assert last_words(("giving up\n" + noise).encode()).text == "giving up"
    assert last_words((FRAMES + "ValueError: a\n" + noise).encode(), 1).text == "ValueError: a"
    assert last_words((OOM + noise).encode(), 1).out_of_memory
    assert last_words((noise + "ERROR: no data\n").encode()).text == "ERROR: no data"


@in_turn("crash", FURTHER["crashes"].values(), ids=FURTHER["crashes"])
def test_the_line_that_says_what_was_wrong_is_found(crash: dict[str, str]) -> None:
    found = last_words(crash["output"].encode(), 1)
    assert (found.text, found.out_of_memory) == (crash["words"], False)


@in_turn(("output", "words", "memory"), ENDINGS.values(), ids=ENDINGS)
def test_last_words_are_those_of_the_program(output: str, words: str, memory: bool) -> None:
    found = last_words(output.encode(errors="surrogateescape"))
    assert (found.text, found.out_of_memory) == (words, memory)
    verdict = judge([worker(0, 3, text=output.replace("\udcff", "\ufffd"))], Heard(), None, LIMITS, oom=False)
    assert verdict.reason == ("out_of_memory" if memory else "user_error")
    assert verdict.message == f"worker 0 ended with code 3{words and ': ' + words}"


@in_turn(
    ("after", "words"),
    [
        ("second line\n", "ValueError: first line ... second line"),
        ("field\n  should be a number\n    For more see x\n", "ValueError: first line ... For more see x"),
        ("wandb: run finished\n" + BAR, "ValueError: first line ... wandb: run finished"),
        ("x\n" * 12, "x"),
        ("  indented\n", "ValueError: first line"),
        ("", "ValueError: first line"),
    ],
    ids=["of two lines", "as pydantic's", "said at exit", "long before", "indented", "of one line"],
)
def test_of_an_exception_that_ended_the_program_the_first_line_is_kept(after: str, words: str) -> None:
    text = FRAMES + "ValueError: first line\n" + after
    verdict = judge([worker(0, 1, text=text)], Heard(), None, LIMITS, oom=False)
    assert verdict.message == f"worker 0 ended with code 1: {words}"


def test_memory_that_was_handled_before_a_program_ended_by_itself_is_no_want_of_memory() -> None:
    verdict = judge([worker(0, 1, text=OOM + "giving up\n")], Heard(), None, LIMITS, oom=False)
    assert verdict.reason == "user_error"
    assert verdict.message.endswith("OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB. ... giving up")


def test_an_exception_is_read_where_its_traceback_began_before_what_is_kept() -> None:
    cut = OOM[OOM.index("train()") - 4 :]
    assert last_words(cut.encode()).out_of_memory


@in_turn(
    ("kind", "text", "reason"),
    [
        ("OutOfMemoryError", "CUDA out of memory", "out_of_memory"),
        ("MemoryError", "", "out_of_memory"),
        ("ValueError", "MemoryError: is no key", "user_error"),
        ("RuntimeError", "it was\nCUDA out of memory", "user_error"),
    ],
)
def test_of_what_the_sdk_said_the_type_counts(kind: str, text: str, reason: str) -> None:
    heard = Heard(errors=[{"rank": 0, "t": 1.0, "type": kind, "text": text}])
    verdict = judge([worker(0, 1, text=OOM if reason == "out_of_memory" else "x")], heard, None, LIMITS, oom=False)
    assert verdict.reason == reason
    assert "\n" not in verdict.message

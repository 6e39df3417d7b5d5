"""What a program said last: the exception that ends its output, or its last line.

Progress bars and warnings are no last words, and neither is what follows an exception without belonging to the program:
the C++ runtime's message, the shell's, torchrun's summary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evenkeel.program_output import shown_lines

MAX_WORDS = 500
#: With which Python ends after an exception that nothing caught; a program may also choose it.
_UNCAUGHT = 1
#: As long a message of an exception is looked for.
_MESSAGE_LINES = 12
_RANK = re.compile(r"^\[(?:rank|default)?[0-9]{1,6}\]: ?")
_BAR = re.compile(
    r"[0-9]{1,3}%\s?(?:\|[^|]{0,300}\||[\u2588-\u258f\u2501])|\[[0-9]+:[0-9]{2}(?::[0-9]{2})?[<,]\s*[0-9?]"
    r"|[0-9?](?:it/s|s/it|[kMG]?i?B/s)|\b(?:ETA|eta):?\s+[0-9-]+:[0-9-]{2}|^[\u2801-\u28ff]\s"
    r"|(?:\s{1,9}(?:[0-9]+:[0-9]{2}:[0-9]{2}|--:--:--)){3}"
    r"|^(?:remote: )?[A-Z][a-z]+ (?:objects|deltas|files):\s+[0-9]{1,3}% \("
    r"|[\u2588-\u258f\u2501\u2578]{3}|\[[=#>. -]{10,}\]"
)
#: A bar of tqdm to its end; what follows was printed without a line end between them.
_TQDM = re.compile(r"^.{0,300}?[0-9]{1,3}%\|[^|]{0,300}\|[^\[\]]{0,100}\[[^\]]{0,200}\]")
_WARNING = re.compile(
    r"\b\w*Warning: |\bwarnings\.warn\(|^\[?W[0-9]{3,}|^\[W |^W[0-9]{4} |^\W{0,3}warn(?:ing)?\b"
    r"|^Exception ignored (?:in|while)"
    r"|^\W{0,3}[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,+Z]+(?::? W \S+:[0-9]+\] |\W{0,9}(?:[\w.]+\W{1,3})?WARN(?:ING)?\b)"
    r"|\bNCCL WARN\b",
    re.IGNORECASE,
)
#: What started the program says that it failed.
_LAUNCHER = re.compile(r"make(?:\[[0-9]+\])?: \*\*\* |srun: error: .*[Ee]xited with exit code")
_IGNORED = "Exception ignored "
_WARNED_LINES = 6
#: How other languages end, and crashes: the last line of it, and the one that says what was wrong.
_CRASHES = tuple(
    (re.compile(closing), re.compile(head))
    for closing, head in (
        (r"note: (?:run with `RUST_BACKTRACE|Some details are omitted)", r"thread '[^']{0,99}' .{0,20}panicked at "),
        (r"in expression starting at |\s*@ \S+ .*:[0-9]+$|\s*\[[0-9]+\] .*@ ", r"ERROR: "),
        (r"Execution halted$", r"Error\b"),
        (r"\s+at [\w.$<>]+\(.*\)$|\s+\.\.\. [0-9]+ more$", r'Exception in thread "'),
        (r"exit status [0-9]+$|\t\S+\.go:[0-9]+", r"panic: |fatal error: "),
        (r"Node\.js v[0-9]", r"(?:Uncaught )?\w*Error\b"),
        (r'  File ".*", line [0-9]+,? in |Extension modules: ', r"Fatal Python error: |Timeout \("),
        (r"Aborted\b|\s+what\(\): ", r"terminate called "),
    )
)
_CRASH_LINES = 200
_HEADER = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200})(?::(?:\s(?P<text>.*))?)?")
#: Lines that may follow an exception and belong to its message, or to what the process's end brought with it.
_AFTER = re.compile(
    r"\s|$|terminate called|Aborted|Segmentation fault|Killed|Fatal Python error|CUDA kernel errors might"
    r"|Exception raised from|For debugging consider|Compile with `TORCH_USE|Search for `cuda|Device-side assert"
    r"|Current thread|Thread 0x|frame #|BufferAssignment OOM|Peak buffers:|[=-]{5,}$|To execute a dataflow graph"
)
_GROUP_END = re.compile(r"\s*\+-{10,}$")
_GROUP_LINE = re.compile(r"\s*\| (?=\S)(?!Traceback|File )")
_TORCHRUN = ("torch.distributed.elastic", "ChildFailedError")
_OUT_OF_MEMORY = frozenset(("MemoryError", "_ArrayMemoryError", "OutOfMemoryError", "ResourceExhaustedError"))
#: Where the type says less than the beginning of the text.
_OUT_OF_MEMORY_TEXTS = {
    "RuntimeError": re.compile(
        r"CUDA out of memory\.|(?:CUDA|HIP) error: out of memory"
        r"|\[enforce fail at alloc_cpu\.cpp.*can't allocate memory"
    ),
    "AcceleratorError": re.compile(r"(?:CUDA|HIP) error: out of memory"),
    "XlaRuntimeError": re.compile(r"RESOURCE_EXHAUSTED"),
    "JaxRuntimeError": re.compile(r"RESOURCE_EXHAUSTED"),
}


@dataclass(frozen=True, slots=True)
class LastWords:
    text: str
    out_of_memory: bool


def is_out_of_memory(kind: str, text: str) -> bool:
    """By the exception's type, where that is enough, and never by words that may stand anywhere."""
    name = kind.rpartition(".")[2]
    by_text = _OUT_OF_MEMORY_TEXTS.get(name)
    return name in _OUT_OF_MEMORY or bool(by_text and by_text.match(text.lstrip()))


def last_words(output: bytes, exit_code: int | None = None) -> LastWords:
    """Of what a program that failed wrote last."""
    lines = _said_by_program([_line(line) for line in shown_lines(output)])
    if not lines:
        return LastWords("", out_of_memory=False)
    if _GROUP_END.match(lines[-1]):
        return _of_group(lines)
    line = _ending_exception(lines) or _crash(lines) or lines[-1].strip()
    before = _exception_before(lines) if exit_code == _UNCAUGHT and line == lines[-1].strip() else ""
    text = _both(before, line) if before and before != line else line
    return LastWords(text[:MAX_WORDS], _names_memory(line))


def is_noise(line: str) -> bool:
    """Nothing, a progress bar or a warning."""
    return not line.strip() or bool(_BAR.search(line)) or bool(_WARNING.search(line))


def _line(line: str) -> str:
    line = _RANK.sub("", line)
    bar = _TQDM.match(line)
    return line[bar.end() :] if bar and line[bar.end() :].strip() else line


def _said_by_program(lines: list[str]) -> list[str]:
    """Without torchrun's summary, and without warnings and bars at the end."""
    if at := _torchrun_from(lines):
        lines = lines[:at] if any(not is_noise(line) for line in lines[:at]) else lines
    end = len(lines)
    while end and (before := _before_noise(lines[:end])) < end:
        end = before
    return lines[:end]


def _before_noise(lines: list[str]) -> int:
    """How many lines are left without the noise at their end."""
    end = len(lines)
    if _ends_traceback(lines, end - 1):  # of one that Python could only show, as in a finalizer
        head = next((at for at in range(end - 1, 0, -1) if lines[at].endswith(_HEADER)), 0)
        return head - 1 if head and lines[head - 1].startswith(_IGNORED) else end
    if (before := _of_long_warning(lines)) < end:
        return before
    if _is_noise_at(lines, end - 1) or _LAUNCHER.match(lines[-1]):
        return end - 1
    return end


def _crash(lines: list[str]) -> str:
    """What was wrong, where the end is as another language, or a crash, has it."""
    for closing, head in _CRASHES:
        if closing.match(lines[-1]):
            for at in range(len(lines) - 1, max(-1, len(lines) - _CRASH_LINES), -1):
                if head.match(lines[at]):
                    goes_on = lines[at].rstrip().endswith(":") or (at + 1 < len(lines) and "what():" in lines[at + 1])
                    return " ".join(" ".join(lines[at : at + 1 + goes_on]).split())
    return ""


def _is_noise_at(lines: list[str], at: int) -> bool:
    """A warning may have been made an exception."""
    return not _ends_traceback(lines, at) and (is_noise(lines[at]) or _shows_code_of_warning(lines, at))


def _shows_code_of_warning(lines: list[str], at: int) -> bool:
    """Python shows the line of the program that a warning is about after it."""
    return at > 0 and lines[at].startswith("  ") and bool(re.search(r"\w*Warning: ", lines[at - 1]))


def _of_long_warning(lines: list[str]) -> int:
    """How many lines are before a warning of several lines, whose call is shown last; all where there is none."""
    if re.match(r"\s+warnings\.warn\(", lines[-1]):
        for at in range(len(lines) - 2, max(-1, len(lines) - 2 - _WARNED_LINES), -1):
            if re.search(r":[0-9]+: \w*Warning: ", lines[at]):
                return at
    return len(lines)


def _torchrun_from(lines: list[str]) -> int:
    """Where torchrun begins to say that a worker failed; 0 where it does not."""
    ends = [at for at, line in enumerate(lines) if line.startswith(_TORCHRUN[0]) and _TORCHRUN[1] in line]
    if not ends:
        return 0
    at = next((at for at in range(ends[-1], -1, -1) if lines[at].endswith(_HEADER)), ends[-1])
    while at and (
        re.match(r"[EWI][0-9]{4} |(?:ERROR|WARNING):torch\.distributed", lines[at - 1]) or is_noise(lines[at - 1])
    ):
        at -= 1
    return at


def _ending_exception(lines: list[str]) -> str:
    """The line of the exception whose traceback ends the output; "" where something else was said after it."""
    for at in range(len(lines) - 1, 0, -1):
        if _ends_traceback(lines, at):
            return lines[at]
        if not _AFTER.match(lines[at]):
            return ""
    return ""


def _exception_before(lines: list[str]) -> str:
    """That of a traceback near the end: its message may have more lines, or something was said on the way out."""
    last = len(lines) - 1
    return next((lines[at] for at in range(last, max(0, last - _MESSAGE_LINES), -1) if _ends_traceback(lines, at)), "")


def _both(exception: str, line: str) -> str:
    """Neither is left out for the other's length."""
    half = MAX_WORDS // 2 - 3
    return f"{exception[:half]} ... {line[:half]}"


def _ends_traceback(lines: list[str], at: int) -> bool:
    """Whether an exception is there, and indented lines before it from a traceback's head or where output was cut."""
    if at == 0 or not _EXCEPTION.fullmatch(lines[at]) or not lines[at - 1].startswith(" "):
        return False
    above = next((one for one in range(at - 1, -1, -1) if not lines[one].startswith(" ")), -1)
    return above < 0 or lines[above].endswith(_HEADER)


def _names_memory(line: str) -> bool:
    found = _EXCEPTION.fullmatch(line)
    return found is not None and is_out_of_memory(found["type"], found["text"] or "")


def _of_group(lines: list[str]) -> LastWords:
    """The group's own line; out of memory is any of its exceptions."""
    inner = [found for line in lines if (found := _group_text(line))]
    named = [line for line in inner if _EXCEPTION.fullmatch(line)]
    group = next((line for line in reversed(named) if "sub-exception" in line), "") or (named or [""])[-1]
    return LastWords(group[:MAX_WORDS], any(map(_names_memory, named)))


def _group_text(line: str) -> str:
    found = _GROUP_LINE.match(line)
    return line[found.end() :] if found else ""

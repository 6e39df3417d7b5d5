"""Traces with what people's files have: columns too many, jobs that go on, clocks put back, encodings, compression."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import zstandard

from scheduling.cases.case_file import read_case
from scheduling.errors import InvalidInput
from scheduling.input_files import unpack
from scheduling.simulator.inputs.clusters import load_cluster
from scheduling.simulator.inputs.trace import read_throughputs
from scheduling.simulator.readers import Trace, load_trace
from tests.cases import in_turn

SACCT = "JobID|Submit|ElapsedRaw|AllocTRES|JobName|Account\n"
ROW = "1|2026-03-02T09:00:00|60|gres/gpu=1|a|chem\n"
TIMES = "JobID|Submit|Start|End|State|AllocTRES\n"
TIRESIAS = "job_id,num_gpu,submit_time,duration\n"
PHILLY = "timestamp,duration,num_gpus,cluster\n"
OPENB = "name,cpu_milli,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"


def load(folder: Path, text: str | bytes, name: str = "t", zone: str = "UTC") -> Trace:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_trace(path, zone=ZoneInfo(zone))


@in_turn(
    ("text", "place"),
    [
        (SACCT + ROW + "2|2026-03-02T09:00:00|60|gres/gpu=1|a|b|chem\n", "line 3, column 7: 7 columns where 6"),
        (SACCT + ROW + "2|2026-03-02T09:00:00|60|gres/gpu=1|a|chem||\n", "line 3, column 7: 8 columns where 6"),
        (SACCT + ROW.replace("chem", "chem|x"), "line 2, column 7: 7 columns where 6"),
        ("JobID|Submit|ElapsedRaw|AllocTRES|Account||\n" + ROW, "line 1, column 6: it has no name"),
        (SACCT.replace("JobName", "Account") + ROW, "line 1: the column Account stands there twice"),
        (SACCT.replace("|", ",") + ROW.replace("|", ",").replace("chem", "chem,x"), "line 2, column 7: 7 columns"),
        (TIRESIAS + "1,2,0,60,7\n", "line 2, column 5: 5 columns where 4"),
        (TIRESIAS.replace("duration", "duration,num_gpu") + "1,2,0,60,7\n", "line 1: the column num_gpu stands"),
        (PHILLY + "2017-10-09 07:01:55,66,1,a,b\n", "line 2, column 5: 5 columns where 4"),
        ("1 0 0 9 1 0 0 1 9 0 1 1 1 1 1 1 -1 -1 5\n", "line 1, column 19: 19 columns where 18"),
    ],
)
def test_a_row_with_other_columns_than_its_header_is_an_error_at_its_line(
    tmp_path: Path, text: str, place: str
) -> None:
    with pytest.raises(InvalidInput, match=place):
        load_trace(written(tmp_path, text), format="swf" if text[0] == "1" else None)


def written(folder: Path, text: str) -> Path:
    path = folder / "t"
    path.write_text(text)
    return path


@in_turn("header", [SACCT, SACCT.replace("\n", "|\n")])
def test_one_bar_at_the_end_of_a_line_is_parsable_output(tmp_path: Path, header: str) -> None:
    [job] = load(tmp_path, header + ROW.replace("\n", "|\n")).jobs
    assert (job.id, job.project, job.total_steps) == ("1", "chem", 60.0)
    with pytest.raises(InvalidInput, match="line 2, column 7"):
        load(tmp_path, header + ROW.replace("\n", "||\n"))


@in_turn("state", ["RUNNING", "PENDING", "SUSPENDED", "RESIZING", "CONFIGURING", "STOPPED", "R", "PD", "running"])
def test_a_job_that_had_not_ended_is_counted_as_such(tmp_path: Path, state: str) -> None:
    text = "JobID|Submit|Start|End|Elapsed|State|AllocTRES\n"
    text += f"1|2026-10-25T05:00:00|2026-10-25T05:00:01|Unknown|6-11:00:00|{state}|gres/gpu=4\n"
    text += "2|2026-10-25T05:00:00|2026-10-25T05:00:01|2026-10-25T05:10:01|00:10:00|COMPLETED|gres/gpu=1\n"
    trace = load(tmp_path, text)
    assert [job.id for job in trace.jobs] == ["2"]
    assert trace.remarks() == [
        "1 jobs that had not ended (first in line 2)",
        "times name no zone and are read as UTC",
    ]


@in_turn(
    ("row", "why"),
    [
        ("1|2026-01-01T05:00:00|2026-01-01T05:00:01|Unknown||gres/gpu=1", "jobs that had not ended"),
        ("1|2026-01-01T05:00:00|Unknown|2026-01-01T05:10:01|CANCELLED by 7|gres/gpu=1", "jobs that never ran"),
        ("1|2026-01-01T05:00:00|2026-01-01T06:00:00|2026-01-01T05:10:00|FAILED|gres/gpu=1", "end before they start"),
        ("1|2026-01-01T05:00:00|2026-01-01T06:00:00|Unknown|REQUEUED|gres/gpu=1", "jobs that had not ended"),
    ],
)
def test_each_reason_to_leave_a_job_out_has_its_own_name(tmp_path: Path, row: str, why: str) -> None:
    ran = "9|2026-01-01T05:00:00|2026-01-01T05:00:01|2026-01-01T05:10:01|REQUEUED|gres/gpu=1"
    trace = load(tmp_path, f"{TIMES}{row}\n{ran}\n")
    assert [job.id for job in trace.jobs] == ["9"]
    remark, _ = trace.remarks()
    assert why in remark
    assert remark.endswith("(first in line 2)")


def test_a_repeated_hour_is_read_in_the_zone_of_the_trace(tmp_path: Path) -> None:
    text = f"{TIMES}1|2026-10-25T02:30:00|2026-10-25T02:50:00|2026-10-25T02:20:00|COMPLETED|gres/gpu=1\n"
    other = "2|2026-10-25T05:00:00|2026-10-25T05:00:01|2026-10-25T05:10:01|COMPLETED|gres/gpu=1\n"
    first, second = load(tmp_path, text + other, zone="Europe/Berlin").jobs
    assert (first.id, first.total_steps) == ("1", 1_800.0)
    assert second.arrival_s == 3.5 * 3_600  # 02:30 summer time to 05:00 winter time
    assert load(tmp_path, text + other).skipped == {"jobs that end before they start": 1}


def test_pods_and_instances_that_end_before_they_start_are_told(tmp_path: Path) -> None:
    rows = "a,1,1,1000,,LS,0,5,9\nb,1,1,1000,,LS,0,,3\nc,1,1,1000,,LS,0,9,3\n"
    trace = load(tmp_path, OPENB + rows)
    assert [(job.id, job.total_steps) for job in trace.jobs] == [("c", 6.0)]
    assert trace.skipped == {"pods that end before they start": 1, "pods that had not ended": 1}
    tasks = "j,w,1,Terminated,9,5,600,29,25,T4\nk,w,1,Running,1,,600,29,25,T4\nl,w,1,Failed,1,5,600,29,25,T4\n"
    trace = load(tmp_path, tasks + "m,w,1,Terminated,1,5,600,29,25,T4\n", "pai_task_table.csv")
    assert [job.id for job in trace.jobs] == ["m/w/0"]
    assert trace.skipped == {
        "instances that end before they start": 1,
        "tasks that had not ended": 1,
        "tasks that failed": 1,
    }


@in_turn("row", [",66,1,a", "2017-10-09 07:01:55,66,,a", "2017-10-09 07:01:55,,1,a"])
def test_an_empty_cell_is_no_default(tmp_path: Path, row: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 2, column (timestamp|num_gpus|duration): ''"):
        load(tmp_path, f"{PHILLY}{row}\n")


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": _zstd,
}
TABLE = TIRESIAS + "1,2,0,60\n2,1,5,30\n"
JSON = '{"schema": "evenkeel-trace/1", "jobs": [{"id": "1", "total_steps": 5, "throughputs": {"a": [1]}}]}'


@in_turn("kind", PACKERS)
@in_turn("text", [TABLE, JSON])
def test_compressed_files_are_read_and_damaged_ones_named(tmp_path: Path, kind: str, text: str) -> None:
    data = PACKERS[kind](text.encode())
    assert load(tmp_path, data, f"t.{kind}").jobs[0].id == "1"
    assert load(tmp_path, data, "without-suffix").jobs[0].id == "1"
    assert (
        load(tmp_path, PACKERS[kind](TABLE.encode()) + PACKERS[kind](b"3,1,9,30\n"), f"t.{kind}").format == "tiresias"
    )
    with pytest.raises(InvalidInput, match="compressed data is damaged"):
        load(tmp_path, data[: len(data) // 2], f"t.{kind}")


def test_a_compressed_workload_is_known_by_the_name_within(tmp_path: Path) -> None:
    swf = "; comment\n1 0 0 9 1 0 0 1 9 0 1 1 1 1 1 1 -1 -1\n"
    assert load(tmp_path, gzip.compress(swf.encode()), "t.swf.gz").format == "swf"


@in_turn("encoding", ["utf-8-sig", "utf-16"])
@in_turn("text", [TABLE, JSON])
def test_byte_order_marks_are_read(tmp_path: Path, encoding: str, text: str) -> None:
    assert load(tmp_path, text.encode(encoding)).jobs[0].id == "1"


@in_turn(
    ("data", "what"),
    [
        (b"PK\x03\x04rest", "ZIP archive"),
        (TABLE.encode("utf-32"), "UTF-32"),
        (b"PAR1rest", "Parquet"),
        (b"PK\x05\x06" + bytes(18), "ZIP archive"),
        (b"\xd0\xcf\x11\xe0rest", "old Excel workbook"),
        (b"<!DOCTYPE html>", "web page"),
        (gzip.compress(gzip.compress(TABLE.encode(), mtime=0), mtime=0), r"more than once \(\.gz within\)"),
        (gzip.compress(lzma.compress(JSON.encode()), mtime=0), r"more than once \(\.xz within\)"),
        (lzma.compress(TABLE.encode(), format=lzma.FORMAT_ALONE), r"\.lzma"),
        (b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + _zstd(TABLE.encode()), "a frame that is skipped"),
        (TABLE.encode("utf-16-le"), "UTF-16LE text without a byte order mark"),
        (JSON.encode("utf-16-be"), "UTF-16BE text without a byte order mark"),
        (b"\x80\x04\x95\x00rest", "NUL bytes"),
        (TABLE.replace(",", ";").encode(), "separated by semicolons"),
        (TABLE.replace(",", "\t").encode(), "separated by tabs"),
        (b"<jobs/>", "begins with '<jobs/>'"),
        (b"\0" * 257 + b"ustar\x0000", "tar archive"),
        (gzip.compress(b"\0" * 257 + b"ustar\x0000", mtime=0), "tar archive"),
        (TIRESIAS.encode() + b"1,2,0,60\n2,\x00,5,30\n", "line 3: it has a NUL byte"),
        (TIRESIAS.encode() + b"1,2,0,60\r2,1,5,30\r", "line 2, column 9: a carriage return"),
        (TIRESIAS.encode() + b"\xe9,2,0,60\n", r"line 2, column 1: it is not UTF-8 \(byte 0xE9\)"),
        (JSON.encode().replace(b'"1"', b'"\xe9"'), "line 1: it is not UTF-8"),
        (JSON.replace('"id": "1"', '"id": "1", "id": "2"').encode(), "the key 'id' is given twice"),
        (JSON.replace("[1]", "[NaN]").encode(), "NaN is not a JSON number"),
        (JSON.replace("5,", "5" * 5_000 + ",").encode(), "digits"),
        (b"{" + b'"a":{' * 200_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        load(tmp_path, data)


@in_turn("data", [b'{"nodes": [], "nodes": []}', b"[" * 200_000, b"1" * 5_000, b"\xff", b"PK\x03\x04"])
@in_turn("read", [load_cluster, read_throughputs, read_case])
def test_clusters_throughputs_and_cases_are_read_as_strictly(
    tmp_path: Path, data: bytes, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=r"f\.json"):
        read(path)


PAI = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"


@pytest.mark.parametrize("number", ["1_0", "١٢", "\uff11\uff12", "0x10", "1e", ".", "1 0", "²"])
def test_digits_are_those_of_ascii(tmp_path: Path, number: str) -> None:
    for text in (
        f"{TIRESIAS}1,2,0,{number}\n",
        f"{PHILLY}2017-10-09,{number},1,a\n",
        f"{OPENB}a,1,1,1000,,LS,{number},9,3\n",
        f"{SACCT}1|2026-03-02T09:00:00|{number}|gres/gpu=1|a|b\n",
    ):
        with pytest.raises(InvalidInput, match=r"line 2, column \w+: .* is not a number"):
            load(tmp_path, text)
    with pytest.raises(InvalidInput, match="line 2, column plan_gpu"):
        load(tmp_path, f"{PAI}j,w,1,Terminated,1,5,600,29,{number},T4\n", "pai_task_table.csv")


@pytest.mark.parametrize("gpus", ["1000001", "9" * 20, "9" * 5_000])
def test_more_gpus_than_any_cluster_has_are_refused(tmp_path: Path, gpus: str) -> None:
    for text in (
        f"{TIRESIAS}1,{gpus},0,5\n",
        f"{PHILLY}2017-10-09,5,{gpus},a\n",
        f"{OPENB}a,1,{gpus},1000,,LS,0,9,3\n",
        f"{SACCT}1|2026-03-02T09:00:00|5|gres/gpu={gpus}|a|b\n",
        f"1 0 0 9 {gpus} 0 0 1 9 0 1 1 1 1 1 1 -1 -1\n",
        f"1 0 0 9 -1 0 0 {gpus} 9 0 1 1 1 1 1 1 -1 -1\n",
        JSON.replace('"id"', f'"min_gpus": {gpus}, "id"'),
        '{"jobs": [{"arrival_s": 0, "total_steps": 1, "throughputs": {"a": 1}, "scale_factor": ' + gpus + "}]}",
    ):
        with pytest.raises(InvalidInput, match=r"at most 1,000,000|number of at least 1|finite|digits"):
            load(tmp_path, text)


def test_the_sizes_of_jobs_fit_together(tmp_path: Path) -> None:
    rows = "".join(f"{number},{900_000 + number},0,5\n" for number in range(30))
    with pytest.raises(InvalidInput, match=r"t: the different numbers of GPUs .* more than 20,000,000 in all"):
        load(tmp_path, TIRESIAS + rows)
    assert len(load(tmp_path, TIRESIAS + "1,900000,0,5\n2,900000,0,5\n").jobs) == 2


@pytest.mark.parametrize(
    "name", ["a\u2028b", "a\u202eb", "a\u200bb", "\ufeffa", "a\tb", "a\x0bb", "a\x1b[2J", '"a\nb"']
)
def test_names_are_shown_in_a_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="characters that are not shown"):
        load(tmp_path, f"{TIRESIAS}{name},1,0,5\n")
    with pytest.raises(InvalidInput, match="characters that are not shown"):
        load(tmp_path, f"{OPENB}a,1,1,1000,{name},LS,0,9,3\n")


@pytest.mark.parametrize("key", ["id", "project", "user", "model_type"])
def test_half_a_character_is_no_name(tmp_path: Path, key: str) -> None:
    text = JSON.replace('"id": "1"', f'"{key}": "\\ud800"')
    with pytest.raises(InvalidInput, match="characters that are not shown"):
        load(tmp_path, text)


def test_integers_that_no_float_holds_are_refused_wherever_a_number_stands(tmp_path: Path) -> None:
    huge = "1" + "0" * 400
    for text in (
        JSON.replace("5,", f"{huge},"),
        JSON.replace("[1]", f"[{huge}]"),
        JSON.replace('"id"', f'"history": {{"interval_s": {huge}, "gpu": [1]}}, "id"'),
    ):
        with pytest.raises(InvalidInput, match=r"interval_s|number"):
            load(tmp_path, text)


def test_quoted_tables_of_pai_are_read_and_empty_lines_before_them(tmp_path: Path) -> None:
    quoted = ",".join(f'"{name}"' for name in PAI.strip().split(",")) + '\n"j","w",1,"Terminated",1,5,600,29,25,"T4"\n'
    for text in (quoted, "\n" + PAI + "j,w,1,Terminated,1,5,600,29,25,T4\n"):
        [job] = load(tmp_path, text, "pai_task_table.csv").jobs
        assert (job.id, job.types, job.total_steps) == ("j/w/0", ("T4",), 4.0)


@pytest.mark.parametrize("text", [SACCT.replace("|", ",") + "1" * 200_000 + ROW[1:].replace("|", ","), f'{PAI}"j,w\n'])
def test_cells_that_are_too_long_or_do_not_end_are_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 2: (field larger than|unexpected end)"):
        load(tmp_path, text, "pai_task_table.csv" if text.startswith("job_name") else "t")


def test_what_says_how_long_a_job_ran_is_named_where_it_is_empty(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="line 2, column ElapsedRaw: it is empty or missing"):
        load(tmp_path, SACCT + ROW.replace("|60|", "||"))


def test_what_is_larger_when_decompressed_than_allowed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(3 << 20)))
    with pytest.raises(InvalidInput, match="larger than 2 MiB when decompressed"):
        unpack(tmp_path / "bomb", tmp_path / "out", 2 << 20)

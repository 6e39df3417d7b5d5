"""Trace formats: what is read comes back, and what is damaged is named by its place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.errors import InvalidInput
from scheduling.simulator.inputs.generate import Recipe, generate
from scheduling.simulator.inputs.trace import TraceJob, read_curve, read_throughputs
from scheduling.simulator.readers import FORMATS, detect, load_trace
from scheduling.simulator.readers.own import write
from scheduling.simulator.readers.swf import COLUMNS
from tests.cases import in_turn

DATA = Path(os.environ.get("EVENKEEL_SHARED", "../shared")) / "data"
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

#: (submit, run time, GPUs) of three jobs in each format, which are then the same jobs.
JOBS = [(0, 60, 1), (30, 3600, 4), (30, 90, 2)]


def philly(jobs: list[tuple[int, int, int]]) -> str:
    rows = [f"2017-10-09 07:{s // 60:02}:{s % 60:02},{float(d)},{g},{d * g},vc1" for s, d, g in jobs]
    return "\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows])


def openb(jobs: list[tuple[int, int, int]]) -> str:
    head = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = [f"p{i},1,1,{g},1000,,LS,Succeeded,{s},{s + 5 + d},{s + 5}" for i, (s, d, g) in enumerate(jobs)]
    return "\n".join([head, *rows])


def swf(jobs: list[tuple[int, int, int]]) -> str:
    rows = [f"{i} {s} 5 {d} {g} -1 -1 {g} -1 -1 1 3 4 -1 1 -1 -1 -1" for i, (s, d, g) in enumerate(jobs, 1)]
    return "\n".join(["; Version: 2.2", "", *rows])


def tiresias(jobs: list[tuple[int, int, int]]) -> str:
    rows = [f"{i},{g},{s},606,vgg19,{d},30" for i, (s, d, g) in enumerate(jobs)]
    return "\n".join(["job_id,num_gpu,submit_time,iterations,model_name,duration,interval", *rows])


def sacct(jobs: list[tuple[int, int, int]], mark: str = "|") -> str:
    head = mark.join(["JobID", "Submit", "Elapsed", "AllocTRES", "State"])
    rows = [
        mark.join(
            [
                f"{i}",
                f"2024-01-02T03:{s // 60:02}:{s % 60:02}",
                _elapsed(d),
                f"billing=1,cpu=2,gres/gpu={g}",
                "COMPLETED",
            ]
        )
        for i, (s, d, g) in enumerate(jobs)
    ]
    return "\n".join([head, *rows, mark.join(["1.batch", "2024-01-02T03:00:00", "00:01:00", "cpu=2", "COMPLETED"])])


def _elapsed(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return (f"{days}-" if days else "") + f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


WRITERS: dict[str, Callable[[list[tuple[int, int, int]]], str]] = {
    "philly": philly,
    "openb": openb,
    "swf": swf,
    "tiresias": tiresias,
    "sacct": sacct,
}
_jobs = st.lists(st.tuples(st.integers(0, 3599), st.integers(1, 200_000), st.integers(1, 128)), min_size=1, max_size=8)


def own(*jobs: Mapping[str, object], **changes: object) -> str:
    """A trace of these jobs, or of one with these changes."""
    entries = [{"total_steps": 1, "throughputs": {"a": [1.0]}, **job} for job in jobs or (changes,)]
    return json.dumps({"jobs": entries})


def read(folder: Path, text: str) -> list[TraceJob]:
    (folder / "t").write_text(text)
    return load_trace(folder / "t", types=["v100", "k80"]).jobs


@in_turn("name", sorted(WRITERS))
def test_a_format_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    (tmp_path / "t").write_text(WRITERS[name](JOBS))
    assert detect(tmp_path / "t") == name
    assert name in FORMATS


@pytest.mark.parametrize("name", sorted(WRITERS))
@SLOW
@given(jobs=_jobs)
def test_what_was_written_is_read(tmp_path: Path, name: str, jobs: list[tuple[int, int, int]]) -> None:
    found = read(tmp_path, WRITERS[name](jobs))
    start = min(submit for submit, _, _ in jobs)
    assert [(j.arrival_s, j.total_steps, j.min_gpus) for j in found] == sorted(
        [(s - start, d, g) for s, d, g in jobs], key=lambda job: job[0]
    )
    assert all(job.curves["k80"].at(job.min_gpus) == 1.0 and job.min_gpus == job.max_gpus for job in found)


@pytest.mark.parametrize("name", sorted(WRITERS))
@SLOW
@given(data=st.data())
def test_a_damaged_file_is_refused_with_its_place_or_read(tmp_path: Path, name: str, data: st.DataObject) -> None:
    raw = bytearray(WRITERS[name](JOBS).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    (tmp_path / "t").write_bytes(cut)
    try:
        jobs, complaint = load_trace(tmp_path / "t", types=["v100"], format=name).jobs, None
    except InvalidInput as error:
        jobs, complaint = [], str(error)
    assert jobs or str(tmp_path / "t") in str(complaint)
    assert all(job.arrival_s >= 0 and job.total_steps >= 0 and job.min_gpus >= 1 for job in jobs)


@in_turn(
    ("text", "place"),
    [
        (philly(JOBS).replace("3600.0", "soon"), "line 3, column duration: 'soon' is not a number"),
        (philly(JOBS).replace("2017-10-09 07:00:30,90", "yesterday,90"), "line 4, column timestamp"),
        (philly(JOBS).replace(",vc1", "", 1), "line 2, column cluster"),
        (philly(JOBS).replace("90.0", "nan"), "line 4, column duration"),
        (openb(JOBS).replace(",4,1000", ",-4,1000"), "line 3, column num_gpu"),
        (swf(JOBS).replace("2 30 5", "2 30"), "line 4, column think_time: 17 columns"),
        (swf(JOBS).replace("2 30 5", "2 x 5"), "line 4, column submit_time"),
        (tiresias(JOBS).replace("1,4,30", "1,4.5,30"), "line 3, column num_gpu"),
        (sacct(JOBS).replace("01:00:00", "1h"), "line 3, column Elapsed"),
    ],
)
def test_a_complaint_names_line_and_column(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(InvalidInput, match=place.replace("(", r"\(")):
        read(tmp_path, text)


def test_sacct_is_read_with_commas_that_are_also_in_its_lists(tmp_path: Path) -> None:
    text = sacct(JOBS, ",").replace("JobID,Submit,Elapsed,AllocTRES,State", "JobID,Submit,Elapsed,AllocTRES,ReqTRES")
    text = text.replace("COMPLETED", "billing=1,cpu=2,gres/gpu=7")
    found = read(tmp_path, text)
    assert [job.min_gpus for job in found] == [1, 4, 2]
    typed = read(tmp_path, sacct(JOBS).replace("gres/gpu=4", "gres/gpu=4,gres/gpu:v100=4"))
    assert [job.types for job in typed] == [(), ("v100",), ()]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(
        openb([*JOBS, (9, 9, 0)]) + "\nq,1,1,1,500,,BE,Pending,3,9,\nr,1,1,1,500,,BE,Failed,3,9,4"
    )
    trace = load_trace(tmp_path / "t")
    assert len(trace.jobs) == 4
    assert trace.skipped == {
        "pods without a GPU": 1,
        "pods that were never scheduled": 1,
    }
    assert [job.gpu_milli for job in trace.jobs if job.id == "r"] == [500]


@SLOW
@given(
    jobs=st.lists(
        st.fixed_dictionaries(
            {
                "id": st.text(max_size=5).filter(str.isprintable),
                "arrival_s": st.floats(0, 1e6),
                "total_steps": st.floats(0, 1e9),
                "throughputs": st.dictionaries(st.sampled_from(["a", "b"]), st.just([1.0, 2.0]), min_size=1),
                "priority": st.integers(-5, 5),
                "min_gpus": st.integers(1, 4),
                "max_gpus": st.none() | st.integers(4, 8),
                "project": st.sampled_from(["x", "y"]),
                "restartable": st.booleans(),
                "weight": st.floats(0.1, 4),
                "checkpoint_every_s": st.none() | st.floats(1, 100),
                "types": st.lists(st.sampled_from(["a", "b"]), max_size=2),
            }
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda job: job["id"],
    )
)
def test_our_own_trace_comes_back(tmp_path: Path, jobs: list[dict[str, object]]) -> None:
    write(jobs, tmp_path / "t.json")
    found = {job.number: job for job in load_trace(tmp_path / "t.json").jobs}
    for number, entry in enumerate(jobs, 1):
        job = found[number]
        curves = {kind: read_curve(value) for kind, value in entry.pop("throughputs").items()}  # type: ignore[attr-defined]
        assert job.curves == curves
        assert {key: getattr(job, key) for key in entry} == {**entry, "types": tuple(entry["types"])}  # type: ignore[arg-type]


def test_jobs_with_the_same_curves_share_them(tmp_path: Path) -> None:
    own = [{"total_steps": 1, "throughputs": {"a": [1.0, speed]}} for speed in (2.0, 2.0, 1.5)]
    gangs = [{"total_steps": 1, "arrival_s": 0, "scale_factor": size, "throughputs": {"a": 3.0}} for size in (2, 2, 1)]
    for entries in (own, gangs):
        one, same, other = read(tmp_path, json.dumps({"jobs": entries}))
        assert one.curves is same.curves
        assert one.curves != other.curves


@in_turn(
    ("text", "place"),
    [
        ('{"jobs": [', "line 1, column 11"),
        ('{"schema": "evenkeel-trace/9", "jobs": []}', "schema 'evenkeel-trace/9'"),
        ('{"jobs": [3]}', "job 0: it is no object"),
        ('{"jobs": [{"total_steps": "many", "model_type": "resnet50"}]}', "job 0, total_steps: 'many'"),
        ('{"jobs": [{"total_steps": 1, "throughputs": {"a": 3}}]}', "job 0, throughputs, a: 3 must be steps/s"),
        (own(weight=0), "job 0, weight: 0 must be a number above 0"),
        (own(restartable="no"), "job 0, restartable: 'no' must be true or false"),
        (own(gpu_milli=500, min_gpus=2), "job 0, gpu_milli: 500 must be"),
        (own(gpu_milli=500, max_gpus=2), "job 0, gpu_milli: 500 must be"),
        (
            own(scale_factor=1, arrival_s=0, priority_weight=0, throughputs={}),
            "job 0, priority_weight: 0 must be a number above 0",
        ),
        ('{"jobs": [{"total_steps": 1, "scale_factor": 0}]}', "job 0, scale_factor"),
    ],
)
def test_a_json_complaint_names_job_and_key(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(InvalidInput, match=place):
        read(tmp_path, text)


def test_a_part_of_a_gpu_is_of_one(tmp_path: Path) -> None:
    [job] = read(tmp_path, own(gpu_milli=500))
    assert (job.gpu_milli, job.min_gpus, job.max_gpus) == (500, 1, 1)


def test_unknown_keys_of_jobs_are_told_and_those_of_exports_are_not(tmp_path: Path) -> None:
    many = {f"k{n}": n for n in range(30)}
    (tmp_path / "t").write_text(own({"max_gpu": 4}, {"max_gpu": 4}, many))
    trace = load_trace(tmp_path / "t")
    told = trace.skipped
    assert (len(trace.jobs), trace.left_out) == (3, 0)
    assert told["jobs with the unknown key 'max_gpu', which is ignored"] == 2
    assert told["jobs with further unknown keys, which are ignored"] == 11
    (tmp_path / "t").write_text(own(observed={"running_s": 3.0}, note="ours", user="u1"))
    assert load_trace(tmp_path / "t").skipped == {}


@in_turn(
    "text",
    [
        own({"id": "7"}, {"id": 7}),
        swf([*JOBS, *JOBS]).replace("\n5 ", "\n7 ").replace("\n4 ", "\n7 "),
    ],
)
def test_jobs_of_one_id_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="two jobs have the id '7'; ids must differ"):
        read(tmp_path, text)


@in_turn("text", [sacct(JOBS).replace("\n2|", "\n1|"), tiresias(JOBS).replace("\n2,", "\n1,")])
def test_further_rows_of_an_id_are_jobs_of_their_own_where_ids_may_repeat(tmp_path: Path, text: str) -> None:
    """As of requeued jobs in Slurm's accounting."""
    (tmp_path / "t").write_text(text)
    trace = load_trace(tmp_path / "t")
    assert [job.id for job in trace.jobs] == ["0", "1", "1#2"]
    assert trace.skipped["further rows of an id, which are jobs of their own here (ID#2)"] == 1


def test_parts_of_jobs_that_were_swapped_out_are_not_jobs(tmp_path: Path) -> None:
    part = "2 30 5 40 4 -1 -1 4 -1 -1 3 3 4 -1 1 -1 -1 -1"
    (tmp_path / "t").write_text(f"{swf(JOBS)}\n{part}\n")
    trace = load_trace(tmp_path / "t")
    assert (len(trace.jobs), trace.left_out) == (3, 1)
    assert trace.skipped == {"parts of jobs that were swapped out": 1}


@in_turn("column", ["JobID", "Submit"])
def test_a_column_that_sacct_left_out_is_named(tmp_path: Path, column: str) -> None:
    text = sacct(JOBS).replace(column, "Other", 1)
    (tmp_path / "t").write_text(text)
    with pytest.raises(InvalidInput, match=f"line 1: the column {column} is missing"):
        load_trace(tmp_path / "t", format="sacct")
    assert column == "JobID" or detect(tmp_path / "t") == "sacct"


@in_turn("text", ["", "\n \n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="t: it is empty"):
        read(tmp_path, text)


def test_the_reference_format_has_two_forms(tmp_path: Path) -> None:
    known = {"m": {"a": read_curve([2.0, 3.0])}}
    (tmp_path / "a.trace").write_text("m\tcmd\t-n\t1\t500\t7.5\t2\nm\tcmd\tdir\t-n\t1\t900\t1\t2.5\t-1.0\t8\n")
    first, second = load_trace(tmp_path / "a.trace", known).jobs
    assert (first.total_steps, first.arrival_s, first.min_gpus) == (500.0, 7.5, 2)
    assert (second.total_steps, second.arrival_s, second.weight) == (900.0, 8.0, 2.5)
    (tmp_path / "a.trace").write_text("m\tcmd\tdir\t-n\t1\t9\t1\t0\t-1.0\t8\n")
    with pytest.raises(InvalidInput, match="line 1, column priority_weight: 0 must be above 0"):
        load_trace(tmp_path / "a.trace", known)
    (tmp_path / "a.trace").write_text("m\tcmd\tdir\t-n\t1\tmany\t1\t1\t-1.0\t8\n")
    with pytest.raises(InvalidInput, match="line 1, column total_steps"):
        load_trace(tmp_path / "a.trace", known)


def test_sia_workloads_are_read_with_the_curves_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "traces" / "cifar10"
    folder.mkdir(parents=True)
    rows = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,1,64,0.2,0.0\n1,1,128,0.4,0.0\n1,2,64,0.25,0.05\n"
    (folder / "scalability-rtx.csv").write_text(rows)
    (folder / "validation-128.csv").write_text("progress,iteration,metric\n1,50,0.1\n2,100,0.2\n")
    (tmp_path / "w.csv").write_text(
        "name,time,application,num_replicas,batch_size\nc,5,cifar10,2,128\nd,6,cifar10,2,256\n"
    )
    first, second = load_trace(tmp_path / "w.csv").jobs
    assert first.curves["rtx"].steps_per_s == pytest.approx((2.5, 4.0))
    assert (first.total_steps, second.total_steps) == (100.0, 50.0)
    # Of 256 samples one replica takes two passes of 128, two replicas take two of 64 each and synchronise once.
    assert second.curves["rtx"].steps_per_s == pytest.approx((1 / 0.8, 1 / 0.45))
    (tmp_path / "w.csv").write_text("name,time,application,num_replicas,batch_size\nc,5,nosuch,2,128\n")
    with pytest.raises(InvalidInput, match="line 2, column application"):
        load_trace(tmp_path / "w.csv")


def test_nothing_known_is_said_with_the_formats_there_are(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("hello\n")
    with pytest.raises(InvalidInput, match="none of the known formats"):
        load_trace(tmp_path / "t")
    with pytest.raises(InvalidInput, match="no trace format"):
        load_trace(tmp_path / "t", format="nosuch")
    assert len(COLUMNS) == 18


def test_generated_traces_have_the_papers_distributions(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"m": {"v100": [1.0, 1.9, 1.9, 3.5]}, "n": {"v100": [10.0], "k80": [1.0]}}')
    known = read_throughputs(tmp_path / "f.json")
    jobs = generate(Recipe(4000, 6.0, multi_gpu=True, seed=3), known)
    assert jobs == generate(Recipe(4000, 6.0, multi_gpu=True, seed=3), known)
    assert jobs[-1]["arrival_s"] / 4000 == pytest.approx(600, rel=0.1)
    speeds = [job["throughputs"]["v100"]["steps_per_s"][str(job["min_gpus"])] for job in jobs]
    minutes = [job["total_steps"] / speed / 60 for job, speed in zip(jobs, speeds, strict=True)]
    assert sum(m > 1000 for m in minutes) / len(jobs) == pytest.approx(0.2, abs=0.03)
    assert all(10**1.5 * 0.99 <= m <= 10**4 * 1.01 for m in minutes)
    single = [job["min_gpus"] for job in jobs if job["model_type"] == "m"]
    assert single.count(1) / len(single) == pytest.approx(0.7, abs=0.05)
    write(jobs, tmp_path / "t.json")
    assert len(load_trace(tmp_path / "t.json").jobs) == 4000


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no {DATA}: traces that may not be shipped are not read")
def test_the_published_traces_are_read() -> None:
    found = {
        path: len(load_trace(DATA / path).jobs)
        for path in (
            "alibaba/openb_pod_list_default.csv",
            "tiresias/60_job.csv",
            "sia/workloads/newtrace/workload-1.csv",
            "traces/static_multi_150.jobs.json",
        )
    }
    assert list(found.values()) == [6203, 60, 960, 150]
    known = read_throughputs(DATA / "gavel/simulation_throughputs.json")
    assert len(load_trace(DATA / "gavel/traces/msr_seed0_2869ce.trace", known).jobs) == 533


# PAI ----------------------------------------------------------------------------------------------------

PAI_JOBS = "j1,i1,ana,Terminated,100.0,400.0\nj2,i2,bo,Running,150.0,\nj3,i3,cem,Terminated,120.0,700.0\n"
PAI_TASKS = (
    "j1,worker,2,Terminated,110.0,400.0,600.0,29.3,25.0,T4\n"
    "j1,ps,1,Terminated,110.0,400.0,600.0,29.3,,\n"
    "j2,worker,1,Running,160.0,,600.0,29.3,100.0,P100\n"
    "j3,tf,1,Terminated,130.0,700.0,1200.0,58.6,250.0,MISC\n"
)
PAI_INSTANCES = "j1,worker,a,w,x,Terminated,110.0,350.0,m\nj1,worker,b,w,x,Terminated,120.0,400.0,m\n"


def pai(folder: Path, *, header: bool = False, **tables: str) -> Path:
    from scheduling.simulator.readers import pai as reader

    columns = {"job": reader.JOB, "task": reader.TASK, "instance": reader.INSTANCE}
    for name, text in tables.items():
        first = ",".join(columns[name]) + "\n" if header else ""
        (folder / f"pai_{name}_table.csv").write_text(first + text)
    return folder / "pai_task_table.csv"


@in_turn("header", [False, True])
def test_the_tables_of_pai_are_instances_with_their_users_and_times(tmp_path: Path, *, header: bool) -> None:
    path = pai(tmp_path, header=header, job=PAI_JOBS, task=PAI_TASKS, instance=PAI_INSTANCES)
    assert detect(path) == "pai"
    trace = load_trace(path, types=["P100", "T4"])
    found = [
        (job.id, job.user, job.arrival_s, job.total_steps, job.min_gpus, job.gpu_milli, job.types) for job in trace.jobs
    ]
    assert found == [
        ("j1/worker/0", "ana", 0.0, 240.0, 1, 250, ("T4",)),
        ("j1/worker/1", "ana", 0.0, 280.0, 1, 250, ("T4",)),
        ("j3/tf/0", "cem", 20.0, 570.0, 3, 1_000, ()),
    ]
    assert (trace.jobs[0].cpu_milli, trace.jobs[0].memory_mib) == (6_000, round(29.3 * 1_024))
    assert trace.skipped == {"tasks without a GPU": 1, "tasks that had not ended": 1}


def test_a_task_table_of_pai_is_enough(tmp_path: Path) -> None:
    first, *_ = load_trace(pai(tmp_path, task=PAI_TASKS)).jobs
    assert (first.user, first.total_steps) == ("", 290.0)


@in_turn(
    ("old", "new", "place"),
    [
        ("25.0,T4", "much,T4", "line 1, column plan_gpu: 'much' is not a number"),
        ("25.0,T4", "25.0,T4,7", "line 1, column 11: 11 columns where 10 are needed"),
        ("j1,worker,2", "j1,worker,1e9", "line 1, column inst_num: 1000000000 must be at most"),
        ("250.0", "1e9", "line 4, column plan_gpu"),
    ],
)
def test_a_table_of_pai_that_is_wrong_is_named_by_line_and_column(
    tmp_path: Path, old: str, new: str, place: str
) -> None:
    with pytest.raises(InvalidInput, match=place):
        load_trace(pai(tmp_path, task=PAI_TASKS.replace(old, new)))


def test_columns_may_stand_in_another_order_beside_the_table(tmp_path: Path) -> None:
    path = pai(tmp_path, task="P100,j,t,1,Terminated,0,9,100,1,50\n")
    path.with_suffix(".header").write_text(
        "gpu_type,job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu\n"
    )
    [job] = load_trace(path).jobs
    assert (job.types, job.gpu_milli) == (("P100",), 500)
    path.with_suffix(".header").write_text("gpu_type,job_name\n")
    with pytest.raises(InvalidInput, match=r"pai_task_table.header: .*plan_gpu.* is missing"):
        load_trace(path)

"""Priorities, fair share and decay beside a real Slurm's, on a random workload.

python -m benchmarks.slurm_parity [--seed 1] [--jobs 30]      (make slurm-parity)

Brings up a throw-away Slurm on loopback with ../shared/scripts/slurm_up.sh (as root; the packages are named at its
head), once in classic and once in Fair Tree form: a random tree of accounts, jobs that leave usage, then jobs that
wait. What `sprio`, `sshare` and `scontrol` print is compared with scheduling.priority: exit code 1 where a factor, a
total or the decay differs by more than Slurm's own rounding. Where Slurm is not installed it says so and ends with 0.
What it started is ended with it, also by SIGTERM and SIGINT.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.real_slurm import ask, missing, slurm, until
from scheduling.priority.decay import decayed
from scheduling.priority.fair_share import (
    Account,
    Leaf,
    Tree,
    effective_usage,
    factor_of,
    standings,
)
from scheduling.priority.multifactor import Columns, Weights, age_factor, priorities, size_factor

NODES, CPUS, GPUS, HALF_LIFE_S = 4, 16, 4, 600.0
MAX_AGE_S = 3_600.0
WEIGHTS = Weights(
    age=1_000, fair_share=10_000, job_size=500, partition=2_000, qos=3_000, resources={"cpu": 100, "gres/gpu": 400}
)
USERS = ("alice", "bob", "carol")
PRINTED = 1.1e-6
PERIOD_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=30)
    options = parser.parse_args()
    if (lacking := missing()) is not None:
        print(f"SKIPPED: {lacking}")
        return 0
    wrong: list[str] = []
    for form, flags in (("classic", "NO_FAIR_TREE"), ("fair_tree", "")):
        with slurm(nodes=NODES, env={"HALFLIFE": "00:10:00", "PRIO_FLAGS": flags}):
            wrong += [f"{form}: {what}" for what in compare(form, random.Random(options.seed), options.jobs)]
    for what in wrong:
        print(f"DIFFERS: {what}")
    return 1 if wrong else 0


# The workload --------------------------------------------------------------------------------------


def plant(rng: random.Random) -> list[tuple[str, str]]:
    """Accounts below the script's two, with users; the associations that jobs are submitted under."""
    made = [("alice", "teama"), ("bob", "teama"), ("carol", "teamb")]
    for name, parent in (("lab", "teamb"), ("deep", "lab"), ("solo", "root")):
        shares = f"fairshare={rng.randint(1, 60)}"
        ask("sacctmgr", "-i", "add", "account", name, f"parent={parent}", shares, "cluster=ref")
        for user in rng.sample(USERS, rng.randint(1, 3)):
            shares = f"fairshare={rng.randint(1, 9)}"
            ask("sacctmgr", "-i", "add", "user", user, f"account={name}", shares, "cluster=ref")
            made.append((user, name))
    subprocess.run(["sacctmgr", "-i", "modify", "account", "root", "set", "qos+=high,mid"], check=False, timeout=60,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return made


def submit(user: str, account: str, *options: str, seconds: float) -> None:
    wrapped = ("--wrap", f"sleep {seconds:.0f}", "-o", "/dev/null", "-D", "/tmp")
    ask("runuser", "-u", user, "--", "sbatch", "-A", account, *options, *wrapped)


def leave_usage(rng: random.Random, who: list[tuple[str, str]]) -> None:
    for user, account in who:
        for _ in range(rng.randint(0, 3)):
            asked = (f"-n{rng.randint(1, 4)}", f"--gres=gpu:{rng.randint(1, 2)}")
            submit(user, account, *asked, seconds=rng.uniform(2, 12))
    until(lambda: not ask("squeue", "-h").strip(), 180)


def crowd(rng: random.Random, who: list[tuple[str, str]], jobs: int) -> None:
    for _ in range(NODES):
        submit(*rng.choice(who), "-N1", "--exclusive", f"--gres=gpu:{GPUS}", seconds=3_000)
    until(lambda: len(ask("squeue", "-h", "-t", "R").split("\n")) > NODES, 60)
    for _ in range(jobs):
        nodes = rng.choice((1, 1, 1, 2, 4))
        options = [f"-p{rng.choice(('main', 'low'))}", f"--qos={rng.choice(('normal', 'mid'))}", f"-N{nodes}"]
        options += [f"--ntasks-per-node={rng.randint(1, 8)}", f"--gres=gpu:{rng.randint(1, GPUS)}"]
        submit(*rng.choice(who), *options, f"--nice={rng.choice((0, 0, 100, 500))}", seconds=30)


def await_tick(limit_s: float = 150) -> float:
    """When Slurm counts usage anew."""
    before = [row.raw for row in read_shares()]
    until(lambda: [row.raw for row in read_shares()] != before, limit_s)
    return time.time()


# What Slurm prints ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    account: str
    user: str
    parent: str | None
    shares: float
    raw: float
    norm_usage: float
    effective: float
    factor: float
    norm_shares: float


def read_shares() -> list[Row]:
    fields = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare"
    rows, above = [], dict[int, str]()
    for line in ask("sshare", "-a", "-l", "-h", "-P", "-o", fields).splitlines():
        account, user, *numbers = line.split("|")
        depth = len(account) - len(account.lstrip())
        account = account.strip()
        if not user:
            above[depth] = account
        shares, norm_shares, raw, norm_usage, effective, factor = (float(text or "nan") for text in numbers)
        parent = above.get(depth - 1)
        rows.append(Row(account, user, parent, shares, raw, norm_usage, effective, factor, norm_shares))
    return rows


def amounts(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"([\w/]+)=([\d.]+)", text)}


# Comparing -----------------------------------------------------------------------------------------


def compare(form: str, rng: random.Random, jobs: int) -> list[str]:
    who = plant(rng)
    leave_usage(rng, who)
    await_tick()
    wrong = decay()
    crowd(rng, who, jobs)
    await_tick()
    rows = read_shares()
    found, count = shares(form, rows)
    wrong += found
    seen, differ = queue(rows)
    print(f"{form}: {count} associations, {seen} waiting jobs, {len(wrong) + len(differ)} differ")
    return wrong + differ


def decay() -> list[str]:
    """Between two counts with nothing running."""
    first, before = await_tick(), sum(row.raw for row in read_shares() if row.user)
    second, after = await_tick(), sum(row.raw for row in read_shares() if row.user)
    expected = decayed(before, second - first, HALF_LIFE_S)
    late = decayed(before, second - first + 2, HALF_LIFE_S)
    slack = abs(expected - late) + len(read_shares())  # when it was noticed, and whole numbers
    return [] if abs(after - expected) <= slack else [f"decay: {before} became {after}, not {expected:.0f}"]


def shares(form: str, rows: list[Row]) -> tuple[list[str], int]:
    """Fair-share factors from printed usage."""
    wrong = []
    accounts = {row.account: Account(row.shares, row.parent) for row in rows if not row.user and row.account != "root"}
    users = {Leaf(row.account, row.user): row for row in rows if row.user}
    held = {leaf: row.raw for leaf, row in users.items()}
    ours = standings(Tree(accounts, {leaf: row.shares for leaf, row in users.items()}, held), "fair_tree")
    above = {row.account: row for row in rows if not row.user}
    for row in rows:
        if row.account == "root" and not row.user:
            continue
        leaf = Leaf(row.account, row.user)
        if form == "fair_tree":
            if row.user and abs(ours[leaf].factor - row.factor) > PRINTED:
                wrong.append(f"{leaf}: factor {ours[leaf].factor:.6f}, printed {row.factor:.6f}")
            continue
        siblings = [one for one in rows if _place(one) == _place(row)]
        part = row.shares / sum(one.shares for one in siblings)
        parent = above[row.account if row.user else row.parent or "root"]
        top = parent.account == "root"
        effective = row.norm_usage if top else effective_usage(row.norm_usage, parent.effective, part)
        factor = factor_of(row.effective, row.norm_shares)
        if abs(effective - row.effective) > PRINTED or abs(factor - row.factor) > 20 * PRINTED:
            wrong.append(f"{leaf}: {effective:.6f} and {factor:.6f}, printed {row.effective:.6f} and {row.factor:.6f}")
    return wrong, len(users)


def _place(row: Row) -> str:
    """Whose children it is one of."""
    return row.account if row.user else row.parent or ""


def queue(rows: list[Row]) -> tuple[int, list[str]]:
    """Factors and totals of the jobs that wait."""
    printed = {line.split("|")[0]: line.split("|") for line in _lines("%i|%Y|%A|%F|%J|%P|%Q|%N|%T")}
    normal = {line.split("|")[0]: line.split("|") for line in _lines("%i|%a|%f|%j|%p|%q", "-n")}
    jobs = {}
    for line in ask("scontrol", "show", "job", "-o").splitlines():
        known = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if known["JobId"] in printed and known["JobId"] in normal:
            jobs[known["JobId"]] = known
    keys = sorted(jobs, key=int)
    tres = [amounts(jobs[key]["TRES"]) for key in keys]
    factor = {(row.account, row.user): row.factor for row in rows if row.user}

    def column(values: Iterator[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(list(values), dtype=np.float64)

    looked = column(float(normal[key][1]) for key in keys)
    accrued = column(_posix(jobs[key]["AccrueTime"]) for key in keys)
    last = round(float(looked[0]) * MAX_AGE_S + accrued[0])  # its last look, by the age of one job
    cpus = column(one["cpu"] / (NODES * CPUS) for one in tres)
    columns = Columns(
        age=age_factor(last - accrued, MAX_AGE_S),
        assoc=np.zeros(len(keys)),
        fair_share=column(factor[jobs[key]["Account"], jobs[key]["UserId"].split("(")[0]] for key in keys),
        job_size=size_factor(column(one["node"] / NODES for one in tres), cpus),
        partition=column({"main": 1.0, "low": 0.5}[jobs[key]["Partition"]] for key in keys),
        qos=column({"normal": 0.0, "mid": 0.5, "high": 1.0}[jobs[key]["QOS"]] for key in keys),
        site=np.zeros(len(keys)),
        nice=column(float(jobs[key]["Nice"]) for key in keys),
        resources={
            "cpu": cpus,
            "gres/gpu": column(one.get("gres/gpu", 0.0) / (NODES * GPUS) for one in tres),
        },
    )
    ours = priorities(WEIGHTS, columns)
    wrong = []
    for at, key in enumerate(keys):
        names = ("age", "fair_share", "job_size", "partition", "qos")
        theirs = [float(text) for text in normal[key][1:6]]
        mine = [float(getattr(columns, name)[at]) for name in names]
        wrong += [
            f"job {key}: {name} {one:.7f}, printed {other:.7f}"
            for name, one, other in zip(names, mine, theirs, strict=True)
            if abs(one - other) > PRINTED + 0.51 / MAX_AGE_S * (name == "age")
        ]
        # An age is of a whole second: half of one is a quarter of a point here.
        if abs(int(ours.total[at]) - int(printed[key][1])) > 1:
            wrong.append(f"job {key}: priority {ours.total[at]}, printed {printed[key][1]}")
    return len(keys), wrong


def _lines(form: str, *options: str) -> list[str]:
    return [line.replace(" ", "") for line in ask("sprio", "-h", *options, "-o", form).splitlines() if line.strip()]


def _posix(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


if __name__ == "__main__":
    sys.exit(main())

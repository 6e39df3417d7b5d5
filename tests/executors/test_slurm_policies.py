"""What Slurm's QOS, associations and partitions leave to jobs, from what 22.05.8 printed."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.capacity.engine_bounds import NO_BOUNDS, bounds_of
from scheduling.domain import NodeBounds
from scheduling.executors.slurm.cluster.limits import ASSOC_COMMAND, SHOW, KnownLimits, enforces_limits, parse_table
from scheduling.executors.slurm.cluster.partitions import Partition
from scheduling.executors.slurm.commands import Commands

NONE = "cpu=N(1),mem=N(16),energy=N(0),node=N(1),billing=N(1),fs/disk=N(0),vmem=N(0),pages=N(0)"
SHOWN = f"""Current Association Manager state

User Records

UserName=root(0) DefAccount=root DefWckey= AdminLevel=Administrator

Association Records

ClusterName=evenkeel Account=root UserName= Partition= Priority=0 ID=1
    ParentAccount= Lft=1 DefAssoc=No
    GrpTRES={NONE},gres/gpu=N(2)
    MaxTRESPJ=
ClusterName=evenkeel Account=vision UserName= Partition= Priority=0 ID=3
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpTRES={NONE},gres/gpu=8(2)
    GrpTRESMins={NONE},gres/gpu=N(0)
    MaxTRESPJ=
ClusterName=evenkeel Account=sub UserName= Partition= Priority=0 ID=4
    ParentAccount=vision(3) Lft=5 DefAssoc=No
    GrpTRES={NONE},gres/gpu=N(2)
    MaxTRESPJ=node=3,gres/gpu=6
ClusterName=evenkeel Account=sub UserName=alice(1001) Partition= Priority=0 ID=5
    ParentAccount= Lft=6 DefAssoc=Yes
    GrpTRES={NONE},gres/gpu=5(2)
    MaxTRESPJ=node=3,gres/gpu=6
ClusterName=evenkeel Account=other UserName=bob(1002) Partition= Priority=0 ID=6
    ParentAccount= Lft=6 DefAssoc=Yes
    GrpTRES={NONE},gres/gpu=N(0)
    MaxTRESPJ=

QOS Records

QOS=normal(1)
    GrpTRES={NONE},gres/gpu=N(0)
    MaxTRESPJ=
    Account Limits
        No Accounts
    User Limits
        No Users
QOS=gold(2)
    UsageRaw=0.000000
    GrpTRES={NONE},gres/gpu=12(2),gres/gpu:a100=N(2)
    MaxTRESPJ=gres/gpu=4
    MaxTRESPN=gres/gpu=2
    MinTRESPJ=gres/gpu=1
    Account Limits
      sub
        MaxJobsPA=N(1) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=N(1)
        MaxTRESPA={NONE},gres/gpu=8(2)
    User Limits
      alice(1001)
        MaxJobsPU=5(1) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=9(1)
        MaxTRESPU={NONE},gres/gpu=7(2)
QOS=typed(3)
    GrpTRES={NONE},gres/gpu=N(0),gres/gpu:a100=3(1)
    MaxTRESPJ=
"""
QOS = "normal||\ngold|gres/gpu=7|gres/gpu=8\ntyped||\nfree|cpu=4|\n"
MAIN, SMALL = Partition("main"), Partition("small", max_nodes=2)
WIDE, FAST = Partition("wide", min_nodes=2, max_nodes=4), Partition("fast", qos="typed")
TABLE = parse_table(SHOWN, QOS, [MAIN, SMALL, WIDE, FAST])


def test_only_what_bounds_gpus_or_nodes_is_kept() -> None:
    assert sorted(TABLE["qos"]) == ["gold", "typed"]
    assert sorted(TABLE["accounts"]) == ["sub", "vision"]
    assert TABLE["users"] == {"alice@sub": {"gpus": {"": [5, 2]}}}
    assert TABLE["defaults"] == {"alice": "sub"}
    assert sorted(TABLE["partitions"]) == ["fast", "small", "wide"]
    assert parse_table("", "", [MAIN]) == {}
    assert parse_table("QOS=broken\nClusterName=\n  GrpTRES=gres/gpu=x(", "a|b", [MAIN]) == {}


def says(names: dict[str, str], user: str = "alice") -> list[tuple[str, int]]:
    return [(one.says, one.used) for one in bounds_of(TABLE, names, user).shared]


def test_a_qos_counts_in_place_of_associations_and_all_levels_of_these_count() -> None:
    assert says({"account": "sub", "qos": "gold"}) == [
        ("QOS gold allows 12 GPUs at a time", 2),
        ("QOS gold allows 7 GPUs a user at a time", 2),
        ("QOS gold allows 8 GPUs an account at a time", 2),
    ]
    of_associations = [
        ("user alice in account sub allows 5 GPUs at a time", 2),
        ("account vision allows 8 GPUs at a time", 2),
    ]
    assert says({"account": "sub"}) == of_associations
    assert says({}) == of_associations  # a job that names no account has its person's default one
    assert says({"account": "sub"}, "bob") == of_associations[1:]
    assert bounds_of(TABLE, {"account": "other"}, "bob") == NO_BOUNDS


def test_a_partitions_own_qos_comes_before_the_jobs() -> None:
    found = bounds_of(TABLE, {"account": "sub", "qos": "gold", "partition": "fast"}, "alice")
    assert [(one.says, one.type) for one in found.shared][:2] == [
        ("QOS typed allows 3 a100 GPUs at a time", "a100"),
        ("QOS gold allows 12 GPUs at a time", None),
    ]


@pytest.mark.parametrize(
    ("names", "nodes", "gpus"),
    [
        ({"partition": "small", "qos": "gold"}, NodeBounds("partition small", 2, 1, 2, "QOS gold"), 4),
        ({"partition": "main", "account": "sub"}, NodeBounds("account sub", 3), 6),
        ({"partition": "wide", "account": "sub"}, NodeBounds("account sub", 3, 2), 6),
        ({"partition": "small,main", "account": "other"}, None, None),
        ({"partition": "small,wide", "account": "other"}, NodeBounds("partition small,wide", 4), None),
    ],
)
def test_what_one_job_may_have(names: dict[str, str], nodes: NodeBounds | None, gpus: int | None) -> None:
    found = bounds_of(TABLE, names, "bob")
    assert (found.nodes, found.gpus) == (nodes, gpus)


COUNTED = """
Association Records

ClusterName=evenkeel Account=vision UserName= Partition= Priority=0 ID=3
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpJobs=7(6) GrpJobsAccrue=N(0)
    GrpSubmitJobs=11(7) GrpWall=N(0.00)
    MaxJobs=2(0) MaxJobsAccrue= MaxSubmitJobs=3(0) MaxWallPJ=
    MaxTRESPJ=
    MaxTRESPN=gres/gpu=2
ClusterName=evenkeel Account=vision UserName=alice(1001) Partition= Priority=0 ID=4
    ParentAccount= Lft=3 DefAssoc=Yes
    GrpJobs=N(0) GrpJobsAccrue=N(0)
    GrpSubmitJobs=N(0) GrpWall=N(0.00)
    MaxJobs=1(1) MaxJobsAccrue= MaxSubmitJobs=3(2) MaxWallPJ=
    MaxTRESPJ=
    MaxTRESPN=gres/gpu=2
ClusterName=evenkeel Account=vision UserName=bob(1002) Partition= Priority=0 ID=5
    ParentAccount= Lft=5 DefAssoc=Yes
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPN=gres/gpu=2

QOS Records

QOS=normal(1)
    GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.00)
    MaxTRESPN=
    MinTRESPJ=
    Account Limits
        No Accounts
    User Limits
        No Users
QOS=gold(2)
    GrpJobs=4(2) GrpJobsAccrue=N(0) GrpSubmitJobs=N(3) GrpWall=N(0.00)
    MaxTRESPN=gres/gpu=1
    MinTRESPJ=gres/gpu=2
    Account Limits
      vision
        MaxJobsPA=5(2) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=8(3)
        MaxTRESPA=cpu=N(2),gres/gpu=N(4)
    User Limits
      alice(1001)
        MaxJobsPU=3(2) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(3)
        MaxTRESPU=cpu=N(2),gres/gpu=N(4)
"""
COUNTED_QOS = "normal||||||\ngold|||3|5||8\n"
ASSOCIATIONS = (
    "root||||normal\nroot|root|||normal\nvision|||normal|gold,normal\n"
    "vision|alice||gold|gold,normal\nvision|bob|||gold\nvision|carol|||gold,normal\n"
    "vision|dave|main|gold|gold\nvision|erin||normal|gold,normal\nbroken|\n"
)
COUNTS = parse_table(COUNTED, COUNTED_QOS, [MAIN], ASSOCIATIONS)


def test_the_qos_of_a_job_that_names_none_is_its_associations() -> None:
    assert COUNTS["default_qos"] == {"alice@vision": "gold", "bob@vision": "gold"}
    assert says_of_jobs({"account": "vision"}, "alice") == says_of_jobs({"account": "vision", "qos": "gold"}, "alice")
    assert says_of_jobs({"account": "vision"}, "erin") == says_of_jobs({"account": "vision", "qos": "normal"}, "erin")
    assert "default_qos" not in parse_table(COUNTED.replace("QOS=gold", "QOS=other"), "", [MAIN], ASSOCIATIONS)


def says_of_jobs(names: dict[str, str], user: str) -> list[tuple[str, int, str]]:
    return [(one.says, one.used, one.word) for one in bounds_of(COUNTS, names, user).shared]


def test_how_many_jobs_may_run_and_be_there_at_all() -> None:
    assert says_of_jobs({"account": "vision", "qos": "gold"}, "alice") == [
        ("QOS gold allows 4 running jobs at a time", 2, "QOSGrpJobsLimit"),
        ("QOS gold allows 3 running jobs a user at a time", 2, "QOSMaxJobsPerUserLimit"),
        ("QOS gold allows 5 running jobs an account at a time", 2, "MaxJobsPerAccount"),
        ("QOS gold allows 8 submitted jobs an account at a time", 3, "MaxSubmitJobsPerAccount"),
        ("account vision allows 11 submitted jobs at a time", 7, "AssocGrpSubmitJobsLimit"),
    ]
    own = "user alice in account vision allows"
    assert says_of_jobs({"account": "vision", "qos": "normal"}, "alice") == [
        (f"{own} 1 running job at a time", 1, "AssocMaxJobsLimit"),
        ("account vision allows 7 running jobs at a time", 6, "AssocGrpJobsLimit"),
        (f"{own} 3 submitted jobs at a time", 2, "AssocMaxSubmitJobLimit"),
        ("account vision allows 11 submitted jobs at a time", 7, "AssocGrpSubmitJobsLimit"),
    ]
    assert says_of_jobs({"account": "vision", "qos": "normal"}, "erin") == [
        ("account vision allows 7 running jobs at a time", 6, "AssocGrpJobsLimit"),
        ("account vision allows 11 submitted jobs at a time", 7, "AssocGrpSubmitJobsLimit"),
    ]


def test_the_fewest_gpus_of_a_job_and_the_most_of_one_node() -> None:
    found = bounds_of(COUNTS, {"account": "vision", "qos": "gold"}, "alice")
    assert (found.least, found.least_says) == (2, "QOS gold allows no job with fewer than 2 GPUs")
    assert found.nodes == NodeBounds("QOS gold", of_each=1, of_each_where="QOS gold")
    assert found.nodes.says == "QOS gold allows 1 GPU of a node"
    found = bounds_of(COUNTS, {"account": "vision", "qos": "normal"}, "bob")
    assert (found.least, found.least_says) == (1, "")
    assert found.nodes == NodeBounds("account vision", of_each=2, of_each_where="account vision")


class Asked(Commands):
    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[str, ...]] = []

    def recalling_settings(self) -> Any:
        return self

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        self.ran.append(command)
        return SHOWN if command == SHOW else QOS


@pytest.mark.parametrize(
    ("config", "asks"),
    [
        ("AccountingStorageEnforce = associations,limits,qos\nClusterName = lab\n", 3),
        ("AccountingStorageEnforce = associations,qos\n", 0),
        ("AccountingStorageEnforce = none\n", 0),
        ("", 0),
    ],
)
def test_slurm_is_asked_only_where_it_holds_to_limits_and_seldom(config: str, asks: int) -> None:
    commands = Asked()
    known = KnownLimits(commands)
    for _ in range(3):
        table = known.table([Partition("main", is_default=True), SMALL], config, {"qos": "gold"})
    assert len(commands.ran) == asks
    assert asks == 0 or commands.ran[-1] == (*ASSOC_COMMAND, "cluster=lab")
    assert enforces_limits(config) == bool(asks)
    assert table["given"] == {"qos": "gold", "partition": "main"}
    assert ("qos" in table) == bool(asks)

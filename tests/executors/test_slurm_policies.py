"""What Slurm's QOS, associations and partitions leave to jobs, from what 22.05.8 printed."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.capacity.engine_bounds import NO_BOUNDS, bounds_of
from scheduling.domain import NodeBounds
from scheduling.executors.slurm.commands import Commands
from scheduling.executors.slurm.limits import SHOW, KnownLimits, enforces_limits, parse_table
from scheduling.executors.slurm.partitions import Partition

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
        ({"partition": "small", "qos": "gold"}, NodeBounds("partition small", 2), 4),
        ({"partition": "main", "account": "sub"}, NodeBounds("account sub", 3), 6),
        ({"partition": "wide", "account": "sub"}, NodeBounds("account sub", 3, 2), 6),
        ({"partition": "small,main", "account": "other"}, None, None),
        ({"partition": "small,wide", "account": "other"}, NodeBounds("partition small,wide", 4), None),
    ],
)
def test_what_one_job_may_have(names: dict[str, str], nodes: NodeBounds | None, gpus: int | None) -> None:
    found = bounds_of(TABLE, names, "bob")
    assert (found.nodes, found.gpus) == (nodes, gpus)


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
        ("AccountingStorageEnforce = associations,limits,qos\n", 2),
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
    assert enforces_limits(config) == bool(asks)
    assert table["given"] == {"qos": "gold", "partition": "main"}
    assert ("qos" in table) == bool(asks)

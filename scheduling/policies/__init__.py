"""Policies by name; imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from scheduling.policies.base import Policy, parse_parameters

#: Family and class of each policy; the module has the policy's name.
POLICIES = {
    "f_scheduling": ("elastic", "FScheduling"),
    "f_scheduling_exact": ("elastic", "FSchedulingExact"),
    "static_partition": ("queue", "StaticPartition"),
    "fifo_gang": ("queue", "FifoGang"),
    "max_min_fairness": ("time_shares", "MaxMinFairness"),
    "max_min_fairness_water_filling": ("time_shares", "MaxMinFairnessWaterFilling"),
    "finish_time_fairness": ("time_shares", "FinishTimeFairness"),
    "min_makespan": ("time_shares", "MinMakespan"),
    "max_sum_throughput": ("time_shares", "MaxSumThroughput"),
    "min_cost": ("time_shares", "MinCost"),
    "min_cost_slo": ("time_shares", "MinCostSlo"),
    "fifo": ("time_shares", "Fifo"),
    "shortest_job_first": ("time_shares", "ShortestJobFirst"),
    "multifactor": ("queue", "Multifactor"),
    "shortest_remaining_time": ("elastic", "ShortestRemainingTime"),
    "min_mean_jct": ("time_shares", "MinMeanJct"),
    "isolated": ("time_shares", "Isolated"),
    "gandiva": ("time_shares", "Gandiva"),
    "hierarchical": ("time_shares", "Hierarchical"),
    "first_fit": ("packing", "FirstFit"),
    "best_fit": ("packing", "BestFit"),
    "round_robin": ("packing", "RoundRobin"),
    "tetris": ("packing", "Tetris"),
    "fgd": ("packing", "Fgd"),
    "genetic": ("packing", "Genetic"),
    "packing_exact": ("packing", "PackingExact"),
    "sjf_exclusive": ("packing", "SjfExclusive"),
    "deeprm_max": ("learned", "DeeprmMax"),
    "deeprm_mean": ("learned", "DeeprmMean"),
    "dqn_gpu": ("learned", "DqnGpu"),
}


def policy_class(name: str) -> type[Policy]:
    """The class of policy `name`; KeyError for an unknown name."""
    family, cls = POLICIES[name]
    return cast("type[Policy]", getattr(import_module(f"scheduling.policies.{family}.{name}"), cls))


def load_policy(name: str, parameters: dict[str, Any] | None = None) -> Policy:
    """Policy `name` with its parameters; raises InvalidParameters."""
    cls = policy_class(name)
    return cls(parse_parameters(cls.Parameters, parameters or {}))

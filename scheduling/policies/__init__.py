"""Policies by name; imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from scheduling.policies.base import Policy, parse_parameters

POLICIES = {
    "f_scheduling": "scheduling.policies.f_scheduling.FScheduling",
    "f_scheduling_exact": "scheduling.policies.f_scheduling_exact.FSchedulingExact",
    "static_partition": "scheduling.policies.static_partition.StaticPartition",
    "fifo_gang": "scheduling.policies.fifo_gang.FifoGang",
    "max_min_fairness": "scheduling.policies.max_min_fairness.MaxMinFairness",
    "max_min_fairness_water_filling": "scheduling.policies.max_min_fairness_water_filling.MaxMinFairnessWaterFilling",
    "finish_time_fairness": "scheduling.policies.finish_time_fairness.FinishTimeFairness",
    "min_makespan": "scheduling.policies.min_makespan.MinMakespan",
    "max_sum_throughput": "scheduling.policies.max_sum_throughput.MaxSumThroughput",
    "min_cost": "scheduling.policies.min_cost.MinCost",
    "min_cost_slo": "scheduling.policies.min_cost_slo.MinCostSlo",
    "fifo": "scheduling.policies.fifo.Fifo",
    "shortest_job_first": "scheduling.policies.shortest_job_first.ShortestJobFirst",
    "multifactor": "scheduling.policies.multifactor.Multifactor",
    "shortest_remaining_time": "scheduling.policies.shortest_remaining_time.ShortestRemainingTime",
    "min_mean_jct": "scheduling.policies.min_mean_jct.MinMeanJct",
    "isolated": "scheduling.policies.isolated.Isolated",
    "gandiva": "scheduling.policies.gandiva.Gandiva",
    "hierarchical": "scheduling.policies.hierarchical.Hierarchical",
    "first_fit": "scheduling.policies.first_fit.FirstFit",
    "best_fit": "scheduling.policies.best_fit.BestFit",
    "round_robin": "scheduling.policies.round_robin.RoundRobin",
    "tetris": "scheduling.policies.tetris.Tetris",
    "fgd": "scheduling.policies.fgd.Fgd",
    "genetic": "scheduling.policies.genetic.Genetic",
    "packing_exact": "scheduling.policies.packing_exact.PackingExact",
    "sjf_exclusive": "scheduling.policies.sjf_exclusive.SjfExclusive",
    "deeprm_max": "scheduling.policies.deeprm_max.DeeprmMax",
    "deeprm_mean": "scheduling.policies.deeprm_mean.DeeprmMean",
    "dqn_gpu": "scheduling.policies.dqn_gpu.DqnGpu",
}


def policy_class(name: str) -> type[Policy]:
    """The class of policy `name`; KeyError for a name that is not in POLICIES."""
    module, _, cls = POLICIES[name].rpartition(".")
    return cast("type[Policy]", getattr(import_module(module), cls))


def load_policy(name: str, parameters: dict[str, Any] | None = None) -> Policy:
    """Policy `name` with its parameters; raises InvalidParameters."""
    cls = policy_class(name)
    return cls(parse_parameters(cls.Parameters, parameters or {}))

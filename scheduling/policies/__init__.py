"""Policies by name; imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from scheduling.policies.base import Policy, parse_parameters

POLICIES = {
    "f_scheduling": "scheduling.policies.elastic.f_scheduling.FScheduling",
    "f_scheduling_exact": "scheduling.policies.elastic.f_scheduling_exact.FSchedulingExact",
    "static_partition": "scheduling.policies.queue.static_partition.StaticPartition",
    "fifo_gang": "scheduling.policies.queue.fifo_gang.FifoGang",
    "max_min_fairness": "scheduling.policies.time_shares.max_min_fairness.MaxMinFairness",
    "max_min_fairness_water_filling": "scheduling.policies.time_shares.max_min_fairness_water_filling.MaxMinFairnessWaterFilling",
    "finish_time_fairness": "scheduling.policies.time_shares.finish_time_fairness.FinishTimeFairness",
    "min_makespan": "scheduling.policies.time_shares.min_makespan.MinMakespan",
    "max_sum_throughput": "scheduling.policies.time_shares.max_sum_throughput.MaxSumThroughput",
    "min_cost": "scheduling.policies.time_shares.min_cost.MinCost",
    "min_cost_slo": "scheduling.policies.time_shares.min_cost_slo.MinCostSlo",
    "fifo": "scheduling.policies.time_shares.fifo.Fifo",
    "shortest_job_first": "scheduling.policies.time_shares.shortest_job_first.ShortestJobFirst",
    "multifactor": "scheduling.policies.queue.multifactor.Multifactor",
    "shortest_remaining_time": "scheduling.policies.elastic.shortest_remaining_time.ShortestRemainingTime",
    "min_mean_jct": "scheduling.policies.time_shares.min_mean_jct.MinMeanJct",
    "isolated": "scheduling.policies.time_shares.isolated.Isolated",
    "gandiva": "scheduling.policies.time_shares.gandiva.Gandiva",
    "hierarchical": "scheduling.policies.time_shares.hierarchical.Hierarchical",
    "first_fit": "scheduling.policies.packing.first_fit.FirstFit",
    "best_fit": "scheduling.policies.packing.best_fit.BestFit",
    "round_robin": "scheduling.policies.packing.round_robin.RoundRobin",
    "tetris": "scheduling.policies.packing.tetris.Tetris",
    "fgd": "scheduling.policies.packing.fgd.Fgd",
    "genetic": "scheduling.policies.packing.genetic.Genetic",
    "packing_exact": "scheduling.policies.packing.packing_exact.PackingExact",
    "sjf_exclusive": "scheduling.policies.packing.sjf_exclusive.SjfExclusive",
    "deeprm_max": "scheduling.policies.learned.deeprm_max.DeeprmMax",
    "deeprm_mean": "scheduling.policies.learned.deeprm_mean.DeeprmMean",
    "dqn_gpu": "scheduling.policies.learned.dqn_gpu.DqnGpu",
}


def policy_class(name: str) -> type[Policy]:
    """The class of policy `name`; KeyError for a name that is not in POLICIES."""
    module, _, cls = POLICIES[name].rpartition(".")
    return cast("type[Policy]", getattr(import_module(module), cls))


def load_policy(name: str, parameters: dict[str, Any] | None = None) -> Policy:
    """Policy `name` with its parameters; raises InvalidParameters."""
    cls = policy_class(name)
    return cls(parse_parameters(cls.Parameters, parameters or {}))

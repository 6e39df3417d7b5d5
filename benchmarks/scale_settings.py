"""The portal's settings with played nodes (benchmarks.played_nodes) as its executor."""

import os

from portal.settings import *  # noqa: F403
from portal.settings import EVENKEEL_EXECUTOR_OPTIONS, LOGGING, RATES_PER_MINUTE
from scheduling.executors import EXECUTORS

EXECUTORS["played"] = "benchmarks.played_nodes.PlayedNodes"
EVENKEEL_EXECUTOR = "played"
RATES_PER_MINUTE = RATES_PER_MINUTE | {"user": 0}
EVENKEEL_EXECUTOR_OPTIONS["played"] = {
    "address": os.environ["PLAYED_STAGE"],
    "nodes": int(os.environ["PLAYED_NODES"]),
}
LOGGING["loggers"]["celery.app.trace"] = {"level": "INFO"}  # how long each task took

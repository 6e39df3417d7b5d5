"""Kinds of GPU occupancy, as pages name them."""

from __future__ import annotations

from scheduling.lifecycle import State

KINDS = {
    State.LAUNCHING: "launching",
    State.RUNNING_PROTECTED: "protected",
    State.RUNNING: "running",
    State.CHECKPOINTING: "moving",
    State.STOPPING: "moving",
    State.STANDBY: "moving",
}

"""Runs one epoch of a run on this machine: `python -m evenkeel.runner EPOCH_DIR`.

The runner is detached from the process that started it. It starts one worker per GPU, keeps their output, listens to
the SDK, reports to the portal, and leaves `exit.json` as its last act.
"""

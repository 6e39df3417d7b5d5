"""A program without the SDK that loses nothing: it saves when it is asked to end, and goes on from what it finds."""

import json
import os
import pathlib
import signal
import sys
import time

last = pathlib.Path(os.environ.get("EVENKEEL_ARTIFACT_DIR", "."), "last.json")
epoch = json.loads(last.read_text())["epoch"] if last.exists() else 0
asked = False


def ask(*_: object) -> None:
    global asked
    asked = True


def save() -> None:
    draft = last.with_suffix(".tmp")
    draft.write_text(json.dumps({"epoch": epoch}))
    draft.replace(last)  # a kill while it writes leaves the old file whole


signal.signal(signal.SIGTERM, ask)
while epoch < 600:
    time.sleep(0.1)  # an epoch of training
    epoch += 1
    print(f"epoch {epoch}", flush=True)  # noqa: T201
    if asked:
        save()
        sys.exit(143)
save()

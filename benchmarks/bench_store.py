"""What a checkpoint store costs: carrying a checkpoint there and back, beside a plain copy to the same disk.

python -m benchmarks.bench_store [--mib 256] [--repeat 3] [--url s3://bucket/prefix --credentials FILE]

`carried` is by `python -m evenkeel.store`, as a runner has it done: hashed, with a marker, and on the way back verified
and synced. `copied` is shutil.copyfile and fsync. Without --url the store is a directory on the same disk, and where
moto and s3fs are installed an S3 server on this machine, which is slower than any real one. `first answer` is from the
start of that process until the store has said that it has nothing, which every launch pays.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.store.carrier import Address, Carrier

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

WAIT_S = 600.0
OWNER = {"run_id": "benchmark", "epoch": 1}


def timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def ask(carrier: Carrier, what: str, **more: Any) -> dict[str, Any]:
    carrier.ask(what, **more)
    return carrier.wait(WAIT_S)


def settle(carrier: Carrier, place: Path, step: int) -> dict[str, Any]:
    return ask(carrier, "settle", owner=OWNER, directory=str(place), expected_step=step, otherwise=None, resume=None)


def measure(address: Address, node: Path, number: int) -> dict[str, float]:
    """Seconds of one checkpoint's ways; `node` has it as step 1."""
    address = Address(address.url, f"bench-{os.getpid()}/{number}", address.options)
    found: dict[str, float] = {}
    began = time.perf_counter()
    carrier = Carrier(address)
    try:
        settle(carrier, node / f"empty{number}", 0)
        found["first answer"] = time.perf_counter() - began
        found["up"] = timed(lambda: ask(carrier, "upload", directory=str(node), step=1, owner=OWNER, keep=1))
        found["there already"] = timed(lambda: settle(carrier, node, 1))
        found["back"] = timed(lambda: settle(carrier, node / f"other{number}", 1))
        ask(carrier, "remove", checkpoints=[[address.prefix, 1]])
    finally:
        carrier.close()
        for name in (f"empty{number}", f"other{number}"):
            shutil.rmtree(node / name, ignore_errors=True)
    return found


def copied(node: Path) -> float:
    def copy() -> None:
        shutil.copyfile(node / "step-1" / "state.json", node / "copy")
        with (node / "copy").open("rb") as file:
            os.fsync(file.fileno())

    return timed(copy)


def compare(name: str, address: Address, node: Path, mib: int, repeat: int) -> None:
    rows = [measure(address, node, number) | {"copied": copied(node)} for number in range(repeat)]
    middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    print(f"{name}, {mib} MiB, median of {repeat}: first answer {middle['first answer']:.2f} s")
    for key in ("up", "back", "there already"):
        ratio = middle[key] / middle["copied"]
        print(f"  {key:14} {middle[key]:6.2f} s  {mib / middle[key]:6.0f} MiB/s  {ratio:5.1f} x a plain copy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--url")
    parser.add_argument("--credentials", type=Path, help="a JSON object of the driver's options")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evenkeel-store-") as name:
        node = Path(name) / "node"
        CheckpointStore(node, 1).save(1, {"ballast": os.urandom(options.mib << 19).hex()})
        if options.url:
            given = json.loads(options.credentials.read_bytes()) if options.credentials else {}
            compare(options.url, Address(options.url, "", given), node, options.mib, options.repeat)
            return
        compare("a directory", Address(f"file://{name}/store", ""), node, options.mib, options.repeat)
        if any(find_spec(module) is None for module in ("flask", "moto", "s3fs")):
            print("SKIPPED: no S3 server here: pip install -r requirements-s3.lock -r requirements-s3-test.lock")
            return
        from tests.client.s3 import s3_server

        with s3_server() as s3:
            compare("S3 (moto)", Address(s3.url, "", s3.direct), node, options.mib, options.repeat)


if __name__ == "__main__":
    main()

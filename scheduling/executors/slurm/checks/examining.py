"""What an administrator must fix before jobs can run in this Slurm: for `manage.py doctor`."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evenkeel.runner.looking import TIMEOUT_S as GPUS_TIMEOUT_S

from scheduling.errors import ExecutorError
from scheduling.executors.base import NOTHING_KEPT, Finding, Kept, NodeCheck
from scheduling.executors.folding import fold_findings, fold_names
from scheduling.executors.offering import offer_findings
from scheduling.executors.reach import ANY_NODE, fold_reach, portal_fix, reach_finding
from scheduling.executors.slurm.checks.site import examine_partition
from scheduling.executors.slurm.cluster.inventory import SlurmNode, parse_nodes
from scheduling.executors.slurm.commands import Commands
from scheduling.executors.slurm.options import Options

#: Versions with which the tests were run; those between were checked in Slurm's documentation.
RUN = ((22, 5), (24, 11))
NEEDED = ("sbatch", "squeue", "scancel", "scontrol", "srun")
CHECK_NAME = "evenkeel-doctor"  # of its jobs
PROBE_WAIT_S = 20
PROBE_TIMEOUT_S = 90.0
PROBE_MIB, REAL_PROBE_MIB = 64, 256  # NVML in a separate process beside it
MAX_NODES = 64
#: srun's message if others have the CPUs or the memory that it would need.
BUSY = ("nodes are busy", "immediate execution impossible", "resources are temporarily unavailable")
FIX_PYTHON = "install the client package for this interpreter on every node, or set EVENKEEL_SLURM_PYTHON to one"
FIX_STORE = "install fsspec and the driver of EVENKEEL_CHECKPOINT_URL for the nodes' interpreter (requirements-s3.lock)"
#: Runs on each node, with the interpreter of jobs.
PROBE = """
import importlib.util, json, os, sys, time, urllib.request
found = {"node": os.environ.get("SLURMD_NODENAME"), "time": time.time(), "python": sys.version.split()[0]}
try:
    found["shared"] = open(sys.argv[1]).read()
    open(sys.argv[1] + "." + str(found["node"]), "w").close()
except OSError as error:
    found["shared_error"] = str(error)
try:
    import evenkeel.runner.following
except Exception as error:
    found["evenkeel.runner"] = str(error) or type(error).__name__
for module in filter(None, ["evenkeel.store", sys.argv[3] and "fsspec", sys.argv[3]]):
    if importlib.util.find_spec(module) is None:
        found["store"] = "no module named " + module
try:
    from evenkeel.store.offers import offers
    found["data"] = offers(sys.argv[4], found["node"] or "")
except Exception as error:
    found["data_error"] = str(error) or type(error).__name__
try:
    counts, timeout_s = json.loads(sys.argv[5])
    if count := counts.get(found["node"]):
        from evenkeel.runner.looking import of_node
        found["devices"] = of_node(count, hides=True, timeout_s=timeout_s)
except Exception as error:
    seen = "not known: " + (str(error) or type(error).__name__)
    found["devices"] = [{"subject": "devices", "ok": True, "seen": seen, "known": False}]
try:
    if kept := json.loads(sys.argv[6]):
        from evenkeel.runner.reaching import reached
        found["reached"] = reached(kept)
except Exception as error:
    found["reached"] = {"problem": str(error) or type(error).__name__}
if importlib.util.find_spec("torch") is None:
    found["torch"] = "no module named torch"
try:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(sys.argv[2].rstrip("/") + "/healthz", timeout=5).close()
except Exception as error:
    found["portal"] = str(error)
print("PROBE " + json.dumps(found))
"""


def examine(
    commands: Commands, options: Options, shared: Path, api_url: str, kept: Kept = NOTHING_KEPT
) -> Iterator[Finding]:
    """Yields findings; stops at the first one that makes the rest pointless."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        yield Finding("commands", False, f"{', '.join(missing)} not found", "install Slurm's client commands here")
        return
    yield Finding("commands", True, f"{', '.join(NEEDED)} are installed")
    try:
        answer = " ".join(commands.run("scontrol", "ping").split())
        yield Finding("connection", "UP" in answer, answer, "start slurmctld, or set EVENKEEL_SLURM_CONF")
        yield _version(commands.run("sbatch", "--version"))
        nodes_text = commands.nodes()
        nodes = parse_nodes(nodes_text, options.partition, reservation=options.reservation)
    except ExecutorError as error:
        yield Finding(
            "connection", False, str(error), "set EVENKEEL_SLURM_CONF to the cluster's slurm.conf, check munge"
        )
        return
    yield _partition(commands, options)
    yield from _site(commands, options, nodes_text)
    yield from _gres(nodes, options)
    yield _accounting(commands)
    yield _lost_nodes(commands, options)
    usable = [node for node in nodes if node.usable]
    if taken := [node for node in usable if node.state.startswith("ALLOCATED")]:
        names = fold_names(node.info.name for node in taken)
        yield Finding("busy nodes", True, f"not probed, jobs take all of them: {names}", known=False)
    if asleep := [node.info.name for node in usable if node.wakes]:
        yield Finding("powered down", True, f"not woken for this: {fold_names(asleep)}", known=False)
    if free := [node for node in usable if not node.wakes and not node.state.startswith("ALLOCATED")]:
        yield from map(_unless_busy, _probe(commands, options, free[:MAX_NODES], shared, api_url, kept=kept))


def check_node(commands: Commands, options: Options, shared: Path, wish: NodeCheck) -> Iterator[Finding]:
    """For one node: Slurm's state of it, and the result of a probe there."""
    began = time.monotonic()
    nodes = parse_nodes(commands.nodes(), options.partition, reservation=options.reservation)
    node = next((node for node in nodes if node.info.name == wish.node), None)
    if node is None:
        where = f"the partition {options.partition}" if options.partition else "Slurm"
        yield Finding("state", False, f"no node {wish.node} with GPUs is in {where}", "scontrol show node")
        return
    yield Finding(
        "state", node.usable, node.state, f"put right what Slurm says, then: scontrol update {wish.node} resume"
    )
    counts = Counter(device.type for device in node.info.accelerators)
    yield Finding("GPUs", True, ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items())))
    if node.usable and node.wakes:
        yield Finding("probe", True, "powered down, and not woken for a check", known=False)
    if not node.usable or node.wakes:
        return
    left_s = max(2.0, wish.timeout_s - (time.monotonic() - began))
    wait_s = max(1, min(PROBE_WAIT_S, int(left_s / 2)))
    try:
        found = list(_probe(commands, options, [node], shared, wish.api_url, wait_s, left_s))
    except OSError as error:
        found = [Finding("shared storage", False, f"{shared} cannot be written here: {error.strerror}", "repair it")]
    yield from map(_of_one, found)


def _of_one(finding: Finding) -> Finding:
    """A node without PyTorch can run commands."""
    found = _unless_busy(finding)
    return replace(found, ok=True, known=False) if found.subject == "pytorch" and not found.ok else found


def _unless_busy(finding: Finding) -> Finding:
    """A node whose CPUs are all taken cannot be probed."""
    if finding.subject == "probe" and any(words in finding.seen.lower() for words in BUSY):
        return replace(finding, ok=True, known=False, seen=f"not known, jobs take all of it: {finding.seen}")
    return finding


def _version(text: str) -> Finding:
    match = re.search(r"([0-9]+)\.([0-9]+)", text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    tried = " and ".join(f"{year}.{month:02}" for year, month in RUN)
    words = "which was tried" if version in RUN else f"which was not run: {tried} were, others are only read about"
    return Finding("version", version >= RUN[0], f"{text.strip()}, {words}", f"use a newer one: {tried} were tried")


def _partition(commands: Commands, options: Options) -> Finding:
    if not options.partition:
        return Finding("partition", True, "the default partition; a partition that is the portal's alone is better")
    try:
        text = " ".join(commands.run("scontrol", "--oneliner", "show", "partition", options.partition).split())
    except ExecutorError as error:
        return Finding("partition", False, str(error), "set EVENKEEL_SLURM_PARTITION to one of `sinfo -o %P`")
    state = re.search(r"State=(\S+)", text)
    up = state is not None and state[1] == "UP"
    return Finding("partition", up, f"{options.partition} is {state[1] if state else 'unknown'}", "scontrol update it")


def _site(commands: Commands, options: Options, nodes_text: str) -> Iterator[Finding]:
    with contextlib.suppress(ExecutorError):  # reported already
        yield from examine_partition(commands.run("scontrol", "--oneliner", "show", "partition"), nodes_text, options)


def _gres(nodes: Sequence[SlurmNode], options: Options) -> Iterator[Finding]:
    if not nodes:
        fix = "declare Gres=gpu:TYPE:N for its nodes in slurm.conf, GresTypes=gpu, and their files in gres.conf"
        yield Finding("gres", False, f"no node with GPUs in {options.partition or 'any partition'}", fix)
        return
    counts = Counter(device.type for node in nodes for device in node.info.accelerators)
    words = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
    untyped = [node.info.name for node in nodes if "" in node.gpu_types]
    fix = "name a type, as Gres=gpu:a100:4: policies tell types apart by it"
    yield Finding("gres", not untyped, words + (f"; without a type: {fold_names(untyped)}" if untyped else ""), fix)
    mixed = [node.info.name for node in nodes if len(set(node.gpu_types)) > 1]
    if mixed:
        yield Finding(
            "gres", False, f"GPUs of several types in {fold_names(mixed)}", "one type a node is what is planned with"
        )
    gone = [node.info.name for node in nodes if not node.info.reachable or node.info.unclear]
    words = f"{len(nodes) - len(gone)} of {len(nodes)} answer" + (f"; not {fold_names(gone)}" if gone else "")
    yield Finding("nodes", not gone, words, "scontrol show node, start slurmd there")


def _accounting(commands: Commands) -> Finding:
    try:
        kept = commands.past_jobs(CHECK_NAME) is not None
    except ExecutorError as error:
        seen = f"sacct does not answer, so runners' own records count: {error}"
        return Finding("accounting", True, seen, known=False)
    fix = "with slurmdbd the end of a job is known for longer than MinJobAge; without, its runner's own record counts"
    return Finding("accounting", True, "sacct answers" if kept else f"Slurm keeps no accounting: {fix}")


def _lost_nodes(commands: Commands, options: Options) -> Finding:
    try:
        config = commands.run("scontrol", "show", "config")
    except ExecutorError as error:
        return Finding("lost nodes", True, f"not known: {error}", known=False)
    configured = re.search(r"^SlurmdTimeout\s*=\s*([0-9]+)", config, re.MULTILINE)
    if configured is None:
        return Finding("lost nodes", True, "not known: Slurm's configuration names no SlurmdTimeout", known=False)
    timeout_s, lease = int(configured[1]), f"{options.lease_s:g} s"
    seen = f"Slurm gives up a node that is silent for {timeout_s} s; leases last {lease}"
    if not timeout_s:
        seen = "Slurm never gives up a node that is silent, so its jobs go on nowhere else"
    fix = f"set SlurmdTimeout in slurm.conf to at most {lease}, so that jobs leave lost nodes when their leases end"
    return Finding("lost nodes", 0 < timeout_s <= options.lease_s, seen, fix)


def _probe(
    commands: Commands,
    options: Options,
    nodes: Sequence[SlurmNode],
    shared: Path,
    api_url: str,
    wait_s: int = PROBE_WAIT_S,
    timeout_s: float = PROBE_TIMEOUT_S,
    kept: Kept = NOTHING_KEPT,
) -> Iterator[Finding]:
    token, count = secrets.token_hex(8), len(nodes)
    real = {} if options.emulated else {node.info.name: len(node.info.accelerators) for node in nodes}
    memory = f"--mem={REAL_PROBE_MIB if real else PROBE_MIB}M"
    file = shared / f".doctor-{token}"
    file.write_text(token)
    try:
        names = ",".join(node.info.name for node in nodes)
        began = time.time()
        text = commands.run(
            "srun", *options.arguments(), f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1",
            f"--nodelist={names}", f"--immediate={wait_s}", memory, "--time=2", f"--job-name={CHECK_NAME}",
            "--export=NONE", "--chdir=/", options.python, "-c", PROBE, str(file), api_url, options.store_module,
            options.data_cache_dir, json.dumps([real, min(GPUS_TIMEOUT_S, timeout_s / 2)]),
            json.dumps(asdict(kept) if kept != NOTHING_KEPT else {}),
            timeout_s=timeout_s,
        )  # fmt: skip
        ended = time.time()
    except ExecutorError as error:
        folded = fold_names(node.info.name for node in nodes)
        yield Finding("probe", False, str(error), f"see why `srun --nodelist={folded}` does not start {options.python}")
        return
    finally:
        written = {path.name.rpartition(".")[2] for path in shared.glob(f".doctor-{token}.*")}
        for path in shared.glob(f".doctor-{token}*"):
            path.unlink(missing_ok=True)
    found = [json.loads(line.removeprefix("PROBE ")) for line in text.splitlines() if line.startswith("PROBE ")]
    if not found:
        yield Finding("probe", False, "it was started and said nothing", f"see what `srun {options.python}` does there")
        return
    yield from _judge(found, token, written, (began, ended), options, shared)


def _judge(
    found: Sequence[Mapping[str, Any]],
    token: str,
    written: set[str],
    between: tuple[float, float],
    options: Options,
    shared: Path,
) -> Iterator[Finding]:
    def finding(subject: str, bad: Sequence[Mapping[str, Any]], key: str, well: str, fix: str) -> Finding:
        alike: dict[str, list[str]] = {}
        for one in bad:
            alike.setdefault(str(one.get(key, "not the same")), []).append(str(one.get("node")))
        words = "; ".join(f"{fold_names(nodes)}: {text}" for text, nodes in list(alike.items())[:5])
        return Finding(subject, not bad, words or well, fix)

    apart = [one for one in found if one.get("shared") != token or str(one.get("node")) not in written]
    fix = "EVENKEEL_SHARED_DIR has to be one directory, writable, under the same path everywhere"
    nodes = "1 node" if len(found) == 1 else f"{len(found)} nodes"
    yield finding("shared storage", apart, "shared_error", f"{shared} is the same on {nodes}", fix)
    began, ended = between
    skew_s = max((max(began - one["time"], one["time"] - ended, 0.0) for one in found), default=0.0)
    close = skew_s < options.skew_s / 2
    yield Finding("clocks", close, f"at most {skew_s:.1f} s apart", "run chrony or ntpd on all nodes")
    for subject, key, well, fix in (
        ("interpreter", "evenkeel.runner", f"{options.python} has the client", FIX_PYTHON),
        ("pytorch", "torch", "it is there", "jobs of the catalogue need PyTorch on the nodes"),
        ("portal", "portal", "nodes reach it", portal_fix(one.get("portal", "") for one in found)),
        ("checkpoint store", "store", f"nodes have {options.store_module or 'the client'} for it", FIX_STORE),
    ):
        yield finding(subject, [one for one in found if key in one], key, well, fix)
    reach = ((str(one["node"]), reach_finding(ANY_NODE, one["reached"])) for one in found if "reached" in one)
    yield from fold_reach(reach)
    said = {str(one["node"]): list(offer_findings(one["data"], options.software)) for one in found if "data" in one}
    yield from fold_findings(said)
    yield from _of_devices([one for one in found if one.get("devices")])


def _of_devices(found: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Nodes' reports on their GPUs: a single one in its own words; of several, those with a fault, or else those
    without a report, are named."""
    if len(found) == 1:
        yield from (Finding(**row) for row in found[0]["devices"])
        return
    subjects: dict[str, list[tuple[str, Finding]]] = {}
    for one in found:
        for row in one["devices"]:
            subjects.setdefault(str(row["subject"]), []).append((str(one["node"]), Finding(**row)))
    for subject, said in subjects.items():
        bad = [(node, one) for node, one in said if not one.ok]
        chosen = bad or [(node, one) for node, one in said if not one.known]
        words = "; ".join(f"{node}: {one.seen}" for node, one in chosen[:5])
        well = "; ".join(f"{seen} on {count}" for seen, count in Counter(one.seen for _, one in said).items())
        yield Finding(
            subject, not bad, words or f"{well} nodes", bad[0][1].fix if bad else "", known=not chosen or bool(bad)
        )

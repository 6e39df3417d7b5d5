"""Commands that start workers of their own are told what to write instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.jobfile.launchers import launcher_warnings
from tests.cases import in_turn
from tests.portal.api_calls import Api
from tests.portal.world import World

TOLD = [
    ("torchrun --nproc_per_node=2 train.py --lr 0.1", "torchrun", "python train.py --lr 0.1"),
    ("torchrun --standalone --nproc-per-node gpu -m pkg.train", "torchrun", "python -m pkg.train"),
    ("/opt/venv/bin/torchrun train.py", "torchrun", "python train.py"),
    ("OMP_NUM_THREADS=1 NCCL_DEBUG=INFO torchrun train.py", "torchrun", "python train.py"),
    ("exec torchrun train.py", "torchrun", "python train.py"),
    ("nohup env -u A B=1 nice -n 5 time -p torchrun train.py", "torchrun", "python train.py"),
    ("timeout -k 5 3600 stdbuf -oL torchrun train.py", "torchrun", "python train.py"),
    ("python -m torch.distributed.run --nproc_per_node 2 train.py", "torch.distributed.run", "python train.py"),
    ("python3.11 -u -W ignore -m torch.distributed.launch train.py", "torch.distributed.launch", "python train.py"),
    ("python -um torch.distributed.run train.py", "torch.distributed.run", "python train.py"),
    ("/opt/venv/bin/python /opt/venv/bin/torchrun train.py", "torchrun", "python train.py"),
    ("accelerate launch --num_processes 2 train.py", "accelerate launch", "python train.py"),
    ("python -m accelerate.commands.launch train.py", "accelerate.commands.launch", "python train.py"),
    ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "deepspeed", "python train.py --deepspeed ds.json"),
    ("mpirun -np 2 -x PATH python3 train.py", "mpirun", "python3 train.py"),
    ("mpiexec -n 2 ./a.out", "mpiexec", "python train.py"),
    ("srun --ntasks=2 python train.py", "srun", "python train.py"),
    ("horovodrun -np 2 python train.py", "horovodrun", "python train.py"),
    ("fabric run --devices 2 train.py", "fabric run", "python train.py"),
    ("composer -n 2 train.py", "composer", "python train.py"),
    ("colossalai run --nproc_per_node 2 train.py", "colossalai run", "python train.py"),
    ("uv run --with torch torchrun train.py", "torchrun", "python train.py"),
    ("poetry run torchrun train.py", "torchrun", "python train.py"),
    ("conda run -n x --no-capture-output accelerate launch train.py", "accelerate launch", "python train.py"),
    ("bash -lc 'cd x && torchrun train.py'", "torchrun", "python train.py"),
    ("sh -c \"exec bash -o pipefail -c 'torchrun train.py'\"", "torchrun", "python train.py"),
    ("cd x && torchrun train.py", "torchrun", "python train.py"),
    ("pip install -r requirements.txt; torchrun train.py", "torchrun", "python train.py"),
    ("set -e\n# don't stop\ncd x\ntorchrun \\\n  --nproc_per_node 2 \\\n  train.py\n", "torchrun", "python train.py"),
    ("if true; then torchrun train.py; fi", "torchrun", "python train.py"),
    ("(cd x; torchrun train.py) 2>&1 | tee log", "torchrun", "python train.py"),
    ("eval 'torchrun train.py'", "torchrun", "python train.py"),
]
NOT_TOLD = [
    "python train.py",
    "python train.py --launcher torchrun",
    "echo torchrun train.py",
    "python -c 'import torchrun'",
    "python -m torch.utils.collect_env",
    "accelerate config",
    "lightning fit",
    "uv pip install torchrun",
    "timeout 5 python train.py torchrun",
    "bash run.sh torchrun",
    "MODE=torchrun python train.py",
    "pip install deepspeed",
    "./torchrun.sh",
    "",
    "   ",
    "'",
    "sh -c",
    "env",
    "conda",
    "python -m",
]


@in_turn(("command", "launcher", "program"), TOLD)
def test_a_launcher_is_told_what_to_write(command: str, launcher: str, program: str) -> None:
    [text] = launcher_warnings(command)
    assert text.startswith(f"{launcher} starts its own workers, and Evenkeel starts the command once per GPU: write ")
    assert f"`{program}`" in text


@in_turn("command", NOT_TOLD)
def test_other_commands_are_left_alone(command: str) -> None:
    assert launcher_warnings(command) == ()


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from([*"\"'`$(){};&|\n\\ #", "torchrun ", "sh -c ", "x.py"])).map("".join)
)
def test_nothing_that_people_write_is_an_error(command: str) -> None:
    for text in launcher_warnings(command):
        assert len(text) < 400


@pytest.mark.django_db
def test_preview_and_submission_say_it() -> None:
    world = World()
    api = Api(world.user)
    file = {"command": "torchrun train.py", "total_steps": 1, "throughput": {"k1": [1.0]}}
    for path in ("jobs/preview", "jobs"):
        [text] = api.post(path, file).json["warnings"]
        assert "write `python train.py`" in text
        assert api.post(path, file | {"command": "python train.py"}).json["warnings"] == []

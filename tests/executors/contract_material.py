"""What every executor must do with what a job brings along: its code, its environment, its data."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import tarfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

from scheduling.executors.base import Data, DataEntry, Executor, LaunchRequest, Preparation, Progress
from tests.executors.contract import COUNTING, Requests, ended, reason, until

MIB = 1 << 20
TOLD = "from told import what\nprint(what, flush=True)\n" + COUNTING
READING = """
import evenkeel
with evenkeel.training() as run:
    print("reads", (run.data("numbers") / "a.txt").read_text(), flush=True)
    for step in run.steps():
        pass
"""


def asked(kind: str, options: dict[str, Any], **changes: Any) -> Preparation:
    job = uuid.uuid4().hex
    made = Preparation(kind, job, 1, "vision", job, options, 60.0, 64 * MIB)
    return dataclasses.replace(made, **changes)


def settled(executor: Executor, wish: Preparation) -> Progress:
    executor.prepare(wish)
    return until(lambda: (p := executor.prepare(wish)).state != "working" and p, "the preparation")  # type: ignore[no-any-return]


def git(repository: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-c", "protocol.file.allow=always"]
    command = ["git", *identity, "-C", str(repository), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def archive(*members: tuple[str, bytes | str | None]) -> bytes:
    """A name with bytes is a file, with text a link to it, with nothing a pipe."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = (tarfile.SYMTYPE, content) if content else (tarfile.FIFOTYPE, "")
                tar.addfile(info)
    return out.getvalue()


def wheel(place: Path, what: str) -> Path:
    """A package `told` that no index needs to be asked for."""
    made, about = place / "told-1.0-py3-none-any.whl", "told-1.0.dist-info"
    files = {
        "told.py": f"what = {what!r}\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: told\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(made, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return made


class MaterialContract(Requests):
    def test_a_job_trains_from_a_git_ref(self, executor: Executor, request_for: Any, place: Path) -> None:
        repository = place / "repository"
        (repository / "deep").mkdir(parents=True)
        git(repository, "init", "-q", "-b", "main")
        (repository / "deep" / "train.py").write_text(TOLD)
        for said in ("the tag", "the branch"):
            (repository / "deep" / "told.py").write_text(f"what = 'as in {said}'\n")
            git(repository, "add", ".")
            git(repository, "commit", "-q", "-m", said)
            if said == "the tag":
                git(repository, "tag", "-a", "v1", "-m", said)
        subprocess.run(["chmod", "-R", "a+rX", str(repository)], check=True)
        wish = asked("git", {"url": f"file://{repository}", "ref": "v1", "subdir": "deep"})
        progress = settled(executor, wish)
        assert progress.state == "done", progress
        assert progress.detail["commit"] == git(repository, "rev-parse", "v1^{commit}")
        self._trains_from_its_code(executor, request_for, wish, place, "deep", "as in the tag")

    def test_a_job_trains_from_a_bundle(self, executor: Executor, request_for: Any, place: Path) -> None:
        source = place / "code.tar.gz"
        source.write_bytes(archive(("train.py", TOLD.encode()), ("told.py", b"what = 'as bundled'\n")))
        source.chmod(0o600)
        wish = asked("bundle", {"max_files": 10}, source=str(source))
        progress = settled(executor, wish)
        assert progress.state == "done", progress
        self._trains_from_its_code(executor, request_for, wish, place, "", "as bundled")

    def _trains_from_its_code(
        self, executor: Executor, request_for: Any, wish: Preparation, place: Path, subdir: str, told: str
    ) -> None:
        """Two workers, which go on from the checkpoint with the same code when it is launched again."""
        argv = ("python", "train.py", str(place / "starts"), "0.02")
        request = request_for(job_id=wish.job_id, code_subdir=subdir, argv=argv, workers=2)
        for epoch, steps in ((1, 12), (2, 20)):
            launch = dataclasses.replace(request, epoch=epoch, total_steps=steps)
            executor.launch(launch)
            fact = ended(executor, launch.run_id, epoch)
            logs = self.epoch_dir(launch, epoch) / "logs"
            assert reason(fact) == "done", [fact.exit, (logs / "rank0.log").read_text()]
            assert all(told in (logs / f"rank{rank}.log").read_text() for rank in range(2))
        assert self.last_state(request)["seen"] == list(range(20))

    def test_a_job_trains_in_its_environment(self, executor: Executor, request_for: Any, place: Path) -> None:
        line = f"told @ file://{wheel(place, 'as packed')}\n"
        wish = asked("environment", {"requirements": line}, key="e" * 64, timeout_s=240.0)
        progress = settled(executor, wish)
        assert progress.state == "done", progress
        request = request_for(TOLD + "print(sys.prefix)", str(place / "starts"), "0.02", environment="e" * 64)
        executor.launch(request)
        fact = ended(executor, request.run_id)
        said = (self.epoch_dir(request) / "logs" / "rank0.log").read_text()
        assert reason(fact) == "done", [fact.exit, said]
        assert "as packed" in said
        assert "environments/vision" in said

    def test_data_is_fetched_to_the_node_once(self, executor: Executor, request_for: Any, place: Path) -> None:
        source, cache = place / "source", place / "cache"
        source.mkdir(mode=0o755)
        (source / "a.txt").write_text("seven")
        cache.mkdir(mode=0o777)
        cache.chmod(0o777)
        entries = (DataEntry("numbers", url=f"file://{source}"),)
        there: list[dict[Path, float]] = []
        for _ in range(2):
            data = Data(entries, "vision", str(cache / "%n"))
            request: LaunchRequest = request_for(READING, total_steps=3, data=data)
            executor.launch(request)
            fact = ended(executor, request.run_id)
            said = (self.epoch_dir(request) / "logs" / "rank0.log").read_text()
            assert reason(fact) == "done", [fact.exit, said]
            assert "reads seven" in said
            there.append({path: path.stat().st_mtime for path in cache.glob("*/vision/*/data")})
        assert len(there[0]) == 1
        assert there[0] == there[1]

"""The site's modules and images around programs: real ones, where they can be installed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.bringing import GivenUp
from evenkeel.runner.processes import all_processes, descendants, signal_quietly
from evenkeel.runner.software import SoftwareUnavailable, command_in, installed, with_software
from evenkeel.runner.spec import LaunchSpec

from tests.client.test_runner import SLOW, Portal, exit_of, launch, until
from tests.client.test_runner import portal as portal  # a fixture
from tests.client.test_runner_nodes import NODES
from tests.site_software import make_image, make_modules, need_container_tool, need_modules

TRAIN = """
import os, evenkeel
print("image:", open("/etc/which-image").read().strip(), "in", os.getcwd(), flush=True)
with evenkeel.training() as run:
    for step in run.steps():
        run.save({"step": step})
"""


def log_of(place: Path) -> str:
    log = place / "epoch" / "logs" / "rank0.log"
    return log.read_text() if log.exists() else ""


class TestModules:
    @pytest.fixture(autouse=True)
    def modules(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        need_modules()
        monkeypatch.setenv("MODULEPATH", str(make_modules(tmp_path / "site", "solver", "mesher")))

    def test_what_they_set_reaches_the_program(self, tmp_path: Path, portal: Portal) -> None:
        line = 'tell; echo "$SITE_LIBRARY, steps $EVENKEEL_TOTAL_STEPS"'
        runner = launch(tmp_path, portal, argv=[line], shell=True, modules=["mesher", "solver"])
        assert runner.wait(60) == 0
        assert exit_of(tmp_path)["reason"] == "done"
        said = log_of(tmp_path)
        assert "told by solver" in said  # the last that was loaded comes first
        assert "of solver, steps 100000" in said  # the portal's own variables are its own

    def test_what_the_job_sets_itself_goes_before(self, tmp_path: Path, portal: Portal) -> None:
        own = {"SITE_LIBRARY": "my own"}
        runner = launch(
            tmp_path, portal, argv=["echo $SITE_LIBRARY"], shell=True, modules=["solver"], env=own, environment=own
        )
        assert runner.wait(60) == 0
        assert "my own" in log_of(tmp_path)

    def test_one_that_is_not_there_ends_the_launch_in_its_own_words(self, tmp_path: Path, portal: Portal) -> None:
        assert launch(tmp_path, portal, modules=["solver", "nowhere/1.0"]).wait(60) == 0
        ended = exit_of(tmp_path)
        assert (ended["reason"], ended["permanent"]) == ("launch_failed", True)
        assert "nowhere/1.0" in ended["message"]

    @pytest.mark.parametrize("name", ["$(touch {place}/done)", "a; touch {place}/done", "`touch {place}/done`"])
    def test_names_are_no_shell_text(self, tmp_path: Path, portal: Portal, name: str) -> None:
        assert launch(tmp_path, portal, modules=[name.format(place=tmp_path)]).wait(60) == 0
        assert not (tmp_path / "done").exists()

    @pytest.mark.parametrize("there", [True, False])
    def test_every_node_of_a_launch_loads_them(self, tmp_path: Path, portal: Portal, there: bool) -> None:
        program = ["-c", "import os; print(os.environ['SITE_LIBRARY'], os.environ['RANK'])"]
        head = launch(tmp_path, portal, argv=[sys.executable, *program], nodes=NODES, modules=["solver"])
        command = [sys.executable, "-m", "evenkeel.runner", str(tmp_path / "epoch"), "--follow", "b"]
        has = {} if there else {"MODULEPATH": str(tmp_path)}
        follower = subprocess.Popen(command, start_new_session=True, env=os.environ | has)
        assert [process.wait(60) for process in (head, follower)] == [0, 0]
        ended = exit_of(tmp_path)
        if there:
            assert ended["reason"] == "done"
            logs = [(tmp_path / "epoch" / "logs" / f"rank{rank}.log").read_text() for rank in range(3)]
            assert logs == [f"of solver {rank}\n" for rank in range(3)]
        else:
            assert (ended["reason"], ended["permanent"]) == ("launch_failed", True)
            assert "solver cannot be loaded" in ended["message"]
            assert "(b)" in ended["message"]

    def test_a_node_says_that_it_has_them(self) -> None:
        assert "Modules" in installed()["modules"]


def test_a_node_without_modules_says_so(tmp_path: Path, portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").write_text('#!/bin/sh\necho "this node has no module command" >&2\nexit 1\n')
    (tmp_path / "bin" / "bash").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert "modules" not in installed()


class TestImages:
    @pytest.fixture(autouse=True, params=["ch-run", "bwrap"])
    def tool(self, request: pytest.FixtureRequest) -> str:
        self.with_tool = str(request.param)
        need_container_tool(self.with_tool)
        return self.with_tool

    @pytest.fixture
    def image(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        return str(make_image(tmp_path_factory.mktemp("images") / "small"))

    def in_image(self, image: str, **more: Any) -> dict[str, Any]:
        variables = {"USER": "somebody", "EVENKEEL_TOTAL_STEPS": "40", "EVENKEEL_CHECKPOINT_EVERY": "20"}
        return {"image": image, "container_tool": self.with_tool, "environment": variables} | more

    def test_a_program_trains_in_one_with_the_sdk(self, tmp_path: Path, portal: Portal, image: str) -> None:
        argv = ["python", "-c", TRAIN]
        runner = launch(tmp_path, portal, **self.in_image(image, argv=argv))
        assert runner.wait(60) == 0
        assert exit_of(tmp_path)["reason"] == "done", log_of(tmp_path)
        assert f"image: the test's in {tmp_path}" in log_of(tmp_path)
        assert portal.reports[-1]["sdk"] is True

    def test_exit_codes_and_shell_lines_are_those_of_the_program(
        self, tmp_path: Path, portal: Portal, image: str
    ) -> None:
        runner = launch(tmp_path, portal, **self.in_image(image, argv=["cat /etc/which-image; exit 7"], shell=True))
        assert runner.wait(60) == 0
        ended = exit_of(tmp_path)
        assert (ended["reason"], ended["exit_code"]) == ("user_error", 7)
        assert "the test's" in log_of(tmp_path)

    def test_it_is_stopped_and_killed_as_any_program_is(self, tmp_path: Path, portal: Portal, image: str) -> None:
        places = [tmp_path / name for name in ("stopped", "killed")]
        for place in places:
            place.mkdir()
        endless = {"EVENKEEL_TOTAL_STEPS": "1000000"}
        given = self.in_image(image, argv=["python", "-c", SLOW])
        given["environment"] |= endless
        runners = [launch(place, portal, **given, run_id=place.name) for place in places]
        until(lambda: all((place / "epoch" / "runner.json").exists() for place in places))
        until(lambda: {one["path"].split("/")[4] for one in portal.reports if one.get("step")} == {"stopped", "killed"})
        (places[0] / "epoch" / "stop").touch()
        runners[1].send_signal(10)
        assert [runner.wait(60) for runner in runners] == [0, 0]
        assert [exit_of(place)["reason"] for place in places] == ["stopped", "signal"]

    def test_one_that_is_not_there_is_named(self, tmp_path: Path, portal: Portal) -> None:
        assert launch(tmp_path, portal, **self.in_image("/nowhere/image")).wait(60) == 0
        ended = exit_of(tmp_path)
        assert (ended["reason"], ended["permanent"]) == ("launch_failed", True)
        assert ended["message"] == "the image /nowhere/image is not on this node"

    def test_a_node_says_that_it_has_the_tool(self, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("USER", raising=False)  # as a daemon's
        assert re.search(r"\d+\.\d+", installed()[tool])
        assert "error" not in installed()[tool]

    def test_what_says_sigterm_reaches_the_program_which_ends_as_it_likes(
        self, tmp_path: Path, portal: Portal, image: str
    ) -> None:
        line = "import signal, sys, time\nsignal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(0)))"
        argv = ["python", "-c", f"{line}\nprint('up', flush=True)\ntime.sleep(60)"]
        runner = launch(tmp_path, portal, **self.in_image(image, argv=argv))
        until(lambda: "up" in log_of(tmp_path))
        (tmp_path / "epoch" / "stop").touch()
        assert runner.wait(60) == 0
        assert exit_of(tmp_path)["reason"] == "stopped"
        assert "saved" in log_of(tmp_path)

    def test_nothing_of_it_is_left_where_the_runner_is_killed(self, tmp_path: Path, portal: Portal, image: str) -> None:
        runner = launch(tmp_path, portal, **self.in_image(image, argv=["echo up; sleep 987"], shell=True))
        until(lambda: "up" in log_of(tmp_path))
        below = {process.pid for process in descendants(runner.pid)}
        assert below
        runner.kill()
        runner.wait(10)
        if self.with_tool == "bwrap":  # the program's shell dies with bwrap; its child is the sweep's
            until(lambda: not any(one.pid in below and one.name != "sleep" for one in all_processes() if one.alive))
        for pid in below:
            signal_quietly(pid, signal.SIGKILL)


def spec_of(place: Path, **changes: Any) -> LaunchSpec:
    (place / "epoch" / "sdk").mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "job_id": "j1", "run_id": "r1", "epoch": 1, "argv": ["python", "train.py"], "shell": False,
        "workdir": str(place), "workers": 1, "cuda_visible_devices": "GPU-1", "env": {}, "total_steps": 1,
        "max_duration_s": None, "memory_mib": None, "api_url": "", "report_interval_s": 1.0, "limits": {},
        "log_bytes": 1, "secret_variables": [], "emulated_devices": "", "pace_steps_per_s": None,
        "limits_in_words": "", "gpu_sharing": "", "container_tool": "apptainer", "image": str(place),
        "environment": {"PATH": str(place / "bin"), "VIRTUAL_ENV": "/x", "LD_LIBRARY_PATH": "/y",
                        "EVENKEEL_SDK_DIR": str(place / "epoch" / "sdk")},
    }  # fmt: skip
    return LaunchSpec(**(content | changes))


def test_apptainer_is_asked_for_the_devices_and_the_jobs_directories(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "apptainer"
    tool.parent.mkdir()
    tool.touch(mode=0o755)
    found = with_software(spec_of(tmp_path), tmp_path / "epoch")
    asked = [str(tool), "exec", "--nv", "--no-home", "--bind", str(tmp_path), "--pwd", str(tmp_path), str(tmp_path)]
    assert found.command() == [*asked, "python", "train.py"]
    assert found.environment["PATH"].startswith("/usr/local/sbin:")
    assert not {"VIRTUAL_ENV", "LD_LIBRARY_PATH"} & found.environment.keys()
    assert (tmp_path / "epoch" / "python" / "evenkeel" / "__init__.py").exists()
    assert found.environment["PYTHONPATH"] == str(tmp_path / "epoch" / "python")
    assert found.python_arguments() is None
    assert "--nv" not in command_in("apptainer", "apptainer", "i", "/", [], gpus=False)


def test_bwrap_adds_directories_of_the_job_where_the_image_has_no_place_for_them(tmp_path: Path) -> None:
    image, job, other = tmp_path / "image", tmp_path / "job", Path("/usr/share/evenkeel")
    for name in ("usr/bin", "usr/lib", "home"):
        (image / name).mkdir(parents=True)
    (image / "bin").symlink_to("usr/bin")
    said = command_in("bwrap", "bwrap", str(image), "/work", [str(job), str(other)], gpus=True)
    words = " ".join(said)
    assert words.startswith("bwrap --tmpfs / --symlink usr/bin /bin --ro-bind")
    assert f"--dir /usr --ro-bind {image}/usr/bin /usr/bin --ro-bind {image}/usr/lib /usr/lib" in words
    assert words.index("--tmpfs /tmp") < words.index(f"--bind {job} {job}") < words.index("--remount-ro /")
    assert words.endswith("--die-with-parent --chdir /work --")


def test_bwrap_runs_unpacked_images_only(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "bwrap"
    tool.parent.mkdir()
    tool.touch(mode=0o755)
    for image in ("docker://python:3.12", str(tool)):
        spec = replace(spec_of(tmp_path / image[-3:]), container_tool="bwrap", image=image)
        with pytest.raises(SoftwareUnavailable, match="is not a directory, and bwrap runs unpacked images only"):
            with_software(spec, tmp_path / "epoch")


def _has_path(pid: int, path: str) -> bool:
    with contextlib.suppress(OSError):
        return f"PATH={path}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def test_modules_that_take_too_long_may_be_tried_again_and_are_given_up_with_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = tmp_path / "bin" / "bash"
    bash.parent.mkdir()
    bash.write_text("#!/bin/sh\n/bin/sleep 300 & /bin/sleep 300\n")
    bash.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bash.parent}:/usr/bin:/bin")
    monkeypatch.setattr("evenkeel.runner.software.LOAD_S", 0.1)
    spec = spec_of(tmp_path, image=None, modules=["slow"])
    with pytest.raises(SoftwareUnavailable, match=r"loading slow took more than 0\.1 s") as caught:
        with_software(spec, tmp_path / "epoch")
    assert not caught.value.permanent
    with pytest.raises(GivenUp):
        with_software(spec, tmp_path / "epoch", lambda: True)
    until(lambda: not any(_has_path(one.pid, str(bash.parent)) for one in all_processes()))


def test_all_of_the_jobs_code_is_seen_where_it_starts_in_a_part_of_it(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "j1"
    epoch, part = job / "runs" / "r1" / "1", job / "code" / "train"
    for path in (epoch, part, tmp_path / "bin"):
        path.mkdir(parents=True)
    (tmp_path / "bin" / "apptainer").touch(mode=0o755)
    spec = replace(spec_of(tmp_path), workdir=str(part))
    spec = spec.with_variables({"EVENKEEL_SDK_DIR": str(epoch), "PATH": str(tmp_path / "bin")})
    assert f"--bind {job} --pwd {part} " in " ".join(with_software(spec, epoch).command())


@pytest.mark.parametrize("tool", ["apptainer", "bwrap"])
def test_data_is_seen_where_its_links_lead(tmp_path: Path, tool: str) -> None:
    place, shared = tmp_path / "job", tmp_path / "shared"
    for path in (place / "bin", place / "epoch" / "data", shared / "corpus"):
        path.mkdir(parents=True)
    (place / "bin" / tool).touch(mode=0o755)
    (shared / "labels.csv").touch()
    links = {}
    for name in ("corpus", "labels.csv"):
        link = place / "epoch" / "data" / name
        link.symlink_to(shared / name)
        links[f"EVENKEEL_DATA_{name[:6].upper()}"] = str(link)
    spec = replace(spec_of(place).with_variables(links), container_tool=tool)
    words = " ".join(with_software(spec, place / "epoch").command())
    bound = "--bind {0} {0} " if tool == "bwrap" else "--bind {0} "
    assert all(bound.format(path) in words for path in (shared / "corpus", shared / "labels.csv"))
    assert bound.format(shared) not in words  # not what lies beside it


def test_what_the_job_sets_itself_holds_in_the_image(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "apptainer"
    tool.parent.mkdir()
    tool.touch(mode=0o755)
    own = {"LD_LIBRARY_PATH": "/opt/lib"}
    spec = spec_of(tmp_path, env=own)
    found = with_software(spec.with_variables(own), tmp_path / "epoch")
    assert found.environment["LD_LIBRARY_PATH"] == "/opt/lib"


def test_a_node_without_the_tool_says_so(tmp_path: Path) -> None:
    with pytest.raises(SoftwareUnavailable, match="apptainer is not installed on this node"):
        with_software(spec_of(tmp_path), tmp_path / "epoch")


def test_without_either_nothing_changes(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, image=None, argv=[sys.executable, "train.py"])
    assert with_software(spec, tmp_path / "epoch") is spec

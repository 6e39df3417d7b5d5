"""What every executor must do with the site's own software: modules that are loaded, images that programs run in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduling.executors.base import Executor, Software
from tests.executors.contract import COUNTING, Requests, ended, reason
from tests.site_software import make_image, make_modules, need_charliecloud, need_container_tool, need_modules

#: As the executors of these tests are told.
SOFTWARE = Software(modules=True, container_tool="ch-run")
WHERE = 'print("in", open("/etc/which-image").read(), flush=True)\n'


def have_tool(executor: Any, tool: str) -> None:
    software = replace(SOFTWARE, container_tool=tool)
    if hasattr(executor, "_software"):
        executor._software = software
    else:
        executor._options = replace(executor._options, software=software)


class SoftwareContract(Requests):
    @pytest.fixture
    def site(self) -> Iterator[Path]:
        """Where every account of the machine may read."""
        with tempfile.TemporaryDirectory(prefix="evenkeel-site-", ignore_cleanup_errors=True) as name:
            Path(name).chmod(0o755)
            yield Path(name)

    def test_a_program_trains_in_an_image(self, executor: Executor, request_for: Any, place: Path, site: Path) -> None:
        need_charliecloud()
        assert executor.supports_containers
        arguments = ("starts", "0.02")  # below the job's directory: of the rest an image sees what its tool shows it
        request = request_for(WHERE + COUNTING, *arguments, workers=2, image=str(make_image(site / "image")))
        executor.launch(request)
        fact = ended(executor, request.run_id)
        logs = self.epoch_dir(request) / "logs"
        assert reason(fact) == "done", [fact.exit, (logs / "rank0.log").read_text()]
        assert fact.exit
        assert (fact.exit.exit_code, fact.exit.step) == (0, 20)
        assert self.last_state(request)["seen"] == list(range(20))
        assert all("in the test's" in (logs / f"rank{rank}.log").read_text() for rank in range(2))

    def test_a_program_trains_in_an_unpacked_image_by_bwrap(
        self, executor: Executor, request_for: Any, place: Path, site: Path
    ) -> None:
        need_container_tool("bwrap")
        have_tool(executor, "bwrap")
        self.test_a_program_trains_in_an_image(executor, request_for, place, site)

    def test_an_image_that_is_not_there_fails_the_launch(self, executor: Executor, request_for: Any) -> None:
        request = request_for(image="/nowhere/image.sif")
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "launch_failed"
        assert fact.exit
        assert fact.exit.permanent
        assert "the image /nowhere/image.sif is not on this node" in fact.exit.message

    def test_modules_are_loaded_for_the_program(self, executor: Executor, request_for: Any, site: Path) -> None:
        need_modules()
        assert executor.supports_modules
        here = {"MODULEPATH": str(make_modules(site, "solver", "mesher"))}
        request = request_for(argv=("tell",), modules=("mesher", "solver"), env=here)
        executor.launch(request)
        assert reason(ended(executor, request.run_id)) == "done"
        assert "told by solver" in (self.epoch_dir(request) / "logs" / "rank0.log").read_text()

    def test_a_module_that_is_not_there_fails_the_launch(self, executor: Executor, request_for: Any) -> None:
        need_modules()
        request = request_for(modules=("nowhere/1.0",))
        executor.launch(request)
        fact = ended(executor, request.run_id)
        assert reason(fact) == "launch_failed"
        assert fact.exit
        assert fact.exit.permanent
        assert "nowhere/1.0" in fact.exit.message

"""Bounded reads of a project's files, which are not trusted: no link is followed, and only plain files are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from portal.jobs.clusters import files_of
from portal.material.environments import owner_of
from portal.material.models import Artifact, Environment
from portal.storage.log_files import open_directory, open_file
from portal.storage.log_text import Chunk, chunk_of, tail_of, whole_size

BLOCK = 256 * 1024


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file below a cluster's folder, by the names of its path."""

    files: Path  # of the cluster
    where: tuple[str, ...]
    name: str

    def size(self) -> int | None:
        """None if there is no such file."""
        with open_directory(self.files, self.where) as directory:
            file = open_file(directory, self.name)
            if file is None:
                return None
            try:
                return os.fstat(file).st_size
            finally:
                os.close(file)

    def read(self, offset: int, limit: int) -> bytes:
        with open_directory(self.files, self.where) as directory:
            file = open_file(directory, self.name)
            if file is None:
                return b""
            try:
                return os.pread(file, limit, offset)
            finally:
                os.close(file)

    def chunk(self, offset: int, limit: int, *, growing: bool = False) -> Chunk:
        size = self.size() or 0
        return chunk_of(self.read, whole_size(self.read, size) if growing else size, offset, limit)

    def tail(self, lines: int, limit: int, *, growing: bool = False) -> Chunk:
        size = self.size() or 0
        return tail_of(self.read, whole_size(self.read, size) if growing else size, lines, limit)


def environment_log(environment: Environment) -> PlainFile:
    where = ("environments", owner_of(environment), environment.digest)
    return PlainFile(files_of(environment.cluster_id), where, "log")


def artifact_file(artifact: Artifact) -> PlainFile:
    *above, name = artifact.path.split("/")
    job = artifact.run.job
    where = ("jobs", str(job.pk), "runs", str(artifact.run_id), "artifacts", *above)
    return PlainFile(files_of(job.cluster_id), where, name)
